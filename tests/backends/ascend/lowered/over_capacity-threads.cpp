// Lowered from ascend_kernels.py: over_capacity(threads), source 83e5fdf4a6b6307df00a6617.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(4096) inline void too_many_kernel_simt_vf_0(__ubuf__ float* x) {
  if (((int32_t)threadIdx.x) < 1024) {
    x[((int32_t)threadIdx.x)] = (x[((int32_t)threadIdx.x)] + float(0x1p+0f/*1.000000e+00*/));
  }
}

extern "C" __global__ __vector__ void too_many_kernel(__gm__ float* X, __gm__ float* Y) {
  asc_init();
  __ubuf__ float *x = (__ubuf__ float *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(X[0]))), 1, 4096, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 4096, 4096);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<too_many_kernel_simt_vf_0>(cce::dim3(4096), x);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[0]))), (__ubuf__ uint8_t*)((&(x[0]))), 1, 4096, static_cast<asc_store_l2_cache_mode>(4), 4096, 4096);
}

