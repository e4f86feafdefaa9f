# mypy: ignore-errors
"""Exponents, powers and the maximum of a row's tokens for vector registers, as docs/numerics.md has them.

Plain functions that emit instructions where they are called, and macros with loops; all within a SimdVF.
"""

import tilelang.ascend.language as T
from parts_math import Register, as_float, as_int, f32, horner
from tvm.tirx.script.builder.ir import bind

S = T.simd
LANES = 64
LOG2E, LN2 = float.fromhex("0x1.715476p+0"), float.fromhex("0x1.62e430p-1")
EXP2_COEFFICIENTS = tuple(map(float.fromhex, (
    "0x1.000000p+1", "0x1.62e430p+0", "0x1.ebfbdcp-2", "0x1.c6af7cp-4", "0x1.3b2de0p-6", "0x1.5f082ep-9",
    "0x1.416b52p-12",
)))  # fmt: skip
MAGIC, MAGIC_BITS = 12582912.0, 0x4B400000  # 1.5 * 2^23: a sum with it is rounded to an integer, ties to even
NEVER = float("-inf")


def exp2(x):
    """2^x for x <= 0, +0 below -125.5."""
    x = Register(S.vmaxs(x, f32(-126.0))).value
    shifted = Register(S.vadds(x, f32(MAGIC))).value
    f = Register(S.vsub(x, bind(S.vadds(shifted, f32(-MAGIC))))).value
    scale = bind(S.vshls(bind(S.vadds(as_int(shifted), T.int32(126 - MAGIC_BITS))), T.int16(23)))
    return Register(S.vmul(horner(f, EXP2_COEFFICIENTS), as_float(scale))).value


def exponent(z, top, rate):
    """(z - top) * rate in two roundings, 0 where z = top."""
    same = bind(S.vcmp(z, top, op="eq"))
    scaled = bind(S.vmul(bind(S.vsub(z, top)), rate))
    return Register(S.vsel(bind(S.vdup(f32(0.0), "float32")), scaled, same)).value


def kept(z, token, threshold, last, inside):
    """The mask of tokens that a filter keeps: above its threshold, or at it and up to its last id."""
    equal = bind(S.vcmp(z, threshold, mask=inside, op="eq"))
    early = bind(S.vcmps(token, last, mask=equal, op="le"))
    above = bind(S.vcmp(z, threshold, mask=inside, op="gt"))
    return bind(S.por(early, above, inside))


@T.macro
def clear_max(best, bad):
    """No number seen, no NaN seen; 64 lanes each."""
    S.vsts(best[0], S.vdup(T.float32(NEVER), "float32"))
    S.vsts(bad[0], S.vdup(T.int32(0), "int32"))


@T.macro
def chunk_max(z, best, bad, count):
    """The largest number of each lane, and whether there was a NaN; lanes behind `count` are not looked at."""
    largest = S.alloc_var("float32")
    wrong = S.alloc_var("int32")
    largest = S.vld(best[0])
    wrong = S.vld(bad[0])
    one = S.vdup(T.int32(1), "int32")
    for c in T.serial(T.ceildiv(count, LANES)):
        some = S.update_mask(count - c * LANES, 32)
        x = S.vld(z[c * LANES])
        more = S.vcmp(x, largest, mask=some, op="gt")
        nan = S.vcmp(x, x, mask=some, op="ne")
        largest = S.vsel(x, largest, more)
        wrong = S.vsel(one, wrong, nan)
    S.vsts(best[0], largest)
    S.vsts(bad[0], wrong)


@T.macro
def finish_max(best, bad):
    """The row's maximum in all lanes, NaN if it has one."""
    largest = S.vdupv(S.vcmax(S.vld(best[0])))
    wrong = S.vcmps(S.vdupv(S.vcmax(S.vld(bad[0]))), T.int32(0), op="gt")
    S.vsts(best[0], S.vsel(S.vdup(T.float32(float("nan")), "float32"), largest, wrong))
