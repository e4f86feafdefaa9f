"""Compositions that a backend may run as one kernel, where that saves reading or writing a whole intermediate.

Each stands for ops of other families, one after the other, and its reference is just that. A model may call either; a
fused op returns what it decided from (the rounded values, the logits, the scores of what it chose), so that the
decision can be judged on the op's own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from . import fused_samples as samples
from .index import VISIBLE
from .kv import BLOCK_TABLE, ROW_SEQ
from .layouts import entries_per_page
from .numerics import Decided
from .spec import BF16, BOOL, E4M3, F32, I32, U8, Cost, WeightHandle, define, handle, result, scalar, tensor


class NormQuant(NamedTuple):
    """Normed rows bf16 [T, D], their codes e4m3 [T, D] and scale bytes uint8 [T, D/32]."""

    y: Tensor
    q: Tensor
    scale: Tensor


_QUANTISED = """ q and scale are quant_fp8 of y, as it was rounded: given the op's own y they are exact."""
_NORM_QUANT_OUTS = (result("y", "T D", BF16), result("q", "T D", E4M3), result("scale", "T D//32", U8))

RMS_NORM_QUANT = define(
    "rms_norm_quant",
    version=0,
    family="fused",
    args=[tensor("x", "T D", BF16, layout="rows"), tensor("weight", "D", BF16), scalar("eps", float, low=0)],
    outs=_NORM_QUANT_OUTS,
    dynamic="T",
    semantics="""y = rms_norm(x, weight, eps), D a multiple of 32."""
    + _QUANTISED
    + """ Zero rows, overflow, NaN and infinities as in those two ops: a row with NaN has NaN scales throughout, one
        with infinity where it stands.""",
    numerics=Decided(2, "bf16", of="normed value, that is 1 ulp; codes and scales are exact on the op's own y"),
    cost=lambda d: Cost(flops=7 * d["T"] * d["D"], bytes=d["T"] * (5 * d["D"] + d["D"] // 32) + 2 * d["D"]),
    samples=samples.rms_norm_quant,
)

HC_COLLAPSE_NORM = define(
    "hc_collapse_norm",
    version=0,
    family="fused",
    args=[
        tensor("x", "T m D", BF16),
        tensor("pending", "T m", F32),
        tensor("weight", "D", BF16),
        scalar("eps", float, low=0),
    ],
    outs=_NORM_QUANT_OUTS,
    dynamic="T",
    semantics="""y = rms_norm(hc_collapse(x, pending), weight, eps), D a multiple of 32: the collapsed row is rounded
        to bf16 in between, as by those two ops."""
    + _QUANTISED
    + """ The row enters a sub-layer: y for its bf16 projections, codes for the FP8 ones. A row whose streams cancel to
        nothing is zero, or normed rounding noise.""",
    numerics=Decided(2, "bf16", of="normed value, with the error of the collapsed row carried through the norm"),
    cost=lambda d: Cost(
        flops=(2 * d["m"] + 7) * d["T"] * d["D"],
        bytes=d["T"] * ((2 * d["m"] + 3) * d["D"] + d["D"] // 32 + 4 * d["m"]) + 2 * d["D"],
    ),
    samples=samples.hc_collapse_norm,
)

MOE_ROUTE = define(
    "moe_route",
    version=0,
    family="fused",
    args=[
        tensor("x", "T K", BF16),
        handle("gate", weight=("E K", BF16)),
        tensor("bias", "E", F32),
        tensor("bias_vl", "E", F32),
        tensor("image", "T", BOOL),
        scalar("k", int, low=1, most="E"),
        scalar("scaling", float),
    ],
    outs=[result("weights", "T k", F32), result("experts", "T k", I32), result("logits", "T E", F32)],
    dynamic="T",
    semantics="""logits = linear_bf16(x, gate) in fp32; weights and experts = moe_gate(logits, bias, bias_vl, image,
        k, scaling), in that op's class given the op's own logits.""",
    numerics=Decided(9, "fp32", of="score + |bias| of a selection key, given the logits, which are within K roundings"),
    cost=lambda d: Cost(
        flops=d["T"] * d["E"] * (2 * d["K"] + 10),
        bytes=2 * d["E"] * d["K"] + d["T"] * (2 * d["K"] + 4 * d["E"] + 8 * d["k"] + 1) + 8 * d["E"],
    ),
    samples=samples.moe_route,
)


def _selected(given: Mapping[str, Any]) -> Tensor:
    """[T, k]: places that name an entry."""
    visible = torch.where(cast(Tensor, given["row_seq"]) >= 0, given["visible"], 0)
    blocks, size = given["blocks"], given["block_size"]
    if blocks is not None:
        entry = blocks.long().unsqueeze(2) * size + torch.arange(size, device=visible.device)
        visible = ((blocks >= 0).unsqueeze(2) & (entry < visible.view(-1, 1, 1))).sum((1, 2))
    else:
        visible = visible.clamp(max=given["entries"])
    return torch.arange(given["k"], device=visible.device) < visible.unsqueeze(1)


def _topk_cost(d: Mapping[str, int]) -> Cost:
    lanes = d["KB"] * d["block_size"] if "KB" in d else d["entries"]
    named = d["T"] * lanes if "KB" in d else d["S"] * lanes
    keys = min(named, d["P"] * 128 // d["ratio"]) if d["T"] else 0
    # Pages are found through the table: by every row's blocks, or once for the entries of a sequence.
    ids = d["T"] * d["KB"] if "KB" in d else d["S"] * -(-lanes * d["ratio"] // 128)
    table = 4 * min(ids, d["S"] * d["B"]) if keys else 0
    row = d["H"] * (d["qb"] + 2) + 8 + 6 * d["k"] + 4 * d.get("KB", 0)
    return Cost(
        flops=2.0 * d["T"] * lanes * d["H"] * (d["qb"] * 32 // 17 + 1), bytes=d["T"] * row + keys * d["qb"] + table
    )


INDEX_TOPK = define(
    "index_topk",
    version=0,
    family="fused",
    args=[
        tensor("query", "T H qb", U8),
        tensor("head_weight", "T H", BF16),
        tensor("pages", "P 128//ratio*qb", U8, layout="rows"),
        VISIBLE,
        ROW_SEQ,
        BLOCK_TABLE,
        tensor("blocks", "T KB", I32, optional=True),
        scalar("ratio", int, choices=(1, 2)),
        scalar("entries", int, static=False),
        scalar("block_size", int, low=1),
        scalar("k", int, low=1),
    ],
    outs=[
        result("indices", "T k", I32),
        result("scores", "T k", BF16, unspecified="places of index -1", defined=_selected),
    ],
    dynamic="T S P B entries",
    semantics="""indices = topk_select(index_score(...), visible, k), or with blocks of index_score_blocks and those
        blocks, whose ids are ascending and distinct, -1 after them; scores[t, i] is the score of entry indices[t, i].
        So: min(k, visible entries) distinct visible entries in ascending order, then -1, the best by score, order and
        ties as in topk_select. A row with row_seq -1 chooses nothing. Scores are never written out whole. Without
        blocks the entries are 0 .. entries-1, which cover every visible count and have pages where a row sees them;
        with blocks `entries` is not looked at.""",
    numerics=Decided(1, "bf16", of="score, after the fp32 error of its H*qb*32//17 terms"),
    cost=_topk_cost,
    samples=samples.index_topk,
)


def rms_norm_quant(x: Tensor, weight: Tensor, eps: float, *, out: tuple[Tensor, ...] | None = None) -> NormQuant:
    """Normalise rows and quantise them: `rms_norm`, then `quant_fp8`.

    Args:
        x: bf16 [T, D], rows may be strided. weight: bf16 [D]. eps: added to the mean.
    """
    return NormQuant(*RMS_NORM_QUANT.run(x, weight, eps, out))


def hc_collapse_norm(
    x: Tensor, pending: Tensor, weight: Tensor, eps: float, *, out: tuple[Tensor, ...] | None = None
) -> NormQuant:
    """Input of a sub-layer: streams mixed, normed, and quantised.

    Args:
        x: bf16 [T, m, D]. pending: f32 [T, m]. weight: bf16 [D]. eps: added to the mean.
    """
    return NormQuant(*HC_COLLAPSE_NORM.run(x, pending, weight, eps, out))


def moe_route_prepare(weight: Tensor) -> WeightHandle:
    """Prepare a router's weight bf16 [E, K] for `moe_route`."""
    return MOE_ROUTE.prepare(weight)


def moe_route(
    x: Tensor,
    gate: WeightHandle,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Router and choice of experts.

    Args:
        x: bf16 [T, K]. gate: from `moe_route_prepare`. The others as in `moe_gate`.

    Returns:
        weights f32 [T, k], expert ids i32 [T, k], logits f32 [T, E].
    """
    return cast(tuple[Tensor, Tensor, Tensor], MOE_ROUTE.run(x, gate, bias, bias_vl, image, k, scaling, out))


def index_topk(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    blocks: Tensor | None,
    ratio: int,
    entries: int,
    block_size: int,
    k: int,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The k best compressed entries of every row, of all visible ones or of its candidate blocks.

    Args:
        query, head_weight, pages, visible, row_seq, block_table, ratio: as in `index_score`.
        blocks: i32 [T, KB], candidate blocks of `block_size` entries, or None.
        entries: without blocks, at least the largest `visible`. k: may exceed the visible entries.

    Returns:
        indices i32 [T, k], ascending, -1 after them; their scores bf16 [T, k].

    Raises:
        ContractError: among others, the block table is too narrow for `entries`.
    """
    if blocks is None and ratio in (1, 2) and block_table.ndim == 2:
        most = block_table.shape[1] * entries_per_page(ratio)
        if not 0 <= entries <= most:
            raise INDEX_TOPK.error(
                f"entries is {entries}; a block table of width {block_table.shape[1]} with {entries_per_page(ratio)} "
                f"entries per page holds 0 to {most}"
            )
    args = (query, head_weight, pages, visible, row_seq, block_table, blocks, ratio, entries, block_size, k)
    return cast(tuple[Tensor, Tensor], INDEX_TOPK.run(*args, out))
