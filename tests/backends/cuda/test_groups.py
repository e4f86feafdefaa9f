"""Groups over NCCL, over fakes of what torch says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deepinfer.backends.cuda import CudaBackend
from deepinfer.backends.cuda.groups import Nccl
from deepinfer.hal.device import Device
from deepinfer.hal.errors import BackendError
from deepinfer.hal.stream import InlineStreams
from deepinfer.hal.transport import Transport

GPU = Device("cuda", 1)


def nccl(environ: dict[str, str]) -> Nccl:
    return Nccl(GPU, InlineStreams(GPU), environ)


def test_gpus_have_nccl_and_the_interpreter_gloo() -> None:
    assert isinstance(CudaBackend().transport(GPU), Nccl) and nccl({}).backends == "cpu:gloo,cuda:nccl"
    assert type(CudaBackend().transport(Device("cpu"))) is Transport


def test_the_device_of_the_process_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    environ, chosen = {}, []  # type: tuple[dict[str, str], list[Any]]
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    nccl(environ).prepare(60.0)
    assert chosen == [torch.device("cuda:1")]
    assert environ == {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2"}, "torch's watchdog may not end the process"


def test_a_torch_without_nccl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(BackendError, match="cuda:1 over nccl: torch .* has no NCCL; .*nvidia ./build.sh"):
        nccl({}).prepare(60.0)


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (SimpleNamespace(get_error=lambda: SimpleNamespace(name="SUCCESS")), ""),
        (SimpleNamespace(get_error=lambda: SimpleNamespace(name="REMOTE_ERROR")), "NCCL reports REMOTE_ERROR"),
        (SimpleNamespace(), ""),
    ],
)
def test_what_nccl_has_noticed(library: Any, said: str) -> None:
    assert nccl({}).error(SimpleNamespace(_get_backend=lambda device: library)) == said
