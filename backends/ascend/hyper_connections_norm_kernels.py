# mypy: ignore-errors
"""Input of a sub-layer, SIMD: streams collapsed, normed and quantised, a row at a time in UB."""

import tilelang.ascend.language as T
from parts_quant import group_scales, quantise

BF16, F32, F8, U8, I32 = T.bfloat16, T.float32, T.float8_e4m3fn, T.uint8, T.int32
LANES = 64


def hc_collapse_norm(most=8192, streams=4):
    """Rows collapsed and rounded, normed, rounded and quantised, with the bits of the three kernels one by one.

    K a multiple of 32 up to `most`. The collapsed row lies where its normed values come.
    """
    S = T.simd
    m, n, K = T.dynamic("m"), T.dynamic("n"), T.dynamic("K")

    @T.prim_func
    def hc_collapse_norm(
        X: T.Tensor((m, n, K), BF16),
        A: T.Tensor((m, n), F32),
        W: T.Tensor((K,), BF16),
        Y: T.Tensor((m, K), BF16),
        Q: T.Tensor((m, K), F8),
        E: T.Tensor((m, K // 32), U8),
        width: T.float32,
        eps: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((streams, most), BF16)
            a = T.alloc_shared((LANES,), F32)
            w = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), F8)
            e = T.alloc_shared((most // 32 + 16,), U8)
            T.annotate_buffer_versions({w: 1, top: 1, inverse: 1})
            T.assume(0 < n)
            T.assume(n <= streams)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 32 == 0)
            T.assume(0 < cores)
            T.copy(W[0:K], w[0:K])
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.copy(X[r, 0:n, 0:K], x[0:n, 0:K])
                T.copy(A[r, 0:n], a[0:n])
                with T.SimdVF():
                    eight = S.pset(32, "PAT_VL8")
                    total = S.alloc_var(F32)
                    total = S.vdup(T.float32(0), "float32")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        some = S.update_mask(K - c * LANES, 32)
                        sum = S.alloc_var(F32)
                        first = S.vcvt(S.vld(x[0, c * LANES], dist="UNPK_B16"), "float32", part=0)
                        sum = S.vmul(first, S.vld(a[0], dist="BRC_B32"), mask=some)
                        for j in T.serial(1, n):
                            other = S.vcvt(S.vld(x[j, c * LANES], dist="UNPK_B16"), "float32", part=0)
                            sum = S.vadd(sum, S.vmul(other, S.vld(a[j], dist="BRC_B32"), mask=some), mask=some)
                        u = S.vcvt(sum, "bfloat16", part=0)
                        S.vsts(y[c * LANES], u, mask=some, dist="PK_B32")
                        v = S.vcvt(u, "float32", part=0)
                        total = S.vadd(total, S.vmul(v, v, mask=some))
                    mean = S.vdiv(S.vdupv(S.vcadd(total)), S.vdup(width, "float32"))
                    root = S.vdiv(S.vdup(T.float32(1), "float32"), S.vsqrt(S.vadds(mean, eps)))
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        rest = S.update_mask(K - c * LANES, 32)
                        mixed = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        g = S.vcvt(S.vld(w[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        z = S.vcvt(S.vmul(S.vmul(mixed, root, mask=rest), g, mask=rest), "bfloat16", part=0)
                        S.vsts(y[c * LANES], z, mask=rest, dist="PK_B32")
                        normed = T.reinterpret(S.vcvt(z, "float32", part=0), "int32x64")
                        size = S.vand(normed, S.vdup(T.int32(0x7FFFFFFF), "int32"))
                        S.vsts(top[c * 8], S.vcgmax(size, mask=rest), mask=eight)
                    S.mem_bar("VST_VLD")
                    group_scales(top, inverse, e, K)
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        last = S.update_mask(K - c * LANES, 32)
                        value = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        quantise(q, c, value, inverse, last)
                T.copy(y[0:K], Y[r, 0:K])
                T.copy(q[0:K], Q[r, 0:K])
                T.copy(e[0 : K // 32], E[r, 0 : K // 32])

    return hc_collapse_norm
