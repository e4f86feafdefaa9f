// Lowered by tilelang 0.1.15 from engram_kernels.py: engram_gather(chunk=16384), source da3e161544c0c573adb85686.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void engram_gather_kernel(__gm__ uint8_t* E, __gm__ uint8_t* Q, __gm__ int64_t* R, __gm__ uint8_t* SCALE, __gm__ uint8_t* X, int32_t L, int32_t W, int32_t cores) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(3));
  for (int32_t i = 0; i < (((((L + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((L + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int64_t p = (int64_t)0;
    p = R[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(((i & 1) + 2)));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[(((i & 1) * 512) + 32768)]))), (__gm__ uint8_t*)((&(SCALE[(p * (((int64_t)W) >> (int64_t)5))]))), 1, (W >> 5), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (W >> 5), (W >> 5));
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(((i & 1) + 2)));
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[((i & 1) * 16384)]))), (__gm__ uint8_t*)((&(X[(p * ((int64_t)W))]))), 1, W, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), W, W);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(((i & 1) + 2)));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(E[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)W) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[(((i & 1) * 512) + 32768)]))), 1, (W >> 5), static_cast<asc_store_l2_cache_mode>(4), (W >> 5), (W >> 5));
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(((i & 1) + 2)));
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[((i & 1) * 16384)]))), 1, W, static_cast<asc_store_l2_cache_mode>(4), W, W);
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((i & 1)));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(3));
}

