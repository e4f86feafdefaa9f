// Lowered by tilelang 0.1.15 from norm_quant_kernels.py: rms_norm_quant(most=8192), source 9d2078cc2ae033af34a41940.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void rms_norm_quant_kernel_simd_vf_0(int32_t K, __ubuf__ uint8_t* buf_dyn_shmem, int32_t i, float width, float eps) {
  vector_f32 total;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  total = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  for (int32_t c = 0; c < ((K + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((K - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto v_2 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c * 64))])), 0), v_1, PART_EVEN, MODE_ZEROING);
    total = simd_inst::vadd(total, simd_inst::vmul(v_2, v_2, some, MODE_ZEROING), v, MODE_ZEROING);
  }
  auto mean = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdupv(simd_inst::vcadd(total, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), simd_inst::vdup<float>(width, v, MODE_ZEROING), v, MODE_ZEROING);
  auto root = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vsqrt(simd_inst::vadds(mean, eps, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto rest = simd_inst::update_mask_b32((K - (c_1 * 64)));
    vector_bool v_3 = asc_create_mask_b16(PAT_ALL);
    auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c_1 * 64))])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto g = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 16384)])), 0), v_3, PART_EVEN, MODE_ZEROING);
    auto z = simd_inst::vmul(simd_inst::vmul(u, root, rest, MODE_ZEROING), g, rest, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(z, v_3, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 24576)])), 0, rest);
  }
  simd_inst::mem_bar(VST_VLD);
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  for (int32_t c_2 = 0; c_2 < ((K + 63) >> 6); ++c_2) {
    auto there = simd_inst::update_mask_b32((K - (c_2 * 64)));
    vector_bool v_4 = asc_create_mask_b16(PAT_ALL);
    auto a = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_2 * 64) + 24576)])), 0), v_4, PART_EVEN, MODE_ZEROING);
    auto size = simd_inst::vand((*(vector_s32 *)(&(a))), simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING), v, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(size, there, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_2 * 8) + 20480)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g_1 = 0; g_1 < ((K + 511) >> 9); ++g_1) {
    auto some_1 = simd_inst::update_mask_b32(((K >> 5) - (g_1 * 16)));
    auto v_5 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 20480)])), 0);
    auto v_6 = simd_inst::vdintlv(v_5, v_5);
    auto pair = simd_inst::vmax(v_6.v0, v_6.v1, v, MODE_ZEROING);
    auto v_7 = simd_inst::vdintlv(pair, pair);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_7.v0, v_7.v1, v, MODE_ZEROING), 953267991, v, MODE_ZEROING);
    auto exponent = simd_inst::vadds(simd_inst::vshrs(simd_inst::vadds(largest, 2097151, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING), -8, v, MODE_ZEROING);
    auto finite = simd_inst::vcmps_lt(largest, 2139095040, v);
    auto byte = simd_inst::vsel(exponent, simd_inst::vdup<int32_t>(255, v, MODE_ZEROING), finite);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((g_1 * 16) + 90624)])), 0, some_1);
    auto bits = simd_inst::vshls(simd_inst::vsub(simd_inst::vdup<int32_t>(254, v, MODE_ZEROING), exponent, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING);
    auto one = simd_inst::vsel(bits, simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING), finite);
    auto v_8 = simd_inst::vintlv(one, one);
    auto v_9 = simd_inst::vintlv(v_8.v0, v_8.v0);
    simd_inst::vsts_norm(v_9.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 21568)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_3 = 0; c_3 < ((K + 63) >> 6); ++c_3) {
    auto mask = simd_inst::update_mask_b32((K - (c_3 * 64)));
    vector_bool v_10 = asc_create_mask_b16(PAT_ALL);
    auto v_11 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_3 * 64) + 24576)])), 0), v_10, PART_EVEN, MODE_ZEROING);
    auto factor = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_3 * 8) + 21568)])), 0);
    auto bad = simd_inst::vcmps_eq(factor, 2143289344, v);
    auto scaled = simd_inst::vmul(v_11, (*(vector_f32 *)(&(factor))), mask, MODE_ZEROING);
      vector_s32 v_ = simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING);
    auto nan = (*(vector_f32 *)(&(v_)));
    auto clean = simd_inst::vsel(nan, scaled, bad);
    vector_bool v_12 = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_pack_quarter(simd_inst::vcvt<fp8_e4_t>(clean, v_12, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING), (__ubuf__ float8_e4m3_t*)(&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[((((i & 1) * 8192) + (c_3 * 64)) + 65536)])), 0, mask);
  }
}

extern "C" __global__ __vector__ void rms_norm_quant_kernel(__gm__ uint8_t* E, __gm__ fp8_e4_t* Q, __gm__ bfloat16_t* W, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t K, int32_t cores, float eps, int32_t m, int64_t stride, float width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(W[0]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 8192)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * stride)]))), 1, (((int64_t)K) * (int64_t)2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)K) * (int64_t)2), (((int64_t)K) * (int64_t)2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    rms_norm_quant_kernel_simd_vf_0(K, buf_dyn_shmem, i, width, eps);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(E[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)K) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[90624]))), 1, (K >> 5), static_cast<asc_store_l2_cache_mode>(4), (K >> 5), (K >> 5));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), 1, (K * 2), static_cast<asc_store_l2_cache_mode>(4), (K * 2), (K * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[(((i & 1) * 8192) + 65536)]))), 1, K, static_cast<asc_store_l2_cache_mode>(4), K, K);
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

