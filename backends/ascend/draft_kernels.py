# mypy: ignore-errors
"""Drafting: rows of the draft pass and how rows are shared out, SIMT; taps, confidences, a sum of logits, SIMD."""

import tilelang.ascend.language as T

BF16, F32, I32, I64, U8 = T.bfloat16, T.float32, T.int32, T.int64, T.uint8
LANES = 64


def draft_inputs(threads=256):
    """Rows behind the last position of each sequence, a thread each; padding where a sequence does not draft."""
    s, n, d = T.dynamic("s"), T.dynamic("n"), T.dynamic("d")

    @T.prim_func
    def draft_inputs(
        X: T.Tensor((s,), I32),
        B: T.Tensor((s,), I32),
        A: T.Tensor((s,), I32),
        F: T.Tensor((s,), I32),
        Y0: T.Tensor((n,), I32),
        Y1: T.Tensor((n,), I32),
        Y2: T.Tensor((n,), I32),
        Y3: T.Tensor((n,), I32),
        Y4: T.Tensor((n,), I32),
        Y5: T.Tensor((s,), I32),
        Y6: T.Tensor((s,), I32),
        Y7: T.Tensor((d, s), I64),
        window: T.int32,
        noise: T.int32,
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < d)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                first = (bx + i * cores) * threads
                T.assume(0 <= first)
                with T.SimtVF(threads=threads):
                    for t in T.Parallel(threads):
                        if first + t < n:
                            q = (first + t) // d
                            j = (first + t) % d
                            T.assume(0 <= q)
                            T.assume(q < s)
                            base = B[q]
                            begin = T.if_then_else(base >= 0, base + A[q] + 1, 0)
                            if base >= 0:
                                Y0[first + t] = T.if_then_else(j == 0, X[q], noise)
                                Y1[first + t] = begin + j
                                Y2[first + t] = q
                                Y3[first + t] = T.max(T.max(begin - window, F[q]), 0)
                                Y4[first + t] = begin - 1 + d
                                Y7[j, q] = T.cast(begin, I64) + 1 + j
                            else:
                                Y0[first + t] = -1
                                Y1[first + t] = 0
                                Y2[first + t] = -1
                                Y3[first + t] = 0
                                Y4[first + t] = 0
                                Y7[j, q] = T.int64(0)
                            if j == 0:
                                Y5[q] = begin
                                Y6[q] = q * d

    return draft_inputs


def draft_store(threads=256):
    """Tokens and confidences to the sequence's slot, a thread each; confidences of stopped sequences as zero."""
    s, n, d, z = T.dynamic("s"), T.dynamic("n"), T.dynamic("d"), T.dynamic("z")

    @T.prim_func
    def draft_store(
        X: T.Tensor((n,), I32),
        C: T.Tensor((n,), F32),
        E: T.Tensor((s,), U8),
        O: T.Tensor((s,), I32),
        Y0: T.Tensor((z, d), I32),
        Y1: T.Tensor((z, d), F32),
        stops: T.int32,
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < d)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                first = (bx + i * cores) * threads
                T.assume(0 <= first)
                with T.SimtVF(threads=threads):
                    for t in T.Parallel(threads):
                        if first + t < n:
                            q = (first + t) // d
                            j = (first + t) % d
                            T.assume(0 <= q)
                            T.assume(q < s)
                            slot = O[q]
                            stop = T.if_then_else(stops > 0, T.cast(E[q], I32), 0)
                            if slot >= 0:
                                T.assume(slot < z)
                                Y0[slot, j] = X[first + t]
                                Y1[slot, j] = T.if_then_else(stop != 0, T.float32(0), C[first + t])

    return draft_store


def correct_k(threads=256):
    """Length before the step, less the drafts that were counted and not accepted, and the step's rows."""
    n, z = T.dynamic("n"), T.dynamic("z")

    @T.prim_func
    def correct_k(
        B: T.Tensor((n,), I32),
        Q: T.Tensor((n,), I32),
        R: T.Tensor((n,), I32),
        A: T.Tensor((n,), I32),
        C: T.Tensor((z,), I32),
        Y: T.Tensor((n,), I32),
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                first = (bx + i * cores) * threads
                T.assume(0 <= first)
                with T.SimtVF(threads=threads):
                    for t in T.Parallel(threads):
                        if first + t < n:
                            row = R[first + t]
                            T.assume(row < z)
                            back = T.if_then_else(row >= 0, A[first + t] - C[row], 0)
                            Y[first + t] = B[first + t] + Q[first + t] - back

    return correct_k


def correct_q(per=64, group=256, drafts=32):
    """Rows of `per` sequences at a time: the rank of each of their survivals among all, by comparing it with each.

    All survivals, of up to `drafts` places, come in groups of `group` sequences, which every core makes for itself.
    """
    S = T.simd
    n, z, d = T.dynamic("n"), T.dynamic("z"), T.dynamic("d")

    @T.prim_func
    def correct_q(
        C: T.Tensor((z, d), F32),
        R: T.Tensor((n,), I32),
        Y: T.Tensor((n,), I32),
        budget: T.int32,
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            mine = T.alloc_shared((drafts * per,), F32)
            others = T.alloc_shared((drafts * group,), F32)
            ranks = T.alloc_shared((drafts * per,), I32)
            T.annotate_buffer_versions({mine: 1, others: 1, ranks: 1})
            T.assume(0 < cores)
            T.assume(0 < d)
            T.assume(d <= drafts)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                first = (bx + i * cores) * per
                T.assume(0 <= first)
                T.assume(first < n)
                with T.SimtVF(threads=per):
                    for j in T.serial(d):
                        for t in T.Parallel(per):
                            if first + t < n:
                                row = R[first + t]
                                T.assume(row < z)
                                x = T.if_then_else(row >= 0, C[row, j], T.float32(0))
                                y = T.if_then_else(x > T.float32(0), T.min(x, T.float32(1)), T.float32(0))
                                mine[t * d + j] = T.if_then_else(j > 0, mine[t * d + j - 1], T.float32(1)) * y
                            ranks[t * d + j] = 0
                for g in T.serial(T.ceildiv(n, group)):
                    start = g * group
                    count = T.min(group, n - start) * d
                    with T.SimtVF(threads=group):
                        for j in T.serial(d):
                            for t in T.Parallel(group):
                                if start + t < n:
                                    row = R[start + t]
                                    T.assume(row < z)
                                    x = T.if_then_else(row >= 0, C[row, j], T.float32(0))
                                    y = T.if_then_else(x > T.float32(0), T.min(x, T.float32(1)), T.float32(0))
                                    others[t * d + j] = T.if_then_else(j > 0, others[t * d + j - 1], T.float32(1)) * y
                    with T.SimdVF():
                        one = S.vdup(T.int32(1), "int32")
                        none = S.vdup(T.int32(0), "int32")
                        every = S.pset(32, "PAT_ALL")
                        for c in T.serial(d):
                            own = S.vld(mine[c * LANES])
                            number = S.vci((first - start) * d + c * LANES, "int32")
                            rank = S.alloc_var(I32)
                            rank = S.vld(ranks[c * LANES])
                            for o in T.serial(count):
                                other = S.vld(others[o], dist="BRC_B32")
                                above = S.vcmp(other, own, op="gt")
                                equal = S.vcmp(other, own, op="eq")
                                early = S.vcmps(number, o, mask=equal, op="gt")
                                ahead = S.por(above, early, every)
                                rank = S.vadd(rank, S.vsel(one, none, ahead))
                            S.vsts(ranks[c * LANES], rank)
                with T.SimtVF(threads=per):
                    for t in T.Parallel(per):
                        if first + t < n:
                            Y[first + t] = 1
                    for j in T.serial(d):
                        for t in T.Parallel(per):
                            if first + t < n:
                                Y[first + t] = Y[first + t] + T.if_then_else(ranks[t * d + j] < budget, 1, 0)

    return correct_q


def draft_tap(piece=8192):
    """Y[t] at `begin` = bf16(scale * sum of streams), streams ascending, in fp32 in UB."""
    S = T.simd
    m, M, D, N = T.dynamic("m"), T.dynamic("M"), T.dynamic("D"), T.dynamic("N")

    @T.prim_func
    def draft_tap(
        X: T.Tensor((m, M, D), BF16),
        Y: T.Tensor((m, N, D), BF16),
        place: T.int32,
        scale: T.float32,
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((piece,), BF16)
            y = T.alloc_shared((piece,), BF16)
            total = T.alloc_shared((piece,), F32)
            T.annotate_buffer_versions({total: 1})
            T.assume(0 < cores)
            T.assume(0 < pieces)
            T.assume(0 <= place)
            T.assume(place < N)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                r = (bx + i * cores) // pieces
                first = (bx + i * cores) % pieces * piece
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(first < D)
                count = T.min(piece, D - first)
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        S.vsts(total[c * LANES], S.vdup(T.float32(-0.0), "float32"))
                for j in T.serial(M):
                    T.copy(X[r, j, first : first + count], x[0:count])
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(count, LANES)):
                            some = S.update_mask(count - c * LANES, 32)
                            v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            S.vsts(total[c * LANES], S.vadd(S.vld(total[c * LANES]), v, mask=some), mask=some)
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        rest = S.update_mask(count - c * LANES, 32)
                        u = S.vmuls(S.vld(total[c * LANES]), scale, mask=rest)
                        S.vsts(y[c * LANES], S.vcvt(u, "bfloat16", part=0), mask=rest, dist="PK_B32")
                T.copy(y[0:count], Y[r, place, first : first + count])

    return draft_tap


def draft_confidence(most=8192):
    """Sigmoid of a row's product with the weights, hidden channels first, then those of its token's embedding.

    D and r up to `most`. A token without an embedding adds nothing.
    """
    S = T.simd
    m, D, K, n, N = T.dynamic("m"), T.dynamic("D"), T.dynamic("K"), T.dynamic("n"), T.dynamic("N")

    @T.prim_func
    def draft_confidence(
        X: T.Tensor((m, D), BF16),
        I: T.Tensor((m,), I32),
        E: T.Tensor((N, K), BF16),
        W: T.Tensor((D,), BF16),
        WE: T.Tensor((K,), BF16),
        R: T.Tensor((n,), F32),
        Y: T.Tensor((m,), F32),
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            e = T.alloc_shared((most,), BF16)
            w = T.alloc_shared((most,), BF16)
            we = T.alloc_shared((most,), BF16)
            total = T.alloc_shared((LANES,), F32)
            y = T.alloc_shared((LANES,), F32)
            T.annotate_buffer_versions({total: 1, y: 1})
            T.assume(0 < D)
            T.assume(D <= most)
            T.assume(0 < K)
            T.assume(K <= most)
            T.assume(0 < n)
            T.assume(0 < cores)
            T.copy(W[0:D], w[0:D])
            T.copy(WE[0:K], we[0:K])
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                token = I[r]
                factor = R[r % n]
                T.copy(X[r, 0:D], x[0:D])
                with T.SimdVF():
                    sum = S.alloc_var(F32)
                    sum = S.vdup(T.float32(0), "float32")
                    for c in T.serial(T.ceildiv(D, LANES)):
                        some = S.update_mask(D - c * LANES, 32)
                        v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        u = S.vcvt(S.vld(w[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        sum = S.vadd(sum, S.vmul(v, u, mask=some))
                    S.vsts(total[0], sum)
                if (token >= 0) and (token < N):
                    T.copy(E[token, 0:K], e[0:K])
                    with T.SimdVF():
                        more = S.alloc_var(F32)
                        more = S.vld(total[0])
                        for c in T.serial(T.ceildiv(K, LANES)):
                            rest = S.update_mask(K - c * LANES, 32)
                            a = S.vcvt(S.vld(e[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            b = S.vcvt(S.vld(we[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            more = S.vadd(more, S.vmul(a, b, mask=rest))
                        S.vsts(total[0], more)
                with T.SimdVF():
                    score = S.vmuls(S.vdupv(S.vcadd(S.vld(total[0]))), factor)
                    high = S.vcmps(score, T.float32(60), op="gt")
                    low = S.vcmps(score, T.float32(-60), op="lt")
                    least = S.vsel(S.vdup(T.float32(-60), "float32"), score, low)
                    limited = S.vsel(S.vdup(T.float32(60), "float32"), least, high)
                    power = S.vexp(S.vmuls(limited, T.float32(-1)))
                    S.vsts(y[0], S.vdiv(S.vdup(T.float32(1), "float32"), S.vadds(power, T.float32(1))))
                T.copy(y[0:1], Y[r : r + 1])

    return draft_confidence


def draft_add(piece=8192):
    """Y = X + Y, rows of X `stride` apart."""
    S = T.simd
    m, V, span = T.dynamic("m"), T.dynamic("V"), T.dynamic("span", "int64")

    @T.prim_func
    def draft_add(
        X: T.Tensor((span,), F32),
        Y: T.Tensor((m, V), F32),
        stride: T.int64,
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((piece,), F32)
            y = T.alloc_shared((piece,), F32)
            T.assume(0 < cores)
            T.assume(0 < pieces)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                r = (bx + i * cores) // pieces
                first = (bx + i * cores) % pieces * piece
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(first < V)
                count = T.min(piece, V - first)
                at = T.cast(r, I64) * stride + first
                T.assume(0 <= at)
                T.assume(at + count <= span)
                T.copy(X[at : at + count], x[0:count])
                T.copy(Y[r, first : first + count], y[0:count])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        some = S.update_mask(count - c * LANES, 32)
                        S.vsts(y[c * LANES], S.vadd(S.vld(x[c * LANES]), S.vld(y[c * LANES]), mask=some), mask=some)
                T.copy(y[0:count], Y[r, first : first + count])

    return draft_add
