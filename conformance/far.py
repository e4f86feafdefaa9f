"""Calls whose data lie beyond 2^31 bytes: pages, state slots and table rows of large ids, in memory mostly unused.

On a CPU memory that nobody touches costs nothing; on a device it is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops.required import TABLES, ids_of
from ..ops.rows import POOLS, named
from ..ops.spec import OpSpec

BORDER = 1 << 31
"""Bytes at which 32-bit offsets end."""


@dataclass(frozen=True)
class Far:
    """A call with one pool moved beyond the border.

    Attributes:
        args: its arguments.
        pool: name of the argument that moved.
        start: where the old entries begin in it.
    """

    args: tuple[Any, ...]
    pool: str
    start: int


def move(spec: OpSpec, args: Sequence[Any], pool: str) -> Far | None:
    """The same call with the entries of a pool beyond 2^31 bytes; None where the call does not use it."""
    given = named(spec, args)
    tensors = TABLES[spec.name][0] if spec.name in TABLES else (pool,)
    ids = ids_of(spec, pool)
    index = given[ids]
    if index is None or any(given[t] is None for t in tensors) or not bool((index >= 0).any()):
        return None
    pitch = {t: _pitch(given[t], t in dict(POOLS)) for t in tensors}
    widest = max(pitch[t] * given[t].element_size() for t in tensors)
    start = BORDER // widest + 1
    made = given | {t: _behind(given[t], pitch[t], start) for t in tensors}
    # An id outside the table stays outside.
    made[ids] = torch.where(
        index < 0, index, (index.long() + start).clamp(max=torch.iinfo(index.dtype).max).to(index.dtype)
    )
    return Far(tuple(made[a.name] for a in spec.args), pool, start)


def _pitch(value: Tensor, spread: bool) -> int:
    """Elements from one entry to the next: in pools as they are, 64 bytes more where entries follow closely."""
    row = value[0].numel() if value.shape[0] else 1
    if not spread:
        return row
    return max(value.stride(0), row + 64 // value.element_size())


def _behind(value: Tensor, pitch: int, start: int) -> Tensor:
    """A copy whose entry i is entry start + i of a tensor that is otherwise unused."""
    strides = (pitch, *value.stride()[1:])
    whole = torch.empty((start + value.shape[0]) * pitch, dtype=value.dtype, device=value.device)
    pool = whole.as_strided((start + value.shape[0], *value.shape[1:]), strides)
    pool[start:] = value
    return pool
