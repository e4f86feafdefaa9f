// Lowered by tilelang 0.1.15 from draft_kernels.py: correct_q(drafts=32, most=32768, per=64), source 94b3a7540530922165d8a196.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void correct_q_kernel_simt_vf_0(int32_t n, int32_t d, __gm__ int32_t* R, __gm__ float* C, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((n + 255) >> 8); ++c) {
    asc_syncthreads();
    if (((c * 256) + ((int32_t)threadIdx.x)) < n) {
      for (int32_t j = 0; j < d; ++j) {
        int32_t row = R[((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x)))];
        float condval;
        if ((0 <= row)) {
          condval = C[((((int64_t)row) * ((int64_t)d)) + ((int64_t)j))];
        } else {
          condval = float(0x0p+0f/*0.000000e+00*/);
        }
        float x = condval;
        float condval_1;
        if ((0 < j)) {
          condval_1 = ((__ubuf__ float*)buf_dyn_shmem)[(((((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)d)) + ((int64_t)j)) - (int64_t)1)];
        } else {
          condval_1 = float(0x1p+0f/*1.000000e+00*/);
        }
        float before = condval_1;
        float condval_2;
        if ((float(0x0p+0f/*0.000000e+00*/) < x)) {
          condval_2 = min(x, float(0x1p+0f/*1.000000e+00*/));
        } else {
          condval_2 = float(0x0p+0f/*0.000000e+00*/);
        }
        ((__ubuf__ float*)buf_dyn_shmem)[((((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)d)) + ((int64_t)j))] = (before * condval_2);
      }
    }
  }
}

#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void correct_q_kernel_simd_vf_0(int32_t d, __ubuf__ uint8_t* buf_dyn_shmem, int32_t block_idx, int32_t i, int32_t cores, int32_t n, int32_t budget) {
  vector_s32 rank;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
  auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
  vector_bool every = asc_create_mask_b32(PAT_ALL);
  for (int32_t c = 0; c < d; ++c) {
    auto own = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((int64_t)c) * (int64_t)64) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)d)) * (int64_t)64))])), 0);
    auto number = simd_inst::vci<int32_t>(((c * 64) + (((((int32_t)block_idx) + (i * cores)) * d) * 64)), INC_ORDER);
    rank = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    for (int32_t o = 0; o < (n * d); ++o) {
      auto other = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[o])), 0);
      auto above = simd_inst::vcmp_gt(other, own, v);
      auto equal = simd_inst::vcmp_eq(other, own, v);
      auto early = simd_inst::vcmps_gt(number, o, equal);
      auto ahead = simd_inst::por(above, early, every);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, ahead), v, MODE_ZEROING);
    }
    auto wins = simd_inst::vcmps_lt(rank, budget, v);
    simd_inst::vsts_norm(simd_inst::vsel(one, none, wins), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 34816)])), 0, v);
  }
}

__simt_vf__ __launch_bounds__(64) inline void correct_q_kernel_simt_vf_1(int32_t i, int32_t cores, int32_t n, __gm__ int32_t* Y, int32_t d, __ubuf__ uint8_t* buf_dyn_shmem) {
  if ((((((int32_t)block_idx) * 64) + ((i * cores) * 64)) + ((int32_t)threadIdx.x)) < n) {
    Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] = 1;
    for (int32_t j = 0; j < d; ++j) {
      Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] = (Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) + 34816)]);
    }
  }
}

extern "C" __global__ __vector__ void correct_q_kernel(__gm__ float* C, __gm__ int32_t* R, __gm__ int32_t* Y, int32_t budget, int32_t chunks, int32_t cores, int32_t d, int32_t n) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_vf_call<correct_q_kernel_simt_vf_0>(cce::dim3(256), n, d, R, C, buf_dyn_shmem);
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    correct_q_kernel_simd_vf_0(d, buf_dyn_shmem, block_idx, i, cores, n, budget);
    asc_vf_call<correct_q_kernel_simt_vf_1>(cce::dim3(64), i, cores, n, Y, d, buf_dyn_shmem);
  }
}

