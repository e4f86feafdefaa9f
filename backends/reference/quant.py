"""Activation quantisation in front of FP8 and FP4 weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import Signature, kernel
from .common import finish
from .formats import FP8_GROUP, quantize_fp8


def whole_groups(signature: Signature) -> str | None:
    """Channels are quantised in groups of 32."""
    k = signature.dims["K"]
    return None if k % FP8_GROUP == 0 else f"K must be a multiple of {FP8_GROUP}, got {k}"


@kernel("quant_fp8", version=0, backend="reference", supports=whole_groups)
def quant_fp8(x: Tensor, out: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    return finish(quantize_fp8(x.to(torch.float32)), out)
