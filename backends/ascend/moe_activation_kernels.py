# mypy: ignore-errors
"""Clamped SwiGLU of expert products, times the routing weight, quantised, SIMD."""

import tilelang.ascend.language as T
from parts_quant import group_scales, quantise
from tvm.tirx.script.builder.ir import bind

BF16, F32, F8, U8, I32 = T.bfloat16, T.float32, T.float8_e4m3fn, T.uint8, T.int32
LANES = 64


def clamped(value, low, high):
    """Within both bounds (registers; None for no lower one); NaN stays."""
    S = T.simd
    high_one = bind(S.vsel(high, value, bind(S.vcmp(value, high, op="gt"))))
    return high_one if low is None else bind(S.vsel(low, high_one, bind(S.vcmp(value, low, op="lt"))))


def gated(gate, up, weight):
    """(weight * (gate * sigmoid(gate))) * up, one rounding each."""
    S = T.simd
    power = bind(S.vexp(bind(S.vmuls(gate, T.float32(-1)))))
    sigmoid = bind(S.vdiv(bind(S.vdup(T.float32(1), "float32")), bind(S.vadds(power, T.float32(1)))))
    return bind(S.vmul(bind(S.vmul(weight, bind(S.vmul(gate, sigmoid)))), up))


def swiglu_quant(most=8192):
    """Codes and scale bytes of each row; half a row, K channels, up to `most`.

    Row r has weight W[r * weighted]: without weights a single 1, which changes nothing.
    """
    S = T.simd
    m, n, K = T.dynamic("m"), T.dynamic("n"), T.dynamic("K")

    @T.prim_func
    def swiglu_quant(
        X: T.Tensor((m, 2 * K), BF16),
        W: T.Tensor((n,), F32),
        Q: T.Tensor((m, K), F8),
        E: T.Tensor((m, K // 32), U8),
        weighted: T.int32,
        limit: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            gate = T.alloc_shared((most,), BF16)
            up = T.alloc_shared((most,), BF16)
            act = T.alloc_shared((most,), F32)
            top = T.alloc_shared((most // 8 + LANES,), I32)
            inverse = T.alloc_shared((most // 8 + LANES,), I32)
            q = T.alloc_shared((most,), F8)
            e = T.alloc_shared((most // 32 + 16,), U8)
            T.annotate_buffer_versions({act: 1, top: 1, inverse: 1})
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(K % 32 == 0)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= r * weighted)
                T.assume(r * weighted < n)
                factor = W[r * weighted]
                T.copy(X[r, 0:K], gate[0:K])
                T.copy(X[r, K : 2 * K], up[0:K])
                with T.SimdVF():
                    eight = S.pset(32, "PAT_VL8")
                    high = S.vdup(limit, "float32")
                    low = S.vmuls(high, T.float32(-1))
                    weight = S.vdup(factor, "float32")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        some = S.update_mask(K - c * LANES, 32)
                        g = clamped(
                            bind(S.vcvt(S.vld(gate[c * LANES], dist="UNPK_B16"), "float32", part=0)), None, high
                        )
                        u = clamped(bind(S.vcvt(S.vld(up[c * LANES], dist="UNPK_B16"), "float32", part=0)), low, high)
                        value = gated(g, u, weight)
                        S.vsts(act[c * LANES], value, mask=some)
                        size = S.vand(T.reinterpret(value, "int32x64"), S.vdup(T.int32(0x7FFFFFFF), "int32"))
                        S.vsts(top[c * 8], S.vcgmax(size, mask=some), mask=eight)
                    S.mem_bar("VST_VLD")
                    group_scales(top, inverse, e, K)
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(K, LANES)):
                        rest = S.update_mask(K - c * LANES, 32)
                        z = S.vld(act[c * LANES])
                        quantise(q, c, z, inverse, rest)
                T.copy(q[0:K], Q[r, 0:K])
                T.copy(e[0 : K // 32], E[r, 0 : K // 32])

    return swiglu_quant
