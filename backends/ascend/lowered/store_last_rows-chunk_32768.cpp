// Lowered by tilelang 0.1.15 from kv_kernels.py: store_last_rows(chunk=32768), source f34434df9aeeb7fd6235024e.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void store_last_rows_kernel(__gm__ int32_t* AT, __gm__ int32_t* END, __gm__ int32_t* OWNER, __gm__ uint8_t* RING, __gm__ int32_t* SLOT, __gm__ uint8_t* X, int32_t R, int32_t W, int32_t cores, int32_t m, int64_t offset, int64_t pitch, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *x = (__ubuf__ uint8_t *)0;
  int32_t x_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  x_version_counter_1 = 0;
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t owner = 0;
    owner = OWNER[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)(0 <= owner));
    int32_t p = 0;
    if ((bool)__cond_1) {
      p = AT[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    }
    int8_t __cond_0 = ((int8_t)(bool)0);
    if ((bool)__cond_1) {
      int32_t condval;
      if ((0 <= owner)) {
        condval = END[owner];
      } else {
        condval = 0;
      }
      __cond_0 = ((int8_t)((condval - R) <= p));
    }
    int64_t into = (int64_t)0;
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        int32_t condval_1;
        if ((0 <= owner)) {
          condval_1 = SLOT[owner];
        } else {
          condval_1 = 0;
        }
        into = (((((int64_t)condval_1) * stride) + ((((int64_t)(p % R)) + ((int64_t)(R & ((p % R) >> 31)))) * pitch)) + offset);
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[((x_version_counter_1 & 1) * 32768)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W))]))), 1, W, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), W, W);
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(RING[into]))), (__ubuf__ uint8_t*)((&(x[((x_version_counter_1 & 1) * 32768)]))), 1, W, static_cast<asc_store_l2_cache_mode>(4), W, W);
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      x_version_counter_1 = (x_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

