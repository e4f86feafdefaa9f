"""Exponential, sigmoid and softplus within the roundings that docs/numerics.md, section 6, counts for them.

For the classes with limits: their bits may differ between chips and the interpreter. On a GPU they are built from its
approximate powers of two and reciprocals, with what those lack made up for by fused multiply-adds; the interpreter
computes in fp64. NaN gives NaN. Everything is elementwise, takes fp32 tensors of any shape, and allocates nothing.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable import INTERPRETED
from .portable_math import LN2, log2_tail, split_binade

SOFTPLUS_LINEAR: tl.constexpr = tl.constexpr(20.0)

# log2(e) as the sum of two fp32 numbers.
_LOG2E: tl.constexpr = tl.constexpr(float.fromhex("0x1.715476p+0"))
_LOG2E_REST: tl.constexpr = tl.constexpr(float.fromhex("0x1.4ae0cp-26"))


# log2(e) as a number of 16 bits, whose products with bf16 are exact, and ln(2)/4 times the rest.
_LOG2E_SHORT: tl.constexpr = tl.constexpr(float.fromhex("0x1.7154000000000p+0"))
_REST_QUARTER: tl.constexpr = tl.constexpr(float.fromhex("0x1.480fb60000000p-20"))


@jit
def exp(x):
    """e^x: within two units in the last place, subnormal results within half a unit more."""
    if INTERPRETED:
        return tl.exp(x.to(tl.float64)).to(tl.float32)
    else:
        x = tl.where(x > 128.0, 128.0, tl.where(x < -128.0, -128.0, x))
        power = x * _LOG2E
        rest = tl.fma(x, _LOG2E_REST, tl.fma(x, _LOG2E, -power))
        small = power < -64.0  # the instruction flushes subnormal results; adding 64 is exact here
        e = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;",
            "=f,f",
            [tl.where(small, power + 64.0, power)],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
        e = tl.where(power < 128.0, tl.fma(e, rest * LN2, e), e)
        return e * tl.where(small, 5.421010862427522e-20, 1.0)


@jit
def sigmoid(x):
    """1 / (1 + e^-x) within 6 roundings; 0 once e^-x overflows, below -88.7."""
    if INTERPRETED:
        e = tl.exp(-x.to(tl.float64)).to(tl.float32)
        return (1.0 / (1.0 + e.to(tl.float64))).to(tl.float32)
    else:
        power = tl.where(x > 100.0, 100.0, x) * (-_LOG2E)
        rest = tl.fma(x, -_LOG2E_REST, tl.fma(x, -_LOG2E, -power))
        e = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [power], dtype=tl.float32, is_pure=True, pack=1
        )
        # A quarter of the sum has a normal reciprocal. Powers of 0 and infinity have no rest.
        quarter = (1.0 + tl.where((x < 100.0) & (power < 128.0), tl.fma(e, rest * LN2, e), e)) * 0.25
        r = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [quarter], dtype=tl.float32, is_pure=True, pack=1
        )
        refined = tl.fma(r, tl.fma(-quarter, r, 1.0), r)
        return tl.where(quarter > 1e38, 0.0, refined) * 0.25


@jit
def sigmoid_of_bf16(x):
    """`sigmoid` of fp32 numbers that are bf16, or above -4: with half its instructions. 0 below -88.8.

    The exponent has no rounding to make up for: e^-x = 2^-hx * 2^-rx, where h has 16 bits, and rx is so small that the
    second power is 1 - rx*ln(2) within a rounding.
    """
    if INTERPRETED:
        return sigmoid(x)
    else:
        x = tl.maximum(tl.minimum(x, 128.0, tl.PropagateNan.ALL), -128.0, tl.PropagateNan.ALL)
        e = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * (-_LOG2E_SHORT)], dtype=tl.float32, is_pure=True, pack=1
        )
        # A quarter of the sum has a normal reciprocal, or one of 0 where e^-x is infinity.
        quarter = tl.fma(e, tl.fma(x, -_REST_QUARTER, 0.25), 0.25)
        r = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [quarter], dtype=tl.float32, is_pure=True, pack=1
        )
        return r * 0.25


@jit
def reciprocal(x):
    """1 / x within 2 roundings, without division's way for what is far from 1: infinity gives NaN, 0 may."""
    if INTERPRETED:
        return (1.0 / x.to(tl.float64)).to(tl.float32)
    else:
        r = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
        return tl.fma(r, tl.fma(-x, r, 1.0), r)


@jit
def softplus(x):
    """log(1 + e^x) within 8 roundings: x itself above 20."""
    y = exp(tl.where(x > SOFTPLUS_LINEAR, 0.0, x))
    k, f = split_binade(1.0 + y)
    # Below sqrt(2), y itself is what 1 + y has lost bits of. Tiny y are their own logarithm, also where subnormal.
    log = log2_tail(k, tl.where(k == 0, y, f)) * LN2
    return tl.where(x > SOFTPLUS_LINEAR, x, tl.where((y < 1e-8) | (y != y), y, log))
