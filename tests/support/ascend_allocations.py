"""What memory launchers take: calls of the Ascend backend's kernels whose launches are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ascend_ops import TARGET, on_ascend
from deepinfer.backends.ascend.program import Program
from deepinfer.conformance.calls import call, to_target
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops.spec import SPECS


class Fresh(TorchDispatchMode):
    """Lists the storages that operations of torch make: their bytes, and the operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, int]] = []
        self._kept: list[Any] = []  # so that no address comes twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage().data_ptr() for t in _tensors((args, tuple((kwargs or {}).values())))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors((result,)):
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in given:
                self.found.append((str(func), storage.nbytes()))
                self._kept.append(storage)
        return result

    @property
    def nbytes(self) -> int:
        return sum(size for _, size in self.found)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


@contextmanager
def _no_launch() -> Iterator[None]:
    launch = Program.__call__
    Program.__call__ = lambda self, work, **arguments: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Program.__call__ = launch  # type: ignore[method-assign]


def chosen(op: str, args: tuple[Any, ...]) -> Kernel | None:
    """The backend's kernel for a call, None where it declines."""
    found = [v.kernel for v in REGISTRY.explain(SPECS[op].signature(*args)) if v.chosen]
    return found[0] if found and found[0].backend == "ascend" else None


def taken(op: str, args: tuple[Any, ...], *, odd: bool = False) -> list[str]:
    """What a call takes beyond its outputs and its declared workspace: [] for nothing.

    `odd`: contiguous arguments begin one element behind where their allocations do.
    """
    spec = SPECS[op]
    with on_ascend(), _no_launch():
        placed = to_target(spec, args, TARGET)
        placed = tuple(_moved(value) for value in placed) if odd else placed
        kernel = chosen(op, placed)
        if kernel is None:
            return []
        size = 0 if kernel.workspace is None else kernel.workspace(*placed)
        outs = call(spec, placed, TARGET)[: len(spec.outs)]  # what is made once is made now
        out = None if not outs else outs[0] if len(outs) == 1 else tuple(outs)
        scratch = torch.empty(size, dtype=torch.uint8)
        wrong = []
        with Fresh() as fresh:
            kernel.fn(*placed, out, *(() if kernel.workspace is None else (scratch,)))
        wrong += [f"{what} of {count} bytes, with out and workspace given" for what, count in fresh.found]
        with Fresh() as fresh:
            kernel.fn(*placed, None)
        allowed = size + sum(t.numel() * t.element_size() for t in outs if not _within(t, placed))
        if fresh.nbytes > allowed:
            wrong.append(f"{fresh.nbytes} bytes, of which outputs and workspace are {allowed}: {fresh.found}")
    return wrong


def _within(tensor: Tensor, args: tuple[Any, ...]) -> bool:
    return any(tensor.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in _tensors(args))


def _moved(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.is_contiguous():
        return value
    raw = torch.zeros(value.nbytes + value.element_size(), dtype=torch.uint8, device=value.device)
    return raw[value.element_size() :].view(value.dtype).view(value.shape).copy_(value)
