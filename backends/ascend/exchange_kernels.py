# mypy: ignore-errors
"""Rows by the rank of their experts, and products by the rank that asked: numbers by SIMT and SIMD, rows by DMA."""

import tilelang.ascend.language as T

F8, F32, I32, I64, U8, U16 = T.float8_e4m3fn, T.float32, T.int32, T.int64, T.uint8, T.uint16
LANES = 64


def number_products(chunk=512):
    """Where each product goes: entry n of a rank's part that names one is row n of its segment, -1 for none.

    A core numbers `chunk` entries of one rank at a time, after those before them in that part. How many there are is
    told to the vectors through UB: a value made from the core's number would be a parameter called block_idx.
    """
    S = T.simd
    n = T.dynamic("n")

    @T.macro
    def tell(p, number, limit, numbered):
        """The entries below `limit` that name a product are numbered, counting on from `number`."""
        running = S.alloc_var(I32)
        running = S.vld(number[0])
        most = S.vld(limit[0])
        for c in T.serial(chunk // LANES):
            inside = S.vcmp(S.vci(c * LANES, "int32"), most, op="lt")
            names = S.vcmps(S.vld(p[c * LANES]), T.int32(0), mask=inside, op="ge")
            if numbered is not None:
                own = S.vadd(S.vusqz(names), running)
                S.vsts(numbered[c * LANES], S.vsel(own, S.vdup(T.int32(-1), "int32"), names))
            one = S.vsel(S.vdup(T.int32(1), "int32"), S.vdup(T.int32(0), "int32"), names)
            running = S.vadd(running, S.vdupv(S.vcadd(one)))
        S.vsts(number[0], running)

    @T.prim_func
    def number_products(
        P: T.Tensor((n,), I32),
        N: T.Tensor((n,), I32),
        part: T.int32,
        chunks: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            p = T.alloc_shared((chunk,), I32)
            numbered = T.alloc_shared((chunk,), I32)
            number = T.alloc_shared((LANES,), I32)
            limit = T.alloc_shared((LANES,), I32)
            T.annotate_buffer_versions({p: 1, numbered: 1, number: 1, limit: 1})
            T.assume(0 < cores)
            T.assume(0 < part)
            T.assume(0 < chunks)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                t = bx + i * cores
                start = t // chunks * part
                at = t % chunks * chunk
                count = T.min(chunk, part - at)
                T.assume(0 <= start)
                T.assume(0 < count)
                T.assume(start + at + count <= n)
                with T.SimtVF(threads=LANES):
                    for y in T.Parallel(LANES):
                        number[y] = 0
                        limit[y] = chunk
                for c in T.serial(t % chunks):
                    T.assume(start + (c + 1) * chunk <= n)
                    T.copy(P[start + c * chunk : start + (c + 1) * chunk], p)
                    with T.SimdVF():
                        tell(p, number, limit, None)
                with T.SimtVF(threads=LANES):
                    for y in T.Parallel(LANES):
                        limit[y] = count
                T.copy(P[start + at : start + at + count], p[0:count])
                with T.SimdVF():
                    tell(p, number, limit, numbered)
                T.copy(numbered[0:count], N[start + at : start + at + count])

    return number_products


def moe_return(chunk=65536):
    """Rows of y, as 16 bits, to the places that `number_products` gave; those from `returns` on are left out."""
    M, D, n, B = T.dynamic("M"), T.dynamic("D"), T.dynamic("n"), T.dynamic("B", "int64")

    @T.prim_func
    def moe_return(
        Y: T.Tensor((M, D), U16),
        P: T.Tensor((n,), I32),
        N: T.Tensor((n,), I32),
        Z: T.Tensor((B, D), U16),
        part: T.int32,
        returns: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            y = T.alloc_shared((chunk,), U16)
            T.assume(0 < cores)
            T.assume(0 < part)
            T.assume(0 < D)
            for i in T.serial(T.ceildiv(n - bx, cores)):
                j = bx + i * cores
                T.assume(0 <= j)
                T.assume(j < n)
                to = N[j]
                if (to >= 0) and (to < returns):
                    p = P[j]
                    z = T.cast(j // part, I64) * returns + to
                    T.assume(0 <= p)
                    T.assume(p < M)
                    T.assume(0 <= z)
                    T.assume(z < B)
                    for c in T.serial(T.ceildiv(D, chunk)):
                        count = T.min(chunk, D - c * chunk)
                        T.assume(0 < count)
                        T.copy(Y[p, c * chunk : c * chunk + count], y[0:count])
                        T.copy(y[0:count], Z[z, c * chunk : c * chunk + count])

    return moe_return


def choose_experts(chunk=256):
    """Physical expert of every slot, -1 for nobody's; the rank of a token's first slot there, -1 for its others.

    A core takes the slots of whole tokens, `take` of them at a time. X = 0: there are no replicas.
    """
    n, span = T.dynamic("n"), T.dynamic("span")

    @T.prim_func
    def choose_experts(
        I: T.Tensor((n,), I32),
        R: T.Tensor((span,), I32),
        O: T.Tensor((n,), I32),
        F: T.Tensor((n,), I32),
        E: T.int32,
        X: T.int32,
        slots: T.int32,
        ranks: T.int32,
        per_rank: T.int32,
        own: T.int32,
        take: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            expert = T.alloc_shared((chunk,), I32)
            count = T.alloc_shared((chunk,), I32)
            first = T.alloc_shared((chunk,), I32)
            T.annotate_buffer_versions({expert: 1, count: 1, first: 1})
            T.assume(0 < cores)
            T.assume(0 < slots)
            T.assume(0 < per_rank)
            T.assume(0 <= X)
            T.assume(0 < take)
            T.assume(take <= chunk)
            T.assume(E * X <= span)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                begin = (bx + i * cores) * take
                taken = T.min(take, n - begin)
                T.assume(0 <= begin)
                T.assume(0 < taken)
                T.assume(begin + taken <= n)
                with T.SimtVF(threads=chunk):
                    for t in T.Parallel(chunk):
                        expert[t] = T.if_then_else(t < taken, I[begin + t], -1)
                        count[t] = 0
                    for x in T.serial(X):
                        for t in T.Parallel(chunk):
                            if (expert[t] >= 0) and (expert[t] < E) and (count[t] == x):
                                if R[expert[t] * X + x] >= 0:
                                    count[t] = x + 1
                    if X > 0:
                        for t in T.Parallel(chunk):
                            if count[t] > 0:
                                expert[t] = R[expert[t] * X + (own + (begin + t) // slots) % count[t]]
                            else:
                                expert[t] = -1
                    for t in T.Parallel(chunk):
                        if (expert[t] < 0) or (expert[t] >= ranks * per_rank):
                            expert[t] = -1
                        first[t] = T.if_then_else(expert[t] < 0, -1, expert[t] // per_rank)
                    for j in T.serial(1, slots):
                        for t in T.Parallel(chunk):
                            if (t % slots >= j) and (first[t] >= 0):
                                if (expert[t - j] >= 0) and (expert[t - j] // per_rank == first[t]):
                                    first[t] = -1
                T.copy(expert[0:taken], O[begin : begin + taken])
                T.copy(first[0:taken], F[begin : begin + taken])

    return choose_experts


def place_rows(chunk=256, most=1024, experts=8192):
    """What a rank sends besides codes: experts, weights, counts, the places of products, the row of each token.

    A core places 256 slots at a time, however many there are: it counts every slot by rank, and those before its own.
    `most` ranks and `experts` physical experts at most.
    """
    S = T.simd
    n, B, ranks, count = T.dynamic("n"), T.dynamic("B", "int64"), T.dynamic("ranks"), T.dynamic("count")

    @T.macro
    def earlier(key, own, b, result):
        """Slots of the 256 before each of the b-th 64 with a key equal to `own`."""
        lane = S.vci(T.int32(0), "int32")
        none = S.vdup(T.int32(0), "int32")
        one = S.vdup(T.int32(1), "int32")
        rank = S.alloc_var(I32)
        rank = none
        for j in T.serial(b * LANES):
            same = S.vcmp(own, S.vld(key[j], dist="BRC_B32"), op="eq")
            rank = S.vadd(rank, S.vsel(one, none, same))
        for y in T.serial(LANES):
            after = S.vcmps(lane, y, op="gt")
            equal = S.vcmp(own, S.vld(key[b * LANES + y], dist="BRC_B32"), mask=after, op="eq")
            rank = S.vadd(rank, S.vsel(one, none, equal))
        S.vsts(result[b * LANES], rank)

    @T.prim_func
    def place_rows(
        O: T.Tensor((n,), I32),
        F: T.Tensor((n,), I32),
        W: T.Tensor((n,), F32),
        SE: T.Tensor((B,), I32),
        SW: T.Tensor((B,), F32),
        C: T.Tensor((ranks * 2,), I32),
        P: T.Tensor((n,), I32),
        L: T.Tensor((count,), I32),
        TO: T.Tensor((n,), I32),
        slots: T.int32,
        per_rank: T.int32,
        capacity: T.int32,
        returns: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            rank = T.alloc_shared((chunk,), I32)
            first = T.alloc_shared((chunk,), I32)
            number = T.alloc_shared((chunk,), I32)
            row = T.alloc_shared((chunk,), I32)
            place = T.alloc_shared((chunk,), I32)
            target = T.alloc_shared((chunk,), I32)
            products = T.alloc_shared((most,), I32)
            rows = T.alloc_shared((most,), I32)
            before = T.alloc_shared((most,), I32)
            ahead = T.alloc_shared((most,), I32)
            load = T.alloc_shared((experts,), I32)
            T.annotate_buffer_versions(
                dict.fromkeys((rank, first, number, row, place, target, products, rows, before, ahead, load), 1)
            )
            T.assume(0 < cores)
            T.assume(0 < slots)
            T.assume(0 < per_rank)
            T.assume(0 < ranks)
            T.assume(ranks <= most)
            T.assume(count <= experts)
            T.assume(0 < count)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                tile = bx + i * cores
                begin = tile * chunk
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(ranks, LANES)):
                        zero = S.vdup(T.int32(0), "int32")
                        S.vsts(products[c * LANES], zero)
                        S.vsts(rows[c * LANES], zero)
                        S.vsts(before[c * LANES], zero)
                        S.vsts(ahead[c * LANES], zero)
                    for c in T.serial(T.ceildiv(count, LANES)):
                        S.vsts(load[c * LANES], S.vdup(T.int32(0), "int32"))
                with T.SimtVF(threads=chunk):
                    for t in T.Parallel(chunk):
                        rank[t] = -1
                        first[t] = -2
                        if begin + t < n:
                            first[t] = F[begin + t]
                            if O[begin + t] >= 0:
                                rank[t] = O[begin + t] // per_rank
                    for c in T.serial(T.ceildiv(n, chunk)):
                        for t in T.Parallel(chunk):
                            if c * chunk + t < n:
                                x = O[c * chunk + t]
                                if x >= 0:
                                    T.atomic_add(load[x], 1)
                                    T.atomic_add(products[x // per_rank], 1)
                                    if c < tile:
                                        T.atomic_add(before[x // per_rank], 1)
                                f = F[c * chunk + t]
                                if f >= 0:
                                    T.atomic_add(rows[f], 1)
                                    if c < tile:
                                        T.atomic_add(ahead[f], 1)
                with T.SimdVF():
                    for b in T.serial(chunk // LANES):
                        own = S.vld(rank[b * LANES])
                        earlier(rank, own, b, number)
                        earlier(first, own, b, row)
                with T.SimtVF(threads=chunk):
                    for t in T.Parallel(chunk):
                        place[t] = -1
                        target[t] = -1
                        if rank[t] >= 0:
                            number[t] = number[t] + before[rank[t]]
                            row[t] = row[t] + ahead[rank[t]]
                            if first[t] < 0:
                                row[t] = row[t] - 1
                            if row[t] < capacity:
                                if number[t] < returns:
                                    place[t] = rank[t] * returns + number[t]
                                if first[t] >= 0:
                                    target[t] = rank[t] * capacity + row[t]
                    for j in T.serial(slots):
                        for t in T.Parallel(chunk):
                            if target[t] >= 0:
                                o = O[(begin + t) // slots * slots + j]
                                z = T.cast(target[t], I64) * slots + j
                                T.assume(z < B)
                                if (o >= 0) and (o // per_rank == rank[t]):
                                    SE[z] = o % per_rank
                                    SW[z] = W[(begin + t) // slots * slots + j]
                                else:
                                    SE[z] = -1
                                    SW[z] = T.float32(0)
                    for c in T.serial(T.ceildiv(ranks * capacity, tiles * chunk)):
                        for t in T.Parallel(chunk):
                            z = (c * tiles + tile) * chunk + t
                            if z < ranks * capacity:
                                if z % capacity >= rows[z // capacity]:
                                    for j in T.serial(slots):
                                        SE[T.cast(z, I64) * slots + j] = -1
                                        SW[T.cast(z, I64) * slots + j] = T.float32(0)
                    if tile == 0:
                        for c in T.serial(T.ceildiv(ranks, chunk)):
                            for t in T.Parallel(chunk):
                                if c * chunk + t < ranks:
                                    C[(c * chunk + t) * 2] = rows[c * chunk + t]
                                    C[(c * chunk + t) * 2 + 1] = products[c * chunk + t]
                T.copy(place[0 : T.min(chunk, n - begin)], P[begin : begin + T.min(chunk, n - begin)])
                T.copy(target[0 : T.min(chunk, n - begin)], TO[begin : begin + T.min(chunk, n - begin)])
                if tile == 0:
                    T.copy(load[0:count], L[0:count])

    return place_rows


def moe_dispatch(codes=65536):
    """Codes and scale bytes of each token to the rows that `place_rows` gave; read once, stored for every rank."""
    m, D, n, B = T.dynamic("m"), T.dynamic("D"), T.dynamic("n"), T.dynamic("B", "int64")

    @T.prim_func
    def moe_dispatch(
        X: T.Tensor((m, D), U8),
        G: T.Tensor((m, D // 32), U8),
        TO: T.Tensor((n,), I32),
        Q: T.Tensor((B, D), U8),
        H: T.Tensor((B, D // 32), U8),
        slots: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((codes,), U8)
            g = T.alloc_shared((codes // 32,), U8)
            T.assume(0 < cores)
            T.assume(0 < slots)
            T.assume(0 < D)
            T.assume(D % 32 == 0)
            T.assume(D <= codes)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                T.copy(X[r, 0:D], x[0:D])
                T.copy(G[r, 0 : D // 32], g[0 : D // 32])
                for j in T.serial(slots):
                    T.assume(r * slots + j < n)
                    z = TO[r * slots + j]
                    if z >= 0:
                        T.assume(z < B)
                        T.copy(x[0:D], Q[z, 0:D])
                        T.copy(g[0 : D // 32], H[z, 0 : D // 32])

    return moe_dispatch
