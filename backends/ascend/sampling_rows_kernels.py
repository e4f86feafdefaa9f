# mypy: ignore-errors
"""Parameters of logit rows and masks on some rows, SIMT; values of candidate lists, SIMD."""

import tilelang.ascend.language as T

F32, I32, I64 = T.float32, T.int32, T.int64
LANES = 64


def mask_rows(threads=256, piece=8192):
    """-infinity where a mask's bit is clear, in the row that the mask's request and offset name, if there is one."""
    m, V, G, N, R = T.dynamic("m"), T.dynamic("V"), T.dynamic("G"), T.dynamic("N"), T.dynamic("R")

    @T.prim_func
    def mask_rows(
        Z: T.Tensor((m, V), F32),
        W: T.Tensor((G, N), I32),
        Q: T.Tensor((G,), I32),
        O: T.Tensor((G,), I32),
        F: T.Tensor((R,), I32),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < pieces)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                g = (bx + i * cores) // pieces
                first = (bx + i * cores) % pieces * piece
                T.assume(0 <= g)
                T.assume(g < G)
                T.assume(0 <= first)
                T.assume(first < V)
                q = Q[g]
                o = O[g]
                if (q >= 0) and (o >= 0):
                    T.assume(q + 1 < R)
                    begin = F[q]
                    end = F[q + 1]
                    if o < end - begin:  # a sum of both may not fit 32 bits
                        with T.SimtVF(threads=threads):
                            for c in T.serial(T.ceildiv(T.min(piece, V - first), threads)):
                                for t in T.Parallel(threads):
                                    if first + c * threads + t < V:
                                        word = W[g, (first + c * threads + t) // 32]
                                        if T.bitwise_and(T.shift_right(word, (c * threads + t) % 32), 1) == 0:
                                            Z[begin + o, first + c * threads + t] = T.float32(float("-inf"))

    return mask_rows


def expand_params(threads=256):
    """A row's parameters are those of its request, or what turns everything off; its position is base + offset."""
    m, R = T.dynamic("m"), T.dynamic("R")

    @T.prim_func
    def expand_params(
        Q: T.Tensor((m,), I32),
        O: T.Tensor((m,), I32),
        A0: T.Tensor((R,), F32),
        A1: T.Tensor((R,), I32),
        A2: T.Tensor((R,), I64),
        A3: T.Tensor((R,), I64),
        A4: T.Tensor((R,), I64),
        A5: T.Tensor((R,), I64),
        Y0: T.Tensor((m,), F32),
        Y1: T.Tensor((m,), I32),
        Y2: T.Tensor((m,), I64),
        Y3: T.Tensor((m,), I64),
        Y4: T.Tensor((m,), I64),
        Y5: T.Tensor((m,), I64),
        one: T.int64,
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
                        if first + t < m:
                            q = Q[first + t]
                            if q >= 0:
                                T.assume(q < R)
                                Y0[first + t] = A0[q]
                                Y1[first + t] = A1[q]
                                Y2[first + t] = A2[q]
                                Y3[first + t] = A3[q]
                                Y4[first + t] = A4[q]
                                Y5[first + t] = A5[q] + T.cast(O[first + t], I64)
                            else:
                                Y0[first + t] = T.float32(float("inf"))
                                Y1[first + t] = 0
                                Y2[first + t] = one
                                Y3[first + t] = T.int64(0)
                                Y4[first + t] = T.int64(0)
                                Y5[first + t] = T.int64(0)

    return expand_params


def lookup_candidates(wide=512, chunk=8192):
    """The values of `wide` wanted ids in a row's list, each entry of the list compared with 64 of them at a time."""
    S = T.simd
    m, K, J = T.dynamic("m"), T.dynamic("K"), T.dynamic("J")

    @T.prim_func
    def lookup_candidates(
        I: T.Tensor((m, K), I32),
        X: T.Tensor((m, K), F32),
        W: T.Tensor((m, J), I32),
        Y: T.Tensor((m, J), F32),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            ids = T.alloc_shared((chunk,), I32)
            values = T.alloc_shared((chunk,), F32)
            wanted = T.alloc_shared((wide,), I32)
            found = T.alloc_shared((wide,), F32)
            T.annotate_buffer_versions({ids: 1, values: 1, wanted: 1, found: 1})
            T.assume(0 < cores)
            T.assume(0 < pieces)
            T.assume(0 < J)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                r = (bx + i * cores) // pieces
                first = (bx + i * cores) % pieces * wide
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(first < J)
                some = T.min(wide, J - first)
                T.copy(W[r, first : first + some], wanted[0:some])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(some, LANES)):
                        S.vsts(found[c * LANES], S.vdup(T.float32(float("-inf")), "float32"))
                for ch in T.serial(T.ceildiv(K, chunk)):
                    count = T.min(chunk, K - ch * chunk)
                    T.assume(0 < count)
                    T.copy(I[r, ch * chunk : ch * chunk + count], ids[0:count])
                    T.copy(X[r, ch * chunk : ch * chunk + count], values[0:count])
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(some, LANES)):
                            rest = S.update_mask(some - c * LANES, 32)
                            own = S.vld(wanted[c * LANES])
                            real = S.vcmps(own, T.int32(0), mask=rest, op="ge")
                            best = S.alloc_var(F32)
                            best = S.vld(found[c * LANES])
                            for k in T.serial(count):
                                hit = S.vcmp(S.vld(ids[k], dist="BRC_B32"), own, mask=real, op="eq")
                                best = S.vsel(S.vld(values[k], dist="BRC_B32"), best, hit)
                            S.vsts(found[c * LANES], best)
                T.copy(found[0:some], Y[r, first : first + some])

    return lookup_candidates
