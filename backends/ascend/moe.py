"""Mixture of experts: rows by expert, combination of the experts' outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel

MOST = 8192
MOST_EXPERTS = 4096
ENTRIES = 256  # that a core orders at a time
MOE_COMBINE = Program("moe_kernels.py", "moe_combine", most=MOST)
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
