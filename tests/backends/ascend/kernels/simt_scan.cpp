// Inclusive prefix sums of rows, one row per launch, and their maxima by warps.
// Covers: asc_vf_call with one and several dimensions of threads, asc_syncthreads in a loop, reads of GM by threads,
// asc_shfl_xor, asc_reduce_add / max / min over warps, threads without an element, stores of threads to GM.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

__simt_vf__ __launch_bounds__(256) inline void scan(__gm__ float* x, __ubuf__ float* a, __ubuf__ float* b, int32_t n,
                                                    __gm__ float* y) {
  const int32_t i = threadIdx.x + blockDim.x * threadIdx.y;
  if (i < n) a[i] = x[i];
  asc_syncthreads();
  __ubuf__ float* from = a;
  __ubuf__ float* to = b;
  for (int32_t step = 1; step < n; step *= 2) {
    if (i < n) to[i] = i < step ? from[i] : from[i] + from[i - step];
    asc_syncthreads();
    __ubuf__ float* other = from;
    from = to;
    to = other;
  }
  if (i < n) y[i] = from[i];
}

__simt_vf__ __launch_bounds__(64) inline void warps(__gm__ float* x, int32_t n, __gm__ float* z) {
  const int32_t i = threadIdx.x;
  const bool there = i < n;
  const float lowest = -3.0e38f;
  float v = there ? x[i] : lowest;
  const float top = asc_reduce_max(v), bottom = asc_reduce_min(there ? v : 3.0e38f);
  const int32_t live = asc_reduce_add(there ? 1 : 0);
  for (int32_t m = 16; m; m /= 2) {  // the same maximum by exchange
    const float other = asc_shfl_xor(v, m);
    v = v > other ? v : other;
  }
  if (i % 32 == 0 && there) {
    z[i / 32 * 4] = top;
    z[i / 32 * 4 + 1] = bottom;
    z[i / 32 * 4 + 2] = float(live);
    z[i / 32 * 4 + 3] = v;
  }
}

extern "C" __global__ __vector__ void simt_scan_kernel(__gm__ float* x, __gm__ float* y, __gm__ float* z, int32_t rows,
                                                       int32_t n) {
  asc_init();
  for (int32_t r = int32_t(block_idx); r < rows; r += 2) {
    asc_vf_call<scan>(cce::dim3(64, 4), x + r * n, (__ubuf__ float*)0, (__ubuf__ float*)1024, n, y + r * n);
    asc_vf_call<warps>(cce::dim3(64), x + r * n, n, z + r * 8);
  }
}
