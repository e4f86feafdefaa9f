// Lowered by tilelang 0.1.15 from vision_kernels.py: scatter_embeds(chunk=16384), source efe1ec6ba7619f300781cdc7.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void scatter_embeds_kernel(__gm__ bfloat16_t* MARKS, __gm__ int32_t* S, __gm__ bfloat16_t* VALUES, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t cores, int32_t items, int32_t n, int32_t pieces) {
  asc_init();
  __ubuf__ bfloat16_t *x = (__ubuf__ bfloat16_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t s = 0;
    s = S[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces))];
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)(s == -1));
    int8_t __cond_0 = ((int8_t)(bool)0);
    if (!((bool)__cond_1)) {
      __cond_0 = ((int8_t)(0 <= s));
    }
    asc_sync_pipe(PIPE_MTE2);
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
    if (!((bool)__cond_1)) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(VALUES[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)16384) + (((int64_t)s) * ((int64_t)D)))]))), 1, (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2));
      }
    }
    if (!((bool)__cond_1)) {
      if (!((bool)__cond_0)) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(MARKS[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)16384) + ((((int64_t)0 - ((int64_t)s)) - (int64_t)2) * ((int64_t)D)))]))), 1, (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2));
      }
    }
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
    if ((bool)__cond_1) {
      for (int32_t j = 0; j < n; ++j) {
        asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(X[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)16384) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)n))) + (((int64_t)j) * ((int64_t)D)))]))), 1, (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2));
        asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
        asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)16384) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)n))) + (((int64_t)j) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(x[0]))), 1, (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2));
        asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
    if (!((bool)__cond_1)) {
      for (int32_t j_1 = 0; j_1 < n; ++j_1) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)16384) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)n))) + (((int64_t)j_1) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(x[0]))), 1, (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2), (min(16384, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 16384))) * 2));
      }
    }
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

