"""Activation quantisation in front of FP8 and FP4 weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature
from .program import Program, flat
from .register import kernel

MOST = 8192
QUANT_FP8 = {
    dtype: Program("quant_kernels.py", "quant_fp8", needs=("parts_quant.py",), dtype=name, most=MOST)
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float32, "float32"))
}


def _fits(signature: Signature) -> str | None:
    k = signature.dims["K"]
    return None if k % 32 == 0 and 0 < k <= MOST else f"K a multiple of 32 from 32 to {MOST}, got {k}"


@kernel("quant_fp8", version=0, supports=_fits)
def quant_fp8(x: Tensor, out: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    if out is None:
        out = (
            torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device),
            torch.empty((rows, width // 32), dtype=torch.uint8, device=x.device),
        )
    QUANT_FP8[x.dtype](rows, X=flat(x), Q=out[0], E=out[1], stride=x.stride(0), m=rows, K=width)
    return out
