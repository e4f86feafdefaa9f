// y = |a b - max(a, 0.5)| / (1 + exp(-a)), 3 where a is negative; z = (i << 2) ^ (j | 12), both a vector at a time.
// Covers: asc_loadalign / asc_storealign with a mask for the tail (asc_update_mask_b32), float arithmetic with vectors and
// scalars, asc_exp, asc_sqrt, comparison and asc_select, integer and bit arithmetic, asc_duplicate_scalar.
#include "c_api/asc_simd.h"

__simd_vf__ inline void floats(__ubuf__ float* a, __ubuf__ float* b, __ubuf__ float* y, int32_t n) {
  uint32_t left = n;
  for (int32_t i = 0; i < n; i += 64) {
    vector_bool mask = asc_update_mask_b32(left);
    vector_f32 va, vb, t, u, one, three;
    asc_loadalign(va, a + i, 0);
    asc_loadalign(vb, b + i, 0);
    asc_mul(t, va, vb, mask);
    asc_max_scalar(u, va, 0.5f, mask);
    asc_sub(t, t, u, mask);
    asc_abs(t, t, mask);
    asc_mul_scalar(u, va, -1.0f, mask);
    asc_exp(u, u, mask);
    asc_add_scalar(u, u, 1.0f, mask);
    asc_duplicate_scalar(one, 1.0f, mask);
    asc_div(u, one, u, mask);
    asc_mul(t, t, u, mask);
    asc_duplicate_scalar(three, 3.0f, mask);
    vector_bool negative;
    asc_lt_scalar(negative, va, 0.0f, mask);
    asc_select(t, three, t, negative);
    asc_storealign(y + i, t, 0, mask);
  }
}

__simd_vf__ inline void integers(__ubuf__ int32_t* i, __ubuf__ int32_t* j, __ubuf__ int32_t* z, int32_t n) {
  uint32_t left = n;
  for (int32_t k = 0; k < n; k += 64) {
    vector_bool mask = asc_update_mask_b32(left);
    vector_s32 vi, vj, twelve;
    asc_loadalign(vi, i + k, 0);
    asc_loadalign(vj, j + k, 0);
    asc_duplicate_scalar(twelve, 12, mask);
    asc_or(vj, vj, twelve, mask);
    asc_shiftleft_scalar(vi, vi, int16_t(2), mask);
    asc_xor(vi, vi, vj, mask);
    asc_storealign(z + k, vi, 0, mask);
  }
}

extern "C" __global__ __vector__ void simd_arith_kernel(__gm__ float* a, __gm__ float* b, __gm__ float* y,
                                                        __gm__ int32_t* i, __gm__ int32_t* j, __gm__ int32_t* z,
                                                        int32_t n) {
  asc_init();
  const auto load = static_cast<asc_load_l2_cache_mode>(0);
  const auto store = static_cast<asc_store_l2_cache_mode>(0);
  const int32_t bytes = n * 4;
  __ubuf__ float* ub = (__ubuf__ float*)0;
  __ubuf__ int32_t* ui = (__ubuf__ int32_t*)65536;
  asc_copy_gm2ub_align(ub, a, 1, bytes, 0, 0, false, load, bytes, bytes);
  asc_copy_gm2ub_align(ub + 2048, b, 1, bytes, 0, 0, false, load, bytes, bytes);
  asc_copy_gm2ub_align(ui, i, 1, bytes, 0, 0, false, load, bytes, bytes);
  asc_copy_gm2ub_align(ui + 2048, j, 1, bytes, 0, 0, false, load, bytes, bytes);
  asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID4);
  asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID4);
  floats(ub, ub + 2048, ub + 4096, n);
  integers(ui, ui + 2048, ui + 4096, n);
  asc_sync_notify(PIPE_V, PIPE_MTE3, EVENT_ID5);
  asc_sync_wait(PIPE_V, PIPE_MTE3, EVENT_ID5);
  asc_copy_ub2gm_align(y, ub + 4096, 1, bytes, store, bytes, bytes);
  asc_copy_ub2gm_align(z, ui + 4096, 1, bytes, store, bytes, bytes);
}
