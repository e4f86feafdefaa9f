# mypy: ignore-errors
"""Engram: hashes of n-grams, rows of the table by DMA, and the gate."""

import tilelang.ascend.language as T

BF16, F32, U8, I32, I64 = T.bfloat16, T.float32, T.uint8, T.int32, T.int64
LANES = 64


def engram_gather(chunk=16384):
    """Q[l] = X[R[l]] and E[l] = SCALE[R[l]], rows of W and W / 32 bytes; W up to `chunk`."""
    N, L, W = T.dynamic("N", "int64"), T.dynamic("L"), T.dynamic("W")

    @T.prim_func
    def engram_gather(
        X: T.Tensor((N, W), U8),
        SCALE: T.Tensor((N, W // 32), U8),
        R: T.Tensor((L,), I64),
        Q: T.Tensor((L, W), U8),
        E: T.Tensor((L, W // 32), U8),
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            e = T.alloc_shared((chunk // 32,), U8)
            T.assume(0 < W)
            T.assume(W <= chunk)
            T.assume(W % 32 == 0)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(L - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < L)
                p = R[r]
                T.assume(0 <= p)
                T.assume(p < N)
                T.copy(X[p, 0:W], x[0:W])
                T.copy(SCALE[p, 0 : W // 32], e[0 : W // 32])
                T.copy(x[0:W], Q[r, 0:W])
                T.copy(e[0 : W // 32], E[r, 0 : W // 32])

    return engram_gather


def engram_hash(threads=256):
    """`ops.engram.engram_hash`, SIMT: a thread for each column of a row; `heads` columns to each size of n-gram."""
    m, n, V, C, items = T.dynamic("m"), T.dynamic("n"), T.dynamic("V"), T.dynamic("C"), T.dynamic("items")

    @T.prim_func
    def engram_hash(
        GRAM: T.Tensor((m, n), I32),
        LOOKUP: T.Tensor((V,), I32),
        FACTOR: T.Tensor((n,), I64),
        PRIME: T.Tensor((C,), I64),
        OFFSET: T.Tensor((C,), I64),
        Y: T.Tensor((items,), I64),
        pad: T.int32,
        heads: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < heads)
            T.assume(0 < C)
            for i in T.serial(T.ceildiv(T.ceildiv(items, threads) - bx, cores)):
                base = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    row = T.alloc_fragment((threads,), I32)
                    column = T.alloc_fragment((threads,), I32)
                    token = T.alloc_fragment((threads,), I32)
                    whole = T.alloc_fragment((threads,), I32)
                    state = T.alloc_fragment((threads,), I64)
                    for j in T.Parallel(threads):
                        if base + j < items:
                            row[j] = T.truncdiv(base + j, C)
                            column[j] = base + j - row[j] * C
                            whole[j] = 1
                            state[j] = 0
                            for k in T.serial(T.truncdiv(column[j], heads) + 2):
                                token[j] = GRAM[row[j], k]
                                if (token[j] < 0) or (token[j] >= V):
                                    whole[j] = 0
                                if whole[j] == 1:
                                    token[j] = LOOKUP[token[j]]
                                else:
                                    token[j] = pad
                                state[j] = state[j] ^ (T.cast(token[j], I64) * FACTOR[k])
                            state[j] = T.truncmod(state[j], PRIME[column[j]])
                            if state[j] < 0:
                                state[j] = state[j] + PRIME[column[j]]
                            Y[base + j] = state[j] + OFFSET[column[j]]

    return engram_hash


def engram_gate(most=8192):
    """`ops.engram.engram_gate`, SIMD: stream by stream, whose weights stay in UB, the cores share the rows.

    A row of KV is M keys and the value, of D channels up to `most`; rows of images are copied.
    """
    S = T.simd
    m, M, D, width = T.dynamic("m"), T.dynamic("M"), T.dynamic("D"), T.dynamic("width")

    @T.prim_func
    def engram_gate(
        X: T.Tensor((m, M, D), BF16),
        KV: T.Tensor((m, width), BF16),
        QW: T.Tensor((M, D), BF16),
        KW: T.Tensor((M, D), BF16),
        IMAGE: T.Tensor((m,), U8),
        Y: T.Tensor((m, M, D), BF16),
        size: T.float32,
        root: T.float32,
        eps: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            k = T.alloc_shared((most,), BF16)
            v = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            w = T.alloc_shared((most,), F32)
            T.annotate_buffer_versions({w: 1})
            T.assume(0 < D)
            T.assume(D <= most)
            T.assume(0 < M)
            T.assume(width == (M + 1) * D)
            T.assume(0 < cores)
            for s in T.serial(M):
                T.copy(QW[s, 0:D], x[0:D])
                T.copy(KW[s, 0:D], k[0:D])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(D, LANES)):
                        qw = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        kw = S.vcvt(S.vld(k[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        S.vsts(w[c * LANES], S.vmul(qw, kw))
                for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                    r = bx + i * cores
                    T.assume(0 <= r)
                    T.assume(r < m)
                    T.copy(X[r, s, 0:D], x[0:D])
                    if IMAGE[r] == 0:
                        T.copy(KV[r, s * D : s * D + D], k[0:D])
                        T.copy(KV[r, M * D : M * D + D], v[0:D])
                        with T.SimdVF():
                            dot = S.alloc_var(F32)
                            own = S.alloc_var(F32)
                            key = S.alloc_var(F32)
                            dot = S.vdup(T.float32(0), "float32")
                            own = S.vdup(T.float32(0), "float32")
                            key = S.vdup(T.float32(0), "float32")
                            for c in T.serial(T.ceildiv(D, LANES)):
                                some = S.update_mask(D - c * LANES, 32)
                                a = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                b = S.vcvt(S.vld(k[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                weighed = S.vmul(a, S.vld(w[c * LANES]), mask=some)
                                dot = S.vadd(dot, S.vmul(weighed, b, mask=some))
                                own = S.vadd(own, S.vmul(a, a, mask=some))
                                key = S.vadd(key, S.vmul(b, b, mask=some))
                            one = S.vdup(T.float32(1), "float32")
                            count = S.vdup(size, "float32")
                            own_mean = S.vadds(S.vdiv(S.vdupv(S.vcadd(own)), count), eps)
                            key_mean = S.vadds(S.vdiv(S.vdupv(S.vcadd(key)), count), eps)
                            first = S.vmul(S.vdupv(S.vcadd(dot)), S.vdiv(one, S.vsqrt(own_mean)))
                            match = S.vmuls(S.vmul(first, S.vdiv(one, S.vsqrt(key_mean))), root)
                            sign = S.vand(T.reinterpret(match, "int32x64"), S.vdup(T.int32(-0x80000000), "int32"))
                            size_root = S.vsqrt(S.vmaxs(S.vabs(match), T.float32(1e-6)))
                            # exp(-x) of x with the sign of `match`
                            minus = S.vxor(T.reinterpret(size_root, "int32x64"), sign)
                            power = S.vexp(S.vmuls(T.reinterpret(minus, "float32x64"), T.float32(-1)))
                            sigmoid = S.vdiv(one, S.vadds(power, T.float32(1)))
                            number = S.vcmp(match, match, op="eq")
                            gate = S.vsel(sigmoid, match, number)  # a maximum may lose NaN
                            for c in T.serial(T.ceildiv(D, LANES)):
                                rest = S.update_mask(D - c * LANES, 32)
                                d = S.vcvt(S.vld(x[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                e = S.vcvt(S.vld(v[c * LANES], dist="UNPK_B16"), "float32", part=0)
                                z = S.vadd(d, S.vmul(gate, e, mask=rest), mask=rest)
                                S.vsts(y[c * LANES], S.vcvt(z, "bfloat16", part=0), mask=rest, dist="PK_B32")
                        T.copy(y[0:D], Y[r, s, 0:D])
                    else:
                        T.copy(x[0:D], Y[r, s, 0:D])

    return engram_gate
