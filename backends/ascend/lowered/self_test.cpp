// Lowered by tilelang 0.1.15 from self_test_kernels.py: self_test(), source a95af524e02309fbad398828.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void self_test_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t i) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vadds(simd_inst::vmuls(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((i & 1) * 64)])), 0), 3, v, MODE_ZEROING), 7, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((i & 1) * 64) + 128)])), 0, v);
}

extern "C" __global__ __vector__ void self_test_kernel(__gm__ int32_t* X, __gm__ int32_t* Y, int32_t cores, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[((i & 1) * 64)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64))]))), 1, 256, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 256, 256);
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    self_test_kernel_simd_vf_0(buf_dyn_shmem, i);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) * (int64_t)64) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)64))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((i & 1) * 64) + 128)]))), 1, 256, static_cast<asc_store_l2_cache_mode>(4), 256, 256);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}

