"""TileLang-Ascend kernels for the tests of the simulator: each shows one way of moving or computing.

Lowered by `deepinfer.backends.ascend.lower`, which imports this file where tilelang is; inputs and expected results are
in ascend_samples.py. Those in `KNOWN_BAD` are what the compiler lowers without complaint into wrong text.
"""

import tilelang.ascend.language as T

BF16, F32, I32, F16 = T.bfloat16, T.float32, T.int32, T.float16


# (a) vector add, SIMT, runtime length, ragged tail -------------------------
def vecadd(blk=256, cores=2, threads=64):
    n = T.dynamic("n")

    @T.prim_func
    def vecadd_kernel(A: T.Tensor((n,), F32), B: T.Tensor((n,), F32), C: T.Tensor((n,), F32)):
        with T.Kernel(cores) as bx:
            a = T.alloc_shared((blk,), F32)
            b = T.alloc_shared((blk,), F32)
            for t in T.Persistent([T.ceildiv(n, blk)], cores, bx):
                ext = T.min(blk, n - t * blk)
                T.copy(A[t * blk : t * blk + ext], a[0:ext])
                T.copy(B[t * blk : t * blk + ext], b[0:ext])
                with T.SimtVF(threads=threads):
                    for i in T.Parallel(blk):
                        a[i] = a[i] + b[i]
                T.copy(a[0:ext], C[t * blk : t * blk + ext])

    return vecadd_kernel


# (b1) RMSNorm, SIMT --------------------------------------------------------
def rmsnorm_simt(H=256, rows=4, cores=2, threads=64, eps=1e-6):
    m = T.dynamic("m")

    @T.prim_func
    def rmsnorm_simt(X: T.Tensor((m, H), BF16), W: T.Tensor((H,), BF16), Y: T.Tensor((m, H), BF16)):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((rows, H), BF16)
            w = T.alloc_shared((H,), BF16)
            y = T.alloc_shared((rows, H), BF16)
            T.copy(W, w)
            for t in T.Persistent([T.ceildiv(m, rows)], cores, bx):
                ext = T.min(rows, m - t * rows)
                T.copy(X[t * rows : t * rows + ext, 0:H], x[0:ext, 0:H])
                with T.SimtVF(threads=threads):
                    sq = T.alloc_fragment((rows, H), F32)
                    ss = T.alloc_fragment((rows,), F32)
                    for i, j in T.Parallel(rows, H):
                        sq[i, j] = T.cast(x[i, j], F32) * T.cast(x[i, j], F32)
                    T.reduce_sum(sq, ss, dim=1)
                    for i in T.Parallel(rows):
                        ss[i] = T.rsqrt(ss[i] / H + eps)
                    for i, j in T.Parallel(rows, H):
                        y[i, j] = T.cast(T.cast(x[i, j], F32) * ss[i] * T.cast(w[j], F32), BF16)
                T.copy(y[0:ext, 0:H], Y[t * rows : t * rows + ext, 0:H])

    return rmsnorm_simt


# (b2) RMSNorm, SIMD --------------------------------------------------------
def rmsnorm_simd(H=128, rows=4, cores=2, eps=1e-6):
    m = T.dynamic("m")
    VL = 64
    S = T.simd

    @T.prim_func
    def rmsnorm_simd(X: T.Tensor((m, H), F32), W: T.Tensor((H,), F32), Y: T.Tensor((m, H), F32)):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((rows, H), F32)
            w = T.alloc_shared((H,), F32)
            y = T.alloc_shared((rows, H), F32)
            T.copy(W, w)
            for t in T.Persistent([T.ceildiv(m, rows)], cores, bx):
                ext = T.min(rows, m - t * rows)
                T.copy(X[t * rows : t * rows + ext, 0:H], x[0:ext, 0:H])
                with T.SimdVF():
                    for r in T.serial(rows):
                        acc = S.alloc_var(F32)
                        acc = S.vdup(T.float32(0), "float32")
                        for c in T.serial(H // VL):
                            v = S.vld(x[r, c * VL])
                            acc = S.vadd(acc, S.vmul(v, v))
                        tot = S.vdupv(S.vcadd(acc))
                        ms = S.vadds(S.vmuls(tot, T.float32(1.0 / H)), T.float32(eps))
                        inv = S.vdiv(S.vdup(T.float32(1), "float32"), S.vsqrt(ms))
                        for c in T.serial(H // VL):
                            v = S.vld(x[r, c * VL])
                            g = S.vld(w[c * VL])
                            S.vsts(y[r, c * VL], S.vmul(S.vmul(v, inv), g))
                T.copy(y[0:ext, 0:H], Y[t * rows : t * rows + ext, 0:H])

    return rmsnorm_simd


# (c) bf16 GEMM C = A @ B^T with ragged M.  Whole-tile copies: the compiler clamps rows at the tensor
# bound, zero-fills the L1 tail (asc_fill_l1) and keeps the L0C pitch of the full tile.
def gemm(N=56, K=96, bM=32, bN=32, bK=32, cores=2, stages=2):
    M = T.dynamic("M")

    @T.prim_func
    def gemm_kernel(A: T.Tensor((M, K), BF16), B: T.Tensor((N, K), BF16), C: T.Tensor((M, N), F32)):
        with T.Kernel(cores) as bx:
            a = T.alloc_l1((bM, bK), BF16)
            b = T.alloc_l1((bN, bK), BF16)
            c = T.alloc_l0c((bM, bN), F32)
            for mt, nt in T.Persistent([T.ceildiv(M, bM), T.ceildiv(N, bN)], cores, bx):
                for k in T.Pipelined(K // bK, num_stages=stages):
                    T.copy(A[mt * bM, k * bK], a)
                    T.copy(B[nt * bN, k * bK], b)
                    T.gemm(a, b, c, transpose_B=True, clear_accum=(k == 0))
                T.copy(c, C[mt * bM, nt * bN])

    return gemm_kernel


# (c-bad) same, but with an explicit runtime slice c[0:ext]: lowers, yet the fixpipe pitch becomes
# align16(ext) while the L1 GEMM template wrote a bM-row tile -> wrong result for ext <= bM-16.
def gemm_slice(N=64, K=96, bM=32, bN=32, bK=32, cores=2, stages=2):
    M = T.dynamic("M")

    @T.prim_func
    def gemm_slice(A: T.Tensor((M, K), BF16), B: T.Tensor((N, K), BF16), C: T.Tensor((M, N), F32)):
        with T.Kernel(cores) as bx:
            a = T.alloc_l1((bM, bK), BF16)
            b = T.alloc_l1((bN, bK), BF16)
            c = T.alloc_l0c((bM, bN), F32)
            for t in T.Persistent([T.ceildiv(M, bM) * (N // bN)], cores, bx):
                m0 = t // (N // bN) * bM
                n0 = t % (N // bN) * bN
                ext = T.min(bM, M - m0)
                for k in T.Pipelined(K // bK, num_stages=stages):
                    T.copy(A[m0 : m0 + ext, k * bK : k * bK + bK], a[0:ext, 0:bK])
                    T.copy(B[n0, k * bK], b)
                    T.gemm(a, b, c, transpose_B=True, clear_accum=(k == 0))
                T.copy(c[0:ext, 0:bN], C[m0 : m0 + ext, n0 : n0 + bN])

    return gemm_slice


# (d) grouped GEMM: rows sorted by expert, group e = rows Off[e]..Off[e+1].  L0 tiles are explicit so
# that the MAD itself gets the runtime row count (then slice pitches agree).
def grouped_gemm(E=3, N=64, K=64, bM=32, bN=32, bK=32, cores=2):
    M = T.dynamic("M")

    @T.prim_func
    def ggemm(
        A: T.Tensor((M, K), BF16), B: T.Tensor((E, N, K), BF16), Off: T.Tensor((E + 1,), I32), C: T.Tensor((M, N), BF16)
    ):
        with T.Kernel(cores) as bx:
            a = T.alloc_l1((bM, bK), BF16)
            b = T.alloc_l1((bN, bK), BF16)
            a0 = T.alloc_l0a((bM, bK), BF16)
            b0 = T.alloc_l0b((bN, bK), BF16)
            c = T.alloc_l0c((bM, bN), F32)
            for t in T.Persistent([E * (N // bN)], cores, bx):
                e = t // (N // bN)
                n0 = t % (N // bN) * bN
                lo = Off[e]
                hi = Off[e + 1]
                T.assume(0 <= lo)
                T.assume(lo <= hi)
                T.assume(hi <= M)
                for mt in T.serial(T.ceildiv(hi - lo, bM)):
                    m0 = lo + mt * bM
                    ext = T.min(bM, hi - m0)
                    T.assume(0 <= m0)
                    T.assume(0 < ext)
                    T.assume(m0 + ext <= M)
                    for k in T.Pipelined(K // bK, num_stages=2):
                        T.copy(A[m0 : m0 + ext, k * bK : k * bK + bK], a[0:ext, 0:bK])
                        T.copy(B[e, n0 : n0 + bN, k * bK : k * bK + bK], b)
                        T.copy(a[0:ext, 0:bK], a0[0:ext, 0:bK])
                        T.copy(b, b0)
                        T.gemm(a0[0:ext, 0:bK], b0, c[0:ext, 0:bN], transpose_B=True, clear_accum=(k == 0))
                    T.copy(c[0:ext, 0:bN], C[m0 : m0 + ext, n0 : n0 + bN])

    return ggemm


# (e) top-k over rows, SIMT (iterative argmax) ------------------------------
def topk(N=128, Kk=4, cores=2, threads=64):
    m = T.dynamic("m")

    @T.prim_func
    def topk_kernel(X: T.Tensor((m, N), F32), V: T.Tensor((m, Kk), F32), I: T.Tensor((m, Kk), I32)):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((N,), F32)
            ov = T.alloc_shared((Kk,), F32)
            oi = T.alloc_shared((Kk,), I32)
            for r in T.Persistent([m], cores, bx):
                T.copy(X[r, 0:N], x)
                with T.SimtVF(threads=threads):
                    f = T.alloc_fragment((N,), F32)
                    fi = T.alloc_fragment((N,), I32)
                    mx = T.alloc_fragment((1,), F32)
                    ix = T.alloc_fragment((1,), I32)
                    for i in T.Parallel(N):
                        f[i] = x[i]
                    for k in T.serial(Kk):
                        T.reduce_max(f, mx, dim=0)
                        for i in T.Parallel(N):
                            fi[i] = T.if_then_else(f[i] == mx[0], i, N)
                        T.reduce_min(fi, ix, dim=0)
                        for i in T.Parallel(N):
                            f[i] = T.if_then_else(i == ix[0], -T.infinity(F32), f[i])
                        for i in T.Parallel(1):  # noqa: B007
                            ov[k] = mx[0]
                            oi[k] = ix[0]
                T.copy(ov, V[r, 0:Kk])
                T.copy(oi, I[r, 0:Kk])

    return topk_kernel


# (f) attention with gathered KV rows (MLA-like: the same row is key and value) ---------------
# mode "l0": both products through explicit L0 tiles, KV loaded once, V read by a transposing L1->L0B load
# mode "mixed": QK^T through the L1 template + PV through L0 tiles (bad: both use L0 address 0)
# mode "same": both products through the L1 template on one L1 tile (does not lower: layout conflict)
# mode "two": both through the L1 template, KV gathered twice, second copy transposed in GM->L1 (dn2nz)
def attention(D=64, bM=32, bN=32, NB=2, cores=2, threads=64, mode="l0"):
    R = T.dynamic("R")
    B_ = T.dynamic("B_")
    scale = 1.0 / (D**0.5)
    HB = bM // 2
    TOPK = NB * bN

    @T.macro
    def softmax_step(s, pb, mx, l, al):
        with T.SimtVF(threads=threads):
            sf = T.alloc_fragment((HB, bN), F32)
            m2 = T.alloc_fragment((HB,), F32)
            ls = T.alloc_fragment((HB,), F32)
            for i, j in T.Parallel(HB, bN):
                sf[i, j] = s[i, j] * scale
            T.reduce_max(sf, m2, dim=1)
            for i in T.Parallel(HB):
                m2[i] = T.max(m2[i], mx[i])
            for i, j in T.Parallel(HB, bN):
                sf[i, j] = T.exp(sf[i, j] - m2[i])
            T.reduce_sum(sf, ls, dim=1)
            for i in T.Parallel(HB):
                al[i] = T.exp(mx[i] - m2[i])
                l[i] = l[i] * T.exp(mx[i] - m2[i]) + ls[i]
                mx[i] = m2[i]
            for i, j in T.Parallel(HB, bN):
                pb[i, j] = T.cast(sf[i, j], BF16)

    @T.prim_func
    def attention_kernel(
        Q: T.Tensor((B_, bM, D), BF16),
        KV: T.Tensor((R, D), BF16),
        Idx: T.Tensor((B_, TOPK), I32),
        O: T.Tensor((B_, bM, D), BF16),
    ):
        with T.Kernel(cores) as bx:
            q = T.alloc_l1((bM, D), BF16)
            kv = T.alloc_l1((bN, D), BF16)
            p = T.alloc_l1((bM, bN), BF16)
            s_c = T.alloc_l0c((bM, bN), F32)
            o_c = T.alloc_l0c((bM, D), F32)
            s = T.alloc_shared((HB, bN), F32)
            pb = T.alloc_shared((HB, bN), BF16)
            o = T.alloc_shared((HB, D), F32)
            acc = T.alloc_shared((HB, D), F32)
            ob = T.alloc_shared((HB, D), BF16)
            mx = T.alloc_shared((HB,), F32)
            l = T.alloc_shared((HB,), F32)
            al = T.alloc_shared((HB,), F32)
            if mode == "two":
                v = T.alloc_l1((bN, D), BF16)
            if mode == "l0":
                q0 = T.alloc_l0a((bM, D), BF16)
                k0 = T.alloc_l0b((bN, D), BF16)
            if mode == "l0" or mode == "mixed":
                p0 = T.alloc_l0a((bM, bN), BF16)
                v0 = T.alloc_l0b((bN, D), BF16)
            for b in T.Persistent([B_], cores, bx):
                T.copy(Q[b, 0:bM, 0:D], q)
                with T.SimtVF(threads=threads):
                    for i, j in T.Parallel(HB, D):
                        acc[i, j] = 0.0
                    for i in T.Parallel(HB):
                        mx[i] = -1e30
                        l[i] = 0.0
                for n in T.serial(NB):
                    for r in T.serial(bN):
                        src = Idx[b, n * bN + r]
                        T.assume(0 <= src)
                        T.assume(src < R)
                        T.copy(KV[src : src + 1, 0:D], kv[r : r + 1, 0:D])
                        if mode == "two":
                            T.copy(KV[src : src + 1, 0:D], v[r : r + 1, 0:D])
                    if mode == "l0":
                        T.copy(q, q0)
                        T.copy(kv, k0)
                        T.gemm(q0, k0, s_c, transpose_B=True, clear_accum=True)
                    else:
                        T.gemm(q, kv, s_c, transpose_B=True, clear_accum=True)
                    T.dual_copy(s_c, s)
                    softmax_step(s, pb, mx, l, al)
                    T.dual_copy(pb, p)
                    if mode == "l0" or mode == "mixed":
                        T.copy(p, p0)
                        T.copy(kv, v0)
                        T.gemm(p0, v0, o_c, clear_accum=True)
                    elif mode == "two":
                        T.gemm(p, v, o_c, clear_accum=True)
                    else:
                        T.gemm(p, kv, o_c, clear_accum=True)
                    T.dual_copy(o_c, o)
                    with T.SimtVF(threads=threads):
                        for i, j in T.Parallel(HB, D):
                            acc[i, j] = acc[i, j] * al[i] + o[i, j]
                with T.SimtVF(threads=threads):
                    for i, j in T.Parallel(HB, D):
                        ob[i, j] = T.cast(acc[i, j] / l[i], BF16)
                T.dual_copy(ob, O[b, 0:bM, 0:D])

    return attention_kernel


# ---- small feature probes --------------------------------------------------------------------
F8 = T.float8_e4m3fn


def gemm_fp8(M=32, N=32, K=128):
    @T.prim_func
    def gemm_fp8(A: T.Tensor((M, K), F8), B: T.Tensor((N, K), F8), C: T.Tensor((M, N), F32)):
        with T.Kernel(1):
            a = T.alloc_l1((M, K), F8)
            b = T.alloc_l1((N, K), F8)
            c = T.alloc_l0c((M, N), F32)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return gemm_fp8


def gemm_nn(M=32, N=48, K=64):  # B stored [K, N]: transposed on the way GM -> L1 (dn2nz)
    @T.prim_func
    def gemm_nn(A: T.Tensor((M, K), BF16), B: T.Tensor((K, N), BF16), C: T.Tensor((M, N), F32)):
        with T.Kernel(1):
            a = T.alloc_l1((M, K), BF16)
            b = T.alloc_l1((N, K), BF16)
            c = T.alloc_l0c((M, N), F32)
            T.copy(A, a)
            T.copy(B, b, transpose=True)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return gemm_nn


def gather(D=64, n=8, cores=2):  # SIMT threads read GM directly, row chosen by an index in UB
    R = T.dynamic("R")

    @T.prim_func
    def gather_kernel(X: T.Tensor((R, D), BF16), I: T.Tensor((n * cores,), I32), Y: T.Tensor((n * cores, D), BF16)):
        with T.Kernel(cores) as bx:
            idx = T.alloc_shared((n,), I32)
            y = T.alloc_shared((n, D), BF16)
            T.copy(I[bx * n : bx * n + n], idx)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(n, D):
                    y[i, j] = X[idx[i], j]
            T.copy(y, Y[bx * n : bx * n + n, 0:D])

    return gather_kernel


def reduce_simd(m=8, N=128):  # T.reduce_* on UB buffers inside SimdVF
    @T.prim_func
    def reduce_simd(X: T.Tensor((m, N), F32), Y: T.Tensor((m,), F32)):
        with T.Kernel(1):
            x = T.alloc_shared((m, N), F32)
            y = T.alloc_shared((m,), F32)
            T.copy(X, x)
            with T.SimdVF():
                T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    return reduce_simd


def cast_simd(m=4, N=192):  # bf16 -> f32 -> bf16 with unpack load and packed store
    S = T.simd

    @T.prim_func
    def cast_simd(X: T.Tensor((m, N), BF16), Y: T.Tensor((m, N), BF16)):
        with T.Kernel(1):
            x = T.alloc_shared((m, N), BF16)
            y = T.alloc_shared((m, N), BF16)
            T.copy(X, x)
            with T.SimdVF():
                for r in T.serial(m):
                    for c in T.serial(N // 64):
                        v = S.vcvt(S.vld(x[r, c * 64], dist="UNPK_B16"), "float32", part=0)
                        w = S.vcvt(S.vmul(v, v), "bfloat16", part=0)
                        S.vsts(y[r, c * 64], w, dist="PK_B32")
            T.copy(y, Y)

    return cast_simd


def hist(n=256, bins=16):  # atomics on GM from SIMT threads
    @T.prim_func
    def hist_kernel(X: T.Tensor((n,), I32), Y: T.Tensor((bins,), I32)):
        with T.Kernel(1):
            x = T.alloc_shared((n,), I32)
            T.copy(X, x)
            with T.SimtVF(threads=64):
                for i in T.Parallel(n):
                    T.atomic_add(Y[x[i]], 1)

    return hist_kernel


def gemm_mx(M=32, N=32, K=128):  # MXFP8: one E8M0 scale per 32 k, two packed per uint16
    @T.prim_func
    def gemm_mx(
        A: T.Tensor((M, K), F8),
        B: T.Tensor((N, K), F8),
        SA: T.Tensor((M, K // 64), T.uint16),
        SB: T.Tensor((N, K // 64), T.uint16),
        C: T.Tensor((M, N), F32),
    ):
        with T.Kernel(1):
            a = T.alloc_l1((M, K), F8)
            b = T.alloc_l1((N, K), F8)
            c = T.alloc_l0c((M, N), F32)
            sa = T.alloc_l1((M, K // 64), T.uint16)
            sb = T.alloc_l1((N, K // 64), T.uint16)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            T.gemm_blockscaled(a, b, c, sa, sb, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return gemm_mx


# all-core barrier: every core stores a partial sum to a GM workspace, then core b reads all partials
def grid_sum(cores=3, n=64):
    @T.prim_func
    def grid_sum(X: T.Tensor((cores, n), F32), W: T.Tensor((cores, n), F32), Y: T.Tensor((cores, n), F32)):
        with T.Kernel(cores) as bx:
            x = T.alloc_shared((n,), F32)
            w = T.alloc_shared((cores, n), F32)
            y = T.alloc_shared((n,), F32)
            T.copy(X[bx, 0:n], x)
            with T.SimtVF(threads=64):
                for i in T.Parallel(n):
                    x[i] = x[i] * 2.0
            T.copy(x, W[bx, 0:n])
            T.ascend_sync_inter_arrive("PIPE_MTE3", 0)
            T.ascend_sync_inter_wait("PIPE_MTE2", 0)
            T.copy(W, w)
            with T.SimtVF(threads=64):
                for i in T.Parallel(n):
                    y[i] = w[0, i]
                    for c in T.serial(1, cores):
                        y[i] = y[i] + w[c, i]
            T.copy(y, Y[bx, 0:n])

    return grid_sum


# ---- above capacity: lowered without complaint --------------------------------------------------
def over_capacity(what="ub"):
    """Copies through a buffer that no core has, or runs 4096 threads.

    UB 300 KiB, UB 240 KiB beside SIMT, L1 above 1 MiB, L0C 512 KiB.
    """
    n = {"ub": 75, "simt": 60, "threads": 1, "l1": 0, "l0c": 0}[what] * 1024
    threads = 4096 if what == "threads" else 64
    if what in ("l1", "l0c"):
        M, N, K = (128, 128, 2304) if what == "l1" else (256, 512, 64)

        @T.prim_func
        def too_large(A: T.Tensor((M, K), BF16), B: T.Tensor((N, K), BF16), C: T.Tensor((M, N), F32)):
            with T.Kernel(1):
                a = T.alloc_l1((M, K), BF16)
                b = T.alloc_l1((N, K), BF16)
                c = T.alloc_l0c((M, N), F32)
                T.copy(A, a)
                T.copy(B, b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                T.copy(c, C)

        return too_large

    @T.prim_func
    def too_many(X: T.Tensor((n,), F32), Y: T.Tensor((n,), F32)):
        with T.Kernel(1):
            x = T.alloc_shared((n,), F32)
            T.copy(X, x)
            if what != "ub":
                with T.SimtVF(threads=threads):
                    for i in T.Parallel(n):
                        x[i] = x[i] + 1.0
            T.copy(x, Y)

    return too_many


# The compiler lowers these, and the text is wrong: what is wrong, and what to write instead.
KNOWN_BAD = {
    "gemm_slice": "a store of a runtime slice of a tile that the L1 template wrote whole: other row pitch",
    "attention_mixed": "the L1 template and explicit L0 tiles both use L0 address 0",
    "reduce_simd": "T.reduce_sum of several rows in a SimdVF stores them 64 lanes apart",
    "over_capacity": "buffers above capacity, and more than 2048 threads",
}


def attention_mixed():
    return attention(mode="mixed")
