"""Sparse attention for SM90 in CUDA C++ (`source/attention_sm90.cu`), above the Triton kernel in priority.

One block per row and 64 heads; see the source for how it is cut. A row's arithmetic is that of its own tiles alone: key
tiles in order, whatever else is in the batch.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.attention import KEY_TILE
from ...ops.layouts import FP8_32, compressed_record, entries_per_page
from .register import kernel
from .source import SourceKernel

CHANNELS = 512
HEADS = 64
"""Heads of a block."""
MOST_TILES = 32
"""Tiles of a row that the block's list of slots holds."""
SHARED_BYTES = 230976
THREADS = 512

KERNELS = {
    record: SourceKernel(
        "attention_sm90.cu",
        "attention",
        "PPPPPPPPPPPPPPQQQQiiiiiiiif",
        threads=THREADS,
        shared=SHARED_BYTES,
        defines={"FP8_PAGES": int(record == FP8_32.name)},
        archs=("sm_90",),
    )
    for record in ("fp4_16", "fp8_32")
}


def _tiles(slots: int) -> int:
    return -(-slots // KEY_TILE)


@functools.cache
def _processors(device: int) -> int:
    """Multiprocessors of a GPU: one block each, which takes one row after another."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def supports(signature: Signature) -> str | None:
    """512 channels, heads in sixteens, 16-byte records and pages, as many slots as shared memory lists."""
    dims, scalars = signature.dims, signature.scalars
    if dims["d"] != CHANNELS or dims["h"] % 16:
        return f"d must be {CHANNELS} and heads a multiple of 16, got {dims['d']} and {dims['h']}"
    tiles = _tiles(scalars["window"]) + _tiles(dims.get("K", 0))
    if tiles > MOST_TILES:
        return f"window and selected slots must fit {MOST_TILES} tiles of {KEY_TILE}, got {tiles}"
    for name in ("q", "fresh", "ring", "pages"):
        info = signature.args.get(name)
        if info is not None and (not info.aligned or any(stride % 16 for stride in (info.strides or (16,))[:-1])):
            return f"{name} must begin on a 16-byte boundary and have strides of 16 bytes, got strides {info.strides}"
    return None


@kernel("sparse_attention", version=1, name="sm90", priority=10, source="cuda", archs=("sm_90",), supports=supports)
def sparse_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
) -> Tensor:
    if out is None:
        out = torch.empty_like(q)
    rows, heads, _ = q.shape
    if not rows:
        return out
    kernel_of = KERNELS[compressed_record(record).name]
    selected = 0
    table = place = page = page_stride = width = entries_log2 = 0
    if pages is not None and block_table is not None and indices is not None:
        page, page_stride = pages.data_ptr(), pages.stride(0)
        table, width = block_table.data_ptr(), block_table.shape[1]
        place, selected = indices.data_ptr(), indices.shape[1]
        entries_log2 = entries_per_page(ratio).bit_length() - 1
    groups = -(-heads // HEADS)
    kernel_of.launch(
        (min(rows * groups, _processors(q.device.index)), 1, 1),
        q.device.index,
        q.data_ptr(),
        fresh.data_ptr(),
        ring.data_ptr(),
        sink.data_ptr(),
        first_key.data_ptr(),
        last_key.data_ptr(),
        row_seq.data_ptr(),
        seq_start.data_ptr(),
        row_begin.data_ptr(),
        state_slot.data_ptr(),
        page,
        table,
        place,
        out.data_ptr(),
        fresh.stride(0),
        ring.stride(0),
        ring.stride(1),
        page_stride,
        rows * groups,
        groups,
        heads,
        window,
        selected,
        ring.shape[1],
        width,
        entries_log2,
        scale,
    )
    return out
