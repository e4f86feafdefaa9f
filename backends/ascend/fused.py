"""Fused ops: several of other families in one kernel, or one launch after the other with nothing in between."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .linear import LINEAR_BF16, tiles
from .moe import few_experts, moe_gate
from .program import Program, flat
from .register import kernel

MOST, STREAMS = 8192, 4
HC_COLLAPSE_NORM = Program(
    "hyper_connections_norm_kernels.py", "hc_collapse_norm", needs=("parts_quant.py",), most=MOST, streams=STREAMS
)

RMS_NORM_QUANT = Program("norm_quant_kernels.py", "rms_norm_quant", needs=("parts_quant.py",), most=MOST)


def _collapsed(signature: Signature) -> str | None:
    d, m = signature.dims["D"], signature.dims["m"]
    if d % 32 or not 0 < d <= MOST or not 0 < m <= STREAMS:
        return f"D a multiple of 32 from 32 to {MOST}, and 1 to {STREAMS} streams; got {d} and {m}"
    return None


@kernel("hc_collapse_norm", version=0, supports=_collapsed)
def hc_collapse_norm(
    x: Tensor, pending: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
    rows, streams, width = x.shape
    if out is None:
        out = (
            torch.empty((rows, width), dtype=torch.bfloat16, device=x.device),
            torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device),
            torch.empty((rows, width // 32), dtype=torch.uint8, device=x.device),
        )
    y, q, e = out
    HC_COLLAPSE_NORM(rows, X=x, A=pending, W=weight, Y=y, Q=q, E=e, width=width, eps=eps, m=rows, n=streams, K=width)
    return out


def _fits(signature: Signature) -> str | None:
    d = signature.dims["D"]
    return None if d % 32 == 0 and 0 < d <= MOST else f"D a multiple of 32 from 32 to {MOST}, got {d}"


@kernel("rms_norm_quant", version=0, supports=_fits)
def rms_norm_quant(x: Tensor, weight: Tensor, eps: float, out: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    rows, width = x.shape
    if out is None:
        out = (
            torch.empty((rows, width), dtype=torch.bfloat16, device=x.device),
            torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device),
            torch.empty((rows, width // 32), dtype=torch.uint8, device=x.device),
        )
    given = {"X": flat(x), "W": weight, "Y": out[0], "Q": out[1], "E": out[2]}
    RMS_NORM_QUANT(rows, **given, stride=x.stride(0), width=width, eps=eps, m=rows, K=width)
    return out


def _routable(signature: Signature) -> str | None:
    k = signature.dims.get("K", 1)
    return few_experts(signature) if k > 0 else "K from 1 on, got 0"


@kernel("moe_route", version=0, supports=_routable)
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
    (weight,) = gate.tensors
    (rows, width), experts = x.shape, weight.shape[0]
    if out is None:
        out = (
            torch.empty((rows, k), dtype=torch.float32, device=x.device),
            torch.empty((rows, k), dtype=torch.int32, device=x.device),
            torch.empty((rows, experts), dtype=torch.float32, device=x.device),
        )
    lie = tiles(rows, experts)
    LINEAR_BF16[True](lie["tiles"], X=x, W=weight, Y=out[2], m=rows, N=experts, K=width, **lie)
    moe_gate(out[2], bias, bias_vl, image, k, scaling, (out[0], out[1]))
    return out
