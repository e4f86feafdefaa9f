// Lowered by tilelang 0.1.15 from vision_kernels.py: merge_patches(chunk=1024, most=16), source ae5d1ac05ffb971ebf7856f3.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void merge_patches_kernel_simd_vf_0(int32_t C, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) + 127) >> 7); ++c) {
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<bfloat16_t>(bfloat16_t(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 128) + 16384)])), 0, v);
  }
}

__simd_vf__ inline void merge_patches_kernel_simd_vf_1(int32_t C, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, int32_t s, int32_t p, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) + 127) >> 7); ++c) {
    auto some = simd_inst::update_mask_b16((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) - (c * 128)));
    auto lane = simd_inst::vci<int16_t>(((int16_t)(c * 128)), INC_ORDER);
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto to = simd_inst::vadds(simd_inst::vmuls(lane, ((int16_t)s), v, MODE_ZEROING), ((int16_t)p), v, MODE_ZEROING);
    simd_inst::vscatter(simd_inst::vlds_norm<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 128) + 16384)])), 0), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0])), (*(vector_u16 *)(&(to))), some);
  }
}

extern "C" __global__ __vector__ void merge_patches_kernel(__gm__ int32_t* I, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t C, int32_t N, int32_t W, int32_t cores, int32_t items, int32_t pieces, int32_t s) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    for (int32_t p = 0; p < s; ++p) {
      int32_t q = I[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)s)) + ((int64_t)p))];
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      if ((0 <= q) && (q < N)) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)1024) + (((int64_t)q) * ((int64_t)C)))]))), 1, (min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * 2), (min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * 2));
      }
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      if ((q < 0) || (N <= q)) {
        merge_patches_kernel_simd_vf_0(C, block_idx, i, cores, pieces, buf_dyn_shmem);
      }
      if (p == 0) {
        asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      merge_patches_kernel_simd_vf_1(C, block_idx, i, cores, pieces, s, p, buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      if (s == (p + 1)) {
        asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * ((int64_t)s)) * (int64_t)1024) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)W)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0]))), 1, ((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * s) * 2), static_cast<asc_store_l2_cache_mode>(4), ((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * s) * 2), ((min(1024, (C - (((((int32_t)block_idx) + (i * cores)) % pieces) * 1024))) * s) * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

