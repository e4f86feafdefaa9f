"""The device side of attention within an image; `vision_attention.py` launches it."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import dot, to_bf16


@jit
def load_lines(x_ptr, line, present, line_stride, head_at, D: tl.constexpr, WIDTH: tl.constexpr):
    """bf16 [lines, WIDTH] of one head; zeros where there is no line, and from channel D on."""
    channel = tl.arange(0, WIDTH)
    at = x_ptr + (line.to(tl.int64) * line_stride + head_at)[:, None] + channel[None, :]
    return tl.load(at, mask=present[:, None] & (channel < D)[None, :], other=0.0)


@jit
def image_attention_tile(
    q_ptr, k_ptr, v_ptr, begin_ptr, end_ptr, out_ptr, rows, heads, scale,
    q_row: tl.int64, q_head: tl.int64, k_row: tl.int64, k_head: tl.int64, v_row: tl.int64, v_head: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, ALIGN: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """BLOCK_T rows of one head, run after run of rows with the same keys; `scale` has log2(e) in it.

    A row's keys are taken in tiles that count from its own first key, so its bits do not depend on where its image lies
    or on the rows beside it. Strides are in units of ALIGN elements.
    """
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK_T
    stop = tl.minimum(first + BLOCK_T, rows)
    row = first + tl.arange(0, BLOCK_T)
    inside = row < stop
    q = load_lines(q_ptr, row, inside, q_row * ALIGN, head.to(tl.int64) * (q_head * ALIGN), D, WIDTH)
    begins = tl.load(begin_ptr + row, mask=inside, other=0)
    ends = tl.load(end_ptr + row, mask=inside, other=0)
    channel = tl.arange(0, WIDTH)
    at = out_ptr + ((row.to(tl.int64) * heads + head) * D)[:, None] + channel[None, :]
    here = first
    while here < stop:
        begin = tl.load(begin_ptr + here)
        end = tl.load(end_ptr + here)
        other = inside & (row >= here) & ((begins != begin) | (ends != end))
        after = tl.min(tl.where(other, row, stop), 0)
        top = tl.full((BLOCK_T,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_T,), tl.float32)
        value = tl.zeros((BLOCK_T, WIDTH), tl.float32)
        for start in range(begin, end, BLOCK_M):
            key = start + tl.arange(0, BLOCK_M)
            present = key < end
            k = load_lines(k_ptr, key, present, k_row * ALIGN, head.to(tl.int64) * (k_head * ALIGN), D, WIDTH)
            v = load_lines(v_ptr, key, present, v_row * ALIGN, head.to(tl.int64) * (v_head * ALIGN), D, WIDTH)
            s = dot(q, tl.trans(k), tl.zeros((BLOCK_T, BLOCK_M), tl.float32)) * scale
            s = tl.where(present[None, :], s, float("-inf"))
            highest = tl.maximum(top, tl.max(s, 1))
            safe = tl.where(highest == float("-inf"), 0.0, highest)
            p = tl.exp2(s - safe[:, None])
            alpha = tl.exp2(top - safe)
            total = total * alpha + tl.sum(p, 1)
            value = dot(to_bf16(p), v, value * alpha[:, None])
            top = highest
        # A row without a key is zero; one all of whose scores are minus infinity is not a number.
        result = tl.where(begin < end, value / total[:, None], 0.0)
        tl.store(at, to_bf16(result), mask=((row >= here) & (row < after))[:, None] & (channel < D)[None, :])
        here = after
