"""Written-down fp32 functions and Philox4x32-10 as device code: the bits of docs/numerics.md, sections 2 and 3.

Launch kernels that use them with `enable_fp_fusion=False`: a contracted multiply-add rounds once where two roundings
are written down. Exponents and rounded integers come from bits, not from a conversion of the chip.
"""

from __future__ import annotations

import triton.language as tl

from .jit import jit

LOG2E: tl.constexpr = tl.constexpr(float.fromhex("0x1.715476p+0"))
LN2: tl.constexpr = tl.constexpr(float.fromhex("0x1.62e430p-1"))

# 2 * 2**f on [-1/2, 1/2], lowest order first.
_X0: tl.constexpr = tl.constexpr(float.fromhex("0x1.000000p+1"))
_X1: tl.constexpr = tl.constexpr(float.fromhex("0x1.62e430p+0"))
_X2: tl.constexpr = tl.constexpr(float.fromhex("0x1.ebfbdcp-2"))
_X3: tl.constexpr = tl.constexpr(float.fromhex("0x1.c6af7cp-4"))
_X4: tl.constexpr = tl.constexpr(float.fromhex("0x1.3b2de0p-6"))
_X5: tl.constexpr = tl.constexpr(float.fromhex("0x1.5f082ep-9"))
_X6: tl.constexpr = tl.constexpr(float.fromhex("0x1.416b52p-12"))

# log2(1 + f) / f on [sqrt(1/2) - 1, sqrt(2) - 1], lowest order first.
_L0: tl.constexpr = tl.constexpr(float.fromhex("0x1.715476p+0"))
_L1: tl.constexpr = tl.constexpr(float.fromhex("-0x1.715472p-1"))
_L2: tl.constexpr = tl.constexpr(float.fromhex("0x1.ec7366p-2"))
_L3: tl.constexpr = tl.constexpr(float.fromhex("-0x1.715b7ep-2"))
_L4: tl.constexpr = tl.constexpr(float.fromhex("0x1.26dd48p-2"))
_L5: tl.constexpr = tl.constexpr(float.fromhex("-0x1.e9809ep-3"))
_L6: tl.constexpr = tl.constexpr(float.fromhex("0x1.b94dfap-3"))
_L7: tl.constexpr = tl.constexpr(float.fromhex("-0x1.a78030p-3"))
_L8: tl.constexpr = tl.constexpr(float.fromhex("0x1.01ba32p-3"))

_ROUND: tl.constexpr = tl.constexpr(12582912.0)
"""1.5 * 2^23: adding it rounds a small number to an integer, ties to even, which then stands in the low bits."""
_ROUND_BITS: tl.constexpr = tl.constexpr(0x4B400000)
_SQRT_HALF_BITS: tl.constexpr = tl.constexpr(0x3F3504F3)
_LARGEST_V: tl.constexpr = tl.constexpr(1.0 - 2.0**-24)
_V_SCALE: tl.constexpr = tl.constexpr(2.0**-33)
FIXED_ONE: tl.constexpr = tl.constexpr(2147483648.0)


@jit
def float_bits(x):
    """The bits of fp32, as int32."""
    return x.to(tl.int32, bitcast=True)


@jit
def bits_float(b):
    """The fp32 number with these bits (int32)."""
    return b.to(tl.float32, bitcast=True)


@jit
def exp2(x):
    """2**x for fp32 x <= 0 (or a rounding error above): 1 at 0, 0 below -125.5, never subnormal. NaN gives anything."""
    x = tl.maximum(x, -126.0)
    shifted = x + _ROUND
    f = x - (shifted - _ROUND)
    r = f * _X6
    r = (r + _X5) * f
    r = (r + _X4) * f
    r = (r + _X3) * f
    r = (r + _X2) * f
    r = (r + _X1) * f
    r = r + _X0
    n = float_bits(shifted) - _ROUND_BITS
    return r * bits_float((n + 126) << 23)


@jit
def split_binade(x):
    """x = 2^k * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): k (int32) and f, both exact. x positive and normal."""
    b = float_bits(x)
    k = (b - _SQRT_HALF_BITS) >> 23
    return k, bits_float(b - (k << 23)) - 1.0


@jit
def log2_tail(k, f):
    """k + f * Q(f)."""
    r = f * _L8
    r = (r + _L7) * f
    r = (r + _L6) * f
    r = (r + _L5) * f
    r = (r + _L4) * f
    r = (r + _L3) * f
    r = (r + _L2) * f
    r = (r + _L1) * f
    r = r + _L0
    return r * f + k.to(tl.float32)


@jit
def log2(x):
    """log2 of positive normal fp32; exact at powers of two."""
    k, f = split_binade(x)
    return log2_tail(k, f)


@jit
def minus_log2_one_minus(v):
    """-log2(1 - v) for fp32 v in [2**-33, 1 - 2**-24], without cancellation for small v."""
    k, f = split_binade(1.0 - v)
    return 0.0 - log2_tail(k, tl.where(k == 0, 0.0 - v, f))


@jit
def uniform(word):
    """v = min(fp32((x + 1/2) * 2**-32), 1 - 2**-24) of a random word (uint32)."""
    odd = word.to(tl.int64) * 2 + 1  # 33 bits: one rounding on conversion, and the scale is exact
    return tl.minimum(odd.to(tl.float32) * _V_SCALE, _LARGEST_V)


@jit
def exponential(word):
    """The race's exponential of a random word (uint32): -log2(1 - v), positive and normal."""
    return minus_log2_one_minus(uniform(word))


@jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four random words (uint32) of counter and key, which are uint32 tensors or scalars."""
    for _ in tl.static_range(10):
        p0 = c0.to(tl.uint64) * 0xD2511F53
        p1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c1 = p1.to(tl.uint32)
        c3 = p0.to(tl.uint32)
        k0 = (k0.to(tl.uint64) + 0x9E3779B9).to(tl.uint32)
        k1 = (k1.to(tl.uint64) + 0xBB67AE85).to(tl.uint32)
    return c0, c1, c2, c3


@jit
def draw_words(seed, position, purpose, lane):
    """The words 4*lane .. 4*lane + 3 (uint32) of a row's stream.

    Args:
        seed, position: int64, the bits of 64-bit numbers. purpose: int32. lane: int32 tensor or scalar.
    """
    seed = seed.to(tl.uint64, bitcast=True)
    position = position.to(tl.uint64, bitcast=True)
    c3 = lane.to(tl.uint32)
    zero = c3 ^ c3
    return philox(
        position.to(tl.uint32) + zero,
        (position >> 32).to(tl.uint32) + zero,
        purpose.to(tl.uint32) + zero,
        c3,
        seed.to(tl.uint32) + zero,
        (seed >> 32).to(tl.uint32) + zero,
    )


@jit
def order_key(z):
    """Signed int32 that orders fp32 numbers as they are; -0 equals +0. NaN gives anything."""
    b = float_bits(z + 0.0)
    return ((b >> 31) & 0x7FFFFFFF) ^ b


@jit
def key_value(key):
    """The fp32 number of an `order_key`, with +0 for zero."""
    return bits_float(((key >> 31) & 0x7FFFFFFF) ^ key)


@jit
def exponents(z, largest, rate):
    """(z - max) * rate in two roundings, and 0 where z is the maximum."""
    return tl.where(z == largest, 0.0, (z - largest) * rate)


@jit
def weights32(z, largest, rate):
    """31-bit fixed-point exp((z - max)/T), truncated, as uint32: 2^31 for the maximum."""
    return (exp2(exponents(z, largest, rate)) * FIXED_ONE).to(tl.uint32)


@jit
def weights(z, largest, rate):
    """`weights32` as int64, ready to be summed."""
    return weights32(z, largest, rate).to(tl.int64)
