// Sparse attention for SM90, d = 512: an item is one row and 64 heads. See backends/cuda/attention_sm90.py. WAY says
// which kernel this is:
//
//  * 0 attention: a block takes one item after another and unpacks records as it goes.
//  * 1 attention over keys that `attention_unpack` has unpacked before (many rows over few lines).
//  * 2 attention_scores: a few rows; a block takes some tiles of an item and leaves their keys and scores in memory.
//  * 3 attention_values: after it; a block takes 128 channels of an item.
//  * 4 attention_unpack: records of the step to lines of bf16.
//
// All give the same bits: a sum runs over the same terms in the same order, whatever the way.
//
// In ways 0 and 1 producer warps lay a tile of 64 keys into shared memory: records (window ring, fresh rows, pages)
// dequantised to bf16, or lines of bf16. Two consumer warpgroups multiply. Warpgroup 0 computes the scores of the even
// tiles, warpgroup 1 those of the odd ones; each adds P.V of every tile, in tile order, into its half of the channels.
//
// Conventions of the tiles in shared memory:
//  * Eight sub-tiles of 64 channels, each 64 rows of 128 bytes, 16-byte chunks swizzled by the row (the 128-byte mode).
//  * A chunk of 8 channels holds them in the order 0 4 1 5 2 6 3 7, what unpacking nibbles by shifts gives; with FP8
//    pages 0 2 1 3 4 6 5 7, what unpacking bytes gives. Q is laid out the same way and the output is put back.
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
#define RECORDS 8  // of a lane and tile
#define STAGES 4
#ifndef WAY
#define WAY 0
#endif
#ifndef ANY_ADDRESS
#define ANY_ADDRESS 0  // way 0: tensors may begin anywhere and have any strides
#endif
#ifndef ARRIVALS
#define ARRIVALS 1  // of a warp at a barrier; 32 for racecheck, which credits an arrival to its own thread alone
#endif
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
#define OFF_SINK (OFF_STATE + 1024)  // way 1
#define OFF_BARRIER (OFF_SINK + 512)
#define FULL 0  // of a buffer's half of the channels
#define EMPTY 32
#define ROW_FULL 64
#define ROW_EMPTY 80
#define Q_FULL 96
#define Q_EMPTY 104
#define NO_LINE 0xffffffffu

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
    u8* keys;     // way 1, 4: lines of 1,024 bytes; way 2, 3: tiles [items, tiles, 65536 bytes] as in shared memory
    u8* scores;   // fp32 [items, tiles, 8, 128 threads, 4]
    u64* masks;   // [items, MAX_TILES]: which slots of a tile there are
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
    int rows;
    int sequences;
    int states;
    int pool;
    float scale;
};

// Lines of unpacked keys: this step's rows, the rings by sequence, the entries by sequence.
__device__ __forceinline__ u32 ring_line(const Args& g, int sequence, int key) {
    return g.rows + sequence * g.ring_slots + key % g.ring_slots;
}
__device__ __forceinline__ u32 entry_line(const Args& g, int sequence, int entry) {
    return g.rows + g.sequences * g.ring_slots + sequence * (g.table_width << g.entries_log2) + entry;
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// A warp's arrival, after __syncwarp() where its other lanes wrote.
__device__ __forceinline__ void warp_arrive(u32 bar) {
    if (ARRIVALS == 32 || (threadIdx.x & 31) == 0) barrier_arrive(bar);
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra READY;\n bra AGAIN;\nREADY:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
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
template <int N>
__device__ __forceinline__ void wgmma_values(float (&o)[N], int first, u64 a, u64 b) {
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

// ---- records ----------------------------------------------------------------------------------------------------------

// Two words of e4m3 (channels 0-3 and 4-7) to four words of bf16 pairs, times 2^-120: bits eeee mmm as a bf16,
// subnormals too.
__device__ __forceinline__ void widen_fp8(u32 low, u32 high, u32* out) {
#if FP8_PAGES
    out[0] = select_bits(low << 4, 0x07f007f0, low << 8, 0x80008000);  // bytes 0 and 2
    out[1] = select_bits(low >> 4, 0x07f007f0, low, 0x80008000);
    out[2] = select_bits(high << 4, 0x07f007f0, high << 8, 0x80008000);
    out[3] = select_bits(high >> 4, 0x07f007f0, high, 0x80008000);
#else
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 pair = __byte_perm(low, high, (4 + j) << 12 | (4 + j) << 8 | j << 4 | j);
        out[j] = select_bits(pair >> 4, 0x07f007f0, pair, 0x80008000);
    }
#endif
}

// A word of e2m1 (channels 0-7) to four words of bf16 pairs (0 4, 1 5, 2 6, 3 7), times `factor`.
__device__ __forceinline__ void unpack_fp4(u32 x, u32 factor, u32* out) {
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

// Four bytes from anywhere.
__device__ __forceinline__ u32 word_at(u64 at) {
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 byte;
        asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(byte) : "l"(at + i));
        word |= byte << 8 * i;
    }
    return word;
}

// Sixteen bytes of Q or the output, which begin at elements.
__device__ __forceinline__ uint4 load16(const u8* at) {
    if (!ANY_ADDRESS) return *(const uint4*)at;
    return make_uint4(word_at((u64)at), word_at((u64)at + 4), word_at((u64)at + 8), word_at((u64)at + 12));
}
__device__ __forceinline__ void store16(u8* at, uint4 v) {
    if (!ANY_ADDRESS) {
        __stcs((uint4*)at, v);
        return;
    }
    const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; i++) ((unsigned short*)at)[i] = (unsigned short)(words[i >> 1] >> (i & 1) * 16);
}

// Codes and scale byte of the 16 channels from 16 * `piece` on of one record; zeros where there is none.
template <bool FP8>
__device__ __forceinline__ void fetch(u64 record, u32 piece, uint4& raw, u32& scale) {
    raw.x = raw.y = scale = 0;
    if (FP8) raw.z = raw.w = 0;
    if (record == 0) return;
    if (ANY_ADDRESS) {
        const u64 at = record + piece * (FP8 ? 16 : 8);
        raw.x = word_at(at), raw.y = word_at(at + 4);
        if (FP8) raw.z = word_at(at + 8), raw.w = word_at(at + 12);
    } else if (FP8)
        asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                     : "l"(record + piece * 16));
    else
        asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];"
                     : "=r"(raw.x), "=r"(raw.y)
                     : "l"(record + piece * 8));
    asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];"
                 : "=r"(scale)
                 : "l"(record + (FP8 ? 512 + (piece >> 1) : 256 + piece)));
}

// 16 channels to their two chunks, the second one first if `swap`.
template <bool FP8>
__device__ __forceinline__ void unpack(uint4 raw, u32 scale, bool swap, u32 (&out)[8]) {
    if (FP8) {
        u32 factor = (min(scale, 141u) + 113) << 7;  // 2^(scale - 127 + 120 - 7)
        factor |= factor << 16;
        const u32 marked = (((raw.x & 0x7f7f7f7f) + 0x01010101) | ((raw.y & 0x7f7f7f7f) + 0x01010101) |
                            ((raw.z & 0x7f7f7f7f) + 0x01010101) | ((raw.w & 0x7f7f7f7f) + 0x01010101)) & 0x80808080;
        widen_fp8(swap ? raw.z : raw.x, swap ? raw.w : raw.y, out);
        widen_fp8(swap ? raw.x : raw.z, swap ? raw.y : raw.w, out + 4);
        if (marked != 0 || scale > 141) {  // a NaN, or a scale whose factor bf16 does not hold
#pragma unroll
            for (int j = 0; j < 8; j++) {
                out[j] |= (out[j] & 0x7f0) == 0x7f0 ? 0x7fffu : 0u;
                out[j] |= (out[j] & 0x7f00000) == 0x7f00000 ? 0x7fff0000u : 0u;
                out[j] = multiply_bf16x2(out[j], factor);
            }
            factor = scale > 141 ? scale == 255 ? 0x7fffu : (scale - 141 + 127) << 7 : 0x3f80u;
            factor |= factor << 16;
        }
#pragma unroll
        for (int j = 0; j < 8; j++) out[j] = multiply_bf16x2(out[j], factor);
    } else {
        const u32 factor = factor_fp4(scale);
        unpack_fp4(swap ? raw.y : raw.x, factor, out);
        unpack_fp4(swap ? raw.x : raw.y, factor, out + 4);
    }
}

// ---- Q ----------------------------------------------------------------------------------------------------------------

// A chunk of Q in the order of channels of the keys.
__device__ __forceinline__ void store_q(u32 place, uint4 v) {
    const u32 second = FP8_PAGES ? v.y : v.z, third = FP8_PAGES ? v.z : v.y;
    store16(place, __byte_perm(v.x, second, 0x5410), __byte_perm(v.x, second, 0x7632), __byte_perm(third, v.w, 0x5410),
            __byte_perm(third, v.w, 0x7632));
}

// A head's sink in log2 units.
__device__ __forceinline__ float sink_of(const Args& g, int item, int row) {
    return g.sink[min(item % g.groups * 64 + row, g.heads - 1)] * 1.4426950408889634f;
}

// Q of one item to shared memory, in the order of channels of the keys; rows behind the last head are zeros.
template <int THREADS>
__device__ __forceinline__ void load_q(const Args& g, u32 base, int item) {
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head);
    const u8* q = g.q + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2);
#pragma unroll 1
    for (int from = threadIdx.x & (THREADS - 1); from < 64 * D / 8; from += THREADS * 8) {
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int piece = i * THREADS + from;
            v[i] = make_uint4(0, 0, 0, 0);
            if ((piece >> 6) < heads) v[i] = load16(q + (u64)piece * 16);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int piece = i * THREADS + from, row = piece >> 6, chunk = piece & 63;
            const u32 place = base + OFF_Q + (chunk >> 3) * SUBTILE + row * 128 + (((chunk ^ row) & 7) << 4);
            store_q(place, v[i]);
        }
    }
}

// The same with all loads at once: chunks are copied first, then each thread orders the channels of those it copied.
__device__ __forceinline__ void copy_q(const Args& g, u32 base, int item) {
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head), chunk = threadIdx.x & 63;
    const int first = threadIdx.x >> 6 & 1;  // every other head is this thread's
    const u8* q = g.q + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2) + chunk * 16;
    const u32 to = base + OFF_Q + (chunk >> 3) * SUBTILE;
#pragma unroll 8
    for (int row = first; row < 64; row += 2)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + row * 128 + (((chunk ^ row) & 7) << 4)),
                     "l"(q + (u64)min(row, heads - 1) * (D * 2)), "r"(row < heads ? 16 : 0) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll 8
    for (int row = first; row < 64; row += 2) {
        const u32 place = to + row * 128 + (((chunk ^ row) & 7) << 4);
        u32 x, y, z, w;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(place));
        store_q(place, make_uint4(x, y, z, w));
    }
}

// Ask for the Q of an item early.
template <int THREADS>
__device__ __forceinline__ void prefetch_q(const Args& g, int item) {
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head);
    const u8* q = g.q + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2);
    for (int line = threadIdx.x & (THREADS - 1); line < heads * 8; line += THREADS)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(q + line * 128));
}

// ---- producers --------------------------------------------------------------------------------------------------------

// Which items a block takes, and which of their tiles.
struct Part {
    int first;
    int step;
    u32 tiles;
};

#if WAY == 0 || WAY == 2
__device__ __forceinline__ void find_slots(
    const Args& g, int row, u64* slots, u32* masks, int window_tiles, int tiles, int me, int finders);

// A lane has 16 channels of 8 records of a tile. All loads of a tile are issued at once, behind the fence of the tile
// before, which would wait for them; the wait for a free buffer hides their latency.
struct Lane {
    u32 slots;  // address of the first record's slot in the first tile
    u32 home;   // where its first chunk goes in the first buffer
    bool swap;  // second chunk first: eight lanes that store at once cover all banks
    uint4 raw[RECORDS];
    u32 scale[RECORDS];
};

template <bool FP8>
__device__ __forceinline__ void load(Lane& my, int i, u32 slots) {
    u64 record;
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(record) : "r"(slots + i * 8));
    fetch<FP8>(record, threadIdx.x & 31, my.raw[i], my.scale[i]);
}

template <bool FP8>
__device__ __forceinline__ void load_all(Lane& my, int tile) {
    u32 slots = my.slots + tile * TILE * 8;
    asm volatile("" : "+r"(slots));  // what is derived from it is not worth registers across tiles
#pragma unroll
    for (int i = 0; i < RECORDS; i++) load<FP8>(my, i, slots);
}

// A tile from registers to its buffer.
template <bool FP8>
__device__ __forceinline__ void fill(Lane& my, u32 buffer) {
    u32 to = my.home + buffer * 65536;
    asm volatile("" : "+r"(to));
#pragma unroll
    for (int i = 0; i < RECORDS; i++) {
        u32 w[8];
        unpack<FP8>(my.raw[i], my.scale[i], my.swap, w);
        const u32 place = (to ^ i << 4) + i * 128;  // i is the row mod 8
        store16(place, w[0], w[1], w[2], w[3]);
        store16(place ^ 16, w[4], w[5], w[6], w[7]);
    }
    fence_async();
    __syncwarp();
}

__device__ __forceinline__ void produce(
    const Args& g, u8* memory, u32 base, int window_tiles, int tiles, const Part& part) {
    const int lane = threadIdx.x & 31;
    Lane my;
    const int rows = (threadIdx.x - CONSUMERS >> 5) * RECORDS;
    my.swap = lane >> 2 & 1;
    my.slots = base + OFF_SLOT + rows * 8;
    my.home = base + OFF_K + (lane >> 2) * SUBTILE + rows * 128 + ((lane & 3) * 2 + my.swap) * 16;
    const u32 full = base + OFF_BARRIER + FULL, empty = base + OFF_BARRIER + EMPTY;
    u32 step = 0, turn = 0;
    for (int item = part.first; item < g.items; item += part.step, turn++) {
        const int side = turn & 1;
        u64* masks = (u64*)(memory + OFF_MASK) + side * MAX_TILES;
        barrier_wait(base + OFF_BARRIER + ROW_EMPTY + side * 8, (turn >> 1 & 1) ^ 1);
        named_sync(PRODUCE, PRODUCERS);  // nobody reads the slots of the item before any more
        find_slots(g, item / g.groups, (u64*)(memory + OFF_SLOT), (u32*)masks, window_tiles, tiles,
                   threadIdx.x - CONSUMERS, PRODUCERS);
        named_sync(PRODUCE, PRODUCERS);
        warp_arrive(base + OFF_BARRIER + ROW_FULL + side * 8);
        u32 live = __ballot_sync(0xffffffff, lane < tiles && masks[lane] != 0) & part.tiles;
        if (live == 0) continue;
        int tile = __ffs(live) - 1;
        if (FP8_PAGES || tile < window_tiles)
            load_all<true>(my, tile);
        else
            load_all<false>(my, tile);
        for (; live != 0; step++) {
            live &= live - 1;
            const int next = __ffs(live) - 1;  // -1: none
            barrier_wait(empty + (step & 1) * 16, (step >> 1 & 1) ^ 1);
            barrier_wait(empty + (step & 1) * 16 + 8, (step >> 1 & 1) ^ 1);
            if (FP8_PAGES || tile < window_tiles)
                fill<true>(my, step & 1);
            else
                fill<false>(my, step & 1);
            warp_arrive(full + (step & 1) * 16);
            warp_arrive(full + (step & 1) * 16 + 8);
            if (next >= 0) {
                if (FP8_PAGES || next < window_tiles)
                    load_all<true>(my, next);
                else
                    load_all<false>(my, next);
            }
            tile = next;
        }
    }
}
#elif WAY == 1
// One warpgroup finds the lines of the item to come and fetches its Q ...
__device__ __forceinline__ void find_lines(const Args& g, u8* memory, u32 base, int window_tiles, int tiles) {
    const u32 bars = base + OFF_BARRIER;
    u32 turn = 0;
    for (int item = blockIdx.x; item < g.items; item += gridDim.x, turn++) {
        const int side = turn & 1, row = item / g.groups, sequence = g.row_seq[row], last = g.last_key[row];
        const int oldest = max(g.first_key[row], 0), me = threadIdx.x & 127;
        const int start = sequence >= 0 ? g.seq_start[sequence] : 0, begin = sequence >= 0 ? g.row_begin[sequence] : 0;
        u32* lines = (u32*)(memory + OFF_SLOT) + side * MAX_TILES * TILE;
        u32* masks = (u32*)(memory + OFF_MASK) + side * MAX_TILES * 2;
        barrier_wait(bars + ROW_EMPTY + side * 8, (turn >> 1 & 1) ^ 1);
        if (me < 64) ((float*)(memory + OFF_SINK))[side * 64 + me] = sink_of(g, item, me);
#pragma unroll 8
        for (int i = me; i < tiles * TILE; i += 128) {
            const int column = i - window_tiles * TILE, key = last - g.window + 1 + i;
            u32 line = NO_LINE;
            if (sequence >= 0 && column >= 0) {
                const int entry = column < g.selected ? g.indices[(u64)row * g.selected + column] : -1;
                if (entry >= 0) line = entry_line(g, sequence, entry);
            } else if (sequence >= 0 && i < g.window && key >= oldest) {
                line = key >= start ? (u32)(begin + key - start) : ring_line(g, sequence, key);
            }
            lines[i] = line;
            const u32 there = __ballot_sync(0xffffffff, line != NO_LINE);
            if ((me & 31) == 0) masks[i >> 5] = there;
        }
        __syncwarp();
        warp_arrive(bars + ROW_FULL + side * 8);
        prefetch_q<128>(g, item);
        barrier_wait(bars + Q_EMPTY, turn & 1 ^ 1);
        copy_q(g, base, item);
        __syncwarp();
        warp_arrive(bars + Q_FULL);
    }
}

// ... and one copies them, half of the channels after the other, as each is freed.
__device__ __forceinline__ void copy_lines(const Args& g, u8* memory, u32 base, int tiles) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const u32 home = base + OFF_K + (lane >> 3) * SUBTILE + warp * 16 * 128 + (lane & 7) * 16;
    const u32 bars = base + OFF_BARRIER;
    u32 step = 0, turn = 0;
    for (int item = blockIdx.x; item < g.items; item += gridDim.x, turn++) {
        const int side = turn & 1;
        const u64* masks = (const u64*)(memory + OFF_MASK) + side * MAX_TILES;
        const u32* lines = (const u32*)(memory + OFF_SLOT) + side * MAX_TILES * TILE + warp * 16 + (lane & 15);
        barrier_wait(bars + ROW_FULL + side * 8, turn >> 1 & 1);
        u32 live = __ballot_sync(0xffffffff, lane < tiles && masks[lane] != 0);
        for (; live != 0; step++, live &= live - 1) {
            const u32 mine = lines[(__ffs(live) - 1) * TILE], buffer = step & 1;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const u32 to = home + buffer * 65536 + half * 32768;
                const u64 from = (u64)g.keys + half * 512 + lane * 16;
                barrier_wait(bars + EMPTY + buffer * 16 + half * 8, (step >> 1 & 1) ^ 1);
#pragma unroll
                for (int i = 0; i < 16; i++) {
                    const u32 line = __shfl_sync(0xffffffff, mine, i), place = (to ^ (i & 7) << 4) + i * 128;
                    const bool there = line != NO_LINE;
                    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(place),
                                 "l"(from + (u64)(there ? line : 0) * 1024), "r"(there ? 16 : 0) : "memory");
                }
                asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                                 bars + FULL + buffer * 16 + half * 8) : "memory");
            }
        }
        __syncwarp();
        warp_arrive(bars + ROW_EMPTY + side * 8);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#endif

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

// Waits for a half of the channels of a tile. What was copied asynchronously is fenced by those who read it.
__device__ __forceinline__ void wait_tile(u32 bars, u32 tile, int half) {
    barrier_wait(bars + FULL + (tile & 1) * 16 + half * 8, tile >> 1 & 1);
    if (WAY == 1) fence_async();
}

// Scores of a tile. No wait stands between the products: the compiler would make each wait for the one before.
__device__ __forceinline__ void issue_scores(float (&s)[32], u32 base, u32 tile) {
    const u64 a = DESCRIPTOR(base + OFF_Q, 1, 64), b = DESCRIPTOR(base + OFF_K + (tile & 1) * 65536, 1, 64);
    barrier_wait(base + OFF_BARRIER + FULL + (tile & 1) * 16, tile >> 1 & 1);
    wait_tile(base + OFF_BARRIER, tile, 1);
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

// Scores in log2 units; -infinity where there is no key.
__device__ __forceinline__ void clean(float (&s)[32], float factor, u64 mask) {
    const int column = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = __fmul_rn(s[i], factor);
    if (mask != ~0ull) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (!(mask >> ((i >> 2) * 8 + column + (i & 1)) & 1)) s[i] = -INFINITY;
    }
}

__device__ __forceinline__ float row_max(const float (&s)[32], int h) {
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < 32; i += 4) most = fmaxf(most, fmaxf(s[i + h * 2], s[i + h * 2 + 1]));
    return quad_max(most);
}

// The maximum of a row after a tile with the maximum `most`.
__device__ __forceinline__ float raised(float top, float most) {
    return top == -INFINITY || most > top + LAG ? ceilf(most) : top;
}

// Probabilities of a tile of one of the thread's two rows, to shared memory as bf16; their sum.
__device__ __forceinline__ float weigh(const float (&s)[32], int h, float used, u32 p) {
    const int lane = threadIdx.x & 31, at = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2) + h * 8;
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        const float x = exp2_of(__fsub_rn(s[i + h * 2], used));
        const float y = exp2_of(__fsub_rn(s[i + h * 2 + 1], used));
        total = __fadd_rn(total, __fadd_rn(x, y));
        const u32 place = p + at * 128 + (((i >> 2) ^ (at & 7)) << 4) + (lane & 3) * 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(pack_bf16(x, y)) : "memory");
    }
    return quad_sum(total);
}

// The denominator after a tile. The factor is a power of two.
__device__ __forceinline__ float grown(float sum, float before, float used, float total) {
    return __fmaf_rn(sum, exp2_of(before - used), total);
}

// Probabilities of a tile to shared memory, the maximum and the denominator to the state.
__device__ __forceinline__ void softmax(
    float (&s)[32], float (&top)[2], float (&sum)[2], float factor, u64 mask, u32 p, State* state, int parity) {
    const int row = (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
    clean(s, factor, mask);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float before = finite_or_zero(top[h]);
        top[h] = raised(top[h], row_max(s, h));
        const float used = finite_or_zero(top[h]);
        sum[h] = grown(sum[h], before, used, weigh(s, h, used, p));
        if ((threadIdx.x & 3) == 0) {
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
template <int N>
__device__ __forceinline__ void rescale(float (&o)[N], float (&used)[2], const float (&top)[2]) {
    const float a = finite_or_zero(top[0]), b = finite_or_zero(top[1]);
    if (__any_sync(0xffffffff, a != used[0] || b != used[1])) {
        const float x = exp2_of(used[0] - a), y = exp2_of(used[1] - b);
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            o[i] *= x;
            o[i + 1] *= x;
            o[i + 2] *= y;
            o[i + 3] *= y;
        }
        used[0] = a;
        used[1] = b;
    }
}

// A chunk's channels, put back in order.
__device__ __forceinline__ uint4 in_order(u32 a, u32 b, u32 c, u32 d) {
    const u32 first = __byte_perm(a, b, 0x5410), second = __byte_perm(a, b, 0x7632);
    const u32 third = __byte_perm(c, d, 0x5410), fourth = __byte_perm(c, d, 0x7632);
    return FP8_PAGES ? make_uint4(first, second, third, fourth) : make_uint4(first, third, second, fourth);
}

// What an output is multiplied with: keys are stored times 2^-7. Zero for a row without keys.
__device__ __forceinline__ float output_factor(float top, float sum, float sink, bool any) {
    const float total = sum + exp2_of(sink - finite_or_zero(top));
    return !any ? 0.0f : top == -INFINITY ? NAN : 128.0f / total;
}

// Write a warp's part of an item's output, 64 channels at a time, through the memory of its rows of P.
__device__ __forceinline__ void finish(
    float (&o)[128], const float (&top)[2], const float (&sum)[2], const float (&sink)[2], const Args& g, u32 p,
    int item, bool any) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head), chunk = lane & 7;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) factor[h] = output_factor(top[h], sum[h], sink[h], any);
    const u32 to = p + warp * 2048;
    u8* out = g.out + ((u64)(item / g.groups) * g.heads + first_head + warp * 16) * (D * 2) + group * 512 + chunk * 16;
#pragma unroll
    for (int part = 0; part < 4; part++) {
#pragma unroll
        for (int i = part * 16; i < part * 16 + 16; i++) {
            const int at = (lane >> 2) + (i & 1) * 8;
            const u32 place = to + at * 128 + (((i >> 1 & 7) ^ (at & 7)) << 4) + (lane & 3) * 4;
            const u32 pair = pack_bf16(o[i * 2] * factor[i & 1], o[i * 2 + 1] * factor[i & 1]);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(pair) : "memory");
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = i * 4 + (lane >> 3);
            u32 w0, w1, w2, w3;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w0), "=r"(w1), "=r"(w2), "=r"(w3)
                         : "r"(to + at * 128 + ((chunk ^ (at & 7)) << 4)));
            if (warp * 16 + at < heads) store16(out + (u64)at * (D * 2) + part * 128, in_order(w0, w1, w2, w3));
        }
        __syncwarp();
    }
}

#if WAY <= 1
__device__ __forceinline__ void consume(const Args& g, u8* memory, u32 base, int tiles) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31;
    const float factor = g.scale * (1.4426950408889634f * 128.0f);
    const u32 bars = base + OFF_BARRIER, p_even = base + OFF_P, p_odd = base + OFF_P + 8192;
    State* state = (State*)(memory + OFF_STATE);
#if WAY == 0
    load_q<CONSUMERS>(g, base, blockIdx.x);
#endif
    u32 step = 0, turn = 0;  // tiles and items so far
    for (int item = blockIdx.x; item < g.items; item += gridDim.x, turn++) {
        const int side = turn & 1;
        const u64* masks = (const u64*)(memory + OFF_MASK) + side * MAX_TILES;
#if WAY == 0
        fence_async();
        named_sync(BOTH, CONSUMERS);  // Q is there
        if (item + gridDim.x < g.items) prefetch_q<CONSUMERS>(g, item + gridDim.x);
#else
        barrier_wait(bars + Q_FULL, turn & 1);
        fence_async();
#endif
        float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, used[2] = {0.0f, 0.0f};
        float o[128];
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = 0.0f;
        barrier_wait(bars + ROW_FULL + side * 8, turn >> 1 & 1);
        u32 live = __ballot_sync(0xffffffff, lane < tiles && masks[lane] != 0);
        const bool any = live != 0;
        if (WAY == 1 && !any) warp_arrive(bars + Q_EMPTY);
        while (live != 0) {
            const int even = __ffs(live) - 1;
            live &= live - 1;
            const int odd = __ffs(live) - 1;  // -1: none
            live &= live - 1;
            const u32 buffer = step & 1, other = buffer ^ 1;
            const bool last = WAY == 1 && live == 0;  // Q is not read after these scores
            float s[32];
            if (group == 0) {
                issue_scores(s, base, step);
                wgmma_wait<0>();
                hold(s);
                if (last) warp_arrive(bars + Q_EMPTY);
                softmax(s, top, sum, factor, masks[even], p_even, state, 0);
                fence_async();
                named_arrive(READY_EVEN, CONSUMERS);
                named_sync(OWN, 128);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 0);
                wgmma_wait<0>();
                hold(o);
                warp_arrive(bars + EMPTY + buffer * 16);
                if (odd >= 0) {
                    wait_tile(bars, step + 1, 0);
                    named_sync(READY_ODD, CONSUMERS);
                    read_state(state, 1, top, sum);
                    rescale(o, used, top);
                    issue_values(o, p_odd, base, other, 0);
                    wgmma_wait<0>();
                    hold(o);
                    warp_arrive(bars + EMPTY + other * 16);
                }
            } else if (odd >= 0) {
                issue_scores(s, base, step + 1);
                wait_tile(bars, step, 1);
                named_sync(READY_EVEN, CONSUMERS);
                read_state(state, 0, top, sum);
                wgmma_wait<0>();
                hold(s);
                if (last) warp_arrive(bars + Q_EMPTY);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 1);
                softmax(s, top, sum, factor, masks[odd], p_odd, state, 1);
                fence_async();
                named_arrive(READY_ODD, CONSUMERS);
                named_sync(OWN + 1, 128);
                wgmma_wait<0>();
                hold(o);
                warp_arrive(bars + EMPTY + buffer * 16 + 8);
                rescale(o, used, top);
                issue_values(o, p_odd, base, other, 1);
                wgmma_wait<0>();
                hold(o);
                warp_arrive(bars + EMPTY + other * 16 + 8);
            } else {
                if (last) warp_arrive(bars + Q_EMPTY);
                wait_tile(bars, step, 1);
                named_sync(READY_EVEN, CONSUMERS);
                read_state(state, 0, top, sum);
                rescale(o, used, top);
                issue_values(o, p_even, base, buffer, 1);
                wgmma_wait<0>();
                hold(o);
                warp_arrive(bars + EMPTY + buffer * 16 + 8);
            }
            step += odd >= 0 ? 2 : 1;
        }
        float sink[2];
        const int row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
#pragma unroll
        for (int h = 0; h < 2; h++)
            sink[h] = WAY == 1 ? ((const float*)(memory + OFF_SINK))[side * 64 + row + h * 8]
                               : sink_of(g, item, row + h * 8);
        __syncwarp();
        warp_arrive(bars + ROW_EMPTY + side * 8);
        named_sync(BOTH, CONSUMERS);  // nobody reads Q, P and the state any more
        finish(o, top, sum, sink, g, group == 0 ? p_even : p_odd, item, any);
#if WAY == 0
        if (item + gridDim.x < g.items) load_q<CONSUMERS>(g, base, item + gridDim.x);
#endif
    }
}
#elif WAY == 2
// Scores of the block's tiles, and the tiles themselves, to memory: a warpgroup has one buffer.
__device__ __forceinline__ void consume_scores(const Args& g, u8* memory, u32 base, int tiles, int item, u32 mine) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31, thread = threadIdx.x & 127;
    const u32 bars = base + OFF_BARRIER;
    load_q<CONSUMERS>(g, base, item);
    fence_async();
    named_sync(BOTH, CONSUMERS);
    barrier_wait(bars + ROW_FULL, 0);
    const u64 mask = lane < tiles ? ((const u64*)(memory + OFF_MASK))[lane] : 0;
    if ((mine & 1) && threadIdx.x < 32) g.masks[item * MAX_TILES + lane] = mask;
    u32 live = __ballot_sync(0xffffffff, mask != 0) & mine;
    for (u32 step = 0; live != 0; step++, live &= live - 1) {
        if ((step & 1) != group) continue;
        const u64 tile = (u64)item * tiles + __ffs(live) - 1;
        float s[32];
        issue_scores(s, base, step);
        if (thread == 0)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(
                             g.keys + tile * 65536),
                         "r"(base + OFF_K + group * 65536), "r"(65536) : "memory");
        wgmma_wait<0>();
        hold(s);
        float4* to = (float4*)(g.scores + tile * 16384) + thread;
#pragma unroll
        for (int i = 0; i < 8; i++) to[i * 128] = make_float4(s[i * 4], s[i * 4 + 1], s[i * 4 + 2], s[i * 4 + 3]);
        if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __syncwarp();
        warp_arrive(bars + EMPTY + group * 16);
        warp_arrive(bars + EMPTY + group * 16 + 8);
    }
    if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#elif WAY == 3
// WEIGHERS warpgroups turn scores into probabilities, in turn; the next one multiplies, for 128 channels; one more
// thread fetches the tiles of keys.
#define WEIGHERS 3
#define RAISED 8  // named barriers, one of each weigher: its tile's maximum is there
#define VALUE_SLOTS 8
#define WEIGHT_SLOTS 8
#define VALUE_BYTES 16384
#define OFF_WEIGHTS (VALUE_SLOTS * VALUE_BYTES)
#define OFF_TOPS (OFF_WEIGHTS + WEIGHT_SLOTS * 8192)
#define OFF_BARS (OFF_TOPS + WEIGHT_SLOTS * 512)
#define VALUE_FULL 0
#define VALUE_EMPTY (VALUE_SLOTS * 8)
#define WEIGHT_FULL (VALUE_SLOTS * 16)
#define WEIGHT_EMPTY (WEIGHT_FULL + WEIGHT_SLOTS * 8)

__device__ __forceinline__ void fetch_scores(float (&s)[32], const Args& g, u64 tile) {
    const float4* from = (const float4*)(g.scores + tile * 16384) + (threadIdx.x & 127);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 v = __ldg(from + i * 128);
        s[i * 4] = v.x;
        s[i * 4 + 1] = v.y;
        s[i * 4 + 2] = v.z;
        s[i * 4 + 3] = v.w;
    }
}

// The n-th of the tiles in `live`.
__device__ __forceinline__ int nth_tile(u32 live, int n) {
    for (; n > 0; n--) live &= live - 1;
    return __ffs(live) - 1;
}

__device__ __forceinline__ void weigh_tiles(
    const Args& g, u8* memory, u32 base, int item, int tiles, u32 live, int count, u64 mask) {
    const int group = threadIdx.x >> 7, lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
    const u32 bars = base + OFF_BARS;
    float* tops = (float*)(memory + OFF_TOPS);  // [slot][maximum, sum of the tile][64]
    float next[32];
    int tile = nth_tile(live, group);
    if (group < count) fetch_scores(next, g, (u64)item * tiles + tile);
    for (int n = group; n < count; n += WEIGHERS) {
        float s[32], most[2], factor = g.scale * (1.4426950408889634f * 128.0f);
#pragma unroll
        for (int i = 0; i < 32; i++) s[i] = next[i];
        const u64 there = __shfl_sync(0xffffffff, mask, tile);
        if (n + WEIGHERS < count) {
            tile = nth_tile(live, n + WEIGHERS);
            fetch_scores(next, g, (u64)item * tiles + tile);
        }
        clean(s, factor, there);
#pragma unroll
        for (int h = 0; h < 2; h++) most[h] = row_max(s, h);
        const int slot = n & (WEIGHT_SLOTS - 1), round = n / WEIGHT_SLOTS;
        barrier_wait(bars + WEIGHT_EMPTY + slot * 8, (round & 1) ^ 1);
        float top[2] = {-INFINITY, -INFINITY};
        if (n > 0) {
            named_sync(RAISED + (group + WEIGHERS - 1) % WEIGHERS, 256);
            const volatile float* before = tops + ((n - 1) & (WEIGHT_SLOTS - 1)) * 128 + row;
            top[0] = before[0];
            top[1] = before[8];
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            top[h] = raised(top[h], most[h]);
            if ((lane & 3) == 0) tops[slot * 128 + row + h * 8] = top[h];
        }
        if (n + 1 < count) named_arrive(RAISED + group, 256);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float total = weigh(s, h, finite_or_zero(top[h]), base + OFF_WEIGHTS + slot * 8192);
            if ((lane & 3) == 0) tops[slot * 128 + 64 + row + h * 8] = total;
        }
        fence_async();
        __syncwarp();
        warp_arrive(bars + WEIGHT_FULL + slot * 8);
    }
}

__device__ __forceinline__ void sum_tiles(const Args& g, u8* memory, u32 base, int item, int quarter, int count) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, row = warp * 16 + (lane >> 2);
    const u32 bars = base + OFF_BARS;
    const volatile float* tops = (const volatile float*)(memory + OFF_TOPS);
    float o[64], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, used[2] = {0.0f, 0.0f}, sink[2];
#pragma unroll
    for (int i = 0; i < 64; i++) o[i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) sink[h] = sink_of(g, item, row + h * 8);
    for (int n = 0; n < count; n++) {
        const int slot = n & (WEIGHT_SLOTS - 1), place = n & (VALUE_SLOTS - 1);
        barrier_wait(bars + WEIGHT_FULL + slot * 8, n / WEIGHT_SLOTS & 1);
        fence_async();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            top[h] = tops[slot * 128 + row + h * 8];
            sum[h] = grown(sum[h], used[h], finite_or_zero(top[h]), tops[slot * 128 + 64 + row + h * 8]);
        }
        rescale(o, used, top);
        barrier_wait(bars + VALUE_FULL + place * 8, n / VALUE_SLOTS & 1);
        const u64 a = DESCRIPTOR(base + OFF_WEIGHTS + slot * 8192, 1, 64);
        const u64 b = DESCRIPTOR(base + place * VALUE_BYTES, SUBTILE >> 4, 64);
        hold(o);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE / 16; k++) wgmma_values(o, 0, a + k * 2, b + k * 128);
        wgmma_commit();
        wgmma_wait<0>();
        hold(o);
        warp_arrive(bars + WEIGHT_EMPTY + slot * 8);
        warp_arrive(bars + VALUE_EMPTY + place * 8);
    }
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) factor[h] = output_factor(top[h], sum[h], sink[h], count > 0);
    const u32 to = base + warp * 4096;  // 16 rows of 256 bytes, in the memory of the first tile
    named_sync(OWN, 128);               // whose last use is over in all warps
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int at = (lane >> 2) + (i & 1) * 8;
        const u32 pair = pack_bf16(o[i * 2] * factor[i & 1], o[i * 2 + 1] * factor[i & 1]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + at * 256 + (((i >> 1) ^ (at & 7)) << 4) + (lane & 3) * 4),
                     "r"(pair) : "memory");
    }
    __syncwarp();
    const int first_head = item % g.groups * 64, heads = min(64, g.heads - first_head), chunk = lane & 15;
    u8* out = g.out + ((u64)(item / g.groups) * g.heads + first_head) * (D * 2) + quarter * 256 + chunk * 16;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i * 2 + (lane >> 4);
        u32 w0, w1, w2, w3;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w0), "=r"(w1), "=r"(w2), "=r"(w3)
                     : "r"(to + at * 256 + ((chunk ^ (at & 7)) << 4)));
        if (warp * 16 + at < heads) *(uint4*)(out + (u64)(warp * 16 + at) * (D * 2)) = in_order(w0, w1, w2, w3);
    }
}

__device__ __forceinline__ void fetch_values(const Args& g, u32 base, int item, int quarter, int tiles, u32 live) {
    const u32 bars = base + OFF_BARS;
    for (int n = 0; live != 0; n++, live &= live - 1) {
        const int place = n & (VALUE_SLOTS - 1);
        const u64 tile = (u64)item * tiles + __ffs(live) - 1;
        barrier_wait(bars + VALUE_EMPTY + place * 8, (n / VALUE_SLOTS & 1) ^ 1);
        barrier_expect(bars + VALUE_FULL + place * 8, VALUE_BYTES);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         base + place * VALUE_BYTES),
                     "l"(g.keys + tile * 65536 + quarter * VALUE_BYTES), "r"(VALUE_BYTES),
                     "r"(bars + VALUE_FULL + place * 8) : "memory");
    }
}
#endif

#if WAY == 0 || WAY == 2
// ---- the row ------------------------------------------------------------------------------------------------------------

// Where the record of every slot of the row lies, 0 for none, and which slots there are.
__device__ __forceinline__ void find_slots(
    const Args& g, int row, u64* slots, u32* masks, int window_tiles, int tiles, int me, int finders) {
    const int sequence = g.row_seq[row];
    const int oldest = max(g.first_key[row], 0), last = g.last_key[row];
    int start = 0, begin = 0, state = 0;
    if (sequence >= 0) {
        start = g.seq_start[sequence];
        begin = g.row_begin[sequence];
        state = g.state_slot[sequence];
    }
    const int slots_of_row = tiles * TILE;
    for (int from = me; from < slots_of_row; from += finders * STAGES) {
        int entry[STAGES], page[STAGES];
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            const int column = from + k * finders - window_tiles * TILE;
            entry[k] = -1;
            if (sequence >= 0 && column >= 0 && column < g.selected)
                entry[k] = g.indices[(u64)row * g.selected + column];
        }
#pragma unroll
        for (int k = 0; k < STAGES; k++)
            if (entry[k] >= 0) page[k] = g.block_table[(u64)sequence * g.table_width + (entry[k] >> g.entries_log2)];
#pragma unroll
        for (int k = 0; k < STAGES; k++) {
            const int i = from + k * finders, key = last - g.window + 1 + i;
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

#endif

// ---- kernels ----------------------------------------------------------------------------------------------------------

#if WAY <= 2
__device__ __forceinline__ void prepare(u32 bars) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            for (int half = 0; half < 2; half++) {
                barrier_init(bars + FULL + i * 16 + half * 8, WAY == 1 ? 128 : 8 * ARRIVALS);
                barrier_init(bars + EMPTY + i * 16 + half * 8, 4 * ARRIVALS);
            }
            barrier_init(bars + ROW_FULL + i * 8, (WAY == 1 ? 4 : PRODUCERS / 32) * ARRIVALS);
            barrier_init(bars + ROW_EMPTY + i * 8, (CONSUMERS / 32 + (WAY == 1 ? 4 : 0)) * ARRIVALS);
        }
        barrier_init(bars + Q_FULL, 4 * ARRIVALS);
        barrier_init(bars + Q_EMPTY, CONSUMERS / 32 * ARRIVALS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
}
#endif

#if WAY <= 1
extern "C" __global__ void __launch_bounds__(CONSUMERS + PRODUCERS, 1) attention(const __grid_constant__ Args g) {
    extern __shared__ __align__(1024) u8 memory[];
    const u32 base = shared_address(memory);
    const int window_tiles = (g.window + TILE - 1) / TILE, tiles = window_tiles + (g.selected + TILE - 1) / TILE;
    prepare(base + OFF_BARRIER);
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 " STRING(PRODUCER_REGISTERS) ";");
#if WAY == 0
        produce(g, memory, base, window_tiles, tiles, Part{(int)blockIdx.x, (int)gridDim.x, ~0u});
#else
        if (threadIdx.x >= CONSUMERS + 128)
            find_lines(g, memory, base, window_tiles, tiles);
        else
            copy_lines(g, memory, base, tiles);
#endif
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 " STRING(CONSUMER_REGISTERS) ";");
        consume(g, memory, base, tiles);
    }
}
#elif WAY == 2
extern "C" __global__ void __launch_bounds__(CONSUMERS + PRODUCERS, 1)
    attention_scores(const __grid_constant__ Args g) {
    extern __shared__ __align__(1024) u8 memory[];
    const u32 base = shared_address(memory);
    const int window_tiles = (g.window + TILE - 1) / TILE, tiles = window_tiles + (g.selected + TILE - 1) / TILE;
    const int item = blockIdx.x;
    u32 mine = 0;
    for (int tile = blockIdx.y; tile < tiles; tile += gridDim.y) mine |= 1u << tile;
    prepare(base + OFF_BARRIER);
    if (threadIdx.x >= CONSUMERS)
        produce(g, memory, base, window_tiles, tiles, Part{item, g.items, mine});
    else
        consume_scores(g, memory, base, tiles, item, mine);
}
#elif WAY == 3
extern "C" __global__ void __launch_bounds__((WEIGHERS + 1) * 128 + 32, 1)
    attention_values(const __grid_constant__ Args g) {
    extern __shared__ __align__(1024) u8 memory[];
    const u32 base = shared_address(memory), bars = base + OFF_BARS;
    const int tiles = (g.window + TILE - 1) / TILE + (g.selected + TILE - 1) / TILE;
    const int item = blockIdx.x, quarter = blockIdx.y, lane = threadIdx.x & 31;
    if (threadIdx.x == 0) {
        for (int i = 0; i < VALUE_SLOTS; i++) {
            barrier_init(bars + VALUE_FULL + i * 8, 1);
            barrier_init(bars + VALUE_EMPTY + i * 8, 4 * ARRIVALS);
        }
        for (int i = 0; i < WEIGHT_SLOTS; i++) {
            barrier_init(bars + WEIGHT_FULL + i * 8, 4 * ARRIVALS);
            barrier_init(bars + WEIGHT_EMPTY + i * 8, 4 * ARRIVALS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const u64 mask = g.masks[item * MAX_TILES + lane];
    const u32 live = __ballot_sync(0xffffffff, mask != 0);
    const int count = __popc(live);
    __syncthreads();
    if (threadIdx.x < WEIGHERS * 128)
        weigh_tiles(g, memory, base, item, tiles, live, count, mask);
    else if (threadIdx.x < (WEIGHERS + 1) * 128)
        sum_tiles(g, memory, base, item, quarter, count);
    else if (lane == 0)
        fetch_values(g, base, item, quarter, tiles, live);
}
#else
// A warp takes lines one after another. A state or page that is not there is not followed: what no row asks for may be
// anything.
extern "C" __global__ void __launch_bounds__(256) attention_unpack(const __grid_constant__ Args g) {
    const int lane = threadIdx.x & 31, ring_lines = g.sequences * g.ring_slots, span = g.table_width << g.entries_log2;
    const int lines = g.rows + ring_lines + (g.selected ? g.sequences * span : 0);
    for (int line = blockIdx.x * 8 + (threadIdx.x >> 5); line < lines; line += gridDim.x * 8) {
        u64 record = 0;
        const bool fp8 = FP8_PAGES || line < g.rows + ring_lines;
        if (line < g.rows) {
            record = (u64)g.fresh + (u64)line * g.fresh_stride;
        } else if (line < g.rows + ring_lines) {
            const int at = line - g.rows, state = g.state_slot[at / g.ring_slots];
            if (state >= 0 && state < g.states)
                record = (u64)g.ring + (u64)state * g.ring_stride + (u64)(at % g.ring_slots) * g.slot_stride;
        } else {
            const int at = line - g.rows - ring_lines, page = g.block_table[at >> g.entries_log2];
            if (page >= 0 && page < g.pool)
                record = (u64)g.pages + (u64)page * g.page_stride +
                         (u64)(at & ((1 << g.entries_log2) - 1)) * (FP8_PAGES ? FP8_RECORD : FP4_RECORD);
        }
        if (record == 0) continue;
        uint4 raw;
        u32 scale, w[8];
        if (fp8) {
            fetch<true>(record, lane, raw, scale);
            unpack<true>(raw, scale, false, w);
        } else {
            fetch<false>(record, lane, raw, scale);
            unpack<false>(raw, scale, false, w);
        }
        uint4* to = (uint4*)(g.keys + (u64)line * 1024) + lane * 2;
        to[0] = make_uint4(w[0], w[1], w[2], w[3]);
        to[1] = make_uint4(w[4], w[5], w[6], w[7]);
    }
}
#endif
