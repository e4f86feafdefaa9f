// Lowered by tilelang 0.1.15 from sampling_rows_kernels.py: expand_params(threads=256), source d0633c74dc0d98df6ad0bff4.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void expand_params_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t m, __gm__ int32_t* Q, __gm__ float* Y0, __gm__ float* A0, __gm__ int32_t* Y1, __gm__ int32_t* A1, __gm__ int64_t* Y2, __gm__ int64_t* A2, __gm__ int64_t* Y3, __gm__ int64_t* A3, __gm__ int64_t* Y4, __gm__ int64_t* A4, __gm__ int64_t* Y5, __gm__ int64_t* A5, __gm__ int32_t* O, int64_t one) {
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < m) {
    int32_t q = Q[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
    if (0 <= q) {
      Y0[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = A0[((int64_t)q)];
      Y1[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = A1[((int64_t)q)];
      Y2[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = A2[((int64_t)q)];
      Y3[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = A3[((int64_t)q)];
      Y4[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = A4[((int64_t)q)];
      Y5[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (A5[((int64_t)q)] + ((int64_t)O[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))]));
    } else {
      Y0[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = tl::limits::kFloatInf;
      Y1[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      Y2[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = one;
      Y3[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (int64_t)0;
      Y4[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (int64_t)0;
      Y5[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (int64_t)0;
    }
  }
}

extern "C" __global__ __vector__ void expand_params_kernel(__gm__ float* A0, __gm__ int32_t* A1, __gm__ int64_t* A2, __gm__ int64_t* A3, __gm__ int64_t* A4, __gm__ int64_t* A5, __gm__ int32_t* O, __gm__ int32_t* Q, __gm__ float* Y0, __gm__ int32_t* Y1, __gm__ int64_t* Y2, __gm__ int64_t* Y3, __gm__ int64_t* Y4, __gm__ int64_t* Y5, int32_t chunks, int32_t cores, int32_t m, int64_t one) {
  asc_init();
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<expand_params_kernel_simt_vf_0>(cce::dim3(256), i, cores, m, Q, Y0, A0, Y1, A1, Y2, A2, Y3, A3, Y4, A4, Y5, A5, O, one);
  }
}

