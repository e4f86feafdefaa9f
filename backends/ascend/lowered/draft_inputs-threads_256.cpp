// Lowered by tilelang 0.1.15 from draft_kernels.py: draft_inputs(threads=256), source 7edfa482f21e34aa539858fb.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void draft_inputs_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t n, __gm__ int32_t* B, int32_t d, __gm__ int32_t* A, __gm__ int32_t* Y0, __gm__ int32_t* X, int32_t noise, __gm__ int32_t* Y1, __gm__ int32_t* Y2, __gm__ int32_t* Y3, int32_t window, __gm__ int32_t* F, __gm__ int32_t* Y4, __gm__ int64_t* Y7, int32_t s, __gm__ int32_t* Y5, __gm__ int32_t* Y6) {
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n) {
    int32_t base = B[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))];
    int32_t condval;
    if ((0 <= base)) {
      condval = ((base + A[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))]) + 1);
    } else {
      condval = 0;
    }
    int32_t begin = condval;
    if (0 <= base) {
      int32_t condval_1;
      if ((((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) % d) == 0)) {
        condval_1 = X[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))];
      } else {
        condval_1 = noise;
      }
      Y0[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = condval_1;
      Y1[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (begin + ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) % d));
      Y2[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / d);
      Y3[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = max(max((begin - window), F[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))]), 0);
      Y4[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = ((begin + d) - 1);
      Y7[((((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)d)) * ((int64_t)s)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d)))] = ((((int64_t)begin) + ((int64_t)((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) % d))) + (int64_t)1);
    } else {
      Y0[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
      Y1[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      Y2[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
      Y3[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      Y4[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      Y7[((((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)d)) * ((int64_t)s)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d)))] = (int64_t)0;
    }
    if (((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) % d) == 0) {
      Y5[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))] = begin;
      Y6[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)d))] = (((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / d) * d);
    }
  }
}

extern "C" __global__ __vector__ void draft_inputs_kernel(__gm__ int32_t* A, __gm__ int32_t* B, __gm__ int32_t* F, __gm__ int32_t* X, __gm__ int32_t* Y0, __gm__ int32_t* Y1, __gm__ int32_t* Y2, __gm__ int32_t* Y3, __gm__ int32_t* Y4, __gm__ int32_t* Y5, __gm__ int32_t* Y6, __gm__ int64_t* Y7, int32_t chunks, int32_t cores, int32_t d, int32_t n, int32_t noise, int32_t s, int32_t window) {
  asc_init();
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<draft_inputs_kernel_simt_vf_0>(cce::dim3(256), i, cores, n, B, d, A, Y0, X, noise, Y1, Y2, Y3, window, F, Y4, Y7, s, Y5, Y6);
  }
}

