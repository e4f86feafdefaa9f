"""What a process may use, on machines described by folders."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime import host
from deepinfer.runtime.host import Cpus


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    def put(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n")
        return tmp_path

    return put


def two_nodes(threads: int = 2) -> dict[str, str]:
    """Eight cores on two nodes; the second threads of cores have numbers of their own behind."""
    files = {
        "sys/devices/system/node/online": "0-1",
        "sys/devices/system/node/node0/cpulist": "0-3,8-11",
        "sys/devices/system/node/node1/cpulist": "4-7,12-15",
        "sys/bus/pci/devices/0000:3b:00.0/numa_node": "1",
        "sys/bus/pci/devices/0000:5e:00.0/numa_node": "-1",
    }
    for cpu in range(16):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 8},{cpu % 8 + 8}"
    return files


def test_lists_of_numbers() -> None:
    assert host.parse_list("0-3,8, 10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert host.parse_list("") == () and host.parse_list("5,5,4") == (4, 5)
    for bad in ("x", "3-1", "1-", "-2"):
        with pytest.raises(ValueError):
            host.parse_list(bad)


def test_a_machine_that_says_nothing_leaves_the_mask(tmp_path: Path) -> None:
    found = host.cpus(tmp_path, {3, 1})
    assert found == Cpus((1, 3)) and found.count == 2
    assert host.cpus().count >= 1, "nor does this one fail"


def test_the_second_version_of_cgroups(machine: Any) -> None:
    root = machine(
        {
            "proc/self/cgroup": "0::/pods/a",
            "sys/fs/cgroup/pods/a/cpuset.cpus.effective": "2-9",
            "sys/fs/cgroup/pods/a/cpuset.mems.effective": "1",
            "sys/fs/cgroup/pods/a/cpu.max": "max 100000",
            "sys/fs/cgroup/pods/cpu.max": "350000 100000",
        }
    )
    found = host.cpus(root, range(8))
    assert found == Cpus((2, 3, 4, 5, 6, 7), 3.5, (1,)) and found.count == 4


def test_the_first_version_of_cgroups(machine: Any) -> None:
    root = machine(
        {
            "proc/self/cgroup": "5:cpuset:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/",
            "sys/fs/cgroup/cpuset/docker/x/cpuset.cpus": "0-1",
            "sys/fs/cgroup/cpuset/docker/x/cpuset.mems": "0-1",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
        }
    )
    found = host.cpus(root, range(8))
    assert found == Cpus((0, 1), 0.5, (0, 1)) and found.count == 1
    (root / "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us").write_text("-1\n")
    assert host.cpus(root, range(8)).quota is None


def test_a_container_that_names_a_group_of_the_host(machine: Any) -> None:
    root = machine({"proc/self/cgroup": "0::/../../kubepods/x", "sys/fs/cgroup/cpuset.cpus.effective": "4-5"})
    assert host.cpus(root, range(8)).allowed == (4, 5)
    assert host.cpus(root, {0, 1}).allowed == (0, 1), "a mask and a set that do not meet"


def test_devices_and_their_nodes(machine: Any) -> None:
    root = machine(two_nodes())
    assert host.node_of_device("0000:3B:00.0", root) == 1 == host.node_of_device("00000000:3b:00.0", root)
    assert host.node_of_device("0000:5e:00.0", root) is None is host.node_of_device("0000:99:00.0", root)
    assert host.cpus_of_node(1, root) == (4, 5, 6, 7, 12, 13, 14, 15) and host.cpus_of_node(7, root) == ()
    assert host.cores((0, 8, 1, 5), root) == [(0, 8), (1,), (5,)]


def test_engines_take_whole_cores_next_to_their_devices(machine: Any) -> None:
    root = machine(two_nodes())
    process = host.cpus(root, range(16))
    shares = [host.bind(process, index, 2, 1, root) for index in range(2)]
    assert [share.cpus for share in shares] == [(4, 5, 12, 13), (6, 7, 14, 15)]
    assert all(share.node == 1 for share in shares)
    anywhere = [host.bind(process, index, 3, None, root).cpus for index in range(3)]
    assert sorted(cpu for share in anywhere for cpu in share) == list(range(16)), "nothing is lost or given twice"
    assert host.bind(process, 0, 1, None, root).node is None


def test_what_is_not_allowed_is_not_bound_to(machine: Any) -> None:
    root = machine(two_nodes())
    elsewhere = host.bind(Cpus((0, 1, 8), None, (0,)), 0, 1, 1, root)
    assert elsewhere.cpus == (0, 1, 8) and elsewhere.node is None, "the node of the device is not ours"
    some = host.bind(Cpus((3, 4, 5), None, (0, 1)), 0, 1, 1, root)
    assert some.cpus == (4, 5) and some.node == 1
    few = host.bind(Cpus((4, 12), None, (0, 1)), 2, 4, 1, root)
    assert few.cpus == (4, 12) and "fewer cores" in few.reason
    with pytest.raises(InvalidArgumentError, match="index"):
        host.bind(Cpus((0,)), 1, 1)


def gpus(*addresses: str) -> dict[str, str]:
    return {f"proc/driver/nvidia/gpus/{one}/information": "" for one in addresses}


def test_engines_that_know_nothing_of_each_other_share_nothing(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three devices on two nodes, each seen alone by its process."""
    buses = {"0000:3b:00.0": "1", "0000:3c:00.0": "1", "0000:11:00.0": "0"}
    root = machine(
        two_nodes() | gpus(*buses) | {f"sys/bus/pci/devices/{one}/numa_node": node for one, node in buses.items()}
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    found = [host.binding_for("cuda", 0, f"0000{one.upper()}", root, {host.CUDA: "2"}) for one in buses]
    shares = [one.cpus for one in found if isinstance(one, host.Binding)]
    assert shares == [(4, 5, 12, 13), (6, 7, 14, 15), (0, 1, 2, 3, 8, 9, 10, 11)]


@pytest.mark.parametrize(
    ("buses", "allowed", "want"),
    [
        (  # a container that has one of the nodes
            {"0000:11:00.0": "0", "0000:12:00.0": "0", "0000:3b:00.0": "1", "0000:3c:00.0": "1"},
            {0, 1, 2, 3, 8, 9, 10, 11},
            [(0, 8), (1, 9), (2, 10), (3, 11)],
        ),
        (  # a device that is next to no node
            {"0000:11:00.0": "0", "0000:5e:00.0": "-1"},
            set(range(16)),
            [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)],
        ),
    ],
)
def test_devices_without_cpus_next_to_them_share_nothing_either(
    buses: dict[str, str], allowed: set[int], want: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {f"sys/bus/pci/devices/{one}/numa_node": node for one, node in buses.items()}
    root = machine(two_nodes() | gpus(*buses) | places)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    found = [host.binding_for("cuda", 0, one, root, {}) for one in buses]
    assert [one.cpus for one in found if isinstance(one, host.Binding)] == want


def test_devices_without_an_address_share_by_their_number(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(two_nodes() | {f"dev/davinci{number}": "" for number in range(4)} | {"dev/davinci_manager": ""})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    seen = [host.binding_for("npu", 0, None, root, {host.ASCEND: str(number)}) for number in range(4)]
    assert [one.cpus for one in seen if isinstance(one, host.Binding)] == [
        (0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15),
    ]  # fmt: skip
    assert host.binding_for("npu", 2, None, root, {}) == seen[2]


def test_where_nothing_is_to_be_bound_there_is_a_reason(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(two_nodes() | gpus("0000:3b:00.0"))
    assert "on CPUs" in str(host.binding_for("cpu", 0, None, root))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert "one CPU" in str(host.binding_for("cuda", 0, "0000:3b:00.0", root, {}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 13})
    assert "all CPUs" in str(host.binding_for("cuda", 0, "0000:3b:00.0", root, {}))


def test_threads_that_are_there_are_bound_too() -> None:
    before = os.sched_getaffinity(0)
    stop, ids = threading.Event(), []
    other = threading.Thread(target=lambda: (ids.append(threading.get_native_id()), stop.wait(30)))
    other.start()
    try:
        while not ids:
            time.sleep(0.001)
        assert host.apply_binding(host.Binding((min(before),), None, "test"))
        assert os.sched_getaffinity(ids[0]) == {min(before)}
    finally:
        stop.set()
        other.join()
        host.apply_binding(host.Binding(tuple(before), None, "test"))


def test_every_thread_gets_back_the_cpus_it_had() -> None:
    before = os.sched_getaffinity(0)
    own, other = {min(before)}, {max(before)}
    stop, ids = threading.Event(), []

    def start() -> threading.Thread:
        thread = threading.Thread(target=lambda: (ids.append(threading.get_native_id()), stop.wait(30)))
        thread.start()
        while thread.is_alive() and len(ids) < len(threads) + 1:
            time.sleep(0.001)
        return thread

    threads: list[threading.Thread] = []
    try:
        threads.append(start())
        os.sched_setaffinity(ids[0], other)
        undo = host.apply_binding(host.Binding(tuple(own), None, "test"))
        assert undo is not None and os.sched_getaffinity(ids[0]) == own
        threads.append(start())
        undo()
        assert [os.sched_getaffinity(one) for one in (0, *ids)] == [before, other, before]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        host.apply_binding(host.Binding(tuple(before), None, "test"))


def test_a_binding_is_applied_or_nothing_changes() -> None:
    before = os.sched_getaffinity(0)
    try:
        assert host.apply_binding(host.Binding((min(before),), None, "test"))
        assert os.sched_getaffinity(0) == {min(before)}
        assert not host.apply_binding(host.Binding((4095,), None, "no such CPU"))
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        host.apply_binding(host.Binding(tuple(before), None, "test"))


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, (0, 1, 2, 3)), ("", ()), (" ", ()), ("2", (2,)), ("3, 0", (3, 0)), ("0,-1,1", (0,)), ("1,9,0", (1,)),
        ("-1", ()), ("GPU-12ab,MIG-7", ("GPU-12ab", "MIG-7")),
    ],
)  # fmt: skip
def test_visible_devices(text: str | None, devices: tuple[int | str, ...]) -> None:
    environ = {} if text is None else {host.CUDA: text}
    assert host.visible_devices(environ, 4) == devices


def test_visible_devices_that_make_no_sense_are_refused() -> None:
    for bad in ("0,0", "0,,1", "0;1", "1.5"):
        with pytest.raises(InvalidArgumentError, match=host.CUDA):
            host.visible_devices({host.CUDA: bad}, 4)
    names = (host.ASCEND, "ASCEND_VISIBLE_DEVICES")
    assert host.visible_devices({names[0]: "1", names[1]: "1"}, 4, names) == (1,)
    with pytest.raises(InvalidArgumentError, match="the devices of ASCEND_RT_VISIBLE_DEVICES, '1'"):
        host.visible_devices({names[0]: "1", names[1]: "2"}, 4, names)
