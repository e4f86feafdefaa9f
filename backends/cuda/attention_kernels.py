"""The device side of sparse attention; `attention.py` launches it.

Keys sit in slots, 64 slots are a tile, and tiles are taken in order with a running maximum; see `ops/attention.py`. A
program first writes down where the keys of its row lie, a thread for each, and reads these addresses tile by tile.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import dot, to_bf16
from .portable_packed import FP4_UP, anew, fp4_channels, fp8_channels, settled

TILE: tl.constexpr = tl.constexpr(64)
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


# ---- where a row's keys are -----------------------------------------------------------------------------------------


@jit
def find_keys(
    row, places_ptr, fresh_ptr, ring_ptr, pages_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr,
    table_ptr, indices_ptr, ring_size, columns, fresh_row, ring_state, ring_row, page_row,
    WINDOW: tl.constexpr, WINDOW_SPAN: tl.constexpr, SELECTED: tl.constexpr, SPAN: tl.constexpr, ENTRIES: tl.constexpr,
    RECORD: tl.constexpr,
):  # fmt: skip
    """Writes the addresses of a row's keys, int64 [tiles, TILE], 0 where there is no key; other threads read them.

    Returns (first tile of the window that has a key, end of its tiles, tiles of selected entries).
    """
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    seq = tl.load(seq_ptr + row)
    live = seq >= 0
    seq = tl.maximum(seq, 0)
    last = tl.load(last_ptr + row)
    base = last - WINDOW + 1
    low = tl.maximum(tl.maximum(tl.load(first_ptr + row), base), 0)
    end = tl.where(live & (low <= last), WINDOW_TILES, 0)
    start = tl.load(start_ptr + seq, mask=live, other=0)
    begin = tl.load(begin_ptr + seq, mask=live, other=0)
    state = tl.load(state_ptr + seq, mask=live, other=0)
    slot = tl.arange(0, WINDOW_SPAN)
    position = base + slot
    since = position - start
    inside = fresh_ptr.to(tl.int64) + (begin + since).to(tl.int64) * fresh_row
    behind = ring_ptr.to(tl.int64) + state.to(tl.int64) * ring_state + (position % ring_size).to(tl.int64) * ring_row
    place = tl.where(live & (position >= low) & (slot < WINDOW), tl.where(since >= 0, inside, behind), 0)
    tl.store(places_ptr + slot, place, mask=slot < WINDOW_TILES * TILE)
    chosen = 0
    if SELECTED > 0:
        column = tl.arange(0, SPAN)
        at = indices_ptr + row.to(tl.int64) * SELECTED + column
        index = tl.load(at, mask=column < tl.where(live, SELECTED, 0), other=-1)
        present = index >= 0
        chosen = (tl.max(tl.where(present, column + 1, 0), axis=0) + TILE - 1) // TILE
        index = tl.where(present, index, 0)
        page = tl.load(table_ptr + seq.to(tl.int64) * columns + index // ENTRIES, mask=present, other=0)
        place = pages_ptr.to(tl.int64) + page.to(tl.int64) * page_row + (index % ENTRIES).to(tl.int64) * RECORD
        at = places_ptr + WINDOW_TILES * TILE + column
        tl.store(at, tl.where(present, place, 0), mask=column < (SELECTED + TILE - 1) // TILE * TILE)
    tl.debug_barrier()
    return tl.minimum((low - base) // TILE, end), end, chosen


# ---- records --------------------------------------------------------------------------------------------------------


@jit
def tile_places(places_ptr, t, ALIGN: tl.constexpr):
    """Pointers to the keys of a tile's slots, and which exist. ALIGN: bytes that every address divides by."""
    place = tl.load(places_ptr + t * TILE + tl.arange(0, TILE))
    # Said of the pointer: the compiler forgets what it knows of an integer that becomes one.
    return tl.multiple_of(place.to(tl.pointer_type(tl.uint8)), ALIGN), place != 0


@jit
def load_keys(place, present, D: tl.constexpr, WIDTH: tl.constexpr, FP4: tl.constexpr, ALIGN: tl.constexpr):
    """Keys, bf16 [TILE, WIDTH]; of FP4 records FP4_DOWN times their values.

    A word has the codes of four channels, int16 or int32; a byte of scale belongs to a group of 16 or 32.
    """
    BYTES: tl.constexpr = 2 if FP4 else 4
    GROUPS: tl.constexpr = WIDTH // 16 if FP4 else WIDTH // 32
    column = tl.arange(0, WIDTH // 4)[None, :]
    exists = present[:, None]
    if D < WIDTH:
        exists = exists & (column < D // 4)
    if ALIGN >= BYTES:
        # The cast comes before the columns: a pointer's neighbours are then seen to lie beside one another.
        if FP4:
            words = tl.load(place.to(tl.pointer_type(tl.int16))[:, None] + column, mask=exists, other=0)
        else:
            words = tl.load(place.to(tl.pointer_type(tl.int32))[:, None] + column, mask=exists, other=0)
    else:
        at = place[:, None] + column * BYTES
        words = tl.load(at, mask=exists, other=0).to(tl.int32)
        for i in tl.static_range(1, BYTES):
            words |= tl.load(at + i, mask=exists, other=0).to(tl.int32) << (8 * i)
        if FP4:
            words = words.to(tl.int16)
    group = tl.arange(0, GROUPS)[None, :]
    exists = present[:, None]
    if D < WIDTH:
        exists = exists & (group * WIDTH < D * GROUPS)
    scale = tl.load(place[:, None] + D * BYTES // 4 + group, mask=exists, other=0)
    if FP4:
        k0, k1, k2, k3 = fp4_channels(words, scale)
    else:
        k0, k1, k2, k3 = fp8_channels(words, scale)
    return settled(tl.reshape(tl.join(tl.join(k0, k2), tl.join(k1, k3)), (words.shape[0], WIDTH)))


@jit
def load_query(q_ptr, row, head, heads, D: tl.constexpr, WIDTH: tl.constexpr):
    """The query, bf16 [heads of the block, WIDTH]; zeros where there is none."""
    channel = tl.arange(0, WIDTH)[None, :]
    at = q_ptr + (row.to(tl.int64) * heads + head[:, None]) * D + channel
    return tl.load(at, mask=(head[:, None] < heads) & (channel < D), other=0.0)


# ---- arithmetic -----------------------------------------------------------------------------------------------------


@jit
def tile_sum(p):
    """Sums over the columns of fp32 [heads, TILE], in an order that no layout changes: columns 1 apart, then
    16, 8, 32, 4 and 2 apart. The first three lie in one thread where a product leaves them."""
    HEADS: tl.constexpr = p.shape[0]
    a, b = tl.split(tl.reshape(p, (HEADS, 2, 2, 2, 4, 2)))
    a, b = tl.split(tl.permute(a + b, (0, 1, 3, 4, 2)))
    a, b = tl.split(tl.permute(a + b, (0, 1, 3, 2)))
    a, b = tl.split(tl.permute(a + b, (0, 2, 1)))
    a, b = tl.split(tl.permute(tl.reshape(a + b, (HEADS, 2, 2)), (0, 2, 1)))
    a, b = tl.split(a + b)
    return a + b


@jit
def soften(s, top, total, UP: tl.constexpr):
    """A step of the running softmax in base 2: bf16 P times UP, the factor of what was summed so far, maximum, sum."""
    highest = tl.maximum(top, tl.max(s, axis=1))
    safe = tl.where(highest == float("-inf"), 0.0, highest)
    p = tl.exp2(s - safe[:, None])
    alpha = tl.exp2(top - safe)
    total = total * alpha + tile_sum(p)
    return to_bf16(p * UP), alpha, highest, total


@jit
def attend(
    q, places_ptr, t, real, top, total, value, scale,
    D: tl.constexpr, WIDTH: tl.constexpr, FP4: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """One tile: scores, softmax, values."""
    UP: tl.constexpr = FP4_UP if FP4 else 1.0
    place, present = tile_places(places_ptr, t, ALIGN)
    k = load_keys(place, present, D, WIDTH, FP4, ALIGN)
    p = to_bf16(tl.zeros((q.shape[0], TILE), tl.float32))
    alpha = top
    # Always so. The compiler lays out two products in a chain so that each row stays in one warp; with fewer rows than
    # warps want, warps would compute the same scores. It does not see the chain across a branch.
    if real:
        s = dot(q, tl.trans(k), tl.zeros((q.shape[0], TILE), tl.float32))
        s = tl.where(present[None, :], s * (scale * UP), float("-inf"))
        p, alpha, top, total = soften(s, top, total, UP)
    return top, total, dot(p, k, value * alpha[:, None])


@jit
def attend_tiles(
    q_ptr, row, head, heads, places_ptr, window_from, window_to, entries_from, entries_to, scale,
    D: tl.constexpr, WIDTH: tl.constexpr, SELECTED: tl.constexpr, FP4: tl.constexpr, ALIGN: tl.constexpr,
    PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """Maximum, sum and values [heads of the block, WIDTH] over some tiles of a row."""
    HEADS: tl.constexpr = head.shape[0]
    q = load_query(q_ptr, row, head, heads, D, WIDTH)
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    value = tl.zeros((HEADS, WIDTH), tl.float32)
    for t in range(window_from, window_to):
        top, total, value = attend(q, places_ptr, t, heads > 0, top, total, value, scale, D, WIDTH, False, ALIGN)
    if SELECTED > 0:
        for t in range(entries_from, entries_to):
            top, total, value = attend(q, places_ptr, t, heads > 0, top, total, value, scale, D, WIDTH, FP4, PAGE_ALIGN)
    return top, total, value


@jit
def divisor(sink_ptr, head, heads, top, total):
    """What the sums are divided by; NaN where all of a row's scores are minus infinity."""
    sink = tl.load(sink_ptr + head, mask=head < heads, other=0.0)
    whole = total + tl.exp2(sink * LOG2E - top)
    return tl.where(top == float("-inf"), float("nan"), whole)


# ---- a program per row ----------------------------------------------------------------------------------------------


@jit
def sparse_attention_rows(
    q_ptr, fresh_ptr, ring_ptr, sink_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr, pages_ptr,
    table_ptr, indices_ptr, places_ptr, out_ptr, heads, ring_size, columns, scale,
    fresh_row: tl.int64, ring_state: tl.int64, ring_row: tl.int64, page_row: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, WINDOW: tl.constexpr, WINDOW_SPAN: tl.constexpr,
    SELECTED: tl.constexpr, SPAN: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr, FP4: tl.constexpr,
    ALIGN: tl.constexpr, PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """A row and a block of its heads from the first tile to the last. `scale` has log2(e) in it.

    places: scratch, int64 [rows, blocks, tiles, TILE].
    """
    row = tl.program_id(0)
    block = tl.program_id(1)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    TILES: tl.constexpr = WINDOW_TILES + (SELECTED + TILE - 1) // TILE
    places = places_ptr + (row.to(tl.int64) * tl.num_programs(1) + block) * (TILES * TILE)
    tile, end, chosen = find_keys(
        row, places, fresh_ptr, ring_ptr, pages_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr,
        table_ptr, indices_ptr, ring_size, columns, fresh_row, ring_state, ring_row, page_row,
        WINDOW, WINDOW_SPAN, SELECTED, SPAN, ENTRIES, RECORD,
    )  # fmt: skip
    head = block * HEADS + tl.arange(0, HEADS)
    top, total, value = attend_tiles(
        q_ptr, row, head, heads, places, tile, end, WINDOW_TILES, chosen + WINDOW_TILES, scale,
        D, WIDTH, SELECTED, FP4, ALIGN, PAGE_ALIGN,
    )  # fmt: skip
    head = anew(head)  # else what addresses of queries and outputs share stays in registers meanwhile
    any_key = (tile < end) | (chosen > 0)
    value /= divisor(sink_ptr, head, heads, top, total)[:, None]
    channel = tl.arange(0, WIDTH)[None, :]
    at = out_ptr + (row.to(tl.int64) * heads + head[:, None]) * D + channel
    tl.store(at, to_bf16(tl.where(any_key, value, 0.0)), mask=(head[:, None] < heads) & (channel < D))


# ---- several programs per row, whose number depends on the batch: not invariant -------------------------------------


@jit
def sparse_attention_parts(
    q_ptr, fresh_ptr, ring_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr, pages_ptr,
    table_ptr, indices_ptr, places_ptr, tops_ptr, sums_ptr, heads, ring_size, columns, scale,
    fresh_row: tl.int64, ring_state: tl.int64, ring_row: tl.int64, page_row: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, WINDOW: tl.constexpr, WINDOW_SPAN: tl.constexpr,
    SELECTED: tl.constexpr, SPAN: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr, FP4: tl.constexpr,
    ALIGN: tl.constexpr, PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """A row, a block of its heads, and an equal share of its tiles.

    places: as above, for each program. tops: fp32 [rows, blocks, parts, HEADS, 2], maximum and sum, the sum -1 where a
    part has no key. sums: fp32 [rows, blocks, parts, HEADS, WIDTH].
    """
    row = tl.program_id(0)
    block = tl.program_id(1)
    part = tl.program_id(2)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    TILES: tl.constexpr = WINDOW_TILES + (SELECTED + TILE - 1) // TILE
    here = (row.to(tl.int64) * tl.num_programs(1) + block) * tl.num_programs(2) + part
    places = places_ptr + here * (TILES * TILE)
    tile, end, chosen = find_keys(
        row, places, fresh_ptr, ring_ptr, pages_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr,
        table_ptr, indices_ptr, ring_size, columns, fresh_row, ring_state, ring_row, page_row,
        WINDOW, WINDOW_SPAN, SELECTED, SPAN, ENTRIES, RECORD,
    )  # fmt: skip
    near = end - tile
    share = (near + chosen + tl.num_programs(2) - 1) // tl.num_programs(2)
    first = part * share
    last = tl.minimum(first + share, near + chosen)
    head = block * HEADS + tl.arange(0, HEADS)
    top, total, value = attend_tiles(
        q_ptr, row, head, heads, places, tile + tl.minimum(first, near), tile + tl.minimum(last, near),
        tl.maximum(first - near, 0) + WINDOW_TILES, tl.maximum(last - near, 0) + WINDOW_TILES, scale,
        D, WIDTH, SELECTED, FP4, ALIGN, PAGE_ALIGN,
    )  # fmt: skip
    line = here * HEADS + anew(tl.arange(0, HEADS))
    tl.store(tops_ptr + 2 * line, top)
    tl.store(tops_ptr + 2 * line + 1, tl.where(first < last, total, -1.0))
    tl.store(sums_ptr + line[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], value)


@jit
def join_parts(
    sink_ptr, tops_ptr, sums_ptr, out_ptr, parts, D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    """The parts of a row and head, at most MOST, as one."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    blocks = (heads + HEADS - 1) // HEADS
    part = tl.arange(0, MOST)
    line = ((row * blocks + head // HEADS) * parts + part) * HEADS + head % HEADS
    top = tl.load(tops_ptr + 2 * line, mask=part < parts, other=float("-inf"))
    total = tl.load(tops_ptr + 2 * line + 1, mask=part < parts, other=-1.0)
    channel = tl.arange(0, WIDTH)
    value = tl.load(sums_ptr + line[:, None] * WIDTH + channel[None, :], mask=(part < parts)[:, None], other=0.0)
    some = total != -1.0
    highest = tl.max(top, axis=0)
    factor = tl.where(some, tl.exp2(top - tl.where(highest == float("-inf"), 0.0, highest)), 0.0)
    whole = tl.sum(tl.where(some, total * factor, 0.0), axis=0)
    whole = divisor(sink_ptr, head, heads, highest, whole)
    result = tl.sum(value * factor[:, None], axis=0) / whole
    result = tl.where(tl.max(some.to(tl.int32), axis=0) > 0, result, 0.0)
    tl.store(out_ptr + (row * heads + head) * D + channel, to_bf16(result), mask=channel < D)
