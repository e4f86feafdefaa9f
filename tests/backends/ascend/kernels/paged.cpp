// Rows of pages by a table of page ids. `pages` is the part of a pool that begins at element `origin`; `narrow` multiplies
// id and stride as 32-bit numbers first, as a fault would.
// Covers: addresses past 2^31 elements, ids read from GM by the program, one burst per page.
#include "c_api/asc_simd.h"

extern "C" __global__ __vector__ void paged_kernel(__gm__ half* pages, __gm__ int32_t* table, __gm__ half* out,
                                                   int64_t origin, int32_t count, int32_t stride, int32_t width,
                                                   int32_t narrow) {
  asc_init();
  __ubuf__ half* row = (__ubuf__ half*)0;
  const int32_t bytes = width * 2;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t id = table[i];
    const int64_t at = narrow ? int64_t(int32_t(uint32_t(id) * uint32_t(stride))) : int64_t(id) * stride;
    asc_lock(PIPE_MTE2, 0);
    asc_copy_gm2ub_align(row, pages + (at - origin), 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0),
                         bytes, bytes);
    asc_unlock(PIPE_MTE2, 0);
    asc_lock(PIPE_MTE3, 0);
    asc_copy_ub2gm_align(out + int64_t(i) * width, row, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
    asc_unlock(PIPE_MTE3, 0);
  }
}
