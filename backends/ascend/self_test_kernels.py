# mypy: ignore-errors
"""The kernel of the self-test."""

import tilelang.ascend.language as T

I32 = T.int32


def self_test(width=64):
    """y = 3 x + 7 in 32 bits, row by row."""
    S = T.simd
    m = T.dynamic("m")

    @T.prim_func
    def self_test(X: T.Tensor((m, width), I32), Y: T.Tensor((m, width), I32), cores: T.int32):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((width,), I32)
            y = T.alloc_shared((width,), I32)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                T.assume(bx + i * cores < m)
                T.copy(X[bx + i * cores, 0:width], x)
                with T.SimdVF():
                    S.vsts(y[0], S.vadds(S.vmuls(S.vld(x[0]), T.int32(3)), T.int32(7)))
                T.copy(y, Y[bx + i * cores, 0:width])

    return self_test
