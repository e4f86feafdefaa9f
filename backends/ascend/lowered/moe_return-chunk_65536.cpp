// Lowered by tilelang 0.1.15 from exchange_kernels.py: moe_return(chunk=65536), source d4240c8f3c7e53e29381d256.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void moe_return_kernel(__gm__ int32_t* N, __gm__ int32_t* P, __gm__ uint16_t* Y, __gm__ uint16_t* Z, int32_t D, int32_t cores, int32_t n, int32_t part, int32_t returns) {
  asc_init();
  __ubuf__ uint16_t *y = (__ubuf__ uint16_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((n + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((n + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t to = 0;
    to = N[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)((0 <= to) && (to < returns)));
    int32_t p = 0;
    if ((bool)__cond_0) {
      p = P[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    }
    int64_t z = (int64_t)0;
    if ((bool)__cond_0) {
      z = ((((int64_t)((((int32_t)block_idx) + (i * cores)) / part)) * ((int64_t)returns)) + ((int64_t)to));
    }
    if ((bool)__cond_0) {
      for (int32_t c = 0; c < ((D + 65535) >> 16); ++c) {
        asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(y[0]))), (__gm__ uint8_t*)((&(Y[((((int64_t)c) * (int64_t)65536) + (((int64_t)p) * ((int64_t)D)))]))), 1, (min(65536, (D - (c * 65536))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(65536, (D - (c * 65536))) * 2), (min(65536, (D - (c * 65536))) * 2));
        asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
        asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Z[((((int64_t)c) * (int64_t)65536) + (((((int64_t)((((int32_t)block_idx) + (i * cores)) / part)) * ((int64_t)returns)) + ((int64_t)to)) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(y[0]))), 1, (min(65536, (D - (c * 65536))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(65536, (D - (c * 65536))) * 2), (min(65536, (D - (c * 65536))) * 2));
        asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      }
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
}

