# mypy: ignore-errors
"""Rows chosen by an index, moved as bytes by DMA: through UB in pieces of `chunk`, zeros where the index names none.

The cores share the pieces of all rows, so that a few long rows keep all of them busy as well.
"""

import tilelang.ascend.language as T

F32, U8, I32, I64 = T.float32, T.uint8, T.int32, T.int64
BYTES = 256
LANES = 64


def gather_rows(chunk=32768):
    """Y[l] = X[R[l]], rows of W bytes; an index outside [0, N) gives zeros."""
    S = T.simd
    N, L, W = T.dynamic("N"), T.dynamic("L"), T.dynamic("W")

    @T.prim_func
    def gather_rows(
        X: T.Tensor((N, W), U8),
        R: T.Tensor((L,), I32),
        Y: T.Tensor((L, W), U8),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            zero = T.alloc_shared((chunk,), U8)
            T.annotate_buffer_versions({zero: 1})
            T.assume(0 < W)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            with T.SimdVF():
                for c in T.serial(chunk // BYTES):
                    S.vsts(zero[c * BYTES], S.vdup(T.uint8(0), "uint8"))
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, W - first)
                T.assume(0 <= r)
                T.assume(r < L)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= W)
                p = R[r]
                if (p >= 0) and (p < N):
                    T.copy(X[p, first : first + count], x[0:count])
                    T.copy(x[0:count], Y[r, first : first + count])
                else:
                    T.copy(zero[0:count], Y[r, first : first + count])

    return gather_rows


def embed_streams(chunk=32768):
    """Y[t, s] = X[I[t]] for every stream s, rows of W bytes, zeros for ids outside [0, N); H[t] = 1, 0, 0, ..."""
    S = T.simd
    N, L, W, M = T.dynamic("N"), T.dynamic("L"), T.dynamic("W"), T.dynamic("M")

    @T.prim_func
    def embed_streams(
        X: T.Tensor((N, W), U8),
        I: T.Tensor((L,), I32),
        Y: T.Tensor((L, M, W), U8),
        H: T.Tensor((L, M), F32),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), U8)
            zero = T.alloc_shared((chunk,), U8)
            hot = T.alloc_shared((LANES,), F32)
            T.annotate_buffer_versions({zero: 1, hot: 1})
            T.assume(0 < W)
            T.assume(0 < M)
            T.assume(M <= LANES)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            with T.SimdVF():
                first_lane = S.vcmps(S.vci(T.int32(0), "int32"), T.int32(0), op="eq")
                S.vsts(hot[0], S.vsel(S.vdup(T.float32(1), "float32"), S.vdup(T.float32(0), "float32"), first_lane))
                for c in T.serial(chunk // BYTES):
                    S.vsts(zero[c * BYTES], S.vdup(T.uint8(0), "uint8"))
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, W - first)
                T.assume(0 <= r)
                T.assume(r < L)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= W)
                p = I[r]
                if first == 0:
                    T.copy(hot[0:M], H[r, 0:M])
                if (p >= 0) and (p < N):
                    T.copy(X[p, first : first + count], x[0:count])
                    for s in T.serial(M):
                        T.copy(x[0:count], Y[r, s, first : first + count])
                else:
                    for s in T.serial(M):
                        T.copy(zero[0:count], Y[r, s, first : first + count])

    return embed_streams
