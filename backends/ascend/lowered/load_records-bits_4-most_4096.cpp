// Lowered by tilelang 0.1.15 from records_kernels.py: load_records(bits=4, most=4096), source fabf1ff9b1867fd5afe7f1e6.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void load_records_kernel_simd_vf_0(int32_t groups, __ubuf__ uint8_t* buf_dyn_shmem, int32_t small, int32_t K, int16_t shift, int32_t e_version_counter_1) {
  for (int32_t g = 0; g < ((groups + 63) >> 6); ++g) {
    auto some = simd_inst::update_mask_b32((groups - (g * 64)));
    auto byte = simd_inst::vlds_unpack4<uint8_t>((__ubuf__ uint8_t*)(&(buf_dyn_shmem[((g * 64) + 21824)])), 0);
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto least = simd_inst::vcmps_eq((*(vector_s32 *)(&(byte))), 0, v);
    auto nan = simd_inst::vcmps_eq((*(vector_s32 *)(&(byte))), 255, v);
    auto power = simd_inst::vsel(simd_inst::vdup<int32_t>(4194304, v, MODE_ZEROING), simd_inst::vshls((*(vector_s32 *)(&(byte))), (int16_t)23, v, MODE_ZEROING), least);
      vector_s32 v_ = simd_inst::vsel(simd_inst::vdup<int32_t>(2143289344, v, MODE_ZEROING), power, nan);
    auto eighth = (*(vector_f32 *)(&(v_)));
    vector_bool v_1 = asc_create_mask_b8(PAT_ALL);
    auto fp8 = simd_inst::vcvt<float>((*(vector_f8e4m3 *)(&(byte))), v_1, PART_P0, MODE_ZEROING);
    auto kind = simd_inst::vcmps_eq(simd_inst::vdup<int32_t>(small, v, MODE_ZEROING), 1, v);
    simd_inst::vsts_norm(simd_inst::vsel(fp8, eighth, kind), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((g * 64) + 5136)])), 0, some);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c = 0; c < ((K + 127) >> 7); ++c) {
      vector_u8 v__1 = simd_inst::vlds_unpack4<uint8_t>((__ubuf__ uint8_t*)(&(buf_dyn_shmem[((c * 64) + 16384)])), 0);
    auto pair = (*(vector_s32 *)(&(v__1)));
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto low = simd_inst::vand(pair, simd_inst::vdup<int32_t>(15, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    auto v_3 = simd_inst::vintlv(low, simd_inst::vshrs(pair, (int16_t)4, v_2, MODE_ZEROING));
    auto some_1 = simd_inst::update_mask_b32((K - (c * 128)));
    auto t = simd_inst::vand(v_3.v0, simd_inst::vdup<int32_t>(7, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    auto twice = simd_inst::vmax(t, simd_inst::vadds(simd_inst::vshls(t, (int16_t)1, v_2, MODE_ZEROING), -4, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    auto larger = simd_inst::vmax(twice, simd_inst::vadds(simd_inst::vshls(t, (int16_t)2, v_2, MODE_ZEROING), -16, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    auto size = simd_inst::vmuls(simd_inst::vcvt<float>(larger, v_2, ROUND_R, MODE_ZEROING), float(0x1p-1f/*5.000000e-01*/), v_2, MODE_ZEROING);
    auto sign = simd_inst::vshls(simd_inst::vshrs(v_3.v0, (int16_t)3, v_2, MODE_ZEROING), (int16_t)31, v_2, MODE_ZEROING);
      vector_s32 v__2 = simd_inst::vor((*(vector_s32 *)(&(size))), sign, v_2, MODE_ZEROING);
    auto with_sign = (*(vector_f32 *)(&(v__2)));
    auto group = simd_inst::vshrs(simd_inst::vci<int32_t>((c * 128), INC_ORDER), shift, v_2, MODE_ZEROING);
    auto scale = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[5136])), (*(vector_u32 *)(&(group))), some_1);
    vector_bool v_4 = asc_create_mask_b16(PAT_ALL);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(simd_inst::vmul(with_sign, scale, some_1, MODE_ZEROING), v_4, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(((e_version_counter_1 & 1) * 4096) + (c * 128))])), 0, some_1);
    if (((c * 128) + 64) < K) {
      auto some_2 = simd_inst::update_mask_b32(((K - (c * 128)) - 64));
      auto t_1 = simd_inst::vand(v_3.v1, simd_inst::vdup<int32_t>(7, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
      auto twice_1 = simd_inst::vmax(t_1, simd_inst::vadds(simd_inst::vshls(t_1, (int16_t)1, v_2, MODE_ZEROING), -4, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
      auto larger_1 = simd_inst::vmax(twice_1, simd_inst::vadds(simd_inst::vshls(t_1, (int16_t)2, v_2, MODE_ZEROING), -16, v_2, MODE_ZEROING), v_2, MODE_ZEROING);
      auto size_1 = simd_inst::vmuls(simd_inst::vcvt<float>(larger_1, v_2, ROUND_R, MODE_ZEROING), float(0x1p-1f/*5.000000e-01*/), v_2, MODE_ZEROING);
      auto sign_1 = simd_inst::vshls(simd_inst::vshrs(v_3.v1, (int16_t)3, v_2, MODE_ZEROING), (int16_t)31, v_2, MODE_ZEROING);
        vector_s32 v__3 = simd_inst::vor((*(vector_s32 *)(&(size_1))), sign_1, v_2, MODE_ZEROING);
      auto with_sign_1 = (*(vector_f32 *)(&(v__3)));
      auto group_1 = simd_inst::vshrs(simd_inst::vci<int32_t>(((c * 128) + 64), INC_ORDER), shift, v_2, MODE_ZEROING);
      auto scale_1 = simd_inst::vgather2((&(((__ubuf__ float*)buf_dyn_shmem)[5136])), (*(vector_u32 *)(&(group_1))), some_2);
      simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(simd_inst::vmul(with_sign_1, scale_1, some_2, MODE_ZEROING), v_4, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((((e_version_counter_1 & 1) * 4096) + (c * 128)) + 64)])), 0, some_2);
    }
  }
}

extern "C" __global__ __vector__ void load_records_kernel(__gm__ uint8_t* PAGES, __gm__ int32_t* PLAN, __gm__ bfloat16_t* Y, int32_t K, int32_t N, int32_t code_pitch, int32_t cores, int32_t entries, int32_t groups, int32_t items, int32_t scale_offset, int32_t scale_pitch, int16_t shift, int32_t small, int64_t stride) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  int32_t e_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  e_version_counter_1 = 0;
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t condval;
    if ((((((int32_t)block_idx) + (i * cores)) / entries) < N)) {
      condval = PLAN[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)entries)) * (int64_t)4) + (int64_t)1)];
    } else {
      condval = 0;
    }
    int32_t slot = (condval + ((((int32_t)block_idx) + (i * cores)) % entries));
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)((0 <= PLAN[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)entries)) * (int64_t)4)]) && (slot < PLAN[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)entries)) * (int64_t)4) + (int64_t)2)])));
    int32_t r = 0;
    if ((bool)__cond_0) {
      r = (PLAN[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)entries)) * (int64_t)4) + (int64_t)3)] + ((((int32_t)block_idx) + (i * cores)) % entries));
    }
    int64_t page = (int64_t)0;
    if ((bool)__cond_0) {
      page = (((int64_t)PLAN[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)entries)) * (int64_t)4)]) * stride);
    }
    int64_t codes = (int64_t)0;
    if ((bool)__cond_0) {
      codes = (page + ((int64_t)(slot * code_pitch)));
    }
    int64_t scales = (int64_t)0;
    if ((bool)__cond_0) {
      scales = ((page + ((int64_t)scale_offset)) + ((int64_t)(slot * scale_pitch)));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[16384]))), (__gm__ uint8_t*)((&(PAGES[(page + ((int64_t)(slot * code_pitch)))]))), 1, (K >> 1), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K >> 1), (K >> 1));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(buf_dyn_shmem[21824]))), (__gm__ uint8_t*)((&(PAGES[((page + ((int64_t)scale_offset)) + ((int64_t)(slot * scale_pitch)))]))), 1, groups, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), groups, groups);
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>((e_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      load_records_kernel_simd_vf_0(groups, buf_dyn_shmem, small, K, shift, e_version_counter_1);
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>((e_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>((e_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((int64_t)r) * ((int64_t)K))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((e_version_counter_1 & 1) * 4096)]))), 1, (K * 2), static_cast<asc_store_l2_cache_mode>(4), (K * 2), (K * 2));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>((e_version_counter_1 & 1)));
    }
    if ((bool)__cond_0) {
      e_version_counter_1 = (e_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

