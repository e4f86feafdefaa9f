# mypy: ignore-errors
"""Cache records: rows moved into rings, and pairs of rows pooled."""

import tilelang.ascend.language as T

BF16, F32, U8, I32, I64 = T.bfloat16, T.float32, T.uint8, T.int32, T.int64
LANES = 64


def store_last_rows(chunk=32768):
    """Row t, W bytes, at position p of sequence s goes to slot p % R of its ring if p >= end - R; others go nowhere.

    A ring is `stride` bytes from the one before, a slot `pitch`; the row begins at byte `offset` of its slot.
    """
    span, m, W, Q = T.dynamic("span", "int64"), T.dynamic("m"), T.dynamic("W"), T.dynamic("Q")

    @T.prim_func
    def store_last_rows(
        X: T.Tensor((m, W), U8),
        RING: T.Tensor((span,), U8),
        AT: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        END: T.Tensor((Q,), I32),
        SLOT: T.Tensor((Q,), I32),
        stride: T.int64,
        pitch: T.int64,
        offset: T.int64,
        R: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            T.assume(0 < W)
            T.assume(W <= chunk)
            T.assume(0 < R)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                owner = OWNER[r]
                if owner >= 0:
                    T.assume(owner < Q)
                    p = AT[r]
                    T.assume(0 <= p)
                    if p >= END[owner] - R:
                        into = T.cast(SLOT[owner], I64) * stride + T.cast(p % R, I64) * pitch + offset
                        T.assume(0 <= into)
                        T.assume(into + W <= span)
                        T.copy(X[r, 0:W], x[0:W])
                        T.copy(x[0:W], RING[into : into + W])

    return store_last_rows


def compress_pool(most=2048):
    """Rows at odd positions pool the pair that they complete, d channels of fp32; other rows are zero.

    RING holds the state before the step: for each slot the gates and, `plane` elements on, the values.
    """
    S = T.simd
    m, d, Q, span = T.dynamic("m"), T.dynamic("d"), T.dynamic("Q"), T.dynamic("span", "int64")

    @T.prim_func
    def compress_pool(
        VALUE: T.Tensor((m, d), F32),
        GATE: T.Tensor((m, d), F32),
        RING: T.Tensor((span,), F32),
        AT: T.Tensor((m,), I32),
        OWNER: T.Tensor((m,), I32),
        START: T.Tensor((Q,), I32),
        SLOT: T.Tensor((Q,), I32),
        Y: T.Tensor((m, d), BF16),
        stride: T.int64,
        pitch: T.int64,
        plane: T.int64,
        L: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            older = T.alloc_shared((most,), F32)
            gate = T.alloc_shared((most,), F32)
            old = T.alloc_shared((most,), F32)
            new = T.alloc_shared((most,), F32)
            y = T.alloc_shared((most,), BF16)
            zero = T.alloc_shared((most,), BF16)
            T.annotate_buffer_versions({zero: 1})
            T.assume(0 < d)
            T.assume(d <= most)
            T.assume(0 < L)
            T.assume(0 < cores)
            with T.SimdVF():
                for c in T.serial(most // (2 * LANES)):
                    S.vsts(zero[c * 2 * LANES], S.vdup(T.bfloat16(0), "bfloat16"))
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                owner = OWNER[r]
                p = AT[r]
                T.assume(0 <= p)
                if (owner >= 0) and (p % 2 == 1):
                    T.assume(owner < Q)
                    T.copy(GATE[r, 0:d], gate[0:d])
                    T.copy(VALUE[r, 0:d], new[0:d])
                    if p > START[owner]:
                        T.assume(0 < r)
                        T.copy(GATE[r - 1, 0:d], older[0:d])
                        T.copy(VALUE[r - 1, 0:d], old[0:d])
                    else:
                        begin = T.cast(SLOT[owner], I64) * stride + T.cast((p - 1) % L, I64) * pitch
                        T.assume(0 <= begin)
                        T.assume(begin + d <= span)
                        T.assume(0 <= begin + plane)
                        T.assume(begin + plane + d <= span)
                        T.copy(RING[begin : begin + d], older[0:d])
                        T.copy(RING[begin + plane : begin + plane + d], old[0:d])
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(d, LANES)):
                            some = S.update_mask(d - c * LANES, 32)
                            g0, g1 = S.vld(older[c * LANES]), S.vld(gate[c * LANES])
                            most_gate = S.vmax(g0, g1)
                            w0, w1 = S.vexp(S.vsub(g0, most_gate)), S.vexp(S.vsub(g1, most_gate))
                            total = S.vadd(w0, w1)
                            u0 = S.vmul(S.vdiv(w0, total), S.vld(old[c * LANES]), mask=some)
                            u1 = S.vmul(S.vdiv(w1, total), S.vld(new[c * LANES]), mask=some)
                            z = S.vcvt(S.vadd(u0, u1, mask=some), "bfloat16", part=0)
                            S.vsts(y[c * LANES], z, mask=some, dist="PK_B32")
                    T.copy(y[0:d], Y[r, 0:d])
                else:
                    T.copy(zero[0:d], Y[r, 0:d])

    return compress_pool
