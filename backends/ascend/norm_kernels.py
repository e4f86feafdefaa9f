# mypy: ignore-errors
"""Root-mean-square normalisation, SIMD: a row at a time in UB, its squares summed by lanes of 64."""

import tilelang.ascend.language as T

BF16, F32, I64 = T.bfloat16, T.float32, T.int64
LANES = 64


def rms_norm(most=8192):
    """y = bf16(x * rsqrt(mean(x^2) + eps) * weight); D up to `most`, any stride between rows."""
    S = T.simd
    span, m, D = T.dynamic("span", "int64"), T.dynamic("m"), T.dynamic("D")

    @T.prim_func
    def rms_norm(
        X: T.Tensor((span,), BF16),
        W: T.Tensor((D,), BF16),
        Y: T.Tensor((m, D), BF16),
        stride: T.int64,
        width: T.float32,
        eps: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            w = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            T.assume(0 < D)
            T.assume(D <= most)
            T.assume(0 < cores)
            T.copy(W[0:D], w[0:D])
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = T.cast(bx, I64) + T.cast(i, I64) * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= r * stride)
                T.assume(r * stride + D <= span)
                T.copy(X[r * stride : r * stride + D], x[0:D])
                with T.SimdVF():
                    total = S.alloc_var(F32)
                    total = S.vdup(T.float32(0), "float32")
                    for c in T.serial(T.ceildiv(D, LANES)):
                        some = S.update_mask(D - c * LANES, 32)
                        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        total = S.vadd(total, S.vmul(v, v, mask=some))
                    mean = S.vdiv(S.vdupv(S.vcadd(total)), S.vdup(width, "float32"))
                    root = S.vdiv(S.vdup(T.float32(1), "float32"), S.vsqrt(S.vadds(mean, eps)))
                    for c in T.serial(T.ceildiv(D, LANES)):
                        rest = S.update_mask(D - c * LANES, 32)
                        u = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        g = S.vcvt(S.vld(w[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        z = S.vmul(S.vmul(u, root, mask=rest), g, mask=rest)
                        S.vsts(y[c * LANES], S.vcvt(z, "bfloat16", part=0), mask=rest, dist="PK_B32")
                T.copy(y[0:D], Y[r, 0:D])

    return rms_norm
