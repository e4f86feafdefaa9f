"""Tensors in memory of their own, with guard bytes around them: what an op wrote where it must not shows afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .case import Finding

GUARD = 256
"""Guard bytes on either side; a multiple of every alignment that counts."""
POISON = 0xFF
"""NaN in bf16, fp32, E4M3 and E8M0; -1 in integers: what lies around an argument must not be read."""
SENTINEL = 0x5A
"""What integer outputs hold before a call; no index, code or count of a sample is so."""


class Guarded:
    """A tensor with guard bytes around it and poison between its rows."""

    def __init__(self, value: Tensor, *, strides: Sequence[int] | None = None, shift: int = 0) -> None:
        """Copy a tensor.

        Args:
            strides: of the copy, in elements; those of `value` by default.
            shift: elements by which the copy starts behind a 16-byte boundary.
        """
        size = value.element_size()
        strides = tuple(value.stride() if strides is None else strides)
        extent = sum((n - 1) * s for n, s in zip(value.shape, strides, strict=True)) + 1 if value.numel() else 0
        self._first = GUARD // size + shift
        total = (self._first + extent) * size + GUARD
        self.raw = torch.full((total - total % size,), POISON, dtype=torch.uint8, device=value.device)
        self.tensor = self.raw.view(value.dtype).as_strided(value.shape, strides, self._first)
        if value.numel():
            _bytes(self.tensor).copy_(_bytes(value))
        self._before = self.raw.clone()

    @classmethod
    def output(cls, like: Tensor, *, shift: int = 0) -> Guarded:
        """A contiguous buffer of a tensor's form, filled with what no kernel may leave."""
        made = cls(torch.zeros(like.shape, dtype=torch.uint8, device=like.device).to(like.dtype), shift=shift)
        if like.dtype == torch.bool:
            made.tensor.fill_(True)
        else:
            size = like.element_size()
            inside = made.raw[made._first * size : (made._first + like.numel()) * size]
            inside.fill_(POISON if like.dtype.is_floating_point else SENTINEL)
        made._before = made.raw.clone()
        return made

    def strayed(self, name: str, *, written: bool) -> Finding | None:
        """What changed that must not: anything, or of a written tensor what lies around and between its rows."""
        changed = self.raw != self._before
        if written and self.tensor.numel():
            inside = torch.zeros_like(self.raw, dtype=torch.bool)
            size = self.tensor.element_size()
            strides = (*(s * size for s in self.tensor.stride()), 1)
            inside.as_strided((*self.tensor.shape, size), strides, self._first * size).fill_(True)
            changed &= ~inside
        if not changed.any():
            return None
        place = int(changed.nonzero()[0])
        first, last = self._first * self.tensor.element_size(), self.raw.numel() - GUARD
        where = "before" if place < first else "behind" if place >= last else "inside"
        distance = first - place if where == "before" else place - last + 1 if where == "behind" else place - first
        got, was = int(self.raw[place]), int(self._before[place])
        what = "between its rows" if written else "only read, yet changed"
        text = f"{what} at byte {distance}" if where == "inside" else f"{distance} bytes {where} it"
        return Finding(
            "input" if where == "inside" and not written else "guard",
            f"{name}: {text}: got {got:#x}, was {was:#x}; {int(changed.sum())} bytes written",
        )


def _bytes(x: Tensor) -> Tensor:
    """The elements as integers, so that a copy keeps every NaN."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.view(kind)
