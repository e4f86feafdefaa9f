"""Device spellings, detection without touching a device, and capability records."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.hal import device as module
from deepinfer.hal.device import Capability, Detected, Device, capability, detect
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError


@pytest.mark.parametrize(
    ("spelling", "device", "text"),
    [
        ("cpu", Device("cpu"), "cpu"),
        ("cpu:0", Device("cpu"), "cpu"),
        ("cuda", Device("cuda"), "cuda:0"),
        ("cuda:3", Device("cuda", 3), "cuda:3"),
        ("nvidia:1", Device("cuda", 1), "cuda:1"),
        ("gpu", Device("cuda"), "cuda:0"),
        ("npu:15", Device("npu", 15), "npu:15"),
        ("ascend", Device("npu"), "npu:0"),
        (torch.device("cuda", 2), Device("cuda", 2), "cuda:2"),
        (torch.device("cpu"), Device("cpu"), "cpu"),
        (Device("npu", 1), Device("npu", 1), "npu:1"),
        ("meta", Device("meta"), "meta"),
    ],
)
def test_spellings(spelling: Any, device: Device, text: str) -> None:
    assert Device.parse(spelling) == device
    assert str(device) == text and Device.parse(text) == device


@pytest.mark.parametrize(
    "spelling", ["", "tpu", "cuda:", "cuda:-1", "cuda:x", "cuda:0:1", " cuda", "cuda:٣", "cpu:1", "cuda:99999", ":0"]
)
def test_wrong_spellings_are_refused(spelling: str) -> None:
    with pytest.raises(InvalidArgumentError, match="device: got"):
        Device.parse(spelling)


def test_torch_devices_compare_equal_to_those_of_tensors() -> None:
    assert Device.parse("cpu:0").torch == torch.zeros(1).device
    assert Device.parse("meta").torch == torch.zeros(1, device="meta").device
    assert Device.parse("cuda:1").torch == torch.device("cuda:1")


def system(root: Path, *nodes: str) -> Path:
    (root / "dev").mkdir()
    for node in nodes:
        (root / "dev" / node).touch()
    return root


@pytest.mark.parametrize(
    ("nodes", "environ", "found"),
    [
        ((), {}, []),
        (("null", "nvidiactl", "nvidia-uvm", "davinci_manager"), {}, []),
        (("nvidia3",), {}, [Detected("cuda", 1, "/dev/nvidia3")]),
        (("nvidia0", "nvidia1"), {}, [Detected("cuda", 2, "/dev/nvidia0")]),
        (("nvidia0", "nvidia1"), {"CUDA_VISIBLE_DEVICES": "1"}, [Detected("cuda", 1, "/dev/nvidia0")]),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": ""}, []),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        (("nvidia0", "nvidia1"), {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [Detected("cuda", 1, "/dev/nvidia0")]),
        (("nvidia0",), {"CUDA_VISIBLE_DEVICES": "0,1,2"}, [Detected("cuda", 1, "/dev/nvidia0")]),
        (
            ("nvidia0", "davinci0", "davinci1"),
            {},
            [Detected("npu", 2, "/dev/davinci0"), Detected("cuda", 1, "/dev/nvidia0")],
        ),
        (
            ("nvidia0", "davinci0"),
            {"ASCEND_RT_VISIBLE_DEVICES": ""},
            [Detected("cuda", 1, "/dev/nvidia0")],
        ),
    ],
)
def test_detection(tmp_path: Path, nodes: tuple[str, ...], environ: dict[str, str], found: list[Detected]) -> None:
    assert detect(system(tmp_path, *nodes), environ) == found


def test_detection_without_a_dev_folder(tmp_path: Path) -> None:
    assert detect(tmp_path, {}) == []


def test_detection_touches_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: Any) -> None:
        raise AssertionError("the accelerator was touched")

    for name in ("is_available", "device_count", "init", "_lazy_init"):
        monkeypatch.setattr(torch.cuda, name, touched)
    detect()


def test_capability_of_the_cpu() -> None:
    found = capability(Device("cpu"), "reference")
    assert found.backend == "reference" and found.communicator == "gloo" and not found.graphs
    assert found.cores and found.arch and found.name
    assert found.memory_total and found.memory_free and 0 < found.memory_free <= found.memory_total
    assert torch.float8_e4m3fn in found.dtypes
    assert json.loads(json.dumps(found.as_dict()))["dtypes"] == sorted(found.as_dict()["dtypes"])


def test_host_memory_respects_the_control_group(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  700 kB\n")
    assert module._host_memory(tmp_path) == (1000 * 1024, 700 * 1024)
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("100000\n")
    (group / "memory.max").write_text("max\n")
    assert module._host_memory(tmp_path) == (1000 * 1024, 700 * 1024)
    (group / "memory.max").write_text("300000\n")
    assert module._host_memory(tmp_path) == (300000, 200000)
    (group / "memory.current").write_text("300001\n")
    assert module._host_memory(tmp_path) == (300000, 0)


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert module._host_memory(tmp_path) == (None, None)
    assert module._cpu_name(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: A CPU @ 1 GHz\n")
    assert module._cpu_name(tmp_path) == "A CPU @ 1 GHz"


def fake_accelerator(monkeypatch: pytest.MonkeyPatch, kind: str, **changes: Any) -> None:
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)
    if kind == "npu":
        properties = SimpleNamespace(name="Ascend950PR")
    values: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "get_device_properties": lambda index: properties,
        "mem_get_info": lambda index: (70, 100),
    }
    monkeypatch.setattr(torch, kind, SimpleNamespace(**(values | changes)), raising=False)


def test_capability_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_accelerator(monkeypatch, "cuda")
    found = capability(Device("cuda", 1), "cuda")
    assert (found.arch, found.cores, found.communicator, found.host_pinning) == ("sm_90", 132, "gloo", True)
    assert (found.memory_free, found.memory_total) == (70, 100)


def test_capability_of_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_accelerator(monkeypatch, "npu")
    found: Capability = capability(Device("npu"), "ascend")
    assert (found.arch, found.cores, found.communicator) == ("ascend950pr", None, "gloo")


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_accelerator(monkeypatch, "cuda", is_available=lambda: False)
    with pytest.raises(InvalidArgumentError, match="cuda:0"):
        capability(Device("cuda"), "cuda")
    monkeypatch.delattr(torch, "npu", raising=False)
    with pytest.raises(InvalidArgumentError, match="npu:0"):
        capability(Device("npu"), "ascend")
    fake_accelerator(monkeypatch, "cuda")
    with pytest.raises(InvalidArgumentError, match="an index below 2"):
        capability(Device("cuda", 2), "cuda")


def test_a_driver_error_is_a_device_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(index: int) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error")

    fake_accelerator(monkeypatch, "cuda", mem_get_info=fault)
    with pytest.raises(DeviceFaultError, match="cuda:0 does not answer: CUDA error: uncorrectable ECC"):
        capability(Device("cuda"), "cuda")
