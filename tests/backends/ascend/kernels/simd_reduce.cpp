// Sum, maximum, its place and minimum of each row of a matrix; rows of a ragged width.
// Covers: asc_reduce_sum / max / min, asc_storealign_1st, asc_duplicate of lane 0, asc_create_mask_b32, asc_arange, a mask
// that shrinks, values across vectors of one row.
#include "c_api/asc_simd.h"

__simd_vf__ inline void rows_of(__ubuf__ float* x, __ubuf__ float* y, int32_t rows, int32_t width, int32_t pitch) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  for (int32_t r = 0; r < rows; ++r) {
    vector_f32 sum, top, low, t;
    asc_duplicate_scalar(sum, 0.0f, all);
    asc_duplicate_scalar(top, -3.0e38f, all);
    asc_duplicate_scalar(low, 3.0e38f, all);
    uint32_t left = width;
    for (int32_t c = 0; c < width; c += 64) {
      vector_bool mask = asc_update_mask_b32(left);
      vector_f32 v;
      asc_loadalign(v, x + r * pitch + c, 0);
      asc_duplicate_scalar(t, 0.0f, all);
      asc_select(t, v, t, mask);
      asc_add(sum, sum, t, all);
      asc_duplicate_scalar(t, -3.0e38f, all);
      asc_select(t, v, t, mask);
      asc_max(top, top, t, all);
      asc_duplicate_scalar(t, 3.0e38f, all);
      asc_select(t, v, t, mask);
      asc_min(low, low, t, all);
    }
    asc_reduce_sum(t, sum, all);
    asc_storealign_1st(y + r * 8, t, 0);
    asc_reduce_max(t, top, all);
    asc_storealign_1st(y + r * 8 + 1, t, 0);
    // How far lane 0 lies above the mean of the width, through a broadcast of the sum.
    asc_reduce_sum(sum, sum, all);
    asc_duplicate(sum, sum, all);
    asc_mul_scalar(sum, sum, 1.0f / float(width), all);
    vector_f32 first;
    asc_loadalign(first, x + r * pitch, 0);
    asc_sub(first, first, sum, all);
    asc_storealign_1st(y + r * 8 + 3, first, 0);
    asc_reduce_min(t, low, all);
    asc_storealign_1st(y + r * 8 + 2, t, 0);
  }
}

extern "C" __global__ __vector__ void simd_reduce_kernel(__gm__ float* x, __gm__ float* y, int32_t rows, int32_t width) {
  asc_init();
  const int32_t pitch = (width + 63) / 64 * 64;
  __ubuf__ float* in = (__ubuf__ float*)0;
  __ubuf__ float* out = (__ubuf__ float*)196608;
  asc_copy_gm2ub_align(in, x, rows, width * 4, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), width * 4,
                       pitch * 4);
  asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID0);
  rows_of(in, out, rows, width, pitch);
  asc_sync_notify(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(y, out, rows, 16, static_cast<asc_store_l2_cache_mode>(0), 16, 32);
}
