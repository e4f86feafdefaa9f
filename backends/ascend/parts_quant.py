# mypy: ignore-errors
"""Parts of kernels that quantise to E4M3 in groups of 32 with one power of two as scale (docs/numerics.md)."""

import tilelang.ascend.language as T

LANES = 64
FLOOR = 0x38D1B717  # bits of 1e-4, the least maximum of a group
INFINITE = 0x7F800000
NAN = 0x7FC00000


@T.macro
def group_scales(top, inverse, e, K):
    """From the largest magnitudes (fp32 bits) of 8 channels each: scale bytes, and bits of 1/scale, one for 8 channels.

    Four neighbours are a group of 32. The scale is the least power of two from maximum/448 on, 448 = 1.75 * 2^8: its
    exponent is the maximum's less 8, one more where the mantissa is above 0.75. A group with NaN or infinity has scale
    byte 255 and NaN as 1/scale.
    """
    S = T.simd
    for g in T.serial(T.ceildiv(K, 8 * LANES)):
        some = S.update_mask(K // 32 - g * 16, 32)
        v = S.vld(top[g * LANES])
        even, odd = S.vdintlv(v, v)
        pair = S.vmax(even, odd)
        left, right = S.vdintlv(pair, pair)
        largest = S.vmaxs(S.vmax(left, right), T.int32(FLOOR))
        exponent = S.vadds(S.vshrs(S.vadds(largest, T.int32(0x1FFFFF)), T.int16(23)), T.int32(-8))
        finite = S.vcmps(largest, T.int32(INFINITE), op="lt")
        byte = S.vsel(exponent, S.vdup(T.int32(255), "int32"), finite)
        S.vsts(e[g * 16], T.reinterpret(byte, "uint8x256"), mask=some, dist="PK4_B32")
        bits = S.vshls(S.vsub(S.vdup(T.int32(254), "int32"), exponent), T.int16(23))
        one = S.vsel(bits, S.vdup(T.int32(NAN), "int32"), finite)
        twice, _unused = S.vintlv(one, one)
        fourfold, _unused2 = S.vintlv(twice, twice)
        S.vsts(inverse[g * LANES], fourfold)


@T.macro
def quantise(q, c, v, inverse, mask):
    """Store the codes of 64 fp32 channels, the c-th 64 of the row."""
    S = T.simd
    factor = S.vld(inverse[c * 8], dist="E2B_B32")
    bad = S.vcmps(factor, T.int32(NAN), op="eq")
    scaled = S.vmul(v, T.reinterpret(factor, "float32x64"), mask=mask)
    nan = T.reinterpret(S.vdup(T.int32(NAN), "int32"), "float32x64")
    clean = S.vsel(nan, scaled, bad)
    S.vsts(q[c * LANES], S.vcvt(clean, "float8_e4m3fn", part=0), mask=mask, dist="PK4_B32")
