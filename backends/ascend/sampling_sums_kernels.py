# mypy: ignore-errors
"""Sums of the powers of a row's tokens, SIMD, by the written tree."""

import tilelang.ascend.language as T
from parts_math import f32, log2
from parts_weights import LN2, LOG2E, NEVER, chunk_max, clear_max, exp2, exponent, finish_max, kept
from tvm.tirx.script.builder.ir import bind

F32, I32 = T.float32, T.int32
LANES, SEGMENT, TREE = 64, 8192, 1024


def power(z, token, width, top, rate, threshold, last):
    """2^exponent of kept tokens of a row that is valid, 0 for others."""
    S = T.simd
    inside = bind(S.vcmps(token, width, op="lt"))
    valid = bind(S.vcmps(top, f32(NEVER), mask=inside, op="gt"))
    chosen = kept(z, token, threshold, last, valid)
    return bind(S.vsel(exp2(exponent(z, top, rate)), bind(S.vdup(f32(0.0), "float32")), chosen))


def folded(lanes):
    """Lanes of 1024 in 16 registers, folded in halves: the sum in lane 0."""
    S = T.simd
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [bind(S.vadd(lanes[g], lanes[g + half])) for g in range(half)]
    (x,) = lanes
    for h in (32, 16, 8, 4, 2, 1):
        x = bind(S.vadd(x, bind(S.vselr(x, bind(S.vci(T.int32(h), "int32"))))))
    return bind(S.vdupv(x))


def log_probability(z, token, top, rate, threshold, last, log_sum):
    """Natural log-probability of a token, at least -9999; that where the token is not kept."""
    S = T.simd
    everywhere = bind(S.vcmps(bind(S.vdup(token, "int32")), T.int32(0), op="ge"))
    valid = bind(S.vcmps(top, f32(NEVER), mask=everywhere, op="gt"))
    chosen = kept(z, bind(S.vdup(token, "int32")), threshold, last, valid)
    value = bind(S.vmuls(bind(S.vsub(exponent(z, top, rate), log_sum)), f32(LN2)))
    return bind(S.vsel(bind(S.vmaxs(value, f32(-9999.0))), bind(S.vdup(f32(-9999.0), "float32")), chosen))


def log_sums():
    """Y = maximum (NaN in a row with NaN) and log2 of the sum of kept powers; P = log-probability of one token.

    Without `tempered`, `filtered`, `picks` the tensors R, H with L, and I are not read.
    """
    S = T.simd
    m, V = T.dynamic("m"), T.dynamic("V")

    @T.prim_func
    def log_sums(
        Z: T.Tensor((m, V), F32),
        R: T.Tensor((m,), F32),
        H: T.Tensor((m,), F32),
        L: T.Tensor((m,), I32),
        I: T.Tensor((m,), I32),
        Y: T.Tensor((m, 2), F32),
        P: T.Tensor((m,), F32),
        tempered: T.int32,
        filtered: T.int32,
        picks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            z = T.alloc_shared((SEGMENT,), F32)
            powers = T.alloc_shared((SEGMENT,), F32)
            lanes = T.alloc_shared((TREE,), F32)
            best = T.alloc_shared((LANES,), F32)
            bad = T.alloc_shared((LANES,), I32)
            total = T.alloc_shared((LANES,), F32)
            y = T.alloc_shared((LANES,), F32)
            own = T.alloc_shared((LANES,), F32)
            T.annotate_buffer_versions({powers: 1, lanes: 1, best: 1, bad: 1, total: 1, y: 1, own: 1})
            T.assume(0 < V)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                inverse = T.if_then_else(tempered > 0, R[r], T.float32(1))
                border = T.if_then_else(filtered > 0, H[r], T.float32(NEVER))
                last = T.if_then_else(filtered > 0, L[r], -1)
                token = T.if_then_else(picks > 0, I[r], -1)
                with T.SimdVF():
                    clear_max(best, bad)
                    S.vsts(total[0], S.vdup(T.float32(0), "float32"))
                for ch in T.serial(T.ceildiv(V, SEGMENT)):
                    count = T.min(SEGMENT, V - ch * SEGMENT)
                    T.assume(0 < count)
                    T.copy(Z[r, ch * SEGMENT : ch * SEGMENT + count], z[0:count])
                    with T.SimdVF():
                        chunk_max(z, best, bad, count)
                with T.SimdVF():
                    finish_max(best, bad)
                for ch in T.serial(T.ceildiv(V, SEGMENT)):
                    count = T.min(SEGMENT, V - ch * SEGMENT)
                    T.assume(0 < count)
                    T.copy(Z[r, ch * SEGMENT : ch * SEGMENT + count], z[0:count])
                    with T.SimdVF():
                        top = S.vld(best[0])
                        rate = S.vmuls(S.vdup(inverse, "float32"), T.float32(LOG2E))
                        threshold = S.vdup(border, "float32")
                        for c in T.serial(SEGMENT // LANES):
                            ids = S.vci(ch * SEGMENT + c * LANES, "int32")
                            S.vsts(powers[c * LANES], power(S.vld(z[c * LANES]), ids, V, top, rate, threshold, last))
                        S.mem_bar("VST_VLD")
                        for g in T.serial(TREE // LANES):
                            sum = S.alloc_var(F32)
                            sum = S.vld(powers[g * LANES])
                            for t in T.serial(SEGMENT // TREE - 1):
                                sum = S.vadd(sum, S.vld(powers[t * TREE + TREE + g * LANES]))
                            S.vsts(lanes[g * LANES], sum)
                        S.mem_bar("VST_VLD")
                        part = folded([bind(S.vld(lanes[g * LANES])) for g in range(TREE // LANES)])
                        S.vsts(total[0], S.vadd(S.vld(total[0]), part))
                least = T.if_then_else(token < 0, 0, token)
                T.assume(0 <= least)
                T.assume(least < V)
                logit = Z[r, least]
                with T.SimdVF():
                    top = S.vld(best[0])
                    log_sum = log2(S.vmaxs(S.vld(total[0]), T.float32(2.0**-100)))
                    lane0 = S.vcmps(S.vci(T.int32(0), "int32"), T.int32(0), op="eq")
                    S.vsts(y[0], S.vsel(top, log_sum, lane0))
                    rate = S.vmuls(S.vdup(inverse, "float32"), T.float32(LOG2E))
                    threshold = S.vdup(border, "float32")
                    chosen = S.vdup(logit, "float32")
                    S.vsts(own[0], log_probability(chosen, token, top, rate, threshold, last, log_sum))
                T.copy(y[0:2], Y[r, 0:2])
                T.copy(own[0:1], P[r : r + 1])

    return log_sums
