"""Rotary position embedding: adjacent pairs of the last channels."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from .common import check_index, finish, widths


@kernel("rope", version=0, backend="reference", supports=widths(rotary="d"))
def rope(x: Tensor, positions: Tensor, table: Tensor, inverse: bool, out: Tensor | None) -> Tensor:
    return finish(rotate(x, positions, table, inverse, op="rope"), out)


def rotate(x: Tensor, positions: Tensor, table: Tensor, inverse: bool = False, *, op: str = "rope") -> Tensor:
    """Rotate the last channels of every row.

    Args:
        x: bf16 [T, d] or [T, h, d].
        positions: integers [T] within the table.
        table: fp32 [P, dr/2, 2], cosine and sine of each position and pair.
        inverse: turn by the negative angle.
        op: whose arguments these are, for the message.

    Returns:
        bf16, the shape of x; fp32 arithmetic, two rounded products and one rounded sum per channel.
    """
    pairs = table.shape[1]
    cosine, sine = table.index_select(0, check_index(op, "positions", positions, table.shape[0])).unbind(-1)
    if x.ndim == 3:
        cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    if inverse:
        sine = -sine
    first = x.shape[-1] - 2 * pairs
    even, odd = x[..., first:].float().unflatten(-1, (pairs, 2)).unbind(-1)
    rotated = x.clone(memory_format=torch.contiguous_format)
    target = rotated[..., first:].unflatten(-1, (pairs, 2))
    target[..., 0] = even * cosine - odd * sine
    target[..., 1] = even * sine + odd * cosine
    return rotated
