// The wide FP8 and FP4 products on the CPU: whole launches, `linear_wide` and `grouped_wide`, with the images of their
// rows. Built by test_linear_wide_sm90.py, for the sizes of its defines.
//
// Products are those of wgmma: fragments by lane, rows of x through the descriptor and the swizzle of 128 bytes. A step's
// sixteen terms are added without a rounding, as no order is known. Bulk copies are done when they are issued.

#define WIDE_EMULATED
#define METHOD inline
#define block_index number_in_cluster  // here that of a grid of clusters
#include "cuda_emulator.h"  // ahead of all others: it says how they are built
#undef block_index

#include <map>

struct float2 {
    float x, y;
};
typedef unsigned long long U64;

static int first_block, blocks_of_grid, parts_of_grid;
static int block_index() { return first_block; }
static int block_count() { return blocks_of_grid; }
static int part_index() { return (int)number_in_cluster(); }
static int part_count() { return parts_of_grid; }

static unsigned shared_address(const void* p) { return (unsigned)((const char*)p - emulator::current->cta->base()); }
static char* shared_at(unsigned address) { return emulator::current->cta->base() + address; }
static float bf16(unsigned bits) { return __uint_as_float(bits << 16); }
static unsigned rounded(float value) {
    unsigned bits = __float_as_uint(value);
    return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
static unsigned round_pair(float low, float high) { return rounded(low) | rounded(high) << 16; }
static unsigned multiply_bf16x2(unsigned a, unsigned b) {
    return round_pair(bf16(a & 0xFFFF) * bf16(b & 0xFFFF), bf16(a >> 16) * bf16(b >> 16));
}
static unsigned bytes_of(unsigned a, unsigned b, unsigned which) {
    unsigned found = 0;
    for (int i = 0; i < 4; i++) {
        unsigned place = which >> 4 * i & 7;
        found |= ((place < 4 ? a >> 8 * place : b >> 8 * (place - 4)) & 0xFF) << 8 * i;
    }
    return found;
}
static int again(int x) { return x; }
static void few_registers() {}
static void many_registers() {}
static void let_next_start() {}
static void wait_for_previous() {}
static void block_sync() { cta_sync(); }

using Place = std::pair<const emulator::Cta*, unsigned>;
static std::map<Place, emulator::Barrier> named;
static void warpgroup_sync(int warpgroup) {
    emulator::wait(named[{emulator::current->cta, (unsigned)warpgroup}], 128);
}

// ---- mbarriers: arrivals that are still missing, bytes likewise, and the phase
struct Phase {
    int count, missing, bytes;
    unsigned phase;
};
static std::map<Place, Phase> phases;
static Phase& phase_of(unsigned bar) {
    auto found = phases.find({emulator::current->cta, bar});
    if (found == phases.end()) CUDA_ERROR("a barrier that nobody made");
    return found->second;
}
static void turn(Phase& p) {
    emulator::progress++;
    if (p.missing < 0) CUDA_ERROR("more arrivals than a phase has");
    if (!p.missing && !p.bytes) p.missing = p.count, p.phase++;
}
static void barrier_init(unsigned bar, unsigned count) {
    if (bar & 7) CUDA_ERROR("a misaligned barrier");
    phases[{emulator::current->cta, bar}] = Phase{(int)count, (int)count, 0, 0};
}
static void fence_async() {}
static void barrier_arrive(unsigned bar) {
    Phase& p = phase_of(bar);
    p.missing--;
    turn(p);
}
static void barrier_wait(unsigned bar, unsigned parity) {
    while ((phase_of(bar).phase & 1) == parity) emulator::yield();
}
static void barrier_expect(unsigned bar, unsigned bytes) {
    phase_of(bar).bytes += bytes;
    barrier_arrive(bar);
}
static void bulk_load(unsigned to, const unsigned char* from, unsigned bytes, unsigned bar) {
    if ((to & 127) || ((U64)from & 15) || (bytes & 15)) CUDA_ERROR("a misaligned bulk copy");
    memcpy(shared_at(to), from, bytes);
    Phase& p = phase_of(bar);
    p.bytes -= bytes;
    if (p.bytes < 0) CUDA_ERROR("more bytes than a phase expects");
    turn(p);
}
static void load16(unsigned* r, unsigned address) {
    if (address & 15) CUDA_ERROR("a misaligned load of 16 bytes");
    memcpy(r, shared_at(address), 16);
}
static void load8(unsigned* r, unsigned address) {
    if (address & 7) CUDA_ERROR("a misaligned load of 8 bytes");
    memcpy(r, shared_at(address), 8);
}
static void keep1(unsigned* r, const unsigned char* p) { *r = *p; }
static void warp_sync() { emulator::exchange(0); }
static float2 load_part(unsigned address, unsigned part) {
    float2 found;
    memcpy(&found, emulator::ctas[part]->base() + address, 8);
    return found;
}

// ---- wgmma
static void hold(unsigned (&)[16]) {}
static void wgmma_fence() {}
static void wgmma_finish() { emulator::exchange(0); }  // a warp has its sums when all of its lanes have
static float row_value(U64 descriptor, int row, int k) {
    if (descriptor >> 16 != (((U64)64 << 16) | 1 | ((U64)1 << 46))) CUDA_ERROR("another descriptor than that of the swizzle");
    unsigned address = (unsigned)(descriptor & 0x3fff) << 4;
    address += row * 128 + k * 2;
    address ^= (address >> 7 & 7) << 4;
    unsigned short bits;
    memcpy(&bits, shared_at(address), 2);
    return bf16(bits);
}
template <int N>
static void multiply(float (&d)[N / 2], const unsigned* a, U64 b) {
    const int lane = emulator::current->thread % 32, row = lane / 4, quarter = lane % 4;
    float operand[2][16];  // of rows `row` and `row + 8`
    for (int r = 0; r < 4; r++) {
        const unsigned* all = emulator::exchange(a[r]);
        for (int q = 0; q < 4; q++)
            for (int h = 0; h < 2; h++)
                operand[r % 2][r / 2 * 8 + 2 * q + h] = bf16(all[row * 4 + q] >> 16 * h & 0xFFFF);
    }
    emulator::exchange(0);  // everybody has read
    for (int i = 0; i < N / 2; i++) {
        const int n = i / 4 * 8 + quarter * 2 + i % 2;
        double sum = d[i];
        for (int k = 0; k < 16; k++) sum += (double)operand[i % 4 / 2][k] * row_value(b, n, k);
        d[i] = (float)sum;
    }
}

#include "linear_wide_sm90.cu"

static void clusters(int grid, int parts, unsigned seed) {
    blocks_of_grid = grid, parts_of_grid = parts;
    for (int block = 0; block < grid; block++) {
        named.clear(), phases.clear();
        first_block = block;
        emulator::run_cluster(0, parts, THREADS, OFF_BARRIERS + BARRIER_BYTES + 1024, seed);
    }
}

#if FP4
extern "C" void grouped_wide(
    const u8* x, const u8* xs, const u8* w, const u8* ws, const int* source, const int* offsets, u16* y, u8* image,
    int rows, int lines, int experts, int outputs, int channels, int grid, unsigned seed) {
    for (long long i = 0; i < (long long)channels / 64 * rows * 2 + 5; i++)
        packed_half(x, xs, source, offsets, image, rows, lines, experts, channels, i);
    const Grouped g{image, w, ws, offsets, y, lines, experts, outputs, channels};
    emulator::body = [&g](emulator::Cta& cta) { multiply_experts(g, (u8*)cta.base()); };
    clusters(grid, 1, seed);
}
#else
extern "C" void linear_wide(
    const u8* x, const u8* xs, const u8* w, const u8* ws, u16* y, u8* image, int rows, int lines, int groups,
    int outputs, int channels, int part, int parts, int grid, unsigned seed) {
    for (long long i = 0; i < (long long)groups * (channels / 64) * lines * 2 + 5; i++)
        image_half(x, xs, image, rows, lines, groups, channels, i);
    const Linear g{image, w, ws, y, rows, lines, groups, outputs, channels, part};
    emulator::body = [&g](emulator::Cta& cta) { multiply_rows(g, (u8*)cta.base()); };
    clusters(grid, parts, seed);
}
#endif
