# mypy: ignore-errors
"""Hyper-connections, SIMD: streams in pieces of `chunk` channels; coefficients of sums over a row, 64 rows at once.

A piece holds the same channels of all streams, one after the other in UB, so that D may be anything. The coefficients
are two programs: `hc_sums` has a row's products with every line of `fn` and its squares in lanes of channels,
`hc_mix` makes coefficients of them with a row in each lane.
"""

import tilelang.ascend.language as T
from tvm.tirx.script.builder.ir import bind

BF16, F32, I32, I64 = T.bfloat16, T.float32, T.int32, T.int64
LANES = 64


def hc_collapse(chunk=2048, streams=8):
    """u = bf16(sum of the streams times their weights, in their order)."""
    S = T.simd
    m, n, D = T.dynamic("m"), T.dynamic("n"), T.dynamic("D")

    @T.prim_func
    def hc_collapse(
        X: T.Tensor((m, n, D), BF16),
        W: T.Tensor((m, n), F32),
        Y: T.Tensor((m, D), BF16),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((streams, chunk), BF16)
            w = T.alloc_shared((LANES,), F32)
            y = T.alloc_shared((chunk,), BF16)
            T.assume(0 < n)
            T.assume(n <= streams)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, D - first)
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= D)
                T.copy(X[r, 0:n, first : first + count], x[0:n, 0:count])
                T.copy(W[r, 0:n], w[0:n])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        some = S.update_mask(count - c * LANES, 32)
                        total = S.alloc_var(F32)
                        v = S.vcvt(S.vld(x[0, c * LANES], dist="UNPK_B16"), "float32", part=0)
                        total = S.vmul(v, S.vld(w[0], dist="BRC_B32"), mask=some)
                        for j in T.serial(1, n):
                            u = S.vcvt(S.vld(x[j, c * LANES], dist="UNPK_B16"), "float32", part=0)
                            total = S.vadd(total, S.vmul(u, S.vld(w[j], dist="BRC_B32"), mask=some), mask=some)
                        S.vsts(y[c * LANES], S.vcvt(total, "bfloat16", part=0), mask=some, dist="PK_B32")
                T.copy(y[0:count], Y[r, first : first + count])

    return hc_collapse


def hc_expand(chunk=2048, streams=8):
    """Stream k = bf16(post[k] y + sum of comb[j, k] times stream j, in their order); the result may lie on X."""
    S = T.simd
    m, n, D = T.dynamic("m"), T.dynamic("n"), T.dynamic("D")

    @T.prim_func
    def hc_expand(
        X: T.Tensor((m, n, D), BF16),
        Y: T.Tensor((m, D), BF16),
        P: T.Tensor((m, n), F32),
        C: T.Tensor((m, n * n), F32),
        Z: T.Tensor((m, n, D), BF16),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((streams, chunk), BF16)
            y = T.alloc_shared((chunk,), BF16)
            z = T.alloc_shared((streams, chunk), BF16)
            post = T.alloc_shared((LANES,), F32)
            comb = T.alloc_shared((LANES,), F32)
            T.assume(0 < n)
            T.assume(n <= streams)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, D - first)
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= D)
                T.copy(X[r, 0:n, first : first + count], x[0:n, 0:count])
                T.copy(Y[r, first : first + count], y[0:count])
                T.copy(P[r, 0:n], post[0:n])
                T.copy(C[r, 0 : n * n], comb[0 : n * n])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        some = S.update_mask(count - c * LANES, 32)
                        v = S.vcvt(S.vld(y[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        for k in T.serial(n):
                            total = S.alloc_var(F32)
                            total = S.vmul(v, S.vld(post[k], dist="BRC_B32"), mask=some)
                            for j in T.serial(n):
                                u = S.vcvt(S.vld(x[j, c * LANES], dist="UNPK_B16"), "float32", part=0)
                                w = S.vld(comb[j * n + k], dist="BRC_B32")
                                total = S.vadd(total, S.vmul(u, w, mask=some), mask=some)
                            S.vsts(z[k, c * LANES], S.vcvt(total, "bfloat16", part=0), mask=some, dist="PK_B32")
                T.copy(z[0:n, 0:count], Z[r, 0:n, first : first + count])

    return hc_expand


def hc_sums(chunk=512, lines=24, block=8):
    """Of each row its products with every line of F, then its squares, summed: `lines` at most, `block` rows at a time.

    A sum runs lane by lane over the channels, then over the 64 lanes as a tree, whatever rows stand beside it.
    """
    S = T.simd
    m, n, K, span = T.dynamic("m"), T.dynamic("n"), T.dynamic("K"), T.dynamic("span", "int64")
    most = lines + 1

    @T.prim_func
    def hc_sums(
        X: T.Tensor((m, K), BF16),
        F: T.Tensor((n, K), F32),
        W: T.Tensor((span,), F32),
        rows: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((block, chunk), BF16)
            f = T.alloc_shared((lines, chunk), F32)
            v = T.alloc_shared((block, chunk), F32)
            total = T.alloc_shared((block * most * LANES,), F32)
            w = T.alloc_shared((block * most + LANES,), F32)
            T.annotate_buffer_versions({total: 1, v: 1})
            T.assume(0 < n)
            T.assume(n <= lines)
            T.assume(0 < K)
            T.assume(0 < rows)
            T.assume(rows <= block)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                r = (bx + i * cores) * rows
                count = T.min(rows, m - r)
                T.assume(0 <= r)
                T.assume(0 < count)
                T.assume(r + count <= m)
                with T.SimdVF():
                    for o in T.serial(count * (n + 1)):
                        S.vsts(total[o * LANES], S.vdup(T.float32(0), "float32"))
                for p in T.Pipelined(T.ceildiv(K, chunk), num_stages=2):
                    ext = T.min(chunk, K - p * chunk)
                    T.assume(0 < ext)
                    T.copy(X[r : r + count, p * chunk : p * chunk + ext], x[0:count, 0:ext])
                    T.copy(F[0:n, p * chunk : p * chunk + ext], f[0:n, 0:ext])
                    with T.SimdVF():
                        for b in T.serial(count):
                            square = S.alloc_var(F32)
                            square = S.vld(total[(b * (n + 1) + n) * LANES])
                            for c in T.serial(T.ceildiv(ext, LANES)):
                                some = S.update_mask(ext - c * LANES, 32)
                                u = S.vcvt(S.vld(x[b, c * LANES], dist="UNPK_B16"), "float32", part=0)
                                S.vsts(v[b, c * LANES], u)
                                square = S.vadd(square, S.vmul(u, u, mask=some))
                            S.vsts(total[(b * (n + 1) + n) * LANES], square)
                        S.mem_bar("VST_VLD")
                        for o in T.serial(n):
                            for b in T.serial(count):
                                sum = S.alloc_var(F32)
                                sum = S.vld(total[(b * (n + 1) + o) * LANES])
                                for c in T.serial(T.ceildiv(ext, LANES)):
                                    rest = S.update_mask(ext - c * LANES, 32)
                                    z = S.vmul(S.vld(v[b, c * LANES]), S.vld(f[o, c * LANES]), mask=rest)
                                    sum = S.vadd(sum, z)
                                S.vsts(total[(b * (n + 1) + o) * LANES], sum)
                with T.SimdVF():
                    for o in T.serial(count * (n + 1)):
                        S.vsts(w[o], S.vcadd(S.vld(total[o * LANES])), dist="ONEPT_B32")
                at = T.cast(r, I64) * (n + 1)
                T.assume(0 <= at)
                T.assume(at + count * (n + 1) <= span)
                T.copy(w[0 : count * (n + 1)], W[at : at + count * (n + 1)])

    return hc_sums


def sigmoid(x):
    """1 / (1 + e^-x), 0 once e^-x overflows."""
    S = T.simd
    e = bind(S.vexp(bind(S.vmuls(x, T.float32(-1)))))
    return bind(S.vdiv(bind(S.vdup(T.float32(1), "float32")), bind(S.vadds(e, T.float32(1)))))


def logit(w, at, line, root, base, scale, kind, mask):
    """Of 64 rows, the value of a line of `fn`: its product over the root mean square, scaled, its base added."""
    S = T.simd
    index = bind(T.reinterpret(bind(S.vadds(at, line)), "uint32x64"))
    mix = bind(S.vmul(bind(S.vgather2(w[0], index, mask=mask)), root))
    scaled = bind(S.vmul(mix, bind(S.vld(scale[kind], dist="BRC_B32"))))
    return bind(S.vadd(scaled, bind(S.vld(base[line], dist="BRC_B32"))))


def plane_of(a, b, n, columns):
    """Where the b-th plane of the a-th row, or column, of n by n planes of 64 begins."""
    return (b * n + a if columns else a * n + b) * LANES


@T.macro
def normalise(c, n, columns, eps):
    """Planes over the sums of their rows or columns: C / (sum + eps)."""
    S = T.simd
    for a in T.serial(n):
        total = S.alloc_var(F32)
        total = S.vld(c[plane_of(a, 0, n, columns)])
        for b in T.serial(1, n):
            total = S.vadd(total, S.vld(c[plane_of(a, b, n, columns)]))
        total = S.vadds(total, eps)
        for b in T.serial(n):
            S.vsts(c[plane_of(a, b, n, columns)], S.vdiv(S.vld(c[plane_of(a, b, n, columns)]), total))
    S.mem_bar("VST_VLD")


def hc_mix(streams=4):
    """Coefficients of 64 rows at once from what `hc_sums` wrote: a plane of 64 for each pair of streams."""
    S = T.simd
    lines = (2 + streams) * streams
    span = T.dynamic("span", "int64")
    N = T.dynamic("N")
    single, double = T.dynamic("single"), T.dynamic("double")

    @T.prim_func
    def hc_mix(
        W: T.Tensor((span,), F32),
        B: T.Tensor((N,), F32),
        A: T.Tensor((3,), F32),
        PRE: T.Tensor((single,), F32),
        POST: T.Tensor((single,), F32),
        COMB: T.Tensor((double,), F32),
        n: T.int32,
        m: T.int32,
        channels: T.float32,
        norm_eps: T.float32,
        eps: T.float32,
        steps: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            w = T.alloc_shared((LANES * (lines + 1),), F32)
            base = T.alloc_shared((LANES,), F32)
            scale = T.alloc_shared((8,), F32)
            plane = T.alloc_shared((streams * streams * LANES,), F32)
            pre = T.alloc_shared((streams * LANES,), F32)
            post = T.alloc_shared((streams * LANES,), F32)
            comb = T.alloc_shared((streams * streams * LANES,), F32)
            T.annotate_buffer_versions({w: 1, base: 1, scale: 1, plane: 1, pre: 1, post: 1, comb: 1})
            T.assume(0 < n)
            T.assume(n <= streams)
            T.assume(0 < cores)
            T.assume(N <= LANES)
            T.copy(B[0:N], base[0:N])
            T.copy(A[0:3], scale[0:3])
            for i in T.serial(T.ceildiv(items - bx, cores)):
                r = (bx + i * cores) * LANES
                count = T.min(LANES, m - r)
                T.assume(0 <= r)
                T.assume(0 < count)
                T.assume(r + count <= m)
                width = 2 * n + n * n + 1
                at = T.cast(r, I64) * width
                T.assume(0 <= at)
                T.assume(at + count * width <= span)
                T.copy(W[at : at + count * width], w[0 : count * width])
                with T.SimdVF():
                    some = S.update_mask(count, 32)
                    lane = S.vci(T.int32(0), "int32")
                    row = S.vmuls(lane, 2 * n + n * n + 1)
                    last = T.reinterpret(S.vadds(row, 2 * n + n * n), "uint32x64")
                    squares = S.vgather2(w[0], last, mask=some)
                    mean = S.vdiv(squares, S.vdup(channels, "float32"))
                    one = S.vdup(T.float32(1), "float32")
                    root = S.vdiv(one, S.vsqrt(S.vadds(mean, norm_eps)))
                    for j in T.serial(n):
                        to = T.reinterpret(S.vadds(S.vmuls(lane, n), j), "uint32x64")
                        open_ = sigmoid(logit(w, row, j, root, base, scale, 0, some))
                        S.vscatter(S.vadds(open_, eps), pre[0], to, mask=some)
                        left = sigmoid(logit(w, row, n + j, root, base, scale, 1, some))
                        S.vscatter(S.vmuls(left, T.float32(2)), post[0], to, mask=some)
                    for j in T.serial(n * n):
                        S.vsts(plane[j * LANES], logit(w, row, 2 * n + j, root, base, scale, 2, some))
                    S.mem_bar("VST_VLD")
                    for j in T.serial(n):
                        top = S.alloc_var(F32)
                        top = S.vld(plane[j * n * LANES])
                        for k in T.serial(1, n):
                            top = S.vmax(top, S.vld(plane[(j * n + k) * LANES]))
                        for k in T.serial(n):
                            S.vsts(plane[(j * n + k) * LANES], S.vexp(S.vsub(S.vld(plane[(j * n + k) * LANES]), top)))
                    S.mem_bar("VST_VLD")
                    normalise(plane, n, False, T.float32(0))
                    for j in T.serial(n * n):
                        S.vsts(plane[j * LANES], S.vadds(S.vld(plane[j * LANES]), eps))
                    S.mem_bar("VST_VLD")
                    normalise(plane, n, True, eps)
                    for _s in T.serial(steps - 1):
                        normalise(plane, n, False, eps)
                        normalise(plane, n, True, eps)
                    for j in T.serial(n * n):
                        into = T.reinterpret(S.vadds(S.vmuls(lane, n * n), j), "uint32x64")
                        S.vscatter(S.vld(plane[j * LANES]), comb[0], into, mask=some)
                T.assume((r + count) * n <= single)
                T.assume((r + count) * n * n <= double)
                T.copy(pre[0 : count * n], PRE[r * n : r * n + count * n])
                T.copy(post[0 : count * n], POST[r * n : r * n + count * n])
                T.copy(comb[0 : count * n * n], COMB[r * n * n : r * n * n + count * n * n])

    return hc_mix
