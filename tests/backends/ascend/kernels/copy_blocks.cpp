// Strided bursts from GM to UB with padding on both sides, and back with other strides.
// Covers: asc_copy_gm2ub_align with several bursts, source stride, left and right padding (constant and first element),
// asc_set_copy_pad_val, asc_copy_ub2gm_align with a UB stride of its own and with a compact one, MTE2 -> MTE3 flags.
#include "c_api/asc_simd.h"

extern "C" __global__ __vector__ void copy_blocks_kernel(__gm__ half* x, __gm__ half* padded, __gm__ half* inner,
                                                         int32_t rows, int32_t cols, int32_t xpitch, int32_t ypitch,
                                                         int32_t left, int32_t constant) {
  asc_init();
  const int32_t right = 15 - (left + cols - 1) % 16;  // to the end of the 32 byte line
  const int32_t width = left + cols + right;
  __ubuf__ half* tile = (__ubuf__ half*)2048;
  __ubuf__ half* compact = (__ubuf__ half*)131072;
  asc_set_copy_pad_val(half(2.5f));
  asc_copy_gm2ub_align(tile, x, rows, cols * 2, left, right, constant != 0, static_cast<asc_load_l2_cache_mode>(0),
                       xpitch * 2, width * 2);
  asc_copy_gm2ub_align(compact, x, 1, rows * cols * 2, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0),
                       rows * cols * 2, rows * cols * 2);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(padded, tile, rows, width * 2, static_cast<asc_store_l2_cache_mode>(0), ypitch * 2, width * 2);
  // The same bytes of x, taken as rows of `cols` that lie one behind the other in UB.
  asc_copy_ub2gm_align(inner, compact, rows, cols * 2, static_cast<asc_store_l2_cache_mode>(0), ypitch * 2, cols * 2);
}
