# mypy: ignore-errors
"""Exact top-k, SIMD: the k-th largest key bit by bit, then one pass in the order of ids that keeps what is above it."""

import tilelang.ascend.language as T

I32, I64 = T.int32, T.int64
LANES = 64
# Places in `state`, each a register: threshold, running count, number wanted, ids written, ties passed, ties wanted.
THRESHOLD, COUNT, WANTED, WRITTEN, PASSED, TIES = (64 * i for i in range(6))


def topk_select(dtype="bfloat16", blocks=False, chunk=16384, most=4096):
    """The k best visible lanes of each row, ascending ids, then -1.

    A lane's key is an integer in the order of the scores: NaN lowest of what is visible, absent lanes below it. The row
    stays in UB where it fits (`chunk` lanes), else it is read again for each bit. k up to `most`.
    """
    S = T.simd
    bits = 16 if dtype == "bfloat16" else 32
    lowest = -(1 << (bits - 1))
    infinite, sign = 0x7F800000 >> (32 - bits), (1 << (bits - 1)) - 1
    m, N, k, KB = T.dynamic("m"), T.dynamic("N"), T.dynamic("k"), T.dynamic("KB")

    @T.macro
    def make_keys(x, b, key, first, count, visible, shift, size):
        for c in T.serial(T.ceildiv(count, LANES)):
            some = S.update_mask(count - c * LANES, 32)
            zero = S.vdup(T.int32(0), "int32")
            if dtype == "bfloat16":
                value = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                word = S.vshrs(T.reinterpret(value, "int32x64"), T.int16(16))
                nought = S.vcmps(value, T.float32(0), op="eq")
                plain = S.vsel(zero, word, nought)
            else:
                value32 = S.vld(x[c * LANES])
                nought32 = S.vcmps(value32, T.float32(0), op="eq")
                plain = S.vsel(zero, T.reinterpret(value32, "int32x64"), nought32)
            mask = S.vdup(T.int32(sign), "int32")
            negative = S.vshrs(plain, T.int16(31))
            ordered = S.vxor(plain, S.vand(negative, mask))
            nan = S.vcmps(S.vand(plain, mask), T.int32(infinite), op="gt")
            number = S.vsel(S.vdup(T.int32(lowest + 1), "int32"), ordered, nan)
            lane = S.vci(first + c * LANES, "int32")
            if blocks:
                within = S.vci(c * LANES, "int32")
                block = S.vgather2(b[0], T.reinterpret(S.vshrs(within, shift), "uint32x64"), mask=some)
                start = S.vshls(block, shift)
                entry = S.vadd(start, S.vand(lane, S.vdup(size - 1, "int32")))
                there = S.vcmps(block, T.int32(0), mask=some, op="ge")
                seen = S.vcmps(entry, visible, mask=there, op="lt")
                S.vsts(key[c * LANES], S.vsel(number, S.vdup(T.int32(lowest), "int32"), seen))
            else:
                near = S.vcmps(lane, visible, mask=some, op="lt")
                S.vsts(key[c * LANES], S.vsel(number, S.vdup(T.int32(lowest), "int32"), near))

    @T.macro
    def count_keys(key, state, count, step):
        """Adds to COUNT how many keys are at or above the candidate: the threshold and `step`."""
        found = S.alloc_var("int32")
        found = S.vld(state[COUNT])
        candidate = S.vadds(S.vld(state[THRESHOLD]), step)
        for c in T.serial(T.ceildiv(count, LANES)):
            enough = S.vcmp(S.vld(key[c * LANES]), candidate, op="ge")
            one = S.vsel(S.vdup(T.int32(1), "int32"), S.vdup(T.int32(0), "int32"), enough)
            found = S.vadd(found, one)
        S.vsts(state[COUNT], found)

    @T.prim_func
    def topk_select(
        X: T.Tensor((m, N), dtype),
        V: T.Tensor((m,), I32),
        B: T.Tensor((m, KB), I32),
        I: T.Tensor((m, k), I32),
        shift: T.int16,
        size: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), dtype)
            key = T.alloc_shared((chunk,), I32)
            b = T.alloc_shared((chunk // 4 if blocks else 8,), I32)
            out = T.alloc_shared((most + LANES,), I32)
            state = T.alloc_shared((6 * LANES,), I32)
            T.annotate_buffer_versions({x: 1, key: 1, b: 1, out: 1, state: 1})
            T.assume(0 < cores)
            T.assume(0 < k)
            T.assume(k <= most)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                visible = V[r]
                with T.SimdVF():
                    S.vsts(state[THRESHOLD], S.vdup(T.int32(lowest), "int32"))
                    S.vsts(state[WRITTEN], S.vdup(T.int32(0), "int32"))
                    S.vsts(state[PASSED], S.vdup(T.int32(0), "int32"))
                    for c in T.serial(T.ceildiv(k, LANES)):
                        S.vsts(out[c * LANES], S.vdup(T.int32(-1), "int32"))
                # Pass 0 counts what is visible, pass p tries bit bits - p, the last counts what is above the threshold.
                for p in T.serial(bits + 2):
                    with T.SimdVF():
                        S.vsts(state[COUNT], S.vdup(T.int32(0), "int32"))
                    for ch in T.serial(T.ceildiv(N, chunk)):
                        count = T.min(chunk, N - ch * chunk)
                        T.assume(0 < count)
                        if (p == 0) or (N > chunk):
                            T.copy(X[r, ch * chunk : ch * chunk + count], x[0:count])
                            if blocks:
                                T.copy(
                                    B[r, (ch * chunk) // size : (ch * chunk) // size + count // size],
                                    b[0 : count // size],
                                )
                            with T.SimdVF():
                                make_keys(x, b, key, ch * chunk, count, visible, shift, size)
                        with T.SimdVF():
                            count_keys(
                                key,
                                state,
                                count,
                                T.if_then_else((p == 0) or (p > bits), T.int32(1), T.shift_left(T.int32(1), bits - p)),
                            )
                    with T.SimdVF():
                        total = S.vdupv(S.vcadd(S.vld(state[COUNT])))
                        old = S.vld(state[THRESHOLD])
                        wanted = S.vld(state[WANTED])
                        if p == 0:
                            S.vsts(state[WANTED], S.vmin(total, S.vdup(k, "int32")))
                        if (p > 0) and (p <= bits):
                            keep = S.vcmp(total, wanted, op="ge")
                            S.vsts(
                                state[THRESHOLD], S.vsel(S.vadds(old, T.shift_left(T.int32(1), bits - p)), old, keep)
                            )
                        if p > bits:
                            S.vsts(state[TIES], S.vsub(wanted, total))
                for ch in T.serial(T.ceildiv(N, chunk)):
                    count = T.min(chunk, N - ch * chunk)
                    T.assume(0 < count)
                    if N > chunk:
                        T.copy(X[r, ch * chunk : ch * chunk + count], x[0:count])
                        if blocks:
                            T.copy(
                                B[r, (ch * chunk) // size : (ch * chunk) // size + count // size], b[0 : count // size]
                            )
                        with T.SimdVF():
                            make_keys(x, b, key, ch * chunk, count, visible, shift, size)
                    with T.SimdVF():
                        written = S.alloc_var(I32)
                        passed = S.alloc_var(I32)
                        written = S.vld(state[WRITTEN])
                        passed = S.vld(state[PASSED])
                        border = S.vld(state[THRESHOLD])
                        ties = S.vld(state[TIES])
                        full = S.pset(32, "PAT_ALL")
                        for c in T.serial(T.ceildiv(count, LANES)):
                            value = S.vld(key[c * LANES])
                            above = S.vcmp(value, border, op="gt")
                            equal = S.vcmp(value, border, op="eq")
                            early = S.vcmp(S.vadd(S.vusqz(equal), passed), ties, mask=equal, op="lt")
                            taken = S.por(above, early, full)
                            place = S.vadd(S.vusqz(taken), written)
                            lane = S.vci(ch * chunk + c * LANES, "int32")
                            if blocks:
                                within = S.vshrs(S.vci(c * LANES, "int32"), shift)
                                block = S.vgather2(b[0], T.reinterpret(within, "uint32x64"), mask=taken)
                                start = S.vshls(block, shift)
                                entry = S.vadd(start, S.vand(lane, S.vdup(size - 1, "int32")))
                                S.vscatter(entry, out[0], T.reinterpret(place, "uint32x64"), mask=taken)
                            else:
                                S.vscatter(lane, out[0], T.reinterpret(place, "uint32x64"), mask=taken)
                            one, none = S.vdup(T.int32(1), "int32"), S.vdup(T.int32(0), "int32")
                            written = S.vadd(written, S.vdupv(S.vcadd(S.vsel(one, none, taken))))
                            passed = S.vadd(passed, S.vdupv(S.vcadd(S.vsel(one, none, equal))))
                        S.vsts(state[WRITTEN], written)
                        S.vsts(state[PASSED], passed)
                T.copy(out[0:k], I[r, 0:k])

    return topk_select


def block_tops(chunk=16384):
    """The best visible score of each block of `size` = 2^shift lanes, at most `chunk`; how many blocks a row sees.

    As bf16: NaN where a block has no number, capped at the largest finite one, but infinity in the last visible block.
    """
    S = T.simd
    lowest, infinite, sign, nan = -32768, 0x7F80, 0x7FFF, 0x7FC0
    m, N, count = T.dynamic("m"), T.dynamic("N"), T.dynamic("count")

    @T.prim_func
    def block_tops(
        X: T.Tensor((m, N), "bfloat16"),
        V: T.Tensor((m,), I32),
        Y: T.Tensor((m, count), "bfloat16"),
        SEEN: T.Tensor((m,), I32),
        shift: T.int16,
        size: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), "bfloat16")
            key = T.alloc_shared((chunk,), I32)
            top = T.alloc_shared((chunk + LANES,), "bfloat16")
            seen = T.alloc_shared((LANES,), I32)
            T.annotate_buffer_versions({x: 1, key: 1, top: 1, seen: 1})
            T.assume(0 < cores)
            T.assume(0 < size)
            T.assume(size <= chunk)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                visible = T.min(V[r], N)
                last = T.truncdiv(T.max(visible, 1) - 1, size)
                T.assume(0 <= last)
                for ch in T.serial(T.ceildiv(visible, chunk)):
                    lanes = T.min(chunk, visible - ch * chunk)
                    T.assume(0 < lanes)
                    T.assume(ch * chunk + lanes <= N)
                    begin = T.truncdiv(ch * chunk, size)
                    blocks = T.min(T.truncdiv(chunk, size), last + 1 - begin)
                    T.assume(0 <= begin)
                    T.assume(0 < blocks)
                    T.assume(blocks <= chunk)
                    T.assume(begin + blocks <= count)
                    T.copy(X[r, ch * chunk : ch * chunk + lanes], x[0:lanes])
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(T.min(blocks * size, chunk), LANES)):
                            some = S.update_mask(T.max(lanes - c * LANES, 0), 32)
                            mask = S.vdup(T.int32(sign), "int32")
                            value = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                            word = S.vshrs(T.reinterpret(value, "int32x64"), T.int16(16))
                            nought = S.vcmps(value, T.float32(0), op="eq")
                            plain = S.vsel(S.vdup(T.int32(0), "int32"), word, nought)
                            ordered = S.vxor(plain, S.vand(S.vshrs(plain, T.int16(31)), mask))
                            odd = S.vcmps(S.vand(plain, mask), T.int32(infinite), op="gt")
                            number = S.vsel(S.vdup(T.int32(lowest + 1), "int32"), ordered, odd)
                            S.vsts(key[c * LANES], S.vsel(number, S.vdup(T.int32(lowest), "int32"), some))
                        S.mem_bar("VST_VLD")
                        for c in T.serial(T.ceildiv(blocks, LANES)):
                            rest = S.update_mask(blocks - c * LANES, 32)
                            lane = S.vci(c * LANES, "int32")
                            start = S.vshls(lane, shift)
                            best = S.alloc_var("int32")
                            best = S.vdup(T.int32(lowest), "int32")
                            for j in T.serial(size):
                                at = S.vadds(start, j)
                                one = S.vgather2(key[0], T.reinterpret(at, "uint32x64"), mask=rest)
                                best = S.vmax(best, one)
                            capped = S.vmins(best, T.int32(infinite - 1))
                            newest = S.vcmps(S.vadds(lane, begin), last, op="eq")
                            final = S.vsel(S.vdup(T.int32(infinite), "int32"), capped, newest)
                            turned = S.vxor(final, S.vand(S.vshrs(final, T.int16(31)), S.vdup(T.int32(sign), "int32")))
                            none = S.vcmps(final, T.int32(lowest + 1), op="le")
                            bits = S.vsel(S.vdup(T.int32(nan), "int32"), turned, none)
                            S.vsts(top[c * LANES], T.reinterpret(bits, "bfloat16x128"), mask=rest, dist="PK_B32")
                    T.copy(top[0:blocks], Y[r, begin : begin + blocks])
                with T.SimdVF():
                    total = T.if_then_else(visible > 0, last + 1, 0)
                    S.vsts(seen[0], S.vdup(total, "int32"))
                T.copy(seen[0:1], SEEN[r : r + 1])

    return block_tops
