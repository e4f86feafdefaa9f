"""The CUDA backend: Triton and CUDA kernels for NVIDIA SM90 and SM100. docs/cuda.md describes it.

Importing this package loads no Triton; `backend.load()` does. With TRITON_INTERPRET=1 and no GPU the kernels run in
Triton's interpreter on the CPU: slow, and the way their numerics are tested without a device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from ...hal.backend import Available, Backend, Unavailable
from ...hal.contract import CONTRACT_VERSION
from ...hal.device import Capability, Device
from ...hal.graph import Graphs, GraphsUnavailable, NoGraphReason
from ...hal.stream import Streams
from ...hal.transport import Transport
from . import driver, providers
from .register import ARCHS

OLDEST_TRITON = (3, 6)

# The op families, in the order of the reference. A family has a file here once it has kernels.
FAMILIES = (
    "embed",
    "norm",
    "quant",
    "linear",
    "rope",
    "hyper_connections",
    "kv",
    "attention",
    "index",
    "moe",
    "engram",
    "sampling",
    "draft",
    "verify",
    "step",
    "moves",
    "sampling_rows",
    "exchange",
    "mirror",
    "fused",
    "vision",
)


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter on the CPU: asked for, and there is no GPU to prefer."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "y", "yes")


class CudaBackend(Backend):
    """Kernels for one GPU of a kind named in `ARCHS`."""

    name = "cuda"
    contract_version = CONTRACT_VERSION
    package = __name__
    checked = ("cross-compiled", "interpreted")

    @property
    def kernel_modules(self) -> Sequence[str]:  # type: ignore[override]
        """The families that have kernels, and the providers that are installed."""
        here = Path(__file__).parent
        families = tuple(f".{family}" for family in FAMILIES if (here / f"{family}.py").is_file())
        return families if interpreting() else families + providers.installed()

    @property
    def device_type(self) -> str:  # type: ignore[override]
        return "cpu" if interpreting() else "cuda"

    def probe(self) -> Available | Unavailable:
        """Triton first, then torch, the driver and the chip; each missing thing is named with its remedy."""
        triton = triton_version()
        if isinstance(triton, Unavailable):
            return triton
        if interpreting():
            return Available(f"interpreted on the CPU (TRITON_INTERPRET=1): Triton {triton}, torch {torch.__version__}")
        if torch.version.cuda is None:
            return Unavailable(
                f"torch {torch.__version__} is a build without CUDA",
                "install it with DEEPINFER_ACCELERATOR=nvidia ./build.sh, or set TRITON_INTERPRET=1 to try kernels "
                "on the CPU",
            )
        found = driver.query()
        if isinstance(found, str):
            return Unavailable(found, "check nvidia-smi and CUDA_VISIBLE_DEVICES")
        usable = [arch for arch in found.archs if arch in ARCHS]
        if not usable or found.archs[0] not in ARCHS:
            others = ", ".join(found.archs) or "none"
            hint = "put one that is first in CUDA_VISIBLE_DEVICES" if usable else ""
            return Unavailable(f"the kernels are for {' and '.join(ARCHS)}; the GPUs here are {others}", hint)
        if not torch.cuda.is_available():
            return Unavailable(
                f"torch {torch.__version__} for CUDA {torch.version.cuda} cannot use the driver, which runs up to "
                f"CUDA {found.version}",
                "install a newer driver, or a torch for an older CUDA",
            )
        return Available(
            f"{len(found.archs)} × {found.archs[0]}, torch {torch.__version__} (CUDA {torch.version.cuda}), "
            f"driver for CUDA {found.version}, Triton {triton}"
        )

    def load(self) -> None:
        """Register the kernels of the families that exist."""
        from ... import ops  # noqa: F401  (defines the specs)

        super().load()

    def devices(self) -> tuple[Device, ...]:
        if interpreting():
            return (Device("cpu"),)
        return tuple(Device("cuda", i) for i in range(torch.cuda.device_count()))

    def capability(self, device: Device) -> Capability:
        found = super().capability(device)
        return replace(found, name=f"{found.name} (interpreted)") if device.type == "cpu" else found

    def level(self, device: Device) -> str:
        return "interpreted" if device.type == "cpu" else super().level(device)

    def graphs(self, device: Device) -> Graphs | GraphsUnavailable:
        if device.type == "cpu":
            return GraphsUnavailable(device, NoGraphReason.NO_DEVICE_QUEUE, "kernels run in Triton's interpreter")
        from .streams import CudaGraphs

        return CudaGraphs(device)

    def streams(self, device: Device) -> Streams:
        if device.type == "cpu":
            return super().streams(device)
        from .streams import CudaStreams

        return CudaStreams(device)

    def transport(self, device: Device) -> Transport:
        if device.type == "cpu":
            return super().transport(device)
        from .groups import Nccl

        return Nccl(device, self.streams(device))

    def self_test(self, device: Device) -> None:
        """One small kernel with known answers, through the path that all kernels take."""
        from . import self_test_kernels

        self_test_kernels.run(device, self.capability(device).arch)


def triton_version() -> str | Unavailable:
    """Triton's version, without loading it."""
    wanted = ".".join(map(str, OLDEST_TRITON))
    try:
        found = version("triton") if find_spec("triton") is not None else None
    except PackageNotFoundError:  # a build from source need not have metadata
        return "of unknown version"
    if found is None:
        return Unavailable("Triton is not installed", f"pip install 'triton>={wanted}'; torch for CUDA brings it")
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_TRITON:
        return Unavailable(f"Triton {found} is too old", f"pip install 'triton>={wanted}'")
    return found


backend = CudaBackend()
