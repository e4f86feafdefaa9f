// Sparse attention for SM90, d = 512: blocks take items of one row and 64 heads. See backends/cuda/attention_sm90.py.
//
// Producer warps fetch records (window ring, fresh rows, pages), dequantise them to bf16 and lay a tile of 64 keys into
// shared memory; two consumer warpgroups multiply. Warpgroup 0 computes the scores of the even tiles, warpgroup 1 those
// of the odd ones; each adds P.V of every tile, in tile order, into its half of the 512 channels.
//
// Conventions of the tiles in shared memory:
//  * Eight sub-tiles of 64 channels, each 64 rows of 128 bytes, 16-byte chunks swizzled by the row (the 128-byte mode).
//  * A chunk of 8 channels holds them in the order 0 4 1 5 2 6 3 7: what unpacking nibbles by shifts gives. Q is laid
//    out the same way and the output is put back.
//  * Keys are stored times 2^-7, which is exact, so that one multiplication dequantises; scale and output make up.
// The maximum is rounded up to an integer (in log2 units) and raised only when exceeded by more than LAG, so rescaling
// multiplies by powers of two: the result does not depend on when it happens.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

#define D 512
#define TILE 64
#define MAX_TILES 32
#define FP8_RECORD 528
#define FP4_RECORD 288
#define CONSUMERS 256
#define PRODUCERS 256
#define PRODUCER_WARPS (PRODUCERS / 32)
#define RECORDS_PER_WARP (TILE / PRODUCER_WARPS)
#define STAGES 4
#define LAG 8.0f
#ifndef PRODUCER_REGISTERS
#define PRODUCER_REGISTERS 64
#define CONSUMER_REGISTERS 192
#endif
// Named barriers: what a warpgroup waits for from the other, one of its own for each, both, and the producers'.
#define READY_EVEN 1
#define READY_ODD 2
#define OWN 3
#define BOTH 5
#define PRODUCE 6
#define TEXT(x) #x
#define STRING(x) TEXT(x)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

#define SUBTILE 8192
#define OFF_Q 0
#define OFF_K 65536
#define OFF_P 196608
#define OFF_SLOT 212992
#define OFF_MASK (OFF_SLOT + MAX_TILES * TILE * 8)
#define OFF_STATE (OFF_MASK + 2 * MAX_TILES * 8)
#define OFF_BARRIER (OFF_STATE + 1024)
#define FULL 0
#define EMPTY 16
#define ROW_FULL 32
#define ROW_EMPTY 48

struct Args {
    const u8* q;
    const u8* fresh;
    const u8* ring;
    const float* sink;
    const int* first_key;
    const int* last_key;
    const int* row_seq;
    const int* seq_start;
    const int* row_begin;
    const int* state_slot;
    const u8* pages;
    const int* block_table;
    const int* indices;
    u8* out;
    u64 fresh_stride;
    u64 ring_stride;
    u64 slot_stride;
    u64 page_stride;
    int items;
    int groups;
    int heads;
    int window;
    int selected;
    int ring_slots;
    int table_width;
    int entries_log2;
    float scale;
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra READY;\n bra AGAIN;\nREADY:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ u32 multiply_bf16x2(u32 a, u32 b) {
    u32 c;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 c;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(high), "f"(low));
    return c;
}
__device__ __forceinline__ void store16(u32 at, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ u32 select_bits(u32 a, u32 mask_a, u32 b, u32 mask_b) { return (a & mask_a) | (b & mask_b); }

// ---- wgmma ----------------------------------------------------------------------------------------------------------

// Shared memory descriptors: address, leading and stride offsets in units of 16 bytes, 128-byte swizzle.
#define DESCRIPTOR(address, leading, stride) \
    ((u64)(((address) & 0x3ffff) >> 4) | ((u64)(leading) << 16) | ((u64)(stride) << 32) | ((u64)1 << 62))

#define F4(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define F16(a, i) F4(a, i), F4(a, i + 4), F4(a, i + 8), F4(a, i + 12)
#define F32(a) F16(a, 0), F16(a, 16)
#define F64(a, i) F16(a, i), F16(a, i + 16), F16(a, i + 32), F16(a, i + 48)

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void hold(float (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(r[i])::"memory");
}

// s[64 x 64] (+)= A[64 x 16] . B[64 x 16]^T, both with the 16 contiguous.
__device__ __forceinline__ void wgmma_scores(float (&s)[32], u64 a, u64 b, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 0;\n}"
        : F32(s)
        : "l"(a), "l"(b), "r"(add));
}

// o[64 x 128] += A[64 x 16] . B[16 x 128], A with the 16 contiguous, B with the 128 contiguous.
__device__ __forceinline__ void wgmma_values(float (&o)[128], int first, u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, 1, 1, 1, 0, 1;\n"
        : F64(o, first)
        : "l"(a), "l"(b));
}

// ---- producers --------------------------------------------------------------------------------------------------------

// Two words of e4m3 (channels 0-3 and 4-7) to four words of bf16 pairs (0 4, 1 5, 2 6, 3 7), times `factor`.
__device__ __forceinline__ void unpack_fp8(u32 low, u32 high, u32 factor, u32 more, bool rare, u32 (&out)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 pair = __byte_perm(low, high, (4 + j) << 12 | (4 + j) << 8 | j << 4 | j);
        // Bits eeee mmm as a bf16 are the value times 2^-120, subnormals too.
        u32 w = select_bits(pair >> 4, 0x07f007f0, pair, 0x80008000);
        if (rare) {
            w |= (w & 0x7f0) == 0x7f0 ? 0x7fffu : 0u;
            w |= (w & 0x7f00000) == 0x7f00000 ? 0x7fff0000u : 0u;
            out[j] = multiply_bf16x2(multiply_bf16x2(w, factor), more);
        } else {
            out[j] = multiply_bf16x2(w, factor);
        }
    }
}

// A word of e2m1 (channels 0-7) to four words of bf16 pairs (0 4, 1 5, 2 6, 3 7), times `factor`.
__device__ __forceinline__ void unpack_fp4(u32 x, u32 factor, u32 (&out)[4]) {
    // Bits ee m as a bf16 are the value times 2^-126, the subnormal too.
    out[0] = multiply_bf16x2(select_bits(x << 6, 0x01c001c0, x << 12, 0x80008000), factor);
    out[1] = multiply_bf16x2(select_bits(x << 2, 0x01c001c0, x << 8, 0x80008000), factor);
    out[2] = multiply_bf16x2(select_bits(x >> 2, 0x01c001c0, x << 4, 0x80008000), factor);
    out[3] = multiply_bf16x2(select_bits(x >> 6, 0x01c001c0, x, 0x80008000), factor);
}

// A pair of bf16(e4m3 scale * 2^119).
__device__ __forceinline__ u32 factor_fp4(u32 scale) {
    float value;
    asm("{\n.reg .b16 c, h, g;\n.reg .b32 both;\ncvt.u16.u32 c, %1;\ncvt.rn.f16x2.e4m3x2 both, c;\n"
        "mov.b32 {h, g}, both;\ncvt.f32.f16 %0, h;\n}"
        : "=f"(value)
        : "r"(scale));
    u32 bits = __float_as_uint(value * 6.6461399789245794e35f);  // 2^119
    return __byte_perm(bits, bits, 0x3232);
}

// Codes and scale byte of this lane's 16 channels of one record; zeros where there is none.
template <bool FP8>
__device__ __forceinline__ void fetch(u64 record, u32 codes, u32 scales, uint4& raw, u32& scale) {
    raw = make_uint4(0, 0, 0, 0);
    scale = 0;
    if (record == 0) return;
    if (FP8)
        asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                     : "l"(record + codes));
    else
        asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                     : "=r"(raw.x), "=r"(raw.y)
                     : "l"(record + codes));
    asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(scale) : "l"(record + scales));
}

// Dequantise 16 channels and store their two chunks. The lanes of an odd sub-tile store the second chunk first, so that
// eight lanes always cover all banks.
template <bool FP8>
__device__ __forceinline__ void expand(uint4 raw, u32 scale, bool swap, u32 first, u32 second) {
    u32 a[4], b[4];
    if (FP8) {
        u32 factor = (min(scale, 141u) + 113) << 7;  // 2^(scale - 127 + 120 - 7)
        factor |= factor << 16;
        u32 marked = (((raw.x & 0x7f7f7f7f) + 0x01010101) | ((raw.y & 0x7f7f7f7f) + 0x01010101) |
                      ((raw.z & 0x7f7f7f7f) + 0x01010101) | ((raw.w & 0x7f7f7f7f) + 0x01010101)) & 0x80808080;
        u32 x0 = swap ? raw.z : raw.x, x1 = swap ? raw.w : raw.y;
        u32 y0 = swap ? raw.x : raw.z, y1 = swap ? raw.y : raw.w;
        if (marked != 0 || scale > 141) {  // a NaN, or a scale whose factor bf16 does not hold
            u32 more = scale > 141 ? scale == 255 ? 0x7fffu : (scale - 141 + 127) << 7 : 0x3f80u;
            more |= more << 16;
            unpack_fp8(x0, x1, factor, more, true, a);
            unpack_fp8(y0, y1, factor, more, true, b);
        } else {
            unpack_fp8(x0, x1, factor, 0, false, a);
            unpack_fp8(y0, y1, factor, 0, false, b);
        }
    } else {
        u32 factor = factor_fp4(scale);
        unpack_fp4(swap ? raw.y : raw.x, factor, a);
        unpack_fp4(swap ? raw.x : raw.y, factor, b);
    }
    store16(first, a[0], a[1], a[2], a[3]);
    store16(second, b[0], b[1], b[2], b[3]);
}

template <bool FP8>
__device__ __forceinline__ void fetch_one(u32 slots, int lane, uint4& raw, u32& scale) {
    u64 record;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(record) : "r"(slots));
    fetch<FP8>(record, lane * (FP8 ? 16 : 8), FP8 ? 512 + (lane >> 1) : 256 + lane, raw, scale);
}

template <bool FP8>
__device__ __forceinline__ void fetch_all(
    u32 slots, int lane, uint4 (&raw)[RECORDS_PER_WARP], u32 (&scale)[RECORDS_PER_WARP]) {
#pragma unroll
    for (int i = 0; i < RECORDS_PER_WARP; i++) fetch_one<FP8>(slots + i * 8, lane, raw[i], scale[i]);
}

template <bool FP8>
__device__ __forceinline__ void expand_all(
    u32 to, bool swap, const uint4 (&raw)[RECORDS_PER_WARP], const u32 (&scale)[RECORDS_PER_WARP]) {
#pragma unroll
    for (int i = 0; i < RECORDS_PER_WARP; i++) {
        const u32 place = (to ^ i << 4) + i * 128;  // a warp has whole groups of 8 rows: i is the row mod 8
        expand<FP8>(raw[i], scale[i], swap, place, place ^ 16);
    }
}

__device__ __forceinline__ void find_slots(const Args& g, int row, u64* slots, u32* masks, int window_tiles, int tiles);

// All loads of a tile are issued at once, behind the fence of the tile before, which would wait for them; the wait for a
// free buffer hides their latency.
__device__ __forceinline__ void produce(const Args& g, u8* memory, u32 base, int window_tiles, int tiles) {
    const int lane = threadIdx.x & 31, warp = (threadIdx.x - CONSUMERS) >> 5;
    const bool swap = lane >> 2 & 1;
    const u32 home = base + OFF_K + (lane >> 2) * SUBTILE + warp * RECORDS_PER_WARP * 128 +
                     ((lane & 3) * 2 + swap) * 16;
    const u32 slots = base + OFF_SLOT + warp * RECORDS_PER_WARP * 8;
    const u32 bars = base + OFF_BARRIER;
    uint4 raw[RECORDS_PER_WARP];
    u32 scale[RECORDS_PER_WARP];
    u32 step = 0, turn = 0;
    for (int item = blockIdx.x; item < g.items; item += gridDim.x, turn++) {
        const int side = turn & 1;
        u64* masks = (u64*)(memory + OFF_MASK) + side * MAX_TILES;
        barrier_wait(bars + ROW_EMPTY + side * 8, (turn >> 1 & 1) ^ 1);
        named_sync(PRODUCE, PRODUCERS);  // nobody reads the slots of the item before any more
        find_slots(g, item / g.groups, (u64*)(memory + OFF_SLOT), (u32*)masks, window_tiles, tiles);
        named_sync(PRODUCE, PRODUCERS);
        if (lane == 0) barrier_arrive(bars + ROW_FULL + side * 8);
        u32 live = __ballot_sync(0xffffffff, lane < tiles && masks[lane] != 0);
        for (; live != 0; step++, live &= live - 1) {
            const int tile = __ffs(live) - 1;
            const bool fp8 = FP8_PAGES || tile < window_tiles;
            if (fp8)
                fetch_all<true>(slots + tile * TILE * 8, lane, raw, scale);
            else
                fetch_all<false>(slots + tile * TILE * 8, lane, raw, scale);
            const u32 buffer = step & 1, to = home + buffer * 65536;
            barrier_wait(bars + EMPTY + buffer * 8, (step >> 1 & 1) ^ 1);
            if (fp8)
                expand_all<true>(to, swap, raw, scale);
            else
                expand_all<false>(to, swap, raw, scale);
            fence_async();
            __syncwarp();
            if (lane == 0) barrier_arrive(bars + FULL + buffer * 8);
        }
    }
}

// ---- consumers --------------------------------------------------------------------------------------------------------

// What both warpgroups must know after a tile: maximum and denominator of each head.
struct State {
    float top[2][TILE];
    float sum[2][TILE];
};

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

__device__ __forceinline__ void issue_scores(float (&s)[32], u32 base, int buffer) {
    const u64 a = DESCRIPTOR(base + OFF_Q, 1, 64), b = DESCRIPTOR(base + OFF_K + buffer * 65536, 1, 64);
    hold(s);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        const int at = (k >> 2) * (SUBTILE >> 4) + (k & 3) * 2;
        wgmma_scores(s, a + at, b + at, k);
    }
    wgmma_commit();
}

__device__ __forceinline__ void issue_values(float (&o)[128], u32 p, u32 base, int buffer, int half) {
    const u64 a = DESCRIPTOR(p, 1, 64);
    const u64 b = DESCRIPTOR(base + OFF_K + buffer * 65536 + half * 4 * SUBTILE, SUBTILE >> 4, 64);
    hold(o);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        wgmma_values(o, 0, a + k * 2, b + k * 128);
        wgmma_values(o, 64, a + k * 2, b + k * 128 + 2 * (SUBTILE >> 4));
    }
    wgmma_commit();
}

__device__ __forceinline__ float finite_or_zero(float top) { return top == -INFINITY ? 0.0f : top; }

// Probabilities of a tile from its scores: to shared memory as bf16, their sums and the maximum to the state.
__device__ __forceinline__ void softmax(
    float (&s)[32], float (&top)[2], float (&sum)[2], float factor, u64 mask, u32 p, State* state, int parity) {
    const int lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2), column = (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] *= factor;
    if (mask != ~0ull) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (!(mask >> ((i >> 2) * 8 + column + (i & 1)) & 1)) s[i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < 32; i += 4) most = fmaxf(most, fmaxf(s[i + h * 2], s[i + h * 2 + 1]));
        most = quad_max(most);
        const float before = finite_or_zero(top[h]);
        if (top[h] == -INFINITY || most > top[h] + LAG) top[h] = ceilf(most);
        const float used = finite_or_zero(top[h]);
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const float x = exp2_of(s[i + h * 2] - used), y = exp2_of(s[i + h * 2 + 1] - used);
            total += x + y;
            const int at = row + h * 8;
            const u32 place = p + at * 128 + (((i >> 2) ^ (at & 7)) << 4) + column * 2;
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(pack_bf16(x, y)) : "memory");
        }
        sum[h] = sum[h] * exp2_of(before - used) + quad_sum(total);
        if ((lane & 3) == 0) {
            state->top[parity][row + h * 8] = top[h];
            state->sum[parity][row + h * 8] = sum[h];
        }
    }
}

__device__ __forceinline__ void read_state(const State* state, int parity, float (&top)[2], float (&sum)[2]) {
    const int row = (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = ((const volatile State*)state)->top[parity][row + h * 8];
        sum[h] = ((const volatile State*)state)->sum[parity][row + h * 8];
    }
}

// Bring the output to the maximum `top`; it is rarely raised.
__device__ __forceinline__ void rescale(float (&o)[128], float (&used)[2], const float (&top)[2]) {
    const float a = finite_or_zero(top[0]), b = finite_or_zero(top[1]);
    if (__any_sync(0xffffffff, a != used[0] || b != used[1])) {
        const float x = exp2_of(used[0] - a), y = exp2_of(used[1] - b);
#pragma unroll
        for (int i = 0; i < 128; i += 4) {
            o[i] *= x;
            o[i + 1] *= x;
            o[i + 2] *= y;
            o[i + 3] *= y;
        }
        used[0] = a;
        used[1] = b;
    }
}

// Q of one item to shared memory, in the order of channels of the keys; rows behind the last head are zeros.
__device__ __forceinline__ void load_q(const Args& g, u32 base, int item) {
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head);
    const u8* q = g.q + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2);
#pragma unroll 1
    for (int from = threadIdx.x; from < 64 * D / 8; from += CONSUMERS * 8) {
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int piece = i * CONSUMERS + from;
            v[i] = make_uint4(0, 0, 0, 0);
            if ((piece >> 6) < heads) v[i] = *(const uint4*)(q + (u64)piece * 16);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int piece = i * CONSUMERS + from, row = piece >> 6, chunk = piece & 63;
            store16(base + OFF_Q + (chunk >> 3) * SUBTILE + row * 128 + (((chunk ^ row) & 7) << 4),
                    __byte_perm(v[i].x, v[i].z, 0x5410), __byte_perm(v[i].x, v[i].z, 0x7632),
                    __byte_perm(v[i].y, v[i].w, 0x5410), __byte_perm(v[i].y, v[i].w, 0x7632));
        }
    }
}

// Ask for the Q of an item early: 256 bytes of its 64 KB per thread.
__device__ __forceinline__ void prefetch_q(const Args& g, int item) {
    const int first_head = item % g.groups * 64;
    if ((int)threadIdx.x >> 2 >= min(64, g.heads - first_head)) return;
    const u8* q = g.q + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2) + threadIdx.x * 256;
    asm volatile("prefetch.global.L2 [%0];\nprefetch.global.L2 [%0 + 128];" ::"l"(q));
}

// Write one item's output through the memory of Q, and bring in the Q of the next item meanwhile.
__device__ __forceinline__ void finish(
    float (&o)[128], const float (&top)[2], const float (&sum)[2], const float (&sink)[2], const Args& g, u32 base,
    int item, bool any) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, row = warp * 16 + (lane >> 2);
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head), next = item + gridDim.x;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float total = sum[h] + exp2_of(sink[h] - finite_or_zero(top[h]));
        factor[h] = !any ? 0.0f : top[h] == -INFINITY ? NAN : 128.0f / total;
    }
    const u32 to = base + OFF_Q + group * 32768;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        const int at = row + (i & 1) * 8;
        const u32 place = to + at * 512 + (((i >> 1) ^ (at & 7)) << 4) + (lane & 3) * 4;
        const u32 pair = pack_bf16(o[i * 2] * factor[i & 1], o[i * 2 + 1] * factor[i & 1]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(pair) : "memory");
    }
    __syncwarp();
    u8* out = g.out + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2) + group * 512 + lane * 16;
#pragma unroll 4
    for (int r = warp * 16; r < warp * 16 + 16; r++) {
        u32 w0, w1, w2, w3;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w0), "=r"(w1), "=r"(w2), "=r"(w3)
                     : "r"(to + r * 512 + ((lane ^ (r & 7)) << 4)));
        if (r < heads)
            *(uint4*)(out + (u64)r * (D * 2)) = make_uint4(
                __byte_perm(w0, w1, 0x5410), __byte_perm(w2, w3, 0x5410),
                __byte_perm(w0, w1, 0x7632), __byte_perm(w2, w3, 0x7632));
    }
    if (next < g.items) {
        named_sync(BOTH, CONSUMERS);
        load_q(g, base, next);
    }
}

__device__ __forceinline__ void wait_tile(u32 bars, u32 tile) {
    barrier_wait(bars + FULL + (tile & 1) * 8, tile >> 1 & 1);
}

__device__ __forceinline__ void consume(const Args& g, u8* memory, u32 base, int tiles) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const float factor = g.scale * (1.4426950408889634f * 128.0f);
    const u32 bars = base + OFF_BARRIER, p_even = base + OFF_P, p_odd = base + OFF_P + 8192;
    State* state = (State*)(memory + OFF_STATE);
    load_q(g, base, blockIdx.x);
    u32 step = 0, turn = 0;  // tiles and items so far
    for (int item = blockIdx.x; item < g.items; item += gridDim.x, turn++) {
        const int side = turn & 1;
        const u64* masks = (const u64*)(memory + OFF_MASK) + side * MAX_TILES;
        fence_async();
        named_sync(BOTH, CONSUMERS);  // Q is there
        float sink[2], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, used[2] = {0.0f, 0.0f};
#pragma unroll
        for (int h = 0; h < 2; h++)
            sink[h] = g.sink[min(item % g.groups * 64 + row + h * 8, g.heads - 1)] * 1.4426950408889634f;
        float o[128];
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0.0f;
        if (item + gridDim.x < g.items) prefetch_q(g, item + gridDim.x);
        barrier_wait(bars + ROW_FULL + side * 8, turn >> 1 & 1);
        u32 live = __ballot_sync(0xffffffff, lane < tiles && masks[lane] != 0);
        const bool any = live != 0;
        while (live != 0) {
            const int even = __ffs(live) - 1;
            live &= live - 1;
            const int odd = __ffs(live) - 1;  // -1: none
            const u32 buffer = step & 1, other = buffer ^ 1;
            float s[32];
            if (group == 0) {
                wait_tile(bars, step);
                issue_scores(s, base, buffer);
                wgmma_wait<0>();
                hold(s);
                softmax(s, top, sum, factor, masks[even], p_even, state, 0);
                fence_async();
                named_arrive(READY_EVEN, CONSUMERS);
                named_sync(OWN, 128);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 0);
                wgmma_wait<0>();
                hold(o);
                if (lane == 0) barrier_arrive(bars + EMPTY + buffer * 8);
                if (odd >= 0) {
                    wait_tile(bars, step + 1);
                    named_sync(READY_ODD, CONSUMERS);
                    read_state(state, 1, top, sum);
                    rescale(o, used, top);
                    issue_values(o, p_odd, base, other, 0);
                    wgmma_wait<0>();
                    hold(o);
                    if (lane == 0) barrier_arrive(bars + EMPTY + other * 8);
                }
            } else if (odd >= 0) {
                wait_tile(bars, step + 1);
                issue_scores(s, base, other);
                wait_tile(bars, step);
                named_sync(READY_EVEN, CONSUMERS);
                read_state(state, 0, top, sum);
                wgmma_wait<0>();
                hold(s);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 1);
                softmax(s, top, sum, factor, masks[odd], p_odd, state, 1);
                fence_async();
                named_arrive(READY_ODD, CONSUMERS);
                named_sync(OWN + 1, 128);
                wgmma_wait<0>();
                hold(o);
                if (lane == 0) barrier_arrive(bars + EMPTY + buffer * 8);
                rescale(o, used, top);
                issue_values(o, p_odd, base, other, 1);
                wgmma_wait<0>();
                hold(o);
                if (lane == 0) barrier_arrive(bars + EMPTY + other * 8);
            } else {
                wait_tile(bars, step);
                named_sync(READY_EVEN, CONSUMERS);
                read_state(state, 0, top, sum);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 1);
                wgmma_wait<0>();
                hold(o);
                if (lane == 0) barrier_arrive(bars + EMPTY + buffer * 8);
            }
            live &= live - 1;
            step += odd >= 0 ? 2 : 1;
        }
        if (lane == 0) barrier_arrive(bars + ROW_EMPTY + side * 8);
        named_sync(BOTH, CONSUMERS);  // nobody reads Q, P and the state any more
        finish(o, top, sum, sink, g, base, item, any);
    }
}

// ---- the row ------------------------------------------------------------------------------------------------------------

// Where the record of every slot of the row lies, 0 for none, and which slots there are.
__device__ __forceinline__ void find_slots(const Args& g, int row, u64* slots, u32* masks, int window_tiles, int tiles) {
    const int sequence = g.row_seq[row];
    const int oldest = max(g.first_key[row], 0), last = g.last_key[row];
    int start = 0, begin = 0, state = 0;
    if (sequence >= 0) {
        start = g.seq_start[sequence];
        begin = g.row_begin[sequence];
        state = g.state_slot[sequence];
    }
    const int me = threadIdx.x - CONSUMERS, slots_of_row = tiles * TILE;
    for (int from = me; from < slots_of_row; from += PRODUCERS * STAGES) {
        int entry[STAGES], page[STAGES];
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            const int column = from + k * PRODUCERS - window_tiles * TILE;
            entry[k] = -1;
            if (sequence >= 0 && column >= 0 && column < g.selected)
                entry[k] = g.indices[(u64)row * g.selected + column];
        }
#pragma unroll
        for (int k = 0; k < STAGES; k++)
            if (entry[k] >= 0) page[k] = g.block_table[(u64)sequence * g.table_width + (entry[k] >> g.entries_log2)];
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            const int i = from + k * PRODUCERS, key = last - g.window + 1 + i;
            if (i - (me & 31) >= slots_of_row) break;
            u64 at = 0;
            if (entry[k] >= 0)
                at = (u64)g.pages + (u64)page[k] * g.page_stride +
                     (u64)(entry[k] & ((1 << g.entries_log2) - 1)) * (FP8_PAGES ? FP8_RECORD : FP4_RECORD);
            else if (sequence >= 0 && i < g.window && key >= oldest)
                at = key >= start ? (u64)g.fresh + (u64)(begin + key - start) * g.fresh_stride
                                  : (u64)g.ring + (u64)state * g.ring_stride + (u64)(key % g.ring_slots) * g.slot_stride;
            slots[i] = at;
            const u32 there = __ballot_sync(0xffffffff, at != 0);
            if ((me & 31) == 0) masks[i >> 5] = there;
        }
    }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + PRODUCERS, 1) attention(const __grid_constant__ Args g) {
    extern __shared__ __align__(1024) u8 memory[];
    const u32 base = shared_address(memory);
    const int window_tiles = (g.window + TILE - 1) / TILE, tiles = window_tiles + (g.selected + TILE - 1) / TILE;
    if (threadIdx.x == 0) {
        const u32 bars = base + OFF_BARRIER;
        for (int i = 0; i < 2; i++) {
            barrier_init(bars + FULL + i * 8, PRODUCERS / 32);
            barrier_init(bars + EMPTY + i * 8, CONSUMERS / 32);
            barrier_init(bars + ROW_FULL + i * 8, PRODUCERS / 32);
            barrier_init(bars + ROW_EMPTY + i * 8, CONSUMERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 " STRING(PRODUCER_REGISTERS) ";");
        produce(g, memory, base, window_tiles, tiles);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 " STRING(CONSUMER_REGISTERS) ";");
        consume(g, memory, base, tiles);
    }
}
