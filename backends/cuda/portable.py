"""Casts and dots that are right both on a GPU and in Triton's interpreter. Kernels take them from here alone.

The interpreter computes no usable bf16 arithmetic, rounds fp32 to bf16 and fp8 wrongly, and casts fp8 to bf16 wrongly.
So codes travel as integers, arithmetic is in fp32, and in the interpreter every cast here is done on bits. The formats
and their rounding are those of docs/numerics.md, section 8.

Everything is elementwise (but `dot`), takes tensors of any shape, and allocates nothing.
"""

from __future__ import annotations

import triton.language as tl

from .jit import INTERPRETED as _INTERPRETED
from .jit import jit

INTERPRETED: tl.constexpr = tl.constexpr(_INTERPRETED)
"""True in the interpreter; chooses between instructions and the same on bits, in device code."""

E4M3_MAX: tl.constexpr = tl.constexpr(448.0)
E2M1_MAX: tl.constexpr = tl.constexpr(6.0)


@jit
def bits(x):
    """The bits of an fp32 tensor, as int32."""
    return x.to(tl.int32, bitcast=True)


@jit
def from_bits(b):
    """The fp32 tensor with these bits (int32 or uint32)."""
    return b.to(tl.float32, bitcast=True)


@jit
def dot(a, b, acc):
    """acc + a @ b in fp32; a [M, K] and b [K, N] both bf16, both fp16, both float8e4nv, or both fp32.

    fp32 operands are multiplied as fp32 (never TF32). The interpreter sums in fp64 and rounds once, so that a row's sum
    does not depend on the rows beside it; tensor cores sum in fp32 and cut.
    """
    if INTERPRETED:
        if a.dtype == tl.float8e4nv:
            a = e4m3_to_f32(a.to(tl.uint8, bitcast=True))
            b = e4m3_to_f32(b.to(tl.uint8, bitcast=True))
        elif a.dtype == tl.bfloat16:
            a = bf16_to_f32(a)
            b = bf16_to_f32(b)
        product = tl.dot(a.to(tl.float64), b.to(tl.float64), out_dtype=tl.float64)
        return (acc.to(tl.float64) + product).to(tl.float32)
    else:
        return tl.dot(a, b, acc, input_precision="ieee")


@jit
def bf16_to_f32(x):
    """fp32 of bf16; exact."""
    if INTERPRETED:
        return from_bits(x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16)
    else:
        return x.to(tl.float32)


@jit
def to_bf16(x):
    """bf16 of fp32: nearest, ties to even; NaN becomes 0x7FFF, as NVIDIA's instruction has it."""
    if INTERPRETED:
        b = x.to(tl.uint32, bitcast=True)
        rounded = (b + 0x7FFF + ((b >> 16) & 1)) >> 16
        code = tl.where((b & 0x7FFFFFFF) > 0x7F800000, 0x7FFF, rounded)
        return code.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:
        return x.to(tl.bfloat16)


@jit
def round_bf16(x):
    """fp32 rounded to bf16 and back."""
    return bf16_to_f32(to_bf16(x))


@jit
def to_e4m3(x):
    """E4M3 codes (uint8) of fp32: nearest, ties to even, saturating at 448 (infinity too); NaN becomes 0x7F."""
    if INTERPRETED:
        b = x.to(tl.uint32, bitcast=True)
        sign = (b >> 24) & 0x80
        magnitude = b & 0x7FFFFFFF
        # Normal codes: drop 20 bits, half to even, and move the exponent's bias from 127 to 7.
        normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
        # Below 2^-6 codes are multiples of 2^-9; adding 2^23 rounds to whole numbers, half to even.
        small = (from_bits(tl.minimum(magnitude, 0x3C800000)) * 512.0 + 8388608.0).to(tl.uint32, bitcast=True) & 0xFF
        code = tl.where(magnitude < 0x3C800000, small, normal)
        code = tl.where(magnitude >= 0x43E00000, 0x7E, code)
        code = tl.where(magnitude > 0x7F800000, 0x7F, code | sign)
        return code.to(tl.uint8)
    else:
        return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@jit
def e4m3_to_f32(code):
    """fp32 of E4M3 codes (uint8); exact. 0x7F and 0xFF give NaN."""
    if INTERPRETED:
        magnitude = (code & 0x7F).to(tl.uint32)
        value = from_bits(magnitude << 20) * 1.329227995784916e36  # 2^120 moves the exponent's bias from 7 to 127
        value = tl.where(magnitude == 0x7F, float("nan"), value)
        return from_bits(value.to(tl.uint32, bitcast=True) | ((code & 0x80).to(tl.uint32) << 24))
    else:
        return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@jit
def to_e2m1(x):
    """E2M1 codes 0..15 (uint8) of fp32: nearest, ties to the even code, saturating at 6; NaN becomes 0."""
    m = tl.abs(x)
    # Four codes lie above 0 up to 2, two up to 4, one up to 6. Each part is rounded, half to even, by adding a
    # power of two whose last place is a step of the part: 1/2, 1 and 2. The even multiples have the even codes.
    low = bits(tl.minimum(m, 2.0) + 4194304.0) - 0x4A800000
    middle = bits(tl.minimum(tl.maximum(m, 2.0), 4.0) + 8388608.0) - 0x4B000002
    high = bits(tl.minimum(tl.maximum(m, 4.0), 6.0) + 16777216.0) - 0x4B800002
    code = (low + middle + high) | ((bits(x) >> 28) & 8)
    return tl.where(x != x, 0, code).to(tl.uint8)


@jit
def e2m1_to_f32(code):
    """fp32 of E2M1 codes (integers; bits above the fourth are not looked at); exact."""
    c = code.to(tl.uint32)
    # Two exponent bits (bias 1) and one of the fraction, put where fp32 has its own; 2^126 moves the bias to 127.
    return from_bits(((c & 8) << 28) | ((c & 7) << 22)) * 8.507059173023462e37


@jit
def e8m0_to_f32(scale):
    """fp32 2^(b - 127) of scale bytes b (uint8); byte 0 is the subnormal 2^-127, byte 255 is NaN."""
    b = scale.to(tl.uint32)
    plain = tl.where(b == 0, 0x00400000, b << 23)
    return from_bits(tl.where(b == 255, 0x7FC00000, plain).to(tl.uint32))


@jit
def e8m0_ceil(amax, LIMIT: tl.constexpr):
    """The smallest power of two 2^e >= amax / LIMIT: its byte (uint8) and 2^-e (fp32).

    amax: fp32, at least the floor of its quantiser; infinity and NaN give byte 255 and NaN. LIMIT: 448.0 or 6.0.
    """
    inverse: tl.constexpr = 1.0 / LIMIT
    below = ((amax * inverse).to(tl.uint32, bitcast=True) - 1) >> 23  # e + 126; 254 and 255 if not finite
    finite = below < 254
    byte = tl.where(finite, below + 1, 255).to(tl.uint8)
    return byte, from_bits(tl.where(finite, (253 - below) << 23, 0x7FC00000).to(tl.uint32))
