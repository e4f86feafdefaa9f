"""Mixture of experts: routing, packing rows by expert, FP4 expert products, activation, combination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from . import moe_samples as samples
from .numerics import Accumulated, Decided, Exact
from .spec import BF16, BOOL, E4M3, F32, I32, U8, Cost, WeightHandle, define, handle, result, scalar, tensor

MOE_GATE = define(
    "moe_gate",
    version=0,
    family="moe",
    args=[
        tensor("logits", "T E", F32),
        tensor("bias", "E", F32),
        tensor("bias_vl", "E", F32),
        tensor("image", "T", BOOL),
        scalar("k", int, low=1, most="E"),
        scalar("scaling", float),
    ],
    outs=[result("weights", "T k", F32), result("experts", "T k", I32)],
    dynamic="T",
    semantics="""s = sqrt(softplus(logits)), softplus(x) = x above 20, else log1p(exp(x)). Selection key s + bias, or
        s + bias_vl on image rows. The k largest keys, descending; equal keys (-0 equals +0): lower expert id first;
        NaN keys come last, after -infinity, lower id first. weights = s / (sum of the chosen s + 1e-20) * scaling,
        without the bias, summed in slot order. 1 <= k <= E. A NaN that is not chosen does not influence the row.""",
    numerics=Decided(9, "fp32", of="score + |bias| of a selection key"),
    cost=lambda d: Cost(flops=10 * d["T"] * d["E"], bytes=d["T"] * (4 * (d["E"] + 2 * d["k"]) + 1) + 8 * d["E"]),
    samples=samples.moe_gate,
)

MOE_PACK = define(
    "moe_pack",
    version=0,
    family="moe",
    args=[
        tensor("experts", "T k", I32),
        tensor("weights", "T k", F32),
        scalar("first", int),
        scalar("count", int),
    ],
    outs=[
        result("source_row", "T*k", I32),
        result("packed_weight", "T*k", F32),
        result("offsets", "count+1", I32),
        result("position", "T k", I32),
    ],
    dynamic="T",
    semantics="""Lists the routed rows of the local experts first .. first+count-1, ordered by (expert, token, slot).
        Expert first+e has the packed rows offsets[e] .. offsets[e+1]-1; offsets[0] is 0. source_row is the token of a
        packed row, packed_weight its routing weight; beyond offsets[count] they are -1 and 0. position[t,j] is the
        packed row of slot j of token t, -1 where its expert is not local; ids outside every range (-1) are never
        local.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=20 * d["T"] * d["k"] + 4 * (d["count"] + 1)),
    samples=samples.moe_pack,
)


def _grouped_cost(d: Mapping[str, int]) -> Cost:
    rows = d.get("M", d["X"])
    weights = min(d["E"], rows) * d["N"] * (d["H"] + d["H"] // 16)
    activations = min(rows, d["X"]) * (2 * d["H"] + d["H"] // 16)
    metadata = 4 * (d["E"] + 1) + 4 * d.get("M", 0)
    return Cost(flops=4 * rows * d["N"] * d["H"], bytes=weights + activations + 2 * rows * d["N"] + metadata)


def _packed_rows(given: Mapping[str, Any]) -> Tensor:
    """[M, 1]: rows that an expert owns."""
    rows: Tensor = given["xq"] if given["source_row"] is None else given["source_row"]
    offsets: Tensor = given["offsets"]
    return (torch.arange(rows.shape[0], device=rows.device) < offsets[-1]).unsqueeze(1)


GROUPED_LINEAR = define(
    "grouped_linear",
    version=0,
    family="moe",
    args=[
        tensor("xq", "X 2*H", E4M3),
        tensor("xs", "X H//16", U8),
        handle("weight", weight=("E N H", U8), scale=("E N H//16", U8)),
        tensor("source_row", "M", I32, optional=True),
        tensor("offsets", "E+1", I32),
    ],
    outs=[result("y", "M N", BF16, unspecified="rows from offsets[E] on", defined=_packed_rows)],
    dynamic="X M",
    semantics="""Packed row i with offsets[e] <= i < offsets[e+1] gives y[i] = bf16(x[source_row[i]] @ w[e].T), fp32
        sums over K = 2H channels (a multiple of 32) in an order that depends on N and K alone; without source_row row
        i of x itself, M = X. Weights: two E2M1 codes a byte, the even channel in the low nibble, one E8M0 scale per
        output row and 32 channels. offsets ascend from 0. Rows from offsets[E] on are unspecified: neither source_row
        nor x is read for them, `out` is left as it is. Experts without rows are not read. M may be 0.""",
    numerics=Accumulated("2*H"),
    cost=_grouped_cost,
    samples=samples.grouped_linear,
)

SWIGLU_QUANT = define(
    "swiglu_quant",
    version=0,
    family="moe",
    args=[
        tensor("gate_up", "M N", BF16),
        tensor("weight", "M", F32, optional=True),
        scalar("limit", float),
    ],
    outs=[result("q", "M N//2", E4M3), result("scale", "M N//64", U8)],
    dynamic="M",
    semantics="""g, u = the halves of gate_up, N a multiple of 64; g = min(g, limit), u = min(max(u, -limit), limit),
        limit > 0; act = (weight * (g * sigmoid(g))) * u in fp32 (weight left out when absent); then Q8 of the fp32
        values as quant_fp8 does, without a bf16 rounding in between. Each row stands alone, so unspecified rows do no
        harm.""",
    numerics=Decided(9, "fp32", of="activation"),
    cost=lambda d: Cost(
        flops=5 * d["M"] * d["N"], bytes=d["M"] * (d["N"] * (5 + 1 / 32) / 2 + d.get("weight.itemsize", 0))
    ),
    samples=samples.swiglu_quant,
)

MOE_COMBINE = define(
    "moe_combine",
    version=0,
    family="moe",
    args=[tensor("y", "M D", BF16), tensor("position", "T k", I32), tensor("shared", "T D", BF16)],
    outs=[result("out_rows", "T D", BF16)],
    dynamic="M T",
    semantics="""out[t] = bf16(sum_j y[position[t,j]] + shared[t]): fp32, starting from 0, slots ascending, the shared
        expert last, one rounding. Slots with position -1 add nothing; rows of y that no position names are not read
        and may hold anything.""",
    numerics=Accumulated("k+1"),
    cost=lambda d: Cost(
        flops=(d["k"] + 1) * d["T"] * d["D"],
        bytes=2 * d["D"] * (min(d["M"], d["T"] * d["k"]) + 2 * d["T"]) + 4 * d["T"] * d["k"],
    ),
    samples=samples.moe_combine,
)


def moe_gate(
    logits: Tensor,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    *,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose k experts for every row.

    Args:
        logits: f32 [T, E]. bias, bias_vl: f32 [E], for selection only. image: bool [T], rows that use `bias_vl`.
        scaling: factor on the normalised weights.

    Returns:
        weights f32 [T, k] and expert ids i32 [T, k], in descending selection key.
    """
    if not 1 <= k <= logits.shape[-1]:
        raise MOE_GATE.error(f"k is {k}, must be 1 to the number of experts ({logits.shape[-1]})")
    return MOE_GATE.run(logits, bias, bias_vl, image, k, scaling, out)  # type: ignore[no-any-return]


def moe_pack(
    experts: Tensor,
    weights: Tensor,
    first: int,
    count: int,
    *,
    out: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order the routed rows of the experts `first` to `first + count - 1` by expert.

    Args:
        experts: i32 [T, k]. weights: f32 [T, k].

    Returns:
        source_row i32 [T*k], packed_weight f32 [T*k], offsets i32 [count + 1], position i32 [T, k].
    """
    return MOE_PACK.run(experts, weights, first, count, out)  # type: ignore[no-any-return]


def grouped_linear_prepare(weight: Tensor, scale: Tensor) -> WeightHandle:
    """Prepare FP4 expert weights for `grouped_linear`.

    Args:
        weight: two FP4 codes a byte, uint8 [E, N, K/2]. scale: E8M0 bytes uint8 [E, N, K/32].
    """
    return GROUPED_LINEAR.prepare(weight, scale)


def grouped_linear(
    xq: Tensor,
    xs: Tensor,
    weight: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """One linear layer per expert over rows packed by expert.

    Args:
        xq, xs: e4m3 [X, K] and uint8 [X, K/32]. weight: from `grouped_linear_prepare`.
        source_row: i32 [M], the row of xq each packed row reads; None: the rows of xq are packed already.
        offsets: i32 [E + 1], see `moe_pack`.

    Returns:
        bf16 [M, N]; rows from offsets[E] on are unspecified.
    """
    if source_row is None and out is not None and out.shape[:1] != xq.shape[:1]:
        raise GROUPED_LINEAR.error(f"out has {out.shape[0]} rows, must have as many as xq ({xq.shape[0]})")
    return GROUPED_LINEAR.run(xq, xs, weight, source_row, offsets, out)  # type: ignore[no-any-return]


def swiglu_quant(
    gate_up: Tensor, weight: Tensor | None, limit: float, *, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Clamped SwiGLU, times the routing weight, quantised for the down projection.

    Args:
        gate_up: bf16 [M, 2I], gate half first. weight: f32 [M] or None. limit: clamp of gate (above) and up (both).

    Returns:
        codes e4m3 [M, I] and scale bytes uint8 [M, I/32].
    """
    if not limit > 0:
        raise SWIGLU_QUANT.error(f"limit is {limit}, must be positive")
    return SWIGLU_QUANT.run(gate_up, weight, limit, out)  # type: ignore[no-any-return]


def moe_combine(y: Tensor, position: Tensor, shared: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Add each token's expert outputs and the shared expert.

    Args:
        y: bf16 [M, D], packed expert outputs. position: i32 [T, k] from `moe_pack`. shared: bf16 [T, D].

    Returns:
        bf16 [T, D].
    """
    return MOE_COMBINE.run(y, position, shared, out)  # type: ignore[no-any-return]
