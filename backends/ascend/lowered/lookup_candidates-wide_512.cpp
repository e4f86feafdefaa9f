// Lowered by tilelang 0.1.15 from sampling_rows_kernels.py: lookup_candidates(wide=512), source 0a5bd799bd8cac8be1b08d0c.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void lookup_candidates_kernel_simd_vf_0(int32_t J, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) + 63) >> 6); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<float>(tl::limits::kFloatNInf, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 16896)])), 0, v);
  }
}

__simd_vf__ inline void lookup_candidates_kernel_simd_vf_1(int32_t J, int32_t block_idx, int32_t i, int32_t cores, int32_t pieces, __ubuf__ uint8_t* buf_dyn_shmem, int32_t K, int32_t ch) {
  vector_f32 best;
  for (int32_t c = 0; c < ((min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) + 63) >> 6); ++c) {
    auto rest = simd_inst::update_mask_b32((min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) - (c * 64)));
    auto own = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0);
    auto real = simd_inst::vcmps_ge(own, 0, rest);
    best = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 16896)])), 0);
    for (int32_t k = 0; k < min(8192, (K - (ch * 8192))); ++k) {
      auto hit = simd_inst::vcmp_eq(simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[k])), 0), own, real);
      best = simd_inst::vsel(simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(k + 8192)])), 0), best, hit);
    }
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(best, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 16896)])), 0, v);
  }
}

extern "C" __global__ __vector__ void lookup_candidates_kernel(__gm__ int32_t* I, __gm__ int32_t* W, __gm__ float* X, __gm__ float* Y, int32_t J, int32_t K, int32_t cores, int32_t items, int32_t pieces) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(W[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)J)))]))), 1, (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4), (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    lookup_candidates_kernel_simd_vf_0(J, block_idx, i, cores, pieces, buf_dyn_shmem);
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    for (int32_t ch = 0; ch < ((K + 8191) >> 13); ++ch) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(I[((((int64_t)ch) * (int64_t)8192) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)K)))]))), 1, (min(8192, (K - (ch * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (K - (ch * 8192))) * 4), (min(8192, (K - (ch * 8192))) * 4));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch) * (int64_t)8192) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)K)))]))), 1, (min(8192, (K - (ch * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (K - (ch * 8192))) * 4), (min(8192, (K - (ch * 8192))) * 4));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      lookup_candidates_kernel_simd_vf_1(J, block_idx, i, cores, pieces, buf_dyn_shmem, K, ch);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)pieces)) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)pieces)) * ((int64_t)J)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[16896]))), 1, (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4), (min(512, (J - (((((int32_t)block_idx) + (i * cores)) % pieces) * 512))) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}

