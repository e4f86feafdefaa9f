"""Cache records: packing, storing in rings and pages, and pooling two tokens. The kernels are in `kv_kernels.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature, Supports
from ...ops.layouts import FP8_32, LAYOUTS, RecordLayout, entries_per_page
from . import kv_kernels as device
from . import tuning
from .register import kernel
from .strides import alignment, power_of_two

WIDEST = 4096
"""Channels of a row, and bytes of a record, that a program takes whole."""


def whole_rows(dim: str, group: int = 1, rotary: bool = False) -> Supports:
    """`supports` of kernels that take a row whole: its width in groups, and room for the rotated channels."""

    def supports(signature: Signature) -> str | None:
        width = signature.dims[dim]
        if width <= 0 or width % group or width > WIDEST:
            return f"{dim} must be a positive multiple of {group} up to {WIDEST}, got {width}"
        if rotary and 2 * signature.dims["F"] > width:
            return f"{dim} must hold 2F = {2 * signature.dims['F']} channels, got {width}"
        return None

    return supports


def paged_rows(signature: Signature) -> str | None:
    """As `whole_rows`, in the groups of the record."""
    return whole_rows("d", LAYOUTS[signature.scalars["record"]].group, rotary=True)(signature)


def rows_per_program(width: int) -> int:
    """Rows of a tile of some 2,048 channels."""
    return max(1, 2048 // power_of_two(width))


def by_rows(name: str, *dims: str) -> tuning.Tunable:
    """The choices of a kernel that takes BLOCK rows whole; their width is the first dim."""
    return tuning.Tunable(
        name,
        dims,
        default=lambda shape: {"BLOCK": rows_per_program(shape[0]), "num_warps": 4},
        candidates=lambda shape: tuning.blocks(power_of_two(shape[0])),
    )


PACK_ROWS = by_rows("pack_rows", "D", "BYTES")
STORE_ENTRIES = by_rows("store_entries", "D", "BYTES", "RATIO")
WINDOW_STORE = by_rows("window_store", "BYTES")
RING_STORE = by_rows("compressor_ring_store", "D")
COMPRESS_POOL = by_rows("compress_pool", "D")


@kernel("window_pack", version=0, supports=whole_rows("d", 32, rotary=True))
def window_pack(kv: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        out = torch.empty((kv.shape[0], FP8_32.record_bytes(kv.shape[1])), dtype=torch.uint8, device=kv.device)
    pack_rows(kv, positions, table, out, FP8_32)
    return out


def pack_rows(x: Tensor, positions: Tensor, table: Tensor, out: Tensor, layout: RecordLayout) -> None:
    """Records of rows bf16 [T, d] or [T, H, d], heads of a row at its position, one after another in `out`."""
    d = x.shape[-1]
    rows, size = x.numel() // d, layout.record_bytes(d)
    if not rows:
        return
    launch = PACK_ROWS.choose(x.device, d, size)
    device.pack_rows_kernel[(-(-rows // launch["BLOCK"]),)](
        x,
        positions,
        table,
        out,
        rows,
        HEADS=x.shape[1] if x.ndim == 3 else 1,
        D=d,
        D_PADDED=power_of_two(d),
        PAIRS=table.shape[1],
        RECORD=layout.name,
        CODES=layout.data_bytes(d),
        BYTES=size,
        **launch,
        enable_fp_fusion=False,
    )


@kernel("compressed_store", version=0, supports=paged_rows)
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
    store_entries(latent, pages, positions, row_seq, block_table, table, ratio, LAYOUTS[record])


@kernel("index_key_store", version=0, supports=whole_rows("di", 32, rotary=True))
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
    store_entries(key, pages, positions, row_seq, block_table, table, ratio, LAYOUTS["fp4_32_index"])


def store_entries(
    x: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    layout: RecordLayout,
) -> None:
    rows, d = x.shape
    if not rows or not block_table.numel():
        return
    align = alignment(pages)
    launch = STORE_ENTRIES.choose(x.device, d, layout.record_bytes(d), ratio)
    device.store_entries_kernel[(-(-rows // launch["BLOCK"]),)](
        x,
        pages,
        positions,
        row_seq,
        block_table,
        table,
        rows,
        pages.shape[0],
        block_table.shape[1],
        pages.stride(0) // align,
        RATIO=ratio,
        ENTRIES=entries_per_page(ratio),
        PLANAR=not layout.interleaved,
        D=d,
        D_PADDED=power_of_two(d),
        PAIRS=table.shape[1],
        RECORD=layout.name,
        CODES=layout.data_bytes(d),
        SCALES=layout.scale_bytes(d),
        ALIGN=align,
        **launch,
        enable_fp_fusion=False,
    )


@kernel("window_store", version=0, supports=whole_rows("rec"))
def window_store(
    records: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor, out: None
) -> None:
    rows, width = records.shape
    if not rows or not ring.numel():
        return
    align = alignment(ring, dims=2)
    launch = WINDOW_STORE.choose(records.device, width)
    device.store_ring_kernel[(-(-rows // launch["BLOCK"]),)](
        records,
        ring,
        positions,
        row_seq,
        seq_end,
        state_slot,
        rows,
        ring.shape[0],
        seq_end.shape[0],
        ring.stride(0) // align,
        ring.stride(1) // align,
        RING=ring.shape[1],
        WIDTH=width,
        WIDTH_PADDED=power_of_two(width),
        ALIGN=align,
        **launch,
    )


def _pair_strides(ring: Tensor) -> dict[str, int]:
    """Constants of a compressor ring fp32 [Z, L, 2, d]; strides count in ALIGN numbers."""
    d = ring.shape[3]
    align = max(1, alignment(ring, dims=3) // 4)
    return {"RING": ring.shape[1], "D": d, "D_PADDED": power_of_two(d), "ALIGN": align}


@kernel("compressor_ring_store", version=0, supports=whole_rows("d"))
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
    rows = value.shape[0]
    if not rows or not ring.numel():
        return
    sizes = _pair_strides(ring)
    launch = RING_STORE.choose(value.device, sizes["D"])
    device.store_pairs_kernel[(-(-rows // launch["BLOCK"]),)](
        value,
        gate,
        ring,
        positions,
        row_seq,
        seq_end,
        state_slot,
        rows,
        ring.shape[0],
        seq_end.shape[0],
        *(stride // sizes["ALIGN"] for stride in ring.stride()[:3]),
        **sizes,
        **launch,
    )


@kernel("compress_pool", version=0, supports=whole_rows("d"))
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
    rows = value.shape[0]
    if out is None:
        out = torch.empty(value.shape, dtype=torch.bfloat16, device=value.device)
    if not rows:
        return out
    sizes = _pair_strides(ring)
    launch = COMPRESS_POOL.choose(value.device, sizes["D"])
    device.pool_kernel[(-(-rows // launch["BLOCK"]),)](
        value,
        gate,
        ring,
        positions,
        row_seq,
        seq_start,
        state_slot,
        out,
        rows,
        ring.shape[0],
        seq_start.shape[0],
        *(stride // sizes["ALIGN"] for stride in ring.stride()[:3]),
        **sizes,
        **launch,
        enable_fp_fusion=False,
    )
    return out
