"""Sparse attention. The kernels are in `attention_kernels.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_16, compressed_record, entries_per_page
from . import attention_kernels as device
from .register import kernel
from .strides import alignment, power_of_two

LOG2E = 1.4426950408889634
MOST_HEADS = 64
"""Heads of a program."""


def widths(signature: Signature) -> str | None:
    """Heads of up to 512 channels."""
    d = signature.dims["d"]
    if d % 32 or not 0 < d <= 512:
        return f"d must be a multiple of 32 up to 512, got {d}"
    return None


def _align(x: Tensor, dims: int) -> int:
    """Bytes that a tensor's beginning and the strides of its leading dims divide by."""
    return alignment(x, dims) if x.data_ptr() % 16 == 0 else 1


@kernel("sparse_attention", version=1, supports=widths)
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
    rows, heads, d = q.shape
    if not rows:
        return out
    quarter = max(16, power_of_two(d // 4))
    block = min(MOST_HEADS, power_of_two(heads, least=16))
    align = min(_align(fresh, 1), _align(ring, 2))
    selected = 0 if indices is None else indices.shape[1]
    page_align = 1 if pages is None else _align(pages, 1)
    page_row = 0 if pages is None else pages.stride(0) // page_align
    device.sparse_attention_rows[(rows, -(-heads // block))](
        q,
        fresh,
        ring,
        sink,
        first_key,
        last_key,
        row_seq,
        seq_start,
        row_begin,
        state_slot,
        fresh if pages is None else pages,
        state_slot if block_table is None else block_table,
        state_slot if indices is None else indices,
        out,
        heads,
        ring.shape[1],
        0 if block_table is None else block_table.shape[1],
        scale * LOG2E,
        fresh.stride(0) // align,
        ring.stride(0) // align,
        ring.stride(1) // align,
        page_row,
        D=d,
        QUARTER=quarter,
        HEADS=block,
        WINDOW=window,
        SELECTED=selected,
        SPAN=power_of_two(max(selected, 1)),
        ENTRIES=entries_per_page(ratio) if selected else 1,
        RECORD=compressed_record(record).record_bytes(d),
        FP4=record == FP4_16.name,
        ALIGN=align,
        PAGE_ALIGN=page_align,
        num_warps=8,
        num_stages=1,
    )
    return out
