// Lowered by tilelang 0.1.15 from sampling_sums_kernels.py: log_sums(), source 45a589a152330fe4653f4f53.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void log_sums_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vdup<float>(tl::limits::kFloatNInf, v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[17472])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17536])), 0, v);
}

__simd_vf__ inline void log_sums_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem, int32_t V, int32_t ch) {
  vector_f32 largest;
  vector_s32 wrong;
  largest = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0);
  wrong = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[17472])), 0);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
  for (int32_t c = 0; c < ((min(8192, (V - (ch * 8192))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(8192, (V - (ch * 8192))) - (c * 64)));
    auto x = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0);
    auto more = simd_inst::vcmp_gt(x, largest, some);
    auto nan = simd_inst::vcmp_ne(x, x, some);
    largest = simd_inst::vsel(x, largest, more);
    wrong = simd_inst::vsel(one, wrong, nan);
  }
  simd_inst::vsts_norm(largest, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0, v);
  simd_inst::vsts_norm(wrong, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[17472])), 0, v);
}

__simd_vf__ inline void log_sums_kernel_simd_vf_2(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto largest = simd_inst::vdupv(simd_inst::vcmax(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING);
  auto wrong = simd_inst::vcmps_gt(simd_inst::vdupv(simd_inst::vcmax(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[17472])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), 0, v);
  simd_inst::vsts_norm(simd_inst::vsel(simd_inst::vdup<float>(tl::limits::kFloatNaN, v, MODE_ZEROING), largest, wrong), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0, v);
}

__simd_vf__ inline void log_sums_kernel_simd_vf_3(__ubuf__ uint8_t* buf_dyn_shmem, float inverse, float border, int32_t ch_1, int32_t V, int32_t last) {
  vector_f32 v;
  vector_f32 v_1;
  vector_f32 v_2;
  vector_f32 v_3;
  vector_f32 v_4;
  vector_f32 v_5;
  vector_f32 sum;
  auto top = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0);
  vector_bool v_6 = asc_create_mask_b32(PAT_ALL);
  auto rate = simd_inst::vmuls(simd_inst::vdup<float>(inverse, v_6, MODE_ZEROING), float(0x1.715476p+0f/*1.442695e+00*/), v_6, MODE_ZEROING);
  auto threshold = simd_inst::vdup<float>(border, v_6, MODE_ZEROING);
  for (int32_t c = 0; c < 128; ++c) {
    auto ids = simd_inst::vci<int32_t>(((ch_1 * 8192) + (c * 64)), INC_ORDER);
    auto v_7 = simd_inst::vcmps_lt(ids, V, v_6);
    auto v_8 = simd_inst::vcmps_gt(top, tl::limits::kFloatNInf, v_7);
    auto v_9 = simd_inst::vcmp_eq(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), threshold, v_8);
    auto v_10 = simd_inst::vcmps_le(ids, last, v_9);
    auto v_11 = simd_inst::vcmp_gt(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), threshold, v_8);
    auto v_12 = simd_inst::por(v_10, v_11, v_8);
    auto v_13 = simd_inst::vcmp_eq(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), top, v_6);
    auto v_14 = simd_inst::vsub(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), top, v_6, MODE_ZEROING);
    auto v_15 = simd_inst::vmul(v_14, rate, v_6, MODE_ZEROING);
    auto v_16 = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v_6, MODE_ZEROING);
    v = simd_inst::vsel(v_16, v_15, v_13);
    v_1 = simd_inst::vmaxs(v, float(-0x1.f8p+6f/*-1.260000e+02*/), v_6, MODE_ZEROING);
    v_2 = simd_inst::vadds(v_1, float(0x1.8p+23f/*1.258291e+07*/), v_6, MODE_ZEROING);
    auto v_17 = simd_inst::vadds(v_2, float(-0x1.8p+23f/*-1.258291e+07*/), v_6, MODE_ZEROING);
    v_3 = simd_inst::vsub(v_1, v_17, v_6, MODE_ZEROING);
    auto v_18 = (*(vector_s32 *)(&(v_2)));
    auto v_19 = simd_inst::vadds(v_18, -1262485378, v_6, MODE_ZEROING);
    auto v_20 = simd_inst::vshls(v_19, (int16_t)23, v_6, MODE_ZEROING);
    v_4 = simd_inst::vmuls(v_3, float(0x1.416b52p-12f/*3.065293e-04*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1.5f082ep-9f/*2.678161e-03*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vmul(v_4, v_3, v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1.3b2dep-6f/*1.923701e-02*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vmul(v_4, v_3, v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1.c6af7cp-4f/*1.110072e-01*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vmul(v_4, v_3, v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1.ebfbdcp-2f/*4.804530e-01*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vmul(v_4, v_3, v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1.62e43p+0f/*1.386294e+00*/), v_6, MODE_ZEROING);
    v_4 = simd_inst::vmul(v_4, v_3, v_6, MODE_ZEROING);
    v_4 = simd_inst::vadds(v_4, float(0x1p+1f/*2.000000e+00*/), v_6, MODE_ZEROING);
    v_5 = simd_inst::vmul(v_4, (*(vector_f32 *)(&(v_20))), v_6, MODE_ZEROING);
    auto v_21 = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v_6, MODE_ZEROING);
    auto v_22 = simd_inst::vsel(v_5, v_21, v_12);
    simd_inst::vsts_norm(v_22, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0, v_6);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t g = 0; g < 16; ++g) {
    sum = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((g * 64) + 8192)])), 0);
    for (int32_t t = 0; t < 7; ++t) {
      sum = simd_inst::vadd(sum, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(((t * 1024) + (g * 64)) + 9216)])), 0), v_6, MODE_ZEROING);
    }
    simd_inst::vsts_norm(sum, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((g * 64) + 16384)])), 0, v_6);
  }
  simd_inst::mem_bar(VST_VLD);
  auto v_23 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0);
  auto v_24 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16448])), 0);
  auto v_25 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16512])), 0);
  auto v_26 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16576])), 0);
  auto v_27 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16640])), 0);
  auto v_28 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16704])), 0);
  auto v_29 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16768])), 0);
  auto v_30 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16832])), 0);
  auto v_31 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16896])), 0);
  auto v_32 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16960])), 0);
  auto v_33 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17024])), 0);
  auto v_34 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17088])), 0);
  auto v_35 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17152])), 0);
  auto v_36 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17216])), 0);
  auto v_37 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17280])), 0);
  auto v_38 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17344])), 0);
  auto v_39 = simd_inst::vadd(v_23, v_31, v_6, MODE_ZEROING);
  auto v_40 = simd_inst::vadd(v_24, v_32, v_6, MODE_ZEROING);
  auto v_41 = simd_inst::vadd(v_25, v_33, v_6, MODE_ZEROING);
  auto v_42 = simd_inst::vadd(v_26, v_34, v_6, MODE_ZEROING);
  auto v_43 = simd_inst::vadd(v_27, v_35, v_6, MODE_ZEROING);
  auto v_44 = simd_inst::vadd(v_28, v_36, v_6, MODE_ZEROING);
  auto v_45 = simd_inst::vadd(v_29, v_37, v_6, MODE_ZEROING);
  auto v_46 = simd_inst::vadd(v_30, v_38, v_6, MODE_ZEROING);
  auto v_47 = simd_inst::vadd(v_39, v_43, v_6, MODE_ZEROING);
  auto v_48 = simd_inst::vadd(v_40, v_44, v_6, MODE_ZEROING);
  auto v_49 = simd_inst::vadd(v_41, v_45, v_6, MODE_ZEROING);
  auto v_50 = simd_inst::vadd(v_42, v_46, v_6, MODE_ZEROING);
  auto v_51 = simd_inst::vadd(v_47, v_49, v_6, MODE_ZEROING);
  auto v_52 = simd_inst::vadd(v_48, v_50, v_6, MODE_ZEROING);
  auto v_53 = simd_inst::vadd(v_51, v_52, v_6, MODE_ZEROING);
  auto v_54 = simd_inst::vci<int32_t>(32, INC_ORDER);
    vector_u32 v_ = simd_inst::vselr((*(vector_u32 *)(&(v_53))), (*(vector_u32 *)(&(v_54))));
  auto v_55 = (*(vector_f32 *)(&(v_)));
  auto v_56 = simd_inst::vadd(v_53, v_55, v_6, MODE_ZEROING);
  auto v_57 = simd_inst::vci<int32_t>(16, INC_ORDER);
    vector_u32 v__1 = simd_inst::vselr((*(vector_u32 *)(&(v_56))), (*(vector_u32 *)(&(v_57))));
  auto v_58 = (*(vector_f32 *)(&(v__1)));
  auto v_59 = simd_inst::vadd(v_56, v_58, v_6, MODE_ZEROING);
  auto v_60 = simd_inst::vci<int32_t>(8, INC_ORDER);
    vector_u32 v__2 = simd_inst::vselr((*(vector_u32 *)(&(v_59))), (*(vector_u32 *)(&(v_60))));
  auto v_61 = (*(vector_f32 *)(&(v__2)));
  auto v_62 = simd_inst::vadd(v_59, v_61, v_6, MODE_ZEROING);
  auto v_63 = simd_inst::vci<int32_t>(4, INC_ORDER);
    vector_u32 v__3 = simd_inst::vselr((*(vector_u32 *)(&(v_62))), (*(vector_u32 *)(&(v_63))));
  auto v_64 = (*(vector_f32 *)(&(v__3)));
  auto v_65 = simd_inst::vadd(v_62, v_64, v_6, MODE_ZEROING);
  auto v_66 = simd_inst::vci<int32_t>(2, INC_ORDER);
    vector_u32 v__4 = simd_inst::vselr((*(vector_u32 *)(&(v_65))), (*(vector_u32 *)(&(v_66))));
  auto v_67 = (*(vector_f32 *)(&(v__4)));
  auto v_68 = simd_inst::vadd(v_65, v_67, v_6, MODE_ZEROING);
  auto v_69 = simd_inst::vci<int32_t>(1, INC_ORDER);
    vector_u32 v__5 = simd_inst::vselr((*(vector_u32 *)(&(v_68))), (*(vector_u32 *)(&(v_69))));
  auto v_70 = (*(vector_f32 *)(&(v__5)));
  auto v_71 = simd_inst::vadd(v_68, v_70, v_6, MODE_ZEROING);
  auto part = simd_inst::vdupv(v_71, v_6, POS_LOWEST, MODE_ZEROING);
  simd_inst::vsts_norm(simd_inst::vadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17536])), 0), part, v_6, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17536])), 0, v_6);
}

__simd_vf__ inline void log_sums_kernel_simd_vf_4(__ubuf__ uint8_t* buf_dyn_shmem, float inverse, float border, float logit, int32_t token, int32_t last) {
  vector_f32 v;
  vector_s32 v_1;
  vector_f32 v_2;
  vector_f32 v_3;
  vector_f32 v_4;
  auto top = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17408])), 0);
  vector_bool v_5 = asc_create_mask_b32(PAT_ALL);
  v = simd_inst::vmaxs(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17536])), 0), float(0x1p-100f/*7.888609e-31*/), v_5, MODE_ZEROING);
  auto v_6 = (*(vector_s32 *)(&(v)));
  auto v_7 = simd_inst::vadds(v_6, -1060439283, v_5, MODE_ZEROING);
  auto v_8 = simd_inst::vshrs(v_7, (int16_t)23, v_5, MODE_ZEROING);
  auto v_9 = simd_inst::vshls(v_8, (int16_t)23, v_5, MODE_ZEROING);
  auto v_10 = simd_inst::vsub(v_6, v_9, v_5, MODE_ZEROING);
  v_1 = v_8;
  v_2 = simd_inst::vadds((*(vector_f32 *)(&(v_10))), float(-0x1p+0f/*-1.000000e+00*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmuls(v_2, float(0x1.01ba32p-3f/*1.258434e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(-0x1.a7803p-3f/*-2.067875e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(0x1.b94dfap-3f/*2.154808e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(-0x1.e9809ep-3f/*-2.390148e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(0x1.26dd48p-2f/*2.879535e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(-0x1.715b7ep-2f/*-3.607006e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(0x1.ec7366p-2f/*4.809090e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(-0x1.715472p-1f/*-7.213474e-01*/), v_5, MODE_ZEROING);
  v_3 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  v_3 = simd_inst::vadds(v_3, float(0x1.715476p+0f/*1.442695e+00*/), v_5, MODE_ZEROING);
  auto v_11 = simd_inst::vmul(v_3, v_2, v_5, MODE_ZEROING);
  auto v_12 = simd_inst::vcvt<float>(v_1, v_5, ROUND_R, MODE_ZEROING);
  auto log_sum = simd_inst::vadd(v_11, v_12, v_5, MODE_ZEROING);
  auto lane0 = simd_inst::vcmps_eq(simd_inst::vci<int32_t>(0, INC_ORDER), 0, v_5);
  simd_inst::vsts_norm(simd_inst::vsel(top, log_sum, lane0), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17600])), 0, v_5);
  auto rate = simd_inst::vmuls(simd_inst::vdup<float>(inverse, v_5, MODE_ZEROING), float(0x1.715476p+0f/*1.442695e+00*/), v_5, MODE_ZEROING);
  auto threshold = simd_inst::vdup<float>(border, v_5, MODE_ZEROING);
  auto chosen = simd_inst::vdup<float>(logit, v_5, MODE_ZEROING);
  auto v_13 = simd_inst::vdup<int32_t>(token, v_5, MODE_ZEROING);
  auto v_14 = simd_inst::vcmps_ge(v_13, 0, v_5);
  auto v_15 = simd_inst::vcmps_gt(top, tl::limits::kFloatNInf, v_14);
  auto v_16 = simd_inst::vdup<int32_t>(token, v_5, MODE_ZEROING);
  auto v_17 = simd_inst::vcmp_eq(chosen, threshold, v_15);
  auto v_18 = simd_inst::vcmps_le(v_16, last, v_17);
  auto v_19 = simd_inst::vcmp_gt(chosen, threshold, v_15);
  auto v_20 = simd_inst::por(v_18, v_19, v_15);
  auto v_21 = simd_inst::vcmp_eq(chosen, top, v_5);
  auto v_22 = simd_inst::vsub(chosen, top, v_5, MODE_ZEROING);
  auto v_23 = simd_inst::vmul(v_22, rate, v_5, MODE_ZEROING);
  auto v_24 = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v_5, MODE_ZEROING);
  v_4 = simd_inst::vsel(v_24, v_23, v_21);
  auto v_25 = simd_inst::vsub(v_4, log_sum, v_5, MODE_ZEROING);
  auto v_26 = simd_inst::vmuls(v_25, float(0x1.62e43p-1f/*6.931472e-01*/), v_5, MODE_ZEROING);
  auto v_27 = simd_inst::vmaxs(v_26, float(-0x1.3878p+13f/*-9.999000e+03*/), v_5, MODE_ZEROING);
  auto v_28 = simd_inst::vdup<float>(float(-0x1.3878p+13f/*-9.999000e+03*/), v_5, MODE_ZEROING);
  auto v_29 = simd_inst::vsel(v_27, v_28, v_20);
  simd_inst::vsts_norm(v_29, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[17664])), 0, v_5);
}

extern "C" __global__ __vector__ void log_sums_kernel(__gm__ float* H, __gm__ int32_t* I, __gm__ int32_t* L, __gm__ float* P, __gm__ float* R, __gm__ float* Y, __gm__ float* Z, int32_t V, int32_t cores, int32_t filtered, int32_t m, int32_t picks, int32_t tempered) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    float inverse = float(0x0p+0f/*0.000000e+00*/);
    float condval;
    if ((0 < tempered)) {
      condval = R[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    } else {
      condval = float(0x1p+0f/*1.000000e+00*/);
    }
    inverse = condval;
    float border = float(0x0p+0f/*0.000000e+00*/);
    float condval_1;
    if ((0 < filtered)) {
      condval_1 = H[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    } else {
      condval_1 = tl::limits::kFloatNInf;
    }
    border = condval_1;
    log_sums_kernel_simd_vf_0(buf_dyn_shmem);
    for (int32_t ch = 0; ch < ((V + 8191) >> 13); ++ch) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(Z[((((int64_t)ch) * (int64_t)8192) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)V)))]))), 1, (min(8192, (V - (ch * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (V - (ch * 8192))) * 4), (min(8192, (V - (ch * 8192))) * 4));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      log_sums_kernel_simd_vf_1(buf_dyn_shmem, V, ch);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    int32_t token = 0;
    int32_t condval_2;
    if ((0 < picks)) {
      condval_2 = I[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    } else {
      condval_2 = -1;
    }
    token = condval_2;
    log_sums_kernel_simd_vf_2(buf_dyn_shmem);
    int32_t last = 0;
    int32_t condval_3;
    if ((0 < filtered)) {
      condval_3 = L[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    } else {
      condval_3 = -1;
    }
    last = condval_3;
    for (int32_t ch_1 = 0; ch_1 < ((V + 8191) >> 13); ++ch_1) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(Z[((((int64_t)ch_1) * (int64_t)8192) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)V)))]))), 1, (min(8192, (V - (ch_1 * 8192))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(8192, (V - (ch_1 * 8192))) * 4), (min(8192, (V - (ch_1 * 8192))) * 4));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      log_sums_kernel_simd_vf_3(buf_dyn_shmem, inverse, border, ch_1, V, last);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    int32_t least = 0;
    int32_t condval_4;
    if ((token < 0)) {
      condval_4 = 0;
    } else {
      condval_4 = token;
    }
    least = condval_4;
    float logit = float(0x0p+0f/*0.000000e+00*/);
    int64_t condval_5;
    if ((((int64_t)token) < (int64_t)0)) {
      condval_5 = (int64_t)0;
    } else {
      condval_5 = ((int64_t)token);
    }
    logit = Z[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)V)) + condval_5)];
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    log_sums_kernel_simd_vf_4(buf_dyn_shmem, inverse, border, logit, token, last);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(P[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[17664]))), 1, 4, static_cast<asc_store_l2_cache_mode>(4), 4, 4);
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) * (int64_t)2) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)2))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[17600]))), 1, 8, static_cast<asc_store_l2_cache_mode>(4), 8, 8);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

