# mypy: ignore-errors
"""Draws of tokens as exponential races, SIMD: 64 counters of four words at a time, the best of each lane kept."""

import tilelang.ascend.language as T
from parts_math import Register, better, log2, minus_log2_one_minus, philox, uniform
from tvm.tirx.script.builder.ir import bind

F32, I32, U32 = T.float32, T.int32, T.uint32
LANES = 64
LOG2E = float.fromhex("0x1.715476p+0")
NONE = 0x7FFFFFFF


def race(best, ids, z, word, token, rate, threshold, last, width):
    """One of four words of 64 counters: the scores of its tokens against the best so far."""
    S = T.simd
    score = Register(S.vsub(bind(S.vmul(z, rate)), log2(minus_log2_one_minus(uniform(word))))).value
    inside = bind(S.vcmps(token, width, op="lt"))
    equal = bind(S.vcmp(z, threshold, mask=inside, op="eq"))
    early = bind(S.vcmps(token, last, mask=equal, op="le"))
    above = bind(S.vcmp(z, threshold, mask=inside, op="gt"))
    kept = bind(S.por(early, above, inside))
    never = bind(S.vdup(T.float32(float("-inf")), "float32"))
    return better(best, ids, bind(S.vsel(score, never, kept)), token)


def draw(best, ids, z, first, at, seed, position, purpose, rate, threshold, last, width):
    """256 tokens from `first` on, whose logits begin at z[at]: the best score of each lane, and its token."""
    S = T.simd
    counters = bind(T.reinterpret(bind(S.vci(first // 4, "int32")), "uint32x64"))
    fixed = [bind(S.vdup(value, "uint32")) for value in (*position, purpose)]
    words = philox((*fixed, counters), seed)
    parts = [bind(S.vld(z[at + part * LANES])) for part in range(4)]
    even0, odd0 = S.vdintlv(parts[0], parts[1])
    even1, odd1 = S.vdintlv(parts[2], parts[3])
    zeroth, second = S.vdintlv(bind(even0), bind(even1))
    oneth, third = S.vdintlv(bind(odd0), bind(odd1))
    lane = bind(S.vshls(bind(S.vci(0, "int32")), T.int16(2)))
    for w, logits in enumerate((zeroth, oneth, second, third)):
        token = bind(S.vadds(lane, first + w))
        best, ids = race(best, ids, bind(logits), words[w], token, rate, threshold, last, width)
    return best, ids


def sample_draw(chunk=8192):
    """The kept token with the largest z a - log2(E); max_id where one token is kept, or all scores are -infinity."""
    S = T.simd
    m, V = T.dynamic("m"), T.dynamic("V")

    @T.prim_func
    def sample_draw(
        Z: T.Tensor((m, V), F32),
        R: T.Tensor((m,), F32),
        H: T.Tensor((m,), F32),
        L: T.Tensor((m,), I32),
        C: T.Tensor((m,), I32),
        A: T.Tensor((m,), I32),
        SEED: T.Tensor((m, 2), U32),
        AT: T.Tensor((m, 2), U32),
        Y: T.Tensor((m,), I32),
        purpose: T.uint32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            z = T.alloc_shared((chunk + 4 * LANES,), F32)
            found = T.alloc_shared((LANES,), F32)
            names = T.alloc_shared((LANES,), I32)
            y = T.alloc_shared((LANES,), I32)
            T.annotate_buffer_versions({found: 1, names: 1, y: 1})
            T.assume(0 < V)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                inverse = R[r]
                border = H[r]
                last = L[r]
                kept = C[r]
                only = A[r]
                seed0 = SEED[r, 0]
                seed1 = SEED[r, 1]
                at0 = AT[r, 0]
                at1 = AT[r, 1]
                with T.SimdVF():
                    S.vsts(found[0], S.vdup(T.float32(float("-inf")), "float32"))
                    S.vsts(names[0], S.vdup(T.int32(NONE), "int32"))
                for ch in T.serial(T.ceildiv(T.if_then_else(kept > 1, V, 0), chunk)):
                    count = T.min(chunk, V - ch * chunk)
                    T.assume(0 < count)
                    T.copy(Z[r, ch * chunk : ch * chunk + count], z[0:count])
                    with T.SimdVF():
                        best = S.alloc_var(F32)
                        ids = S.alloc_var(I32)
                        best = S.vld(found[0])
                        ids = S.vld(names[0])
                        rate = S.vmuls(S.vdup(inverse, "float32"), T.float32(LOG2E))
                        threshold = S.vdup(border, "float32")
                        for c in T.serial(T.ceildiv(count, 4 * LANES)):
                            more, named = draw(
                                best,
                                ids,
                                z,
                                ch * chunk + c * 4 * LANES,
                                c * 4 * LANES,
                                (seed0, seed1),
                                (at0, at1),
                                purpose,
                                rate,
                                threshold,
                                last,
                                V,
                            )
                            best = more
                            ids = named
                        S.vsts(found[0], best)
                        S.vsts(names[0], ids)
                with T.SimdVF():
                    score = S.vld(found[0])
                    largest = S.vdupv(S.vcmax(score))
                    same = S.vcmp(score, largest, op="eq")
                    token = S.vsel(S.vld(names[0]), S.vdup(T.int32(NONE), "int32"), same)
                    winner = S.vdupv(S.vcmin(token))
                    several = S.vcmps(S.vdup(kept, "int32"), T.int32(1), op="gt")
                    raced = S.vcmps(largest, T.float32(float("-inf")), mask=several, op="gt")
                    S.vsts(y[0], S.vsel(winner, S.vdup(only, "int32"), raced))
                T.copy(y[0:1], Y[r : r + 1])

    return sample_draw
