# mypy: ignore-errors
"""Accepted prefixes of sequences, SIMT."""

import tilelang.ascend.language as T

I32, U8 = T.int32, T.uint8


def accept_prefix(threads=128):
    """Accepted rows of each sequence before the first that is not, the token behind them, and whether one is a stop.

    A thread walks the rows of its sequence. Without `forced` and `stops` D, G and P are not read.
    """
    m, s, C, W = T.dynamic("m"), T.dynamic("s"), T.dynamic("C"), T.dynamic("W")

    @T.prim_func
    def accept_prefix(
        X: T.Tensor((m,), I32),
        A: T.Tensor((m,), U8),
        D: T.Tensor((m,), I32),
        G: T.Tensor((m,), I32),
        B: T.Tensor((s,), I32),
        N: T.Tensor((s,), I32),
        P: T.Tensor((s, C), I32),
        Y0: T.Tensor((s,), I32),
        Y1: T.Tensor((s, W), I32),
        Y2: T.Tensor((s,), I32),
        Y3: T.Tensor((s,), I32),
        Y4: T.Tensor((s,), U8),
        stops: T.int32,
        forced: T.int32,
        chunks: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            count = T.alloc_shared((threads,), I32)
            behind = T.alloc_shared((threads,), I32)
            stopped = T.alloc_shared((threads,), I32)
            T.annotate_buffer_versions({count: 1, behind: 1, stopped: 1})
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(chunks - bx, cores)):
                first = (bx + i * cores) * threads
                T.assume(0 <= first)
                with T.SimtVF(threads=threads):
                    for t in T.Parallel(threads):
                        count[t] = 0
                        behind[t] = -1
                        stopped[t] = 0
                    for j in T.serial(W):
                        for t in T.Parallel(threads):
                            if first + t < s:
                                if (j < N[first + t]) and (count[t] == j):
                                    row = B[first + t] + j
                                    T.assume(0 <= row)
                                    T.assume(row < m)
                                    golden = T.if_then_else(forced > 0, G[row], -1)
                                    token = T.if_then_else(golden >= 0, golden, X[row])
                                    good = T.if_then_else(
                                        golden >= 0,
                                        T.if_then_else(golden == D[row], 1, 0),
                                        T.cast(A[row], I32),
                                    )
                                    Y1[first + t, j] = token
                                    behind[t] = token
                                    for c in T.serial(stops):
                                        if (P[first + t, c] == token) and (token >= 0):
                                            stopped[t] = 1
                                    if (good != 0) and (j + 1 < N[first + t]):
                                        count[t] = j + 1
                                else:
                                    Y1[first + t, j] = -1
                    for t in T.Parallel(threads):
                        if first + t < s:
                            Y0[first + t] = count[t]
                            Y2[first + t] = behind[t]
                            Y3[first + t] = T.if_then_else(N[first + t] > 0, B[first + t] + count[t], -1)
                            Y4[first + t] = T.cast(stopped[t], U8)

    return accept_prefix
