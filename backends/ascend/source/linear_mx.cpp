// Y[t, g] = bf16((X[t, g] 2^(SX-127)) (W[g] 2^(SW-127))^T): block-scaled E4M3, G products side by side, any K of 32.
//
// By hand, since TileLang's block-scaled product takes whole tiles in L1 and leaves the scales behind the last channel as
// they were, so that it needs K in multiples of 64, and one product a tensor. Here the last chunk is as long as it is; a
// half pair is filled with zero codes, its scale byte comes from the caller (SX, SW: [rows][pairs], any number but 255).
//
// Tiles of 128 x 128 outputs, 256 channels at a time, in order, one accumulator: a row's bits depend on it alone.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void linear_mx_kernel(__gm__ uint8_t* X, __gm__ uint8_t* SX, __gm__ uint8_t* W,
                                                    __gm__ uint8_t* SW, __gm__ bfloat16_t* Y, int32_t m, int32_t G,
                                                    int32_t N, int32_t K, int32_t cores) {
  asc_init();
  constexpr int32_t kTile = 128, kChunk = 256;
  const asc_load_l2_cache_mode near = static_cast<asc_load_l2_cache_mode>(0);
  const int32_t across = (m + kTile - 1) / kTile, down = (N + kTile - 1) / kTile, pairs = (K + 63) / 64;
  const int64_t tiles = int64_t(across) * down * G;
  for (int32_t b = 0; b < 2; ++b) {
    asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
    asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
    asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(b));
  }
  int32_t step = 0, done = 0;
  for (int64_t t = int64_t(block_idx); t < tiles; t += cores, ++done) {
    const int64_t m0 = t % across * kTile, n0 = t / across % down * kTile, g = t / across / down;
    const int32_t rows = m - m0 < kTile ? int32_t(m - m0) : kTile, columns = N - n0 < kTile ? int32_t(N - n0) : kTile;
    const int32_t mb = (rows + 15) / 16, nb = (columns + 15) / 16, acc = done & 1;
    __cc__ float* c = (__cc__ float*)0 + acc * kTile * kTile;
    for (int32_t k0 = 0; k0 < K; k0 += kChunk, ++step) {
      const int32_t channels = K - k0 < kChunk ? K - k0 : kChunk, ps = (channels + 63) / 64, b = step & 1;
      __cbuf__ uint8_t* x1 = (__cbuf__ uint8_t*)0 + b * 65536;
      __cbuf__ uint8_t* w1 = (__cbuf__ uint8_t*)32768 + b * 65536;
      __cbuf__ uint16_t* sx1 = (__cbuf__ uint16_t*)131072 + b * 1024;
      __cbuf__ uint16_t* sw1 = (__cbuf__ uint16_t*)132096 + b * 1024;
      asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
      if (channels % 64) {
        const asc_fill_value_config xs = {1, uint64_t(mb) * 16, 0}, ws = {1, uint64_t(nb) * 16, 0};
        asc_fill_l1((__cbuf__ uint16_t*)(x1 + channels * mb * 16), uint32_t(0), xs);
        asc_fill_l1((__cbuf__ uint16_t*)(w1 + channels * nb * 16), uint32_t(0), ws);
      }
      asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
      asc_copy_gm2l1_nd2nz(x1, X + (m0 * G + g) * K + k0, uint64_t(G) * K, near, rows, channels, 0, false);
      asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
      asc_copy_gm2l1_nd2nz(w1, W + (g * N + n0) * K + k0, K, near, columns, channels, 0, false);
      asc_set_gm2l1_nz_para(1, 1, ps, 0);
      asc_copy_gm2l1_dn2nz(sx1, (__gm__ uint16_t*)(SX + ((m0 * G + g) * pairs + k0 / 64) * 2), uint64_t(G) * pairs * 2,
                           near, ps, rows, 0, false);
      asc_copy_gm2l1_dn2nz(sw1, (__gm__ uint16_t*)(SW + ((g * N + n0) * pairs + k0 / 64) * 2), pairs * 2, near, ps,
                           columns, 0, false);
      asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(b));
      asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(b));
      asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
      __ca__ float8_e4m3_t* a0 = (__ca__ float8_e4m3_t*)0 + b * 32768;
      __cb__ float8_e4m3_t* b0 = (__cb__ float8_e4m3_t*)0 + b * 32768;
      asc_copy_l12l0a(a0, (__cbuf__ float8_e4m3_t*)x1, 0, 0, mb, ps * 2, mb, mb);
      asc_copy_l12l0b(b0, (__cbuf__ float8_e4m3_t*)w1, 0, 0, nb, ps * 2, nb, nb);
      asc_copy_l12l0a_mx(uint64_t(uintptr_t(a0)) / 16, (__cbuf__ fp8_e8m0_t*)sx1, 0, 0, mb, ps, ps, ps);
      asc_copy_l12l0b_mx(uint64_t(uintptr_t(b0)) / 16, (__cbuf__ fp8_e8m0_t*)sw1, 0, 0, nb, ps, ps, ps);
      asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
      asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(b));
      asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(b));
      if (k0 == 0) asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(acc));
      asc_mmad_mx(c, a0, b0, rows, ps * 64, columns, 0, true, false, k0 == 0);
      asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
    }
    asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(acc));
    asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(acc));
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2gm(Y + (m0 * G + g) * N + n0, c, columns, rows, G * N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                    static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(16),
                    static_cast<asc_relu_pre_mode>(0), false, true, false, false);
    asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(acc));
  }
  for (int32_t b = 0; b < 2; ++b) {
    asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
    asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
    asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(b));
  }
}
