"""Kernels of `adjust_logits`: the mask while rows are copied, then the listed tokens of each row."""

from __future__ import annotations

import triton.language as tl

from .jit import jit


@jit
def _allowed(mask_ptr, row: tl.int64, ids, inside, V: tl.constexpr):
    """Whether the row's bitmask has a token's bit."""
    words: tl.constexpr = (V + 31) // 32
    word = tl.load(mask_ptr + row * words + ids // 32, mask=inside, other=0)
    return ((word >> (ids % 32)) & 1) != 0


@jit
def copy_masked(z_ptr, mask_ptr, out_ptr, V: tl.constexpr, BLOCK: tl.constexpr):
    """A tile of a row, -infinity where the mask says so. Grid (tiles, rows). out may be z."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < V
    z = tl.load(z_ptr + row * V + at, mask=inside)
    if mask_ptr is not None:
        z = tl.where(_allowed(mask_ptr, row, at, inside, V), z, -float("inf"))
    tl.store(out_ptr + row * V + at, z, mask=inside)


@jit
def adjust_listed(
    penalty_ptr, stat_offset_ptr, stat_id_ptr, stat_count_ptr, bias_offset_ptr, bias_id_ptr, bias_ptr, mask_ptr,
    out_ptr, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Penalties, then biases, on one row of out; tokens that the mask bans keep their -infinity. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    out = out_ptr + row * V
    lane = tl.arange(0, BLOCK)
    if penalty_ptr is not None:
        repetition = tl.load(penalty_ptr + row * 4)
        inverse = tl.load(penalty_ptr + row * 4 + 1)
        frequency = tl.load(penalty_ptr + row * 4 + 2)
        presence = tl.load(penalty_ptr + row * 4 + 3)
        end = tl.load(stat_offset_ptr + row + 1)
        for begin in range(tl.load(stat_offset_ptr + row), end, BLOCK):
            at = begin + lane
            live = at < end
            ids = tl.load(stat_id_ptr + at, mask=live, other=0)
            count = tl.load(stat_count_ptr + at, mask=live, other=0)
            if mask_ptr is not None:
                live = live & _allowed(mask_ptr, row, ids, live, V)
            z = tl.load(out + ids, mask=live, other=0.0)
            z = tl.where(z > 0, z * inverse, z * repetition)
            z = z - frequency * count.to(tl.float32)
            z = tl.where(count > 0, z - presence, z)
            tl.store(out + ids, z, mask=live)
        tl.debug_barrier()
    if bias_offset_ptr is not None:
        end = tl.load(bias_offset_ptr + row + 1)
        for begin in range(tl.load(bias_offset_ptr + row), end, BLOCK):
            at = begin + lane
            live = at < end
            ids = tl.load(bias_id_ptr + at, mask=live, other=0)
            bias = tl.load(bias_ptr + at, mask=live, other=0.0)
            if mask_ptr is not None:
                live = live & _allowed(mask_ptr, row, ids, live, V)
            z = tl.load(out + ids, mask=live, other=0.0)
            tl.store(out + ids, tl.where(bias == -float("inf"), bias, z + bias), mask=live)
