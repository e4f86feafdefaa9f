"""Groups over HCCL, over fakes of torch_npu and of what it registers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.backends.ascend import AscendBackend
from deepinfer.backends.ascend.errors import TorchNpuError
from deepinfer.backends.ascend.groups import Hccl
from deepinfer.hal import world
from deepinfer.hal.device import Device
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.hal.stream import InlineStreams
from deepinfer.hal.transport import Transport

NPU = Device("npu", 3)


class Npu:
    """torch.npu."""

    def __init__(self) -> None:
        self.chosen: list[Any] = []
        self.set_device = self.chosen.append
        self.is_current_stream_capturing = lambda: True


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Npu:
    fake = Npu()
    monkeypatch.setattr(torch, "npu", fake, raising=False)
    monkeypatch.setattr(Device, "torch", property(lambda self: torch.device("meta", self.index)))
    monkeypatch.setattr(torch.distributed.Backend, "backend_list", ["gloo", "hccl"])
    return fake


def hccl(environ: dict[str, str] | None = None, load: Any = lambda: None) -> Hccl:
    found = Hccl(NPU, InlineStreams(NPU), {} if environ is None else environ)
    found.load = load
    return found


def test_npus_have_hccl_and_the_simulator_gloo() -> None:
    assert isinstance(AscendBackend().transport(NPU), Hccl) and hccl().backends == "cpu:gloo,npu:hccl"
    assert type(AscendBackend().transport(Device("cpu"))) is Transport


def test_the_device_is_selected_and_the_library_told_its_times(npu: Npu) -> None:
    environ = {"HCCL_BUFFSIZE": "64"}
    found = hccl(environ)
    found.prepare(300.0)
    assert npu.chosen == [torch.device("meta", 3)]
    assert environ == {"HCCL_BUFFSIZE": "64", "HCCL_CONNECT_TIMEOUT": "300", "HCCL_EXEC_TIMEOUT": "610"}
    hccl(environ := {}).prepare(1e6)
    assert environ == {"HCCL_BUFFSIZE": "16", "HCCL_CONNECT_TIMEOUT": "7200", "HCCL_EXEC_TIMEOUT": "17340"}


def _broken() -> None:
    raise ImportError("libhccl.so: cannot open shared object file\nand more")


@pytest.mark.parametrize(
    ("load", "registered", "words"),
    [
        (_broken, True, "ImportError: libhccl.so: cannot open shared object file"),
        (lambda: None, False, "has registered no hccl"),
    ],
)
def test_what_is_missing_is_one_message(
    npu: Npu, monkeypatch: pytest.MonkeyPatch, load: Any, registered: bool, words: str
) -> None:
    if not registered:
        monkeypatch.setattr(torch.distributed.Backend, "backend_list", ["gloo"])
    with pytest.raises(TorchNpuError) as caught:
        world.connect(0, 2, "tcp://no.such.host:1", transport=hccl(load=load))
    message = str(caught.value)
    assert words in message and "npu:3 over hccl" in message and "set_env.sh" in message and "\n" not in message
    assert not npu.chosen


def test_without_torch_npu_there_are_no_groups() -> None:
    with pytest.raises(TorchNpuError, match="torch_npu cannot be imported"):
        Hccl(NPU, InlineStreams(NPU), {}).prepare(60.0)


def test_hccl_adds_no_float64(npu: Npu) -> None:
    group = world.ProcessGroup("dp", None, 0, (0, 1), 7.0, None, hccl())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="allowed: int32, int64, float32$"):
        group.all_reduce(torch.zeros(1, dtype=torch.float64))


def test_captures_are_asked_for_where_torch_npu_can_tell(npu: Npu) -> None:
    assert hccl().capturing()
    del npu.is_current_stream_capturing
    assert not hccl().capturing()


def test_an_abort_goes_to_hccl_where_it_takes_one(npu: Npu) -> None:
    log: list[str] = []
    library = SimpleNamespace(abort_hccl_comm=log.append)
    handle = SimpleNamespace(_get_backend=lambda device: library, abort=lambda: log.append("torch's"))
    hccl().abort(handle)
    assert log == ["a collective missed its deadline"]
    del library.abort_hccl_comm
    hccl().abort(handle)
    assert log[1:] == ["torch's"]
