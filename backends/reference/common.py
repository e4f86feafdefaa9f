"""Small helpers shared by the reference kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import SPECS

Value = TypeVar("Value", Tensor, tuple[Tensor, ...])


def finish(value: Value, out: Value | None) -> Value:
    """Return `value`, copied into the caller's `out` when there is one (a tensor, or a tuple of several outputs)."""
    if out is None:
        return value
    if isinstance(value, tuple):
        for source, target in zip(value, out, strict=True):
            _copy(source, target)
    else:
        assert isinstance(out, Tensor)
        _copy(value, out)
    return out


def widths(*, rotary: str = "", **multiples: int) -> Callable[[Signature], str | None]:
    """`supports` of a kernel whose static dims come in whole groups.

    Args:
        rotary: the dim whose last 2F channels are rotated; it must hold them.
        multiples: dim -> what it must be a positive multiple of.
    """

    def supports(signature: Signature) -> str | None:
        for name, multiple in multiples.items():
            size = signature.dims[name]
            if size <= 0 or size % multiple:
                return f"{name} must be a positive multiple of {multiple}, got {size}"
        if rotary and 2 * signature.dims["F"] > signature.dims[rotary]:
            return f"{rotary} must hold 2F = {2 * signature.dims['F']} channels, got {signature.dims[rotary]}"
        return None

    return supports


def check_index(op: str, name: str, index: Tensor, size: int) -> Tensor:
    """The index as int64, if all of it lies in [0, size).

    torch counts a negative index from the end, which would be another sequence's memory, and on some devices does not
    look at the bound at all.

    Raises:
        ContractError: names the argument, the value and the bound.
    """
    if index.numel():
        low, high = (int(bound) for bound in index.aminmax())
        if low < 0 or high >= size:
            raise SPECS[op].error(f"{name} holds {low if low < 0 else high}, must lie in [0, {size})")
    return index.long()


def tree_sum(x: Tensor) -> Tensor:
    """Sum over the last dim, kept with length 1, in a fixed order: halves are added until one column is left.

    Column i of the first half meets column i of the second; with an odd length the last column waits for the next
    round. Each round is one elementwise addition, so a row's sum does not depend on where the row stands, which
    torch.sum does not promise.
    """
    while (width := x.shape[-1]) > 1:
        if width % 2 == 0:
            first, second = x.chunk(2, dim=-1)
            x = first + second
        else:
            first, second, last = x.split((width // 2, width // 2, 1), dim=-1)
            x = torch.cat((first + second, last), dim=-1)
    return x


def _copy(source: Tensor, target: Tensor) -> None:
    # copy_ between float8 tensors is a conversion on some devices; bytes are bytes.
    if source.dtype == torch.float8_e4m3fn:
        source, target = source.view(torch.uint8), target.view(torch.uint8)
    target.copy_(source)
