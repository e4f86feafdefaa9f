"""Groups over HCCL: torch_npu's, behind `hal.transport`.

torch.distributed knows the name "hccl" once torch_npu is imported. None of this has run on a device; what it decides is
tested with fake libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from ...hal.errors import BackendError
from ...hal.transport import DeviceTransport, whole_seconds
from .errors import TorchNpuError

BUFFER_MIB = 16
"""Of each of the two buffers that a communicator takes on the device; HCCL's own 200 would be missed by the caches."""
LONGEST_SECONDS = 17340
"""The largest HCCL_EXEC_TIMEOUT."""


def _load() -> None:
    import_module("torch_npu")  # registers hccl


class Hccl(DeviceTransport):
    """HCCL between NPUs."""

    name = "hccl"
    reduced = (torch.int32, torch.int64, torch.float32)  # HCCL adds no float64

    load: Callable[[], None] = staticmethod(_load)

    def prepare(self, deadline: float) -> None:
        try:
            super().prepare(deadline)
        except BackendError as error:
            raise TorchNpuError(
                str(error), "install CANN with HCCL and the torch_npu of this torch, and source CANN's set_env.sh"
            ) from error

    def missing(self) -> str | None:
        try:
            self.load()
        except Exception as error:  # torch_npu raises what its libraries say, such as that libhccl.so is not there
            return f"torch_npu cannot be imported ({type(error).__name__}: {_first_line(error)})"
        if not dist.is_available():
            return f"torch {torch.__version__} is a build without torch.distributed"
        if self.name not in dist.Backend.backend_list:
            return "torch_npu has registered no hccl with torch.distributed"
        return None

    def settings(self, deadline: float) -> Mapping[str, str]:
        # Our deadline comes first; HCCL's own ends what not even an abort could.
        return {
            "HCCL_BUFFSIZE": str(BUFFER_MIB),
            "HCCL_CONNECT_TIMEOUT": whole_seconds(deadline, 120, 7200),
            "HCCL_EXEC_TIMEOUT": whole_seconds(2 * deadline + 10, 68, LONGEST_SECONDS),
        }

    def select(self) -> None:
        torch.npu.set_device(self.device.torch)  # type: ignore[attr-defined]

    def capturing(self) -> bool:
        asked = getattr(torch.npu, "is_current_stream_capturing", None)  # type: ignore[attr-defined]
        return asked is not None and bool(asked())

    def abort(self, handle: Any) -> None:
        backend = handle._get_backend(self.device.torch)
        stop = getattr(backend, "abort_hccl_comm", None)
        if stop is None:
            super().abort(handle)
        else:
            stop("a collective missed its deadline")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
