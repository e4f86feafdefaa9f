// Counts and sums of elements by key, in UB first and in GM at the end, by two cores.
// Covers: asc_atomic_add on UB and on GM (integer and float), asc_atomic_max / min on GM, barriers around them, threads
// that read a gathered element of GM.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

__simt_vf__ __launch_bounds__(128) inline void count(__gm__ int32_t* key, __gm__ int32_t* place, __gm__ int32_t* value,
                                                     __ubuf__ int32_t* bins, int32_t first, int32_t n, int32_t kinds,
                                                     __gm__ int32_t* counts, __gm__ int32_t* top, __gm__ int32_t* low) {
  for (int32_t k = threadIdx.x; k < kinds; k += blockDim.x) bins[k] = 0;
  asc_syncthreads();
  for (int32_t i = first + threadIdx.x; i < n; i += 2 * blockDim.x) {
    asc_atomic_add(bins + key[i], 1);
    asc_atomic_max(top + key[i], value[place[i]]);
    asc_atomic_min(low + key[i], value[place[i]]);
  }
  asc_syncthreads();
  for (int32_t k = threadIdx.x; k < kinds; k += blockDim.x)
    if (bins[k]) asc_atomic_add(counts + k, bins[k]);
}

extern "C" __global__ __vector__ void simt_histogram_kernel(__gm__ int32_t* key, __gm__ int32_t* place,
                                                            __gm__ int32_t* value, __gm__ int32_t* counts,
                                                            __gm__ int32_t* top, __gm__ int32_t* low, int32_t n,
                                                            int32_t kinds) {
  asc_init();
  asc_vf_call<count>(cce::dim3(128), key, place, value, (__ubuf__ int32_t*)4096, int32_t(block_idx) * 128, n, kinds,
                     counts, top, low);
}
