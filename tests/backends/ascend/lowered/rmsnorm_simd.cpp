// Lowered from ascend_kernels.py: rmsnorm_simd(), source ff934ee01959ffc54ac05f4f.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void rmsnorm_simd_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_f32 acc;
  for (int32_t r = 0; r < 4; ++r) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    acc = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
    for (int32_t c = 0; c < 2; ++c) {
      auto v_1 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((r * 128) + (c * 64))])), 0);
      acc = simd_inst::vadd(acc, simd_inst::vmul(v_1, v_1, v, MODE_ZEROING), v, MODE_ZEROING);
    }
    auto tot = simd_inst::vdupv(simd_inst::vcadd(acc, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING);
    auto ms = simd_inst::vadds(simd_inst::vmuls(tot, float(0x1p-7f/*7.812500e-03*/), v, MODE_ZEROING), float(0x1.0c6f7a0b5ed8dp-20f/*1.000000e-06*/), v, MODE_ZEROING);
    auto inv = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vsqrt(ms, v, MODE_ZEROING), v, MODE_ZEROING);
    for (int32_t c_1 = 0; c_1 < 2; ++c_1) {
      auto v_2 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((r * 128) + (c_1 * 64))])), 0);
      auto g = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c_1 * 64) + 1024)])), 0);
      simd_inst::vsts_norm(simd_inst::vmul(simd_inst::vmul(v_2, inv, v, MODE_ZEROING), g, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((r * 128) + (c_1 * 64)) + 512)])), 0, v);
    }
  }
}

extern "C" __global__ __vector__ void rmsnorm_simd_kernel(__gm__ float* W, __gm__ float* X, __gm__ float* Y, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[1024]))), (__gm__ uint8_t*)((&(W[0]))), 1, 512, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 512, 512);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t w = 0; w < (((((((((m + 3) >> 2) - 1) / max(1, min(8, ((m + 3) >> 2)))) + (((((m + 3) >> 2) - 1) % max(1, min(8, ((m + 3) >> 2)))) >> 31)) + 1) * max(1, min(8, ((m + 3) >> 2)))) + 1) >> 1); ++w) {
    if ((((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) + (((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2))))) < ((m + 3) >> 2)) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)512) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)512))]))), 1, (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      rmsnorm_simd_kernel_simd_vf_0(buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)512) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)512))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[512]))), 1, (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), static_cast<asc_store_l2_cache_mode>(4), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512));
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

