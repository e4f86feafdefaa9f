// Lowered by tilelang 0.1.15 from records_kernels.py: window_pack(most=4096, pairs=256), source 82f365f5d56f391b0d94cce6.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void window_pack_kernel_simd_vf_0(int32_t turned, __ubuf__ uint8_t* buf_dyn_shmem, int32_t i, int32_t K) {
  for (int32_t c = 0; c < ((turned + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((turned - (c * 64)));
    auto t = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 6144)])), 0);
    auto v = simd_inst::vdintlv(t, t);
    auto v_1 = simd_inst::vintlv(v.v0, v.v0);
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto v_3 = simd_inst::vintlv(simd_inst::vmuls(v.v1, float(-0x1p+0f/*-1.000000e+00*/), v_2, MODE_ZEROING), v.v1);
    vector_bool v_4 = asc_create_mask_b16(PAT_ALL);
    auto v_5 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((((i & 1) * 4096) + (c * 64)) + K) - turned)])), 0), v_4, PART_EVEN, MODE_ZEROING);
    auto v_6 = simd_inst::vdintlv(v_5, v_5);
    auto v_7 = simd_inst::vintlv(v_6.v1, v_6.v0);
    auto y = simd_inst::vadd(simd_inst::vmul(v_5, v_1.v0, some, MODE_ZEROING), simd_inst::vmul(v_7.v0, v_3.v0, some, MODE_ZEROING), some, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(y, v_4, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((((i & 1) * 4096) + (c * 64)) + K) - turned)])), 0, some);
  }
  simd_inst::mem_bar(VST_VLD);
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto some_1 = simd_inst::update_mask_b32((K - (c_1 * 64)));
    vector_bool v_8 = asc_create_mask_b16(PAT_ALL);
    auto v_9 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 4096) + (c_1 * 64))])), 0), v_8, PART_EVEN, MODE_ZEROING);
    vector_bool v_10 = asc_create_mask_b32(PAT_ALL);
    auto size = simd_inst::vand((*(vector_s32 *)(&(v_9))), simd_inst::vdup<int32_t>(2147483647, v_10, MODE_ZEROING), v_10, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(size, some_1, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 8) + 6720)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g = 0; g < ((K + 511) >> 9); ++g) {
    auto some_2 = simd_inst::update_mask_b32(((K >> 5) - (g * 16)));
    auto v_11 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 6720)])), 0);
    auto v_12 = simd_inst::vdintlv(v_11, v_11);
    vector_bool v_13 = asc_create_mask_b32(PAT_ALL);
    auto pair = simd_inst::vmax(v_12.v0, v_12.v1, v_13, MODE_ZEROING);
    auto v_14 = simd_inst::vdintlv(pair, pair);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_14.v0, v_14.v1, v_13, MODE_ZEROING), 953267991, v_13, MODE_ZEROING);
    auto exponent = simd_inst::vadds(simd_inst::vshrs(simd_inst::vadds(largest, 2097151, v_13, MODE_ZEROING), (int16_t)23, v_13, MODE_ZEROING), -8, v_13, MODE_ZEROING);
    auto finite = simd_inst::vcmps_lt(largest, 2139095040, v_13);
    auto byte = simd_inst::vsel(exponent, simd_inst::vdup<int32_t>(255, v_13, MODE_ZEROING), finite);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((((i & 1) * 160) + (g * 16)) + 31488)])), 0, some_2);
    auto bits = simd_inst::vshls(simd_inst::vsub(simd_inst::vdup<int32_t>(254, v_13, MODE_ZEROING), exponent, v_13, MODE_ZEROING), (int16_t)23, v_13, MODE_ZEROING);
    auto one = simd_inst::vsel(bits, simd_inst::vdup<int32_t>(2143289344, v_13, MODE_ZEROING), finite);
    auto v_15 = simd_inst::vintlv(one, one);
    auto v_16 = simd_inst::vintlv(v_15.v0, v_15.v0);
    simd_inst::vsts_norm(v_16.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 7296)])), 0, v_13);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_2 = 0; c_2 < ((K + 63) >> 6); ++c_2) {
    auto some_3 = simd_inst::update_mask_b32((K - (c_2 * 64)));
    vector_bool v_17 = asc_create_mask_b16(PAT_ALL);
    auto v_18 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((i & 1) * 4096) + (c_2 * 64))])), 0), v_17, PART_EVEN, MODE_ZEROING);
    auto factor = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_2 * 8) + 7296)])), 0);
    vector_bool v_19 = asc_create_mask_b32(PAT_ALL);
    auto bad = simd_inst::vcmps_eq(factor, 2143289344, v_19);
    auto scaled = simd_inst::vmul(v_18, (*(vector_f32 *)(&(factor))), some_3, MODE_ZEROING);
    vector_bool v_20 = asc_create_mask_b8(PAT_ALL);
    auto code = simd_inst::vcvt<fp8_e4_t>(scaled, v_20, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING);
    auto byte_1 = simd_inst::vsel(simd_inst::vdup<int32_t>(127, v_19, MODE_ZEROING), (*(vector_s32 *)(&(code))), bad);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte_1))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((((i & 1) * 4096) + (c_2 * 64)) + 16384)])), 0, some_3);
  }
}

extern "C" __global__ __vector__ void window_pack_kernel(__gm__ float* ANGLE, __gm__ int32_t* AT, __gm__ bfloat16_t* X, __gm__ uint8_t* Y, int32_t K, int32_t cores, int32_t m, int32_t turned) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t p = 0;
    p = AT[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((i & 1) * 4096)]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[6144]))), (__gm__ uint8_t*)((&(ANGLE[(((int64_t)p) * ((int64_t)turned))]))), 1, (turned * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (turned * 4), (turned * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    window_pack_kernel_simd_vf_0(turned, buf_dyn_shmem, i, K);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>((i & 1)));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((((int64_t)K) >> (int64_t)5) + ((int64_t)K)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[(((i & 1) * 4096) + 16384)]))), 1, K, static_cast<asc_store_l2_cache_mode>(4), K, K);
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((((int64_t)K) >> (int64_t)5) + ((int64_t)K))) + ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[(((i & 1) * 160) + 31488)]))), 1, (K >> 5), static_cast<asc_store_l2_cache_mode>(4), (K >> 5), (K >> 5));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>((i & 1)));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

