// Lowered by tilelang 0.1.15 from exchange_kernels.py: moe_dispatch(codes=65536), source 2040c2c4e80dd5c018ef3a3a.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void moe_dispatch_kernel(__gm__ uint8_t* G, __gm__ uint8_t* H, __gm__ uint8_t* Q, __gm__ int32_t* TO, __gm__ uint8_t* X, int32_t D, int32_t cores, int32_t m, int32_t slots) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D))]))), 1, D, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), D, D);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[65536]))), (__gm__ uint8_t*)((&(G[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)D) >> (int64_t)5))]))), 1, (D >> 5), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D >> 5), (D >> 5));
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    for (int32_t j = 0; j < slots; ++j) {
      int32_t z = 0;
      z = TO[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)slots)) + ((int64_t)j))];
      int8_t __cond_0 = ((int8_t)(bool)0);
      __cond_0 = ((int8_t)(0 <= z));
      if (j == 0) {
        asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
      }
      if ((bool)__cond_0) {
        asc_sync_pipe(PIPE_MTE3);
      }
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[(((int64_t)z) * ((int64_t)D))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), 1, D, static_cast<asc_store_l2_cache_mode>(4), D, D);
      }
      if (slots == (j + 1)) {
        asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
      }
      if (j == 0) {
        asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
      }
      if ((bool)__cond_0) {
        asc_sync_pipe(PIPE_MTE3);
      }
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(H[(((int64_t)z) * (((int64_t)D) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[65536]))), 1, (D >> 5), static_cast<asc_store_l2_cache_mode>(4), (D >> 5), (D >> 5));
      }
      if (slots == (j + 1)) {
        asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      }
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

