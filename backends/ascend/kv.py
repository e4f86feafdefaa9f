"""Cache records: packing, storing in rings and pages, and pooling two tokens into one compressed entry."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_32_INDEX, LAYOUTS, entries_per_page
from .program import Program, flat
from .register import kernel
from .row_bytes import as_bytes

CHUNK = 32768
POOLED, PACKED, STORED, PAIRS = 2048, 4096, 2048, 256
_PARTS = ("parts_records.py",)
STORE_LAST_ROWS = Program("kv_kernels.py", "store_last_rows", chunk=CHUNK)
COMPRESS_POOL = Program("kv_kernels.py", "compress_pool", most=POOLED)
WINDOW_PACK = Program("records_kernels.py", "window_pack", needs=_PARTS, most=PACKED, pairs=PAIRS)
STORE_ENTRIES = {
    layout: Program("records_kernels.py", "store_entries", needs=_PARTS, record=name, most=STORED, pairs=PAIRS)
    for layout, name in (("fp8_32", "fp8_32"), ("fp4_16", "fp4_16"), ("fp4_32_index", "fp4_32"))
}


def _store_last_rows(
    rows: Tensor, ring: Tensor, offset: int, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor
) -> None:
    """Rows to byte `offset` of slot `position % R` of their rings [Z, R, ...]."""
    size, memory = ring.element_size(), as_bytes(ring)
    STORE_LAST_ROWS(
        rows.shape[0],
        X=as_bytes(rows),
        RING=memory,
        AT=positions,
        OWNER=row_seq,
        END=seq_end,
        SLOT=state_slot,
        stride=ring.stride(0) * size,
        pitch=ring.stride(1) * size,
        offset=offset,
        R=ring.shape[1],
        m=rows.shape[0],
        W=rows.shape[1] * rows.element_size(),
        Q=seq_end.shape[0],
        span=memory.numel(),
    )


def _window_slots(signature: Signature) -> str | None:
    return _ring_fits(signature.dims["R"], signature.dims["rec"])


def _compressor_slots(signature: Signature) -> str | None:
    return _ring_fits(signature.dims["L"], 4 * signature.dims["d"])


def _ring_fits(slots: int, width: int) -> str | None:
    return None if 0 < width <= CHUNK and slots else f"rings of rows of 1 to {CHUNK} bytes, got {slots} of {width}"


@kernel("window_store", version=0, supports=_window_slots)
def window_store(
    records: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor, out: None
) -> None:
    _store_last_rows(records, ring, 0, positions, row_seq, seq_end, state_slot)


@kernel("compressor_ring_store", version=0, supports=_compressor_slots)
def compressor_ring_store(
    value: Tensor,
    gate: Tensor,
    ring: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    seq_end: Tensor,
    state_slot: Tensor,
    out: None,
) -> None:
    _store_last_rows(gate, ring, 0, positions, row_seq, seq_end, state_slot)
    _store_last_rows(value, ring, 4 * ring.stride(2), positions, row_seq, seq_end, state_slot)


def _turned(signature: Signature, width: str, group: int, most: int) -> str | None:
    """Rotated pairs begin on 32 bytes."""
    d, pairs = signature.dims[width], signature.dims["F"]
    if d % group or not 0 < d <= most or pairs % 8 or not 0 < 2 * pairs <= min(d, 2 * PAIRS):
        return (
            f"{width} in multiples of {group} up to {most}, F of 8 up to {PAIRS}, 0 < 2F <= {width}; "
            f"got {width} = {d}, F = {pairs}"
        )
    return None


def _window(signature: Signature) -> str | None:
    return _turned(signature, "d", 32, PACKED)


def _entry(signature: Signature) -> str | None:
    return _turned(signature, "d", LAYOUTS[signature.scalars["record"]].group, STORED)


def _index_key(signature: Signature) -> str | None:
    return _turned(signature, "di", 32, STORED)


def _pool(signature: Signature) -> str | None:
    d, slots = signature.dims["d"], signature.dims["L"]
    return None if 0 < d <= POOLED and slots else f"d from 1 to {POOLED} and a slot, got {d} and {slots}"


@kernel("window_pack", version=0, supports=_window)
def window_pack(kv: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    (rows, d), (size, pairs) = kv.shape, table.shape[:2]
    records = torch.empty((rows, d + d // 32), dtype=torch.uint8, device=kv.device) if out is None else out
    WINDOW_PACK(rows, X=kv, AT=positions, ANGLE=flat(table), Y=records, m=rows, K=d, M=size, turned=2 * pairs)
    return records


@kernel("compress_pool", version=0, supports=_pool)
def compress_pool(
    value: Tensor,
    gate: Tensor,
    ring: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    state_slot: Tensor,
    out: Tensor | None,
) -> Tensor:
    rows, d = value.shape
    pooled = torch.empty((rows, d), dtype=torch.bfloat16, device=value.device) if out is None else out
    memory = flat(ring)
    COMPRESS_POOL(
        rows,
        VALUE=value,
        GATE=gate,
        RING=memory,
        AT=positions,
        OWNER=row_seq,
        START=flat(seq_start),
        SLOT=flat(state_slot),
        Y=pooled,
        stride=ring.stride(0),
        pitch=ring.stride(1),
        plane=ring.stride(2),
        L=ring.shape[1],
        m=rows,
        d=d,
        Q=seq_start.shape[0],
        span=memory.numel(),
    )
    return pooled


@kernel("compressed_store", version=0, supports=_entry)
def compressed_store(
    latent: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    record: str,
    out: None,
) -> None:
    _store_entries(latent, pages, positions, row_seq, block_table, table, ratio, record)


@kernel("index_key_store", version=0, supports=_index_key)
def index_key_store(
    key: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    out: None,
) -> None:
    _store_entries(key, pages, positions, row_seq, block_table, table, ratio, FP4_32_INDEX.name)


def _store_entries(
    x: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    record: str,
) -> None:
    (rows, d), layout, (size, pairs) = x.shape, LAYOUTS[record], table.shape[:2]
    codes, scales, memory = layout.data_bytes(d), layout.scale_bytes(d), flat(pages)
    whole = layout.record_bytes(d)
    STORE_ENTRIES[record](
        rows,
        X=x,
        PAGES=memory,
        AT=positions,
        OWNER=row_seq,
        BLOCKS=flat(block_table),
        ANGLE=flat(table),
        stride=pages.stride(0),
        code_pitch=whole if layout.interleaved else codes,
        scale_offset=codes if layout.interleaved else entries_per_page(ratio) * codes,
        scale_pitch=whole if layout.interleaved else scales,
        ratio=ratio,
        m=rows,
        K=d,
        M=size,
        turned=2 * pairs,
        Q=block_table.shape[0],
        B=block_table.shape[1],
        span=memory.numel(),
    )
