"""Calls whose data lie beyond 2^31 bytes: pages, state slots and table rows of large ids, in memory mostly unused.

On a CPU memory that nobody touches costs nothing; on a device it is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops.required import GROUPS, TABLES, ids_in, ids_of
from ..ops.rows import named
from ..ops.spec import OpSpec

BORDER = 1 << 31
"""Bytes at which 32-bit offsets end."""


class NoMemoryError(Exception):
    """There is no room here for tensors of more than 2^31 bytes."""


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
    if index is None or any(given[t] is None for t in tensors) or not bool((ids_in(spec, index) >= 0).any()):
        return None
    pitch = {a.name: _pitch(given[a.name], a.layout == "rows") for a in spec.tensors if a.name in tensors}
    widest = max(pitch[t] * given[t].element_size() for t in tensors)
    start = BORDER // widest + 1
    made = given | {t: _behind(given[t], pitch[t], start) for t in tensors}
    # An id outside the table stays outside.
    made[ids] = index.clone()
    moved = ids_in(spec, made[ids])
    beyond = (moved.long() + start).clamp(max=torch.iinfo(moved.dtype).max).to(moved.dtype)
    moved.copy_(torch.where(moved < 0, moved, beyond))
    return Far(tuple(made[a.name] for a in spec.args), pool, start)


def move_groups(spec: OpSpec, args: Sequence[Any], placed: Sequence[Any], device: torch.device) -> tuple[Any, ...]:
    """The same call with the groups of its weight behind empty ones of more than 2^31 bytes.

    Args:
        args: on the CPU, the weight in the contract's layout. placed: the same on the device.
    """
    weight, offsets = GROUPS[spec.name]
    parts = named(spec, args)[weight].tensors
    empty = BORDER // (parts[0][0].numel() * parts[0].element_size()) + 1
    moved = [_behind(part.to(device), part[0].numel(), empty) for part in parts]
    made = named(spec, placed)
    made[weight] = spec.prepare(*moved)
    made[offsets] = torch.cat((made[offsets].new_zeros(empty), made[offsets]))
    return tuple(made[a.name] for a in spec.args)


def _pitch(value: Tensor, spread: bool) -> int:
    """Elements from one entry to the next: in pools as they are, 64 bytes more where entries follow closely."""
    row = value[0].numel() if value.shape[0] else 1
    if not spread:
        return row
    return max(value.stride(0), row + 64 // value.element_size())


def _behind(value: Tensor, pitch: int, start: int) -> Tensor:
    """A copy whose entry i is entry start + i of a tensor that is otherwise unused."""
    strides = (pitch, *value.stride()[1:])
    try:
        whole = torch.empty((start + value.shape[0]) * pitch, dtype=value.dtype, device=value.device)
    except RuntimeError as error:  # torch's error of a full device is one as well
        raise NoMemoryError(str(error)) from None
    pool = whole.as_strided((start + value.shape[0], *value.shape[1:]), strides)
    pool[start:] = value
    return pool
