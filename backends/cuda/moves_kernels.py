"""Device code of the moves: whole slots, windows between rings, records as plain keys."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import e2m1_to_f32, e4m3_to_f32, e8m0_to_f32, to_bf16


@jit
def copy_slots_kernel(
    pool_ptr, pairs_ptr, slots, stride: tl.int64, WIDTH: tl.constexpr, ALIGN: tl.constexpr, CHUNK: tl.constexpr
):
    """CHUNK bytes of one pair's row. stride: of rows, in units of ALIGN bytes."""
    PARTS: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    pair = pairs_ptr + (tl.program_id(0) // PARTS).to(tl.int64) * 2
    source, target = tl.load(pair).to(tl.int64), tl.load(pair + 1).to(tl.int64)
    byte = (tl.program_id(0) % PARTS) * CHUNK + tl.arange(0, CHUNK)
    if (target >= 0) & (target < slots) & (source < slots):
        mask = byte < WIDTH
        given = pool_ptr + target * stride * ALIGN + byte
        if source >= 0:
            tl.store(given, tl.load(pool_ptr + source * stride * ALIGN + byte, mask=mask, other=0), mask=mask)
        else:
            tl.store(given, tl.zeros((CHUNK,), tl.uint8), mask=mask)


@jit
def ring_move_kernel(
    source_ptr,
    target_ptr,
    source_slot_ptr,
    target_slot_ptr,
    begin_ptr,
    end_ptr,
    sources,
    targets,
    source_stride: tl.int64,
    source_step: tl.int64,
    target_stride: tl.int64,
    target_step: tl.int64,
    SOURCE_RING: tl.constexpr,
    TARGET_RING: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_PADDED: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK positions of one item. Strides of slots and steps of records are in units of ALIGN bytes."""
    MOST: tl.constexpr = SOURCE_RING if SOURCE_RING < TARGET_RING else TARGET_RING
    PARTS: tl.constexpr = (MOST + BLOCK - 1) // BLOCK
    item = tl.program_id(0) // PARTS
    place = (tl.program_id(0) % PARTS) * BLOCK + tl.arange(0, BLOCK)
    into = tl.load(target_slot_ptr + item).to(tl.int64)
    origin = tl.load(source_slot_ptr + item).to(tl.int64)
    begin = tl.load(begin_ptr + item).to(tl.int64)
    end = tl.load(end_ptr + item).to(tl.int64)
    if (into >= 0) & (into < targets) & (origin >= 0) & (origin < sources) & (begin >= 0):
        position = begin + place
        byte = tl.arange(0, WIDTH_PADDED)
        mask = ((position < end) & (place < MOST))[:, None] & (byte < WIDTH)[None, :]
        taken = source_ptr + (origin * source_stride + position % SOURCE_RING * source_step) * ALIGN
        given = target_ptr + (into * target_stride + position % TARGET_RING * target_step) * ALIGN
        tl.store(given[:, None] + byte[None, :], tl.load(taken[:, None] + byte[None, :], mask=mask, other=0), mask=mask)


@jit
def find_records(plan_ptr, row, pieces, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Page (-1 where there is none) and slot of the entry that goes to each row [BLOCK]; at most one piece names it."""
    page = tl.full((BLOCK,), -1, tl.int32)
    slot = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, pieces, STEP):
        piece = start + tl.arange(0, STEP)
        live = piece < pieces
        line = plan_ptr + piece.to(tl.int64) * 4
        begin = tl.load(line + 1, mask=live, other=0)
        count = tl.load(line + 2, mask=live, other=0) - begin
        first = tl.load(line + 3, mask=live, other=0)
        ahead = row[:, None] - first[None, :]
        named = (ahead >= 0) & (ahead < count[None, :])
        origin = tl.load(line, mask=live, other=-1)
        page = tl.maximum(page, tl.max(tl.where(named, origin[None, :], -1), 1))
        slot = tl.maximum(slot, tl.max(tl.where(named, begin[None, :] + ahead, 0), 1))
    return page, slot


@jit
def load_records_kernel(
    pages_ptr,
    plan_ptr,
    out_ptr,
    rows,
    pages,
    pieces,
    page_stride: tl.int64,
    ENTRIES: tl.constexpr,
    PLANAR: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    RECORD: tl.constexpr,
    CODES: tl.constexpr,
    SCALES: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK rows of keys bf16 [rows, D], each found in the plan; zeros where none names it.

    Args:
        page_stride: in units of ALIGN bytes. CODES, SCALES: bytes of an entry.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page, slot = find_records(plan_ptr, row, pieces, BLOCK, 64)
    keep = (row < rows) & (page >= 0) & (page < pages) & (slot < ENTRIES)
    slot = slot.to(tl.int64)
    section = pages_ptr + page.to(tl.int64) * page_stride * ALIGN
    if PLANAR:
        code_ptr = section + slot * CODES
        scale_ptr = section + ENTRIES * CODES + slot * SCALES
    else:
        code_ptr = section + slot * (CODES + SCALES)
        scale_ptr = code_ptr + CODES
    SPREAD: tl.constexpr = CODES // SCALES
    COUNT: tl.constexpr = D_PADDED * CODES // D
    byte = tl.arange(0, COUNT)
    group = tl.arange(0, COUNT // SPREAD)
    code = tl.load(code_ptr[:, None] + byte[None, :], mask=keep[:, None] & (byte < CODES)[None, :], other=0)
    scale = tl.load(scale_ptr[:, None] + group[None, :], mask=keep[:, None] & (group < SCALES)[None, :], other=0)
    factor = e4m3_to_f32(scale) if RECORD == "fp4_16" else e8m0_to_f32(scale)
    wide = tl.broadcast_to(factor[:, :, None], (BLOCK, COUNT // SPREAD, SPREAD))
    factor = tl.reshape(wide, (BLOCK, COUNT))
    if RECORD == "fp8_32":
        key = e4m3_to_f32(code) * factor
    else:
        key = tl.join(e2m1_to_f32(code & 15) * factor, e2m1_to_f32(code >> 4) * factor)
        key = tl.reshape(key, (BLOCK, D_PADDED))
    channel = tl.arange(0, D_PADDED)
    target = out_ptr + (row.to(tl.int64) * D)[:, None] + channel[None, :]
    tl.store(target, to_bf16(key), mask=(row < rows)[:, None] & (channel < D)[None, :])
