// FP8 and FP4 weights times 65 to 256 FP8 rows, or an expert's 17 to 192, for SM90. See backends/cuda/linear_wide_sm90.py.
//
// Outputs stand on the side of a product that takes 64 of them (wgmma's M), up to ROWS rows of x on the other (N). Blocks
// stay: each takes a tile of TILE outputs by ROWS rows after the other. A warpgroup has 64 of the outputs and runs
// through their channels: its threads read codes from shared memory, turn them into bf16 in registers, and multiply.
// While one warpgroup unpacks, others multiply; they wait for one another only where parts of the channels are added.
// Threads of a warpgroup of its own bring the codes and the rows, an image of shared memory that a kernel before made:
// 64 channels of the tile in a stage, up to STAGES ahead of the slowest warpgroup and across tiles.
//
// Sums are those of the other ways (linear_kernels.py), bit for bit: sixteen channels in a step, the channels of each
// 64 dealt, steps in order, from 0 in each part of K, parts added in order. A part is a block of its own; the blocks of
// all parts of a tile are a cluster and add through shared memory.
//
// Weights lie in blocks of 64 outputs by 64 channels and are clean (portable_weights.py). Codes and scales of rows can
// be anything.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

#ifndef FP4
#define FP4 0
#endif
#ifndef ROWS
#define ROWS 128  // of a tile; of an expert's, the most
#endif
#ifndef WARPGROUPS
#define WARPGROUPS 4
#endif
#ifndef STAGES
#define STAGES 5
#endif
#define WORKERS (128 * WARPGROUPS)
#define THREADS (WORKERS + 128)  // a warpgroup more, which brings rows and codes
#define TILE (64 * WARPGROUPS)
#define LINE (TILE + 4)  // floats of a row of sums in shared memory
#define OFF_CODES (ROWS * 128)  // in a stage, behind the rows
#define BLOCK_BYTES (FP4 ? 2048 : 4096)  // codes of 64 outputs by 64 channels
#define STAGE_BYTES (OFF_CODES + WARPGROUPS * BLOCK_BYTES)
#define OFF_SUMS (STAGES * STAGE_BYTES)
// FP4's scales have a ring of their own, 256 channels in a place; FP8's come through registers, as many blocks ahead.
#define SCALE_PLACES 4
#define SCALE_BYTES (FP4 ? WARPGROUPS * 512 : 0)
#define OFF_SCALES (OFF_SUMS + ROWS * LINE * 4)
#define OFF_BARRIERS (OFF_SCALES + SCALE_PLACES * SCALE_BYTES)
#define OFF_SCALE_BARRIERS (OFF_BARRIERS + 16 * STAGES)
#define BARRIER_BYTES (16 * (STAGES + SCALE_PLACES))
#define MOST_PARTS 8
#define FULL 0xffffffffu

struct Linear {
    const u8* x;   // the image: [groups, channels / 64, lines, 128 bytes]
    const u8* w;   // [groups, outputs / 64, channels / 64, 64, 64]
    const u8* ws;  // [groups, outputs / 32, channels / 32]
    u16* y;        // [rows, groups, outputs]
    int rows, lines, groups, outputs, channels, part;
};

struct Grouped {
    const u8* x;         // the image: [channels / 64, lines, 128 bytes]
    const u8* w;         // [experts, outputs / 64, channels / 64, 64, 32 bytes]
    const u8* ws;        // [experts, outputs / 64, channels / 256, 64, 8]
    const int* offsets;  // [experts + 1]
    u16* y;              // [rows, outputs]
    int lines, experts, outputs, channels;
};

// What a block multiplies: a tile; `rows` is 0 behind the last.
struct Work {
    const u8* x;  // block 0 of the image, first row of the tile
    int rows;
    const u8* w;   // codes of its first 64 outputs
    const u8* ws;  // their scales; of FP8, this thread's
    u16* y;  // first row, this warpgroup's first output
};

#ifndef WIDE_EMULATED
#define DEVICE __device__ __forceinline__
#define METHOD __device__ __forceinline__
DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE int block_count() { return gridDim.x; }
DEVICE int part_index() { return blockIdx.z; }
DEVICE int part_count() { return gridDim.z; }
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE u32 multiply_bf16x2(u32 a, u32 b) {
    u32 c;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
DEVICE u32 bytes_of(u32 a, u32 b, u32 which) {
    u32 c;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(which));
    return c;
}
DEVICE u32 round_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE u32 vote(bool value) { return __ballot_sync(FULL, value); }
DEVICE u32 shuffle(u32 value, int lane) { return __shfl_sync(FULL, value, lane); }
DEVICE u32 shuffle_up(u32 value, int by) { return __shfl_up_sync(FULL, value, by); }
// A block of five warpgroups starts with 96 registers a thread; 32 + 4 * 112 is what they have together. More would not be
// there: the instruction would wait for ever.
DEVICE void few_registers() {
    if (WARPGROUPS == 4) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
}
DEVICE void many_registers() {
    if (WARPGROUPS == 4) asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
}
// The same number, which the compiler does not know.
DEVICE int again(int x) {
    asm volatile("" : "+r"(x));
    return x;
}
DEVICE void block_sync() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }
DEVICE void warpgroup_sync(int warpgroup) {
    asm volatile("barrier.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// What comes next in the stream may start; what came before has ended, and can be read.
DEVICE void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

DEVICE void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Waits until the phase of this parity is over; the one before the first counts as over.
DEVICE void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra READY;\n bra AGAIN;\nREADY:\n}" ::"r"(bar), "r"(parity) : "memory");
}
// Arrives; the phase ends when so many bytes have come besides.
DEVICE void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEVICE void bulk_load(u32 to, const u8* from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar) : "memory");
}
DEVICE void load16(u32* r, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
DEVICE void load8(u32* r, u32 address) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
}
// Volatile: it stays where it is written, ahead of what waits for earlier ones.
DEVICE void keep1(u32* r, const u8* p) {
    asm volatile("ld.global.nc.L1::evict_last.u8 %0, [%1];" : "=r"(r[0]) : "l"(p));
}
DEVICE float2 load_part(u32 address, u32 part) {
    u32 there;
    float2 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(part));
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(there) : "memory");
    return r;
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define WGMMA(n, sums, operands) \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" n \
    "k16.f32.bf16.bf16 {" sums "}, " operands ", p, 1, 1, 0;\n}"
#define SUMS32                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS48 SUMS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS64 SUMS48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_finish() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Operands are complete here: made later, between products that run, they would make the compiler wait for each.
DEVICE void hold(u32 (&a)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i++) asm volatile("" : "+r"(a[i])::"memory");
}
// d[64 outputs x N rows] += a[64 x 16] . b[N x 16]^T
template <int N>
DEVICE void multiply(float (&d)[N / 2], const u32* a, u64 b) {
    if constexpr (N == 32)
        asm volatile(WGMMA("32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15",
                           "{%16, %17, %18, %19}, %20")
                     : F16(d, 0)
                     : OPERANDS);
    else if constexpr (N == 64)
        asm volatile(WGMMA("64", SUMS32, "{%32, %33, %34, %35}, %36") : F16(d, 0), F16(d, 16) : OPERANDS);
    else if constexpr (N == 96)
        asm volatile(WGMMA("96", SUMS48, "{%48, %49, %50, %51}, %52")
                     : F16(d, 0), F16(d, 16), F16(d, 32)
                     : OPERANDS);
    else
        asm volatile(WGMMA("128", SUMS64, "{%64, %65, %66, %67}, %68")
                     : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                     : OPERANDS);
}
#endif

// Rows of 128 bytes, swizzled; eight of them, and then the next eight.
#define DESCRIPTOR(address) ((u64)(((address) & 0x3ffff) >> 4) | ((u64)1 << 16) | ((u64)64 << 32) | ((u64)1 << 62))

// ---- codes to bf16 --------------------------------------------------------------------------------------------------

// Codes of channels 0 and 2, 1 and 3 of four, as bf16 that are 2^-120 too small.
DEVICE void spread_e4m3(u32 word, u32& even, u32& odd) {
    even = ((word << 8) & 0x80008000) | ((word << 4) & 0x07f007f0);
    odd = (word & 0x80008000) | ((word >> 4) & 0x07f007f0);
}
// Of a row of x: any code, any scale. A NaN in a word shows in its even pair, which is as good in a sum.
DEVICE void row_e4m3(u32 word, u32 factor, u32& even, u32& odd) {
    spread_e4m3(word, even, odd);
    even = multiply_bf16x2(multiply_bf16x2(even, 0x7b807b80), factor);
    odd = multiply_bf16x2(multiply_bf16x2(odd, 0x7b807b80), factor);
    if ((((word & 0x7f7f7f7f) + 0x01010101) & 0x80808080) != 0) even = 0x7fff7fff;
}
DEVICE u32 row_factor(u32 b) {
    u32 one = b == 0 ? 0x0040 : b == 255 ? 0x7fc0 : b << 7;
    return one * 0x00010001;
}
// Channels 0 and 4, 1 and 5, 2 and 6, 3 and 7 of eight. A product puts sign, exponent and fraction in their places.
DEVICE void weights_e2m1(u32 word, u32 factor, u32* pair) {
    u32 high = word >> 8;
    pair[0] = multiply_bf16x2(((word & 0x000f000f) * 0x1040) & 0x81c081c0, factor);
    pair[1] = multiply_bf16x2(((word & 0x00f000f0) * 0x0104) & 0x81c081c0, factor);
    pair[2] = multiply_bf16x2(((high & 0x000f000f) * 0x1040) & 0x81c081c0, factor);
    pair[3] = multiply_bf16x2(((high & 0x00f000f0) * 0x0104) & 0x81c081c0, factor);
}

// ---- the product ----------------------------------------------------------------------------------------------------

// Which place of a ring is next, for who fills it and for who reads it.
struct Turn {
    int place, parity;
};
template <int PLACES>
DEVICE void next(Turn& turn) {
    if (++turn.place == PLACES) turn.place = 0, turn.parity ^= 1;
}
struct Turns {
    Turn stage, scale;
};

// FP4: scales of 256 channels of this thread's two outputs, which are free afterwards. FP8: a scale for each of the next
// 64 channels.
struct Scales {
    u32 own[4];
    const u8* at;
};
DEVICE void load_scales(Scales& scales, u32 base, Turn& turn) {
    u32 full = base + OFF_SCALE_BARRIERS + 8 * turn.place;
    int lane = thread_index() % 32, warp = thread_index() / 32;
    u32 at = base + OFF_SCALES + turn.place * SCALE_BYTES + warp * 128 + lane / 4 * 8;
    barrier_wait(full, turn.parity);
    load8(scales.own, at);
    load8(scales.own + 2, at + 64);
    warp_sync();
    if (lane == 0) barrier_arrive(full + 8 * SCALE_PLACES);
    next<SCALE_PLACES>(turn);
}
template <int J = 0>
DEVICE void fill(const Work& g, Scales& scales, int blocks) {
    if constexpr (J == 0) scales.at = g.ws;
    if constexpr (!FP4 && J < 4) {
        if (J < blocks) keep1(scales.own + J, scales.at + J * 2);
        fill<J + 1>(g, scales, blocks);
    }
}

// Number J of four blocks of 64 channels: codes of the next stage to bf16, on to the matrix unit with the rows beside
// them; then the stage is free.
template <int N, int J>
DEVICE void block(Scales& scales, u32 base, int left, Turns& turns, float (&d)[N / 2]) {
    Turn& turn = turns.stage;
    u32 stage = base + turn.place * STAGE_BYTES, full = base + OFF_BARRIERS + 8 * turn.place, a[16];
    u32 lane = thread_index() % 32, codes = stage + OFF_CODES + thread_index() / 32 * (BLOCK_BYTES / 4);
    if (FP4 && J == 0) load_scales(scales, base, turns.scale);
    barrier_wait(full, turn.parity);
    if constexpr (FP4) {
        u32 code[4], pair[4], which = 0x4040 + (lane % 4 >> 1) * 0x0101 + J % 2 * 0x0202;
        u32 upper = bytes_of(scales.own[J / 2], 0, which) * 128 + 126 * 0x00800080;
        u32 lower = bytes_of(scales.own[2 + J / 2], 0, which) * 128 + 126 * 0x00800080;
        load8(code, codes + lane * 8);
        load8(code + 2, codes + 256 + lane * 8);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            weights_e2m1(code[m], upper, pair);
            a[8 * m] = pair[0], a[8 * m + 2] = pair[1], a[8 * m + 4] = pair[2], a[8 * m + 6] = pair[3];
            weights_e2m1(code[2 + m], lower, pair);
            a[8 * m + 1] = pair[0], a[8 * m + 3] = pair[1], a[8 * m + 5] = pair[2], a[8 * m + 7] = pair[3];
        }
    } else {
        u32 code[8], factor = (scales.own[J] + 120) * 0x00800080;
        load16(code, codes + lane * 16);
        load16(code + 4, codes + 512 + lane * 16);
        if (left > 4) keep1(scales.own + J, scales.at + (4 + J) * 2);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            u32 even, odd;
            spread_e4m3(code[s], even, odd);
            a[4 * s] = multiply_bf16x2(even, factor), a[4 * s + 2] = multiply_bf16x2(odd, factor);
            spread_e4m3(code[4 + s], even, odd);
            a[4 * s + 1] = multiply_bf16x2(even, factor), a[4 * s + 3] = multiply_bf16x2(odd, factor);
        }
    }
    u64 b = DESCRIPTOR(stage);
    hold(a);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; s++) multiply<N>(d, a + 4 * s, b + s * 2);
    wgmma_finish();
    if (lane == 0) barrier_arrive(full + 8 * STAGES);
    next<STAGES>(turn);
}
template <int N, int J>
DEVICE void some(Scales& scales, u32 base, int left, Turns& turns, float (&d)[N / 2]) {
    if constexpr (J < 4) {
        if (left > 0) {
            block<N, J>(scales, base, left, turns, d);
            some<N, J + 1>(scales, base, left - 1, turns, d);
        }
    }
}
// Sums of this warpgroup's 64 outputs over all blocks of channels.
template <int N>
DEVICE void product(Scales& scales, u32 base, int blocks, Turns& turns, float (&d)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
    for (int left = blocks; left > 0; left -= 4, scales.at += 8) some<N, 0>(scales, base, left, turns, d);
}

// What the threads behind the workers do for a tile: the first of each warp brings the codes of one warpgroup, 64 channels
// a stage and `blocks` of them, since to issue copies takes it about as long as a warpgroup needs for the products; that
// of the first warp brings rows besides, `bytes` a stage, which lie `stride` bytes apart. Codes do not wait for what comes
// before in the stream, rows do: of the first tile, codes come ahead of that wait.
struct Bring {
    u32 base, bytes;
    u64 stride, channels;
    Turns turns;

    METHOD void codes(const u8* w, u32 mine, Turn turn) const {
        u32 stage = base + turn.place * STAGE_BYTES, full = base + OFF_BARRIERS + 8 * turn.place;
        barrier_wait(full + 8 * STAGES, turn.parity ^ 1);
        barrier_expect(full, BLOCK_BYTES + (mine == 0 ? bytes : 0));
        bulk_load(stage + OFF_CODES + mine * BLOCK_BYTES, w, BLOCK_BYTES, full);
    }
    METHOD void scales(const u8* ws, u32 mine) {
        Turn& turn = turns.scale;
        u32 full = base + OFF_SCALE_BARRIERS + 8 * turn.place;
        barrier_wait(full + 8 * SCALE_PLACES, turn.parity ^ 1);
        barrier_expect(full, 512);
        bulk_load(base + OFF_SCALES + turn.place * SCALE_BYTES + mine * 512, ws, 512, full);
        next<SCALE_PLACES>(turn);
    }
    METHOD void tile(const Work& g, int blocks, bool first) {
        u32 mine = (thread_index() - WORKERS) / 32;
        const u8 *x = g.x, *w = g.w + mine * channels * (BLOCK_BYTES / 64), *ws = g.ws + mine * channels * 2;
        int ahead = 0;
        if (!FP4 && first) {
            Turn turn = turns.stage;
            for (; ahead < blocks && ahead < STAGES; ahead++, w += BLOCK_BYTES, next<STAGES>(turn)) codes(w, mine, turn);
            wait_for_previous();
        }
        for (int block = 0; block < blocks; block++, x += stride, next<STAGES>(turns.stage)) {
            if (FP4 && block % 4 == 0) scales(ws, mine), ws += 512;
            if (block >= ahead) codes(w, mine, turns.stage), w += BLOCK_BYTES;
            if (mine == 0)
                bulk_load(base + turns.stage.place * STAGE_BYTES, x, bytes, base + OFF_BARRIERS + 8 * turns.stage.place);
        }
    }
};
DEVICE bool brings() { return thread_index() % 32 == 0 && thread_index() < WORKERS + 32 * WARPGROUPS; }

DEVICE void start(u32 base) {
    if (thread_index() == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(base + OFF_BARRIERS + 8 * i, WARPGROUPS);
            barrier_init(base + OFF_BARRIERS + 8 * (STAGES + i), 4 * WARPGROUPS);
        }
        for (int i = 0; FP4 && i < SCALE_PLACES; i++) {
            barrier_init(base + OFF_SCALE_BARRIERS + 8 * i, WARPGROUPS);
            barrier_init(base + OFF_SCALE_BARRIERS + 8 * (SCALE_PLACES + i), 4 * WARPGROUPS);
        }
        fence_async();
    }
    block_sync();
}

// ---- results --------------------------------------------------------------------------------------------------------

DEVICE void store_pair(u16* at, float low, float high) {
    u32 pair = round_pair(low, high);
    if (((u64)at & 3) == 0) {
        *(u32*)at = pair;
    } else {
        at[0] = (u16)pair;
        at[1] = (u16)(pair >> 16);
    }
}
// Sums of this warpgroup, into shared memory: [N rows][LINE floats].
template <int N>
DEVICE void put_sums(u8* shared, const float (&d)[N / 2]) {
    float* sums = (float*)(shared + OFF_SUMS);
    int output = thread_index() / 32 * 16 + thread_index() % 32 / 4, row = thread_index() % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++, row += 8) {
        sums[row * LINE + output] = d[4 * j];
        sums[(row + 1) * LINE + output] = d[4 * j + 1];
        sums[row * LINE + output + 8] = d[4 * j + 2];
        sums[(row + 1) * LINE + output + 8] = d[4 * j + 3];
    }
}
// A warpgroup's 64 outputs, which nobody else has a part of. y: of its first output; a row has `width`.
template <int N>
DEVICE void store(u8* shared, const float (&d)[N / 2], u16* y, int rows, u64 width) {
    int warpgroup = thread_index() / 128;
    const float* sums = (const float*)(shared + OFF_SUMS) + warpgroup * 64;
    warpgroup_sync(warpgroup);  // those of the tile before are read
    put_sums<N>(shared, d);
    warpgroup_sync(warpgroup);
    for (int i = thread_index() % 128; i < rows * 32; i += 128) {
        int row = i / 32, column = i % 32 * 2;
        float2 total = *(const float2*)(sums + row * LINE + column);
        store_pair(y + row * width + column, total.x, total.y);
    }
}
// The sum of all parts. y: of the block's first output.
template <int N>
DEVICE void add_parts(u8* shared, u32 base, const float (&d)[N / 2], u16* y, int rows, u64 width) {
    int part = part_index(), parts = part_count();
    put_sums<N>(shared, d);
    cluster_sync();
    for (int i = part * WORKERS + thread_index(); i < rows * (TILE / 2); i += parts * WORKERS) {
        int row = i / (TILE / 2), column = i % (TILE / 2) * 2;
        u32 at = base + OFF_SUMS + (row * LINE + column) * 4;
        float2 total = {0.0f, 0.0f}, term[MOST_PARTS];
#pragma unroll
        for (int p = 0; p < MOST_PARTS; p++)
            if (p < parts) term[p] = load_part(at, p);
#pragma unroll
        for (int p = 0; p < MOST_PARTS; p++)
            if (p < parts) total.x += term[p].x, total.y += term[p].y;
        store_pair(y + row * width + column, total.x, total.y);
    }
    cluster_sync();  // nobody goes on while its sums are read
}

// ---- one weight, or some groups -------------------------------------------------------------------------------------

// Tile number `wanted`: tiles of rows next to each other, which share weights.
DEVICE Work locate(const Linear& g, int wanted) {
    int down = g.lines / ROWS, across = g.outputs / TILE;
    if (wanted >= down * across * g.groups) return Work{};
    int row = wanted % down * ROWS, output = wanted / down % across * TILE, group = wanted / down / across;
    int begin = part_index() * g.part, lane = thread_index() % 32, warp = thread_index() / 32;
    u64 first = (u64)group * g.outputs + output, blocks = g.channels / 64;
    int left = g.rows - row;
    return Work{
        g.x + ((group * blocks + begin / 64) * g.lines + row) * 128, left < ROWS ? left : ROWS,
        g.w + first * g.channels + begin * 64,
        g.ws + (first / 32 + warp / 2) * (g.channels / 32) + begin / 32 + lane % 4 / 2,
        g.y + ((u64)row * g.groups + group) * g.outputs + output,
    };
}

DEVICE void multiply_rows(const Linear& g, u8* shared) {
    u32 base = shared_address(shared);
    int begin = part_index() * g.part, end = begin + g.part < g.channels ? begin + g.part : g.channels;
    int blocks = (end - begin) / 64, parts = part_count();
    int tile = block_index();
    Work work = locate(g, tile);
    Turns turns = {};
    let_next_start();
    start(base);
    if (thread_index() >= WORKERS) {
        few_registers();
        Bring bring = {base, ROWS * 128, (u64)g.lines * 128, (u64)g.channels, turns};
        for (bool first = true; work.rows; work = locate(g, tile += block_count()), first = false) {
            if (brings()) bring.tile(work, blocks, first);
            vote(true);  // the warp is one again, as a cluster's barrier wants it
            if (parts > 1) cluster_sync(), cluster_sync();
        }
    } else {
        many_registers();
        Scales scales;
        if (work.rows) fill(work, scales, blocks);
        wait_for_previous();
        while (work.rows) {
            float d[ROWS / 2];
            product<ROWS>(scales, base, blocks, turns, d);
            // Where the tile lies is found again: kept meanwhile, it would take registers that the product needs.
            Work done = locate(g, again(tile));
            tile += block_count();
            work = locate(g, tile);
            if (work.rows) fill(work, scales, blocks);
            u64 width = (u64)g.groups * g.outputs;
            if (parts > 1) add_parts<ROWS>(shared, base, d, done.y, done.rows, width);
            else store<ROWS>(shared, d, done.y + thread_index() / 128 * 64, done.rows, width);
        }
    }
}

// ---- experts --------------------------------------------------------------------------------------------------------

// Tile number `wanted`; every warp of a block asks at the same time.
DEVICE Work locate(const Grouped& g, int wanted) {
    int lane = thread_index() % 32, warp = thread_index() / 32, across = g.outputs / TILE;
    int output = wanted % across * TILE, tile = wanted / across;
    for (int from = 0; from < g.experts; from += 32) {
        int e = from + lane, begin = 0, count = 0;
        if (e < g.experts) begin = g.offsets[e], count = g.offsets[e + 1] - begin;
        int tiles = (count + ROWS - 1) / ROWS, before = tiles;
#pragma unroll
        for (int far = 1; far < 32; far *= 2) {
            int other = shuffle_up(before, far);
            if (lane >= far) before += other;
        }
        int all = shuffle(before, 31);
        if (tile < all) {
            u32 here = vote(before > tile);
            int owner = __ffs(here) - 1;
            int within = (tile - (int)shuffle(before - tiles, owner)) * ROWS;
            int left = (int)shuffle(count, owner) - within;
            u64 row = (u64)(int)shuffle(begin, owner) + within;
            u64 first = (u64)(from + owner) * g.outputs + output;
            return Work{
                g.x + row * 128, left < ROWS ? left : ROWS,
                g.w + first * (g.channels / 2),
                g.ws + first * (g.channels / 32),
                g.y + row * g.outputs + output + warp / 4 * 64,
            };
        }
        tile -= all;
    }
    return Work{};
}

// A tile of up to N rows; then work is the next one.
template <int N>
DEVICE void expert_tile(const Grouped& g, Work& work, int& tile, u8* shared, u32 base, Turns& turns) {
    float d[N / 2];
    Scales scales;
    scales.at = nullptr;
    product<N>(scales, base, g.channels / 64, turns, d);
    Work done = locate(g, again(tile));
    tile += block_count();
    work = locate(g, tile);
    store<N>(shared, d, done.y, done.rows, g.outputs);
}

DEVICE void multiply_experts(const Grouped& g, u8* shared) {
    u32 base = shared_address(shared);
    int tile = block_index();
    Turns turns = {};
    start(base);
    wait_for_previous();
    let_next_start();
    Work work = locate(g, tile);
    if (thread_index() >= WORKERS) {
        few_registers();
        Bring bring = {base, 0, (u64)g.lines * 128, (u64)g.channels, turns};
        for (; work.rows; work = locate(g, tile += block_count())) {
            bring.bytes = (work.rows + 31) / 32 * 4096;
            if (brings()) bring.tile(work, g.channels / 64, false);
            vote(true);
        }
    } else {
        many_registers();
        while (work.rows) {
            if (work.rows <= 32) expert_tile<32>(g, work, tile, shared, base, turns);
            else if (ROWS == 64 || work.rows <= 64) expert_tile<64>(g, work, tile, shared, base, turns);
            else if (ROWS == 96 || work.rows <= 96) expert_tile<(ROWS > 64 ? 96 : 64)>(g, work, tile, shared, base, turns);
            else expert_tile<(ROWS > 96 ? 128 : 64)>(g, work, tile, shared, base, turns);
        }
    }
}

// ---- rows of x ------------------------------------------------------------------------------------------------------

DEVICE uint2 load_pair(const u8* p, bool whole) {
    if (whole) return *(const uint2*)p;
    uint2 r;
    r.x = p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
    r.y = p[4] | (u32)p[5] << 8 | (u32)p[6] << 16 | (u32)p[7] << 24;
    return r;
}
// Half of 64 channels of a row, those of two of the four steps, as bf16, dealt: four chunks of 16 bytes into its line.
// x: at byte 8 * half of the 64. phase: of the swizzle, the row's number in its tile.
DEVICE void put_half(u8* line, const u8* x, const u8* xs, int half, int phase) {
    uint4 chunk[4];
    uint2 word[4];
    bool whole = ((u64)x & 7) == 0;
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
#pragma unroll
    for (int c = 0; c < 4; c++) *(uint4*)(line + (((half * 4 + c) ^ (phase & 7)) << 4)) = chunk[c];
}
DEVICE void clear_half(u8* line, int half) {
    for (int c = 0; c < 4; c++) *(uint4*)(line + ((half * 4 + c) << 4)) = uint4{};
}

// Thread i's half of the image [groups][channels / 64][lines][128 bytes] of rows [rows, groups, channels]; behind them
// zeros, whose chunks may come in any order.
DEVICE void image_half(
    const u8* x, const u8* xs, u8* to, int rows, int lines, int groups, int channels, long long i) {
    int blocks = channels / 64;
    if (i >= (long long)groups * blocks * lines * 2) return;
    int half = i & 1, row = (int)((i >> 1) % lines), block = (int)((i >> 1) / lines % blocks);
    int group = (int)((i >> 1) / lines / blocks);
    u8* line = to + (i >> 1) * 128;
    u64 from = (u64)row * groups + group;
    if (row < rows) put_half(line, x + from * channels + block * 64 + half * 8, xs + from * (channels / 32) + block * 2, half, row);
    else clear_half(line, half);
}
// The same of rows packed by expert, [channels / 64][lines][128 bytes]: the swizzle begins anew with every expert. Lines
// behind the last row are read, by tiles whose rows end before, and may hold anything.
DEVICE void packed_half(
    const u8* x, const u8* xs, const int* source, const int* offsets, u8* to, int rows, int lines, int experts,
    int channels, long long i) {
    if (i >= (long long)(channels / 64) * rows * 2) return;
    int half = i & 1, row = (int)((i >> 1) % rows), block = (int)((i >> 1) / rows);
    if (row >= offsets[experts]) return;  // nobody's, and its source anything
    int low = 0, high = experts;  // the last expert that begins at or before the row
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (offsets[middle] <= row) low = middle;
        else high = middle;
    }
    u64 from = source ? source[row] : row;
    put_half(to + ((u64)block * lines + row) * 128, x + from * channels + block * 64 + half * 8,
             xs + from * (channels / 32) + block * 2, half, row - offsets[low]);
}

#ifndef WIDE_EMULATED
#if FP4
extern "C" __global__ void __launch_bounds__(THREADS, 1) grouped(const Grouped g) {
    extern __shared__ __align__(1024) u8 shared[];
    multiply_experts(g, shared);
}
extern "C" __global__ void __launch_bounds__(128) packed_image(
    const u8* x, const u8* xs, const int* source, const int* offsets, u8* to, int rows, int lines, int experts,
    int channels) {
    let_next_start();
    wait_for_previous();
    packed_half(x, xs, source, offsets, to, rows, lines, experts, channels, (long long)blockIdx.x * 128 + threadIdx.x);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS, 1) linear(const Linear g) {
    extern __shared__ __align__(1024) u8 shared[];
    multiply_rows(g, shared);
}
extern "C" __global__ void __launch_bounds__(128) image(
    const u8* x, const u8* xs, u8* to, int rows, int lines, int groups, int channels) {
    let_next_start();
    wait_for_previous();
    image_half(x, xs, to, rows, lines, groups, channels, (long long)blockIdx.x * 128 + threadIdx.x);
}
#endif
#endif
