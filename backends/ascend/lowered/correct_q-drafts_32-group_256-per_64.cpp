// Lowered by tilelang 0.1.15 from draft_kernels.py: correct_q(drafts=32, group=256, per=64), source 80e21f24ebb4427e5ae0cfc5.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void correct_q_kernel_simt_vf_0(int32_t d, int32_t i, int32_t cores, int32_t n, __gm__ int32_t* R, __gm__ float* C, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t j = 0; j < d; ++j) {
    asc_syncthreads();
    if ((((((int32_t)block_idx) * 64) + ((i * cores) * 64)) + ((int32_t)threadIdx.x)) < n) {
      int32_t row = R[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))];
      float condval;
      if ((0 <= row)) {
        condval = C[((((int64_t)row) * ((int64_t)d)) + ((int64_t)j))];
      } else {
        condval = float(0x0p+0f/*0.000000e+00*/);
      }
      float x = condval;
      float condval_1;
      if ((0 < j)) {
        condval_1 = ((__ubuf__ float*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) + 8191)];
      } else {
        condval_1 = float(0x1p+0f/*1.000000e+00*/);
      }
      float condval_2;
      if ((float(0x0p+0f/*0.000000e+00*/) < x)) {
        condval_2 = min(x, float(0x1p+0f/*1.000000e+00*/));
      } else {
        condval_2 = float(0x0p+0f/*0.000000e+00*/);
      }
      ((__ubuf__ float*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) + 8192)] = (condval_1 * condval_2);
    }
    asc_syncthreads();
    ((__ubuf__ int32_t*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) + 10240)] = 0;
  }
}

__simt_vf__ __launch_bounds__(256) inline void correct_q_kernel_simt_vf_1(int32_t g, int32_t n, int32_t d, __gm__ int32_t* R, __gm__ float* C, __ubuf__ uint8_t* buf_dyn_shmem) {
  asc_syncthreads();
  if (((g * 256) + ((int32_t)threadIdx.x)) < n) {
    for (int32_t j = 0; j < d; ++j) {
      int32_t row = R[((((int64_t)g) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x)))];
      float condval;
      if ((0 <= row)) {
        condval = C[((((int64_t)row) * ((int64_t)d)) + ((int64_t)j))];
      } else {
        condval = float(0x0p+0f/*0.000000e+00*/);
      }
      float x = condval;
      float condval_1;
      if ((0 < j)) {
        condval_1 = ((__ubuf__ float*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) - 1)];
      } else {
        condval_1 = float(0x1p+0f/*1.000000e+00*/);
      }
      float condval_2;
      if ((float(0x0p+0f/*0.000000e+00*/) < x)) {
        condval_2 = min(x, float(0x1p+0f/*1.000000e+00*/));
      } else {
        condval_2 = float(0x0p+0f/*0.000000e+00*/);
      }
      ((__ubuf__ float*)buf_dyn_shmem)[((((int32_t)threadIdx.x) * d) + j)] = (condval_1 * condval_2);
    }
  }
}

#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void correct_q_kernel_simd_vf_0(int32_t d, __ubuf__ uint8_t* buf_dyn_shmem, int32_t block_idx, int32_t i, int32_t cores, int32_t g, int32_t n) {
  vector_s32 rank;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
  auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
  vector_bool every = asc_create_mask_b32(PAT_ALL);
  for (int32_t c = 0; c < d; ++c) {
    auto own = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0);
    auto number = simd_inst::vci<int32_t>(((c * 64) + ((((((int32_t)block_idx) * 64) + ((i * cores) * 64)) - (g * 256)) * d)), INC_ORDER);
    rank = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 10240)])), 0);
    for (int32_t o = 0; o < (min(256, (n - (g * 256))) * d); ++o) {
      auto other = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[o])), 0);
      auto above = simd_inst::vcmp_gt(other, own, v);
      auto equal = simd_inst::vcmp_eq(other, own, v);
      auto early = simd_inst::vcmps_gt(number, o, equal);
      auto ahead = simd_inst::por(above, early, every);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, ahead), v, MODE_ZEROING);
    }
    simd_inst::vsts_norm(rank, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 10240)])), 0, v);
  }
}

__simt_vf__ __launch_bounds__(64) inline void correct_q_kernel_simt_vf_2(int32_t i, int32_t cores, int32_t n, __gm__ int32_t* Y, int32_t d, __ubuf__ uint8_t* buf_dyn_shmem, int32_t budget) {
  if ((((((int32_t)block_idx) * 64) + ((i * cores) * 64)) + ((int32_t)threadIdx.x)) < n) {
    Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] = 1;
    for (int32_t j = 0; j < d; ++j) {
      int32_t condval;
      if ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((((int32_t)threadIdx.x) * d) + j) + 10240)] < budget)) {
        condval = 1;
      } else {
        condval = 0;
      }
      Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] = (Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64)) + ((int64_t)((int32_t)threadIdx.x)))] + condval);
    }
  }
}

extern "C" __global__ __vector__ void correct_q_kernel(__gm__ float* C, __gm__ int32_t* R, __gm__ int32_t* Y, int32_t budget, int32_t chunks, int32_t cores, int32_t d, int32_t n) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<correct_q_kernel_simt_vf_0>(cce::dim3(64), d, i, cores, n, R, C, buf_dyn_shmem);
    for (int32_t g = 0; g < ((n + 255) >> 8); ++g) {
      asc_vf_call<correct_q_kernel_simt_vf_1>(cce::dim3(256), g, n, d, R, C, buf_dyn_shmem);
      correct_q_kernel_simd_vf_0(d, buf_dyn_shmem, block_idx, i, cores, g, n);
    }
    asc_vf_call<correct_q_kernel_simt_vf_2>(cce::dim3(64), i, cores, n, Y, d, buf_dyn_shmem, budget);
  }
}

