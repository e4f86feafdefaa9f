"""Mixture of experts: choice, rows by expert, expert products, activation, combination."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.spec import WeightHandle
from .linear import even_scales, pair_scales, pairs_of
from .program import Program, flat
from .register import kernel

MOST = 8192
MOST_EXPERTS = 4096
ENTRIES = 256  # that a core orders at a time
MOE_COMBINE = Program("moe_kernels.py", "moe_combine", most=MOST)
MOE_GATE = Program("moe_gate_kernels.py", "moe_gate", most=MOST_EXPERTS)
GROUPED_LINEAR = Program("grouped_linear.cpp", "grouped_linear")
SWIGLU_QUANT = Program("moe_activation_kernels.py", "swiglu_quant", needs=("parts_quant.py",), most=MOST)
WEIGHT_SUM_FLOOR = 1e-20
MOE_PACK = Program("moe_kernels.py", "moe_pack", chunk=ENTRIES, most=MOST_EXPERTS)


def _fits(signature: Signature) -> str | None:
    d = signature.dims["D"]
    return None if 0 < d <= MOST else f"D from 1 to {MOST}, got {d}"


@kernel("moe_combine", version=0, supports=_fits)
def moe_combine(y: Tensor, position: Tensor, shared: Tensor, out: Tensor | None) -> Tensor:
    tokens, width = shared.shape
    total = torch.empty_like(shared) if out is None else out
    MOE_COMBINE(tokens, X=y, P=position, H=shared, Y=total, m=tokens, M=y.shape[0], D=width, k=position.shape[1])
    return total


def _few(signature: Signature) -> str | None:
    count = signature.scalars["count"]
    return None if 0 <= count <= MOST_EXPERTS else f"up to {MOST_EXPERTS} local experts, got {count}"


@kernel("moe_pack", version=0, supports=_few)
def moe_pack(
    experts: Tensor, weights: Tensor, first: int, count: int, out: tuple[Tensor, Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (tokens, k), device = experts.shape, experts.device
    entries = tokens * k
    if out is None:
        out = (
            torch.empty(entries, dtype=torch.int32, device=device),
            torch.empty(entries, dtype=torch.float32, device=device),
            torch.empty(count + 1, dtype=torch.int32, device=device),
            torch.empty((tokens, k), dtype=torch.int32, device=device),
        )
    chunks = max(1, -(-entries // ENTRIES))  # offsets are written without rows as well
    given = {"E": flat(experts), "W": flat(weights), "R": flat(out[0]), "Q": flat(out[1]), "O": out[2]}
    MOE_PACK(chunks, **given, P=flat(out[3]), first=first, slots=max(1, k), chunks=chunks, n=entries, count=count)
    return out


def few_experts(signature: Signature) -> str | None:
    """As many as a row of logits may have."""
    experts = signature.dims["E"]
    return None if 0 < experts <= MOST_EXPERTS else f"E from 1 to {MOST_EXPERTS}, got {experts}"


@kernel("moe_gate", version=0, supports=few_experts)
def moe_gate(
    logits: Tensor,
    bias: Tensor,
    bias_vl: Tensor,
    image: Tensor,
    k: int,
    scaling: float,
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    rows, experts = logits.shape
    if out is None:
        out = (
            torch.empty((rows, k), dtype=torch.float32, device=logits.device),
            torch.empty((rows, k), dtype=torch.int32, device=logits.device),
        )
    given = {"X": logits, "B": bias, "V": bias_vl, "A": image.view(torch.uint8), "W": out[0], "I": out[1]}
    MOE_GATE(rows, **given, scaling=scaling, floor=WEIGHT_SUM_FLOOR, m=rows, E=experts, k=k)
    return out


def group_codes(weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Codes by groups of 32 channels, [E, K/32, N, 16] for [E, N, K/2], and scales in pairs; both even in number.

    A vector core reads a group of 64 rows in one run. What fills up an odd number are zeros, and ones as scales.
    """
    experts, n, half = weight.shape
    groups = torch.nn.functional.pad(weight, (0, half % 32)).view(experts, n, -1, 16)
    return groups.transpose(1, 2).contiguous(), even_scales(scale).contiguous()


def _whole_groups(signature: Signature) -> str | None:
    n, packed = signature.dims["N"], signature.dims["H"]
    return None if n > 0 and packed > 0 and packed % 16 == 0 else f"N from 1 and H of 16, got N = {n}, H = {packed}"


def _ordered_scratch(
    xq: Tensor, xs: Tensor, weight: WeightHandle, source_row: Tensor | None, offsets: Tensor, *rest: object
) -> int:
    """Scales in the order of the packed rows, in pairs, unless they are that."""
    groups = xs.shape[1]
    if source_row is None and groups % 2 == 0:
        return 0
    return (xq if source_row is None else source_row).shape[0] * 2 * pairs_of(groups)


@kernel(
    "grouped_linear",
    version=0,
    supports=_whole_groups,
    source="ascendc",
    layout="ascend-fp4-groups",
    prepare=group_codes,
    workspace=_ordered_scratch,
)
def grouped_linear(
    xq: Tensor,
    xs: Tensor,
    handle: WeightHandle,
    source_row: Tensor | None,
    offsets: Tensor,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    weight, scale = handle.tensors
    rows, k = (xq if source_row is None else source_row).shape[0], xq.shape[1]
    experts, n = weight.shape[0], weight.shape[2]
    y = torch.empty((rows, n), dtype=torch.bfloat16, device=xq.device) if out is None else out
    if not rows:
        return y
    ordered = xs
    if source_row is not None or k % 64:
        ordered = pair_scales(xs, rows, workspace, source_row=source_row, offsets=offsets)
    given = {"X": xq.view(torch.uint8), "SX": ordered, "W": weight, "SW": scale, "O": offsets, "Y": y}
    gather = offsets if source_row is None else source_row
    lie = {"gathered": int(source_row is not None), "E": experts, "N": n, "K": k}
    GROUPED_LINEAR(experts * -(-n // 128), S=gather, **given, **lie)
    return y


@cache
def _one(device: torch.device) -> Tensor:
    """The weight of rows without one."""
    return torch.ones(1, dtype=torch.float32, device=device)


def _halves(signature: Signature) -> str | None:
    n = signature.dims["N"]
    return None if n % 64 == 0 and 0 < n <= 2 * MOST else f"N a multiple of 64 from 64 to {2 * MOST}, got {n}"


@kernel("swiglu_quant", version=0, supports=_halves)
def swiglu_quant(
    gate_up: Tensor, weight: Tensor | None, limit: float, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    rows, k = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        out = (
            torch.empty((rows, k), dtype=torch.float8_e4m3fn, device=gate_up.device),
            torch.empty((rows, k // 32), dtype=torch.uint8, device=gate_up.device),
        )
    factor = _one(gate_up.device) if weight is None else weight
    given = {"X": gate_up, "W": factor, "Q": out[0], "E": out[1]}
    SWIGLU_QUANT(rows, **given, weighted=int(weight is not None), limit=limit, m=rows, n=factor.shape[0], K=k)
    return out
