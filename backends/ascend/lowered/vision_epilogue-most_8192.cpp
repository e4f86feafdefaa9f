// Lowered by tilelang 0.1.15 from vision_linear_kernels.py: vision_epilogue(most=8192), source 204829d5cf7f431b4fedb11c.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void vision_epilogue_kernel_simd_vf_0(int32_t biased, int32_t N, int32_t ch, __ubuf__ uint8_t* buf_dyn_shmem, int32_t active, int32_t added) {
  vector_f32 v;
  vector_f32 v_1;
  vector_f32 v_2;
  vector_f32 v_3;
  vector_f32 v_4;
  if (0 < biased) {
    for (int32_t c = 0; c < ((min(8192, (N - (ch * 8192))) + 63) >> 6); ++c) {
      auto mask = simd_inst::update_mask_b32((min(8192, (N - (ch * 8192))) - (c * 64)));
      auto v_5 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0);
      vector_bool v_6 = asc_create_mask_b16(PAT_ALL);
      auto w = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v_6, PART_EVEN, MODE_ZEROING);
      vector_bool v_7 = asc_create_mask_b32(PAT_ALL);
      auto v_8 = simd_inst::vadd(v_5, w, v_7, MODE_ZEROING);
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(v_8, v_6, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0, mask);
    }
  } else {
    for (int32_t c_1 = 0; c_1 < ((min(8192, (N - (ch * 8192))) + 63) >> 6); ++c_1) {
      auto mask_1 = simd_inst::update_mask_b32((min(8192, (N - (ch * 8192))) - (c_1 * 64)));
      auto v_9 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c_1 * 64)])), 0);
      vector_bool v_10 = asc_create_mask_b16(PAT_ALL);
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(v_9, v_10, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 32768)])), 0, mask_1);
    }
  }
  simd_inst::mem_bar(VST_VLD);
  if (0 < active) {
    for (int32_t c_2 = 0; c_2 < ((min(8192, (N - (ch * 8192))) + 63) >> 6); ++c_2) {
      auto mask_2 = simd_inst::update_mask_b32((min(8192, (N - (ch * 8192))) - (c_2 * 64)));
      vector_bool v_11 = asc_create_mask_b16(PAT_ALL);
      auto z = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_2 * 64) + 32768)])), 0), v_11, PART_EVEN, MODE_ZEROING);
      vector_bool v_12 = asc_create_mask_b32(PAT_ALL);
      auto v_13 = simd_inst::vabs(z, v_12, MODE_ZEROING);
      v = simd_inst::vmuls(v_13, float(0x1.6a09e667f3bcdp-1f/*7.071068e-01*/), v_12, MODE_ZEROING);
      auto v_14 = simd_inst::vmuls(v, float(0x1p-1f/*5.000000e-01*/), v_12, MODE_ZEROING);
      auto v_15 = simd_inst::vadds(v_14, float(0x1p+0f/*1.000000e+00*/), v_12, MODE_ZEROING);
      auto v_16 = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v_12, MODE_ZEROING);
      v_1 = simd_inst::vdiv_0ulp_ftz_true(v_16, v_15, v_12, MODE_ZEROING);
      v_2 = simd_inst::vmuls(v_1, float(0x1.5df28af76a5a4p-3f/*1.708728e-01*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(-0x1.a4f123185defdp-1f/*-8.221522e-01*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(0x1.7d0f60453a1bep+0f/*1.488516e+00*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(-0x1.229cba606398p+0f/*-1.135204e+00*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(0x1.1d8f976231ce6p-2f/*2.788681e-01*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(-0x1.7d84982aaeaa5p-3f/*-1.862881e-01*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(0x1.8c6d917dec3fp-4f/*9.678418e-02*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(0x1.7f11f677960eap-2f/*3.740920e-01*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(0x1.00018d48d3588p+0f/*1.000024e+00*/), v_12, MODE_ZEROING);
      v_2 = simd_inst::vmul(v_2, v_1, v_12, MODE_ZEROING);
      v_2 = simd_inst::vadds(v_2, float(-0x1.43f89c0889bc5p+0f/*-1.265512e+00*/), v_12, MODE_ZEROING);
      auto v_17 = simd_inst::vmul(v, v, v_12, MODE_ZEROING);
      auto v_18 = simd_inst::vsub(v_2, v_17, v_12, MODE_ZEROING);
      auto v_19 = simd_inst::vexp(v_18, v_12, MODE_ZEROING);
      v_3 = simd_inst::vmul(v_1, v_19, v_12, MODE_ZEROING);
      auto v_20 = simd_inst::vcmps_lt(z, float(0x0p+0f/*0.000000e+00*/), v_12);
      auto v_21 = simd_inst::vmuls(v_3, float(-0x1p+0f/*-1.000000e+00*/), v_12, MODE_ZEROING);
      auto v_22 = simd_inst::vadds(v_21, float(0x1p+1f/*2.000000e+00*/), v_12, MODE_ZEROING);
      auto v_23 = simd_inst::vsel(v_3, v_22, v_20);
      auto v_24 = simd_inst::vmul(z, v_23, v_12, MODE_ZEROING);
      auto v_25 = simd_inst::vdup<float>(float(0x1p-1f/*5.000000e-01*/), v_12, MODE_ZEROING);
      v_4 = simd_inst::vmul(v_24, v_25, v_12, MODE_ZEROING);
      auto v_26 = v_4;
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(v_26, v_11, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_2 * 64) + 32768)])), 0, mask_2);
    }
    simd_inst::mem_bar(VST_VLD);
  }
  if (0 < added) {
    for (int32_t c_3 = 0; c_3 < ((min(8192, (N - (ch * 8192))) + 63) >> 6); ++c_3) {
      auto mask_3 = simd_inst::update_mask_b32((min(8192, (N - (ch * 8192))) - (c_3 * 64)));
      vector_bool v_27 = asc_create_mask_b16(PAT_ALL);
      auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_3 * 64) + 32768)])), 0), v_27, PART_EVEN, MODE_ZEROING);
      auto o = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_3 * 64) + 24576)])), 0), v_27, PART_EVEN, MODE_ZEROING);
      vector_bool v_28 = asc_create_mask_b32(PAT_ALL);
      auto v_29 = simd_inst::vadd(o, u, v_28, MODE_ZEROING);
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(v_29, v_27, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_3 * 64) + 32768)])), 0, mask_3);
    }
  }
}

extern "C" __global__ __vector__ void vision_epilogue_kernel(__gm__ bfloat16_t* B, __gm__ bfloat16_t* R, __gm__ float* X, __gm__ bfloat16_t* Y, int32_t N, int32_t active, int32_t added, int32_t biased, int32_t cores, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    for (int32_t ch = 0; ch < ((N + 8191) >> 13); ++ch) {
      int8_t __cond_0 = ((int8_t)(bool)0);
      __cond_0 = ((int8_t)(0 < biased));
      int8_t __cond_1 = ((int8_t)(bool)0);
      __cond_1 = ((int8_t)(0 < added));
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch) * (int64_t)8192) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(8192, (N - (ch * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (N - (ch * 8192))) * 4), (min(8192, (N - (ch * 8192))) * 4));
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(B[(((int64_t)ch) * (int64_t)8192)]))), 1, (min(8192, (N - (ch * 8192))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (N - (ch * 8192))) * 2), (min(8192, (N - (ch * 8192))) * 2));
      }
      if ((bool)__cond_1) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(R[((((int64_t)ch) * (int64_t)8192) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(8192, (N - (ch * 8192))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (N - (ch * 8192))) * 2), (min(8192, (N - (ch * 8192))) * 2));
      }
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      vision_epilogue_kernel_simd_vf_0(biased, N, ch, buf_dyn_shmem, active, added);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)ch) * (int64_t)8192) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), 1, (min(8192, (N - (ch * 8192))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min(8192, (N - (ch * 8192))) * 2), (min(8192, (N - (ch * 8192))) * 2));
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

