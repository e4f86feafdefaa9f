// Lowered by tilelang 0.1.15 from rope_kernels.py: rope(most=40960, pairs=256), source b51aa01b22e1806f92653533.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void rope_kernel_simd_vf_0(int32_t turned, __ubuf__ uint8_t* buf_dyn_shmem, float sign, int32_t heads, int32_t i, int32_t d) {
  for (int32_t c = 0; c < ((turned + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((turned - (c * 64)));
    auto t = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 40960)])), 0);
    auto v = simd_inst::vdintlv(t, t);
    auto v_1 = simd_inst::vintlv(v.v0, v.v0);
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto down = simd_inst::vmuls(v.v1, (float(-0x1p+0f/*-1.000000e+00*/) * sign), v_2, MODE_ZEROING);
    auto up = simd_inst::vmuls(v.v1, sign, v_2, MODE_ZEROING);
    auto v_3 = simd_inst::vintlv(down, up);
    for (int32_t n = 0; n < heads; ++n) {
      vector_bool v_4 = asc_create_mask_b16(PAT_ALL);
      auto v_5 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((((((int64_t)i) & (int64_t)1) * (int64_t)40960) + (((int64_t)c) * (int64_t)64)) + (((int64_t)n) * ((int64_t)d))) + ((int64_t)d)) - ((int64_t)turned))])), 0), v_4, PART_EVEN, MODE_ZEROING);
      auto v_6 = simd_inst::vdintlv(v_5, v_5);
      auto v_7 = simd_inst::vintlv(v_6.v1, v_6.v0);
      auto y = simd_inst::vadd(simd_inst::vmul(v_5, v_1.v0, some, MODE_ZEROING), simd_inst::vmul(v_7.v0, v_3.v0, some, MODE_ZEROING), some, MODE_ZEROING);
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(y, v_4, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((((((int64_t)i) & (int64_t)1) * (int64_t)40960) + (((int64_t)c) * (int64_t)64)) + (((int64_t)n) * ((int64_t)d))) + ((int64_t)d)) - ((int64_t)turned))])), 0, some);
    }
  }
}

extern "C" __global__ __vector__ void rope_kernel(__gm__ float* C, __gm__ int32_t* P, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t cores, int32_t d, int32_t heads, int32_t m, float sign, int32_t turned, int32_t width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t p = 0;
    p = P[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((i & 1)));
    if (0 < width) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 40960)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)width))]))), 1, (width * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (width * 2), (width * 2));
    }
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[40960]))), (__gm__ uint8_t*)((&(C[(((int64_t)p) * ((int64_t)turned))]))), 1, (turned * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (turned * 4), (turned * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    rope_kernel_simd_vf_0(turned, buf_dyn_shmem, sign, heads, i, d);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    if (0 < width) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)width))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 40960)]))), 1, (width * 2), static_cast<asc_store_l2_cache_mode>(4), (width * 2), (width * 2));
    }
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((i & 1)));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

