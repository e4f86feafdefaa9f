"""Kernels of log-probabilities: sums by the tree of docs/numerics.md, section 4.6, and what is made of them."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable_math import LN2, exp2, exponents, key_value, log2, weights
from .sampling_finish_kernels import _items, selection
from .sampling_race_kernels import kept
from .sampling_select_kernels import _FLOOR, _LEAST_SUM, _LOWEST, packed, packed_id, row_rate, row_top

SEGMENT: tl.constexpr = tl.constexpr(8192)
LANES: tl.constexpr = tl.constexpr(1024)


@jit
def _halve(x, HALF: tl.constexpr):
    """Lane j becomes lane j + lane j + HALF: sums of two numbers, in which no order can differ."""
    return tl.sum(tl.reshape(x, (2, HALF)), 0)


@jit
def _edges(threshold_ptr, last_ptr, row, valid):
    """Threshold and last id of a row's kept set: without a filter, every token above -infinity; of an invalid row none,
    whatever the filter says, which may be made of another row."""
    if threshold_ptr is None:
        threshold = tl.full((), -float("inf"), tl.float32)
        last = tl.full((), -1, tl.int32)
    else:
        threshold = tl.load(threshold_ptr + row)
        last = tl.load(last_ptr + row)
    return tl.where(valid, threshold, float("inf")), tl.where(valid, last, -1)


@jit
def tree_parts(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, stats_ptr, count_ptr, sum_ptr, parts, V: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Sum of one segment of a row: exp2 of the exponents of its kept tokens. Grid (segments, rows).

    Rows with a `count` of at most 1 are left out where one is given: nobody asks for their sum.
    """
    segment = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    if count_ptr is not None:
        if tl.load(count_ptr + row) <= 1:
            return
    order, _, valid = row_top(stats_ptr, row, parts, PARTS)
    largest = key_value((order >> 32).to(tl.int32))
    rate = row_rate(inverse_ptr, row)
    threshold, last = _edges(threshold_ptr, last_ptr, row, valid)
    lane = tl.arange(0, LANES)
    total = tl.zeros((LANES,), tl.float32)
    for step in tl.static_range(SEGMENT // LANES):
        at = segment * SEGMENT + step * LANES + lane
        z = tl.load(z_ptr + row * V + at, mask=at < V, other=-float("inf"))
        live = kept(z, at, threshold, last) & (at < V)
        total += tl.where(live, exp2(exponents(z, largest, rate)), 0.0)
    total = _halve(total, 512)
    total = _halve(total, 256)
    total = _halve(total, 128)
    total = _halve(total, 64)
    total = _halve(total, 32)
    total = _halve(total, 16)
    total = _halve(total, 8)
    total = _halve(total, 4)
    total = _halve(total, 2)
    total = tl.sum(total, 0)
    tl.store(sum_ptr + row * tl.num_programs(0) + segment, total)


@jit
def row_log_sum(sum_ptr, row: tl.int64, V: tl.constexpr):
    """log2 of the sum of a row: its segments in order."""
    segments: tl.constexpr = (V + SEGMENT - 1) // SEGMENT
    total = tl.load(sum_ptr + row * segments)
    for segment in tl.static_range(1, segments):
        total = total + tl.load(sum_ptr + row * segments + segment)
    return log2(tl.maximum(total, _LEAST_SUM))


@jit
def token_values(
    z_ptr, token_ptr, inverse_ptr, threshold_ptr, last_ptr, stats_ptr, sum_ptr, out_ptr, parts, V: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Log-probability of one token per row. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    order, _, valid = row_top(stats_ptr, row, parts, PARTS)
    threshold, last = _edges(threshold_ptr, last_ptr, row, valid)
    token = tl.load(token_ptr + row)
    z = tl.load(z_ptr + row * V + tl.maximum(token, 0))
    e = exponents(z, key_value((order >> 32).to(tl.int32)), row_rate(inverse_ptr, row))
    e = tl.where(kept(z, token, threshold, last) & (token >= 0), e, -float("inf"))
    tl.store(out_ptr + row, tl.maximum((e - row_log_sum(sum_ptr, row, V)) * LN2, _FLOOR))


@jit
def top_values(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, stats_ptr, head_ptr, sums_ptr, list_ptr, picked_ptr,
    sum_ptr, ids_ptr, value_ptr, parts, take,
    K: tl.constexpr, V: tl.constexpr, CAP: tl.constexpr, PARTS: tl.constexpr, PICKED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The K largest kept logits of a row, sorted, and their log-probabilities. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    order, finite, t, last, count, _, listed, n = selection(
        row,
        z_ptr,
        None,
        None,
        None,
        None,
        head_ptr,
        sums_ptr,
        list_ptr,
        parts,
        take,
        V,
        True,
        CAP,
        PARTS,
        BLOCK,
    )
    valid = finite >= 0
    last = tl.where(count == finite, V, last)
    picked = picked_ptr + row * PICKED
    slot = tl.arange(0, PICKED)
    tl.store(picked + slot, tl.full((PICKED,), _LOWEST, tl.int64))
    tl.debug_barrier()
    if valid:
        n = tl.where(n == 0, V, n)  # nothing was searched: every token above -infinity
        largest = key_value((order >> 32).to(tl.int32))
        begin_slot = tl.full((), 0, tl.int32)
        for begin in range(0, n, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            key, ids, w = _items(
                listed, z_ptr + row * V, list_ptr + row * (3 * CAP), at, n, largest, tl.full((), 1.0, tl.float32), CAP
            )
            chosen = ((key > t) | ((key == t) & (ids <= last))) & (at < n)
            to = begin_slot + tl.cumsum(chosen.to(tl.int32), 0) - 1
            tl.store(picked + to, packed(key, ids), mask=chosen)
            begin_slot += tl.sum(chosen.to(tl.int32), 0)
    tl.debug_barrier()
    best = tl.sort(tl.load(picked + slot), descending=True)
    ids = packed_id(best)
    z = key_value((best >> 32).to(tl.int32))
    threshold, edge = _edges(threshold_ptr, last_ptr, row, valid)
    live = kept(z, ids, threshold, edge) & (best > _LOWEST) & valid
    e = exponents(z, key_value((order >> 32).to(tl.int32)), row_rate(inverse_ptr, row))
    value = tl.maximum((e - row_log_sum(sum_ptr, row, V)) * LN2, _FLOOR)
    inside = slot < K
    tl.store(ids_ptr + row * K + slot, tl.where(live, ids, -1), mask=inside)
    tl.store(value_ptr + row * K + slot, tl.where(live, value, _FLOOR), mask=inside)


@jit
def smaller_part(
    z_ptr, inverse_ptr, largest_ptr, threshold_ptr, last_ptr, token_ptr, part_ptr, tiles, V: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Weight of the kept tokens below a token, over one part of a row. Grid (parts, rows)."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    token = tl.load(token_ptr + row)
    own = tl.load(z_ptr + row * V + tl.maximum(token, 0))
    own = tl.where(token >= 0, own, -float("inf"))
    largest = tl.load(largest_ptr + row)
    rate = row_rate(inverse_ptr, row)
    threshold = tl.load(threshold_ptr + row)
    last = tl.load(last_ptr + row)
    mass = tl.zeros((BLOCK,), tl.int64)
    for tile in range(tiles):
        at = (part * tiles + tile) * BLOCK + tl.arange(0, BLOCK)  # lint: address, because it is at most V
        z = tl.load(z_ptr + row * V + at, mask=at < V, other=-float("inf"))
        less = kept(z, at, threshold, last) & (z < own) & (at < V)
        mass += tl.where(less, weights(z, largest, rate), 0)
    tl.store(part_ptr + row * tl.num_programs(0) + part, tl.sum(mass, 0))


@jit
def smaller_finish(part_ptr, out_ptr, parts, PARTS: tl.constexpr):
    """Sum of a row's parts. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    tl.store(out_ptr + row, tl.sum(tl.load(part_ptr + row * parts + part, mask=part < parts, other=0), 0))


@jit
def distribution_part(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, count_ptr, token_ptr, slot_ptr, stats_ptr, sum_ptr, pool_ptr, parts,
    slot_stride: tl.int64, place_offset: tl.int64, tiles, V: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Base-2 log-probabilities of one part of a row, into its slot of the pool. Grid (parts, rows)."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(slot_ptr + row).to(tl.int64)
    if slot >= 0:
        single = tl.load(count_ptr + row) <= 1
        token = tl.load(token_ptr + row)
        threshold = tl.load(threshold_ptr + row)
        last = tl.load(last_ptr + row)
        order, _, _ = row_top(stats_ptr, row, parts, PARTS)
        largest = key_value((order >> 32).to(tl.int32))
        rate = row_rate(inverse_ptr, row)
        log_sum = tl.full((), 0.0, tl.float32)
        if not single:
            log_sum = row_log_sum(sum_ptr, row, V)
        out = pool_ptr + slot * slot_stride + place_offset
        for tile in range(tiles):
            at = (part * tiles + tile) * BLOCK + tl.arange(0, BLOCK)  # lint: address, because it is at most V
            inside = at < V
            z = tl.load(z_ptr + row * V + at, mask=inside, other=-float("inf"))
            e = tl.where(kept(z, at, threshold, last), exponents(z, largest, rate), -float("inf")) - log_sum
            e = tl.where(single, tl.where(at == token, 0.0, -float("inf")), e)
            tl.store(out + at, e, mask=inside)
