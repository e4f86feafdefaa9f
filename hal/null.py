"""A backend that does nothing: the template for backends of other authors, and the subject of the dispatch benchmark.

It is not registered by default. To make a backend of your own, copy this file into your package and

1. set `name` and `contract_version` (the one your kernels keep; `deepinfer.hal.contract.CONTRACT_VERSION` is current);
2. say in `probe` what is missing and how to get it, without touching the device;
3. put kernels into modules, one per op family, named as in `backends/reference`, and list them in `kernel_modules`;
4. compute something known in `self_test`, through the kernels that will be used;
5. announce the object in your `pyproject.toml`:

       [project.entry-points."deepinfer.backends"]
       null = "your_package:backend"

`deepinfer ops status --backend null` then lists what it implements.
"""

from __future__ import annotations

from typing import Any

import torch

from .backend import Available, Backend, Unavailable, known_answer
from .contract import CONTRACT_VERSION
from .device import Device
from .graph import Graphs, GraphsUnavailable, NoGraphReason
from .registry import REGISTRY, Kernel


def nothing(*args: Any) -> Any:
    """A kernel that computes nothing and returns `out`. Positional arguments in spec order, `out` last."""
    return args[-1]


class NullBackend(Backend):
    """Accepts every op it is asked to, and leaves outputs as they are."""

    name = "null"
    contract_version = CONTRACT_VERSION

    def __init__(self, ops: tuple[tuple[str, int], ...] = ()) -> None:
        """
        Args:
            ops: (name, version) of the ops to register the kernel for.
        """
        self.ops = ops

    def probe(self) -> Available | Unavailable:
        return Available("does nothing, everywhere")

    def load(self) -> None:
        # A real backend inherits `load` and lists modules that use the decorator `hal.registry.kernel`.
        for op, version in self.ops:
            REGISTRY.add(Kernel(op, version, self.name, nothing, source="none"))

    def graphs(self, device: Device) -> Graphs | GraphsUnavailable:
        return GraphsUnavailable(device, NoGraphReason.NO_DEVICE_QUEUE)

    def self_test(self, device: Device) -> None:
        want = torch.arange(4, dtype=torch.int32)
        known_answer(
            "returns out", nothing(want.to(device.torch)), want, device=device, arch_found="any", arch_wanted="any"
        )


backend = NullBackend()
