"""Kernels of draws: the exponential race over a row, and the test of a draft.

A row is raced in several parts, each of which gives the key of its best score and the token; keys order parts exactly,
so their number changes nothing. In most tiles no token can win any more. A cheap bound, made of a random word's upper
bits, shows it: E >= v * log2(e) but for rounding, and log2(v) is at least the straight line between its values at
powers of two, which is the bits of v as an integer. Only tiles that may win by this bound get their exact scores.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable_math import bits_float, draw_words, exp2, exponential, exponents, float_bits, log2, order_key, uniform
from .sampling_select_kernels import _LEAST_SUM, _LOWEST, packed, packed_id, row_rate

_LINE: tl.constexpr = tl.constexpr(127.0 - 0.5286)
"""bits of v / 2^23 minus this is at most log2(E): log2(log2(e)) is 0.528766, all roundings are below 2e-5 together."""
_NO_SCORE: tl.constexpr = tl.constexpr(-2139095041 << 32)
"""`packed` of a score of -infinity: what has to be beaten."""
TARGET: tl.constexpr = tl.constexpr(0)
ACCEPTANCE: tl.constexpr = tl.constexpr(2)
RESIDUAL: tl.constexpr = tl.constexpr(3)


@jit
def kept(z, ids, threshold, last):
    """The tokens that a filter keeps."""
    return (z > threshold) | ((z == threshold) & (ids <= last))


@jit
def token_words(seed, position, purpose, begin, BLOCK: tl.constexpr):
    """Random words (uint32) of the tokens begin .. begin + BLOCK - 1; begin is a multiple of 4."""
    lane = begin // 4 + tl.arange(0, BLOCK // 4)
    w0, w1, w2, w3 = draw_words(seed, position, purpose, lane)
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))


@jit
def race_part(
    z_row, rate, threshold, last, seed, position, purpose, first_tile, tiles, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """`packed` key of the best score, and its token, over some tiles of a row; `_NO_SCORE` where there is none."""
    best = tl.full((), -float("inf"), tl.float32)
    winner = tl.full((), 0, tl.int32)
    for tile in range(first_tile, first_tile + tiles):
        begin = tile * BLOCK
        at = begin + tl.arange(0, BLOCK)
        z = tl.load(z_row + at, mask=at < V, other=-float("inf"))
        alive = kept(z, at, threshold, last) & (z > -float("inf"))
        if tl.max(alive.to(tl.int32), 0) > 0:
            words = token_words(seed, position, purpose, begin, BLOCK)
            value = z * rate
            upper = bits_float(((words >> 9) | 0x3F800000).to(tl.int32, bitcast=True)) - 1.0
            line = float_bits(upper).to(tl.float32) * 2.0**-23 - _LINE
            bound = tl.where(alive, value - line, -float("inf"))
            if tl.max(bound, 0) > best:
                score = tl.where(alive, value - log2(exponential(words)), -float("inf"))
                top = tl.max(score, 0)
                if top > best:
                    best = top
                    winner = tl.min(tl.where(score == top, at, V), 0)
    return tl.where(best > -float("inf"), packed(order_key(best), winner), _NO_SCORE)


@jit
def best_of(best_ptr, row: tl.int64, parts, PARTS: tl.constexpr):
    """The best of a row's parts: whether there is one, and its token."""
    part = tl.arange(0, PARTS)
    order = tl.max(tl.load(best_ptr + row * parts + part, mask=part < parts, other=_LOWEST), 0)
    return order > _NO_SCORE, packed_id(order)


@jit
def draw_race(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, count_ptr, seed_ptr, position_ptr, best_ptr, purpose, tiles,
    V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of a row's race. Grid (parts, rows)."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    if tl.load(count_ptr + row) > 1:
        best = race_part(
            z_ptr + row * V, row_rate(inverse_ptr, row), tl.load(threshold_ptr + row), tl.load(last_ptr + row),
            tl.load(seed_ptr + row), tl.load(position_ptr + row), purpose, part * tiles, tiles, V, BLOCK,
        )  # fmt: skip
        tl.store(best_ptr + row * tl.num_programs(0) + part, best)


@jit
def draw_finish(count_ptr, max_id_ptr, best_ptr, token_ptr, parts, PARTS: tl.constexpr):
    """The token of a row. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(max_id_ptr + row)
    if tl.load(count_ptr + row) > 1:
        some, winner = best_of(best_ptr, row, parts, PARTS)
        token = tl.where(some, winner, token)
    tl.store(token_ptr + row, token)


@jit
def draft_passes(
    draft, z_ptr, rate, threshold, last, largest, log_sum, seed, position, row: tl.int64, log2q_ptr,
    q_row: tl.int64, q_stride, V: tl.constexpr,
):  # fmt: skip
    """Whether a draft (in [0, V)) of a row with a choice is accepted."""
    z = tl.load(z_ptr + row * V + draft)
    own = exponents(z, largest, rate) - log_sum
    own = tl.where(kept(z, draft, threshold, last), own, -float("inf"))
    proposal = tl.full((), 0.0, tl.float32)
    if log2q_ptr is not None:
        if q_row >= 0:
            proposal = tl.load(log2q_ptr + q_row * q_stride + draft)
    word, _, _, _ = draw_words(seed, position, tl.full((), ACCEPTANCE, tl.int32), tl.full((), 0, tl.int32))
    ratio = tl.minimum(own - proposal, 0.0)
    return (own > -float("inf")) & (exp2(ratio) > uniform(word))


@jit
def residual_part(
    z_row, rate, threshold, last, largest, log_sum, draft, seed, position, log2q_ptr, q_row: tl.int64, q_stride,
    first_tile, tiles, V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """As `race_part`, over what the target gives a token more than the proposal."""
    best = tl.full((), -float("inf"), tl.float32)
    winner = tl.full((), 0, tl.int32)
    for tile in range(first_tile, first_tile + tiles):
        begin = tile * BLOCK
        at = begin + tl.arange(0, BLOCK)
        inside = at < V
        z = tl.load(z_row + at, mask=inside, other=-float("inf"))
        alive = inside & kept(z, at, threshold, last)
        target = exp2(tl.where(alive, exponents(z, largest, rate), -float("inf")) - log_sum)
        proposal = tl.where(at == draft, 0.0, -float("inf"))
        if log2q_ptr is not None:
            if q_row >= 0:
                proposal = tl.load(log2q_ptr + q_row * q_stride + at, mask=inside, other=-float("inf"))
        residual = target - exp2(proposal)
        some = alive & (residual > _LEAST_SUM)
        if tl.max(some.to(tl.int32), 0) > 0:
            words = token_words(seed, position, tl.full((), RESIDUAL, tl.int32), begin, BLOCK)
            score = log2(tl.where(some, residual, _LEAST_SUM)) - log2(exponential(words))
            score = tl.where(some, score, -float("inf"))
            top = tl.max(score, 0)
            if top > best:
                best = top
                winner = tl.min(tl.where(score == top, at, V), 0)
    return tl.where(best > -float("inf"), packed(order_key(best), winner), _NO_SCORE)
