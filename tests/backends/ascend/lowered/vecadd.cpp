// Lowered from ascend_kernels.py: vecadd(), source 5d3ca4130ca47a6d48d18d21.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void vecadd_kernel_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  #pragma unroll
  for (int32_t i = 0; i < 2; ++i) {
    *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + ((i * 128) + (((int32_t)threadIdx.x) * 2))) = (*(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + ((i * 128) + (((int32_t)threadIdx.x) * 2))) + *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 256)));
  }
}

extern "C" __global__ __vector__ void vecadd_kernel_kernel(__gm__ float* A, __gm__ float* B, __gm__ float* C, int32_t n) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t w = 0; w < (((((((((n + 255) >> 8) - 1) / max(1, min(8, ((n + 255) >> 8)))) + (((((n + 255) >> 8) - 1) % max(1, min(8, ((n + 255) >> 8)))) >> 31)) + 1) * max(1, min(8, ((n + 255) >> 8)))) + 1) >> 1); ++w) {
    if ((((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) + (((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8))))) < ((n + 255) >> 8)) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[256]))), (__gm__ uint8_t*)((&(B[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256))]))), 1, (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4));
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(A[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256))]))), 1, (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_vf_call<vecadd_kernel_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(C[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)n) + (int64_t)255) >> (int64_t)8)))) * (int64_t)256))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), 1, (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4), (min(256, ((n - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((n + 255) >> 8)))) * max(1, min(8, ((n + 255) >> 8)))) * 256)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((n + 255) >> 8)))) * 256))) * 4));
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

