"""Index scores, and exact selection over them."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_32_INDEX, entries_per_page
from .program import Program, flat
from .register import kernel

MOST = 4096
TOPK_SELECT = {
    (dtype, blocks): Program("index_kernels.py", "topk_select", dtype=name, blocks=blocks, most=MOST)
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, "float32"))
    for blocks in (False, True)
}

QUERY_PACK = Program("index_query_pack.cpp", "index_query_pack")
MOST_CHANNELS, MOST_TURNED = 8192, 512
INDEX_SCORE = Program("index_score.cpp", "index_score")
MOST_HEADS, WIDTHS, CHUNK = 64, (32, 64, 128), 1024


def _queries(signature: Signature) -> str | None:
    heads, di, turned = signature.dims["H"], signature.dims["di"], 2 * signature.dims["F"]
    if di % 32 or turned % 16 or not 0 < turned <= min(di, MOST_TURNED):
        return f"di in multiples of 32 and 2F of 16, 2F from 16 to di and {MOST_TURNED}; got {di} and {turned}"
    return None if heads * di <= MOST_CHANNELS else f"H * di up to {MOST_CHANNELS}, got {heads * di}"


@kernel("index_query_pack", version=0, source="ascendc", supports=_queries)
def index_query_pack(q: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    rows, heads, di = q.shape
    shape = (rows, heads, FP4_32_INDEX.record_bytes(di))
    packed = torch.empty(shape, dtype=torch.uint8, device=q.device) if out is None else out
    turned = 2 * table.shape[1]
    given = {"q": q, "positions": positions, "table": table, "packed": packed}
    QUERY_PACK(rows, **given, rows=rows, heads=heads, di=di, turned=turned)
    return packed


def _scores(signature: Signature) -> str | None:
    heads, record = signature.dims["H"], signature.dims["qb"]
    size = signature.scalars.get("block_size", 1)
    if heads > MOST_HEADS or record not in [FP4_32_INDEX.record_bytes(di) for di in WIDTHS]:
        return f"up to {MOST_HEADS} heads of {WIDTHS} channels, got {heads} of records of {record} bytes"
    return None if size & (size - 1) == 0 else f"blocks of a power of two of entries, got {size}"


def launch_scores(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    blocks: Tensor | None,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    block_size: int,
    scores: Tensor,
) -> None:
    """Scores [T, lanes] of both ops; lanes of the full scan where `blocks` is None."""
    (rows, heads, record), lanes = query.shape, scores.shape[1]
    absent = [torch.zeros((1, 1), dtype=torch.int32, device=query.device) for _ in range(2)]
    INDEX_SCORE(
        rows * -(-lanes // CHUNK),
        query=query,
        head_weight=head_weight,
        pages=flat(pages),
        blocks=blocks if blocks is not None and blocks.numel() else absent[0],
        visible=visible,
        row_seq=row_seq,
        block_table=block_table if block_table.numel() else absent[1],
        scores=scores,
        page_stride=pages.stride(0),
        rows=rows,
        heads=heads,
        di=FP4_32_INDEX.channels(record),
        table_width=block_table.shape[1],
        entries=entries_per_page(ratio),
        lanes=lanes,
        block_shift=block_size.bit_length() - 1,
        block_count=0 if blocks is None else blocks.shape[1],
    )


@kernel("index_score", version=0, source="ascendc", supports=_scores)
def index_score(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    entries: int,
    out: Tensor | None,
) -> Tensor:
    scores = torch.empty((query.shape[0], entries), dtype=torch.bfloat16, device=query.device) if out is None else out
    launch_scores(query, head_weight, pages, None, visible, row_seq, block_table, ratio, 1, scores)
    return scores


@kernel("index_score_blocks", version=0, source="ascendc", supports=_scores)
def index_score_blocks(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    blocks: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    block_size: int,
    out: Tensor | None,
) -> Tensor:
    shape = (query.shape[0], blocks.shape[1] * block_size)
    scores = torch.empty(shape, dtype=torch.bfloat16, device=query.device) if out is None else out
    launch_scores(query, head_weight, pages, blocks, visible, row_seq, block_table, ratio, block_size, scores)
    return scores


def _fits(signature: Signature) -> str | None:
    k, size = signature.scalars["k"], signature.scalars["block_size"]
    if "blocks" in signature.args and (size < 4 or size & (size - 1) or size > 8192):
        return f"blocks of a power of two of entries, 4 to 8192, got {size}"
    return None if k <= MOST else f"k up to {MOST}, got {k}"


@kernel("topk_select", version=0, supports=_fits)
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    rows, lanes = scores.shape
    chosen = torch.empty((rows, k), dtype=torch.int32, device=scores.device) if out is None else out
    given: dict[str, Tensor | int] = {"X": scores, "V": visible, "I": chosen, "m": rows, "N": lanes, "k": k}
    if blocks is not None:
        shift = block_size.bit_length() - 1
        given |= {"B": blocks, "KB": blocks.shape[1], "size": block_size, "shift": shift}
    TOPK_SELECT[scores.dtype, blocks is not None](rows, **given)
    return chosen
