# mypy: ignore-errors
"""Dense linear layers on the matrix unit: tiles of 128 x 128 outputs, channels in order, one accumulator a tile.

Rows share nothing, and the order of a sum depends on the channels alone, so a row's bits do not depend on the others.
"""

import tilelang.ascend.language as T

BF16, F32, F8, U16 = T.bfloat16, T.float32, T.float8_e4m3fn, T.uint16


def linear_bf16(out="bfloat16", rows=128, columns=128, channels=128):
    """y = x @ w^T of any sizes; tiles are clamped at the tensors' ends and filled with zeros."""
    m, N, K = T.dynamic("m"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def linear_bf16(
        X: T.Tensor((m, K), BF16),
        W: T.Tensor((N, K), BF16),
        Y: T.Tensor((m, N), out),
        across: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_l1((rows, channels), BF16)
            w = T.alloc_l1((columns, channels), BF16)
            c = T.alloc_l0c((rows, columns), F32)
            T.assume(0 < cores)
            T.assume(0 < across)
            T.assume(0 < K)
            T.assume(0 < N)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                t = bx + i * cores
                m0 = t % across * rows
                n0 = t // across * columns
                T.assume(0 <= m0)
                T.assume(m0 < m)
                T.assume(0 <= n0)
                T.assume(n0 < N)
                for k in T.Pipelined(T.ceildiv(K, channels), num_stages=2):
                    T.copy(X[m0, k * channels], x)
                    T.copy(W[n0, k * channels], w)
                    T.gemm(x, w, c, transpose_B=True, clear_accum=(k == 0))
                T.copy(c, Y[m0, n0])

    return linear_bf16


def linear_fp8(rows=128, columns=128, channels=256):
    """y = bf16((xq * 2^(xs-127)) @ (w * 2^(ws-127))^T), a scale for 32 channels of each row, in pairs.

    K is a multiple of `channels`, itself of 64: the scales of a tile that is not whole would keep what L1 held before,
    which may be NaN, while its codes are filled with zeros.
    """
    m, N, K = T.dynamic("m"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def linear_fp8(
        X: T.Tensor((m, K), F8),
        SX: T.Tensor((m, K // 64), U16),
        W: T.Tensor((N, K), F8),
        SW: T.Tensor((N, K // 64), U16),
        Y: T.Tensor((m, N), BF16),
        across: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_l1((rows, channels), F8)
            w = T.alloc_l1((columns, channels), F8)
            sx = T.alloc_l1((rows, channels // 64), U16)
            sw = T.alloc_l1((columns, channels // 64), U16)
            c = T.alloc_l0c((rows, columns), F32)
            T.assume(0 < cores)
            T.assume(0 < across)
            T.assume(0 < K)
            T.assume(K % channels == 0)
            T.assume(0 < N)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                t = bx + i * cores
                m0 = t % across * rows
                n0 = t // across * columns
                T.assume(0 <= m0)
                T.assume(m0 < m)
                T.assume(0 <= n0)
                T.assume(n0 < N)
                for k in T.Pipelined(K // channels, num_stages=2):
                    T.copy(X[m0, k * channels], x)
                    T.copy(W[n0, k * channels], w)
                    T.copy(SX[m0, k * (channels // 64)], sx)
                    T.copy(SW[n0, k * (channels // 64)], sw)
                    T.gemm_blockscaled(x, w, c, sx, sw, transpose_B=True, clear_accum=(k == 0))
                T.copy(c, Y[m0, n0])

    return linear_fp8
