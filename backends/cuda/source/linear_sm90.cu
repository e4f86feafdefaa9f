// FP8 and FP4 weights times a few FP8 rows, for SM90. See backends/cuda/linear_sm90.py and grouped_sm90.py.
//
// Outputs stand on the side of a product that takes 64 of them (wgmma's M), rows of x on the other (N). A warpgroup has
// 64 outputs and runs through their channels: a thread reads codes from memory into registers, RING units ahead, turns
// them into bf16 there, and that is the operand. Rows of x become bf16 in shared memory, CHUNK units at a time; or, with
// IMAGE, a kernel before has made an image of that shared memory, and the bulk engine brings it, STAGES chunks ahead.
//
// Sums are those of the other ways (linear_kernels.py), bit for bit: sixteen channels in a step, the channels of each
// 64 dealt so that what a thread unpacks lies side by side in memory, steps in order, from 0 in each part of K, parts
// added in order. A part is a block of its own; the blocks of all parts of a tile are a cluster and add through shared
// memory.
//
// Weights lie in blocks of 64 outputs by 64 channels, so that a warp reads 512 or 256 bytes in a row. They are clean
// (portable_weights.py): no NaN, and no scale so large that the shift of the exponent's bias, which is multiplied into
// it, leaves bf16. Codes and scales of rows can be anything.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

#ifndef FP4
#define FP4 0
#endif
#ifndef ROWS
#define ROWS 8  // of a tile, of `linear`
#endif
#ifndef IMAGE
#define IMAGE 0
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 2
#endif
#ifndef RING
#define RING 4  // units on their way
#endif
#ifndef X_BYTES
#define X_BYTES 98304  // of rows of x in shared memory
#endif
#ifndef RESIDENT
#define RESIDENT 2  // blocks of a multiprocessor
#endif
#define THREADS (128 * WARPGROUPS)
#define TILE (64 * WARPGROUPS)
#define UNIT_BLOCKS (FP4 ? 2 : 1)  // 64 channels each
#define UNIT (64 * UNIT_BLOCKS)
#define LINE (TILE + 4)  // floats of a row of sums in shared memory
#define MOST_PARTS 8
#define FULL 0xffffffffu
#define FACTOR_BYTES 8192  // of scales of a part
#define OFF_BARRIER (X_BYTES + FACTOR_BYTES)
#define MOST_STAGES 4

struct Linear {
    const u8* x;    // [rows, groups, channels], or the image
    const u8* xs;   // [rows, groups, channels / 32]
    const u8* w;    // [groups, outputs / 64, channels / 64, 64, 64]
    const u8* ws;   // [groups, outputs / 32, channels / 32]
    u16* y;         // [rows, groups, outputs]
    int rows, groups, outputs, channels, part;
};

struct Grouped {
    const u8* x;         // [lines, channels]
    const u8* xs;        // [lines, channels / 32]
    const u8* w;         // [experts, outputs / 64, channels / 64, 64, 32 bytes]
    const u8* ws;        // [experts, outputs / 64, channels / 256, 64, 8]
    const int* source;   // [rows] or none
    const int* offsets;  // [experts + 1]
    u16* y;              // [rows, outputs]
    int experts, outputs, channels;
};

// What a block multiplies.
struct Work {
    const u8* x;
    const u8* xs;
    const int* source;  // line of each row, or none
    u64 line;           // of row 0, where there is no source
    int lines;          // from a row to the next, likewise
    int rows;
    int channels;       // of a line
    int begin;          // first channel
    int units;
    const u8* w;        // this thread's codes, from the first channel on
    const u8* ws;       // FP4: this thread's scales
};

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ u32 multiply_bf16x2(u32 a, u32 b) {
    u32 c;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
__device__ __forceinline__ u32 bytes_of(u32 a, u32 b, u32 which) {
    u32 c;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(which));
    return c;
}
// What comes next in the stream may start; what came before has ended, and can be read.
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra READY;\n bra AGAIN;\nREADY:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_load(u32 to, const u8* from, u32 bytes, u32 bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar) : "memory");
}
// Volatile: they stay where they are written, ahead of what waits for earlier ones.
__device__ __forceinline__ void stream16(u32* r, const u8* p) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "l"(p));
}
__device__ __forceinline__ void stream8(u32* r, const u8* p) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(p));
}
__device__ __forceinline__ void keep8(u32* r, const u8* p) {
    asm volatile("ld.global.nc.L1::evict_last.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(p));
}

// ---- codes to bf16 --------------------------------------------------------------------------------------------------

// Codes of channels 0 and 2, 1 and 3 of four, as bf16 that are 2^-120 too small.
__device__ __forceinline__ void spread_e4m3(u32 word, u32& even, u32& odd) {
    even = ((word << 8) & 0x80008000) | ((word << 4) & 0x07f007f0);
    odd = (word & 0x80008000) | ((word >> 4) & 0x07f007f0);
}
// Of a row of x: any code, any scale. A NaN in a word shows in its even pair, which is as good in a sum.
__device__ __forceinline__ void row_e4m3(u32 word, u32 factor, u32& even, u32& odd) {
    spread_e4m3(word, even, odd);
    even = multiply_bf16x2(multiply_bf16x2(even, 0x7b807b80), factor);
    odd = multiply_bf16x2(multiply_bf16x2(odd, 0x7b807b80), factor);
    if ((((word & 0x7f7f7f7f) + 0x01010101) & 0x80808080) != 0) even = 0x7fff7fff;
}
__device__ __forceinline__ u32 row_factor(u32 b) {
    u32 one = b == 0 ? 0x0040 : b == 255 ? 0x7fc0 : b << 7;
    return one * 0x00010001;
}
// Channels 0 and 4, 1 and 5, 2 and 6, 3 and 7 of eight. A product puts sign, exponent and fraction in their places.
__device__ __forceinline__ void weights_e2m1(u32 word, u32 factor, u32* pair) {
    u32 high = word >> 8;
    pair[0] = multiply_bf16x2(((word & 0x000f000f) * 0x1040) & 0x81c081c0, factor);
    pair[1] = multiply_bf16x2(((word & 0x00f000f0) * 0x0104) & 0x81c081c0, factor);
    pair[2] = multiply_bf16x2(((high & 0x000f000f) * 0x1040) & 0x81c081c0, factor);
    pair[3] = multiply_bf16x2(((high & 0x00f000f0) * 0x0104) & 0x81c081c0, factor);
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------

// Rows of 128 bytes, swizzled; eight of them, and then the next eight.
#define DESCRIPTOR(address) ((u64)(((address) & 0x3ffff) >> 4) | ((u64)1 << 16) | ((u64)64 << 32) | ((u64)1 << 62))
#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define WGMMA(n, sums, operands) \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" n \
    "k16.f32.bf16.bf16 {" sums "}, " operands ", p, 1, 1, 0;\n}"

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Operands are complete here: made later, between products that run, they would make the compiler wait for each.
__device__ __forceinline__ void hold(u32 (&a)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++) asm volatile("" : "+r"(a[i])::"memory");
}
template <int LEFT>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// d[64 outputs x N rows] += a[64 x 16] . b[N x 16]^T
template <int N>
__device__ __forceinline__ void multiply(float (&d)[N / 2], const u32* a, u64 b) {
    if constexpr (N == 8)
        asm volatile(WGMMA("8", "%0, %1, %2, %3", "{%4, %5, %6, %7}, %8")
                     : F4(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (N == 16)
        asm volatile(WGMMA("16", "%0, %1, %2, %3, %4, %5, %6, %7", "{%8, %9, %10, %11}, %12")
                     : F4(d, 0), F4(d, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (N == 32)
        asm volatile(WGMMA("32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
                           "{%16, %17, %18, %19}, %20")
                     : F16(d, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        asm volatile(WGMMA("64",
                           "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                           "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31",
                           "{%32, %33, %34, %35}, %36")
                     : F16(d, 0), F16(d, 16)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// ---- rows of x ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint2 load_pair(const u8* p, bool whole) {
    if (whole) return *(const uint2*)p;
    uint2 r;
    r.x = p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
    r.y = p[4] | (u32)p[5] << 8 | (u32)p[6] << 16 | (u32)p[7] << 24;
    return r;
}

// Half of 64 channels of a row, those of two of the four steps, as bf16 and dealt: four chunks of 16 bytes.
__device__ __forceinline__ void convert(const u8* x, const u8* xs, bool whole, uint4 (&chunk)[4]) {
    uint2 word[4];
    u32 scale[2] = {xs[0], xs[1]};
#pragma unroll
    for (int q = 0; q < 4; q++) word[q] = load_pair(x + 16 * q, whole);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        u32 factor = row_factor(scale[q / 2]), a = word[q].x, b = word[q].y;
        if (FP4) {
            u32 low = bytes_of(a, b, 0x5410);
            b = bytes_of(a, b, 0x7632);
            a = low;
        }
        row_e4m3(a, factor, ((u32*)&chunk[0])[q], ((u32*)&chunk[1])[q]);
        row_e4m3(b, factor, ((u32*)&chunk[2])[q], ((u32*)&chunk[3])[q]);
    }
}
__device__ __forceinline__ void put(u8* line, int row, int half, const uint4 (&chunk)[4]) {
#pragma unroll
    for (int c = 0; c < 4; c++) *(uint4*)(line + (((half * 4 + c) ^ (row & 7)) << 4)) = chunk[c];
}

// Blocks of 64 channels of all rows, zeros for rows behind the last: [block][N rows][128 bytes, swizzled].
template <int N>
__device__ __forceinline__ void stage(const Work& g, u8* shared, int first, int blocks) {
    bool whole = ((u64)g.x & 7) == 0;
    u32 inverse = ((1u << 20) + blocks - 1) / blocks;
#pragma unroll 2
    for (int i = threadIdx.x; i < N * blocks * 2; i += THREADS) {
        int half = i & 1, row = ((u32)(i >> 1) * inverse) >> 20, block = (i >> 1) - row * blocks;
        uint4 chunk[4] = {};
        if (row < g.rows) {
            u64 line = g.source ? (u64)g.source[row] : g.line + (u64)row * g.lines;
            int at = g.begin + (first + block) * 64;
            convert(g.x + line * g.channels + at + half * 8, g.xs + line * (g.channels / 32) + at / 32, whole, chunk);
        }
        put(shared + (block * N + row) * 128, row, half, chunk);
    }
}

// ---- weights --------------------------------------------------------------------------------------------------------

// Codes of a unit of this thread's two output rows, and FP4 scales of two units.
__device__ __forceinline__ void load_codes(u32* codes, const u8* upper, const u8* lower) {
    if (FP4) {
        stream8(codes, upper);
        stream8(codes + 2, upper + 2048);
        stream8(codes + 4, lower);
        stream8(codes + 6, lower + 2048);
    } else {
        stream16(codes, upper);
        stream16(codes + 4, lower);
    }
}
__device__ __forceinline__ void load_scales(u32* scales, const u8* upper, const u8* lower) {
    keep8(scales, upper);
    keep8(scales + 2, lower);
}

// Units on their way, and where the turn of the ring begins in memory.
struct Ring {
    u32 codes[RING][8];
    u32 scales[RING / 2][4];
    const u8 *upper, *lower, *upper_scales, *lower_scales;
};

__device__ __forceinline__ void fill(const Work& g, Ring& ring) {
    ring.upper = g.w, ring.lower = g.w + (FP4 ? 256 : 512);
    ring.upper_scales = g.ws, ring.lower_scales = g.ws + 64;
#pragma unroll
    for (int j = 0; j < RING; j++) {
        if (j < g.units) load_codes(ring.codes[j], ring.upper + j * 4096, ring.lower + j * 4096);
        if (FP4 && j % 2 == 0 && j < g.units)
            load_scales(ring.scales[j / 2], ring.upper_scales + j * 256, ring.lower_scales + j * 256);
    }
}
__device__ __forceinline__ void turn(Ring& ring) {
    ring.upper += RING * 4096, ring.lower += RING * 4096;
    ring.upper_scales += RING * 256, ring.lower_scales += RING * 256;
}
template <int J>
__device__ __forceinline__ void load_next(Ring& ring) {
    load_codes(ring.codes[J], ring.upper + (RING + J) * 4096, ring.lower + (RING + J) * 4096);
    if (FP4 && J % 2 == 1)
        load_scales(ring.scales[J / 2], ring.upper_scales + (RING + J - 1) * 256,
                    ring.lower_scales + (RING + J - 1) * 256);
}

// One unit, its codes in place J of the ring: to bf16, on to the matrix unit, and the next into that place.
template <int N, int J>
__device__ __forceinline__ void step(
    const Work& g, Ring& ring, const u32* factors, u32 x, int unit, float (&d)[N / 2]) {
    u32 quarter = threadIdx.x % 4;
    u64 b = DESCRIPTOR(x);
    if (FP4) {
        u32 which = 0x4040 + (quarter >> 1) * 0x0101;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 a[16], pair[4];
            u32 upper = bytes_of(ring.scales[J / 2][J % 2], 0, which + half * 0x0202) * 128 + 126 * 0x00800080;
            u32 lower = bytes_of(ring.scales[J / 2][2 + J % 2], 0, which + half * 0x0202) * 128 + 126 * 0x00800080;
#pragma unroll
            for (int m = 0; m < 2; m++) {
                weights_e2m1(ring.codes[J][half * 2 + m], upper, pair);
                a[8 * m] = pair[0], a[8 * m + 2] = pair[1], a[8 * m + 4] = pair[2], a[8 * m + 6] = pair[3];
                weights_e2m1(ring.codes[J][4 + half * 2 + m], lower, pair);
                a[8 * m + 1] = pair[0], a[8 * m + 3] = pair[1], a[8 * m + 5] = pair[2], a[8 * m + 7] = pair[3];
            }
            if (half == 1 && unit + RING < g.units) load_next<J>(ring);
            hold(a);
            wgmma_fence();
#pragma unroll
            for (int s = 0; s < 4; s++) multiply<N>(d, a + 4 * s, b + half * (N * 8) + s * 2);
            wgmma_commit();
            wgmma_wait<0>();
        }
    } else {
        u32 a[16];
        u32 factor = factors[2 * unit + (quarter >> 1)];
#pragma unroll
        for (int s = 0; s < 4; s++) {
            u32 even, odd;
            spread_e4m3(ring.codes[J][s], even, odd);
            a[4 * s] = multiply_bf16x2(even, factor), a[4 * s + 2] = multiply_bf16x2(odd, factor);
            spread_e4m3(ring.codes[J][4 + s], even, odd);
            a[4 * s + 1] = multiply_bf16x2(even, factor), a[4 * s + 3] = multiply_bf16x2(odd, factor);
        }
        if (unit + RING < g.units) load_next<J>(ring);
        hold(a);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++) multiply<N>(d, a + 4 * s, b + s * 2);
        wgmma_commit();
        wgmma_wait<0>();
    }
}

template <int N, int J>
__device__ __forceinline__ void steps(
    const Work& g, Ring& ring, const u32* factors, u32 x, int unit, int stop, float (&d)[N / 2]) {
    if constexpr (J < RING) {
        if (unit < stop) {
            step<N, J>(g, ring, factors, x, unit, d);
            steps<N, J + 1>(g, ring, factors, x + UNIT_BLOCKS * N * 128, unit + 1, stop, d);
        }
    }
}

// Sums of the block's tile over all units, into shared memory: [N rows][LINE floats].
template <int N>
__device__ __forceinline__ void product(const Work& g, Ring& ring, u8* shared, const u32* factors) {
    constexpr int LINE_BYTES = UNIT_BLOCKS * N * 128;  // of a unit
    constexpr int ROOM = X_BYTES / (RING * LINE_BYTES) * RING;
    constexpr int LEAST = 32768 / LINE_BYTES;
    constexpr int CHUNK = IMAGE ? LEAST > RING ? LEAST : RING : ROOM;
    constexpr int STAGES = !IMAGE ? 1 : ROOM / CHUNK > MOST_STAGES ? MOST_STAGES : ROOM / CHUNK;
    static_assert(STAGES > 0 && CHUNK > 0, "no room for rows of x");
    u32 base = shared_address(shared), bars = base + OFF_BARRIER;
    float d[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
    if (IMAGE && threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) barrier_init(bars + 8 * i, 1);
        fence_async();
    }
    wait_for_previous();
    if (IMAGE) {
        if (threadIdx.x == 0)
            for (int i = 0, unit = 0; i < STAGES && unit < g.units; i++, unit += CHUNK)
                bulk_load(base + i * CHUNK * LINE_BYTES, g.x + (u64)unit * LINE_BYTES,
                          (g.units - unit < CHUNK ? g.units - unit : CHUNK) * LINE_BYTES, bars + 8 * i);
        __syncthreads();
    }
    for (int first = 0, place = 0, parity = 0; first < g.units; first += CHUNK) {
        int stop = first + CHUNK < g.units ? first + CHUNK : g.units;
        if (IMAGE) {
            barrier_wait(bars + 8 * place, parity);
        } else {
            if (first) __syncthreads();
            stage<N>(g, shared, first * UNIT_BLOCKS, (stop - first) * UNIT_BLOCKS);
            fence_async();
            __syncthreads();
        }
        u32 x = base + place * CHUNK * LINE_BYTES;
        for (int unit = first; unit < stop; unit += RING, x += RING * LINE_BYTES) {
            steps<N, 0>(g, ring, factors, x, unit, stop, d);
            turn(ring);
        }
        int next = first + STAGES * CHUNK;
        if (IMAGE && next < g.units) {
            __syncthreads();
            if (threadIdx.x == 0)
                bulk_load(base + place * CHUNK * LINE_BYTES, g.x + (u64)next * LINE_BYTES,
                          (g.units - next < CHUNK ? g.units - next : CHUNK) * LINE_BYTES, bars + 8 * place);
        }
        if (IMAGE && ++place == STAGES) place = 0, parity ^= 1;
    }
    __syncthreads();
    float* sums = (float*)shared;
    int output = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++, row += 8) {
        sums[row * LINE + output] = d[4 * j];
        sums[(row + 1) * LINE + output] = d[4 * j + 1];
        sums[row * LINE + output + 8] = d[4 * j + 2];
        sums[(row + 1) * LINE + output + 8] = d[4 * j + 3];
    }
}

// ---- results --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void store_pair(u16* at, float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    if (((u64)at & 3) == 0) {
        *(u32*)at = pair;
    } else {
        at[0] = (u16)pair;
        at[1] = (u16)(pair >> 16);
    }
}
__device__ __forceinline__ float2 load_part(u32 address, u32 part) {
    u32 there;
    float2 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(part));
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(there) : "memory");
    return r;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) linear(const Linear g) {
#if !FP4
    extern __shared__ __align__(1024) u8 shared[];
    u32* factors = (u32*)(shared + X_BYTES);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = g.outputs / TILE;
    int part = blockIdx.z, parts = gridDim.z, begin = part * g.part;
    int group = blockIdx.x / tiles, output = blockIdx.x % tiles * TILE;
    int end = begin + g.part < g.channels ? begin + g.part : g.channels, scales = (end - begin) / 32;
    u64 first = (u64)group * g.outputs + output;
    Work work = {g.x, g.xs, 0, (u64)group, g.groups, g.rows, g.channels, begin, (end - begin) / UNIT,
                 g.w + (first + warp / 4 * 64) * g.channels + begin * 64 + warp % 4 * 1024 + lane * 16, 0};
    if (IMAGE) work.x = g.x + ((u64)group * (g.channels / 64) + begin / 64) * (ROWS * 128);
    Ring ring;
    fill(work, ring);
    let_next_start();
    const u8* ws = g.ws + (first / 32) * (g.channels / 32) + begin / 32;
    for (int i = threadIdx.x; i < TILE / 32 * scales; i += THREADS)
        factors[i] = (ws[i / scales * (g.channels / 32) + i % scales] + 120) * 0x00800080;
    product<ROWS>(work, ring, shared, factors + warp / 2 * scales);
    if (parts > 1) cluster_sync();
    else __syncthreads();
    u32 sums = shared_address(shared);
    for (int i = part * THREADS + threadIdx.x; i < g.rows * (TILE / 2); i += parts * THREADS) {
        int row = i / (TILE / 2), column = i % (TILE / 2) * 2;
        u32 at = sums + (row * LINE + column) * 4;
        float2 total = make_float2(0.0f, 0.0f), term[MOST_PARTS];
        if (parts == 1) {
            total = *(const float2*)(shared + (row * LINE + column) * 4);
        } else {
#pragma unroll
            for (int p = 0; p < MOST_PARTS; p++)
                if (p < parts) term[p] = load_part(at, p);
#pragma unroll
            for (int p = 0; p < MOST_PARTS; p++)
                if (p < parts) total.x += term[p].x, total.y += term[p].y;
        }
        store_pair(g.y + ((u64)row * g.groups + group) * g.outputs + output + column, total.x, total.y);
    }
    if (parts > 1) cluster_sync();  // nobody leaves while its sums are read
#endif
}

// The image of x, [groups][channels / 64][ROWS][128 bytes], of rows [rows, groups, channels].
extern "C" __global__ void __launch_bounds__(128) image(
    const u8* x, const u8* xs, u8* to, int rows, int groups, int channels) {
    let_next_start();
    wait_for_previous();
    int blocks = channels / 64, i = blockIdx.x * 128 + threadIdx.x;
    if (i >= groups * blocks * ROWS * 2) return;
    int half = i & 1, block = (i >> 1) % blocks, rest = (i >> 1) / blocks, row = rest % ROWS, group = rest / ROWS;
    uint4 chunk[4] = {};
    if (row < rows) {
        u64 line = (u64)row * groups + group;
        x += line * channels + block * 64 + half * 8;
        convert(x, xs + line * (channels / 32) + block * 2, ((u64)x & 7) == 0, chunk);
    }
    put(to + (((u64)group * blocks + block) * ROWS + row) * 128, row, half, chunk);
}

// Of tile `wanted` of all experts' tiles of at most `most` rows: (expert, first row, rows), or no rows.
__device__ __forceinline__ int3 find(const Grouped& g, int wanted, int most) {
    int lane = threadIdx.x % 32;
    for (int base = 0; base < g.experts; base += 32) {
        int e = base + lane, begin = 0, count = 0;
        if (e < g.experts) begin = g.offsets[e], count = g.offsets[e + 1] - begin;
        int tiles = (count + most - 1) / most, before = tiles;
#pragma unroll
        for (int far = 1; far < 32; far *= 2) {
            int other = __shfl_up_sync(FULL, before, far);
            if (lane >= far) before += other;
        }
        int all = __shfl_sync(FULL, before, 31);
        if (wanted < all) {
            u32 here = __ballot_sync(FULL, before > wanted);
            int owner = __ffs(here) - 1;
            int tile = wanted - __shfl_sync(FULL, before - tiles, owner);
            int left = __shfl_sync(FULL, count, owner) - tile * most;
            return make_int3(base + owner, __shfl_sync(FULL, begin, owner) + tile * most, left < most ? left : most);
        }
        wanted -= all;
    }
    return make_int3(0, 0, 0);
}

#define MOST_ROWS 32

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) grouped(const Grouped g) {
#if FP4
    extern __shared__ __align__(1024) u8 shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles = g.outputs / TILE;
    wait_for_previous();
    int3 found = find(g, blockIdx.x / tiles, MOST_ROWS);
    int rows = found.z, output = blockIdx.x % tiles * TILE;
    if (!rows) return;
    u64 mine = (u64)found.x * g.outputs + output + warp / 4 * 64;
    Work work = {g.x, g.xs, g.source ? g.source + found.y : 0, (u64)found.y, 1, rows, g.channels, 0, g.channels / UNIT,
                 g.w + mine * (g.channels / 2) + warp % 4 * 512 + lane * 8,
                 g.ws + mine * (g.channels / 32) + warp % 4 * 128 + lane / 4 * 8};
    Ring ring;
    fill(work, ring);
    let_next_start();
    if (rows <= 8) product<8>(work, ring, shared, 0);
    else if (rows <= 16) product<16>(work, ring, shared, 0);
    else product<32>(work, ring, shared, 0);
    __syncthreads();
    for (int i = threadIdx.x; i < rows * (TILE / 2); i += THREADS) {
        int row = i / (TILE / 2), column = i % (TILE / 2) * 2;
        float2 total = *(const float2*)(shared + (row * LINE + column) * 4);
        store_pair(g.y + (u64)(found.y + row) * g.outputs + output + column, total.x, total.y);
    }
#endif
}
