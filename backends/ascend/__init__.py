"""The Ascend backend: TileLang kernels for Huawei Ascend 950. docs/ascend.md and docs/ascend_kernels.md describe it.

Without a device the kernels run on the simulator, on CPU tensors: slow, and the way that they are tested. Nothing here
has run on a device. Importing this package loads neither tilelang nor torch_npu.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ...hal.backend import Available, Backend, Unavailable
from ...hal.contract import CONTRACT_VERSION
from ...hal.device import Capability, Device
from ...hal.graph import Graphs, GraphsUnavailable, NoGraphReason
from ...hal.stream import Streams
from ...hal.transport import Transport
from . import discovery, versions
from .discovery import Found, Level

# The op families, in the order of the reference, vision in three files. A family has a file here once it has kernels.
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
    "vision_linear",
    "vision_attention",
)


class AscendBackend(Backend):
    """Kernels for Ascend 950: on NPUs where they answer, else on the simulator."""

    name = "ascend"
    contract_version = CONTRACT_VERSION
    package = __name__
    checked = ("lowered", "simulated")

    @cached_property
    def found(self) -> Found:
        """What this machine has; asked once."""
        return discovery.discover()

    @property
    def kernel_modules(self) -> Sequence[str]:  # type: ignore[override]
        """The families that have kernels."""
        here = Path(__file__).parent
        return tuple(f".{family}" for family in FAMILIES if (here / f"{family}.py").is_file())

    @property
    def device_type(self) -> str:  # type: ignore[override]
        return "npu" if self.found.level is Level.CHIP else "cpu"

    def probe(self) -> Available | Unavailable:
        """A device that answers, else the simulator. What is half installed is refused, with its remedy."""
        if versions.PROBLEM is not None:
            return Unavailable(versions.PROBLEM.reason, versions.PROBLEM.remedy)
        return verdict(self.found)

    def load(self) -> None:
        """Register the kernels of the families that exist."""
        from ... import ops  # noqa: F401  (defines the specs)

        super().load()

    def devices(self) -> tuple[Device, ...]:
        if self.found.level is not Level.CHIP:
            return (Device("cpu"),)
        import torch

        npu = torch.npu  # type: ignore[attr-defined]
        return tuple(Device("npu", i) for i in range(npu.device_count()))

    def capability(self, device: Device) -> Capability:
        from .register import CHIP, SIMULATED

        found = super().capability(device)
        if device.type == "cpu":
            return replace(found, arch=SIMULATED, name=f"{found.name} (simulating an Ascend 950)")
        return replace(found, arch=CHIP if found.arch.startswith(versions.CHIPS) else found.arch)

    def level(self, device: Device) -> str:
        return "simulated" if device.type == "cpu" else super().level(device)

    def graphs(self, device: Device) -> Graphs | GraphsUnavailable:
        if device.type == "cpu":
            return GraphsUnavailable(device, NoGraphReason.NO_DEVICE_QUEUE, "kernels run on the simulator")
        from .streams import npu_graphs

        return npu_graphs(device)

    def streams(self, device: Device) -> Streams:
        if device.type == "cpu":
            return super().streams(device)
        from .streams import NpuStreams

        return NpuStreams(device)

    def transport(self, device: Device) -> Transport:
        if device.type == "cpu":
            return super().transport(device)
        from .groups import Hccl

        return Hccl(device, self.streams(device))

    def self_test(self, device: Device) -> None:
        """One small kernel with known answers, through the path that all kernels take."""
        from . import self_test

        self_test.run(device, self.capability(device).arch)


def verdict(found: Found) -> Available | Unavailable:
    """Whether kernels can run with what was found."""
    if found.problem is not None:
        return Unavailable(found.problem.reason, found.problem.remedy)
    if found.level is Level.CHIP:
        return Available(f"{found.chip}, CANN {found.cann}, torch_npu {found.torch_npu}")
    if not found.simulator:
        return Available(f"simulated on the CPU, not on a device; level {int(found.level)}, {found.level.words}")
    return Unavailable(
        f"no Ascend device answers (level {int(found.level)}, {found.level.words}), and there is no simulator: "
        f"{found.simulator}",
        "DEEPINFER_ACCELERATOR=ascend ./build.sh installs what the simulator needs; it also needs g++",
    )


backend = AscendBackend()
