// Lowered by tilelang 0.1.15 from draft_kernels.py: draft_tap(piece=8192), source 34027adf2b509482d9987e27.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void draft_tap_kernel_simd_vf_0(int32_t D, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) + 63) >> 6); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<float>(float(-0x0p+0f/*-0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0, v);
  }
}

__simd_vf__ inline void draft_tap_kernel_simd_vf_1(int32_t D, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto v_1 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), v_1, some, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0, some);
  }
}

__simd_vf__ inline void draft_tap_kernel_simd_vf_2(int32_t D, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem, float scale) {
  for (int32_t c = 0; c < ((min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) + 63) >> 6); ++c) {
    auto rest = simd_inst::update_mask_b32((min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) - (c * 64)));
    auto u = simd_inst::vmuls(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), scale, rest, MODE_ZEROING);
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(u, v, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0, rest);
  }
}

extern "C" __global__ __vector__ void draft_tap_kernel(__gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t M, int32_t N, int32_t cores, int32_t items, int32_t pieces, int32_t place, float scale) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    draft_tap_kernel_simd_vf_0(D, block_idx, i, cores, pieces, buf_dyn_shmem);
    for (int32_t j = 0; j < M; ++j) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(X[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)8192) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)M))) + (((int64_t)j) * ((int64_t)D)))]))), 1, (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2), (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      draft_tap_kernel_simd_vf_1(D, block_idx, i, cores, pieces, buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    draft_tap_kernel_simd_vf_2(D, block_idx, i, cores, pieces, buf_dyn_shmem, scale);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)8192) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)N))) + (((int64_t)place) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), 1, (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2), (min(8192, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

