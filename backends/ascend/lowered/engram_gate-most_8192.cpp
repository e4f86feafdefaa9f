// Lowered by tilelang 0.1.15 from engram_kernels.py: engram_gate(most=8192), source e429ee93af6adbe5c6707dfc.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void engram_gate_kernel_simd_vf_0(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    vector_bool v = asc_create_mask_b16(PAT_ALL);
    auto qw = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v, PART_EVEN, MODE_ZEROING);
    auto kw = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0), v, PART_EVEN, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vmul(qw, kw, v_1, MODE_ZEROING), (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0, v_1);
  }
}

__simd_vf__ inline void engram_gate_kernel_simd_vf_1(int32_t D, __ubuf__ uint8_t* buf_dyn_shmem, float size, float eps, float root) {
  vector_f32 dot;
  vector_f32 own;
  vector_f32 key;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  dot = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  own = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  key = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), v, MODE_ZEROING);
  for (int32_t c = 0; c < ((D + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((D - (c * 64)));
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto a = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto b = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto weighed = simd_inst::vmul(a, simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0), some, MODE_ZEROING);
    dot = simd_inst::vadd(dot, simd_inst::vmul(weighed, b, some, MODE_ZEROING), v, MODE_ZEROING);
    own = simd_inst::vadd(own, simd_inst::vmul(a, a, some, MODE_ZEROING), v, MODE_ZEROING);
    key = simd_inst::vadd(key, simd_inst::vmul(b, b, some, MODE_ZEROING), v, MODE_ZEROING);
  }
  auto one = simd_inst::vdup<float>(float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING);
  auto count = simd_inst::vdup<float>(size, v, MODE_ZEROING);
  auto own_mean = simd_inst::vadds(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdupv(simd_inst::vcadd(own, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), count, v, MODE_ZEROING), eps, v, MODE_ZEROING);
  auto key_mean = simd_inst::vadds(simd_inst::vdiv_0ulp_ftz_true(simd_inst::vdupv(simd_inst::vcadd(key, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), count, v, MODE_ZEROING), eps, v, MODE_ZEROING);
  auto first = simd_inst::vmul(simd_inst::vdupv(simd_inst::vcadd(dot, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), simd_inst::vdiv_0ulp_ftz_true(one, simd_inst::vsqrt(own_mean, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
  auto match = simd_inst::vmuls(simd_inst::vmul(first, simd_inst::vdiv_0ulp_ftz_true(one, simd_inst::vsqrt(key_mean, v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING), root, v, MODE_ZEROING);
  auto sign = simd_inst::vand((*(vector_s32 *)(&(match))), simd_inst::vdup<int32_t>(-2147483648, v, MODE_ZEROING), v, MODE_ZEROING);
  auto size_root = simd_inst::vsqrt(simd_inst::vmaxs(simd_inst::vabs(match, v, MODE_ZEROING), float(0x1.0c6f7a0b5ed8dp-20f/*1.000000e-06*/), v, MODE_ZEROING), v, MODE_ZEROING);
  auto minus = simd_inst::vxor((*(vector_s32 *)(&(size_root))), sign, v, MODE_ZEROING);
  auto power = simd_inst::vexp(simd_inst::vmuls((*(vector_f32 *)(&(minus))), float(-0x1p+0f/*-1.000000e+00*/), v, MODE_ZEROING), v, MODE_ZEROING);
  auto sigmoid = simd_inst::vdiv_0ulp_ftz_true(one, simd_inst::vadds(power, float(0x1p+0f/*1.000000e+00*/), v, MODE_ZEROING), v, MODE_ZEROING);
  auto number = simd_inst::vcmp_eq(match, match, v);
  auto gate = simd_inst::vsel(sigmoid, match, number);
  for (int32_t c_1 = 0; c_1 < ((D + 63) >> 6); ++c_1) {
    auto rest = simd_inst::update_mask_b32((D - (c_1 * 64)));
    vector_bool v_2 = asc_create_mask_b16(PAT_ALL);
    auto d = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 16384)])), 0), v_2, PART_EVEN, MODE_ZEROING);
    auto e = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 32768)])), 0), v_2, PART_EVEN, MODE_ZEROING);
    auto z = simd_inst::vadd(d, simd_inst::vmul(gate, e, rest, MODE_ZEROING), rest, MODE_ZEROING);
    simd_inst::vsts_pack_b32(simd_inst::vcvt<bfloat16_t>(z, v_2, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 40960)])), 0, rest);
  }
}

extern "C" __global__ __vector__ void engram_gate_kernel(__gm__ uint8_t* IMAGE, __gm__ bfloat16_t* KV, __gm__ bfloat16_t* KW, __gm__ bfloat16_t* QW, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t D, int32_t M, int32_t cores, float eps, int32_t m, float root, float size, int32_t width) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t s = 0; s < M; ++s) {
    asc_sync_pipe(PIPE_MTE2);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(KW[(((int64_t)s) * ((int64_t)D))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(QW[(((int64_t)s) * ((int64_t)D))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    engram_gate_kernel_simd_vf_0(D, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
    for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
      int8_t __cond_0 = ((int8_t)(bool)0);
      __cond_0 = ((int8_t)(((int32_t)IMAGE[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))]) == 0));
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[24576]))), (__gm__ uint8_t*)((&(KV[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)width)) + (((int64_t)s) * ((int64_t)D)))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
      }
      if ((bool)__cond_0) {
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
      }
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), (__gm__ uint8_t*)((&(KV[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)width)) + (((int64_t)M) * ((int64_t)D)))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
      }
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), (__gm__ uint8_t*)((&(X[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D)) * ((int64_t)M)) + (((int64_t)s) * ((int64_t)D)))]))), 1, (D * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (D * 2), (D * 2));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
      if ((bool)__cond_0) {
        asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      if ((bool)__cond_0) {
        engram_gate_kernel_simd_vf_1(D, buf_dyn_shmem, size, eps, root);
      }
      if ((bool)__cond_0) {
        asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      }
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      if ((bool)__cond_0) {
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(0));
      if (!((bool)__cond_0)) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D)) * ((int64_t)M)) + (((int64_t)s) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[16384]))), 1, (D * 2), static_cast<asc_store_l2_cache_mode>(4), (D * 2), (D * 2));
      }
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
      if ((bool)__cond_0) {
        asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      }
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)D)) * ((int64_t)M)) + (((int64_t)s) * ((int64_t)D)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[40960]))), 1, (D * 2), static_cast<asc_store_l2_cache_mode>(4), (D * 2), (D * 2));
      }
      if ((bool)__cond_0) {
        asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      }
    }
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

