"""Sparse attention: a mixed kernel, both products on the matrix unit, softmax on the vector cores."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_16, entries_per_page
from .program import Program, flat
from .register import kernel
from .scratch import nothing

HEADS = 64
"""Heads that a block takes at once."""
SPARSE_ATTENTION = Program("sparse_attention.cpp", "sparse_attention")


def _widths(signature: Signature) -> str | None:
    d = signature.dims["d"]
    return None if d % 32 == 0 and 0 < d <= 512 else f"d a multiple of 32 up to 512, got {d}"


@kernel("sparse_attention", version=1, source="ascendc", supports=_widths)
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
    rows, heads, d = q.shape
    o = torch.empty_like(q) if out is None else out
    selected = 0 if indices is None else indices.shape[1]
    if pages is None or block_table is None or indices is None:
        pages = nothing(q.device, torch.uint8, (1, 1))
        block_table = indices = nothing(q.device, torch.int32, (1, 1))
    SPARSE_ATTENTION(
        rows * -(-heads // HEADS),
        q=q,
        fresh=fresh,
        ring=flat(ring),
        sink=sink,
        first_key=first_key,
        last_key=last_key,
        row_seq=row_seq,
        seq_start=seq_start,
        row_begin=row_begin,
        state_slot=state_slot,
        pages=flat(pages),
        block_table=block_table,
        indices=indices,
        o=o,
        state_stride=ring.stride(0),
        slot_stride=ring.stride(1),
        page_stride=pages.stride(0),
        rows=rows,
        h=heads,
        d=d,
        slots=ring.shape[1],
        window=window,
        K=selected,
        table_width=block_table.shape[1],
        entries=entries_per_page(ratio) if selected else 1,
        fp4=int(record == FP4_16.name),
        scale=scale,
    )
    return o
