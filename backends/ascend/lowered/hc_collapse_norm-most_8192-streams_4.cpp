// Lowered by tilelang 0.1.15 from hyper_connections_norm_kernels.py: hc_collapse_norm(most=8192, streams=4), source c6ec49e254d4357b8ac22c98.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void hc_collapse_norm_kernel_simd_vf_0(int32_t K, __ubuf__ uint8_t* buf_dyn_shmem, int32_t i, int32_t n, float width, float eps) {
  vector_f32 total;
  vector_f32 sum;
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  total = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  for (int32_t c = 0; c < ((K + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((K - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto first = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 32768) + (c * 64))])), 0), v_1, PART_EVEN, MODE_ZEROING);
    sum = simd_inst::vmul(first, simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[45256])), 0), some, MODE_ZEROING);
    for (int32_t j = 1; j < n; ++j) {
      auto other = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((i & 1) * 32768) + (j * 8192)) + (c * 64))])), 0), v_1, PART_EVEN, MODE_ZEROING);
      sum = simd_inst::vadd(sum, simd_inst::vmul(other, simd_inst::vlds_brc_elem<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(j + 45256)])), 0), some, MODE_ZEROING), some, MODE_ZEROING);
    }
    auto u = simd_inst::vcvt<bfloat16_t>(sum, v_1, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_pack_b32(u, (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 73728)])), 0, some);
    auto v_2 = simd_inst::vcvt<float>(u, v_1, PART_EVEN, MODE_ZEROING);
    total = simd_inst::vadd(total, simd_inst::vmul(v_2, v_2, some, MODE_ZEROING), v, MODE_ZEROING);
  }
  auto mean = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdupv(simd_inst::vcadd(total, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), simd_inst::vdup<float>(width, v, MODE_ZEROING), v, MODE_ZEROING);
  auto root = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vsqrt(simd_inst::vadds(mean, eps, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto rest = simd_inst::update_mask_b32((K - (c_1 * 64)));
    vector_bool v_3 = asc_create_mask_b16(PAT_ALL);
    auto mixed = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 73728)])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto g = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 65536)])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto z = simd_inst::vcvt<bfloat16_t>(simd_inst::vmul(simd_inst::vmul(mixed, root, rest, MODE_ZEROING), g, rest, MODE_ZEROING), v_3, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    simd_inst::vsts_pack_b32(z, (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 73728)])), 0, rest);
      vector_f32 v_ = simd_inst::vcvt<float>(z, v_3, PART_EVEN, MODE_ZEROING);
    auto normed = (*(vector_s32 *)(&(v_)));
    auto size = simd_inst::vand(normed, simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING), v, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(size, rest, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 8) + 43008)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g_1 = 0; g_1 < ((K + 511) >> 9); ++g_1) {
    auto some_1 = simd_inst::update_mask_b32(((K >> 5) - (g_1 * 16)));
    auto v_4 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 43008)])), 0);
    auto v_5 = simd_inst::vdintlv(v_4, v_4);
    auto pair = simd_inst::vmax(v_5.v0, v_5.v1, v, MODE_ZEROING);
    auto v_6 = simd_inst::vdintlv(pair, pair);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_6.v0, v_6.v1, v, MODE_ZEROING), 953267991, v, MODE_ZEROING);
    auto exponent = simd_inst::vadds(simd_inst::vshrs(simd_inst::vadds(largest, 2097151, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING), -8, v, MODE_ZEROING);
    auto finite = simd_inst::vcmps_lt(largest, 2139095040, v);
    auto byte = simd_inst::vsel(exponent, simd_inst::vdup<int32_t>(255, v, MODE_ZEROING), finite);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((g_1 * 16) + 180736)])), 0, some_1);
    auto bits = simd_inst::vshls(simd_inst::vsub(simd_inst::vdup<int32_t>(254, v, MODE_ZEROING), exponent, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING);
    auto one = simd_inst::vsel(bits, simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING), finite);
    auto v_7 = simd_inst::vintlv(one, one);
    auto v_8 = simd_inst::vintlv(v_7.v0, v_7.v0);
    simd_inst::vsts_norm(v_8.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 44096)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_2 = 0; c_2 < ((K + 63) >> 6); ++c_2) {
    auto mask = simd_inst::update_mask_b32((K - (c_2 * 64)));
    vector_bool v_9 = asc_create_mask_b16(PAT_ALL);
    auto v_10 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_2 * 64) + 73728)])), 0), v_9, PART_EVEN, MODE_ZEROING);
    auto factor = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_2 * 8) + 44096)])), 0);
    auto bad = simd_inst::vcmps_eq(factor, 2143289344, v);
    auto scaled = simd_inst::vmul(v_10, (*(vector_f32 *)(&(factor))), mask, MODE_ZEROING);
      vector_s32 v__1 = simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING);
    auto nan = (*(vector_f32 *)(&(v__1)));
    auto clean = simd_inst::vsel(nan, scaled, bad);
    vector_bool v_11 = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_pack_quarter(simd_inst::vcvt<fp8_e4_t>(clean, v_11, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING), (__ubuf__ float8_e4m3_t*)(&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[((c_2 * 64) + 163840)])), 0, mask);
  }
}

extern "C" __global__ __vector__ void hc_collapse_norm_kernel(__gm__ float* A, __gm__ uint8_t* E, __gm__ fp8_e4_t* Q, __gm__ bfloat16_t* W, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t K, int32_t cores, float eps, int32_t m, int32_t n, float width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[65536]))), (__gm__ uint8_t*)((&(W[0]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 32768)]))), (__gm__ uint8_t*)((&(X[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K)) * ((int64_t)n))]))), n, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), 16384);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[45256]))), (__gm__ uint8_t*)((&(A[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)n))]))), 1, (n * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (n * 4), (n * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    hc_collapse_norm_kernel_simd_vf_0(K, buf_dyn_shmem, i, n, width, eps);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[73728]))), 1, (K * 2), static_cast<asc_store_l2_cache_mode>(4), (K * 2), (K * 2));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(E[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)K) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[180736]))), 1, (K >> 5), static_cast<asc_store_l2_cache_mode>(4), (K >> 5), (K >> 5));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[163840]))), 1, K, static_cast<asc_store_l2_cache_mode>(4), K, K);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

