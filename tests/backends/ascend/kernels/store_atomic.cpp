// Rows of several cores are added into one row of GM on their way out of UB.
// Covers: asc_set_atomic_add_float and asc_set_atomic_none around asc_copy_ub2gm_align, cores that write the same bytes.
#include "c_api/asc_simd.h"

extern "C" __global__ __vector__ void store_atomic_kernel(__gm__ float* x, __gm__ float* y, __gm__ float* copy,
                                                          int32_t width) {
  asc_init();
  const int32_t bytes = width * 4, me = int32_t(block_idx);
  __ubuf__ float* row = (__ubuf__ float*)32;
  asc_copy_gm2ub_align(row, x + me * width, 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), bytes, bytes);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_set_atomic_add_float();
  asc_copy_ub2gm_align(y, row, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
  asc_set_atomic_none();
  asc_copy_ub2gm_align(copy + me * width, row, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
}
