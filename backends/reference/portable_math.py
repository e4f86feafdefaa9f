"""Written-down fp32 functions: the same bits on every device.

`exp2`, `log2` and the race's exponential are polynomials of `docs/numerics.md`, evaluated with one rounding per
multiply and per add. The steps are separate tensor operations, so nothing can contract them into fused
multiply-adds.

Constants are tensors without dims: torch takes those on any device, and twice as fast as Python numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor


def constant(value: float | str) -> Tensor:
    """fp32 constant from a number or its hexadecimal spelling. Every constant here is exact in fp32."""
    exact = float.fromhex(value) if isinstance(value, str) else value
    tensor = torch.tensor(exact, dtype=torch.float32)
    assert tensor.item() == exact
    return tensor


def integer(value: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Integer constant."""
    return torch.tensor(value, dtype=dtype)


LOG2E = constant("0x1.715476p+0")  # log2(e)
LN2 = constant("0x1.62e430p-1")  # ln(2)
ONE = constant(1.0)

# 2 * 2**f on [-1/2, 1/2], lowest order first; the doubled form keeps the result's scale a normal number (see exp2).
EXP2_COEFFICIENTS = tuple(map(constant, (
    "0x1.000000p+1", "0x1.62e430p+0", "0x1.ebfbdcp-2", "0x1.c6af7cp-4", "0x1.3b2de0p-6", "0x1.5f082ep-9",
    "0x1.416b52p-12",
)))  # fmt: skip

# log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1], lowest order first.
LOG2_COEFFICIENTS = tuple(map(constant, (
    "0x1.715476p+0", "-0x1.715472p-1", "0x1.ec7366p-2", "-0x1.715b7ep-2", "0x1.26dd48p-2", "-0x1.e9809ep-3",
    "0x1.b94dfap-3", "-0x1.a78030p-3", "0x1.01ba32p-3",
)))  # fmt: skip

_EXP2_LOWEST = constant(-126.0)
_EXP2_BIAS = integer(126)
_SQRT_HALF_BITS = integer(0x3F3504F3)  # fp32(sqrt(1/2))
_MANTISSA_BITS = integer(23)
_ZERO = integer(0)


def _horner(x: Tensor, coefficients: tuple[Tensor, ...]) -> Tensor:
    """Polynomial by Horner's rule, highest coefficient first, a rounding after every multiply and every add."""
    value = x * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        value.add_(c).mul_(x)
    return value.add_(coefficients[0])


def exp2(x: Tensor) -> Tensor:
    """2**x for fp32 x <= 0: exactly 1 at 0, exactly 0 below -125.5, never subnormal. NaN gives anything."""
    x = torch.maximum(x, _EXP2_LOWEST)
    n = torch.round(x)
    value = _horner(x - n, EXP2_COEFFICIENTS)
    # 2**(n-1) as bits: +0.0 at n = -126, normal above; the coefficients carry the missing factor 2.
    scale = n.to(torch.int32).add_(_EXP2_BIAS).bitwise_left_shift_(_MANTISSA_BITS).view(torch.float32)
    return value.mul_(scale)


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = 2**k * m with m in [sqrt(1/2), sqrt(2)): returns k (int32) and m - 1, both exact. x positive and normal."""
    bits = x.view(torch.int32)
    k = (bits - _SQRT_HALF_BITS).bitwise_right_shift_(_MANTISSA_BITS)
    return k, (bits - (k << _MANTISSA_BITS)).view(torch.float32).sub_(ONE)


def log2(x: Tensor) -> Tensor:
    """log2 of positive normal fp32; exact at powers of two."""
    k, f = _split(x)
    return _horner(f, LOG2_COEFFICIENTS).mul_(f).add_(k)


def minus_log2_one_minus(v: Tensor) -> Tensor:
    """-log2(1 - v) for fp32 v in [2**-33, 1 - 2**-24], without cancellation for small v."""
    k, f = _split(ONE - v)
    f = torch.where(k == _ZERO, -v, f)
    return _horner(f, LOG2_COEFFICIENTS).mul_(f).add_(k).neg_()
