// Lowered by tilelang 0.1.15 from sampling_rows_kernels.py: mask_rows(piece=8192, threads=256), source c12a5a332c19f16f87409952.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void mask_rows_kernel_simt_vf_0(int32_t V, int32_t i, int32_t cores, int32_t pieces, int32_t N, __gm__ int32_t* W, int32_t begin, int32_t o, int32_t m, __gm__ float* Z) {
  for (int32_t c = 0; c < ((min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) + 255) >> 8); ++c) {
    if ((((((((int32_t)block_idx) + (i * cores)) % pieces) * 8192) + (c * 256)) + ((int32_t)threadIdx.x)) < V) {
      int32_t condval;
      if (((((((((int32_t)block_idx) + (i * cores)) % pieces) * 256) + (c * 8)) + (((int32_t)threadIdx.x) >> 5)) < N)) {
        condval = W[((((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)256) + (((int64_t)c) * (int64_t)8)) + (((int64_t)((int32_t)threadIdx.x)) >> (int64_t)5)) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)N)))];
      } else {
        condval = 0;
      }
      int32_t word = condval;
      if (((word >> (((int32_t)threadIdx.x) & 31)) & 1) == 0) {
        if (0 <= (begin + o)) {
          if ((begin + o) < m) {
            Z[((((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)8192) + (((int64_t)c) * (int64_t)256)) + ((((int64_t)begin) + ((int64_t)o)) * ((int64_t)V))) + ((int64_t)((int32_t)threadIdx.x)))] = tl::limits::kFloatNInf;
          }
        }
      }
    }
  }
}

extern "C" __global__ __vector__ void mask_rows_kernel(__gm__ int32_t* F, __gm__ int32_t* O, __gm__ int32_t* Q, __gm__ int32_t* W, __gm__ float* Z, int32_t N, int32_t V, int32_t cores, int32_t items, int32_t m, int32_t pieces) {
  asc_init();
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t q = 0;
    q = Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces))];
    int32_t o = 0;
    o = O[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces))];
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)((0 <= q) && (0 <= o)));
    int32_t begin = 0;
    if ((bool)__cond_1) {
      int32_t condval;
      if ((0 <= q)) {
        condval = F[q];
      } else {
        condval = 0;
      }
      begin = condval;
    }
    int32_t end = 0;
    if ((bool)__cond_1) {
      int32_t condval_1;
      if ((-1 <= q)) {
        condval_1 = F[(((int64_t)q) + (int64_t)1)];
      } else {
        condval_1 = 0;
      }
      end = condval_1;
    }
    int8_t __cond_0 = ((int8_t)(bool)0);
    if ((bool)__cond_1) {
      __cond_0 = ((int8_t)(o < (end - begin)));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_vf_call<mask_rows_kernel_simt_vf_0>(cce::dim3(256), V, i, cores, pieces, N, W, begin, o, m, Z);
      }
    }
  }
}

