# mypy: ignore-errors
"""Choice of experts, SIMD: a row at a time, the largest key k times over."""

import tilelang.ascend.language as T
from tvm.tirx.script.builder.ir import bind

F32, I32, U8 = T.float32, T.int32, T.uint8
LANES = 64
INFINITE, LARGEST = 0x7F800000, 0x7FFFFFFF
NAN, TAKEN = -(2**31) + 1, -(2**31)  # keys: NaN below all numbers, what is chosen below that
LINEAR = 20.0


def score(x):
    """sqrt(log1p(e^x)), x itself for log1p(e^x) above 20.

    With u the rounded 1 + e, log1p(e) = log(u) e / (u - 1): the rounding of u cancels; e where u is 1.
    """
    S = T.simd
    power = bind(S.vexp(x))
    above = bind(S.vadds(power, T.float32(1)))
    log = bind(S.vmul(bind(S.vln(above)), bind(S.vdiv(power, bind(S.vadds(above, T.float32(-1)))))))
    nothing = bind(S.vcmps(above, T.float32(1), op="eq"))
    linear = bind(S.vcmps(x, T.float32(LINEAR), op="gt"))
    return bind(S.vsqrt(bind(S.vsel(x, bind(S.vsel(power, log, nothing)), linear))))


def order(x):
    """Integers in the order of fp32 numbers, NaN below them."""
    S = T.simd
    bits = bind(T.reinterpret(bind(S.vadds(x, T.float32(0))), "int32x64"))
    all_but_sign = bind(S.vdup(T.int32(LARGEST), "int32"))
    nan = bind(S.vcmps(bind(S.vand(bits, all_but_sign)), T.int32(INFINITE), op="gt"))
    key = bind(S.vxor(bits, bind(S.vand(bind(S.vshrs(bits, T.int16(31))), all_but_sign))))
    return bind(S.vsel(bind(S.vdup(T.int32(NAN), "int32")), key, nan))


def moe_gate(most=4096):
    """Weights and ids of the k largest keys of each row, descending, the lower id first. Up to `most` experts."""
    S = T.simd
    m, E, k = T.dynamic("m"), T.dynamic("E"), T.dynamic("k")

    @T.prim_func
    def moe_gate(
        X: T.Tensor((m, E), F32),
        B: T.Tensor((E,), F32),
        V: T.Tensor((E,), F32),
        A: T.Tensor((m,), U8),
        W: T.Tensor((m, k), F32),
        I: T.Tensor((m, k), I32),
        scaling: T.float32,
        floor: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), F32)
            bias = T.alloc_shared((2 * most,), F32)
            scores = T.alloc_shared((most,), F32)
            keys = T.alloc_shared((most,), I32)
            w = T.alloc_shared((most,), F32)
            ids = T.alloc_shared((most,), I32)
            T.annotate_buffer_versions({bias: 1, scores: 1, keys: 1})
            T.assume(0 < cores)
            T.assume(0 < k)
            T.assume(k <= E)
            T.assume(E <= most)
            T.copy(B[0:E], bias[0:E])
            T.copy(V[0:E], bias[most : most + E])
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                image = T.cast(A[r], I32)
                T.copy(X[r, 0:E], x[0:E])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(E, LANES)):
                        some = S.update_mask(E - c * LANES, 32)
                        s = score(S.vld(x[c * LANES]))
                        S.vsts(scores[c * LANES], s)
                        key = order(bind(S.vadd(s, bind(S.vld(bias[image * most + c * LANES])))))
                        S.vsts(keys[c * LANES], S.vsel(key, S.vdup(T.int32(TAKEN), "int32"), some))
                    S.mem_bar("VST_VLD")
                    total = S.alloc_var(F32)
                    total = S.vdup(T.float32(0), "float32")
                    single = S.pset(32, "PAT_VL1")
                    for j in T.serial(k):
                        best = S.alloc_var(I32)
                        names = S.alloc_var(I32)
                        best = S.vdup(T.int32(TAKEN), "int32")
                        names = S.vdup(T.int32(LARGEST), "int32")
                        for c in T.serial(T.ceildiv(E, LANES)):
                            key = S.vld(keys[c * LANES])
                            more = S.vcmp(key, best, op="gt")
                            names = S.vsel(S.vci(c * LANES, "int32"), names, more)
                            best = S.vmax(key, best)
                        top = S.vdupv(S.vcmax(best))
                        equal = S.vcmp(best, top, op="eq")
                        chosen = S.vdupv(S.vcmin(S.vsel(names, S.vdup(T.int32(LARGEST), "int32"), equal)))
                        place = T.reinterpret(chosen, "uint32x64")
                        total = S.vadd(total, S.vgather2(scores[0], place))
                        S.vscatter(S.vdup(T.int32(TAKEN), "int32"), keys[0], place, mask=single)
                        S.vscatter(chosen, ids[0], T.reinterpret(S.vdup(j, "int32"), "uint32x64"), mask=single)
                        S.mem_bar("VST_VLD")
                    whole = S.vadds(total, floor)
                    for c in T.serial(T.ceildiv(k, LANES)):
                        rest = S.update_mask(k - c * LANES, 32)
                        mine = T.reinterpret(S.vld(ids[c * LANES]), "uint32x64")
                        share = S.vdiv(S.vgather2(scores[0], mine, mask=rest), whole, mask=rest)
                        S.vsts(w[c * LANES], S.vmuls(share, scaling, mask=rest))
                T.copy(w[0:k], W[r, 0:k])
                T.copy(ids[0:k], I[r, 0:k])

    return moe_gate
