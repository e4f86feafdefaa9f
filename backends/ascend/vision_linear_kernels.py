# mypy: ignore-errors
"""What follows the products of the vision tower's linears, SIMD: bias, the error function's GELU, residual."""

import tilelang.ascend.language as T
from parts_math import Register, horner
from tvm.tirx.script.builder.ir import bind

BF16, F32, I32 = T.bfloat16, T.float32, T.int32
LANES = 64
ROOT_HALF = 0.7071067811865476
# erfc(x) = t exp(-x^2 + p(t)), t = 1 / (1 + x/2), x >= 0: within 1.2e-7 of itself everywhere.
ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223,
    0.17087277,
)  # fmt: skip


def gelu(z):
    """z (1 + erf(z / sqrt 2)) / 2; by erfc of the magnitude, so that far below zero nothing cancels."""
    S = T.simd
    x = Register(S.vmuls(bind(S.vabs(z)), T.float32(ROOT_HALF))).value
    half = bind(S.vadds(bind(S.vmuls(x, T.float32(0.5))), T.float32(1)))
    t = Register(S.vdiv(bind(S.vdup(T.float32(1), "float32")), half)).value
    power = bind(S.vsub(horner(t, ERFC), bind(S.vmul(x, x))))
    upper = Register(S.vmul(t, bind(S.vexp(power)))).value
    negative = bind(S.vcmps(z, T.float32(0), op="lt"))
    both = bind(S.vadds(bind(S.vmuls(upper, T.float32(-1))), T.float32(2)))
    return Register(
        S.vmul(bind(S.vmul(z, bind(S.vsel(upper, both, negative)))), bind(S.vdup(T.float32(0.5), "float32")))
    ).value


def vision_epilogue(most=8192):
    """y = bf16(residual + act(bf16(sum + bias))), `most` columns at a time; without bias, residual or activation 0."""
    S = T.simd
    m, N, n, q = T.dynamic("m"), T.dynamic("N"), T.dynamic("n"), T.dynamic("q")

    @T.macro
    def rounded(v, y, c, mask):
        S.vsts(y[c * LANES], S.vcvt(v, "bfloat16", part=0), mask=mask, dist="PK_B32")

    @T.prim_func
    def vision_epilogue(
        X: T.Tensor((m, N), F32),
        B: T.Tensor((n,), BF16),
        R: T.Tensor((q, N), BF16),
        Y: T.Tensor((m, N), BF16),
        biased: T.int32,
        added: T.int32,
        active: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), F32)
            b = T.alloc_shared((most,), BF16)
            old = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            T.annotate_buffer_versions({x: 1, b: 1, old: 1, y: 1})
            T.assume(0 < cores)
            T.assume(0 < N)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                for ch in T.serial(T.ceildiv(N, most)):
                    count = T.min(most, N - ch * most)
                    T.assume(0 < count)
                    T.copy(X[r, ch * most : ch * most + count], x[0:count])
                    if biased > 0:
                        T.assume(ch * most + count <= n)
                        T.copy(B[ch * most : ch * most + count], b[0:count])
                    if added > 0:
                        T.assume(r < q)
                        T.copy(R[r, ch * most : ch * most + count], old[0:count])
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(count, LANES)):
                            some = S.update_mask(count - c * LANES, 32)
                            if biased > 0:
                                v = S.vld(x[c * LANES])
                                w = S.vcvt(S.vld(b[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                rounded(S.vadd(v, w), y, c, some)
                            else:
                                rounded(S.vld(x[c * LANES]), y, c, some)
                        S.mem_bar("VST_VLD")
                        if active > 0:
                            for c in T.serial(T.ceildiv(count, LANES)):
                                rest = S.update_mask(count - c * LANES, 32)
                                z = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                rounded(gelu(z), y, c, rest)
                            S.mem_bar("VST_VLD")
                        if added > 0:
                            for c in T.serial(T.ceildiv(count, LANES)):
                                there = S.update_mask(count - c * LANES, 32)
                                u = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                o = S.vcvt(S.vld(old[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                rounded(S.vadd(o, u), y, c, there)
                    T.copy(y[0:count], Y[r, ch * most : ch * most + count])

    return vision_epilogue
