// Lowered by tilelang 0.1.15 from hyper_connections_kernels.py: hc_sums(block=8, lines=24), source c77d44733646e324650bb257.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void hc_sums_kernel_simd_vf_0(int32_t rows, int32_t m, int32_t block_idx, int32_t i, int32_t cores, int32_t n, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t o = 0; o < (min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))) * (n + 1)); ++o) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((o * 64) + 24576)])), 0, v);
  }
}

__simd_vf__ inline void hc_sums_kernel_simd_vf_1(int32_t rows, int32_t m, int32_t block_idx, int32_t i, int32_t cores, __ubuf__ uint8_t* buf_dyn_shmem, int32_t n, int32_t K, int32_t p) {
  vector_f32 square;
  vector_f32 sum;
  for (int32_t b = 0; b < min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))); ++b) {
    square = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b * (n + 1)) * 64) + (n * 64)) + 24576)])), 0);
    for (int32_t c = 0; c < ((min(512, (K - (p * 512))) + 63) >> 6); ++c) {
      auto some = simd_inst::update_mask_b32((min(512, (K - (p * 512))) - (c * 64)));
      vector_bool v = asc_create_mask_b16(PAT_ALL);
      auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((((p + (i * ((K + 511) >> 9))) & 1) * 4096) + (b * 512)) + (c * 64)) + 74752)])), 0), v, PART_EVEN, MODE_ZEROING);
      vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
      simd_inst::vsts_norm(u, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((b * 512) + (c * 64)) + 41472)])), 0, v_1);
      square = simd_inst::vadd(square, simd_inst::vmul(u, u, some, MODE_ZEROING), v_1, MODE_ZEROING);
    }
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(square, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b * (n + 1)) * 64) + (n * 64)) + 24576)])), 0, v_2);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t o = 0; o < n; ++o) {
    for (int32_t b_1 = 0; b_1 < min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))); ++b_1) {
      sum = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_1 * (n + 1)) * 64) + (o * 64)) + 24576)])), 0);
      for (int32_t c_1 = 0; c_1 < ((min(512, (K - (p * 512))) + 63) >> 6); ++c_1) {
        auto rest = simd_inst::update_mask_b32((min(512, (K - (p * 512))) - (c_1 * 64)));
        auto z = simd_inst::vmul(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((b_1 * 512) + (c_1 * 64)) + 41472)])), 0), simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((((p + (i * ((K + 511) >> 9))) & 1) * 12288) + (o * 512)) + (c_1 * 64))])), 0), rest, MODE_ZEROING);
        vector_bool v_3 = asc_create_mask_b32(PAT_ALL);
        sum = simd_inst::vadd(sum, z, v_3, MODE_ZEROING);
      }
      vector_bool v_4 = asc_create_mask_b32(PAT_ALL);
      simd_inst::vsts_norm(sum, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_1 * (n + 1)) * 64) + (o * 64)) + 24576)])), 0, v_4);
    }
  }
}

__simd_vf__ inline void hc_sums_kernel_simd_vf_2(int32_t rows, int32_t m, int32_t block_idx, int32_t i, int32_t cores, int32_t n, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t o = 0; o < (min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))) * (n + 1)); ++o) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_1st(simd_inst::vcadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((o * 64) + 24576)])), 0), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(o + 45568)])), 0, v);
  }
}

extern "C" __global__ __vector__ void hc_sums_kernel(__gm__ float* F, __gm__ float* W, __gm__ bfloat16_t* X, int32_t K, int32_t cores, int32_t items, int32_t m, int32_t n, int32_t rows) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    hc_sums_kernel_simd_vf_0(rows, m, block_idx, i, cores, n, buf_dyn_shmem);
    for (int32_t p = 0; p < ((K + 511) >> 9); ++p) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(((p + (i * ((K + 511) >> 9))) & 1)));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((p + (i * ((K + 511) >> 9))) & 1) * 4096) + 74752)]))), (__gm__ uint8_t*)((&(X[((((int64_t)p) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)rows)) * ((int64_t)K)))]))), min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))), (min(512, (K - (p * 512))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), 1024);
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[(((p + (i * ((K + 511) >> 9))) & 1) * 12288)]))), (__gm__ uint8_t*)((&(F[(((int64_t)p) * (int64_t)512)]))), n, (min(512, (K - (p * 512))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 4), 2048);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(((p + (i * ((K + 511) >> 9))) & 1)));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(((p + (i * ((K + 511) >> 9))) & 1)));
      hc_sums_kernel_simd_vf_1(rows, m, block_idx, i, cores, buf_dyn_shmem, n, K, p);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(((p + (i * ((K + 511) >> 9))) & 1)));
    }
    int64_t at = (int64_t)0;
    at = (((int64_t)((((int32_t)block_idx) + (i * cores)) * rows)) * (((int64_t)n) + (int64_t)1));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    hc_sums_kernel_simd_vf_2(rows, m, block_idx, i, cores, n, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(W[(((int64_t)((((int32_t)block_idx) + (i * cores)) * rows)) * (((int64_t)n) + (int64_t)1))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[45568]))), 1, ((min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))) * (n + 1)) * 4), static_cast<asc_store_l2_cache_mode>(4), ((min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))) * (n + 1)) * 4), ((min(rows, (m - ((((int32_t)block_idx) + (i * cores)) * rows))) * (n + 1)) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

