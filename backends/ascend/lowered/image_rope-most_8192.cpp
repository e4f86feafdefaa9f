// Lowered by tilelang 0.1.15 from vision_kernels.py: image_rope(most=8192), source 6d04e8afa731eaf00ddf35a3.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void image_rope_kernel_simd_vf_0(int32_t width, __ubuf__ uint8_t* buf_dyn_shmem, float inverse, int32_t quarter, int32_t A) {
  for (int32_t c = 0; c < ((width + 127) >> 7); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
      vector_bf16 v_ = simd_inst::vlds_norm<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 128) + 32768)])), 0);
    simd_inst::vsts_norm((*(vector_s32 *)(&(v_))), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 28672)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_1 = 0; c_1 < ((width + 252) >> 8); ++c_1) {
    auto some = simd_inst::update_mask_b32(((width >> 2) - (c_1 * 64)));
    auto lane = simd_inst::vci<int32_t>((c_1 * 64), INC_ORDER);
    vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
    auto real = simd_inst::vadds(simd_inst::vcvt<float>(lane, v_1, ROUND_R, MODE_ZEROING), float(0x1p-1f/*5.000000e-01*/), v_1, MODE_ZEROING);
    auto head = simd_inst::vcvt<int32_t>(simd_inst::vmuls(real, inverse, v_1, MODE_ZEROING), v_1, ROUND_F, RS_ENABLE, MODE_ZEROING);
    auto skipped = simd_inst::vmuls(head, quarter, v_1, MODE_ZEROING);
    auto at = simd_inst::vadd(lane, skipped, v_1, MODE_ZEROING);
    auto left = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[28672])), (*(vector_u32 *)(&(at))), some);
      vector_s32 v__1 = simd_inst::vadds(at, quarter, v_1, MODE_ZEROING);
    auto far = (*(vector_u32 *)(&(v__1)));
    auto right = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[28672])), far, some);
    auto place = simd_inst::vshls(simd_inst::vsub(lane, skipped, v_1, MODE_ZEROING), (int16_t)2, v_1, MODE_ZEROING);
    auto v_2 = simd_inst::vshls(left, (int16_t)16, v_1, MODE_ZEROING);
    auto v_3 = simd_inst::vshls(right, (int16_t)16, v_1, MODE_ZEROING);
    auto v_4 = simd_inst::vadds(place, 0, v_1, MODE_ZEROING);
    auto v_5 = simd_inst::vadds(place, 1, v_1, MODE_ZEROING);
    auto v_6 = simd_inst::vcmps_lt(v_4, A, some);
    auto v_7 = simd_inst::vcmps_ge(v_4, A, some);
    auto v_8 = simd_inst::vdup<int32_t>(A, v_1, MODE_ZEROING);
    auto v_9 = simd_inst::vsub(v_4, v_8, v_1, MODE_ZEROING);
    auto v_10 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_4))), v_6);
    auto v_11 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[8192])), (*(vector_u32 *)(&(v_9))), v_7);
    auto v_12 = simd_inst::vsel(v_10, v_11, v_6);
    auto v_13 = simd_inst::vcmps_lt(v_5, A, some);
    auto v_14 = simd_inst::vcmps_ge(v_5, A, some);
    auto v_15 = simd_inst::vdup<int32_t>(A, v_1, MODE_ZEROING);
    auto v_16 = simd_inst::vsub(v_5, v_15, v_1, MODE_ZEROING);
    auto v_17 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_5))), v_13);
    auto v_18 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[8192])), (*(vector_u32 *)(&(v_16))), v_14);
    auto v_19 = simd_inst::vsel(v_17, v_18, v_13);
    auto v_20 = simd_inst::vmul((*(vector_f32 *)(&(v_2))), v_12, v_1, MODE_ZEROING);
    auto v_21 = simd_inst::vmul((*(vector_f32 *)(&(v_3))), v_19, v_1, MODE_ZEROING);
    auto v_22 = simd_inst::vsub(v_20, v_21, v_1, MODE_ZEROING);
    auto v_23 = simd_inst::vmul((*(vector_f32 *)(&(v_2))), v_19, v_1, MODE_ZEROING);
    auto v_24 = simd_inst::vmul((*(vector_f32 *)(&(v_3))), v_12, v_1, MODE_ZEROING);
    auto v_25 = simd_inst::vadd(v_23, v_24, v_1, MODE_ZEROING);
    auto v_26 = simd_inst::vdup<int32_t>(65535, v_1, MODE_ZEROING);
    vector_bool v_27 = asc_create_mask_b16(PAT_ALL);
    auto v_28 = simd_inst::vcvt<bfloat16_t>(v_22, v_27, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    auto v_29 = simd_inst::vand((*(vector_s32 *)(&(v_28))), v_26, v_1, MODE_ZEROING);
    auto v_30 = simd_inst::vcvt<bfloat16_t>(v_25, v_27, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    auto v_31 = simd_inst::vand((*(vector_s32 *)(&(v_30))), v_26, v_1, MODE_ZEROING);
    auto v_32 = simd_inst::vdup<int32_t>(-65536, v_1, MODE_ZEROING);
    auto v_33 = simd_inst::vand(left, v_32, v_1, MODE_ZEROING);
    auto v_34 = simd_inst::vand(right, v_32, v_1, MODE_ZEROING);
    auto v_35 = simd_inst::vadds(place, 2, v_1, MODE_ZEROING);
    auto v_36 = simd_inst::vadds(place, 3, v_1, MODE_ZEROING);
    auto v_37 = simd_inst::vcmps_lt(v_35, A, some);
    auto v_38 = simd_inst::vcmps_ge(v_35, A, some);
    auto v_39 = simd_inst::vdup<int32_t>(A, v_1, MODE_ZEROING);
    auto v_40 = simd_inst::vsub(v_35, v_39, v_1, MODE_ZEROING);
    auto v_41 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_35))), v_37);
    auto v_42 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[8192])), (*(vector_u32 *)(&(v_40))), v_38);
    auto v_43 = simd_inst::vsel(v_41, v_42, v_37);
    auto v_44 = simd_inst::vcmps_lt(v_36, A, some);
    auto v_45 = simd_inst::vcmps_ge(v_36, A, some);
    auto v_46 = simd_inst::vdup<int32_t>(A, v_1, MODE_ZEROING);
    auto v_47 = simd_inst::vsub(v_36, v_46, v_1, MODE_ZEROING);
    auto v_48 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(v_36))), v_44);
    auto v_49 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[8192])), (*(vector_u32 *)(&(v_47))), v_45);
    auto v_50 = simd_inst::vsel(v_48, v_49, v_44);
    auto v_51 = simd_inst::vmul((*(vector_f32 *)(&(v_33))), v_43, v_1, MODE_ZEROING);
    auto v_52 = simd_inst::vmul((*(vector_f32 *)(&(v_34))), v_50, v_1, MODE_ZEROING);
    auto v_53 = simd_inst::vsub(v_51, v_52, v_1, MODE_ZEROING);
    auto v_54 = simd_inst::vmul((*(vector_f32 *)(&(v_33))), v_50, v_1, MODE_ZEROING);
    auto v_55 = simd_inst::vmul((*(vector_f32 *)(&(v_34))), v_43, v_1, MODE_ZEROING);
    auto v_56 = simd_inst::vadd(v_54, v_55, v_1, MODE_ZEROING);
    auto v_57 = simd_inst::vdup<int32_t>(65535, v_1, MODE_ZEROING);
    auto v_58 = simd_inst::vcvt<bfloat16_t>(v_53, v_27, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    auto v_59 = simd_inst::vand((*(vector_s32 *)(&(v_58))), v_57, v_1, MODE_ZEROING);
    auto v_60 = simd_inst::vcvt<bfloat16_t>(v_56, v_27, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    auto v_61 = simd_inst::vand((*(vector_s32 *)(&(v_60))), v_57, v_1, MODE_ZEROING);
    auto v_62 = simd_inst::vshls(v_59, (int16_t)16, v_1, MODE_ZEROING);
    auto upper = simd_inst::vor(v_29, v_62, v_1, MODE_ZEROING);
    auto v_63 = simd_inst::vshls(v_61, (int16_t)16, v_1, MODE_ZEROING);
    auto lower = simd_inst::vor(v_31, v_63, v_1, MODE_ZEROING);
    simd_inst::vscatter(upper, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[32768])), (*(vector_u32 *)(&(at))), some);
    simd_inst::vscatter(lower, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[32768])), far, some);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_2 = 0; c_2 < ((width + 127) >> 7); ++c_2) {
    vector_bool v_64 = asc_create_mask_b16(PAT_ALL);
      vector_s32 v__2 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_2 * 64) + 32768)])), 0);
    simd_inst::vsts_norm((*(vector_bf16 *)(&(v__2))), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_2 * 128) + 49152)])), 0, v_64);
  }
}

extern "C" __global__ __vector__ void image_rope_kernel(__gm__ float* C, __gm__ int32_t* P, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t A, int32_t W, int32_t cores, float inverse, int32_t m, int32_t quarter, int32_t width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t row = 0;
    row = P[(((((int64_t)((int32_t)block_idx)) * (int64_t)3) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)3)) + (int64_t)1)];
    int32_t column = 0;
    column = P[(((((int64_t)((int32_t)block_idx)) * (int64_t)3) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)3)) + (int64_t)2)];
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[40960]))), (__gm__ uint8_t*)((&(X[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W)) + ((int64_t)width))]))), 1, ((W * 2) - (width * 2)), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), ((W * 2) - (width * 2)), ((W * 2) - (width * 2)));
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W))]))), 1, (width * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (width * 2), (width * 2));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(C[(((int64_t)column) * ((int64_t)A))]))), 1, (A * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (A * 4), (A * 4));
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W)) + ((int64_t)width))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[40960]))), 1, ((W * 2) - (width * 2)), static_cast<asc_store_l2_cache_mode>(4), ((W * 2) - (width * 2)), ((W * 2) - (width * 2)));
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(C[(((int64_t)row) * ((int64_t)A))]))), 1, (A * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (A * 4), (A * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    image_rope_kernel_simd_vf_0(width, buf_dyn_shmem, inverse, quarter, A);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)W))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[49152]))), 1, (width * 2), static_cast<asc_store_l2_cache_mode>(4), (width * 2), (width * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
}

