// Lowered by tilelang 0.1.15 from draft_kernels.py: draft_store(threads=256), source c961bf78dc98937d46a2c29f.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void draft_store_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t n, __gm__ int32_t* O, int32_t d, int32_t stops, __gm__ uint8_t* E, __gm__ int32_t* Y0, __gm__ int32_t* X, __gm__ float* Y1, __gm__ float* C) {
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n) {
    int32_t slot = O[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))];
    int32_t condval;
    if ((0 < stops)) {
      condval = ((int32_t)E[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))]);
    } else {
      condval = 0;
    }
    int32_t stop = condval;
    if (0 <= slot) {
      Y0[((((int64_t)slot) * ((int64_t)d)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)d)))] = X[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
      float condval_1;
      if ((stop != 0)) {
        condval_1 = float(0x0p+0f/*0.000000e+00*/);
      } else {
        condval_1 = C[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
      }
      Y1[((((int64_t)slot) * ((int64_t)d)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)d)))] = condval_1;
    }
  }
}

extern "C" __global__ __vector__ void draft_store_kernel(__gm__ float* C, __gm__ uint8_t* E, __gm__ int32_t* O, __gm__ int32_t* X, __gm__ int32_t* Y0, __gm__ float* Y1, int32_t chunks, int32_t cores, int32_t d, int32_t n, int32_t stops) {
  asc_init();
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<draft_store_kernel_simt_vf_0>(cce::dim3(256), i, cores, n, O, d, stops, E, Y0, X, Y1, C);
  }
}

