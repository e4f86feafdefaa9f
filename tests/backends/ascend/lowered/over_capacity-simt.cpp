// Lowered from ascend_kernels.py: over_capacity(simt), source 7eb7112b2bf37f0a19df5f8f.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void too_many_kernel_simt_vf_0(__ubuf__ float* x) {
  #pragma unroll
  for (int32_t i = 0; i < 480; ++i) {
    float broadcast_var = float(0x1p+0f/*1.000000e+00*/);
    *(__ubuf__ float2*)(x + ((i * 128) + (((int32_t)threadIdx.x) * 2))) = (*(__ubuf__ float2*)(x + ((i * 128) + (((int32_t)threadIdx.x) * 2))) + make_float2(broadcast_var, broadcast_var));
  }
}

extern "C" __global__ __vector__ void too_many_kernel(__gm__ float* X, __gm__ float* Y) {
  asc_init();
  __ubuf__ float *x = (__ubuf__ float *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(X[0]))), 1, 245760, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 245760, 245760);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<too_many_kernel_simt_vf_0>(cce::dim3(64), x);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[0]))), (__ubuf__ uint8_t*)((&(x[0]))), 1, 245760, static_cast<asc_store_l2_cache_mode>(4), 245760, 245760);
}

