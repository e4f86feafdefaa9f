"""Aliasing: which tensors of one call may share memory.

An output overlaps no argument and no other output, except where its spec lets it be one argument itself (`in_place`); a
mutable argument overlaps no other argument. A tensor counts from its first byte to its last, gaps between strided rows
included. Arguments that are only read may overlap as they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .spec import OpSpec, WeightHandle


def check_mutable(spec: OpSpec, args: Sequence[Any]) -> None:
    """Refuse a mutable argument that overlaps another argument.

    Raises:
        ContractError: names both.
    """
    for written, value in zip(spec.args, args, strict=True):
        if not getattr(written, "mutable", False) or value is None:
            continue
        for name, other in named_tensors(spec, args):
            if name != written.name and overlap(value, other):
                raise spec.error(f"{written.name}, which is written, overlaps {name} in memory")


def check_outs(spec: OpSpec, args: Sequence[Any], outs: Sequence[torch.Tensor]) -> None:
    """Refuse outputs that overlap an argument or each other.

    Raises:
        ContractError: names both.
    """
    for position, (described, value) in enumerate(zip(spec.outs, outs, strict=True)):
        for name, other in named_tensors(spec, args):
            if not overlap(value, other):
                continue
            if name != described.in_place:
                raise spec.error(f"out {described.name} overlaps {name} in memory")
            if value.data_ptr() != other.data_ptr() or value.shape != other.shape or value.dtype != other.dtype:
                raise spec.error(f"out {described.name} overlaps {name}; it may only be {name} itself or apart from it")
        for earlier, other in zip(spec.outs, outs[:position], strict=False):
            if overlap(value, other):
                raise spec.error(f"out {described.name} overlaps out {earlier.name} in memory")


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the byte ranges of two tensors meet."""
    if a.device != b.device or not a.numel() or not b.numel():
        return False
    (low, high), (first, last) = _extent(a), _extent(b)
    return low < last and first < high


def named_tensors(spec: OpSpec, args: Sequence[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a call with the name of its argument; a prepared weight gives all it holds."""
    for arg, value in zip(spec.args, args, strict=True):
        if isinstance(value, torch.Tensor):
            yield arg.name, value
        elif isinstance(value, WeightHandle):
            yield from ((arg.name, part) for part in value.tensors)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of the first byte and of the byte after the last; empty without memory (the meta device)."""
    start = tensor.data_ptr()
    if start == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
