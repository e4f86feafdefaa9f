"""Fused ops: index scores and top-k in one, as the kernels of both, one after the other in a scratch that fits the L2.

The scores of a chunk of rows are written, selected from while they are still in the cache, and overwritten by those of
the next chunk. docs/performance.md says what one kernel for both could save.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...hal.registry import Signature
from . import index, topk_kernels
from .register import kernel

CHUNK = 32 << 20
"""Bytes of scores at a time: of 50 to 60 MB of L2 as much as queries and keys that pass by leave alone. No bit depends
on it."""
LEAST = 64
"""Rows of a chunk are a multiple of this: their tensors stay aligned, and scores have rows enough to share keys."""

Select = Callable[[Tensor, Tensor, int, Tensor | None, int, Tensor, Tensor, Tensor], object]


def _lanes(blocks: Tensor | None, entries: int, block_size: int) -> int:
    """Scores of a row in memory; rounded up, so that every row is aligned."""
    return -(-entries // 8) * 8 if blocks is None else blocks.shape[1] * block_size


def _chunk(rows: int, lanes: int) -> int:
    """Rows whose scores are held at once."""
    return min(rows, max(LEAST, CHUNK // max(1, 2 * lanes) // LEAST * LEAST))


def _query_bytes(query: Tensor, rows: int) -> int:
    """Scratch for the unpacked queries of some rows, in whole lines of 128 bytes."""
    return -(-index.query_bytes(query[:rows]) // 128) * 128


def topk_bytes(
    query: Tensor, head_weight: Tensor, pages: Tensor, visible: Tensor, row_seq: Tensor, block_table: Tensor,
    blocks: Tensor | None, ratio: int, entries: int, block_size: int, k: int,
) -> int:  # fmt: skip
    """Scratch: unpacked queries and scores of a chunk of rows."""
    lanes = _lanes(blocks, entries, block_size)
    rows = _chunk(query.shape[0], lanes)
    return _query_bytes(query, rows) + 2 * rows * lanes


def _index_topk(
    select: Select, query: Tensor, head_weight: Tensor, pages: Tensor, visible: Tensor, row_seq: Tensor,
    block_table: Tensor, blocks: Tensor | None, ratio: int, entries: int, block_size: int, k: int,
    out: tuple[Tensor, Tensor] | None, workspace: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, lanes = query.shape[0], _lanes(blocks, entries, block_size)
    if out is None:
        indices = torch.empty((rows, k), dtype=torch.int32, device=query.device)
        out = indices, torch.empty((rows, k), dtype=torch.bfloat16, device=query.device)
    if not rows:
        return out
    chunk = _chunk(rows, lanes)
    at = _query_bytes(query, chunk)
    size = at + 2 * chunk * lanes
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=query.device)
    held = workspace[at:size].view(torch.bfloat16).view(chunk, lanes)
    for first in range(0, rows, chunk):
        part = slice(first, min(first + chunk, rows))
        scores = held[: part.stop - first]
        given, seen, sequence = (query[part], head_weight[part], pages), visible[part], row_seq[part]
        some = None if blocks is None else blocks[part]
        if some is None:
            index.index_score(*given, seen, sequence, block_table, ratio, lanes, scores, workspace[:at])
        else:
            index.index_score_blocks(
                *given, some, seen, sequence, block_table, ratio, block_size, scores, workspace[:at]
            )
        select(scores, seen, k, some, block_size, out[0][part], sequence, out[1][part])
    return out


@kernel("index_topk", version=0, supports=index.packed_widths, workspace=topk_bytes)
def index_topk(
    query: Tensor, head_weight: Tensor, pages: Tensor, visible: Tensor, row_seq: Tensor, block_table: Tensor,
    blocks: Tensor | None, ratio: int, entries: int, block_size: int, k: int, out: tuple[Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return _index_topk(
        topk_kernels.select, query, head_weight, pages, visible, row_seq, block_table, blocks, ratio, entries,
        block_size, k, out, workspace,
    )  # fmt: skip


def widths_and_list(signature: Signature) -> str | None:
    """What the scores and the list of `source/topk.cu` need."""
    return index.packed_widths(signature) or topk_kernels.list_fits(signature)


def _select_source(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor, row_seq: Tensor,
    chosen: Tensor,
) -> None:  # fmt: skip
    topk_kernels.launch_source("bf16", scores, visible, k, blocks, block_size, out, row_seq, chosen)


@kernel(
    "index_topk", version=0, name="source", source="cuda", priority=10, supports=widths_and_list, workspace=topk_bytes
)
def index_topk_source(
    query: Tensor, head_weight: Tensor, pages: Tensor, visible: Tensor, row_seq: Tensor, block_table: Tensor,
    blocks: Tensor | None, ratio: int, entries: int, block_size: int, k: int, out: tuple[Tensor, Tensor] | None,
    workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return _index_topk(
        _select_source, query, head_weight, pages, visible, row_seq, block_table, blocks, ratio, entries, block_size,
        k, out, workspace,
    )  # fmt: skip
