"""Root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from .common import finish, tree_sum


@kernel("rms_norm", version=0, backend="reference")
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    value = x.to(torch.float32)
    normed = value * inverse_rms(value, eps) * weight.to(torch.float32)
    return finish(normed.to(torch.bfloat16), out)


def inverse_rms(x: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dim, kept with length 1; fp32, tree order."""
    return tree_sum(x * x).div_(x.shape[-1]).add_(eps).rsqrt_()
