"""Groups over NCCL: torch.distributed's, behind `hal.transport`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from ...hal.transport import DeviceTransport


class Nccl(DeviceTransport):
    """NCCL between GPUs."""

    name = "nccl"

    def missing(self) -> str | None:
        if dist.is_available() and dist.is_nccl_available():
            return None
        return f"torch {torch.__version__} has no NCCL; install it with DEEPINFER_ACCELERATOR=nvidia ./build.sh"

    def settings(self, deadline: float) -> Mapping[str, str]:
        # 2: torch's own watchdog frees the queue of a broken group; 3, its default, ends the process as well
        return {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2"}

    def select(self) -> None:
        torch.cuda.set_device(self.device.torch)

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def error(self, handle: Any) -> str:
        asked = getattr(handle._get_backend(self.device.torch), "get_error", None)
        found = "SUCCESS" if asked is None else getattr(asked(), "name", "SUCCESS")
        return "" if found == "SUCCESS" else f"NCCL reports {found}"
