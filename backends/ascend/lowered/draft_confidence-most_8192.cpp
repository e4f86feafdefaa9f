// Lowered by tilelang 0.1.15 from draft_kernels.py: draft_confidence(most=8192), source 3106e3babb598d38398fdf31.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void draft_confidence_kernel_simd_vf_0(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem) {
  vector_f32 sum;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  sum = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((D - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto v_2 = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[(c * 64)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto u = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    sum = simd_inst::vadd(sum, simd_inst::vmul(v_2, u, some, MODE_ZEROING), v, MODE_ZEROING);
  }
  simd_inst::vsts_norm(sum, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0, v);
}

__simd_vf__ inline void draft_confidence_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem, int32_t K) {
  vector_f32 more;
  more = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0);
  for (int32_t c = 0; c < ((K + 63) >> 6); ++c) {
    auto rest = simd_inst::update_mask_b32((K - (c * 64)));
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto a = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 8192)])), 0), v, PART_EVEN, MODE_ZEROING);
    auto b = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0), v, PART_EVEN, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
    more = simd_inst::vadd(more, simd_inst::vmul(a, b, rest, MODE_ZEROING), v_1, MODE_ZEROING);
  }
  vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(more, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0, v_2);
}

__simd_vf__ inline void draft_confidence_kernel_simd_vf_2(__ubuf__ uint8_t* buf_dyn_shmem, float factor) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto score = simd_inst::vmuls(simd_inst::vdupv(simd_inst::vcadd(simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16384])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), factor, v, MODE_ZEROING);
  auto high = simd_inst::vcmps_gt(score, float(0x1.ep+5f/*6.000000e+01*/), v);
  auto low = simd_inst::vcmps_lt(score, float(-0x1.ep+5f/*-6.000000e+01*/), v);
  auto least = simd_inst::vsel(simd_inst::vdup<float>(float(-0x1.ep+5f/*-6.000000e+01*/), v, MODE_ZEROING), score, low);
  auto limited = simd_inst::vsel(simd_inst::vdup<float>(float(0x1.ep+5f/*6.000000e+01*/), v, MODE_ZEROING), least, high);
  auto power = simd_inst::vexp(simd_inst::vmuls(limited, float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING), v, MODE_ZEROING);
  simd_inst::vsts_norm(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), simd_inst::vadds(power, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), v, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[16448])), 0, v);
}

extern "C" __global__ __vector__ void draft_confidence_kernel(__gm__ bfloat16_t* E, __gm__ int32_t* I, __gm__ float* R, __gm__ bfloat16_t* W, __gm__ bfloat16_t* WE, __gm__ bfloat16_t* X, __gm__ float* Y, int32_t D, int32_t K, int32_t N, int32_t cores, int32_t m, int32_t n) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(W[0]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(WE[0]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t token = 0;
    token = I[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    float factor = float(0x0p+0f/*0.000000e+00*/);
    factor = R[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)n))];
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    int8_t __cond_0 = ((int8_t)(bool)0);
    __cond_0 = ((int8_t)((0 <= token) && (token < N)));
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[8192]))), (__gm__ uint8_t*)((&(E[(((int64_t)token) * ((int64_t)K))]))), 1, (K * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (K * 2), (K * 2));
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    draft_confidence_kernel_simd_vf_0(D, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    if ((bool)__cond_0) {
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    }
    if ((bool)__cond_0) {
      draft_confidence_kernel_simd_vf_1(buf_dyn_shmem, K);
    }
    if ((bool)__cond_0) {
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    draft_confidence_kernel_simd_vf_2(buf_dyn_shmem, factor);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[16448]))), 1, 4, static_cast<asc_store_l2_cache_mode>(4), 4, 4);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}

