"""Device code of drafting."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import bf16_to_f32, dot, to_bf16
from .portable_elementary import sigmoid
from .wide_rows import tree_sum


@jit
def tap_kernel(x_ptr, taps_ptr, place, places, M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of M streams, BLOCK channels of a row of taps [T, places, D]."""
    PARTS: tl.constexpr = (D + BLOCK - 1) // BLOCK
    share: tl.constexpr = 1.0 / M
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    channel = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < D
    total = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(M):
        x = bf16_to_f32(tl.load(x_ptr + (row * M + j) * D + channel, mask=mask, other=0.0))
        total = x if j == 0 else total + x
    tl.store(taps_ptr + (row * places + place) * D + channel, to_bf16(total * share), mask=mask)


@jit
def inputs_kernel(
    token_ptr, base_ptr, accepted_ptr, valid_ptr, id_ptr, position_ptr, row_seq_ptr, first_ptr, last_ptr, start_ptr,
    begin_ptr, draw_ptr, sequences, window, noise, DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows of BLOCK sequences, DRAFTS of each."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = s < sequences
    base = tl.load(base_ptr + s, mask=inside, other=-1)
    live = inside & (base >= 0)
    last = base + tl.load(accepted_ptr + s, mask=live, other=0)
    token = tl.load(token_ptr + s, mask=live, other=-1)
    first = tl.maximum(tl.maximum(last - window + 1, tl.load(valid_ptr + s, mask=live, other=0)), 0)
    start = tl.where(live, last + 1, 0)
    tl.store(start_ptr + s, start, mask=inside)
    tl.store(begin_ptr + s, s * DRAFTS, mask=inside)
    for j in tl.static_range(DRAFTS):
        row = s.to(tl.int64) * DRAFTS + j
        tl.store(id_ptr + row, tl.where(live, token if j == 0 else noise, -1), mask=inside)
        tl.store(position_ptr + row, tl.where(live, start + j, 0), mask=inside)
        tl.store(row_seq_ptr + row, tl.where(live, s, -1), mask=inside)
        tl.store(first_ptr + row, tl.where(live, first, 0), mask=inside)
        tl.store(last_ptr + row, tl.where(live, last + DRAFTS, 0), mask=inside)
        draw = tl.where(live, start.to(tl.int64) + 1 + j, 0)
        tl.store(draw_ptr + tl.full((), j, tl.int64) * sequences + s, draw, mask=inside)


@jit
def logits_kernel(
    logits_ptr, token_ptr, embed_ptr, head_ptr, out_ptr, rows, known, stride: tl.int64,
    ALIGN: tl.constexpr, V: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile [ROWS, TOKENS] of logits + embed[token] @ head.T. stride: of rows, in units of ALIGN numbers."""
    PARTS: tl.constexpr = (V + TOKENS - 1) // TOKENS
    row = (tl.program_id(0) // PARTS).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    word = (tl.program_id(0) % PARTS).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    token = tl.load(token_ptr + row, mask=row < rows, other=-1).to(tl.int64)
    there = (token >= 0) & (token < known)
    total = tl.zeros((ROWS, TOKENS), tl.float32)
    for start in range(0, R, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(embed_ptr + (token * R)[:, None] + k[None, :], mask=there[:, None] & (k < R)[None, :], other=0.0)
        b = tl.load(head_ptr + (word * R)[None, :] + k[:, None], mask=(word < V)[None, :] & (k < R)[:, None], other=0.0)
        total = dot(a, b, total)
    mask = (row < rows)[:, None] & (word < V)[None, :]
    base = tl.load(logits_ptr + (row * stride * ALIGN)[:, None] + word[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + (row * V)[:, None] + word[None, :], base + total, mask=mask)


@jit
def weighed(x_ptr, weight_ptr, there, START: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """Sum of x * weight over channels START .. : [1]."""
    channel = START + tl.arange(0, SIZE)[None, :]
    x = bf16_to_f32(tl.load(x_ptr + channel, mask=(channel < D) & there, other=0.0))
    return tree_sum(x * bf16_to_f32(tl.load(weight_ptr + channel, mask=channel < D, other=0.0)))


@jit
def confidence_kernel(
    hidden_ptr, token_ptr, embed_ptr, weight_ptr, rate_ptr, out_ptr, known,
    DRAFTS: tl.constexpr, CLAMP: tl.constexpr, D: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
    R: tl.constexpr, R_PADDED: tl.constexpr,
):  # fmt: skip
    """One draft."""
    row = tl.program_id(0).to(tl.int64)
    one = tl.zeros((1,), tl.int64)
    own = hidden_ptr + row * D
    x = weighed(own, weight_ptr, True, 0, FIRST, D)
    if REST > 0:
        x += weighed(own, weight_ptr, True, FIRST, REST, D)
    token = one + tl.load(token_ptr + row)
    there = ((token >= 0) & (token < known))[:, None]
    x += weighed(embed_ptr + (token * R)[:, None], weight_ptr + D, there, 0, R_PADDED, R)
    x = x * tl.load(rate_ptr + row % DRAFTS)
    x = tl.where(x > CLAMP, CLAMP, tl.where(x < -CLAMP, -CLAMP, x))  # comparisons let NaN pass
    tl.store(out_ptr + row + one, sigmoid(x))


@jit
def store_kernel(
    token_ptr, confidence_ptr, stop_ptr, slot_ptr, pool_token_ptr, pool_confidence_ptr, sequences, slots,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Drafts and bits of confidences of BLOCK sequences to their slots."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = s < sequences
    slot = tl.load(slot_ptr + s, mask=inside, other=-1).to(tl.int64)
    kept = inside & (slot >= 0) & (slot < slots)
    for j in tl.static_range(DRAFTS):
        row = s.to(tl.int64) * DRAFTS + j
        sure = tl.load(confidence_ptr + row, mask=kept, other=0)
        if stop_ptr is not None:
            sure = tl.where(tl.load(stop_ptr + s, mask=kept, other=0).to(tl.int32) != 0, 0, sure)
        tl.store(pool_token_ptr + slot * DRAFTS + j, tl.load(token_ptr + row, mask=kept, other=0), mask=kept)
        tl.store(pool_confidence_ptr + slot * DRAFTS + j, sure, mask=kept)


@jit
def chance(confidence_ptr, place, j, known, DRAFTS: tl.constexpr):
    """Confidence of draft j of rows `place`, as it counts: 0 to 1, 0 for NaN and for rows that are not `known`."""
    c = tl.load(confidence_ptr + place.to(tl.int64) * DRAFTS + j, mask=known, other=0.0)
    return tl.where(c > 1.0, 1.0, tl.where(c > 0.0, c, 0.0))


@jit
def share_rows(
    confidence_ptr, remap_ptr, out_ptr, sequences, places, total,
    DRAFTS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Rows of BLOCK sequences: one, and a draft for each rank below what is left of the total."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own_place = tl.load(remap_ptr + s, mask=s < sequences, other=-1)
    own_known = (own_place >= 0) & (own_place < places)
    rows = tl.full((BLOCK,), 1, tl.int32)
    own = tl.full((BLOCK,), 1.0, tl.float32)
    for j in range(DRAFTS):
        own = own * chance(confidence_ptr, own_place, j, own_known, DRAFTS)
        rank = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, sequences, STEP):
            t = first + tl.arange(0, STEP)
            inside = t < sequences
            place = tl.load(remap_ptr + t, mask=inside, other=-1)
            known = (place >= 0) & (place < places)
            other = tl.full((STEP,), 1.0, tl.float32)
            for i in range(DRAFTS):
                other = other * chance(confidence_ptr, place, i, known, DRAFTS)
                earlier = (t[None, :] < s[:, None]) | ((t[None, :] == s[:, None]) & (i < j))
                ahead = (other[None, :] > own[:, None]) | ((other[None, :] == own[:, None]) & earlier)
                rank += tl.sum((ahead & inside[None, :]).to(tl.int32), 1)
        rows += (rank < total - sequences).to(tl.int32)
    tl.store(out_ptr + s, rows, mask=s < sequences)


@jit
def lengths_kernel(
    base_ptr, q_ptr, remap_ptr, assumed_ptr, accepted_ptr, out_ptr, sequences, places, BLOCK: tl.constexpr
):
    """Lengths of BLOCK sequences."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = s < sequences
    place = tl.load(remap_ptr + s, mask=inside, other=-1)
    known = inside & (place >= 0) & (place < places)
    assumed = tl.load(assumed_ptr + s, mask=known, other=0)
    back = assumed - tl.load(accepted_ptr + place, mask=known, other=0)
    k = tl.load(base_ptr + s, mask=inside, other=0) + tl.load(q_ptr + s, mask=inside, other=0)
    tl.store(out_ptr + s, k - tl.where(known, back, 0), mask=inside)
