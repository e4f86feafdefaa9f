"""Kernels that find the kept prefix of a row of logits: statistics, a bracket of the threshold, the exact search.

The order is that of docs/numerics.md, section 4: logit descending, id ascending. A threshold is an `order_key` t. F(t)
says that a token of that key may be kept: fewer than `most` tokens lie above it, their weight is at most `limit`, and
no token at or above it is too light for min-p. F holds from some t on upwards, and the search finds the least such t.

1. `row_stats`, several programs a row: largest logit and its id, NaN, number of finite tokens, and about how much the
   row weighs.
2. `row_bracket`, one a row: from a sorted sample of the row, keys low and high between which the threshold lies, as
   good as surely. Only speed depends on them.
3. `row_gather`, several a row: the exact weight of the row and of what lies above the bracket, and a list of the tokens
   inside it, in any order.
4. `row_finish`, one a row: checks that the bracket holds the threshold and the list the bracket; searches the list, or
   else the whole row.

Weights are integers, so their sums do not depend on how a row is split.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable_math import LOG2E, key_value, order_key, weights32

SAMPLE: tl.constexpr = tl.constexpr(2048)
"""Logits that a bracket is guessed from."""
STATS: tl.constexpr = tl.constexpr(3)
"""Numbers (int64) of a row's part from `row_stats`: key and id of the largest; counts; largest and sum, about."""
HEAD: tl.constexpr = tl.constexpr(5)
"""Numbers (int64) of a row: key and id of the largest, finite tokens (-1: invalid), low, high, entries of the list."""
SUMS: tl.constexpr = tl.constexpr(4)
"""Numbers (int64) of a row's part from `row_gather`: weight, weight above, count above, largest key too light."""

_NEVER: tl.constexpr = tl.constexpr(-2139095041)  # order_key(-inf)
_LOWEST: tl.constexpr = tl.constexpr(-(1 << 63))
_FAR: tl.constexpr = tl.constexpr(1 << 40)
_NO_LIMIT: tl.constexpr = tl.constexpr(1 << 62)
_ONE: tl.constexpr = tl.constexpr(1 << 31)
_LOW_WORD: tl.constexpr = tl.constexpr(0xFFFFFFFF)
_VERY_LOW: tl.constexpr = tl.constexpr(-3.0e38)
_LEAST_SUM: tl.constexpr = tl.constexpr(2.0**-100)
_FLOOR: tl.constexpr = tl.constexpr(-9999.0)


@jit
def row_rate(inverse_ptr, row):
    """log2(e) / T of a row; T is 1 where there is no temperature."""
    if inverse_ptr is None:
        return tl.full((), 1.0, tl.float32) * LOG2E
    else:
        return tl.load(inverse_ptr + row) * LOG2E


@jit
def packed(key, ids):
    """int64 that is larger for a larger key (int32), and for a lower id among equals."""
    return (key.to(tl.int64) << 32) | (ids.to(tl.int64) ^ _LOW_WORD)


@jit
def packed_id(order):
    """The id (int32) of a `packed` number."""
    return ((order & _LOW_WORD) ^ _LOW_WORD).to(tl.int32)


@jit
def _bits64(x):
    """fp32 as a number of 64 bits that holds its bits."""
    return x.to(tl.int32, bitcast=True).to(tl.int64) & _LOW_WORD


@jit
def _from64(b):
    return b.to(tl.int32).to(tl.float32, bitcast=True)


@jit
def row_stats(z_ptr, inverse_ptr, stats_ptr, tiles, V: tl.constexpr, WEIGH: tl.constexpr, BLOCK: tl.constexpr):
    """Statistics of one part of a row: `tiles` tiles. Grid (parts, rows)."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    rate = row_rate(inverse_ptr, row)
    lane = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), _VERY_LOW, tl.float32)
    first = tl.full((BLOCK,), 0.0, tl.float32) - float("inf")
    ids = tl.zeros((BLOCK,), tl.int32)
    total = tl.zeros((BLOCK,), tl.float32)
    finite = tl.zeros((BLOCK,), tl.int32)
    bad = tl.zeros((BLOCK,), tl.int32)
    for tile in range(tiles):
        at = (part * tiles + tile) * BLOCK + lane  # lint: address, because it is at most V
        z = tl.load(z_ptr + row * V + at, mask=at < V, other=-float("inf"))
        larger = z > first
        ids = tl.where(larger, at, ids)
        first = tl.where(larger, z, first)
        finite += (z > -float("inf")).to(tl.int32)
        bad = bad | (z != z).to(tl.int32)
        if WEIGH:
            now = tl.maximum(best, z)
            total = total * tl.exp2((best - now) * rate) + tl.exp2((z - now) * rate)
            best = now
    out = stats_ptr + (row * tl.num_programs(0) + part) * STATS
    tl.store(out, tl.max(packed(order_key(first), ids), 0))
    tl.store(out + 1, tl.sum(finite, 0).to(tl.int64) | (tl.max(bad, 0).to(tl.int64) << 32))
    if WEIGH:
        top = tl.max(best, 0)
        tl.store(out + 2, (_bits64(top) << 32) | _bits64(tl.sum(total * tl.exp2((best - top) * rate), 0)))


@jit
def row_top(stats_ptr, row: tl.int64, parts, PARTS: tl.constexpr):
    """Of a whole row: `packed` key and id of its largest logit, number of finite tokens, whether it is valid."""
    part = tl.arange(0, PARTS)
    own = stats_ptr + (row * parts + part) * STATS
    inside = part < parts
    order = tl.max(tl.load(own, mask=inside, other=_LOWEST), 0)
    counts = tl.load(own + 1, mask=inside, other=0)
    finite = tl.sum(counts & _LOW_WORD, 0)
    bad = tl.max(counts >> 32, 0)
    return order, finite, (bad == 0) & (finite > 0)


@jit
def _wanted(row, finite, top_k_ptr, top_p_ptr, min_p_ptr, force, FORCED: tl.constexpr):
    """What binds a row: tokens kept at most, share of top-p and least weight (int64), as `off` where they are.

    Args:
        force: tokens of the pool, where it is FORCED.
    """
    most = finite
    if FORCED:
        most = tl.minimum(most, force)
    pool = most
    if top_k_ptr is not None:
        k = tl.load(top_k_ptr + row).to(tl.int64)
        most = tl.where(k > 0, tl.minimum(most, k), most)
    top_p = tl.full((), 0, tl.int64) + _ONE
    if top_p_ptr is not None:
        top_p = tl.load(top_p_ptr + row)
    min_p = tl.full((), 0, tl.int64)
    if min_p_ptr is not None:
        min_p = tl.minimum(tl.load(min_p_ptr + row), _ONE)
    return pool, most, top_p, min_p


@jit
def row_bracket(
    z_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, stats_ptr, head_ptr, parts, force,
    V: tl.constexpr, FORCED: tl.constexpr, PARTS: tl.constexpr, SMALL: tl.constexpr, SAMPLE: tl.constexpr,
):  # fmt: skip
    """Bracket of a row's threshold, and the head of its record. Grid (rows,). SMALL: the list takes the whole row."""
    row = tl.program_id(0).to(tl.int64)
    head = head_ptr + row * HEAD
    order, finite, valid = row_top(stats_ptr, row, parts, PARTS)
    tl.store(head, order)
    tl.store(head + 1, tl.where(valid, finite, -1))
    tl.store(head + 4, tl.full((), 0, tl.int64))
    top_key = order >> 32
    rate = row_rate(inverse_ptr, row)
    pool, most, top_p, min_p = _wanted(row, finite, top_k_ptr, top_p_ptr, min_p_ptr, force, FORCED)
    binds = (most < finite) | (top_p < _ONE) | (min_p > 0)
    if FORCED:
        most = pool  # the whole pool is listed, since its weight is wanted
    low = tl.full((), _NEVER + 1, tl.int64)
    high = top_key + 1
    if binds & valid & (rate < float("inf")) & (not SMALL):
        largest = key_value(top_key.to(tl.int32))
        i = tl.arange(0, SAMPLE)
        z = tl.sort(tl.load(z_ptr + row * V + (i // 8) * (V * 8 // SAMPLE // 8 * 8) + i % 8), descending=False)
        key = order_key(z).to(tl.int64)
        each = V / SAMPLE
        # By rank: of count(above key) at most so many, of count(at or above) at least so many, by three deviations.
        above = 0.0 - i.to(tl.float32) + (SAMPLE - 1)
        k = most.to(tl.float32)
        high_k = tl.min(tl.where((above + 3 * tl.sqrt(above + 2) + 2) * each < k, key + 1, _FAR), 0)
        low_k = tl.max(tl.where((above - 2 - 3 * tl.sqrt(above + 1)) * each > k, key, _LOWEST), 0)
        counted = most < finite
        high_all = tl.where(counted, high_k, _LOWEST)
        low_all = tl.where(counted, low_k, _LOWEST)
        if FORCED:
            high_all = tl.full((), _FAR, tl.int64)
        elif top_p_ptr is not None:
            # By weight: what lies at or below a key has to weigh (1 - top_p) of the row.
            part = tl.arange(0, PARTS)
            told = tl.load(stats_ptr + (row * parts + part) * STATS + 2, mask=part < parts, other=0)
            row_weight = tl.sum(tl.exp2((_from64(told >> 32) - largest) * rate) * _from64(told & _LOW_WORD), 0)
            left = row_weight * (1.0 - top_p.to(tl.float32) * 2.0**-31)
            w = tl.exp2((z - largest) * rate)
            through = tl.cumsum(w, 0)
            spread = 3.5 * tl.sqrt(tl.cumsum(w * w, 0))
            high_p = tl.min(tl.where((through - spread) * each > left, key + 1, _FAR), 0)
            low_p = tl.max(tl.where((through + spread + 3 * w) * each < left, key, _LOWEST), 0)
            high_all = tl.where(top_p < _ONE, tl.maximum(high_all, high_p), high_all)
            low_all = tl.where(top_p < _ONE, tl.maximum(low_all, low_p), low_all)
        if not FORCED:
            if min_p_ptr is not None:
                # Around the least weight: as far as the second sample that surely has it, and that surely has not.
                edge = tl.log2(tl.maximum(min_p, 1).to(tl.float32)) - 31.0
                margin = 2e-5 * (1.0 - edge)
                surely = z >= largest + (edge + margin) / rate
                never = z < largest + (edge - margin) / rate
                heavy = SAMPLE - tl.sum(surely.to(tl.int32), 0)
                light = tl.sum(never.to(tl.int32), 0)
                high_m = tl.min(tl.where(i >= heavy + 1, key + 1, _FAR), 0)
                low_m = tl.max(tl.where(i <= light - 2, key, _LOWEST), 0)
                high_all = tl.where(min_p > 0, tl.maximum(high_all, high_m), high_all)
                low_all = tl.where(min_p > 0, tl.maximum(low_all, low_m), low_all)
        low = tl.maximum(low, low_all)
        high = tl.minimum(high, high_all)
    tl.store(head + 2, low)
    tl.store(head + 3, high)


@jit
def _stretch(z_row, at, largest, rate, V: tl.constexpr):
    """Weights (uint32) and keys of some tokens; -infinity behind the vocabulary."""
    z = tl.load(z_row + at, mask=at < V, other=-float("inf"))
    return weights32(z, largest, rate), order_key(z)


@jit
def _above(w, key, high):
    return tl.where(key >= high, w, 0).to(tl.int64)


@jit
def _too_light(w, key, min_p):
    return tl.where(w.to(tl.int64) < min_p, key, _NEVER)


@jit
def row_gather(
    z_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, head_ptr, sums_ptr, list_ptr, tiles, stride, force,
    V: tl.constexpr, FORCED: tl.constexpr, CAP: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Sums over one part of a row, and its tokens inside the bracket into the row's list. Grid (parts, rows).

    A list of CAP entries is three rows of int32: keys, ids, weights (the bits of an unsigned number). Ids alone are
    written here; `fill_list` adds the others. `stride` is V: of a number that is no constant nobody knows that rows are
    aligned, so loads have one element per thread, as the scattered stores have, and no tile changes its layout.
    """
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    head = head_ptr + row * HEAD
    finite = tl.load(head + 1)
    rate = row_rate(inverse_ptr, row)
    if (finite < 0) | (rate == float("inf")):
        return
    largest = key_value((tl.load(head) >> 32).to(tl.int32))
    low = tl.load(head + 2).to(tl.int32)
    high = tl.load(head + 3).to(tl.int32)
    pool, most, top_p, min_p = _wanted(row, finite, top_k_ptr, top_p_ptr, min_p_ptr, force, FORCED)
    binds = (most < finite) | (top_p < _ONE) | (min_p > 0)
    lane = tl.arange(0, LANES)
    total = tl.zeros((LANES,), tl.int64)
    over = tl.zeros((LANES,), tl.int64)
    count = tl.zeros((LANES,), tl.int32)
    light = tl.full((LANES,), _NEVER, tl.int32)
    entries = list_ptr + row * (3 * CAP) + CAP
    z_row = z_ptr + row * stride
    for tile in range(tiles):
        # Four stretches, since what follows has to wait for other threads.
        at = (part * tiles + tile) * (4 * LANES) + lane  # lint: address, because it is at most V
        w0, key0 = _stretch(z_row, at, largest, rate, V)
        w1, key1 = _stretch(z_row, at + LANES, largest, rate, V)
        w2, key2 = _stretch(z_row, at + 2 * LANES, largest, rate, V)
        w3, key3 = _stretch(z_row, at + 3 * LANES, largest, rate, V)
        total += w0.to(tl.int64) + w1.to(tl.int64) + w2.to(tl.int64) + w3.to(tl.int64)
        if binds:
            over += _above(w0, key0, high) + _above(w1, key1, high) + _above(w2, key2, high) + _above(w3, key3, high)
            count += (key0 >= high).to(tl.int32) + (key1 >= high).to(tl.int32)
            count += (key2 >= high).to(tl.int32) + (key3 >= high).to(tl.int32)
            if min_p_ptr is not None:
                light = tl.maximum(light, tl.maximum(_too_light(w0, key0, min_p), _too_light(w1, key1, min_p)))
                light = tl.maximum(light, tl.maximum(_too_light(w2, key2, min_p), _too_light(w3, key3, min_p)))
            in0 = ((key0 >= low) & (key0 < high)).to(tl.int32)
            in1 = ((key1 >= low) & (key1 < high)).to(tl.int32)
            in2 = ((key2 >= low) & (key2 < high)).to(tl.int32)
            in3 = ((key3 >= low) & (key3 < high)).to(tl.int32)
            each = in0 + in1 + in2 + in3
            found = tl.sum(each, 0)
            if found > 0:
                begin = tl.atomic_add(head + 4, found.to(tl.int64)).to(tl.int32)
                to = begin + tl.cumsum(each, 0) - each
                tl.store(entries + to, at, mask=(in0 > 0) & (to < CAP))
                to += in0
                tl.store(entries + to, at + LANES, mask=(in1 > 0) & (to < CAP))
                to += in1
                tl.store(entries + to, at + 2 * LANES, mask=(in2 > 0) & (to < CAP))
                to += in2
                tl.store(entries + to, at + 3 * LANES, mask=(in3 > 0) & (to < CAP))
    out = sums_ptr + (row * tl.num_programs(0) + part) * SUMS
    tl.store(out, tl.sum(total, 0))
    tl.store(out + 1, tl.sum(over, 0))
    tl.store(out + 2, tl.sum(count, 0).to(tl.int64))
    tl.store(out + 3, tl.max(light, 0).to(tl.int64))
