// The CUDA top-k kernels on the CPU: `topk_emulated` runs a whole grid. Built by test_topk_source.py.

#define TOPK_EMULATED
#include "cuda_emulator.h"
#include "topk.cu"

template <class F, int THREADS, int CTAS>
static void run(const Arguments& a, unsigned rows, unsigned seed) {
    typedef Shared<THREADS / 32> S;
    const size_t list = (sizeof(S) + 15) / 16 * 16, bytes = list + (size_t)a.capacity * 8;
    emulator::body = [&a, list](emulator::Cta& cta) {
        top_k<F, THREADS, CTAS>(a, *(S*)cta.base(), (unsigned*)(cta.base() + list));
    };
    for (unsigned row = 0; row < rows; row++) emulator::run_cluster(row * CTAS, CTAS, THREADS, bytes, seed ? seed + row : 0);
}

template <class F>
static void run_ctas(const Arguments& a, unsigned rows, unsigned seed, int ctas) {
    if (ctas == 1) return run<F, 256, 1>(a, rows, seed);
    if (ctas == 2) return run<F, 256, 2>(a, rows, seed);
    if (ctas == 4) return run<F, 256, 4>(a, rows, seed);
    if (ctas == 8) return run<F, 256, 8>(a, rows, seed);
    CUDA_ERROR("no such cluster");
}

extern "C" void topk_emulated(int format, int ctas, unsigned rows, unsigned seed, const void* scores, const int* visible,
                              const int* blocks, int* out, int lanes, int k, int block_size, int block_count, int capacity) {
    const Arguments a{scores, visible, blocks, out, lanes, k, block_size, block_count, capacity};
    if (format == 0) return run_ctas<F32>(a, rows, seed, ctas);
    if (format == 1) return run_ctas<BF16>(a, rows, seed, ctas);
    return run_ctas<Blocks>(a, rows, seed, ctas);
}
