// Lowered from ascend_kernels.py: over_capacity(ub), source 01a0df4bc551418ebd304395.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void too_many_kernel(__gm__ float* X, __gm__ float* Y) {
  asc_init();
  __ubuf__ float *x = (__ubuf__ float *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(X[0]))), 1, 307200, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 307200, 307200);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[0]))), (__ubuf__ uint8_t*)((&(x[0]))), 1, 307200, static_cast<asc_store_l2_cache_mode>(4), 307200, 307200);
}

