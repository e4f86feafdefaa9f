"""The device side of sparse attention; `attention.py` launches it and says how the kernels go together.

Keys sit in slots, 64 slots are a tile, and tiles are taken in order with a running maximum; see `ops/attention.py`.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import bf16_to_f32, dot, to_bf16
from .portable_packed import FP4_UP, fp4_channels, fp8_channels

TILE: tl.constexpr = tl.constexpr(64)
LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


# ---- rows -----------------------------------------------------------------------------------------------------------


@jit
def row_keys(
    row, first_ptr, last_ptr, seq_ptr, indices_ptr,
    WINDOW: tl.constexpr, SELECTED: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """A row's keys; padding has sequence 0 and no tiles.

    Returns (sequence, position of slot 0, first position, first tile of the window, end of its tiles, tiles of selected
    entries).
    """
    seq = tl.load(seq_ptr + row)
    last = tl.load(last_ptr + row)
    base = last - WINDOW + 1
    low = tl.maximum(tl.maximum(tl.load(first_ptr + row), base), 0)
    end = tl.where((seq >= 0) & (low <= last), (WINDOW + TILE - 1) // TILE, 0)
    chosen = 0
    if SELECTED > 0:
        column = tl.arange(0, SPAN)
        at = indices_ptr + row.to(tl.int64) * SELECTED + column
        index = tl.load(at, mask=column < tl.where(seq >= 0, SELECTED, 0), other=-1)
        chosen = (tl.max(tl.where(index >= 0, column + 1, 0), axis=0) + TILE - 1) // TILE
    return tl.maximum(seq, 0), base, low, tl.minimum((low - base) // TILE, end), end, chosen


@jit
def sequence_of(row, seq_ptr, start_ptr, begin_ptr, state_ptr):
    """Where a row's sequence starts in this step, its first row, and its ring; zeros for padding."""
    seq = tl.load(seq_ptr + row)
    live = seq >= 0
    start = tl.load(start_ptr + seq, mask=live, other=0)
    return start, tl.load(begin_ptr + seq, mask=live, other=0), tl.load(state_ptr + seq, mask=live, other=0)


@jit
def window_places(
    tile, limit, base, low, begin, start, state, ring_size, fresh_ptr, ring_ptr, fresh_row, ring_state, ring_row,
    ALIGN: tl.constexpr,
):  # fmt: skip
    """Pointers to the records of a tile of window slots, and which exist; none from slot `limit` on."""
    slot = tile * TILE + tl.arange(0, TILE)
    position = base + slot
    present = (position >= low) & (slot < limit)
    since = position - start
    inside = (begin + since).to(tl.int64) * (fresh_row * ALIGN)
    behind = state.to(tl.int64) * (ring_state * ALIGN) + (position % ring_size).to(tl.int64) * (ring_row * ALIGN)
    return tl.where(since >= 0, fresh_ptr + inside, ring_ptr + behind), present


@jit
def entry_places(
    tile, limit, row, seq, indices_ptr, table_ptr, pages_ptr, columns, page_row,
    SELECTED: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Pointers to the records of a tile of selected entries, and which exist; none from column `limit` on."""
    slot = tile * TILE + tl.arange(0, TILE)
    index = tl.load(indices_ptr + row.to(tl.int64) * SELECTED + slot, mask=slot < limit, other=-1)
    present = index >= 0
    index = tl.where(present, index, 0)
    page = tl.load(table_ptr + seq.to(tl.int64) * columns + index // ENTRIES, mask=present, other=0)
    return pages_ptr + page.to(tl.int64) * (page_row * ALIGN) + (index % ENTRIES).to(tl.int64) * RECORD, present


# ---- records --------------------------------------------------------------------------------------------------------


@jit
def load_words(place, present, D: tl.constexpr, WIDTH: tl.constexpr, FP4: tl.constexpr, ALIGN: tl.constexpr):
    """Codes and scales of records: one word per four channels (int16 or int32), one byte per group of channels."""
    column = tl.arange(0, WIDTH // 4)[None, :]
    exists = present[:, None] & (column < D // 4)
    BYTES: tl.constexpr = 2 if FP4 else 4
    GROUPS: tl.constexpr = WIDTH // 16 if FP4 else WIDTH // 32
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
    there = present[:, None] & (group < D * GROUPS // WIDTH)
    scale = tl.load(place[:, None] + D * BYTES // 4 + group, mask=there, other=0)
    return words, scale


@jit
def keys_of(words, scale, FP4: tl.constexpr):
    """bf16 [N, WIDTH] of words and scales; of FP4 records FP4_DOWN times their values."""
    if FP4:
        k0, k1, k2, k3 = fp4_channels(words, scale)
    else:
        k0, k1, k2, k3 = fp8_channels(words, scale)
    return tl.reshape(tl.join(tl.join(k0, k2), tl.join(k1, k3)), (words.shape[0], 4 * words.shape[1]))


# ---- arithmetic -----------------------------------------------------------------------------------------------------


@jit
def load_query(q_ptr, row, head, heads, D: tl.constexpr, WIDTH: tl.constexpr):
    """The query, bf16 [heads of the block, WIDTH]; zeros where there is none."""
    channel = tl.arange(0, WIDTH)[None, :]
    at = q_ptr + (row.to(tl.int64) * heads + head[:, None]) * D + channel
    return tl.load(at, mask=(head[:, None] < heads) & (channel < D), other=0.0)


@jit
def masked(s, present, scale):
    """Scores in base 2, minus infinity where there is no key."""
    return tl.where(present[None, :], s * scale, float("-inf"))


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
def attend(q, k, real, present, top, total, value, scale, UP: tl.constexpr):
    """One tile: scores, softmax, values. `k` is 1 / UP times the keys."""
    p = to_bf16(tl.zeros((q.shape[0], TILE), tl.float32))
    alpha = top
    # Always so. The compiler lays out two products in a chain so that each row stays in one warp; with fewer rows than
    # warps want, warps would compute the same scores. It does not see the chain across a branch.
    if real:
        s = dot(q, tl.trans(k), tl.zeros((q.shape[0], TILE), tl.float32))
        p, alpha, top, total = soften(masked(s, present, scale * UP), top, total, UP)
    return top, total, dot(p, k, value * alpha[:, None])


@jit
def divisor(sink_ptr, head, heads, top, total):
    """What the sums are divided by; NaN where all of a row's scores are minus infinity."""
    sink = tl.load(sink_ptr + head, mask=head < heads, other=0.0)
    whole = total + tl.exp2(sink * LOG2E - top)
    return tl.where(top == float("-inf"), float("nan"), whole)


@jit
def store_output(out_ptr, row, head, heads, any_key, whole, value, D: tl.constexpr, WIDTH: tl.constexpr):
    """Quotients, rounded; zeros for a row without a key."""
    result = to_bf16(tl.where(any_key, value / whole[:, None], 0.0))
    channel = tl.arange(0, WIDTH)[None, :]
    at = out_ptr + (row.to(tl.int64) * heads + head[:, None]) * D + channel
    tl.store(at, result, mask=(head[:, None] < heads) & (channel < D))


# ---- where a row's keys are -----------------------------------------------------------------------------------------


@jit
def find_keys(
    fresh_ptr, ring_ptr, pages_ptr, keys_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr,
    table_ptr, indices_ptr, places_ptr, rows, ring_size, columns, entries_at,
    fresh_row: tl.int64, ring_state: tl.int64, ring_row: tl.int64, page_row: tl.int64,
    WIDTH: tl.constexpr, WINDOW: tl.constexpr, SELECTED: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr,
    UNPACKED: tl.constexpr,
):  # fmt: skip
    """Addresses of the keys of all slots of a row, int64 [rows, tiles, TILE]; 0 where there is no key.

    UNPACKED: of lines of `keys` (see `unpack_window`, `unpack_pages`), else of records.
    """
    row = tl.program_id(0)
    t = tl.program_id(1)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    seq = tl.load(seq_ptr + row)
    slot = t * TILE + tl.arange(0, TILE)
    line_bytes: tl.constexpr = 2 * WIDTH
    at = places_ptr + (row.to(tl.int64) * tl.num_programs(1) + t) * TILE + tl.arange(0, TILE)
    if seq < 0:
        tl.store(at, tl.zeros((TILE,), tl.int64))
    else:
        if t < WINDOW_TILES:
            start = tl.load(start_ptr + seq)
            begin = tl.load(begin_ptr + seq)
            last = tl.load(last_ptr + row)
            position = last - WINDOW + 1 + slot
            low = tl.maximum(tl.load(first_ptr + row), 0)
            since = position - start
            if UNPACKED:
                line = tl.where(since >= 0, begin + since, rows + seq * ring_size + position % ring_size)
                place = keys_ptr.to(tl.int64) + line.to(tl.int64) * line_bytes
            else:
                state = tl.load(state_ptr + seq)
                inside = fresh_ptr.to(tl.int64) + (begin + since).to(tl.int64) * fresh_row
                ring = ring_ptr.to(tl.int64) + state.to(tl.int64) * ring_state
                place = tl.where(since >= 0, inside, ring + (position % ring_size).to(tl.int64) * ring_row)
            tl.store(at, tl.where((position >= low) & (slot < WINDOW), place, 0))
        elif SELECTED > 0:
            column = slot - WINDOW_TILES * TILE
            index = tl.load(indices_ptr + row.to(tl.int64) * SELECTED + column, mask=column < SELECTED, other=-1)
            present = index >= 0
            index = tl.where(present, index, 0)
            if UNPACKED:
                line = entries_at + seq * (columns * ENTRIES) + index
                place = keys_ptr.to(tl.int64) + line.to(tl.int64) * line_bytes
            else:
                page = tl.load(table_ptr + seq.to(tl.int64) * columns + index // ENTRIES, mask=present, other=0)
                place = pages_ptr.to(tl.int64) + page.to(tl.int64) * page_row
                place += (index % ENTRIES).to(tl.int64) * RECORD
            tl.store(at, tl.where(present, place, 0))


@jit
def tile_places(places_ptr, row, t, TILES: tl.constexpr, ALIGN: tl.constexpr):
    """Pointers to the keys of a tile's slots, and which exist."""
    place = tl.load(places_ptr + (row.to(tl.int64) * TILES + t) * TILE + tl.arange(0, TILE))
    return tl.multiple_of(place, ALIGN).to(tl.pointer_type(tl.uint8)), place != 0


# ---- one program per row --------------------------------------------------------------------------------------------


@jit
def sparse_attention_rows(
    q_ptr, sink_ptr, first_ptr, last_ptr, seq_ptr, indices_ptr, places_ptr, out_ptr, heads, scale,
    D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, WINDOW: tl.constexpr, SELECTED: tl.constexpr,
    SPAN: tl.constexpr, FP4: tl.constexpr, UNPACKED: tl.constexpr, ALIGN: tl.constexpr, PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """A row and a block of its heads from the first tile to the last. `scale` has log2(e) in it."""
    row = tl.program_id(0)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    TILES: tl.constexpr = WINDOW_TILES + (SELECTED + TILE - 1) // TILE
    seq, base, low, tile, end, chosen = row_keys(row, first_ptr, last_ptr, seq_ptr, indices_ptr, WINDOW, SELECTED, SPAN)
    q = load_query(q_ptr, row, head, heads, D, WIDTH)
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    value = tl.zeros((HEADS, WIDTH), tl.float32)
    any_key = (tile < end) | (chosen > 0)
    if UNPACKED:
        channel = tl.arange(0, WIDTH)[None, :]
        start = tl.where(tile < end, tile, WINDOW_TILES)
        place, present = tile_places(places_ptr, row, start, TILES, 16)
        for t in range(start, chosen + WINDOW_TILES):
            k = tl.load(place.to(tl.pointer_type(tl.bfloat16))[:, None] + channel, mask=present[:, None], other=0.0)
            here = present
            place, present = tile_places(places_ptr, row, tl.minimum(t + 1, TILES - 1), TILES, 16)
            top, total, value = attend(q, k, heads > 0, here, top, total, value, scale, 1.0)
    else:
        for t in range(tile, end):
            place, present = tile_places(places_ptr, row, t, TILES, ALIGN)
            words, factor = load_words(place, present, D, WIDTH, False, ALIGN)
            k = keys_of(words, factor, False)
            top, total, value = attend(q, k, heads > 0, present, top, total, value, scale, 1.0)
        for t in range(chosen):
            place, present = tile_places(places_ptr, row, t + WINDOW_TILES, TILES, PAGE_ALIGN)
            words, factor = load_words(place, present, D, WIDTH, FP4, PAGE_ALIGN)
            k = keys_of(words, factor, FP4)
            top, total, value = attend(q, k, heads > 0, present, top, total, value, scale, FP4_UP if FP4 else 1.0)
    whole = divisor(sink_ptr, head, heads, top, total)
    store_output(out_ptr, row, head, heads, any_key, whole, value, D, WIDTH)


# ---- few rows: tiles side by side, then channels side by side -------------------------------------------------------


@jit
def score_tiles(
    q_ptr, fresh_ptr, ring_ptr, first_ptr, last_ptr, seq_ptr, start_ptr, begin_ptr, state_ptr,
    pages_ptr, table_ptr, indices_ptr, keys_ptr, scores_ptr,
    heads, ring_size, columns, scale,
    fresh_row: tl.int64, ring_state: tl.int64, ring_row: tl.int64, page_row: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, WINDOW: tl.constexpr, SELECTED: tl.constexpr,
    SPAN: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr, FP4: tl.constexpr,
    ALIGN: tl.constexpr, PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """A tile of a row: its keys in bf16 (of FP4 records FP4_DOWN times them) and its scores, as scratch.

    keys: bf16 [rows, tiles, TILE, WIDTH]. scores: fp32 [rows, tiles, head blocks * HEADS,
    TILE], in base 2, minus infinity where there is no key. Tiles without a key are left as they are.
    """
    row = tl.program_id(0)
    t = tl.program_id(1)
    block = tl.program_id(2)
    head = tl.program_id(2) * HEADS + tl.arange(0, HEADS)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    tiles = tl.num_programs(1)
    seq, base, low, tile, end, chosen = row_keys(row, first_ptr, last_ptr, seq_ptr, indices_ptr, WINDOW, SELECTED, SPAN)
    start, begin, state = sequence_of(row, seq_ptr, start_ptr, begin_ptr, state_ptr)
    slot = tl.arange(0, TILE)
    channel = tl.arange(0, WIDTH)
    here = row.to(tl.int64) * tiles + t
    key_at = keys_ptr + (here * TILE + slot[:, None]) * WIDTH + channel[None, :]
    line = (here * tl.num_programs(2) + block) * HEADS + tl.arange(0, HEADS)[:, None]
    score_at = scores_ptr + line * TILE + slot
    if (t >= tile) & (t < end):
        place, present = window_places(
            t, WINDOW, base, low, begin, start, state, ring_size, fresh_ptr, ring_ptr, fresh_row, ring_state, ring_row,
            ALIGN,
        )  # fmt: skip
        words, factor = load_words(place, present, D, WIDTH, False, ALIGN)
        q = load_query(q_ptr, row, head, heads, D, WIDTH)
        k = keys_of(words, factor, False)
        tl.store(key_at, k)
        s = dot(q, tl.trans(k), tl.zeros((HEADS, TILE), tl.float32))
        tl.store(score_at, masked(s, present, scale))
    if SELECTED > 0:
        if (t >= WINDOW_TILES) & (t < chosen + WINDOW_TILES):
            place, present = entry_places(
                t - WINDOW_TILES, tl.minimum(chosen * TILE, SELECTED), row, seq, indices_ptr, table_ptr, pages_ptr,
                columns, page_row, SELECTED, ENTRIES, RECORD, PAGE_ALIGN,
            )  # fmt: skip
            words, factor = load_words(place, present, D, WIDTH, FP4, PAGE_ALIGN)
            q = load_query(q_ptr, row, head, heads, D, WIDTH)
            k = keys_of(words, factor, FP4)
            tl.store(key_at, k)
            s = dot(q, tl.trans(k), tl.zeros((HEADS, TILE), tl.float32))
            tl.store(score_at, masked(s, present, scale * (FP4_UP if FP4 else 1.0)))


@jit
def load_tile(t, row, block, blocks, tiles, keys_ptr, scores_ptr, channel, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """A tile's scores, and its keys at some channels, from scratch."""
    slot = tl.arange(0, TILE)
    here = row.to(tl.int64) * tiles + t
    s = tl.load(scores_ptr + ((here * blocks + block) * HEADS + tl.arange(0, HEADS)[:, None]) * TILE + slot)
    return s, tl.load(keys_ptr + (here * TILE + slot[:, None]) * WIDTH + channel[None, :])


@jit
def sum_tiles(
    sink_ptr, first_ptr, last_ptr, seq_ptr, indices_ptr, keys_ptr, scores_ptr, out_ptr, heads,
    D: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, CHUNK: tl.constexpr, WINDOW: tl.constexpr,
    SELECTED: tl.constexpr, SPAN: tl.constexpr, FP4: tl.constexpr,
):  # fmt: skip
    """Softmax and values over all tiles of a row, for CHUNK of its channels: what `attend` does, in its order."""
    row = tl.program_id(0)
    block = tl.program_id(2)
    blocks = tl.num_programs(2)
    head = tl.program_id(2).to(tl.int64) * HEADS + tl.arange(0, HEADS)
    WINDOW_TILES: tl.constexpr = (WINDOW + TILE - 1) // TILE
    TILES: tl.constexpr = WINDOW_TILES + (SELECTED + TILE - 1) // TILE
    channel = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    seq, base, low, tile, end, chosen = row_keys(row, first_ptr, last_ptr, seq_ptr, indices_ptr, WINDOW, SELECTED, SPAN)
    top = tl.full((HEADS,), float("-inf"), tl.float32)
    total = tl.zeros((HEADS,), tl.float32)
    value = tl.zeros((HEADS, CHUNK), tl.float32)
    for t in range(tile, end):
        s, k = load_tile(t, row, block, blocks, TILES, keys_ptr, scores_ptr, channel, HEADS, WIDTH)
        p, alpha, top, total = soften(s, top, total, 1.0)
        value = dot(p, k, value * alpha[:, None])
    for t in range(chosen):
        s, k = load_tile(t + WINDOW_TILES, row, block, blocks, TILES, keys_ptr, scores_ptr, channel, HEADS, WIDTH)
        p, alpha, top, total = soften(s, top, total, FP4_UP if FP4 else 1.0)
        value = dot(p, k, value * alpha[:, None])
    whole = divisor(sink_ptr, head, heads, top, total)
    result = to_bf16(tl.where((tile < end) | (chosen > 0), value / whole[:, None], 0.0))
    at = out_ptr + (row.to(tl.int64) * heads + head[:, None]) * D + channel[None, :]
    tl.store(at, result, mask=(head[:, None] < heads) & (channel[None, :] < D))


# ---- many rows of few sequences: keys unpacked once -----------------------------------------------------------------


@jit
def unpack_window(
    fresh_ptr, ring_ptr, state_ptr, keys_ptr, rows, ring_size, lines,
    fresh_row: tl.int64, ring_state: tl.int64, ring_row: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Fresh records, then the rings of the sequences, as bf16 [rows + sequences * ring_size, WIDTH]."""
    line = tl.program_id(0) * TILE + tl.arange(0, TILE)
    ours = line < lines
    fresh = line < rows
    slot = tl.maximum(line - rows, 0)
    state = tl.load(state_ptr + slot // ring_size, mask=ours & (line >= rows), other=0)
    behind = state.to(tl.int64) * (ring_state * ALIGN) + (slot % ring_size).to(tl.int64) * (ring_row * ALIGN)
    place = tl.where(fresh, fresh_ptr + line.to(tl.int64) * (fresh_row * ALIGN), ring_ptr + behind)
    words, factor = load_words(place, ours, D, WIDTH, False, ALIGN)
    at = keys_ptr + line.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(at, keys_of(words, factor, False), mask=ours[:, None])


@jit
def unpack_pages(
    pages_ptr, table_ptr, keys_ptr, pool, lines, page_row: tl.int64,
    D: tl.constexpr, WIDTH: tl.constexpr, ENTRIES: tl.constexpr, RECORD: tl.constexpr, FP4: tl.constexpr,
    PAGE_ALIGN: tl.constexpr,
):  # fmt: skip
    """All entries that the block table names, as bf16 [sequences * columns * ENTRIES, WIDTH] by quarters.

    Columns that no row asks for may hold anything; a page id outside the pool is not followed.
    """
    line = tl.program_id(0) * TILE + tl.arange(0, TILE)
    page = tl.load(table_ptr + line // ENTRIES, mask=line < lines, other=-1)
    ours = (page >= 0) & (page < pool)
    page = tl.where(ours, page, 0)
    place = pages_ptr + page.to(tl.int64) * (page_row * PAGE_ALIGN) + (line % ENTRIES).to(tl.int64) * RECORD
    words, factor = load_words(place, ours, D, WIDTH, FP4, PAGE_ALIGN)
    k = keys_of(words, factor, FP4)
    if FP4:
        k = to_bf16(bf16_to_f32(k) * FP4_UP)
    at = keys_ptr + line.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(at, k, mask=ours[:, None])
