// Lowered from ascend_kernels.py: hist(), source 69c0139efdf07703ee60f77a.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void hist_kernel_kernel_simt_vf_0(__ubuf__ int32_t* x, __gm__ int32_t* Y) {
  #pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    if (0 <= x[((i * 64) + ((int32_t)threadIdx.x))]) {
      if (x[((i * 64) + ((int32_t)threadIdx.x))] < 16) {
        asc_atomic_add((&(Y[x[((((int64_t)i) * (int64_t)64) + ((int64_t)((int32_t)threadIdx.x)))]])), 1);
      }
    }
  }
}

extern "C" __global__ __vector__ void hist_kernel_kernel(__gm__ int32_t* X, __gm__ int32_t* Y) {
  asc_init();
  __ubuf__ int32_t *x = (__ubuf__ int32_t *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[0]))), (__gm__ uint8_t*)((&(X[0]))), 1, 1024, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 1024, 1024);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<hist_kernel_kernel_simt_vf_0>(cce::dim3(64), x, Y);
}

