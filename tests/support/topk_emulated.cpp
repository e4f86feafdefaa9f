// The CUDA top-k kernels on the CPU: `topk_emulated` runs a whole grid. Built by test_topk_kernels.py.

#define TOPK_EMULATED
#include "cuda_emulator.h"
#include "topk.cu"

template <class F, int THREADS, int CTAS, bool PREFETCH>
static void run(const Arguments& a, unsigned rows, unsigned seed) {
    typedef Shared<THREADS / 32> S;
    const size_t list = (sizeof(S) + 15) / 16 * 16, bytes = list + (size_t)a.capacity * 8;
    emulator::body = [&a, rows, list](emulator::Cta& cta) {
        top_k<F, THREADS, CTAS, PREFETCH>(a, rows * CTAS, *(S*)cta.base(), (uint2*)(cta.base() + list));
    };
    for (unsigned row = 0; row < rows; row++) emulator::run_cluster(row * CTAS, CTAS, THREADS, bytes, seed ? seed + row : 0);
}

// `kernel` is the name of a kernel of topk.cu; false if there is none.
extern "C" bool topk_emulated(const char* kernel, unsigned rows, unsigned seed, const void* scores, const int* visible,
                              const int* blocks, const int* row_seq, int* out, void* chosen, int lanes, int k, int block_size,
                              int block_count, int capacity) {
    const Arguments a{scores, visible, blocks, row_seq, out, chosen, lanes, k, block_size, block_count, capacity};
#define TOPK_KERNEL(NAME, FORMAT, THREADS, CTAS, RESIDENT, PREFETCH) \
    if (!strcmp(kernel, #NAME)) return run<FORMAT, THREADS, CTAS, PREFETCH>(a, rows, seed), true;
    TOPK_KERNELS
    return false;
}
