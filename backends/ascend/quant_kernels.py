# mypy: ignore-errors
"""Quantisation to E4M3 in groups of 32, SIMD."""

import tilelang.ascend.language as T
from parts_quant import group_scales, quantise

BF16, F32, F8, U8, I32, I64 = T.bfloat16, T.float32, T.float8_e4m3fn, T.uint8, T.int32, T.int64
LANES = 64


def quant_fp8(dtype="bfloat16", most=8192):
    """Codes and scale bytes of each row, K a multiple of 32 up to `most`, any stride between rows."""
    S = T.simd
    span, m, K = T.dynamic("span", "int64"), T.dynamic("m"), T.dynamic("K")

    @T.prim_func
    def quant_fp8(
        X: T.Tensor((span,), dtype),
        Q: T.Tensor((m, K), F8),
        E: T.Tensor((m, K // 32), U8),
        stride: T.int64,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), dtype)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), F8)
            e = T.alloc_shared((most // 32 + 16,), U8)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 32 == 0)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = T.cast(bx, I64) + T.cast(i, I64) * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= r * stride)
                T.assume(r * stride + K <= span)
                T.copy(X[r * stride : r * stride + K], x[0:K])
                with T.SimdVF():
                    eight = S.pset(32, "PAT_VL8")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        some = S.update_mask(K - c * LANES, 32)
                        if dtype == "bfloat16":
                            v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            magnitude = S.vand(T.reinterpret(v, "int32x64"), S.vdup(T.int32(0x7FFFFFFF), "int32"))
                            S.vsts(top[c * 8], S.vcgmax(magnitude, mask=some), mask=eight)
                        else:
                            u = S.vld(x[c * LANES])
                            size = S.vand(T.reinterpret(u, "int32x64"), S.vdup(T.int32(0x7FFFFFFF), "int32"))
                            S.vsts(top[c * 8], S.vcgmax(size, mask=some), mask=eight)
                    S.mem_bar("VST_VLD")
                    group_scales(top, inverse, e, K)
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        rest = S.update_mask(K - c * LANES, 32)
                        if dtype == "bfloat16":
                            w = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            quantise(q, c, w, inverse, rest)
                        else:
                            z = S.vld(x[c * LANES])
                            quantise(q, c, z, inverse, rest)
                T.copy(q[0:K], Q[r, 0:K])
                T.copy(e[0 : K // 32], E[r, 0 : K // 32])

    return quant_fp8
