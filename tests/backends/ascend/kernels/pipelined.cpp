// y = 2 x + 1 tile by tile through two buffers, rows of tiles shared among the cores.
// Covers: a software pipeline: flags in both directions set before the loop and taken back after it, event ids that
// alternate, mutexes instead of flags for the way out, the ragged last tile, cores without a tile.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

__simt_vf__ __launch_bounds__(256) inline void scale(__ubuf__ float* in, __ubuf__ float* out, int32_t n) {
  for (int32_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = 2.0f * in[i] + 1.0f;
}

extern "C" __global__ __vector__ void pipelined_kernel(__gm__ float* x, __gm__ float* y, int64_t n, int32_t cores) {
  asc_init();
  constexpr int32_t TILE = 512;
  __ubuf__ float* in = (__ubuf__ float*)0;
  __ubuf__ float* out = (__ubuf__ float*)8192;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  int32_t turn = 0;
  for (int64_t first = int64_t(block_idx) * TILE; first < n; first += int64_t(cores) * TILE) {
    const int32_t count = n - first < TILE ? int32_t(n - first) : TILE, s = turn & 1;
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(s));
    asc_copy_gm2ub_align(in + s * TILE, x + first, 1, count * 4, 0, 0, false, static_cast<asc_load_l2_cache_mode>(0),
                         count * 4, count * 4);
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(s));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(s));
    asc_lock(PIPE_V, 30 + s);
    asc_vf_call<scale>(cce::dim3(256), in + s * TILE, out + s * TILE, count);
    asc_unlock(PIPE_V, 30 + s);
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(s));
    asc_lock(PIPE_MTE3, 30 + s);
    asc_copy_ub2gm_align(y + first, out + s * TILE, 1, count * 4, static_cast<asc_store_l2_cache_mode>(0), count * 4,
                         count * 4);
    asc_unlock(PIPE_MTE3, 30 + s);
    ++turn;
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}
