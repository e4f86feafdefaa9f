// Lowered by tilelang 0.1.15 from scales_kernels.py: pair_scales(threads=512), source 5453059397eb9605a592bf90.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(512) inline void pair_scales_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t n, int32_t counted, int32_t width, __gm__ int32_t* C, int32_t last, int32_t groups, int32_t gathered, __gm__ uint8_t* Y, __gm__ int32_t* S, int32_t span, __gm__ uint8_t* X) {
  if ((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) < n) {
    if ((counted == 0) || (((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) / width) < C[((int64_t)last)])) {
      if (((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) % width) < groups) {
        if (0 < gathered) {
          uint8_t condval;
          if (((0 <= ((S[((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)width))] * groups) + ((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) % width))) && (((S[((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)width))] * groups) + ((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) % width)) < span))) {
            condval = X[((((int64_t)S[((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)width))]) * ((int64_t)groups)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)width)))];
          } else {
            condval = (uint8_t)0;
          }
          Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x)))] = condval;
        } else {
          uint8_t condval_1;
          if ((((((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) / width) * groups) + ((((((int32_t)block_idx) * 512) + ((i * cores) * 512)) + ((int32_t)threadIdx.x)) % width)) < span)) {
            condval_1 = X[((((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)width)) * ((int64_t)groups)) + ((((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)width)))];
          } else {
            condval_1 = (uint8_t)0;
          }
          Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x)))] = condval_1;
        }
      } else {
        Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)512) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)512)) + ((int64_t)((int32_t)threadIdx.x)))] = (uint8_t)127;
      }
    }
  }
}

extern "C" __global__ __vector__ void pair_scales_kernel(__gm__ int32_t* C, __gm__ int32_t* S, __gm__ uint8_t* X, __gm__ uint8_t* Y, int32_t cores, int32_t counted, int32_t gathered, int32_t groups, int32_t last, int32_t n, int32_t span, int32_t tiles, int32_t width) {
  asc_init();
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<pair_scales_kernel_simt_vf_0>(cce::dim3(512), i, cores, n, counted, width, C, last, groups, gathered, Y, S, span, X);
  }
}

