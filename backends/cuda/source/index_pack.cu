// Index queries: the last 2 * PAIRS channels of each head turned by the row's position, then quantised in groups of 32 to
// E2M1 codes with a power-of-two scale. The reference's bits; docs/numerics.md, section 8.
//
// A thread has eight neighbouring channels of each half of EACH neighbouring heads of a row, so that a warp turns all of
// its channels or none, and one read of position and angles serves all; a head is read while the one before is worked on.
// It works on two channels at once: scaled by a power of two a bf16 number is exact, and adding 64, 128 or 256 in the same
// instruction rounds it to the step of E2M1 at its magnitude, half to even, with the code in the last bits. Records are
// gathered in shared memory, by warps alone, and written in whole lines.
//
// Defines: WIDTH channels of a head (128, 256 or 512), HEADS of a row, PAIRS of channels that are turned (multiple of 4),
// MOST heads of a thread, one where HEADS is no multiple of it.
// PACK_EMULATED replaces the device layer for tests without a GPU (tests/support/index_pack_emulated.cpp).

#ifndef PACK_EMULATED
#define DEVICE static __device__ __forceinline__

DEVICE int thread_index() { return threadIdx.x; }
DEVICE unsigned block_index() { return blockIdx.x; }
DEVICE void warp_sync() { __syncwarp(); }
DEVICE unsigned shuffle(unsigned value, int lane) { return __shfl_sync(~0u, value, lane); }

// Of two unsigned numbers of 16 bits.
DEVICE unsigned larger2(unsigned a, unsigned b) {
    unsigned most;
    asm("max.u16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}
// a * b + c of two bf16 numbers, rounded once, to nearest, half to even; subnormal numbers are kept.
DEVICE unsigned times_plus2(unsigned a, unsigned b, unsigned c) {
    unsigned sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
DEVICE unsigned lowest_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}
// Two fp32 numbers as bf16, the first in the low half.
DEVICE unsigned rounded2(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// Rounded each, never contracted.
DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float value) { return __float_as_uint(value); }
#endif

typedef unsigned long long u64;

#ifndef MOST
#define MOST 4
#endif
constexpr int THREADS = 256;
constexpr int PER_LINE = WIDTH / 16;  // threads of a head
constexpr int EACH = HEADS % MOST == 0 ? MOST : 1;  // heads of a thread
constexpr int WARP_LINES = 32 / PER_LINE * EACH, LINES = THREADS / 32 * WARP_LINES;
constexpr int CODES = WIDTH / 2, RECORD = CODES + WIDTH / 32;
constexpr int FIRST_TURNED = WIDTH - 2 * PAIRS;
constexpr unsigned MAGNITUDES = 0x7FFF7FFF;
constexpr unsigned LEAST = 0x01C00000;  // fp32 6 * 2^-126, the least that a group counts as

static_assert(WARP_LINES * RECORD % 16 == 0, "a warp's records are whole lines");

struct Arguments {
    const unsigned short* q;  // [lines, WIDTH]
    const int* positions;     // [lines / HEADS]
    const float* table;       // [.., PAIRS, 2]: cosine and sine
    unsigned char* out;       // [lines, RECORD]
    long long lines;
};

// a where the mask is 0, b where it is 1.
DEVICE unsigned mixed(unsigned a, unsigned b, unsigned mask) { return (a & ~mask) | (b & mask); }

struct Words {
    unsigned word[4];
};

// Sixteen bytes; of tensors that are not aligned, element by element.
template <bool ALIGNED>
DEVICE Words load(const void* from, int size) {
    Words w;
    if (ALIGNED) {
        const uint4 v = *(const uint4*)from;
        w.word[0] = v.x, w.word[1] = v.y, w.word[2] = v.z, w.word[3] = v.w;
        return w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned short* at = (const unsigned short*)from + 2 * i;
        w.word[i] = size == 2 ? at[0] | (unsigned)at[1] << 16 : *(const unsigned*)at;
    }
    return w;
}

// Cosine and sine of the four pairs of eight channels.
struct Angles {
    Words word[2];
};

template <bool ALIGNED>
DEVICE Angles load_angles(const float* from) {
    return Angles{{load<ALIGNED>(from, 4), load<ALIGNED>(from + 4, 4)}};
}

DEVICE void turn(Words& w, const Angles& angles) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        unsigned& pair = w.word[i];
        const float even = as_float(pair << 16), odd = as_float(pair & 0xFFFF0000u);
        const Words& angle = angles.word[i / 2];
        const float cosine = as_float(angle.word[i % 2 * 2]), sine = as_float(angle.word[i % 2 * 2 + 1]);
        pair = rounded2(plus(times(even, cosine), -times(odd, sine)), plus(times(even, sine), times(odd, cosine)));
    }
}

DEVICE unsigned magnitudes(const Words& w) {
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) most = larger2(most, w.word[i] & MAGNITUDES);
    return larger2(most, most >> 16) & 0xFFFFu;
}

// Codes of eight channels, four bits each, and the scale's byte. `most`: bits of the group's largest magnitude, NaN above
// infinity. Of a group that is not finite the scale is NaN and every code 0.
DEVICE unsigned quantised(const Words& words, unsigned most, unsigned& scale) {
    const unsigned wide = most << 16;
    const unsigned below = (as_bits(times(as_float(wide > LEAST ? wide : LEAST), 1.0f / 6.0f)) - 1) >> 23;
    const bool finite = below < 254;
    scale = finite ? below + 1 : 255;
    const unsigned inverse = ((253 - below) << 7) * 0x10001u, unit = ((below + 1) << 7) * 0x10001u;  // 1 / scale, and scale
    unsigned nibbles[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned w = words.word[i];
        // 0 below 2 scales, 0x80 below 4, 0x100 above. Added to 64 this is a number whose last place is a half, one or two.
        const unsigned binade = larger2(w & 0x7F807F80u, unit) - unit;
        const unsigned sum = times_plus2(w & MAGNITUDES, inverse, binade + 0x42804280u);
        const unsigned code = mixed(sum - binade + (binade >> 6), w >> 12, 0x00080008u);
        nibbles[i] = mixed(code, code >> 12, 0xF0u);
    }
    const unsigned all = lowest_bytes(nibbles[0], nibbles[1], nibbles[2], nibbles[3]);
    return finite ? all : 0;
}

struct Halves {
    Words half[2];
};

template <bool ALIGNED>
DEVICE Halves load_head(const unsigned short* from) {
    return Halves{{load<ALIGNED>(from, 2), load<ALIGNED>(from + WIDTH / 2, 2)}};
}

template <bool ALIGNED>
DEVICE void pack_block(const Arguments& a, unsigned char* memory) {
    const int lane = thread_index() & 31, warp = thread_index() >> 5, sub = lane % PER_LINE;
    const int local = lane / PER_LINE * EACH;  // the first of the thread's lines
    const long long first = ((long long)block_index() * (THREADS / 32) + warp) * WARP_LINES, line = first + local;
    const bool there = line < a.lines;  // and then all its lines: a row's heads are a multiple of them
    unsigned char* staged = memory + warp * WARP_LINES * RECORD;
    const unsigned short* from = a.q + line * WIDTH + sub * 8;
    Halves next = {};
    Angles angles[2] = {};
    if (there) {
        const long long position = a.positions[line / HEADS];
        next = load_head<ALIGNED>(from);
        const float* at = a.table + position * (2 * PAIRS) - FIRST_TURNED + sub * 8;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (sub * 8 + h * (WIDTH / 2) >= FIRST_TURNED) angles[h] = load_angles<ALIGNED>(at + h * (WIDTH / 2));
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        Halves head = next;
        if (there && n + 1 < EACH) next = load_head<ALIGNED>(from + (n + 1) * WIDTH);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (sub * 8 + h * (WIDTH / 2) >= FIRST_TURNED) turn(head.half[h], angles[h]);
        // Four threads have a group of each half: both maxima in one word.
        unsigned most = magnitudes(head.half[0]) | magnitudes(head.half[1]) << 16;
        most = larger2(most, shuffle(most, lane ^ 1));
        most = larger2(most, shuffle(most, lane ^ 2));
        unsigned char* record = staged + (local + n) * RECORD;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            unsigned scale;
            *(unsigned*)(record + h * (CODES / 2) + sub * 4) = quantised(head.half[h], most >> (16 * h) & 0xFFFFu, scale);
            if (sub % 4 == 0) record[CODES + h * (WIDTH / 64) + sub / 4] = scale;
        }
    }
    warp_sync();
    if (first >= a.lines) return;
    const int count = a.lines - first < WARP_LINES ? (int)(a.lines - first) : WARP_LINES, bytes = count * RECORD;
    unsigned char* to = a.out + first * RECORD;
    const int whole = ALIGNED ? bytes / 16 * 16 : 0;
#pragma unroll
    for (int at = lane * 16; at < WARP_LINES * RECORD; at += 512)
        if (at < whole) *(uint4*)(to + at) = *(const uint4*)(staged + at);
#pragma unroll 1
    for (int i = whole + lane; i < bytes; i += 32) to[i] = staged[i];
}

DEVICE void pack_lines(const Arguments& a, unsigned char* staged) {
    if ((((u64)a.q | (u64)a.table | (u64)a.out) & 15) == 0) pack_block<true>(a, staged);
    else pack_block<false>(a, staged);
}

#ifndef PACK_EMULATED
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    index_query_pack(const unsigned short* q, const int* positions, const float* table, unsigned char* out, long long lines) {
    __shared__ __align__(16) unsigned char staged[LINES * RECORD];
    pack_lines(Arguments{q, positions, table, out, lines}, staged);
}
#endif
