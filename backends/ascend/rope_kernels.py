# mypy: ignore-errors
"""Rotary position embedding, SIMD: one row with all its heads in UB, turned in place."""

import tilelang.ascend.language as T

BF16, F32, I32, I64 = T.bfloat16, T.float32, T.int32, T.int64
LANES = 64


def rope(most=40960, pairs=256):
    """The last 2F channels of each head turned by the angle of the row's position; h * d up to `most`, F to `pairs`.

    `sign` is -1 to turn back. d and 2F are multiples of 16, so that each head's pairs begin on 32 bytes.
    """
    S = T.simd
    m, width, M, turned = T.dynamic("m"), T.dynamic("width"), T.dynamic("M"), T.dynamic("turned")

    @T.prim_func
    def rope(
        X: T.Tensor((m, width), BF16),
        P: T.Tensor((m,), I32),
        C: T.Tensor((M, turned), F32),
        Y: T.Tensor((m, width), BF16),
        heads: T.int32,
        d: T.int32,
        sign: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            table = T.alloc_shared((2 * pairs + LANES,), F32)
            T.assume(0 < turned)
            T.assume(turned <= 2 * pairs)
            T.assume(0 < heads)
            T.assume(turned <= d)
            T.assume(width <= most)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                p = P[r]
                T.assume(0 <= p)
                T.assume(p < M)
                T.copy(X[r, 0:width], x[0:width])
                T.copy(C[p, 0:turned], table[0:turned])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(turned, LANES)):
                        some = S.update_mask(turned - c * LANES, 32)
                        t = S.vld(table[c * LANES])
                        cosine, sine = S.vdintlv(t, t)
                        cosines, _unused = S.vintlv(cosine, cosine)
                        down = S.vmuls(sine, T.float32(-1) * sign)
                        up = S.vmuls(sine, sign)
                        sines, _unused2 = S.vintlv(down, up)
                        for n in T.serial(heads):
                            at = n * d + d - turned + c * LANES
                            v = S.vcvt(S.vld(x[at], dist="UNPK_B16"), "float32", part=0)
                            a, b = S.vdintlv(v, v)
                            w, _unused3 = S.vintlv(b, a)
                            y = S.vadd(S.vmul(v, cosines, mask=some), S.vmul(w, sines, mask=some), mask=some)
                            S.vsts(x[at], S.vcvt(y, "bfloat16", part=0), mask=some, dist="PK_B32")
                T.copy(x[0:width], Y[r, 0:width])

    return rope
