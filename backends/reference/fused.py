"""Fused ops as what they stand for: one op after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.errors import ContractError
from ...hal.registry import kernel
from ...ops.spec import SPECS, WeightHandle
from .common import finish, widths
from .hyper_connections import hc_collapse
from .index import block_entries, index_score, index_score_blocks, topk_select
from .linear import linear_bf16
from .moe import moe_gate
from .norm import rms_norm
from .quant import quant_fp8


@kernel("rms_norm_quant", version=0, backend="reference", supports=widths(D=32))
def rms_norm_quant(x: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    y = rms_norm(x, weight, eps, None)
    return finish((y, *quant_fp8(y, None)), out)


@kernel("hc_collapse_norm", version=0, backend="reference", supports=widths(D=32))
def hc_collapse_norm(
    x: Tensor, pending: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    y = rms_norm(hc_collapse(x, pending, None), weight, eps, None)
    return finish((y, *quant_fp8(y, None)), out)


@kernel("moe_route", version=0, backend="reference")
def moe_route(
    x: Tensor,
    gate: WeightHandle,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    logits = linear_bf16(x, gate, True, None)
    return finish((*moe_gate(logits, bias, bias_vl, image, k, scaling, None), logits), out)


@kernel("index_topk", version=0, backend="reference")
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
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    where = (visible, row_seq, block_table, ratio)
    try:
        if blocks is None:
            scores = index_score(query, head_weight, pages, *where, entries, None)
        else:
            scores = index_score_blocks(query, head_weight, pages, blocks, *where, block_size, None)
    except ContractError as error:  # the caller knows this op only
        raise SPECS["index_topk"].error(error.message) from error
    seen = torch.where(row_seq >= 0, visible, 0)
    indices = topk_select(scores, seen, k, blocks, block_size, None)
    lane = indices.long().clamp(min=0)
    if blocks is not None:
        # Blocks ascend, so entries do; lanes behind the last block lie behind every entry.
        entry = block_entries(blocks, block_size)
        lane = torch.searchsorted(torch.where(entry < 0, 2**62, entry), lane).clamp(max=max(0, entry.shape[1] - 1))
    if scores.shape[1] == 0:
        return finish((indices, torch.full(indices.shape, -torch.inf, dtype=scores.dtype, device=scores.device)), out)
    chosen = torch.where(indices >= 0, scores.gather(1, lane), -torch.inf)
    return finish((indices, chosen), out)
