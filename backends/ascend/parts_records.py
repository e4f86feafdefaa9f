# mypy: ignore-errors
"""Parts of kernels that write cache records: rotation of a row, scales and codes of its groups (docs/numerics.md).

A row of K channels is in UB as bf16. `top` gets the largest magnitudes of 8 channels each, as bits of fp32; `inverse`
the factor of the codes for every 8 channels, as bits, NaN for groups without codes; `e` the scale bytes, `q` the codes.
"""

import tilelang.ascend.language as T

LANES = 64
INFINITE, NAN = 0x7F800000, 0x7FC00000
LEAST = {"fp8_32": 0x38D1B717, "fp4_16": 0x3C400000, "fp4_32": 0x01C00000}  # 1e-4, 6 * 2^-9, 6 * 2^-126
LARGEST = {"fp8_32": (0x1FFFFF, 8), "fp4_32": (0x3FFFFF, 2)}  # 448 = 1.75 * 2^8, 6 = 1.5 * 2^2: what carries, exponent
SIXTH, E4M3_MOST = float.fromhex("0x1.555556p-3"), 448.0
HALVES, ONES, TWOS = 1.5 * 2.0**22, 1.5 * 2.0**23, 1.5 * 2.0**24  # to add: rounds to multiples of 1/2, 1 and 2
HALF_BITS, ONE_BITS, TWO_BITS = 0x4AC00000, 0x4B400000, 0x4BC00000
MAGNITUDE = 0x7FFFFFFF


@T.macro
def rotate(x, table, begin, turned):
    """Pairs of the channels from `begin` on, turned by the angles of the row's position, rounded to bf16 in place."""
    S = T.simd
    for c in T.serial(T.ceildiv(turned, LANES)):
        some = S.update_mask(turned - c * LANES, 32)
        t = S.vld(table[c * LANES])
        cosine, sine = S.vdintlv(t, t)
        cosines, _unused = S.vintlv(cosine, cosine)
        sines, _unused2 = S.vintlv(S.vmuls(sine, T.float32(-1)), sine)
        v = S.vcvt(S.vld(x[begin + c * LANES], dist="UNPK_B16"), "float32", part=0)
        a, b = S.vdintlv(v, v)
        w, _unused3 = S.vintlv(b, a)
        y = S.vadd(S.vmul(v, cosines, mask=some), S.vmul(w, sines, mask=some), mask=some)
        S.vsts(x[begin + c * LANES], S.vcvt(y, "bfloat16", part=0), mask=some, dist="PK_B32")


@T.macro
def magnitudes(x, top, K):
    """Largest magnitudes of 8 channels each."""
    S = T.simd
    eight = S.pset(32, "PAT_VL8")
    for c in T.serial(T.ceildiv(K, LANES)):
        some = S.update_mask(K - c * LANES, 32)
        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
        size = S.vand(T.reinterpret(v, "int32x64"), S.vdup(T.int32(MAGNITUDE), "int32"))
        S.vsts(top[c * 8], S.vcgmax(size, mask=some), mask=eight)


@T.macro
def power_scales(top, inverse, e, K, least, carry, exponents):
    """Of groups of 32: the least power of two that is enough; 255 where a group has NaN or infinity."""
    S = T.simd
    for g in T.serial(T.ceildiv(K, 8 * LANES)):
        some = S.update_mask(K // 32 - g * 16, 32)
        v = S.vld(top[g * LANES])
        even, odd = S.vdintlv(v, v)
        pair = S.vmax(even, odd)
        left, right = S.vdintlv(pair, pair)
        largest = S.vmaxs(S.vmax(left, right), T.int32(least))
        exponent = S.vadds(S.vshrs(S.vadds(largest, T.int32(carry)), T.int16(23)), T.int32(-exponents))
        finite = S.vcmps(largest, T.int32(INFINITE), op="lt")
        byte = S.vsel(exponent, S.vdup(T.int32(255), "int32"), finite)
        S.vsts(e[g * 16], T.reinterpret(byte, "uint8x256"), mask=some, dist="PK4_B32")
        bits = S.vshls(S.vsub(S.vdup(T.int32(254), "int32"), exponent), T.int16(23))
        one = S.vsel(bits, S.vdup(T.int32(NAN), "int32"), finite)
        twice, _unused = S.vintlv(one, one)
        fourfold, _unused2 = S.vintlv(twice, twice)
        S.vsts(inverse[g * LANES], fourfold)


@T.macro
def e4m3_scales(top, inverse, e, K):
    """Of groups of 16: a sixth of the largest as E4M3, at most 448, and its reciprocal; 0x7F where one is NaN."""
    S = T.simd
    for g in T.serial(T.ceildiv(K, 8 * LANES)):
        some = S.update_mask(T.min(K // 16 - g * 32, 32), 32)
        v = S.vld(top[g * LANES])
        even, odd = S.vdintlv(v, v)
        largest = S.vmaxs(S.vmax(even, odd), T.int32(LEAST["fp4_16"]))
        number = S.vcmps(largest, T.int32(INFINITE), op="le")
        sixth = S.vmins(S.vmuls(T.reinterpret(largest, "float32x64"), T.float32(SIXTH)), T.float32(E4M3_MOST))
        clean = S.vsel(sixth, S.vdup(T.float32(E4M3_MOST), "float32"), number)
        code = S.vcvt(clean, "float8_e4m3fn", part=0)
        byte = S.vsel(T.reinterpret(code, "int32x64"), S.vdup(T.int32(0x7F), "int32"), number)
        S.vsts(e[g * 32], T.reinterpret(byte, "uint8x256"), mask=some, dist="PK4_B32")
        factor = S.vdiv(S.vdup(T.float32(1), "float32"), S.vcvt(code, "float32", part=0))
        one = S.vsel(T.reinterpret(factor, "int32x64"), S.vdup(T.int32(NAN), "int32"), number)
        twice, _unused = S.vintlv(one, one)
        S.vsts(inverse[g * LANES], twice)


@T.macro
def codes_of_8_bits(x, q, inverse, K):
    """E4M3 of each channel."""
    S = T.simd
    for c in T.serial(T.ceildiv(K, LANES)):
        some = S.update_mask(K - c * LANES, 32)
        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
        factor = S.vld(inverse[c * 8], dist="E2B_B32")
        bad = S.vcmps(factor, T.int32(NAN), op="eq")
        scaled = S.vmul(v, T.reinterpret(factor, "float32x64"), mask=some)
        code = S.vcvt(scaled, "float8_e4m3fn", part=0)
        byte = S.vsel(S.vdup(T.int32(0x7F), "int32"), T.reinterpret(code, "int32x64"), bad)
        S.vsts(q[c * LANES], T.reinterpret(byte, "uint8x256"), mask=some, dist="PK4_B32")


@T.macro
def codes_of_4_bits(x, q, inverse, K):
    """E2M1 of each channel, the even one of a pair in the low half of a byte.

    Adding 1.5 * 2^23 steps rounds to multiples of the step, halfway to even: steps of 1/2 below 2, of 1 below 4, of 2
    from there on. The sum's last bits count the steps; 2 or 4 are added for the steps that the smaller numbers had.
    """
    S = T.simd
    for c in T.serial(T.ceildiv(K, LANES)):
        some = S.update_mask(T.min(K // 2 - c * (LANES // 2), LANES // 2), 32)
        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
        factor = S.vld(inverse[c * 8], dist="E2B_B32")
        bad = S.vcmps(factor, T.int32(NAN), op="eq")
        bits = T.reinterpret(S.vmul(v, T.reinterpret(factor, "float32x64")), "int32x64")
        size = T.reinterpret(S.vand(bits, S.vdup(T.int32(MAGNITUDE), "int32")), "float32x64")
        most = S.vmins(size, T.float32(6))
        above2 = S.vcmps(most, T.float32(2), op="ge")
        above4 = S.vcmps(most, T.float32(4), op="ge")
        upper = S.vsel(S.vdup(T.float32(TWOS), "float32"), S.vdup(T.float32(ONES), "float32"), above4)
        step = S.vsel(upper, S.vdup(T.float32(HALVES), "float32"), above2)
        upper_base = S.vsel(S.vdup(T.int32(TWO_BITS - 4), "int32"), S.vdup(T.int32(ONE_BITS - 2), "int32"), above4)
        base = S.vsel(upper_base, S.vdup(T.int32(HALF_BITS), "int32"), above2)
        code = S.vsub(T.reinterpret(S.vadd(most, step), "int32x64"), base)
        sign = S.vand(S.vshrs(bits, T.int16(28)), S.vdup(T.int32(8), "int32"))
        whole = S.vsel(S.vdup(T.int32(0), "int32"), S.vadd(code, sign), bad)
        even, odd = S.vdintlv(whole, whole)
        byte = S.vadd(even, S.vshls(odd, T.int16(4)))
        S.vsts(q[c * (LANES // 2)], T.reinterpret(byte, "uint8x256"), mask=some, dist="PK4_B32")
