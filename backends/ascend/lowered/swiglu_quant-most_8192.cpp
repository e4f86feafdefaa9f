// Lowered by tilelang 0.1.15 from moe_activation_kernels.py: swiglu_quant(most=8192), source 0e920f22963a3040809297ca.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void swiglu_quant_kernel_simd_vf_0(float limit, float factor, int32_t K, __ubuf__ uint8_t* buf_dyn_shmem, int32_t i) {
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto high = simd_inst::vdup<float>(limit, v, MODE_ZEROING);
  auto low = simd_inst::vmuls(high, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING);
  auto weight = simd_inst::vdup<float>(factor, v, MODE_ZEROING);
  for (int32_t c = 0; c < ((K + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((K - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto v_2 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c * 64))])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto v_3 = simd_inst::vcmp_gt(v_2, high, v);
    auto g = simd_inst::vsel(high, v_2, v_3);
    auto v_4 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto v_5 = simd_inst::vcmp_gt(v_4, high, v);
    auto v_6 = simd_inst::vsel(high, v_4, v_5);
    auto v_7 = simd_inst::vcmp_lt(v_4, low, v);
    auto u = simd_inst::vsel(low, v_6, v_7);
    auto v_8 = simd_inst::vmuls(g, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING);
    auto v_9 = simd_inst::vexp(v_8, v, MODE_ZEROING);
    auto v_10 = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto v_11 = simd_inst::vadds(v_9, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto v_12 = simd_inst::vdiv_0ulp_ftz_true(v_10, v_11, v, MODE_ZEROING);
    auto v_13 = simd_inst::vmul(g, v_12, v, MODE_ZEROING);
    auto v_14 = simd_inst::vmul(weight, v_13, v, MODE_ZEROING);
    auto value = simd_inst::vmul(v_14, u, v, MODE_ZEROING);
    simd_inst::vsts_norm(value, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0, some);
    auto size = simd_inst::vand((*(vector_s32 *)(&(value))), simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING), v, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(size, some, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 8) + 24576)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g_1 = 0; g_1 < ((K + 511) >> 9); ++g_1) {
    auto some_1 = simd_inst::update_mask_b32(((K >> 5) - (g_1 * 16)));
    auto v_15 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 24576)])), 0);
    auto v_16 = simd_inst::vdintlv(v_15, v_15);
    auto pair = simd_inst::vmax(v_16.v0, v_16.v1, v, MODE_ZEROING);
    auto v_17 = simd_inst::vdintlv(pair, pair);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_17.v0, v_17.v1, v, MODE_ZEROING), 953267991, v, MODE_ZEROING);
    auto exponent = simd_inst::vadds(simd_inst::vshrs(simd_inst::vadds(largest, 2097151, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING), -8, v, MODE_ZEROING);
    auto finite = simd_inst::vcmps_lt(largest, 2139095040, v);
    auto byte = simd_inst::vsel(exponent, simd_inst::vdup<int32_t>(255, v, MODE_ZEROING), finite);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((g_1 * 16) + 107008)])), 0, some_1);
    auto bits = simd_inst::vshls(simd_inst::vsub(simd_inst::vdup<int32_t>(254, v, MODE_ZEROING), exponent, v, MODE_ZEROING), (int16_t)23, v, MODE_ZEROING);
    auto one = simd_inst::vsel(bits, simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING), finite);
    auto v_18 = simd_inst::vintlv(one, one);
    auto v_19 = simd_inst::vintlv(v_18.v0, v_18.v0);
    simd_inst::vsts_norm(v_19.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g_1 * 64) + 25664)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto mask = simd_inst::update_mask_b32((K - (c_1 * 64)));
    auto v_20 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c_1 * 64) + 8192)])), 0);
    auto factor_1 = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 8) + 25664)])), 0);
    auto bad = simd_inst::vcmps_eq(factor_1, 2143289344, v);
    auto scaled = simd_inst::vmul(v_20, (*(vector_f32 *)(&(factor_1))), mask, MODE_ZEROING);
      vector_s32 v_ = simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING);
    auto nan = (*(vector_f32 *)(&(v_)));
    auto clean = simd_inst::vsel(nan, scaled, bad);
    vector_bool v_21 = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_pack_quarter(simd_inst::vcvt<fp8_e4_t>(clean, v_21, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING), (__ubuf__ float8_e4m3_t*)(&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[((((i & 1) * 8192) + (c_1 * 64)) + 81920)])), 0, mask);
  }
}

extern "C" __global__ __vector__ void swiglu_quant_kernel(__gm__ uint8_t* E, __gm__ fp8_e4_t* Q, __gm__ float* W, __gm__ bfloat16_t* X, int32_t K, int32_t cores, float limit, int32_t m, int32_t weighted) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    float factor = float(0x0p+0f/*0.000000e+00*/);
    factor = W[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)weighted))];
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 8192)]))), (__gm__ uint8_t*)((&(X[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K)) * (int64_t)2)]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K)) * (int64_t)2) + ((int64_t)K))]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    swiglu_quant_kernel_simd_vf_0(limit, factor, K, buf_dyn_shmem, i);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(E[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)K) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[107008]))), 1, (K >> 5), static_cast<asc_store_l2_cache_mode>(4), (K >> 5), (K >> 5));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[(((i & 1) * 8192) + 81920)]))), 1, K, static_cast<asc_store_l2_cache_mode>(4), K, K);
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

