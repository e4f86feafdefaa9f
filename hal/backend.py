"""What a backend is: the object behind an entry point of the group `deepinfer.backends`.

A backend derives from `Backend`, states its name and the contract version it implements, and lists the modules whose
import registers its kernels. `hal/null.py` is the smallest one and a template. `hal/catalog.py` finds, checks and loads
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import device as device_module
from .device import Capability, Device
from .errors import SelfTestError
from .graph import Graphs, GraphsUnavailable, NoGraphReason
from .stream import InlineStreams, Streams
from .transport import Transport

# Accelerator names as users of the upstream package spell them, and the backends behind them.
ALIASES: Mapping[str, str] = {
    "cpu": "reference",
    "reference": "reference",
    "nvidia": "cuda",
    "cuda": "cuda",
    "ascend": "ascend",
    "npu": "ascend",
}


def canonical(name: str) -> str:
    """The backend behind an accelerator's or backend's name; an unknown name stays as it is."""
    return ALIASES.get(name, name)


@dataclass(frozen=True)
class Available:
    """A backend can run here. `detail` says what was found, such as versions and levels."""

    detail: str = ""


@dataclass(frozen=True)
class Unavailable:
    """A backend cannot run here.

    Attributes:
        reason: what is missing.
        remedy: how to get it; '' where there is nothing to do on this machine.
    """

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


LEVELS = ("specified", "reference", "cross-compiled", "lowered", "interpreted", "simulated", "device")
"""How far an op stands on a backend, the least first: no kernel; the reference's; built without a device, for NVIDIA
and for Ascend; run without one, in an interpreter or a simulator; run on a chip."""


class Backend:
    """Base of backends. A plug-in overrides what differs.

    Attributes:
        name: as users write it; equals the name of the entry point.
        contract_version: version of the op contract that its kernels keep.
        device_type: torch device type it runs on by default.
        package: package that `kernel_modules` are relative to.
        kernel_modules: modules that register the kernels when they are imported.
        checked: levels (of `LEVELS`) at which its own tests hold every kernel, without a device.
    """

    name: str = ""
    contract_version: int = -1
    device_type: str = "cpu"
    package: str | None = None
    kernel_modules: Sequence[str] = ()
    checked: Sequence[str] = ()

    def probe(self) -> Available | Unavailable:
        """Whether the backend can run here. Quick; loads no kernel and creates no device context."""
        return Available()

    def load(self) -> None:
        """Register the kernels. Called once, before the self-test; an exception makes the backend unusable."""
        for module in self.kernel_modules:
            importlib.import_module(module, self.package)

    def devices(self) -> tuple[Device, ...]:
        """Devices to run on, the default one first. Called after `probe` said yes."""
        return (Device(self.device_type),)

    def capability(self, device: Device) -> Capability:
        """What a device can do."""
        found = device_module.capability(device, self.name)
        transport = self.transport(device)
        return replace(found, graphs=isinstance(self.graphs(device), Graphs), communicator=transport.name)

    def level(self, device: Device) -> str:
        """What a run on a device shows, of `LEVELS`: 'device', unless kernels are interpreted or simulated there."""
        return LEVELS[-1]

    def graphs(self, device: Device) -> Graphs | GraphsUnavailable:
        """Graph capture on a device, or why there is none."""
        return GraphsUnavailable(device, NoGraphReason.NOT_BUILT)

    def streams(self, device: Device) -> Streams:
        """Streams, events and pinned memory of a device."""
        return InlineStreams(device)

    def transport(self, device: Device) -> Transport:
        """How processes move tensors of such devices between them; see `hal.transport`."""
        return Transport()

    def self_test(self, device: Device) -> None:
        """Run known-answer tests on a device, through the code that will be used.

        Raises:
            SelfTestError: see `known_answer`.
        """


@dataclass(frozen=True)
class KernelPlugin:
    """The object behind an entry point of the group `deepinfer.kernels`: kernels for backends that exist.

    Attributes:
        name: as reports show it; equals the name of the entry point.
        contract_version: version of the op contract that the kernels keep.
        load: registers the kernels; called once.
    """

    name: str
    contract_version: int
    load: Callable[[], Any]


def known_answer(
    check: str,
    got: torch.Tensor,
    want: torch.Tensor,
    *,
    device: Device,
    arch_found: str,
    arch_wanted: str,
) -> None:
    """Compare one result with its known answer, bit for bit.

    Args:
        check: what was computed.
        got: result, on the device.
        want: answer, on the host, with the shape and dtype of `got`.
        arch_found: chip of the device.
        arch_wanted: chips the kernels were built for.

    Raises:
        SelfTestError: the results differ, or the device failed; names both chips, as kernels built for another chip
            are the usual cause.
    """
    host = got.detach().to("cpu")
    if host.shape != want.shape or host.dtype != want.dtype:
        problem = f"gave {host.dtype} {tuple(host.shape)}, wanted {want.dtype} {tuple(want.shape)}"
    else:
        wrong = host.contiguous().view(torch.uint8) != want.contiguous().view(torch.uint8)
        if not bool(wrong.any()):
            return
        problem = f"gave wrong bits in {int(wrong.sum())} of {wrong.numel()} bytes"
    raise self_test_error(check, problem, device=device, arch_found=arch_found, arch_wanted=arch_wanted)


def self_test_error(check: str, problem: str, *, device: Device, arch_found: str, arch_wanted: str) -> SelfTestError:
    """The error of a failed self-test: names the check, the device, and the chips found and wanted."""
    return SelfTestError(
        f"self-test {check!r} on {device} {problem}; the device is {arch_found}, the kernels are for {arch_wanted}"
    )
