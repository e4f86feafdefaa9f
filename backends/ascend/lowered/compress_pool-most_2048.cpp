// Lowered by tilelang 0.1.15 from kv_kernels.py: compress_pool(most=2048), source d7304b1d02274d2861014f1a.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void compress_pool_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < 16; ++c) {
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<bfloat16_t>(bfloat16_t(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 128) + 22528)])), 0, v);
  }
}

__simd_vf__ inline void compress_pool_kernel_simd_vf_1(int32_t d, __ubuf__ uint8_t* buf_dyn_shmem, int32_t older_version_counter_1) {
  for (int32_t c = 0; c < ((d + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((d - (c * 64)));
    auto g0 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 4096)])), 0);
    auto g1 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((older_version_counter_1 & 1) * 2048) + (c * 64))])), 0);
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto most_gate = simd_inst::vmax(g0, g1, v, MODE_ZEROING);
    auto w0 = simd_inst::vexp(simd_inst::vsub(g0, most_gate, v, MODE_ZEROING), v, MODE_ZEROING);
    auto w1 = simd_inst::vexp(simd_inst::vsub(g1, most_gate, v, MODE_ZEROING), v, MODE_ZEROING);
    auto total = simd_inst::vadd(w0, w1, v, MODE_ZEROING);
    auto u0 = simd_inst::vmul(simd_inst::vdiv_0ulp_ftz_true(w0, total, v, MODE_ZEROING), simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 6144)])), 0), some, MODE_ZEROING);
    auto u1 = simd_inst::vmul(simd_inst::vdiv_0ulp_ftz_true(w1, total, v, MODE_ZEROING), simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), some, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto z = simd_inst::vcvt<bfloat16_t>(simd_inst::vadd(u0, u1, some, MODE_ZEROING), v_1, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_pack_b32(z, (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 20480)])), 0, some);
  }
}

extern "C" __global__ __vector__ void compress_pool_kernel(__gm__ int32_t* AT, __gm__ float* GATE, __gm__ int32_t* OWNER, __gm__ float* RING, __gm__ int32_t* SLOT, __gm__ int32_t* START, __gm__ float* VALUE, __gm__ bfloat16_t* Y, int32_t L, int32_t cores, int32_t d, int32_t m, int64_t pitch, int64_t plane, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  int32_t older_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  older_version_counter_1 = 0;
  compress_pool_kernel_simd_vf_0(buf_dyn_shmem);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t owner = 0;
    owner = OWNER[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int32_t p = 0;
    p = AT[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)((0 <= owner) && ((p & 1) == 1)));
    int8_t __cond_0 = ((int8_t)(bool)0);
    if ((bool)__cond_1) {
      int32_t condval;
      if ((0 <= owner)) {
        condval = START[owner];
      } else {
        condval = 0;
      }
      __cond_0 = ((int8_t)(condval < p));
    }
    int64_t begin = (int64_t)0;
    if ((bool)__cond_1) {
      if (!((bool)__cond_0)) {
        int32_t condval_1;
        if ((0 <= owner)) {
          condval_1 = SLOT[owner];
        } else {
          condval_1 = 0;
        }
        begin = ((((int64_t)condval_1) * stride) + ((((int64_t)((p - 1) % L)) + ((int64_t)(L & (((p - 1) % L) >> 31)))) * pitch));
      }
    }
    if ((bool)__cond_1) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[((older_version_counter_1 & 1) * 2048)]))), (__gm__ uint8_t*)((&(GATE[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)d))]))), 1, (d * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (d * 4), (d * 4));
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      if (!((bool)__cond_0)) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[4096]))), (__gm__ uint8_t*)((&(RING[begin]))), 1, (((int64_t)d) * (int64_t)4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)d) * (int64_t)4), (((int64_t)d) * (int64_t)4));
      }
    }
    if ((bool)__cond_1) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(VALUE[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)d))]))), 1, (d * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (d * 4), (d * 4));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[6144]))), (__gm__ uint8_t*)((&(VALUE[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) - (int64_t)1) * ((int64_t)d))]))), 1, (d * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (d * 4), (d * 4));
      }
    }
    if ((bool)__cond_1) {
      if (!((bool)__cond_0)) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[6144]))), (__gm__ uint8_t*)((&(RING[(begin + plane)]))), 1, (((int64_t)d) * (int64_t)4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)d) * (int64_t)4), (((int64_t)d) * (int64_t)4));
      }
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[4096]))), (__gm__ uint8_t*)((&(GATE[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) - (int64_t)1) * ((int64_t)d))]))), 1, (d * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (d * 4), (d * 4));
      }
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      compress_pool_kernel_simd_vf_1(d, buf_dyn_shmem, older_version_counter_1);
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if (!((bool)__cond_1)) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)d))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[22528]))), 1, (d * 2), static_cast<asc_store_l2_cache_mode>(4), (d * 2), (d * 2));
    }
    if ((bool)__cond_1) {
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)d))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[20480]))), 1, (d * 2), static_cast<asc_store_l2_cache_mode>(4), (d * 2), (d * 2));
    }
    if ((bool)__cond_1) {
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_1) {
      older_version_counter_1 = (older_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

