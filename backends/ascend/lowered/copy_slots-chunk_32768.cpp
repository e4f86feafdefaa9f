// Lowered by tilelang 0.1.15 from moves_kernels.py: copy_slots(chunk=32768), source 72469e666a8b794e6eb869bb.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void copy_slots_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < 128; ++c) {
    vector_bool v = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<uint8_t>((uint8_t)0, v, MODE_ZEROING), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((c * 256) + 32768)])), 0, v);
  }
}

extern "C" __global__ __vector__ void copy_slots_kernel(__gm__ int32_t* PAIRS, __gm__ uint8_t* POOL, int32_t W, int32_t cores, int32_t items, int32_t pieces, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  copy_slots_kernel_simd_vf_0(buf_dyn_shmem);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t source = 0;
    source = PAIRS[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * (int64_t)2)];
    int64_t begin = (int64_t)0;
    begin = ((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)32768) + (((int64_t)source) * stride));
    int32_t target = 0;
    target = PAIRS[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * (int64_t)2) + (int64_t)1)];
    int64_t into = (int64_t)0;
    into = ((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)32768) + (((int64_t)target) * stride));
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)(0 <= target));
    int8_t __cond_0 = ((int8_t)(bool)0);
    if ((bool)__cond_1) {
      __cond_0 = ((int8_t)(0 <= source));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), (__gm__ uint8_t*)((&(POOL[((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)32768) + (((int64_t)source) * stride))]))), 1, ((int64_t)min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768)))), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), ((int64_t)min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768)))), ((int64_t)min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768)))));
      }
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if ((bool)__cond_1) {
      if (!((bool)__cond_0)) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(POOL[((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)32768) + (((int64_t)target) * stride))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[32768]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
      }
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(POOL[((((int64_t)((((int32_t)block_idx) + (i * cores)) % pieces)) * (int64_t)32768) + (((int64_t)target) * stride))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[0]))), 1, min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), static_cast<asc_store_l2_cache_mode>(4), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))), min(32768, (W - (((((int32_t)block_idx) + (i * cores)) % pieces) * 32768))));
      }
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

