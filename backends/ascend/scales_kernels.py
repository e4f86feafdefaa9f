# mypy: ignore-errors
"""Scale bytes of rows as the matrix unit takes them: in pairs, in the order of the product's rows. SIMT."""

import tilelang.ascend.language as T

I32, U8 = T.int32, T.uint8
ONE = 127


def pair_scales(threads=512):
    """Row i of the result: the `groups` bytes of row i, or S[i] if `gathered`, and a one where they are odd.

    A core takes 512 bytes at a time. If `counted`, rows from C[last] on are left as they are, and nothing is read for
    them.
    """
    span, n, q, z = (T.dynamic(name) for name in ("span", "n", "q", "z"))

    @T.prim_func
    def pair_scales(
        X: T.Tensor((span,), U8),
        S: T.Tensor((q,), I32),
        C: T.Tensor((z,), I32),
        Y: T.Tensor((n,), U8),
        groups: T.int32,
        width: T.int32,
        gathered: T.int32,
        counted: T.int32,
        last: T.int32,
        tiles: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            T.assume(0 < cores)
            T.assume(0 < width)
            T.assume(0 < groups)
            T.assume(0 <= last)
            T.assume(last < z)
            for i in T.serial(T.ceildiv(tiles - bx, cores)):
                begin = (bx + i * cores) * threads
                with T.SimtVF(threads=threads):
                    for t in T.Parallel(threads):
                        if begin + t < n:
                            row = (begin + t) // width
                            at = (begin + t) % width
                            if (counted == 0) or (row < C[last]):
                                if at < groups:
                                    if gathered > 0:
                                        T.assume(row < q)
                                        Y[begin + t] = X[S[row] * groups + at]
                                    else:
                                        Y[begin + t] = X[row * groups + at]
                                else:
                                    Y[begin + t] = T.uint8(ONE)

    return pair_scales
