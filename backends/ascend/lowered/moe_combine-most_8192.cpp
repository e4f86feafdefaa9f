// Lowered by tilelang 0.1.15 from moe_kernels.py: moe_combine(most=8192), source cf1015555b297a0bdf3d4234.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void moe_combine_kernel_simd_vf_0(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0, v);
  }
}

__simd_vf__ inline void moe_combine_kernel_simd_vf_1(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((D - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto v_1 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), v_1, some, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0, some);
  }
}

__simd_vf__ inline void moe_combine_kernel_simd_vf_2(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    auto rest = simd_inst::update_mask_b32((D - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0), v, PART_EVEN, MODE_ZEROING);
    auto z = simd_inst::vcvt<bfloat16_t>(simd_inst::vadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), u, rest, MODE_ZEROING), v, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_pack_b32(z, (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0, rest);
  }
}

extern "C" __global__ __vector__ void moe_combine_kernel(__gm__ bfloat16_t* H, __gm__ int32_t* P, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t cores, int32_t k, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(H[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    moe_combine_kernel_simd_vf_0(D, buf_dyn_shmem);
    for (int32_t j = 0; j < k; ++j) {
      int32_t p = P[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)k)) + ((int64_t)j))];
      if (0 <= p) {
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(X[(((int64_t)p) * ((int64_t)D))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
        asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        moe_combine_kernel_simd_vf_1(D, buf_dyn_shmem);
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    moe_combine_kernel_simd_vf_2(D, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), 1, (D * 2), static_cast<asc_store_l2_cache_mode>(4), (D * 2), (D * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}

