// Lowered by tilelang 0.1.15 from norm_kernels.py: rms_norm(most=8192), source fa39cc86cce54e8527823528.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void rms_norm_kernel_simd_vf_0(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem, float width, float eps, int32_t i) {
  vector_f32 total;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  total = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((D - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto v_2 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    total = simd_inst::vadd(total, simd_inst::vmul(v_2, v_2, some, MODE_ZEROING), v, MODE_ZEROING);
  }
  auto mean = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdupv(simd_inst::vcadd(total, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), simd_inst::vdup<float>(width, v, MODE_ZEROING), v, MODE_ZEROING);
  auto root = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vsqrt(simd_inst::vadds(mean, eps, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
  for (int32_t c_1 = 0; c_1 < ((D + 63) >> 6); ++c_1) {
    auto rest = simd_inst::update_mask_b32((D - (c_1 * 64)));
    vector_bool v_3 = asc_create_mask_b16(PAT_ALL);
    auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 16384)])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto g = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 24576)])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto z = simd_inst::vmul(simd_inst::vmul(u, root, rest, MODE_ZEROING), g, rest, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(z, v_3, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c_1 * 64))])), 0, rest);
  }
}

extern "C" __global__ __vector__ void rms_norm_kernel(__gm__ bfloat16_t* W, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t cores, float eps, int32_t m, int64_t stride, float width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(W[0]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * stride)]))), 1, (((int64_t)D) * (int64_t)2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)D) * (int64_t)2), (((int64_t)D) * (int64_t)2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    rms_norm_kernel_simd_vf_0(D, buf_dyn_shmem, width, eps, i);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 8192)]))), 1, (D * 2), static_cast<asc_store_l2_cache_mode>(4), (D * 2), (D * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

