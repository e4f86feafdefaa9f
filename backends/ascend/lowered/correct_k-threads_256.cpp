// Lowered by tilelang 0.1.15 from draft_kernels.py: correct_k(threads=256), source 489819c4713989dce804282b.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void correct_k_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t n, __gm__ int32_t* R, __gm__ int32_t* A, __gm__ int32_t* C, __gm__ int32_t* Y, __gm__ int32_t* B, __gm__ int32_t* Q) {
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n) {
    int32_t row = R[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
    int32_t condval;
    if ((0 <= row)) {
      condval = (A[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] - C[((int64_t)row)]);
    } else {
      condval = 0;
    }
    int32_t back = condval;
    Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = ((B[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] + Q[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))]) - back);
  }
}

extern "C" __global__ __vector__ void correct_k_kernel(__gm__ int32_t* A, __gm__ int32_t* B, __gm__ int32_t* C, __gm__ int32_t* Q, __gm__ int32_t* R, __gm__ int32_t* Y, int32_t chunks, int32_t cores, int32_t n) {
  asc_init();
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<correct_k_kernel_simt_vf_0>(cce::dim3(256), i, cores, n, R, A, C, Y, B, Q);
  }
}

