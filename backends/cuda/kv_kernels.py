"""Device code of the cache stores: what is written where, rows of bytes into rings, pooling of two tokens."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import to_bf16
from .portable_records import load_rotated, store_record


@jit
def pack_rows_kernel(
    x_ptr,
    positions_ptr,
    table_ptr,
    out_ptr,
    rows,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    PAIRS: tl.constexpr,
    RECORD: tl.constexpr,
    CODES: tl.constexpr,
    BYTES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate and quantise rows [T * HEADS, D] into records one after another.

    Args:
        rows: T * HEADS. CODES, BYTES: bytes of codes of a record, and all of its bytes.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = row < rows
    position = tl.load(positions_ptr + row // HEADS, mask=keep, other=0)
    even, odd = load_rotated(x_ptr, row, keep, position, table_ptr, D, D_PADDED, PAIRS, BLOCK)
    target = out_ptr + row * BYTES
    store_record(target, target + CODES, keep, even, odd, RECORD, D, D_PADDED, BLOCK)


@jit
def store_entries_kernel(
    x_ptr,
    pages_ptr,
    positions_ptr,
    row_seq_ptr,
    block_table_ptr,
    table_ptr,
    rows,
    pages,
    table_width,
    page_stride: tl.int64,
    RATIO: tl.constexpr,
    ENTRIES: tl.constexpr,
    PLANAR: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    PAIRS: tl.constexpr,
    RECORD: tl.constexpr,
    CODES: tl.constexpr,
    SCALES: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate, quantise and write the rows that complete an entry into its page.

    Of other rows nothing is read but position and sequence.

    Args:
        page_stride: in units of ALIGN bytes. PLANAR: scales of a page stand behind the codes of all its entries.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = row < rows
    seq = tl.load(row_seq_ptr + row, mask=live, other=-1)
    position = tl.load(positions_ptr + row, mask=live, other=0)
    after = position.to(tl.int64) + 1
    keep = (seq >= 0) & (position >= 0) & (after % RATIO == 0)
    entry = after // RATIO - 1
    column = entry // ENTRIES
    keep = keep & (column < table_width)
    page = tl.load(block_table_ptr + seq.to(tl.int64) * table_width + column, mask=keep, other=-1).to(tl.int64)
    keep = keep & (page >= 0) & (page < pages)
    slot = entry % ENTRIES
    section = pages_ptr + page * page_stride * ALIGN
    if PLANAR:
        code_ptr = section + slot * CODES
        scale_ptr = section + ENTRIES * CODES + slot * SCALES
    else:
        code_ptr = section + slot * (CODES + SCALES)
        scale_ptr = code_ptr + CODES
    even, odd = load_rotated(x_ptr, row, keep, position + 1 - RATIO, table_ptr, D, D_PADDED, PAIRS, BLOCK)
    store_record(code_ptr, scale_ptr, keep, even, odd, RECORD, D, D_PADDED, BLOCK)


@jit
def ring_place(positions_ptr, row_seq_ptr, seq_end_ptr, state_slot_ptr, row, rows, slots, sequences, ring_slots):
    """Which rows [n] go to the ring of their sequence, its state slot and the slot in it; int64.

    The last `ring_slots` rows of a sequence do, at position % ring_slots. Padding rows, and rows of sequences or slots
    that there are none of, do not.
    """
    live = row < rows
    seq = tl.load(row_seq_ptr + row, mask=live, other=-1)
    keep = (seq >= 0) & (seq < sequences)
    position = tl.load(positions_ptr + row, mask=live, other=-1)
    end = tl.load(seq_end_ptr + seq, mask=keep, other=0)
    state = tl.load(state_slot_ptr + seq, mask=keep, other=-1).to(tl.int64)
    keep = keep & (position >= 0) & (position >= end - ring_slots) & (state >= 0) & (state < slots)
    return keep, state, (position % ring_slots).to(tl.int64)


@jit
def store_ring_kernel(
    records_ptr,
    ring_ptr,
    positions_ptr,
    row_seq_ptr,
    seq_end_ptr,
    state_slot_ptr,
    rows,
    slots,
    sequences,
    slot_stride: tl.int64,
    record_stride: tl.int64,
    RING: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_PADDED: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Records [T, WIDTH], byte for byte, into rings of RING slots. Strides in units of ALIGN bytes."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep, state, place = ring_place(
        positions_ptr, row_seq_ptr, seq_end_ptr, state_slot_ptr, row, rows, slots, sequences, RING
    )
    byte = tl.arange(0, WIDTH_PADDED)
    mask = keep[:, None] & (byte < WIDTH)[None, :]
    record = tl.load(records_ptr + (row.to(tl.int64) * WIDTH)[:, None] + byte[None, :], mask=mask, other=0)
    target = ring_ptr + (state * slot_stride + place * record_stride) * ALIGN
    tl.store(target[:, None] + byte[None, :], record, mask=mask)


@jit
def store_pairs_kernel(
    value_ptr,
    gate_ptr,
    ring_ptr,
    positions_ptr,
    row_seq_ptr,
    seq_end_ptr,
    state_slot_ptr,
    rows,
    slots,
    sequences,
    slot_stride: tl.int64,
    pair_stride: tl.int64,
    part_stride: tl.int64,
    RING: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gates and values fp32 [T, D] into compressor rings of RING slots. Strides in units of ALIGN numbers."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep, state, place = ring_place(
        positions_ptr, row_seq_ptr, seq_end_ptr, state_slot_ptr, row, rows, slots, sequences, RING
    )
    channel = tl.arange(0, D_PADDED)
    mask = keep[:, None] & (channel < D)[None, :]
    source = (row.to(tl.int64) * D)[:, None] + channel[None, :]
    target = ring_ptr + ((state * slot_stride + place * pair_stride) * ALIGN)[:, None] + channel[None, :]
    tl.store(target, tl.load(gate_ptr + source, mask=mask, other=0.0), mask=mask)
    tl.store(target + part_stride * ALIGN, tl.load(value_ptr + source, mask=mask, other=0.0), mask=mask)


@jit
def pool_kernel(
    value_ptr,
    gate_ptr,
    ring_ptr,
    positions_ptr,
    row_seq_ptr,
    seq_start_ptr,
    state_slot_ptr,
    out_ptr,
    rows,
    slots,
    sequences,
    slot_stride: tl.int64,
    pair_stride: tl.int64,
    part_stride: tl.int64,
    RING: tl.constexpr,
    D: tl.constexpr,
    D_PADDED: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows at odd positions pooled with the row before, of this step or from the ring; zeros elsewhere."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = row < rows
    seq = tl.load(row_seq_ptr + row, mask=live, other=-1)
    position = tl.load(positions_ptr + row, mask=live, other=0)
    keep = (seq >= 0) & (seq < sequences) & (position >= 0) & (position % 2 == 1)
    start = tl.load(seq_start_ptr + seq, mask=keep, other=0)
    state = tl.load(state_slot_ptr + seq, mask=keep, other=-1).to(tl.int64)
    in_step = keep & (position - 1 >= start) & (row > 0)
    stored = keep & (position - 1 < start) & (state >= 0) & (state < slots)
    channel = tl.arange(0, D_PADDED)
    used = (channel < D)[None, :]
    here = (row.to(tl.int64) * D)[:, None] + channel[None, :]
    place = state * slot_stride + ((position - 1) % RING).to(tl.int64) * pair_stride
    there = ring_ptr + (place * ALIGN)[:, None] + channel[None, :]
    gate1 = tl.load(gate_ptr + here, mask=keep[:, None] & used, other=0.0)
    value1 = tl.load(value_ptr + here, mask=keep[:, None] & used, other=0.0)
    gate0 = tl.load(gate_ptr + here - D, mask=in_step[:, None] & used, other=0.0)
    value0 = tl.load(value_ptr + here - D, mask=in_step[:, None] & used, other=0.0)
    old_gate = tl.load(there, mask=stored[:, None] & used, other=0.0)
    old_value = tl.load(there + part_stride * ALIGN, mask=stored[:, None] & used, other=0.0)
    gate0 = tl.where(in_step[:, None], gate0, old_gate)
    value0 = tl.where(in_step[:, None], value0, old_value)
    top = tl.maximum(gate0, gate1, propagate_nan=tl.PropagateNan.ALL)
    weight0, weight1 = tl.exp(gate0 - top), tl.exp(gate1 - top)
    total = weight0 + weight1
    pooled = tl.div_rn(weight0, total) * value0 + tl.div_rn(weight1, total) * value1
    pooled = to_bf16(tl.where(keep[:, None], pooled, 0.0))
    tl.store(out_ptr + here, pooled, mask=live[:, None] & used)
