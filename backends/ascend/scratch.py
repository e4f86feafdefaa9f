"""Memory of launchers beside outputs: parts of the declared workspace, and what stands where a tensor is absent.

A launcher allocates nothing else. With `workspace` None it allocates what it has declared, in one piece.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

Part = tuple[torch.dtype, tuple[int, ...]]
"""What a launcher keeps in scratch: dtype and shape."""

_LINE = 64
"""Bytes; parts begin on such boundaries, so that each may be seen as its dtype."""


def scratch_bytes(*parts: Part) -> int:
    """Bytes of workspace that hold the parts; what `workspace=` of a kernel returns."""
    return sum(_padded(part) for part in parts)


def take(workspace: Tensor | None, device: torch.device, *parts: Part) -> list[Tensor]:
    """The parts, one behind the other in the workspace."""
    if workspace is None:
        workspace = torch.empty(scratch_bytes(*parts), dtype=torch.uint8, device=device)
    taken, begin = [], 0
    for part in parts:
        dtype, shape = part
        taken.append(workspace[begin : begin + _bytes(part)].view(dtype).view(shape))
        begin += _padded(part)
    return taken


@cache
def nothing(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...] = (1,)) -> Tensor:
    """What a kernel gets in place of a tensor that is absent or empty, and neither reads nor writes. Made once."""
    return torch.zeros(shape, dtype=dtype, device=device)


def _bytes(part: Part) -> int:
    dtype, shape = part
    count = dtype.itemsize
    for size in shape:
        count *= size
    return count


def _padded(part: Part) -> int:
    return -(-_bytes(part) // _LINE) * _LINE
