# mypy: ignore-errors
"""Mixture of experts: rows by expert, their combination."""

import tilelang.ascend.language as T

BF16, F32, I32 = T.bfloat16, T.float32, T.int32
LANES = 64


def moe_combine(most=8192):
    """bf16(sum of the rows that `position` names, slots ascending, then `shared`); -1 names none. D up to `most`.

    The sum stays in UB, in fp32.
    """
    S = T.simd
    m, M, D, k = T.dynamic("m"), T.dynamic("M"), T.dynamic("D"), T.dynamic("k")

    @T.prim_func
    def moe_combine(
        X: T.Tensor((M, D), BF16),
        P: T.Tensor((m, k), I32),
        H: T.Tensor((m, D), BF16),
        Y: T.Tensor((m, D), BF16),
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            h = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            total = T.alloc_shared((most,), F32)
            T.annotate_buffer_versions({total: 1})
            T.assume(0 < D)
            T.assume(D <= most)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.copy(H[r, 0:D], h[0:D])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(D, LANES)):
                        S.vsts(total[c * LANES], S.vdup(T.float32(0), "float32"))
                for j in T.serial(k):
                    p = P[r, j]
                    if p >= 0:
                        T.assume(p < M)
                        T.copy(X[p, 0:D], x[0:D])
                        with T.SimdVF():
                            for c in T.serial(T.ceildiv(D, LANES)):
                                some = S.update_mask(D - c * LANES, 32)
                                v = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                S.vsts(total[c * LANES], S.vadd(S.vld(total[c * LANES]), v, mask=some), mask=some)
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(D, LANES)):
                        rest = S.update_mask(D - c * LANES, 32)
                        u = S.vcvt(S.vld(h[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        z = S.vcvt(S.vadd(S.vld(total[c * LANES]), u, mask=rest), "bfloat16", part=0)
                        S.vsts(y[c * LANES], z, mask=rest, dist="PK_B32")
                T.copy(y[0:D], Y[r, 0:D])

    return moe_combine


def moe_pack(chunk=256, most=4096):
    """Entries in the order of (expert, entry): a core places 256 entries at a time, however many there are.

    It counts every entry by expert, and those before its own; what is left is the order within the 256.
    """
    S = T.simd
    n, count = T.dynamic("n"), T.dynamic("count")

    @T.prim_func
    def moe_pack(
        E: T.Tensor((n,), I32),
        W: T.Tensor((n,), F32),
        R: T.Tensor((n,), I32),
        Q: T.Tensor((n,), F32),
        O: T.Tensor((count + 1,), I32),
        P: T.Tensor((n,), I32),
        first: T.int32,
        slots: T.int32,
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            mine = T.alloc_shared((chunk,), I32)
            place = T.alloc_shared((chunk,), I32)
            every = T.alloc_shared((most + LANES,), I32)
            before = T.alloc_shared((most + LANES,), I32)
            offset = T.alloc_shared((most + LANES,), I32)
            T.annotate_buffer_versions({mine: 1, place: 1, every: 1, before: 1, offset: 1})
            T.assume(0 < cores)
            T.assume(0 < slots)
            T.assume(0 <= count)
            T.assume(count <= most)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                begin = (bx + i * cores) * chunk
                with T.SimdVF():
                    for c in T.serial(count // LANES + 1):
                        S.vsts(every[c * LANES], S.vdup(T.int32(0), "int32"))
                        S.vsts(before[c * LANES], S.vdup(T.int32(0), "int32"))
                with T.SimtVF(threads=chunk):
                    for t in T.Parallel(chunk):
                        mine[t] = T.if_then_else(begin + t < n, E[begin + t] - first, -1)
                    for c in T.serial(T.ceildiv(n, chunk)):
                        for t in T.Parallel(chunk):
                            if c * chunk + t < n:
                                x = E[c * chunk + t] - first
                                if (x >= 0) and (x < count):
                                    T.atomic_add(every[x], 1)
                                    if c * chunk < begin:
                                        T.atomic_add(before[x], 1)
                with T.SimdVF():
                    carry = S.alloc_var(I32)
                    carry = S.vdup(T.int32(0), "int32")
                    lane = S.vci(T.int32(0), "int32")
                    none = S.vdup(T.int32(0), "int32")
                    one = S.vdup(T.int32(1), "int32")
                    for c in T.serial(count // LANES + 1):
                        sum = S.alloc_var(I32)
                        sum = carry
                        for y in T.serial(LANES):
                            later = S.vcmps(lane, y, op="gt")
                            sum = S.vadd(sum, S.vsel(S.vld(every[c * LANES + y], dist="BRC_B32"), none, later))
                        S.vsts(offset[c * LANES], sum)
                        S.vsts(before[c * LANES], S.vadd(S.vld(before[c * LANES]), sum))
                        carry = S.vadd(carry, S.vdupv(S.vcadd(S.vld(every[c * LANES]))))
                    S.mem_bar("VST_VLD")
                    for b in T.serial(chunk // LANES):
                        own = S.vld(mine[b * LANES])
                        rank = S.alloc_var(I32)
                        rank = S.vdup(T.int32(0), "int32")
                        for j in T.serial(b * LANES):
                            same = S.vcmp(own, S.vld(mine[j], dist="BRC_B32"), op="eq")
                            rank = S.vadd(rank, S.vsel(one, none, same))
                        for y in T.serial(LANES):
                            after = S.vcmps(lane, y, op="gt")
                            equal = S.vcmp(own, S.vld(mine[b * LANES + y], dist="BRC_B32"), mask=after, op="eq")
                            rank = S.vadd(rank, S.vsel(one, none, equal))
                        real = S.vcmps(own, T.int32(0), op="ge")
                        here = S.vcmps(own, count, mask=real, op="lt")
                        start = S.vgather2(before[0], T.reinterpret(own, "uint32x64"), mask=here)
                        S.vsts(place[b * LANES], S.vsel(S.vadd(start, rank), S.vdup(T.int32(-1), "int32"), here))
                if begin == 0:
                    T.copy(offset[0 : count + 1], O[0 : count + 1])
                ext = T.min(chunk, n - begin)
                T.copy(place[0:ext], P[begin : begin + ext])
                with T.SimtVF(threads=chunk):
                    for t in T.Parallel(chunk):
                        if begin + t < n:
                            p = place[t]
                            if p >= 0:
                                T.assume(p < n)
                                R[p] = (begin + t) // slots
                                Q[p] = W[begin + t]
                            if begin + t >= offset[count]:
                                R[begin + t] = -1
                                Q[begin + t] = T.float32(0)

    return moe_pack
