// Lowered by tilelang 0.1.15 from quant_kernels.py: quant_fp8(dtype='bfloat16', most=8192), source 9c8d9c125f643cc93aa22b8a.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void quant_fp8_kernel_simd_vf_0(int32_t K, __ubuf__ uint8_t* buf_dyn_shmem, int32_t i) {
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  for (int32_t c = 0; c < ((K + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((K - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto v_1 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c * 64))])), 0), v, PART_EVEN, MODE_ZEROING);
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto magnitude = simd_inst::vand((*(vector_s32 *)(&(v_1))), simd_inst::vdup<int32_t>(2147483647, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(magnitude, some, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 8) + 10240)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g = 0; g < ((K + 511) >> 9); ++g) {
    auto some_1 = simd_inst::update_mask_b32(((K >> 5) - (g * 16)));
    auto v_3 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 10240)])), 0);
    auto v_4 = simd_inst::vdintlv(v_3, v_3);
    vector_bool v_5 = asc_create_mask_b32(PAT_ALL);
    auto pair = simd_inst::vmax(v_4.v0, v_4.v1, v_5, MODE_ZEROING);
    auto v_6 = simd_inst::vdintlv(pair, pair);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_6.v0, v_6.v1, v_5, MODE_ZEROING), 953267991, v_5, MODE_ZEROING);
    auto exponent = simd_inst::vadds(simd_inst::vshrs(simd_inst::vadds(largest, 2097151, v_5, MODE_ZEROING), (int16_t)23, v_5, MODE_ZEROING), -8, v_5, MODE_ZEROING);
    auto finite = simd_inst::vcmps_lt(largest, 2139095040, v_5);
    auto byte = simd_inst::vsel(exponent, simd_inst::vdup<int32_t>(255, v_5, MODE_ZEROING), finite);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((g * 16) + 49664)])), 0, some_1);
    auto bits = simd_inst::vshls(simd_inst::vsub(simd_inst::vdup<int32_t>(254, v_5, MODE_ZEROING), exponent, v_5, MODE_ZEROING), (int16_t)23, v_5, MODE_ZEROING);
    auto one = simd_inst::vsel(bits, simd_inst::vdup<int32_t>(2143289344, v_5, MODE_ZEROING), finite);
    auto v_7 = simd_inst::vintlv(one, one);
    auto v_8 = simd_inst::vintlv(v_7.v0, v_7.v0);
    simd_inst::vsts_norm(v_8.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 11328)])), 0, v_5);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto mask = simd_inst::update_mask_b32((K - (c_1 * 64)));
    vector_bool v_9 = asc_create_mask_b16(PAT_ALL);
    auto v_10 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 8192) + (c_1 * 64))])), 0), v_9, PART_EVEN, MODE_ZEROING);
    auto factor = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 8) + 11328)])), 0);
    vector_bool v_11 = asc_create_mask_b32(PAT_ALL);
    auto bad = simd_inst::vcmps_eq(factor, 2143289344, v_11);
    auto scaled = simd_inst::vmul(v_10, (*(vector_f32 *)(&(factor))), mask, MODE_ZEROING);
      vector_s32 v_ = simd_inst::vdup<int32_t>(2143289344, v_11, MODE_ZEROING);
    auto nan = (*(vector_f32 *)(&(v_)));
    auto clean = simd_inst::vsel(nan, scaled, bad);
    vector_bool v_12 = asc_create_mask_b8(PAT_ALL);
    simd_inst::vsts_pack_quarter(simd_inst::vcvt<fp8_e4_t>(clean, v_12, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING), (__ubuf__ float8_e4m3_t*)(&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[((c_1 * 64) + 32768)])), 0, mask);
  }
}

extern "C" __global__ __vector__ void quant_fp8_kernel(__gm__ uint8_t* E, __gm__ fp8_e4_t* Q, __gm__ bfloat16_t* X, int32_t K, int32_t cores, int32_t m, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 8192)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * stride)]))), 1, (((int64_t)K) * (int64_t)2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (((int64_t)K) * (int64_t)2), (((int64_t)K) * (int64_t)2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>((i & 1)));
    quant_fp8_kernel_simd_vf_0(K, buf_dyn_shmem, i);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Q[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ fp8_e4_t*)buf_dyn_shmem)[32768]))), 1, K, static_cast<asc_store_l2_cache_mode>(4), K, K);
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(E[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * (((int64_t)K) >> (int64_t)5))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[49664]))), 1, (K >> 5), static_cast<asc_store_l2_cache_mode>(4), (K >> 5), (K >> 5));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

