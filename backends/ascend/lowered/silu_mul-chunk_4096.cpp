// Lowered by tilelang 0.1.15 from vision_kernels.py: silu_mul(chunk=4096), source 6375322952fb8bf666bbc53e.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void silu_mul_kernel_simd_vf_0(int32_t n, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto gate = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 4096) + (c * 64))])), 0), v, PART_EVEN, MODE_ZEROING);
    auto value = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), v, PART_EVEN, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
    auto below = simd_inst::vadds(simd_inst::vexp(simd_inst::vmuls(gate, float(-0x1p+0f/*-1.000000e+00*/), v_1, MODE_ZEROING), some, MODE_ZEROING), float(0x1p+0f/*1.000000e+00*/), v_1, MODE_ZEROING);
    auto open_ = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v_1, MODE_ZEROING), below, some, MODE_ZEROING);
    auto z = simd_inst::vmul(simd_inst::vmul(gate, open_, some, MODE_ZEROING), value, some, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(z, v, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 12288)])), 0, some);
  }
}

extern "C" __global__ __vector__ void silu_mul_kernel(__gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t N, int32_t cores, int32_t items, int32_t n, int32_t pieces) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 4096)]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)4096) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)N)))]))), 1, (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(X[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)4096) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)N))) + ((int64_t)n))]))), 1, (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    silu_mul_kernel_simd_vf_0(n, block_idx, i, cores, pieces, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)4096) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)n)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[12288]))), 1, (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2), (min(4096, (n - (((((int32_t)block_idx) + (i * cores)) % pieces) * 4096))) * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

