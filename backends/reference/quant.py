"""Activation quantisation in front of FP8 and FP4 weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from .common import finish
from .formats import quantize_fp8


@kernel("quant_fp8", version=0, backend="reference")
def quant_fp8(x: Tensor, out: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    return finish(quantize_fp8(x.to(torch.float32)), out)
