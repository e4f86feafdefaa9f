"""Elementary functions whose result depends on the value alone, not on where it stands in the tensor.

torch's CPU sigmoid, silu, softplus, exp2 and pow round differently in the vectorised body and in the tail of a tensor.
exp, log, log1p, tanh, erf, fp32 rsqrt, sqrt and the four arithmetic operations do not; everything here is built from
those, one operation at a time. All take and return fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOFTPLUS_LINEAR = 20.0


def exp(x: Tensor) -> Tensor:
    """e^x."""
    return torch.exp(x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x); exactly 0 once e^-x overflows (x < -88.7)."""
    return torch.neg(x).exp_().add_(1.0).reciprocal_()


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x): x itself above 20, else log1p(exp(x))."""
    return torch.where(x > SOFTPLUS_LINEAR, x, torch.log1p(torch.exp(x)))
