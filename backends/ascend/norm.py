"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel

MOST = 8192
RMS_NORM = Program("norm_kernels.py", "rms_norm", most=MOST)


def _fits(signature: Signature) -> str | None:
    d = signature.dims["D"]
    return None if 0 < d <= MOST else f"D from 1 to {MOST}, got {d}"


@kernel("rms_norm", version=0, supports=_fits)
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    rows, width = x.shape
    y = torch.empty((rows, width), dtype=torch.bfloat16, device=x.device) if out is None else out
    RMS_NORM(rows, X=flat(x), W=weight, Y=y, stride=x.stride(0), width=width, eps=eps, m=rows, D=width)
    return y
