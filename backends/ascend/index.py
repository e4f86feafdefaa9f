"""Index scores, and exact selection over them."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.layouts import FP4_32_INDEX, entries_per_page
from .program import Program, flat
from .register import kernel
from .scratch import nothing

MOST = 4096
TOPK_SELECT = {
    (dtype, blocks): Program("index_kernels.py", "topk_select", dtype=name, blocks=blocks, most=MOST)
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, "float32"))
    for blocks in (False, True)
}

QUERY_PACK = Program("index_query_pack.cpp", "index_query_pack")
MOST_CHANNELS, MOST_TURNED = 8192, 512
BLOCK_TOPS = Program("index_kernels.py", "block_tops")
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


def takes_scores(signature: Signature) -> str | None:
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
    seen: Tensor | None = None,
) -> None:
    """Scores [T, lanes] of both ops; lanes of the full scan where `blocks` is None.

    `seen` [T] gets what each row sees, nothing where row_seq is -1, if there are lanes.
    """
    (rows, heads, record), lanes = query.shape, scores.shape[1]
    absent = nothing(query.device, torch.int32, (1, 1))
    INDEX_SCORE(
        rows * -(-lanes // CHUNK),
        query=query,
        head_weight=head_weight,
        pages=flat(pages),
        blocks=blocks if blocks is not None and blocks.numel() else absent,
        visible=visible,
        row_seq=row_seq,
        block_table=block_table if block_table.numel() else absent,
        scores=scores,
        seen=absent if seen is None else seen,
        page_stride=pages.stride(0),
        rows=rows,
        heads=heads,
        di=FP4_32_INDEX.channels(record),
        table_width=block_table.shape[1],
        entries=entries_per_page(ratio),
        lanes=lanes,
        block_shift=block_size.bit_length() - 1,
        block_count=0 if blocks is None else blocks.shape[1],
        note=int(seen is not None),
    )


@kernel("index_score", version=0, source="ascendc", supports=takes_scores)
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


@kernel("index_score_blocks", version=0, source="ascendc", supports=takes_scores)
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


def takes_selection(signature: Signature) -> str | None:
    k, size = signature.scalars["k"], signature.scalars["block_size"]
    if "blocks" in signature.args and (size < 4 or size & (size - 1) or size > 8192):
        return f"blocks of a power of two of entries, 4 to 8192, got {size}"
    return None if k <= MOST else f"k up to {MOST}, got {k}"


@kernel("topk_select", version=0, supports=takes_selection)
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    chosen = torch.empty((scores.shape[0], k), dtype=torch.int32, device=scores.device) if out is None else out
    select(scores, visible, k, blocks, block_size, chosen)
    return chosen


def select(scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, chosen: Tensor) -> None:
    """`topk_select` into `chosen` [T, k]."""
    rows, lanes = scores.shape
    given: dict[str, Tensor | int] = {"X": scores, "V": visible, "I": chosen, "m": rows, "N": lanes, "k": k}
    if blocks is not None:
        shift = block_size.bit_length() - 1
        given |= {"B": blocks, "KB": blocks.shape[1], "size": block_size, "shift": shift}
    TOPK_SELECT[scores.dtype, blocks is not None](rows, **given)


def _blocks(signature: Signature) -> str | None:
    k, size = signature.scalars["k"], signature.scalars["block_size"]
    if size & (size - 1) or size > 8192:
        return f"blocks of a power of two of entries up to 8192, got {size}"
    return None if k <= MOST else f"k up to {MOST}, got {k}"


def _best_bytes(scores: Tensor, visible: Tensor, block_size: int, k: int) -> int:
    """Scratch: how many blocks a row sees, and their scores."""
    rows, lanes = scores.shape
    return rows * (4 + 2 * -(-lanes // block_size))


@kernel("block_select", version=0, supports=_blocks, workspace=_best_bytes)
def block_select(
    scores: Tensor, visible: Tensor, block_size: int, k: int, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    rows, lanes = scores.shape
    chosen = torch.empty((rows, k), dtype=torch.int32, device=scores.device) if out is None else out
    if not rows:
        return chosen
    size, count = _best_bytes(scores, visible, block_size, k), -(-lanes // block_size)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=scores.device)
    seen, best = workspace[: 4 * rows].view(torch.int32), workspace[4 * rows : size].view(torch.bfloat16)
    best = best.view(rows, count)
    given: dict[str, Tensor | int] = {
        "X": scores,
        "V": visible,
        "Y": best,
        "SEEN": seen,
        "m": rows,
        "N": lanes,
        "count": count,
    }
    BLOCK_TOPS(rows, **given, size=block_size, shift=block_size.bit_length() - 1)
    select(best, seen, k, None, 1, chosen)
    return chosen
