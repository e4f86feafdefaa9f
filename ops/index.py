"""The indexer: scores of compressed entries, exact top-k and candidate blocks.

`visible` [T] i32 is the number of entries a row may see, `(position + 1) // ratio`, 0 for padding rows. Scores live in
lanes: lane j of a row is entry j, or, in the compact form with candidate blocks, lane c is entry
`blocks[c // block_size] * block_size + c % block_size`. Lanes of entries that are not visible hold anything and are
never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from . import cache_samples as samples
from .kv import BLOCK_TABLE, POSITIONS, ROPE_TABLE, ROW_SEQ
from .layouts import entries_per_page
from .numerics import Accumulated, Decided, Exact
from .spec import BF16, F32, I32, U8, Cost, define, result, scalar, tensor

VISIBLE = tensor("visible", "T", I32)


def _visible_lanes(given: Mapping[str, Any]) -> Tensor:
    """Lanes of entries that the row sees."""
    visible: Tensor = given["visible"]
    row_seq: Tensor = given["row_seq"]
    lane = torch.arange(given["entries"], device=visible.device)
    return (lane < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)


def _visible_block_lanes(given: Mapping[str, Any]) -> Tensor:
    """Compact lanes of entries that the row sees."""
    size: int = given["block_size"]
    blocks: Tensor = given["blocks"].long().unsqueeze(2)
    visible: Tensor = torch.where(given["row_seq"] >= 0, given["visible"], 0)
    entry = blocks * size + torch.arange(size, device=blocks.device)
    seen = (blocks >= 0) & (entry < visible.view(-1, 1, 1))
    return seen.flatten(1)


INDEX_QUERY_PACK = define(
    "index_query_pack",
    version=0,
    family="index",
    args=[tensor("q", "T H di", BF16), POSITIONS, ROPE_TABLE],
    outs=[result("query", "T H di//2+di//32", U8)],
    dynamic="T M",
    semantics="""Rotary embedding of the last 2F channels at the row's position, rounded to bf16, then Q4p in groups of
        32: di/2 bytes of codes (even channel in the low nibble), then di/32 scale bytes.""",
    numerics=Decided(1, "bf16", of="rotated channel; channels that are copied are exact"),
    cost=lambda d: Cost(
        flops=8 * d["T"] * d["H"] * d["di"],
        bytes=d["T"] * (d["H"] * (2 * d["di"] + d["di"] // 2 + d["di"] // 32) + 4) + 8 * min(d["T"], d["M"]) * d["F"],
    ),
    samples=samples.index_query_pack,
)

_SCORE = """score[t, j] = bf16(sum over heads of head_weight[t, h] * relu(query[t, h] . key[j])): dots and sum in fp32,
    one rounding; no factor of 1/64. The order of the sums is fixed by static shapes, so a lane's score depends on the
    row's query and that entry alone: not on the number of lanes or rows, nor on the op (full scan or candidate blocks).
    Key j of sequence s is in page block_table[s, j // E] at slot j % E, E = 128/ratio, in the planar layout."""


def _score_cost(d: Mapping[str, int], lanes: int, keys: int, indices: int) -> Cost:
    """Cost of `lanes` scores a row; `keys` are read, of those that the pages hold; `indices`: bytes that name them."""
    keys = min(keys, d["P"] * 128 // d["ratio"]) if d["T"] else 0
    row = d["H"] * (d["qb"] + 2) + 2 * lanes + 8
    return Cost(
        flops=2.0 * d["T"] * lanes * d["H"] * (d["qb"] * 32 // 17 + 1),
        bytes=d["T"] * row + keys * d["qb"] + (indices if keys else 0),
    )


INDEX_SCORE = define(
    "index_score",
    version=0,
    family="index",
    args=[
        tensor("query", "T H qb", U8),
        tensor("head_weight", "T H", BF16),
        tensor("pages", "P 128//ratio*qb", U8, layout="rows"),
        VISIBLE,
        ROW_SEQ,
        BLOCK_TABLE,
        scalar("ratio", int, choices=(1, 2)),
        scalar("entries", int, static=False),
    ],
    outs=[result("scores", "T entries", BF16, unspecified="lanes >= visible", defined=_visible_lanes)],
    dynamic="T S P B entries",
    semantics=_SCORE
    + """ Lanes >= visible are unspecified (the reference writes -infinity). Pages of entries that no
        row sees are not needed and may be -1 in the block table. entries may exceed every visible count, but not
        B * E.""",
    numerics=Accumulated("H*qb*32//17"),
    cost=lambda d: _score_cost(
        d, d["entries"], d["S"] * d["entries"], 4 * d["S"] * -(-d["entries"] * d["ratio"] // 128)
    ),
    samples=samples.index_score,
)

INDEX_SCORE_BLOCKS = define(
    "index_score_blocks",
    version=0,
    family="index",
    args=[
        tensor("query", "T H qb", U8),
        tensor("head_weight", "T H", BF16),
        tensor("pages", "P 128//ratio*qb", U8, layout="rows"),
        tensor("blocks", "T KB", I32),
        VISIBLE,
        ROW_SEQ,
        BLOCK_TABLE,
        scalar("ratio", int, choices=(1, 2)),
        scalar("block_size", int, low=1),
    ],
    outs=[
        result("scores", "T KB*block_size", BF16, unspecified="lanes of unseen entries", defined=_visible_block_lanes)
    ],
    dynamic="T S P B",
    semantics=_SCORE
    + """ Compact lanes: lane c is entry blocks[t, c // block_size] * block_size + c % block_size.
        Blocks are ascending and distinct, -1 after them. Lanes of a -1 block or of an entry >= visible are unspecified
        (the reference writes -infinity).""",
    numerics=Accumulated("H*qb*32//17"),
    cost=lambda d: _score_cost(d, d["KB"] * d["block_size"], d["T"] * d["KB"] * d["block_size"], 4 * d["T"] * d["KB"]),
    samples=samples.index_score_blocks,
)

_ORDER = """Order: largest value first; -0.0 and +0.0 are equal; +infinity and -infinity are values like any other; NaN
    (either sign) is below every number, so it is selected only where fewer than k numbers are visible; equal values,
    and NaNs among themselves, go to the lower id."""

TOPK_SELECT = define(
    "topk_select",
    version=0,
    family="index",
    args=[
        tensor("scores", "T N", BF16, F32),
        VISIBLE,
        scalar("k", int, low=1),
        tensor("blocks", "T KB", I32, optional=True),
        scalar("block_size", int),
    ],
    outs=[result("indices", "T k", I32)],
    dynamic="T N",
    semantics="""The k best visible entries of each row, exactly min(k, number of visible lanes) distinct ids in
        ascending order, then -1. Without blocks lane j is entry j and is visible if j < min(visible, N). With blocks
        N = KB * block_size, lanes are compact, and a lane is visible if its block id is not -1 and its entry is below
        visible. Other lanes never take part, whatever they hold. """
    + _ORDER,
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0, bytes=d["T"] * (d.get("scores.itemsize", 2) * d["N"] + 4 * (d["k"] + 1 + d.get("KB", 0)))
    ),
    samples=samples.topk_select,
)

BLOCK_SELECT = define(
    "block_select",
    version=0,
    family="index",
    args=[tensor("scores", "T N", BF16), VISIBLE, scalar("block_size", int, low=1), scalar("k", int, low=1)],
    outs=[result("blocks", "T k", I32)],
    dynamic="T N",
    semantics="""Block b covers entries b*block_size .. (b+1)*block_size - 1. Its score is the maximum over its visible
        entries (NaN only if all of them are), capped at the largest finite bf16, +infinity included; the last visible
        block, (min(visible, N) - 1) // block_size, counts as +infinity and so is always kept (k >= 1). The k best of
        the ceil(visible / block_size) visible blocks, ascending ids, then -1. """
    + _ORDER,
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=d["T"] * (2 * d["N"] + 4 * (d["k"] + 1))),
    samples=samples.block_select,
)


def index_query_pack(q: Tensor, positions: Tensor, table: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rotate and quantise index queries.

    Args:
        q: bf16 [T, H, di]. positions: i32 [T]. table: f32 [M, dr/2, 2].

    Returns:
        uint8 [T, H, di/2 + di/32]: codes, then scales.
    """
    return INDEX_QUERY_PACK.run(q, positions, table, out)  # type: ignore[no-any-return]


def index_score(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    entries: int,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Scores of entries 0 .. entries-1 for every row.

    Args:
        query: uint8 [T, H, di/2 + di/32]. head_weight: bf16 [T, H], may be negative.
        pages: uint8 [P, E * (di/2 + di/32)], rows strided, planar. visible, row_seq: i32 [T]. block_table: i32 [S, B].
        entries: lanes of the result, at least the largest `visible`.

    Returns:
        bf16 [T, entries]; lanes >= visible are unspecified.

    Raises:
        ContractError: among others, the block table is too narrow for `entries`.
    """
    if ratio in (1, 2) and block_table.ndim == 2 and not 0 <= entries <= block_table.shape[1] * entries_per_page(ratio):
        raise INDEX_SCORE.error(
            f"entries is {entries}; a block table of width {block_table.shape[1]} with {entries_per_page(ratio)} "
            f"entries per page holds 0 to {block_table.shape[1] * entries_per_page(ratio)}"
        )
    return INDEX_SCORE.run(query, head_weight, pages, visible, row_seq, block_table, ratio, entries, out)  # type: ignore[no-any-return]


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
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Scores of the entries of each row's candidate blocks, in compact lanes.

    Args:
        blocks: i32 [T, KB], ascending ids, -1 padded. The others as in `index_score`.

    Returns:
        bf16 [T, KB * block_size].
    """
    return INDEX_SCORE_BLOCKS.run(  # type: ignore[no-any-return]
        query, head_weight, pages, blocks, visible, row_seq, block_table, ratio, block_size, out
    )


def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, *, out: Tensor | None = None
) -> Tensor:
    """The k best visible entries of each row: true top-k by full value, ties to the lower id.

    Args:
        scores: bf16 or f32 [T, N]. visible: i32 [T]. k: at least 1; may exceed N.
        blocks: i32 [T, KB] for compact scores of `index_score_blocks`, else None. block_size: N / KB (ignored without
            blocks).

    Returns:
        i32 [T, k]: entry ids ascending, -1 after them.

    Raises:
        ContractError: among others, the scores are not as wide as the blocks say.
    """
    if k < 1:
        raise TOPK_SELECT.error(f"k must be at least 1, got {k}")
    if blocks is not None and blocks.ndim == 2 and scores.shape[-1] != blocks.shape[1] * block_size:
        raise TOPK_SELECT.error(
            f"scores are {scores.shape[-1]} wide; {blocks.shape[1]} blocks of {block_size} entries need "
            f"{blocks.shape[1] * block_size}"
        )
    return TOPK_SELECT.run(scores, visible, k, blocks, block_size, out)  # type: ignore[no-any-return]


def block_select(scores: Tensor, visible: Tensor, block_size: int, k: int, *, out: Tensor | None = None) -> Tensor:
    """The k best candidate blocks of each row; the newest visible block is always among them.

    Args:
        scores: bf16 [T, N] of `index_score`. visible: i32 [T]. block_size: entries per block. k: blocks to keep.

    Returns:
        i32 [T, k]: block ids ascending, -1 after them.
    """
    if k < 1 or block_size < 1:
        raise BLOCK_SELECT.error(f"k and block_size must be at least 1, got {k} and {block_size}")
    return BLOCK_SELECT.run(scores, visible, block_size, k, out)  # type: ignore[no-any-return]
