# mypy: ignore-errors
"""The vision tower but its products and attention: patches and their merging, rotary embedding, gate, scatter."""

import tilelang.ascend.language as T
from tvm.tirx.script.builder.ir import bind

BF16, F32, I32, I64, U8 = T.bfloat16, T.float32, T.int32, T.int64, T.uint8
LANES = 64
HALVES = 128


def silu_mul(chunk=4096):
    """y = bf16(g sigmoid(g) u), the gate g in the first n channels of a row, u in the n behind them; SIMD."""
    S = T.simd
    m, N, n = T.dynamic("m"), T.dynamic("N"), T.dynamic("n")

    @T.prim_func
    def silu_mul(X: T.Tensor((m, N), BF16), Y: T.Tensor((m, n), BF16), pieces: T.int32, items: T.int32, cores: T.int32):
        with T.Kernel(cores) as bx:
            g = T.alloc_shared((chunk,), BF16)
            u = T.alloc_shared((chunk,), BF16)
            y = T.alloc_shared((chunk,), BF16)
            T.assume(0 < pieces)
            T.assume(2 * n <= N)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(items - bx, cores), num_stages=2):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, n - first)
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= n)
                T.copy(X[r, first : first + count], g[0:count])
                T.copy(X[r, n + first : n + first + count], u[0:count])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(count, LANES)):
                        some = S.update_mask(count - c * LANES, 32)
                        gate = S.vcvt(S.vld(g[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        value = S.vcvt(S.vld(u[c * LANES], dist="UNPK_B16"), "float32", part=0)
                        below = S.vadds(S.vexp(S.vmuls(gate, T.float32(-1)), mask=some), T.float32(1))
                        open_ = S.vdiv(S.vdup(T.float32(1), "float32"), below, mask=some)
                        z = S.vmul(S.vmul(gate, open_, mask=some), value, mask=some)
                        S.vsts(y[c * LANES], S.vcvt(z, "bfloat16", part=0), mask=some, dist="PK_B32")
                T.copy(y[0:count], Y[r, first : first + count])

    return silu_mul


def scatter_embeds(chunk=16384):
    """All streams of row r: V[s], K[-2 - s], or for s = -1 what they are, in pieces of `chunk` channels; by DMA."""
    m, n, D, V, K = T.dynamic("m"), T.dynamic("n"), T.dynamic("D"), T.dynamic("V"), T.dynamic("K")

    @T.prim_func
    def scatter_embeds(
        X: T.Tensor((m, n, D), BF16),
        VALUES: T.Tensor((V, D), BF16),
        MARKS: T.Tensor((K, D), BF16),
        S: T.Tensor((m,), I32),
        Y: T.Tensor((m, n, D), BF16),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), BF16)
            T.assume(0 < n)
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
                s = S[r]
                if s == -1:
                    for j in T.serial(n):
                        T.copy(X[r, j, first : first + count], x[0:count])
                        T.copy(x[0:count], Y[r, j, first : first + count])
                else:
                    if s >= 0:
                        T.assume(s < V)
                        T.copy(VALUES[s, first : first + count], x[0:count])
                    else:
                        T.assume(-2 - s < K)
                        T.copy(MARKS[-2 - s, first : first + count], x[0:count])
                    for j in T.serial(n):
                        T.copy(x[0:count], Y[r, j, first : first + count])

    return scatter_embeds


def merge_patches(chunk=1024, most=16):
    """y[r, c s + p] = x[I[r, p], c] for s patches p, at most `most`; a patch outside [0, N) is zeros. SIMD scatters."""
    S = T.simd
    m, s, N, C, W = T.dynamic("m"), T.dynamic("s"), T.dynamic("N"), T.dynamic("C"), T.dynamic("W")

    @T.prim_func
    def merge_patches(
        X: T.Tensor((N, C), BF16),
        I: T.Tensor((m, s), I32),
        Y: T.Tensor((m, W), BF16),
        pieces: T.int32,
        items: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((chunk,), BF16)
            y = T.alloc_shared((chunk * most,), BF16)
            T.annotate_buffer_versions({y: 1})
            T.assume(0 < s)
            T.assume(s <= most)
            T.assume(0 < pieces)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(items - bx, cores)):
                item = bx + i * cores
                r = item // pieces
                first = item % pieces * chunk
                count = T.min(chunk, C - first)
                T.assume(0 <= r)
                T.assume(r < m)
                T.assume(0 <= first)
                T.assume(0 < count)
                T.assume(first + count <= C)
                T.assume((first + count) * s <= W)
                for p in T.serial(s):
                    q = I[r, p]
                    if (q >= 0) and (q < N):
                        T.copy(X[q, first : first + count], x[0:count])
                    else:
                        with T.SimdVF():
                            for c in T.serial(T.ceildiv(count, HALVES)):
                                S.vsts(x[c * HALVES], S.vdup(T.bfloat16(0), "bfloat16"), dist="NORM_B16")
                    with T.SimdVF():
                        for c in T.serial(T.ceildiv(count, HALVES)):
                            some = S.update_mask(count - c * HALVES, 16)
                            lane = S.vci(T.cast(c * HALVES, "int16"), "int16")
                            to = S.vadds(S.vmuls(lane, T.cast(s, "int16")), T.cast(p, "int16"))
                            S.vscatter(S.vld(x[c * HALVES]), y[0], T.reinterpret(to, "uint16x128"), mask=some)
                T.copy(y[0 : count * s], Y[r, first * s : first * s + count * s])

    return merge_patches


def turned(a, b, cosine, sine):
    """bf16 bits, in the low half of each lane, of fp32 a and b turned: a cos - b sin, a sin + b cos."""
    S = T.simd
    first = bind(S.vsub(bind(S.vmul(a, cosine)), bind(S.vmul(b, sine))))
    second = bind(S.vadd(bind(S.vmul(a, sine)), bind(S.vmul(b, cosine))))
    low = bind(S.vdup(T.int32(0xFFFF), "int32"))
    rounded = (bind(S.vcvt(z, "bfloat16", part=0)) for z in (first, second))
    return [bind(S.vand(bind(T.reinterpret(z, "int32x64")), low)) for z in rounded]


def looked_up(angle, other, place, length, mask):
    """The number at `place` of two tables of `length` numbers that stand one behind the other."""
    S = T.simd
    inner = bind(S.vcmps(place, length, mask=mask, op="lt"))
    outer = bind(S.vcmps(place, length, mask=mask, op="ge"))
    beyond = bind(S.vsub(place, bind(S.vdup(length, "int32"))))
    one = bind(S.vgather2(angle[0], bind(T.reinterpret(place, "uint32x64")), mask=inner))
    two = bind(S.vgather2(other[0], bind(T.reinterpret(beyond, "uint32x64")), mask=outer))
    return bind(S.vsel(one, two, inner))


def turn_words(left, right, angle, other, place, length, mask):
    """Words of two bf16 channels, and the words half a head behind, turned by the angles from `place` on."""
    S = T.simd
    halves = []
    for odd in range(2):
        if odd:
            high = bind(S.vdup(T.int32(-65536), "int32"))
            a, b = (bind(S.vand(w, high)) for w in (left, right))
        else:
            a, b = (bind(S.vshls(w, T.int16(16))) for w in (left, right))
        a, b = (bind(T.reinterpret(w, "float32x64")) for w in (a, b))
        at = [bind(S.vadds(place, T.int32(2 * odd + k))) for k in range(2)]
        cosine, sine = (looked_up(angle, other, p, length, mask) for p in at)
        halves.append(turned(a, b, cosine, sine))
    return [bind(S.vor(e, bind(S.vshls(o, T.int16(16))))) for e, o in zip(*halves)]


def image_rope(most=8192):
    """Queries and keys turned by the angles of their row and column, values copied; 2 h d up to `most`. SIMD.

    Two neighbouring channels are a word of 32 bits, since d is a multiple of 4: a lane turns two pairs of channels,
    whatever the head that they are of.
    """
    S = T.simd
    m, W, M, A = T.dynamic("m"), T.dynamic("W"), T.dynamic("M"), T.dynamic("A")

    @T.prim_func
    def image_rope(
        X: T.Tensor((m, W), BF16),
        P: T.Tensor((m, 3), I32),
        C: T.Tensor((M, A), F32),
        Y: T.Tensor((m, W), BF16),
        width: T.int32,
        quarter: T.int32,
        inverse: T.float32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((most,), BF16)
            v = T.alloc_shared((most,), BF16)
            y = T.alloc_shared((most,), BF16)
            word = T.alloc_shared((most // 2,), I32)
            done = T.alloc_shared((most // 2,), I32)
            angle = T.alloc_shared((most,), F32)
            other = T.alloc_shared((most,), F32)
            T.annotate_buffer_versions({word: 1, done: 1})
            T.assume(0 < width)
            T.assume(width <= most)
            T.assume(width * 3 == W * 2)
            T.assume(0 < A)
            T.assume(A <= most)
            T.assume(0 < quarter)
            T.assume(0 < cores)
            for i in T.Pipelined(T.ceildiv(m - bx, cores), num_stages=2):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                row = P[r, 1]
                column = P[r, 2]
                T.assume(0 <= row)
                T.assume(row < M)
                T.assume(0 <= column)
                T.assume(column < M)
                T.copy(X[r, 0:width], x[0:width])
                T.copy(X[r, width:W], v[0 : W - width])
                T.copy(C[row, 0:A], angle[0:A])
                T.copy(C[column, 0:A], other[0:A])
                with T.SimdVF():
                    for c in T.serial(T.ceildiv(width, HALVES)):
                        S.vsts(word[c * LANES], T.reinterpret(S.vld(x[c * HALVES]), "int32x64"))
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(width // 4, LANES)):
                        some = S.update_mask(width // 4 - c * LANES, 32)
                        lane = S.vci(c * LANES, "int32")
                        real = S.vadds(S.vcvt(lane, "float32"), T.float32(0.5))
                        head = S.vcvt(S.vmuls(real, inverse), "int32", round="ROUND_F")
                        skipped = S.vmuls(head, quarter)
                        at = S.vadd(lane, skipped)
                        left = S.vgather2(word[0], T.reinterpret(at, "uint32x64"), mask=some)
                        far = T.reinterpret(S.vadds(at, quarter), "uint32x64")
                        right = S.vgather2(word[0], far, mask=some)
                        place = S.vshls(S.vsub(lane, skipped), T.int16(2))
                        upper, lower = turn_words(left, right, angle, other, place, A, some)
                        S.vscatter(upper, done[0], T.reinterpret(at, "uint32x64"), mask=some)
                        S.vscatter(lower, done[0], far, mask=some)
                    S.mem_bar("VST_VLD")
                    for c in T.serial(T.ceildiv(width, HALVES)):
                        S.vsts(y[c * HALVES], T.reinterpret(S.vld(done[c * LANES]), "bfloat16x128"), dist="NORM_B16")
                T.copy(y[0:width], Y[r, 0:width])
                T.copy(v[0 : W - width], Y[r, width:W])

    return image_rope


def image_patches(threads=256, most=16384):
    """Patches of images on their canvas of value 127, (v / 255 - 0.5) / 0.5 in fp32; SIMT, a thread a channel.

    `most` channels of a patch, 3 patch^2. An image outside [0, count) gives zeros.
    """
    m, B, count, E = T.dynamic("m"), T.dynamic("B", "int64"), T.dynamic("count"), T.dynamic("E")

    @T.prim_func
    def image_patches(
        P: T.Tensor((m, 3), I32),
        X: T.Tensor((B,), U8),
        I: T.Tensor((count, 5), I64),
        Y: T.Tensor((m, E), BF16),
        images: T.int32,
        patch: T.int32,
        cores: T.int32,
    ):
        with T.Kernel(cores) as bx:
            y = T.alloc_shared((most,), BF16)
            T.assume(0 < E)
            T.assume(E <= most)
            T.assume(0 < patch)
            T.assume(0 < cores)
            for i in T.serial(T.ceildiv(m - bx, cores)):
                r = bx + i * cores
                T.assume(0 <= r)
                T.assume(r < m)
                image = P[r, 0]
                top = T.cast(P[r, 1], I64) * patch
                left = T.cast(P[r, 2], I64) * patch
                with T.SimtVF(threads=threads):
                    for c in T.serial(T.ceildiv(E, threads)):
                        for t in T.Parallel(threads):
                            e = c * threads + t
                            if e < E:
                                if (image >= 0) and (image < images):
                                    ch = e // (patch * patch)
                                    within = e % (patch * patch)
                                    yy = top + within // patch - I[image, 4]
                                    xx = left + within % patch - I[image, 3]
                                    inside = (yy >= 0) and (yy < I[image, 2]) and (xx >= 0) and (xx < I[image, 1])
                                    byte = T.alloc_var(I32)
                                    byte = 127
                                    if inside:
                                        byte = T.cast(X[I[image, 0] + 3 * (yy * I[image, 1] + xx) + ch], I32)
                                    z = T.cast(byte, F32) / T.float32(255) - T.float32(0.5)
                                    y[e] = T.cast(z / T.float32(0.5), BF16)
                                else:
                                    y[e] = T.cast(T.float32(0), BF16)
                T.copy(y[0:E], Y[r, 0:E])

    return image_patches
