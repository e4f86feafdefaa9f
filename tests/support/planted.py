"""A backend of this process whose kernels are the reference's with a fault planted in front or behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from deepinfer.conformance.case import Target
from deepinfer.hal.backend import Backend
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.contract import CONTRACT_VERSION
from deepinfer.hal.device import Device
from deepinfer.hal.graph import EagerGraphs, Graphs
from deepinfer.hal.registry import REFERENCE, REGISTRY, Kernel
from deepinfer.ops.spec import SPECS

NAME = "planted"
TARGET = Target(NAME, torch.device("cpu"))


class Planted(Backend):
    name = NAME
    contract_version = CONTRACT_VERSION

    def graphs(self, device: Device) -> Graphs:
        return EagerGraphs(device)


def reference(op: str) -> Kernel:
    """The reference's kernel of an op."""
    CATALOG.load(REFERENCE)
    return next(k for k in REGISTRY.kernels(op) if k.backend == REFERENCE and k.version == SPECS[op].version)


@contextmanager
def planted(workspace: Callable[..., int] | None = None, **faulty: Callable[..., Any]) -> Iterator[Target]:
    """A target whose kernels of some ops are `faulty[op](right, *args)`; `right` is the reference's function.

    Args:
        workspace: the scratch memory that the kernels ask for; they get it as their last argument.
        faulty: a function per op.
    """
    if NAME not in CATALOG.entries():
        CATALOG.add(Planted())
    with ExitStack() as stack:
        for op, fn in faulty.items():
            kernel = reference(op)
            mine = Kernel(
                op,
                kernel.version,
                NAME,
                partial(fn, kernel.fn),
                source="triton",
                supports=kernel.supports,
                workspace=workspace,
            )
            stack.callback(REGISTRY.remove, REGISTRY.add(mine))
        stack.enter_context(REGISTRY.using(NAME))
        yield TARGET


def right(fn: Callable[..., Any], *args: Any) -> Any:
    """No fault at all."""
    return fn(*args)
