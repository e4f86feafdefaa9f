"""Mixture of experts: combination of the experts' outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program
from .register import kernel

MOST = 8192
MOE_COMBINE = Program("moe_kernels.py", "moe_combine", most=MOST)


def _fits(signature: Signature) -> str | None:
    d = signature.dims["D"]
    return None if 0 < d <= MOST else f"D from 1 to {MOST}, got {d}"


@kernel("moe_combine", version=0, supports=_fits)
def moe_combine(y: Tensor, position: Tensor, shared: Tensor, out: Tensor | None) -> Tensor:
    tokens, width = shared.shape
    total = torch.empty_like(shared) if out is None else out
    MOE_COMBINE(tokens, X=y, P=position, H=shared, Y=total, m=tokens, M=y.shape[0], D=width, k=position.shape[1])
    return total
