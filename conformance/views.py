"""The same tensors at other places in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..ops.spec import OpSpec


def misaligned(spec: OpSpec, args: Sequence[Any], elements: int = 1) -> tuple[Any, ...]:
    """Copies of all tensors that begin `elements` elements behind an aligned address, strides kept; weights stay."""
    return tuple(shift(value, elements) if isinstance(value, Tensor) else value for value in args)


def shift(value: Tensor, elements: int) -> Tensor:
    """A copy of a tensor and the foreign bytes between its rows, `elements` elements behind an aligned address."""
    size = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1 if value.numel() else 0
    raw = torch.zeros((size + elements) * value.element_size(), dtype=torch.uint8, device=value.device)
    room = raw.view(value.dtype)[elements:]
    if size:
        room[:size] = value.as_strided((size,), (1,))
        return room.as_strided(value.shape, value.stride())
    return room[:0].view(value.shape)
