// Each core hands its row to the next, twice; the program reads where to from GM and writes a count back.
// Covers: asc_sync_inter_arrive / wait between all cores of a kind, reads of GM by the program, asc_store_dev, waiting of
// the program for a pipe (flags to and from S), MTE2 and MTE3 in a loop over the same buffer.
#include "c_api/asc_simd.h"

extern "C" __global__ __vector__ void ring_kernel(__gm__ float* x, __gm__ float* w, __gm__ float* y,
                                                  __gm__ int32_t* next, __gm__ int32_t* count, int32_t width) {
  asc_init();
  const int32_t me = int32_t(block_idx), bytes = width * 4;
  __ubuf__ float* row = (__ubuf__ float*)1024;
  const int32_t to = next[me];
  asc_copy_gm2ub_align(row, x + me * width, 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), bytes, bytes);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(w + to * width, row, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  asc_sync_inter_arrive(PIPE_MTE3, 2);
  asc_sync_inter_wait(PIPE_MTE2, 2);
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  asc_copy_gm2ub_align(row, w + me * width, 1, bytes, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0), bytes, bytes);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID1);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID1);
  asc_copy_ub2gm_align(y + to * width, row, 1, bytes, static_cast<asc_store_l2_cache_mode>(0), bytes, bytes);
  asc_sync_notify(PIPE_MTE2, PIPE_S, EVENT_ID1);
  asc_sync_wait(PIPE_MTE2, PIPE_S, EVENT_ID1);
  int32_t positive = 0;
  for (int32_t i = 0; i < width; ++i) positive += row[i] > 0.0f;
  asc_store_dev(count + me, positive);
}
