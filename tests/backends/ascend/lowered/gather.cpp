// Lowered from ascend_kernels.py: gather(), source 481bdb9d45ea630cb9949226.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void gather_kernel_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t R, __gm__ bfloat16_t* X) {
  #pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    bfloat16_t broadcast_var = bfloat16_t(0x0p+0f/*0.000000e+00*/);
    uint2 condval;
    if (((0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((i * 4) + (((int32_t)threadIdx.x) >> 4)) + 256)]) && (((__ubuf__ int32_t*)buf_dyn_shmem)[(((i * 4) + (((int32_t)threadIdx.x) >> 4)) + 256)] < R))) {
      condval = *(__gm__ uint2*)(X + ((((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((((int64_t)i) * (int64_t)4) + (((int64_t)((int32_t)threadIdx.x)) >> (int64_t)4)) + (int64_t)256)]) * (int64_t)64) + ((((int64_t)((int32_t)threadIdx.x)) & (int64_t)15) * (int64_t)4)));
    } else {
      uint2 _;
        ((bfloat16x2_t*)(&(_)))[0].x = broadcast_var;
        ((bfloat16x2_t*)(&(_)))[0].y = broadcast_var;
        ((bfloat16x2_t*)(&(_)))[1].x = broadcast_var;
        ((bfloat16x2_t*)(&(_)))[1].y = broadcast_var;
      condval = _;
    }
    *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + ((i * 256) + (((int32_t)threadIdx.x) * 4))) = condval;
  }
}

extern "C" __global__ __vector__ void gather_kernel_kernel(__gm__ int32_t* I, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t R) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[256]))), (__gm__ uint8_t*)((&(I[(((int32_t)block_idx) * 8)]))), 1, 32, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 32, 32);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_vf_call<gather_kernel_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem, R, X);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((int32_t)block_idx) * 512)]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0]))), 1, 1024, static_cast<asc_store_l2_cache_mode>(4), 1024, 1024);
}

