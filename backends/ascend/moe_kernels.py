# mypy: ignore-errors
"""Combination of expert outputs, SIMD: the sum of a token's rows in fp32 in UB, slot by slot."""

import tilelang.ascend.language as T

BF16, F32, I32 = T.bfloat16, T.float32, T.int32
LANES = 64


def moe_combine(most=8192):
    """bf16(sum of the rows that `position` names, slots ascending, then `shared`); -1 names none. D up to `most`."""
    S = T.simd
    m, M, D, k = T.dynamic("m"), T.dynamic("M"), T.dynamic("D"), T.dynamic("k")

    @T.prim_func
    def moe_combine(
        X: T.Tensor((M, D), BF16),
        P: T.Tensor((m, k), I32),
        H: T.Tensor((m, D), BF16),
        Y: T.Tensor((m, D), BF16),
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            h = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            total = T.alloc_shared((most,), F32)
            T.annotate_buffer_versions({total: 1})
            T.assume(0 < D)
            T.assume(D <= most)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.copy(H[r, 0:D], h[0:D])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(D, LANES)):
                        S.vsts(total[c * LANES], S.vdup(T.float32(0), "float32"))
                for j in T.serial(k):
                    p = P[r, j]
                    if p >= 0:
                        T.assume(p < M)
                        T.copy(X[p, 0:D], x[0:D])
                        with T.SimdVF():
                            for c in T.serial(T.ceildiv(D, LANES)):
                                some = S.update_mask(D - c * LANES, 32)
                                v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                S.vsts(total[c * LANES], S.vadd(S.vld(total[c * LANES]), v, mask=some), mask=some)
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(D, LANES)):
                        rest = S.update_mask(D - c * LANES, 32)
                        u = S.vcvt(S.vld(h[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        z = S.vcvt(S.vadd(S.vld(total[c * LANES]), u, mask=rest), "bfloat16", part=0)
                        S.vsts(y[c * LANES], z, mask=rest, dist="PK_B32")
                T.copy(y[0:D], Y[r, 0:D])

    return moe_combine
