// Lowered by tilelang 0.1.15 from draft_kernels.py: draft_add(piece=8192), source d2d40be0438bd55e9fb58b53.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void draft_add_kernel_simd_vf_0(int32_t V, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) - (c * 64)));
    simd_inst::vsts_norm(simd_inst::vadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), some, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0, some);
  }
}

extern "C" __global__ __vector__ void draft_add_kernel(__gm__ float* X, __gm__ float* Y, int32_t V, int32_t cores, int32_t items, int32_t pieces, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t count = 0;
    count = min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192)));
    int64_t at = (int64_t)0;
    at = ((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)8192) + (((int64_t)((((int32_t)block_idx) + (i * cores)) / pieces)) * stride));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)8192) + (((int64_t)((((int32_t)block_idx) + (i * cores)) / pieces)) * stride))]))), 1, (((int64_t)min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192)))) * (int64_t)4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192)))) * (int64_t)4), (((int64_t)min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192)))) * (int64_t)4));
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)8192) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)V)))]))), 1, (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4), (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    draft_add_kernel_simd_vf_0(V, block_idx, i, cores, pieces, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)8192) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)V)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), 1, (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4), (min(8192, (V - (((((int32_t)block_idx) + (i * cores)) % pieces) * 8192))) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

