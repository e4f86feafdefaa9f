// Lowered by tilelang 0.1.15 from hyper_connections_kernels.py: hc_collapse(chunk=2048, streams=8), source 8725630fbd85eb805ee39268.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void hc_collapse_kernel_simd_vf_0(int32_t D, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem, int32_t n) {
  vector_f32 total;
  for (int32_t c = 0; c < ((min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto v_1 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 16384) + (c * 64))])), 0), v, PART_EVEN, MODE_ZEROING);
    total = simd_inst::vmul(v_1, simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0), some, MODE_ZEROING);
    for (int32_t j = 1; j < n; ++j) {
      auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((i & 1) * 16384) + (j * 2048)) + (c * 64))])), 0), v, PART_EVEN, MODE_ZEROING);
      total = simd_inst::vadd(total, simd_inst::vmul(u, simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(j + 17408)])), 0), some, MODE_ZEROING), some, MODE_ZEROING);
    }
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(total, v, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0, some);
  }
}

extern "C" __global__ __vector__ void hc_collapse_kernel(__gm__ float* W, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t cores, int32_t items, int32_t n, int32_t pieces) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 16384)]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)2048) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)) * ((int64_t)n)))]))), n, (min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), 4096);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[17408]))), (__gm__ uint8_t*)((&(W[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)n))]))), 1, (n * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (n * 4), (n * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    hc_collapse_kernel_simd_vf_0(D, block_idx, i, cores, pieces, buf_dyn_shmem, n);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)2048) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), 1, (min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) * 2), (min(2048, (D - (((((int32_t)block_idx) + (i * cores)) % pieces) * 2048))) * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

