// Lowered by tilelang 0.1.15 from embed_kernels.py: gather_rows(chunk=32768), source 60f7d6ca298096fcb5727909.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void gather_rows_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < 128; ++c) {
    vector_bool v = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<uint8_t>((uint8_t)0, v, MODE_ZEROING), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((c * 256) + 65536)])), 0, v);
  }
}

extern "C" __global__ __vector__ void gather_rows_kernel(__gm__ int32_t* R, __gm__ uint8_t* X, __gm__ uint8_t* Y, int32_t N, int32_t W, int32_t cores, int32_t items, int32_t pieces) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  int32_t x_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  x_version_counter_1 = 0;
  gather_rows_kernel_simd_vf_0(buf_dyn_shmem);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t p = 0;
    p = R[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces))];
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)((0 <= p) && (p < N)));
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[((x_version_counter_1 & 1) * 32768)]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + (((int64_t)p) * ((int64_t)W)))]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if (!((bool)__cond_0)) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)W)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[65536]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)32768) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)W)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[((x_version_counter_1 & 1) * 32768)]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      x_version_counter_1 = (x_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

