"""The device side of `grouped_linear`: which rows a program takes, and its outputs. `grouped.py` launches it."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .linear_kernels import BLOCK, DEAL, GROUP, SCALES, packed_product, row_of
from .portable import to_bf16


@jit
def plan_tiles(offsets_ptr, plan_ptr, E: tl.constexpr, SPAN: tl.constexpr, BLOCK_T: tl.constexpr):
    """Tiles of rows, expert after expert: plan[0] is how many, plan[1 + 2i] and plan[2 + 2i] expert and first row of
    tile i. Experts without rows have none. One program."""
    e = tl.arange(0, SPAN)
    begin = tl.load(offsets_ptr + e, mask=e < E, other=0)
    count = tl.load(offsets_ptr + e + 1, mask=e < E, other=0) - begin
    tiles = tl.where(e < E, (count + BLOCK_T - 1) // BLOCK_T, 0)
    first = tl.cumsum(tiles, 0) - tiles
    tl.store(plan_ptr, tl.sum(tiles, 0))
    for i in range(tl.max(tiles, 0)):
        at = plan_ptr + 1 + 2 * (first + i).to(tl.int64)
        tl.store(at, e, mask=i < tiles)
        tl.store(at + 1, begin + i * BLOCK_T, mask=i < tiles)


@jit
def grouped_linear_tiles(
    x_ptr, xs_ptr, w_ptr, ws_ptr, source_ptr, offsets_ptr, plan_ptr, out_ptr,
    N: tl.constexpr, K: tl.constexpr, CLEAN: tl.constexpr, BLOCKED: tl.constexpr, X8: tl.constexpr,
    NATIVE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of y [M, N] for FP4 weights [E, N, K/2] with scales [E, N, K/32]; none where the plan has no such tile.

    x: FP8 with scales, or bf16 dealt. Program: a tile of the plan, and in it a tile of outputs.
    """
    across: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    WIDTH: tl.constexpr = K if X8 else (K + DEAL - 1) // DEAL * DEAL
    tile = (tl.program_id(0) // across).to(tl.int64)
    if tile < tl.load(plan_ptr):
        expert = tl.load(plan_ptr + 1 + 2 * tile)
        first = tl.load(plan_ptr + 2 + 2 * tile)
        stop = tl.load(offsets_ptr + expert + 1)
        output = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
        row = first + tl.arange(0, BLOCK_T)
        # Rows and outputs behind the last are the last once more.
        n = expert.to(tl.int64) * N + tl.minimum(output, N - 1)
        here = tl.minimum(row, stop - 1)
        line = (here if source_ptr is None else tl.load(source_ptr + here)).to(tl.int64)
        acc = packed_product(
            x_ptr + line * WIDTH, xs_ptr + line * (K // GROUP) if X8 else x_ptr,
            w_ptr + row_of(n, K // 2, BLOCK // 2, BLOCKED), ws_ptr + row_of(n, K // GROUP, SCALES, BLOCKED), 0, K,
            K, True, CLEAN, BLOCKED, X8, NATIVE, BLOCK_N, BLOCK_T, BLOCK_K,
        )  # fmt: skip
        at = out_ptr + (row.to(tl.int64) * N)[None, :] + output[:, None]
        tl.store(at, to_bf16(acc), mask=(output < N)[:, None] & (row < stop)[None, :])
