// Lowered by tilelang 0.1.15 from embed_kernels.py: embed_streams(chunk=32768), source 589805a6efcb2bd7bddb1ddb.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void embed_streams_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto first_lane = simd_inst::vcmps_eq(simd_inst::vci<int32_t>(0, INC_ORDER), 0, v);
  simd_inst::vsts_norm(simd_inst::vsel(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), first_lane), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0, v);
  for (int32_t c = 0; c < 128; ++c) {
    vector_bool v_1 = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<uint8_t>((uint8_t)0, v_1, MODE_ZEROING), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((c * 256) + 32768)])), 0, v_1);
  }
}

extern "C" __global__ __vector__ void embed_streams_kernel(__gm__ float* H, __gm__ int32_t* I, __gm__ uint8_t* X, __gm__ uint8_t* Y, int32_t M, int32_t N, int32_t W, int32_t cores, int32_t items, int32_t pieces) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  embed_streams_kernel_simd_vf_0(buf_dyn_shmem);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t p = 0;
    p = I[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces))];
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)(((((int32_t)block_idx) + (i * cores)) % pieces) == 0));
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)((0 <= p) && (p < N)));
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + (((int64_t)p) * ((int64_t)W)))]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      for (int32_t s = 0; s < M; ++s) {
        if (s == 0) {
          asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
        }
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)W)) * ((int64_t)M))) + (((int64_t)s) * ((int64_t)W)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
        if (M == (s + 1)) {
          asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
        }
      }
    }
    if ((bool)__cond_0) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if ((bool)__cond_0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(H[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)M))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[16384]))), 1, (M * 4), static_cast<asc_store_l2_cache_mode>(4), (M * 4), (M * 4));
    }
    if (!((bool)__cond_1)) {
      for (int32_t s_1 = 0; s_1 < M; ++s_1) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)W)) * ((int64_t)M))) + (((int64_t)s_1) * ((int64_t)W)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[32768]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
      }
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
}

