// Lowered by tilelang 0.1.15 from records_kernels.py: store_entries(most=2048, pairs=256, record='fp4_16'), source db49479890f7ff73e2432475.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void store_entries_kernel_simd_vf_0(int32_t turned, __ubuf__ uint8_t* buf_dyn_shmem, int32_t K, int32_t table_version_counter_1) {
  for (int32_t c = 0; c < ((turned + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((turned - (c * 64)));
    auto t = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 1024)])), 0);
    auto v = simd_inst::vdintlv(t, t);
    auto v_1 = simd_inst::vintlv(v.v0, v.v0);
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto v_3 = simd_inst::vintlv(simd_inst::vmuls(v.v1, float(-0x1p+0f/*-1.000000e+00*/), v_2, MODE_ZEROING), v.v1);
    vector_bool v_4 = asc_create_mask_b16(PAT_ALL);
    auto v_5 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((c * 64) + K) - turned)])), 0), v_4, PART_EVEN, MODE_ZEROING);
    auto v_6 = simd_inst::vdintlv(v_5, v_5);
    auto v_7 = simd_inst::vintlv(v_6.v1, v_6.v0);
    auto y = simd_inst::vadd(simd_inst::vmul(v_5, v_1.v0, some, MODE_ZEROING), simd_inst::vmul(v_7.v0, v_3.v0, some, MODE_ZEROING), some, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(y, v_4, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((c * 64) + K) - turned)])), 0, some);
  }
  simd_inst::mem_bar(VST_VLD);
  vector_bool eight = asc_create_mask_b32(PAT_VL8);
  for (int32_t c_1 = 0; c_1 < ((K + 63) >> 6); ++c_1) {
    auto some_1 = simd_inst::update_mask_b32((K - (c_1 * 64)));
    vector_bool v_8 = asc_create_mask_b16(PAT_ALL);
    auto v_9 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(c_1 * 64)])), 0), v_8, PART_EVEN, MODE_ZEROING);
    vector_bool v_10 = asc_create_mask_b32(PAT_ALL);
    auto size = simd_inst::vand((*(vector_s32 *)(&(v_9))), simd_inst::vdup<int32_t>(2147483647, v_10, MODE_ZEROING), v_10, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vcgmax(size, some_1, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 8) + 2112)])), 0, eight);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g = 0; g < ((K + 511) >> 9); ++g) {
    auto some_2 = simd_inst::update_mask_b32(min(((K >> 4) - (g * 32)), 32));
    auto v_11 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 2112)])), 0);
    auto v_12 = simd_inst::vdintlv(v_11, v_11);
    vector_bool v_13 = asc_create_mask_b32(PAT_ALL);
    auto largest = simd_inst::vmaxs(simd_inst::vmax(v_12.v0, v_12.v1, v_13, MODE_ZEROING), 1010827264, v_13, MODE_ZEROING);
    auto number = simd_inst::vcmps_le(largest, 2139095040, v_13);
    auto sixth = simd_inst::vmins(simd_inst::vmuls((*(vector_f32 *)(&(largest))), float(0x1.555556p-3f/*1.666667e-01*/), v_13, MODE_ZEROING), float(0x1.cp+8f/*4.480000e+02*/), v_13, MODE_ZEROING);
    auto clean = simd_inst::vsel(sixth, simd_inst::vdup<float>(float(0x1.cp+8f/*4.480000e+02*/), v_13, MODE_ZEROING), number);
    vector_bool v_14 = asc_create_mask_b8(PAT_ALL);
    auto code = simd_inst::vcvt<fp8_e4_t>(clean, v_14, ROUND_R, RS_ENABLE, PART_P0, MODE_ZEROING);
    auto byte = simd_inst::vsel((*(vector_s32 *)(&(code))), simd_inst::vdup<int32_t>(127, v_13, MODE_ZEROING), number);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((((table_version_counter_1 & 1) * 160) + (g * 32)) + 11008)])), 0, some_2);
    auto factor = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v_13, MODE_ZEROING), simd_inst::vcvt<float>(code, v_14, PART_P0, MODE_ZEROING), v_13, MODE_ZEROING);
    auto one = simd_inst::vsel((*(vector_s32 *)(&(factor))), simd_inst::vdup<int32_t>(2143289344, v_13, MODE_ZEROING), number);
    auto v_15 = simd_inst::vintlv(one, one);
    simd_inst::vsts_norm(v_15.v0, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((g * 64) + 2432)])), 0, v_13);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_2 = 0; c_2 < ((K + 63) >> 6); ++c_2) {
    auto some_3 = simd_inst::update_mask_b32(min(((K >> 1) - (c_2 * 32)), 32));
    vector_bool v_16 = asc_create_mask_b16(PAT_ALL);
    auto v_17 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(c_2 * 64)])), 0), v_16, PART_EVEN, MODE_ZEROING);
    auto factor_1 = simd_inst::vlds_brc_elem2datablock<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_2 * 8) + 2432)])), 0);
    vector_bool v_18 = asc_create_mask_b32(PAT_ALL);
    auto bad = simd_inst::vcmps_eq(factor_1, 2143289344, v_18);
      vector_f32 v_ = simd_inst::vmul(v_17, (*(vector_f32 *)(&(factor_1))), v_18, MODE_ZEROING);
    auto bits = (*(vector_s32 *)(&(v_)));
      vector_s32 v__1 = simd_inst::vand(bits, simd_inst::vdup<int32_t>(2147483647, v_18, MODE_ZEROING), v_18, MODE_ZEROING);
    auto size_1 = (*(vector_f32 *)(&(v__1)));
    auto most = simd_inst::vmins(size_1, float(0x1.8p+2f/*6.000000e+00*/), v_18, MODE_ZEROING);
    auto above2 = simd_inst::vcmps_ge(most, float(0x1p+1f/*2.000000e+00*/), v_18);
    auto above4 = simd_inst::vcmps_ge(most, float(0x1p+2f/*4.000000e+00*/), v_18);
    auto upper = simd_inst::vsel(simd_inst::vdup<float>(float(0x1.8p+24f/*2.516582e+07*/), v_18, MODE_ZEROING), simd_inst::vdup<float>(float(0x1.8p+23f/*1.258291e+07*/), v_18, MODE_ZEROING), above4);
    auto step = simd_inst::vsel(upper, simd_inst::vdup<float>(float(0x1.8p+22f/*6.291456e+06*/), v_18, MODE_ZEROING), above2);
    auto upper_base = simd_inst::vsel(simd_inst::vdup<int32_t>(1270874108, v_18, MODE_ZEROING), simd_inst::vdup<int32_t>(1262485502, v_18, MODE_ZEROING), above4);
    auto base = simd_inst::vsel(upper_base, simd_inst::vdup<int32_t>(1254096896, v_18, MODE_ZEROING), above2);
      vector_f32 v__2 = simd_inst::vadd(most, step, v_18, MODE_ZEROING);
    auto code_1 = simd_inst::vsub((*(vector_s32 *)(&(v__2))), base, v_18, MODE_ZEROING);
    auto sign = simd_inst::vand(simd_inst::vshrs(bits, (int16_t)28, v_18, MODE_ZEROING), simd_inst::vdup<int32_t>(8, v_18, MODE_ZEROING), v_18, MODE_ZEROING);
    auto whole = simd_inst::vsel(simd_inst::vdup<int32_t>(0, v_18, MODE_ZEROING), simd_inst::vadd(code_1, sign, v_18, MODE_ZEROING), bad);
    auto v_19 = simd_inst::vdintlv(whole, whole);
    auto byte_1 = simd_inst::vadd(v_19.v0, simd_inst::vshls(v_19.v1, (int16_t)4, v_18, MODE_ZEROING), v_18, MODE_ZEROING);
    simd_inst::vsts_pack_quarter((*(vector_u8 *)(&(byte_1))), (__ubuf__ uint8_t*)(&(buf_dyn_shmem[((c_2 * 32) + 6400)])), 0, some_3);
  }
}

extern "C" __global__ __vector__ void store_entries_kernel(__gm__ float* ANGLE, __gm__ int32_t* AT, __gm__ int32_t* BLOCKS, __gm__ int32_t* OWNER, __gm__ uint8_t* PAGES, __gm__ bfloat16_t* X, int32_t B, int32_t K, int32_t code_pitch, int32_t cores, int32_t m, int32_t ratio, int32_t scale_offset, int32_t scale_pitch, int64_t stride, int32_t turned) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  int32_t table_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  table_version_counter_1 = 0;
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t owner = 0;
    owner = OWNER[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int32_t p = 0;
    p = AT[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)((0 <= owner) && (((p + 1) % ratio) == 0)));
    int32_t column = 0;
    if ((bool)__cond_0) {
      column = ((((p + 1) / ratio) - 1) / (128 / ratio));
    }
    int32_t slot = 0;
    if ((bool)__cond_0) {
      slot = ((((p + 1) / ratio) - 1) % (128 / ratio));
    }
    int64_t page = (int64_t)0;
    if ((bool)__cond_0) {
      int32_t condval;
      if (((0 <= ((((p + 1) / ratio) - 1) / (128 / ratio))) && (0 <= owner))) {
        condval = BLOCKS[((((int64_t)owner) * ((int64_t)B)) + ((((((int64_t)p) + (int64_t)1) / ((int64_t)ratio)) - (int64_t)1) / ((int64_t)128 / ((int64_t)ratio))))];
      } else {
        condval = 0;
      }
      page = (((int64_t)condval) * stride);
    }
    int64_t codes = (int64_t)0;
    if ((bool)__cond_0) {
      codes = (page + ((int64_t)(((((p + 1) / ratio) - 1) % (128 / ratio)) * code_pitch)));
    }
    int64_t scales = (int64_t)0;
    if ((bool)__cond_0) {
      scales = ((page + ((int64_t)scale_offset)) + ((int64_t)(((((p + 1) / ratio) - 1) % (128 / ratio)) * scale_pitch)));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)K))]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[1024]))), (__gm__ uint8_t*)((&(ANGLE[(((((int64_t)p) + (int64_t)1) - ((int64_t)ratio)) * ((int64_t)turned))]))), 1, (turned * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (turned * 4), (turned * 4));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      store_entries_kernel_simd_vf_0(turned, buf_dyn_shmem, K, table_version_counter_1);
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(PAGES[(page + ((int64_t)(((((p + 1) / ratio) - 1) % (128 / ratio)) * code_pitch)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[6400]))), 1, (K >> 1), static_cast<asc_store_l2_cache_mode>(4), (K >> 1), (K >> 1));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if ((bool)__cond_0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(PAGES[((page + ((int64_t)scale_offset)) + ((int64_t)(((((p + 1) / ratio) - 1) % (128 / ratio)) * scale_pitch)))]))), (__ubuf__ uint8_t*)((&(buf_dyn_shmem[(((table_version_counter_1 & 1) * 160) + 11008)]))), 1, (K >> 4), static_cast<asc_store_l2_cache_mode>(4), (K >> 4), (K >> 4));
    }
    if ((bool)__cond_0) {
      table_version_counter_1 = (table_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

