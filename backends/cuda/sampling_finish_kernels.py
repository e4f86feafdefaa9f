"""The exact search behind `sampling_select_kernels`: in the list of a row's bracket, or in the whole row."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable_math import key_value, order_key, weights, weights32
from .sampling_select_kernels import _FAR, _NEVER, _NO_LIMIT, _ONE, HEAD, SUMS, _wanted, packed_id, row_rate

_COUNTED: tl.constexpr = tl.constexpr(1 << 48)


@jit
def _items(listed, z_row, entries, at, n, largest, rate, CAP: tl.constexpr):
    """Keys, ids and weights of some tokens: of the list, or of the row itself."""
    inside = at < n
    if listed:
        key = tl.load(entries + at, mask=inside, other=_NEVER)
        ids = tl.load(entries + CAP + at, mask=inside, other=0)
        w = tl.load(entries + 2 * CAP + at, mask=inside, other=0).to(tl.uint32, bitcast=True).to(tl.int64)
    else:
        z = tl.load(z_row + at, mask=inside, other=-float("inf"))
        key = order_key(z)
        ids = at
        w = weights(z, largest, rate)
    return key, ids, w


@jit
def fill_list(z_row, entries, n, largest, rate, CAP: tl.constexpr, BLOCK: tl.constexpr):
    """Keys and weights beside the n ids of a list."""
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < n
        ids = tl.load(entries + CAP + at, mask=inside, other=0)
        z = tl.load(z_row + ids, mask=inside, other=-float("inf"))
        tl.store(entries + at, order_key(z), mask=inside)
        w = weights32(z, largest, rate).to(tl.int32, bitcast=True)
        tl.store(entries + 2 * CAP + at, w, mask=inside)
    tl.debug_barrier()


@jit
def _measure(listed, z_row, entries, n, largest, rate, t, CAP: tl.constexpr, BLOCK: tl.constexpr):
    """Number and weight (int64) of the tokens whose key is above t."""
    if listed:
        # Count and weight in one number, and one sum: a list has less than 2^15 entries, which weigh less than 2^47.
        both = tl.zeros((BLOCK,), tl.int64)
        for begin in range(0, n, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            key, ids, w = _items(True, z_row, entries, at, n, largest, rate, CAP)
            both += tl.where(key > t, w + _COUNTED, 0)
        whole = tl.sum(both, 0)
        number = whole >> 48
        weight = whole & (_COUNTED - 1)
    else:
        count = tl.zeros((BLOCK,), tl.int32)
        mass = tl.zeros((BLOCK,), tl.int64)
        for begin in range(0, n, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            key, ids, w = _items(False, z_row, entries, at, n, largest, rate, CAP)
            count += (key > t).to(tl.int32)
            mass += tl.where(key > t, w, 0)
        number = tl.sum(count, 0).to(tl.int64)
        weight = tl.sum(mass, 0)
    return number, weight


@jit
def _measure_row(z_row, largest, rate, t, V: tl.constexpr, BLOCK: tl.constexpr):
    """As `_measure` of the whole row; and the highest key that is at most t, and the lowest above it (int64)."""
    count = tl.zeros((BLOCK,), tl.int32)
    mass = tl.zeros((BLOCK,), tl.int64)
    below = tl.full((BLOCK,), _NEVER, tl.int64)
    above = tl.full((BLOCK,), _FAR, tl.int64)
    for begin in range(0, V, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        z = tl.load(z_row + at, mask=at < V, other=-float("inf"))
        key = order_key(z).to(tl.int64)
        over = key > t
        count += over.to(tl.int32)
        mass += tl.where(over, weights(z, largest, rate), 0)
        below = tl.maximum(below, tl.where(over, _NEVER, key))
        above = tl.minimum(above, tl.where(over, key, _FAR))
    return tl.sum(count, 0).to(tl.int64), tl.sum(mass, 0), tl.max(below, 0), tl.min(above, 0)


@jit
def _lowest(listed, z_row, entries, n, largest, rate, t, CAP: tl.constexpr, BLOCK: tl.constexpr):
    """The lowest key that is at least t."""
    found = tl.full((BLOCK,), _FAR, tl.int64)
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        key, ids, w = _items(listed, z_row, entries, at, n, largest, rate, CAP)
        found = tl.minimum(found, tl.where(key >= t, key.to(tl.int64), _FAR))
    return tl.min(found, 0)


@jit
def _ties(listed, z_row, entries, n, largest, rate, t, last, CAP: tl.constexpr, BLOCK: tl.constexpr):
    """Of the tokens of key t with ids up to `last`: their number, largest id, and the weight of one."""
    count = tl.zeros((BLOCK,), tl.int32)
    highest = tl.full((BLOCK,), -1, tl.int32)
    weight = tl.zeros((BLOCK,), tl.int64)
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        key, ids, w = _items(listed, z_row, entries, at, n, largest, rate, CAP)
        same = (key == t) & (ids <= last) & (at < n)
        count += same.to(tl.int32)
        highest = tl.maximum(highest, tl.where(same, ids, -1))
        weight = tl.maximum(weight, tl.where(same, w, 0))
    return tl.sum(count, 0).to(tl.int64), tl.max(highest, 0), tl.max(weight, 0)


@jit
def _search(
    listed, z_row, entries, n, largest, rate, base_count, base_mass, low, high, most, limit, light,
    V: tl.constexpr, CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Threshold key, last id, number and weight of the kept prefix. F(high) holds; F(low) does not.

    In a whole row, where a pass is long, each step goes on to the next key that some token has: F changes at those, and
    at `light`, alone. So a row of a few values, as lists overflow with, takes a few passes.
    """
    while high - low > 1:
        middle = (low + high) >> 1
        below, above = middle, middle + 1
        if listed:
            count, mass = _measure(True, z_row, entries, n, largest, rate, middle, CAP, BLOCK)
        else:
            count, mass, below, above = _measure_row(z_row, largest, rate, middle, V, BLOCK)
        kept = (base_count + count < most) & (base_mass + mass <= limit) & (middle > light)
        down = tl.maximum(tl.maximum(below, light + 1), low + 1)
        up = tl.minimum(above, high) - 1
        high = tl.where(kept, down, high)
        low = tl.where(kept, low, up)
    t = _lowest(listed, z_row, entries, n, largest, rate, high, CAP, BLOCK)
    count, mass = _measure(listed, z_row, entries, n, largest, rate, t, CAP, BLOCK)
    count += base_count
    mass += base_mass
    ties, last, weight = _ties(listed, z_row, entries, n, largest, rate, t, V, CAP, BLOCK)
    some = tl.minimum(ties, most - count)
    fit = (limit - mass) // tl.maximum(weight, 1) + 1
    some = tl.where(weight > 0, tl.minimum(some, fit), some)
    if some < ties:
        # The some-th id among equals: the least id with so many up to it.
        below = tl.full((), -1, tl.int32)
        upto = last
        while upto - below > 1:
            middle_id = (below + upto) >> 1
            number, unused_id, unused_weight = _ties(listed, z_row, entries, n, largest, rate, t, middle_id, CAP, BLOCK)
            enough = number >= some
            upto = tl.where(enough, middle_id, upto)
            below = tl.where(enough, below, middle_id)
        last = upto
    return t, last, count + some, mass + some * weight


@jit
def _share(total, fraction):
    """floor(total * fraction / 2**31) without overflow."""
    return (total >> 31) * fraction + (((total & (_ONE - 1)) * fraction) >> 31)


@jit
def selection(
    row: tl.int64, z_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, head_ptr, sums_ptr, list_ptr, parts, force,
    V: tl.constexpr, FORCED: tl.constexpr, CAP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row's kept set: largest key with its id, threshold key, last id, count, mass; and where its tokens are listed.

    Returns:
        order (`packed`), finite (-1: invalid), t, last, count, mass, listed, entries listed.
    """
    head = head_ptr + row * HEAD
    order = tl.load(head)
    finite = tl.load(head + 1)
    entries = list_ptr + row * (3 * CAP)
    z_row = z_ptr + row * V
    rate = row_rate(inverse_ptr, row)
    t = order >> 32
    last = packed_id(order)
    count = tl.full((), 1, tl.int64)
    mass = tl.full((), 0, tl.int64) + _ONE
    listed = False
    n = tl.full((), 0, tl.int32)
    if (finite >= 0) & (rate < float("inf")):
        largest = key_value((order >> 32).to(tl.int32))
        part = tl.arange(0, PARTS)
        own = sums_ptr + (row * parts + part) * SUMS
        inside = part < parts
        total = tl.sum(tl.load(own, mask=inside, other=0), 0)
        pool, most, top_p, min_p = _wanted(row, finite, top_k_ptr, top_p_ptr, min_p_ptr, force, FORCED)
        count = finite
        mass = total
        t = tl.full((), _NEVER + 1, tl.int64)
        last = tl.full((), -1, tl.int32)
        if (most < finite) | (top_p < _ONE) | (min_p > 0):
            base_mass = tl.sum(tl.load(own + 1, mask=inside, other=0), 0)
            base_count = tl.sum(tl.load(own + 2, mask=inside, other=0), 0)
            light = tl.max(tl.load(own + 3, mask=inside, other=_NEVER), 0)
            found = tl.load(head + 4)
            low = tl.load(head + 2) - 1
            high = tl.load(head + 3) - 1
            limit = tl.where(top_p < _ONE, _share(total, top_p), _NO_LIMIT)
            if FORCED:
                limit = tl.where(limit < _NO_LIMIT, -1, limit)  # not known yet; what it may be is searched in the list
            listed = found <= CAP
            n = tl.where(listed, found, V).to(tl.int32)
            if listed:
                fill_list(z_row, entries, n, largest, rate, CAP, BLOCK)
                inner, weight = _measure(True, z_row, entries, n, largest, rate, low, CAP, BLOCK)
                heavier, heavier_weight = _measure(True, z_row, entries, n, largest, rate, light, CAP, BLOCK)
                all_of_it = base_count + found == finite
                if FORCED:
                    listed = (base_count == 0) & (all_of_it | (found >= pool))
                else:
                    first = (base_count < most) & (base_mass <= limit) & (high > light)
                    beyond = (base_count + inner >= most) | (base_mass + weight > limit) | (low <= light)
                    listed = first & (beyond | all_of_it)
                listed = listed & ((light <= low) | (heavier > 0))
            n = tl.where(listed, n, V)
            if not listed:
                # What the bracket is good for is known of its upper end, and asked of the lower one.
                good = (base_count < most) & (base_mass <= limit) & (high > light) & (not FORCED)
                if good:
                    count_low, mass_low, unused_below, unused_above = _measure_row(z_row, largest, rate, low, V, BLOCK)
                    holds = (count_low >= most) | (mass_low > limit) | (low <= light)
                    high = tl.where(holds, high, low)
                    low = tl.where(holds, low, _NEVER)
                else:
                    high = order >> 32
                    low = tl.full((), _NEVER, tl.int64)
                base_count = tl.full((), 0, tl.int64)
                base_mass = tl.full((), 0, tl.int64)
            if FORCED:
                pool_t, pool_last, pool_count, weight_of_pool = _search(
                    listed, z_row, entries, n, largest, rate, base_count, base_mass, low, high, pool, _NO_LIMIT,
                    tl.full((), _NEVER, tl.int64), V, CAP, BLOCK,
                )  # fmt: skip
                limit = tl.where(top_p < _ONE, _share(weight_of_pool, top_p), _NO_LIMIT)
            t, last, count, mass = _search(
                listed, z_row, entries, n, largest, rate, base_count, base_mass, low, high, most, limit, light,
                V, CAP, BLOCK,
            )  # fmt: skip
    return order, finite, t, last, count, mass, listed, n


@jit
def row_finish(
    z_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, head_ptr, sums_ptr, list_ptr,
    max_ptr, max_id_ptr, threshold_ptr, last_ptr, count_ptr, mass_ptr, parts, force,
    V: tl.constexpr, FORCED: tl.constexpr, CAP: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The outputs of `sample_filter`. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    order, finite, t, last, count, mass, _, _ = selection(
        row, z_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, head_ptr, sums_ptr, list_ptr, parts, force,
        V, FORCED, CAP, PARTS, BLOCK,
    )  # fmt: skip
    valid = finite >= 0
    everything = count == finite
    threshold = key_value(t.to(tl.int32))
    threshold = tl.where(everything, -float("inf"), threshold)
    last = tl.where(everything | (finite < 0), -1, last)
    tl.store(max_ptr + row, tl.where(valid, key_value((order >> 32).to(tl.int32)), -float("inf")))
    tl.store(max_id_ptr + row, tl.where(valid, packed_id(order), 0))
    tl.store(threshold_ptr + row, tl.where(valid, threshold, float("inf")))
    tl.store(last_ptr + row, last)
    tl.store(count_ptr + row, tl.where(valid, count, 0).to(tl.int32))
    tl.store(mass_ptr + row, tl.where(valid, mass, 0))
