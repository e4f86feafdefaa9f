"""Groups of processes: results, zero rows, and errors that name the missing ranks in place of a hang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import world_worker
from deepinfer.hal import comm, heartbeat, world
from deepinfer.hal.errors import InvalidArgumentError

WORKER = Path(world_worker.__file__)

Reports = dict[str, dict[int, Any]]


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Reports of all scenarios by rank. They run at once; rank 0 of 'split' is this process."""
    folder = tmp_path_factory.mktemp("world")
    ranks = {
        "split": "1,2,3",
        "late": "0,1,2",
        "stopped": "0,1,2",
        "dead": "0,1,2",
        "absent": "0,1",
        "queued": "0,1",
        "again": "0,1",
    }
    addresses = {name: free_address() for name in ranks}
    launcher = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    launcher.set("deepinfer/joined/1", "of somebody else")
    addresses["queued"] = addresses["again"] = f"tcp://127.0.0.1:{launcher.port}"
    sizes = {"split": 4, "queued": 2, "again": 2}
    jobs = [f"{name}/{ranks[name]}/{sizes.get(name, 3)}/{at}" for name, at in addresses.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), str(folder), *jobs]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            here = world_worker.play("split", 0, 4, addresses["split"])
            _, errors = child.communicate(timeout=120)
            assert child.returncode == 0, errors
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # the group of our own child, in case one of its ranks hangs
    found: Reports = {name: {} for name in addresses}
    found["split"][0] = here
    for path in folder.glob("*.json"):
        scenario, rank = path.stem.split(".")
        found[scenario][int(rank)] = json.loads(path.read_text())
    return found


def test_collectives_in_the_world_and_in_its_parts(reports: Reports) -> None:
    assert {r: reports["split"][r]["error"] for r in range(4)} == dict.fromkeys(range(4))
    assert "barrier after close" in reports["split"][0]["after_close"]
    assert not torch.distributed.is_initialized()


def test_a_slow_rank_is_named_at_the_deadline(reports: Reports) -> None:
    for rank in (0, 2):
        report = reports["late"][rank]
        assert report["missing"] == [1], report["error"]
        assert "barrier (collective 2)" in report["error"] and "rank 1 did not arrive" in report["error"]
        assert report["sticky"], "the group must refuse later collectives at once"
    assert reports["late"][1]["error"], "the slow rank must not wait for ever when it comes"


def test_a_stopped_rank_is_named_at_the_deadline(reports: Reports) -> None:
    assert set(reports["stopped"]) == {0, 2}
    for report in reports["stopped"].values():
        assert report["missing"] == [1], report["error"]
        assert "rank 1 gives no sign of life" in report["error"]


def test_a_dead_rank_is_named_before_the_deadline(reports: Reports) -> None:
    assert set(reports["dead"]) == {0, 2}
    for report in reports["dead"].values():
        assert report["missing"] == [1], report["error"]
        assert report["seconds"] < 55  # the deadline is 60


def test_a_queued_collective_is_watched_while_the_host_goes_on(reports: Reports) -> None:
    assert reports["queued"][1]["error"] is None
    report = reports["queued"][0]
    assert report["host_waited"] < 1.0, "the host must not wait for the collective"
    assert report["missing"] == [1] and report["group"] == "world", report["error"]
    assert "all_reduce" in report["error"] and "rank 1 did not arrive" in report["error"]
    assert report["aborted"], "what the device has queued must be ended"
    assert "group 'world' of the same world failed" in report["part"], "a part's work lies on the same queue"


def test_after_a_world_that_could_not_be_formed_the_next_one_can(reports: Reports) -> None:
    for rank in (0, 1):
        report = reports["again"][rank]
        assert report["error"] is None, report["error"]
        assert report["first"] == "the device broke"
        assert not report["left"], "threads of the world that was not formed"
        assert report["sum"] == 3


def test_a_rank_that_never_joins_is_named(reports: Reports) -> None:
    for report in reports["absent"].values():
        assert report["missing"] == [2], report["error"]
        assert "join" in report["error"]


HOST = torch.zeros(1)


class FailingHandle:
    """A collective whose transport fails, or that ends without a result."""

    def __init__(self, error: str | None) -> None:
        self.error = error

    def wait(self, timeout: Any) -> bool:
        if self.error is None:
            return False
        raise RuntimeError(self.error)


@pytest.fixture
def store() -> Any:
    return torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)


@pytest.mark.parametrize(
    ("others", "missing", "words"),
    [
        ({1: "x", 2: "x"}, (), "every member arrived; the transport says: Connection closed"),
        ({1: "x", 2: ""}, (2,), "rank 2 did not arrive"),
        ({1: "x"}, (2,), "rank 2 gives no sign of life"),
        ({1: ""}, (1, 2), "rank 1 did not arrive; rank 2 gives no sign of life"),
    ],
)
def test_diagnosis(
    store: Any, monkeypatch: pytest.MonkeyPatch, others: dict[int, str], missing: tuple[int, ...], words: str
) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(heartbeat, "WATCH_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "LINGER_SECONDS", 0.1)
    progress = {rank: heartbeat.Heartbeat(store, rank) for rank in (0, *others)}
    for rank, entered in others.items():
        if entered:
            progress[rank].enter("dp")
    group = world.ProcessGroup("dp", None, 0, (0, 1, 2), 7.0, progress[0])
    try:
        with pytest.raises(comm.CommunicatorError) as caught:
            group._finish("all_gather", lambda: FailingHandle("Connection closed\nby peer"), HOST)
        assert caught.value.missing == missing and words in str(caught.value)
        assert "all_gather (collective 1) failed after" in str(caught.value) and "deadline 7 s" in str(caught.value)
        with pytest.raises(comm.CommunicatorError) as again:
            group._finish("barrier", lambda: None, HOST)
        assert again.value is caught.value
    finally:
        for one in progress.values():
            one.stop()


def test_diagnosis_without_the_store_names_its_holder() -> None:
    class Gone:
        def publish(self) -> None:
            raise RuntimeError("Broken pipe")

        holder = heartbeat.RANK_0

        def enter(self, group: str) -> int:
            return 4

    group = world.ProcessGroup("dp", None, 1, (0, 1), 7.0, Gone())  # type: ignore[arg-type]
    with pytest.raises(comm.CommunicatorError, match="rank 0 of the world, which holds the store, is gone") as caught:
        group._finish("barrier", lambda: FailingHandle(None), HOST)
    assert caught.value.missing == (0,)


def test_host_groups_refuse_device_tensors() -> None:
    group = world.ProcessGroup("dp", None, 1, (0, 1), 7.0, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="host memory"):
        group.all_gather(torch.empty(2, device="meta"))


def test_short_memory_stays_the_error_of_torch_and_ends_the_group(store: Any) -> None:
    def short() -> None:
        raise torch.OutOfMemoryError("out of memory")

    progress = heartbeat.Heartbeat(store, 0)
    group = world.ProcessGroup("dp", None, 0, (0, 1), 7.0, progress)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            group._finish("all_gather", short, HOST)
        with pytest.raises(comm.CommunicatorError, match="short of memory"):
            group.check()
    finally:
        progress.stop()


def test_without_rank_0_joining_fails() -> None:
    with pytest.raises(comm.CommunicatorError, match="rank 0 of the world cannot be reached") as caught:
        world.connect(1, 2, free_address(), deadline=0.5)
    assert caught.value.missing == (0,)


@pytest.mark.parametrize(("served", "holder"), [(None, "rank 0 of the world"), ("attempt 0", "the launcher")])
def test_who_holds_the_store_is_named_when_it_goes(
    monkeypatch: pytest.MonkeyPatch, served: str | None, holder: str
) -> None:
    class Gone:
        """A store that was reached, and is gone when it is asked who has joined."""

        def __init__(self, *given: Any, **named: Any) -> None:
            pass

        def set(self, key: str, value: str) -> None:
            pass

        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("Broken pipe")

    monkeypatch.setattr(torch.distributed, "TCPStore", Gone)
    monkeypatch.setattr(torch.distributed, "PrefixStore", Gone)
    with pytest.raises(comm.CommunicatorError, match=f"{holder} left tcp://h:1 before rank 0, 1 had joined"):
        world.connect(1, 2, "tcp://h:1", deadline=0.5, served=served)


def test_world_of_one_uses_no_network() -> None:
    group = world.connect(0, 1, "tcp://no.such.host:1")
    assert group.world_size == 1 and not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: world.connect(2, 2, "tcp://h:1"), "rank"),
        (lambda: world.connect(0, 0, "tcp://h:1"), "world_size"),
        (lambda: world.connect(0, 2, "h:1"), "address"),
        (lambda: world.connect(0, 2, "tcp://h:²"), "address"),
    ],
)
def test_wrong_calls_name_the_parameter(call: Any, parameter: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert caught.value.parameter == parameter
