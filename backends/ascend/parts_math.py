# mypy: ignore-errors
"""Written-down fp32 functions and Philox4x32-10 for vector registers, bit by bit as docs/numerics.md has them.

Plain functions that emit instructions where they are called, one rounding each; they are called within a SimdVF.
Long chains of results go through variables (`Register`): the compiler's simplifier looks through names, and takes time
that doubles with the length of a chain.
"""

import tilelang.ascend.language as T
from tilelang.language.allocate import alloc_var
from tvm.tirx import BufferLoad
from tvm.tirx.script.builder.ir import bind, buffer_store

S = T.simd
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOG2_COEFFICIENTS = tuple(map(float.fromhex, (
    "0x1.715476p+0", "-0x1.715472p-1", "0x1.ec7366p-2", "-0x1.715b7ep-2", "0x1.26dd48p-2", "-0x1.e9809ep-3",
    "0x1.b94dfap-3", "-0x1.a78030p-3", "0x1.01ba32p-3",
)))  # fmt: skip
LARGEST_V = 1.0 - 2.0**-24
SQRT_HALF_BITS = 0x3F3504F3


def f32(value):
    """A scalar constant."""
    return T.float32(value)


def as_int(x):
    """The bits of a register as signed integers."""
    return bind(T.reinterpret(x, "int32x64"))


def as_float(x):
    """The bits of a register as fp32."""
    return bind(T.reinterpret(x, "float32x64"))


class Register:
    """A variable that holds a register."""

    def __init__(self, value):
        self.buffer = alloc_var(str(value.dtype), scope="local.var")
        self.set(value)

    def set(self, value):
        """Assign."""
        buffer_store(self.buffer, value, [0])

    @property
    def value(self):
        """What it holds."""
        return BufferLoad(self.buffer, [0])


def horner(x, coefficients):
    """Highest coefficient first, a rounding after every product and every sum."""
    value = Register(S.vmuls(x, f32(coefficients[-1])))
    for c in coefficients[-2:0:-1]:
        value.set(S.vadds(value.value, f32(c)))
        value.set(S.vmul(value.value, x))
    value.set(S.vadds(value.value, f32(coefficients[0])))
    return value.value


def split(x):
    """x = 2^k m with m in [sqrt(1/2), sqrt(2)): k as integers, and m - 1."""
    bits = as_int(Register(x).value)
    k = bind(S.vshrs(bind(S.vadds(bits, T.int32(-SQRT_HALF_BITS))), T.int16(23)))
    mantissa = bind(S.vsub(bits, bind(S.vshls(k, T.int16(23)))))
    return Register(k).value, Register(S.vadds(as_float(mantissa), f32(-1.0))).value


def log2(x):
    """log2 of positive normal numbers."""
    k, f = split(x)
    product = bind(S.vmul(horner(f, LOG2_COEFFICIENTS), f))
    return bind(S.vadd(product, bind(S.vcvt(k, "float32"))))


def minus_log2_one_minus(v):
    """-log2(1 - v) for v in [2^-33, 1 - 2^-24]."""
    k, f = split(bind(S.vadds(bind(S.vmuls(v, f32(-1.0))), f32(1.0))))
    near = bind(S.vcmps(k, T.int32(0), op="eq"))
    f = Register(S.vsel(bind(S.vmuls(v, f32(-1.0))), f, near)).value
    product = bind(S.vmul(horner(f, LOG2_COEFFICIENTS), f))
    return bind(S.vmuls(bind(S.vadd(product, bind(S.vcvt(k, "float32")))), f32(-1.0)))


def uniform(word):
    """(x + 1/2) / 2^32 of words x, rounded once, at most 1 - 2^-24: both parts of the sum are exact."""
    high = bind(S.vcvt(as_int(bind(S.vshrs(word, T.int16(12)))), "float32"))
    low = bind(S.vcvt(as_int(bind(S.vand(word, bind(S.vdup(T.uint32(0xFFF), "uint32"))))), "float32"))
    total = bind(S.vadd(bind(S.vmuls(high, f32(4096.0))), bind(S.vadds(low, f32(0.5)))))
    return Register(S.vmins(bind(S.vmuls(total, f32(2.0**-32))), f32(LARGEST_V))).value


def philox(counter, key):
    """Four words of 32 bits for each lane; counter: four registers, key: two scalars, all uint32."""
    c0, c1, c2, c3 = (Register(c) for c in counter)
    k0, k1 = (Register(S.vdup(k, "uint32")) for k in key)
    first, second = (bind(S.vdup(T.uint32(m), "uint32")) for m in MULTIPLIERS)
    for step in range(ROUNDS):
        if step:
            k0.set(S.vadds(k0.value, T.uint32(WEYL[0])))
            k1.set(S.vadds(k1.value, T.uint32(WEYL[1])))
        low0, high0 = S.vmull(c0.value, first)
        low1, high1 = S.vmull(c2.value, second)
        c0.set(S.vxor(S.vxor(high1, c1.value), k0.value))
        c1.set(low1)
        c2.set(S.vxor(S.vxor(high0, c3.value), k1.value))
        c3.set(low0)
    return c0.value, c1.value, c2.value, c3.value


def better(best, ids, score, token):
    """The larger of two scores and its id; the first where they are equal."""
    more = bind(S.vcmp(score, best, op="gt"))
    return Register(S.vsel(score, best, more)).value, Register(S.vsel(token, ids, more)).value
