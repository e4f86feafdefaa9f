# mypy: ignore-errors
"""Root-mean-square normalisation and quantisation of what it gives, SIMD."""

import tilelang.ascend.language as T
from parts_quant import group_scales, quantise

BF16, F32, F8, U8, I32, I64 = T.bfloat16, T.float32, T.float8_e4m3fn, T.uint8, T.int32, T.int64
LANES = 64


def rms_norm_quant(most=8192):
    """y as `rms_norm` gives it, codes and scale bytes of it as it was rounded. K up to `most`, any row stride."""
    S = T.simd
    span, m, K = T.dynamic("span", "int64"), T.dynamic("m"), T.dynamic("K")

    @T.prim_func
    def rms_norm_quant(
        X: T.Tensor((span,), BF16),
        W: T.Tensor((K,), BF16),
        Y: T.Tensor((m, K), BF16),
        Q: T.Tensor((m, K), F8),
        E: T.Tensor((m, K // 32), U8),
        stride: T.int64,
        width: T.float32,
        eps: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            w = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), F8)
            e = T.alloc_shared((most // 32 + 16,), U8)
            T.annotate_buffer_versions({top: 1, inverse: 1})
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 32 == 0)
            T.assume(0 < cores)
            T.copy(W[0:K], w[0:K])
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = T.cast(bx, I64) + T.cast(i, I64) * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= r * stride)
                T.assume(r * stride + K <= span)
                T.copy(X[r * stride : r * stride + K], x[0:K])
                with T.SimdVF():
                    total = S.alloc_var(F32)
                    total = S.vdup(T.float32(0), "float32")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        some = S.update_mask(K - c * LANES, 32)
                        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        total = S.vadd(total, S.vmul(v, v, mask=some))
                    mean = S.vdiv(S.vdupv(S.vcadd(total)), S.vdup(width, "float32"))
                    root = S.vdiv(S.vdup(T.float32(1), "float32"), S.vsqrt(S.vadds(mean, eps)))
                    for c in T.serial(T.ceildiv(K, LANES)):
                        rest = S.update_mask(K - c * LANES, 32)
                        u = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        g = S.vcvt(S.vld(w[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        z = S.vmul(S.vmul(u, root, mask=rest), g, mask=rest)
                        S.vsts(y[c * LANES], S.vcvt(z, "bfloat16", part=0), mask=rest, dist="PK_B32")
                    S.mem_bar("VST_VLD")
                    eight = S.pset(32, "PAT_VL8")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        there = S.update_mask(K - c * LANES, 32)
                        a = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        size = S.vand(T.reinterpret(a, "int32x64"), S.vdup(T.int32(0x7FFFFFFF), "int32"))
                        S.vsts(top[c * 8], S.vcgmax(size, mask=there), mask=eight)
                    S.mem_bar("VST_VLD")
                    group_scales(top, inverse, e, K)
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        final = S.update_mask(K - c * LANES, 32)
                        b = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        quantise(q, c, b, inverse, final)
                T.copy(y[0:K], Y[r, 0:K])
                T.copy(q[0:K], Q[r, 0:K])
                T.copy(e[0 : K // 32], E[r, 0 : K // 32])

    return rms_norm_quant
