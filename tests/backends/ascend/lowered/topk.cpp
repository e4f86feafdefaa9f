// Lowered from ascend_kernels.py: topk(), source ddc6b58b4560da3535632bfe.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void topk_kernel_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  float f[2];
  int32_t fi[2];
  float mx[1];
  int32_t ix[1];
  *(float2*)(f + 0) = *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((int32_t)threadIdx.x) * 2));
  for (int32_t k = 0; k < 4; ++k) {
    mx[0] = tl::limits::kFloatNInf;
    #pragma unroll
    for (int32_t rv = 0; rv < 2; ++rv) {
      mx[0] = max(mx[0], f[rv]);
    }
    asc_syncthreads();
    mx[0] = tl::AscendAllReduce<tl::MaxOp, 64, 1, 0>::run(mx[0], (&(((__ubuf__ float*)buf_dyn_shmem)[128])));
    #pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      int32_t condval;
      if ((f[i] == mx[0])) {
        condval = ((((int32_t)threadIdx.x) * 2) + i);
      } else {
        condval = 128;
      }
      fi[i] = condval;
    }
    ix[0] = 2147483647;
    #pragma unroll
    for (int32_t rv_1 = 0; rv_1 < 2; ++rv_1) {
      ix[0] = min(ix[0], fi[rv_1]);
    }
    ix[0] = tl::AscendAllReduce<tl::MinOp, 64, 1, 0>::run(ix[0], (&(((__ubuf__ int32_t*)buf_dyn_shmem)[192])));
    #pragma unroll
    for (int32_t i_1 = 0; i_1 < 2; ++i_1) {
      float condval_1;
      if ((((((int32_t)threadIdx.x) * 2) + i_1) == ix[0])) {
        condval_1 = tl::limits::kFloatNInf;
      } else {
        condval_1 = f[i_1];
      }
      f[i_1] = condval_1;
    }
    if (((int32_t)threadIdx.x) == 0) {
      ((__ubuf__ float*)buf_dyn_shmem)[(k + 256)] = mx[0];
      ((__ubuf__ int32_t*)buf_dyn_shmem)[(k + 264)] = ix[0];
    }
  }
}

extern "C" __global__ __vector__ void topk_kernel_kernel(__gm__ int32_t* I, __gm__ float* V, __gm__ float* X, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t w = 0; w < (((((((m - 1) / max(1, min(8, m))) + (((m - 1) % max(1, min(8, m))) >> 31)) + 1) * max(1, min(8, m))) + 1) >> 1); ++w) {
    if ((((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, m))) * max(1, min(8, m))) + (((w * 2) + ((int32_t)block_idx)) % max(1, min(8, m)))) < m) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)128) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)128))]))), 1, 512, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 512, 512);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_vf_call<topk_kernel_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(V[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)4) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)4))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[256]))), 1, 16, static_cast<asc_store_l2_cache_mode>(4), 16, 16);
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(I[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)4) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)m)))) * (int64_t)4))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[264]))), 1, 16, static_cast<asc_store_l2_cache_mode>(4), 16, 16);
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

