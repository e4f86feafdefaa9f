// Lowered by tilelang 0.1.15 from hyper_connections_kernels.py: hc_mix(streams=4), source bb9e659b087dda17eeaf5954.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void hc_mix_kernel_simd_vf_0(int32_t m, int32_t block_idx, int32_t i, int32_t cores, int32_t n, __ubuf__ uint8_t* buf_dyn_shmem, float channels, float norm_eps, float eps, int32_t steps) {
  vector_f32 top;
  vector_f32 total;
  vector_f32 total_1;
  vector_f32 total_2;
  vector_f32 total_3;
  auto some = simd_inst::update_mask_b32(min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))));
  auto lane = simd_inst::vci<int32_t>(0, INC_ORDER);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto row = simd_inst::vmuls(lane, (((n + 2) * n) + 1), v, MODE_ZEROING);
    vector_s32 v_ = simd_inst::vadds(row, ((n + 2) * n), v, MODE_ZEROING);
  auto last = (*(vector_u32 *)(&(v_)));
  auto squares = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), last, some);
  auto mean = simd_inst::vdiv_0ulp_ftz_true(squares, simd_inst::vdup<float>(channels, v, MODE_ZEROING), v, MODE_ZEROING);
  auto one = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
  auto root = simd_inst::vdiv_0ulp_ftz_true(one, simd_inst::vsqrt(simd_inst::vadds(mean, norm_eps, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
  for (int32_t j = 0; j < n; ++j) {
      vector_s32 v__1 = simd_inst::vadds(simd_inst::vmuls(lane, n, v, MODE_ZEROING), j, v, MODE_ZEROING);
    auto to = (*(vector_u32 *)(&(v__1)));
    auto v_1 = simd_inst::vadds(row, j, v, MODE_ZEROING);
    auto v_2 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_1))), some);
    auto v_3 = simd_inst::vmul(v_2, root, v, MODE_ZEROING);
    auto v_4 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[4224])), 0);
    auto v_5 = simd_inst::vmul(v_3, v_4, v, MODE_ZEROING);
    auto v_6 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(j + 4160)])), 0);
    auto v_7 = simd_inst::vadd(v_5, v_6, v, MODE_ZEROING);
    auto v_8 = simd_inst::vmuls(v_7, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING);
    auto v_9 = simd_inst::vexp(v_8, v, MODE_ZEROING);
    auto v_10 = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto v_11 = simd_inst::vadds(v_9, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto open_ = simd_inst::vdiv_0ulp_ftz_true(v_10, v_11, v, MODE_ZEROING);
    simd_inst::vscatter(simd_inst::vadds(open_, eps, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[3648])), to, some);
    auto v_12 = simd_inst::vadds(row, (n + j), v, MODE_ZEROING);
    auto v_13 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_12))), some);
    auto v_14 = simd_inst::vmul(v_13, root, v, MODE_ZEROING);
    auto v_15 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[4225])), 0);
    auto v_16 = simd_inst::vmul(v_14, v_15, v, MODE_ZEROING);
    auto v_17 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((n + j) + 4160)])), 0);
    auto v_18 = simd_inst::vadd(v_16, v_17, v, MODE_ZEROING);
    auto v_19 = simd_inst::vmuls(v_18, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING);
    auto v_20 = simd_inst::vexp(v_19, v, MODE_ZEROING);
    auto v_21 = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto v_22 = simd_inst::vadds(v_20, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto left = simd_inst::vdiv_0ulp_ftz_true(v_21, v_22, v, MODE_ZEROING);
    simd_inst::vscatter(simd_inst::vmuls(left, float(0x1p+1f/*2.000000e+00*/), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[3904])), to, some);
  }
  for (int32_t j_1 = 0; j_1 < (n * n); ++j_1) {
    auto v_23 = simd_inst::vadds(row, ((n * 2) + j_1), v, MODE_ZEROING);
    auto v_24 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_23))), some);
    auto v_25 = simd_inst::vmul(v_24, root, v, MODE_ZEROING);
    auto v_26 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[4226])), 0);
    auto v_27 = simd_inst::vmul(v_25, v_26, v, MODE_ZEROING);
    auto v_28 = simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((n * 2) + j_1) + 4160)])), 0);
    auto v_29 = simd_inst::vadd(v_27, v_28, v, MODE_ZEROING);
    simd_inst::vsts_norm(v_29, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((j_1 * 64) + 1600)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t j_2 = 0; j_2 < n; ++j_2) {
    top = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((j_2 * n) * 64) + 1600)])), 0);
    for (int32_t k = 1; k < n; ++k) {
      top = simd_inst::vmax(top, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((j_2 * n) * 64) + (k * 64)) + 1600)])), 0), v, MODE_ZEROING);
    }
    for (int32_t k_1 = 0; k_1 < n; ++k_1) {
      simd_inst::vsts_norm(simd_inst::vexp(simd_inst::vsub(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((j_2 * n) * 64) + (k_1 * 64)) + 1600)])), 0), top, v, MODE_ZEROING), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((j_2 * n) * 64) + (k_1 * 64)) + 1600)])), 0, v);
    }
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t a = 0; a < n; ++a) {
    total = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((a * n) * 64) + 1600)])), 0);
    for (int32_t b = 1; b < n; ++b) {
      total = simd_inst::vadd(total, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a * n) * 64) + (b * 64)) + 1600)])), 0), v, MODE_ZEROING);
    }
    total = simd_inst::vadds(total, float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
    for (int32_t b_1 = 0; b_1 < n; ++b_1) {
      simd_inst::vsts_norm(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a * n) * 64) + (b_1 * 64)) + 1600)])), 0), total, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a * n) * 64) + (b_1 * 64)) + 1600)])), 0, v);
    }
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t j_3 = 0; j_3 < (n * n); ++j_3) {
    simd_inst::vsts_norm(simd_inst::vadds(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((j_3 * 64) + 1600)])), 0), eps, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((j_3 * 64) + 1600)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t a_1 = 0; a_1 < n; ++a_1) {
    total_1 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((a_1 * 64) + 1600)])), 0);
    for (int32_t b_2 = 1; b_2 < n; ++b_2) {
      total_1 = simd_inst::vadd(total_1, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_2 * n) * 64) + (a_1 * 64)) + 1600)])), 0), v, MODE_ZEROING);
    }
    total_1 = simd_inst::vadds(total_1, eps, v, MODE_ZEROING);
    for (int32_t b_3 = 0; b_3 < n; ++b_3) {
      simd_inst::vsts_norm(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_3 * n) * 64) + (a_1 * 64)) + 1600)])), 0), total_1, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_3 * n) * 64) + (a_1 * 64)) + 1600)])), 0, v);
    }
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t _s = 0; _s < (steps - 1); ++_s) {
    for (int32_t a_2 = 0; a_2 < n; ++a_2) {
      total_2 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((a_2 * n) * 64) + 1600)])), 0);
      for (int32_t b_4 = 1; b_4 < n; ++b_4) {
        total_2 = simd_inst::vadd(total_2, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a_2 * n) * 64) + (b_4 * 64)) + 1600)])), 0), v, MODE_ZEROING);
      }
      total_2 = simd_inst::vadds(total_2, eps, v, MODE_ZEROING);
      for (int32_t b_5 = 0; b_5 < n; ++b_5) {
        simd_inst::vsts_norm(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a_2 * n) * 64) + (b_5 * 64)) + 1600)])), 0), total_2, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((a_2 * n) * 64) + (b_5 * 64)) + 1600)])), 0, v);
      }
    }
    simd_inst::mem_bar(VST_VLD);
    for (int32_t a_3 = 0; a_3 < n; ++a_3) {
      total_3 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((a_3 * 64) + 1600)])), 0);
      for (int32_t b_6 = 1; b_6 < n; ++b_6) {
        total_3 = simd_inst::vadd(total_3, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_6 * n) * 64) + (a_3 * 64)) + 1600)])), 0), v, MODE_ZEROING);
      }
      total_3 = simd_inst::vadds(total_3, eps, v, MODE_ZEROING);
      for (int32_t b_7 = 0; b_7 < n; ++b_7) {
        simd_inst::vsts_norm(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_7 * n) * 64) + (a_3 * 64)) + 1600)])), 0), total_3, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((b_7 * n) * 64) + (a_3 * 64)) + 1600)])), 0, v);
      }
    }
    simd_inst::mem_bar(VST_VLD);
  }
  for (int32_t j_4 = 0; j_4 < (n * n); ++j_4) {
      vector_s32 v__2 = simd_inst::vadds(simd_inst::vmuls(lane, (n * n), v, MODE_ZEROING), j_4, v, MODE_ZEROING);
    auto into = (*(vector_u32 *)(&(v__2)));
    simd_inst::vscatter(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((j_4 * 64) + 1600)])), 0), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[2624])), into, some);
  }
}

extern "C" __global__ __vector__ void hc_mix_kernel(__gm__ float* A, __gm__ float* B, __gm__ float* COMB, __gm__ float* POST, __gm__ float* PRE, __gm__ float* W, int32_t N, float channels, int32_t cores, float eps, int32_t items, int32_t m, int32_t n, float norm_eps, int32_t steps) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  if (0 < N) {
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[4160]))), (__gm__ uint8_t*)((&(B[0]))), 1, (N * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (N * 4), (N * 4));
  }
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[4224]))), (__gm__ uint8_t*)((&(A[0]))), 1, 12, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 12, 12);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t width = 0;
    width = (((n + 2) * n) + 1);
    int64_t at = (int64_t)0;
    at = (((((int64_t)((int32_t)block_idx)) * (int64_t)64) + (((int64_t)(i * cores)) * (int64_t)64)) * (((int64_t)((n + 2) * n)) + (int64_t)1));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(W[(((((int64_t)((int32_t)block_idx)) * (int64_t)64) + (((int64_t)(i * cores)) * (int64_t)64)) * (((int64_t)((n + 2) * n)) + (int64_t)1))]))), 1, (((int64_t)(min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * (((n + 2) * n) + 1))) * (int64_t)4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)(min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * (((n + 2) * n) + 1))) * (int64_t)4), (((int64_t)(min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * (((n + 2) * n) + 1))) * (int64_t)4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    hc_mix_kernel_simd_vf_0(m, block_idx, i, cores, n, buf_dyn_shmem, channels, norm_eps, eps, steps);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(COMB[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)n)) * ((int64_t)n)) * (int64_t)64)]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[2624]))), 1, (((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * n) * 4), static_cast<asc_store_l2_cache_mode>(4), (((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * n) * 4), (((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * n) * 4));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(POST[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)n)) * (int64_t)64)]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[3904]))), 1, ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4), static_cast<asc_store_l2_cache_mode>(4), ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4), ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(PRE[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)n)) * (int64_t)64)]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[3648]))), 1, ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4), static_cast<asc_store_l2_cache_mode>(4), ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4), ((min(64, ((m - (((int32_t)block_idx) * 64)) - ((i * cores) * 64))) * n) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

