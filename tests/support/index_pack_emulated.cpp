// The packing of index queries on the CPU: `index_pack_emulated` runs a whole grid. Built by test_index_pack.py, for the
// widths of its defines.

#define PACK_EMULATED
#define larger2 larger_bf16x2  // the emulator's is of bf16 pairs
#include "cuda_emulator.h"
#undef larger2

static inline float as_float(unsigned bits) { return __uint_as_float(bits); }
static inline unsigned as_bits(float value) { return __float_as_uint(value); }
static inline unsigned larger2(unsigned a, unsigned b) {
    const unsigned low = (a & 0xFFFF) > (b & 0xFFFF) ? a : b, high = a >> 16 > b >> 16 ? a : b;
    return (high & 0xFFFF0000u) | (low & 0xFFFFu);
}
static inline unsigned rounded(float value) {
    const unsigned bits = as_bits(value);
    return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static inline unsigned rounded2(float low, float high) { return rounded(low) | rounded(high) << 16; }
static inline float part(unsigned pair, int half) { return as_float(half ? pair & 0xFFFF0000u : pair << 16); }
// Exact in fp64, but where the product is so far below the last place that all roundings are the same.
static inline float times_plus(unsigned a, unsigned b, unsigned c, int half) {
    return (float)((double)part(a, half) * part(b, half) + part(c, half));
}
static inline unsigned times_plus2(unsigned a, unsigned b, unsigned c) {
    return rounded2(times_plus(a, b, c, 0), times_plus(a, b, c, 1));
}
static inline unsigned lowest_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
    return (a & 0xFF) | (b & 0xFF) << 8 | (c & 0xFF) << 16 | (d & 0xFF) << 24;
}
static inline float times(float a, float b) { return a * b; }
static inline float plus(float a, float b) { return a + b; }

static inline void warp_sync() { vote(true); }

#include "index_pack.cu"

extern "C" void index_pack_emulated(const unsigned short* q, const int* positions, const float* table, unsigned char* out,
                                    long long lines, unsigned seed) {
    const Arguments a{q, positions, table, out, lines};
    emulator::body = [&a](emulator::Cta& cta) { pack_lines(a, (unsigned char*)cta.base()); };
    for (unsigned block = 0; block * (long long)LINES < lines; block++)
        emulator::run_cluster(block, 1, THREADS, LINES * RECORD, seed);
}
