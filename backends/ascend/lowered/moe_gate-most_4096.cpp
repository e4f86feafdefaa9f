// Lowered by tilelang 0.1.15 from moe_gate_kernels.py: moe_gate(most=4096), source 24d8b6366e5ae5b8ee77060d.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void moe_gate_kernel_simd_vf_0(int32_t E, __ubuf__ uint8_t* buf_dyn_shmem, int32_t image, int32_t k, float floor, float scaling) {
  vector_f32 total;
  vector_s32 best;
  vector_s32 names;
  for (int32_t c = 0; c < ((E + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((E - (c * 64)));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto v_1 = simd_inst::vexp(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), v, MODE_ZEROING);
    auto v_2 = simd_inst::vadds(v_1, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
    auto v_3 = simd_inst::vln(v_2, v, MODE_ZEROING);
    auto v_4 = simd_inst::vadds(v_2, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING);
    auto v_5 = simd_inst::vdiv_0ulp_ftz_true(v_1, v_4, v, MODE_ZEROING);
    auto v_6 = simd_inst::vmul(v_3, v_5, v, MODE_ZEROING);
    auto v_7 = simd_inst::vcmps_eq(v_2, float(0x1p+0f/*1.000000e+00*/), v);
    auto v_8 = simd_inst::vcmps_gt(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), float(0x1.4p+4f/*2.000000e+01*/), v);
    auto v_9 = simd_inst::vsel(v_1, v_6, v_7);
    auto v_10 = simd_inst::vsel(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), v_9, v_8);
    auto s = simd_inst::vsqrt(v_10, v, MODE_ZEROING);
    simd_inst::vsts_norm(s, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((c * 64) + 12288)])), 0, v);
    auto v_11 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((int64_t)image) * (int64_t)4096) + (((int64_t)c) * (int64_t)64))])), 0);
    auto v_12 = simd_inst::vadd(s, v_11, v, MODE_ZEROING);
    auto v_13 = simd_inst::vadds(v_12, float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
    auto v_14 = simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING);
    auto v_15 = simd_inst::vand((*(vector_s32 *)(&(v_13))), v_14, v, MODE_ZEROING);
    auto v_16 = simd_inst::vcmps_gt(v_15, 2139095040, v);
    auto v_17 = simd_inst::vshrs((*(vector_s32 *)(&(v_13))), (int16_t)31, v, MODE_ZEROING);
    auto v_18 = simd_inst::vand(v_17, v_14, v, MODE_ZEROING);
    auto v_19 = simd_inst::vxor((*(vector_s32 *)(&(v_13))), v_18, v, MODE_ZEROING);
    auto v_20 = simd_inst::vdup<int32_t>(-2147483647, v, MODE_ZEROING);
    auto key = simd_inst::vsel(v_20, v_19, v_16);
    simd_inst::vsts_norm(simd_inst::vsel(key, simd_inst::vdup<int32_t>(-2147483648, v, MODE_ZEROING), some), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  vector_bool v_21 = asc_create_mask_b32(PAT_ALL);
  total = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v_21, MODE_ZEROING);
  vector_bool single = asc_create_mask_b32(PAT_VL1);
  for (int32_t j = 0; j < k; ++j) {
    best = simd_inst::vdup<int32_t>(-2147483648, v_21, MODE_ZEROING);
    names = simd_inst::vdup<int32_t>(2147483647, v_21, MODE_ZEROING);
    for (int32_t c_1 = 0; c_1 < ((E + 63) >> 6); ++c_1) {
      auto key_1 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c_1 * 64) + 16384)])), 0);
      auto more = simd_inst::vcmp_gt(key_1, best, v_21);
      names = simd_inst::vsel(simd_inst::vci<int32_t>((c_1 * 64), INC_ORDER), names, more);
      best = simd_inst::vmax(key_1, best, v_21, MODE_ZEROING);
    }
    auto top = simd_inst::vdupv(simd_inst::vcmax(best, v_21, MODE_ZEROING), v_21, POS_LOWEST, MODE_ZEROING);
    auto equal = simd_inst::vcmp_eq(best, top, v_21);
    auto chosen = simd_inst::vdupv(simd_inst::vcmin(simd_inst::vsel(names, simd_inst::vdup<int32_t>(2147483647, v_21, MODE_ZEROING), equal), v_21, MODE_ZEROING), v_21, POS_LOWEST, MODE_ZEROING);
    total = simd_inst::vadd(total, simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[12288])), (*(vector_u32 *)(&(chosen))), v_21), v_21, MODE_ZEROING);
    simd_inst::vscatter(simd_inst::vdup<int32_t>(-2147483648, v_21, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[16384])), (*(vector_u32 *)(&(chosen))), single);
      vector_s32 v_ = simd_inst::vdup<int32_t>(j, v_21, MODE_ZEROING);
    simd_inst::vscatter(chosen, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[24576])), (*(vector_u32 *)(&(v_))), single);
    simd_inst::mem_bar(VST_VLD);
  }
  auto whole = simd_inst::vadds(total, floor, v_21, MODE_ZEROING);
  for (int32_t c_2 = 0; c_2 < ((k + 63) >> 6); ++c_2) {
    auto rest = simd_inst::update_mask_b32((k - (c_2 * 64)));
      vector_s32 v__1 = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((((int64_t)c_2) * (int64_t)64) + (int64_t)24576)])), 0);
    auto mine = (*(vector_u32 *)(&(v__1)));
    auto share = simd_inst::vdiv_0ulp_ftz_true(simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[12288])), mine, rest), whole, rest, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vmuls(share, scaling, rest, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((((int64_t)c_2) * (int64_t)64) + (int64_t)20480)])), 0, v_21);
  }
}

extern "C" __global__ __vector__ void moe_gate_kernel(__gm__ uint8_t* A, __gm__ float* B, __gm__ int32_t* I, __gm__ float* V, __gm__ float* W, __gm__ float* X, int32_t E, int32_t cores, float floor, int32_t k, int32_t m, float scaling) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(B[0]))), 1, (E * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (E * 4), (E * 4));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[4096]))), (__gm__ uint8_t*)((&(V[0]))), 1, (E * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (E * 4), (E * 4));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t image = 0;
    image = ((int32_t)A[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))]);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)E))]))), 1, (E * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (E * 4), (E * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    moe_gate_kernel_simd_vf_0(E, buf_dyn_shmem, image, k, floor, scaling);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(W[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)k))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[20480]))), 1, (k * 4), static_cast<asc_store_l2_cache_mode>(4), (k * 4), (k * 4));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(I[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)k))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[24576]))), 1, (k * 4), static_cast<asc_store_l2_cache_mode>(4), (k * 4), (k * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

