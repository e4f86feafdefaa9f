// C[M,N] = (A SA)(B SB)^T: codes in e4m3, one E8M0 scale for 32 of K, two scales of a row side by side.
// Covers: asc_copy_l12l0a_mx / l12l0b_mx with the scales of 64 of K as one 16-bit element (dn2nz), asc_mmad_mx; fractals
// of 32 codes a line; accumulation over two halves of K.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_mx8_kernel(__gm__ uint8_t* a, __gm__ uint8_t* b, __gm__ uint16_t* sa,
                                                  __gm__ uint16_t* sb, __gm__ float* c, int32_t M, int32_t N,
                                                  int32_t K, int32_t first) {
  asc_init();
  const int32_t mb = (M + 15) / 16, nb = (N + 15) / 16, pairs = K / 64, kb = K / 32;
  __cbuf__ uint8_t* a1 = (__cbuf__ uint8_t*)0;
  __cbuf__ uint8_t* b1 = (__cbuf__ uint8_t*)65536;
  __cbuf__ uint16_t* sa1 = (__cbuf__ uint16_t*)131072;
  __cbuf__ uint16_t* sb1 = (__cbuf__ uint16_t*)196608;
  asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
  asc_copy_gm2l1_nd2nz(a1, a, K, static_cast<asc_load_l2_cache_mode>(0), M, K, 0, false);
  asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
  asc_copy_gm2l1_nd2nz(b1, b, K, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
  // Scales: a line has 16 rows of one pair; the lines of a row block follow one another.
  asc_set_gm2l1_nz_para(1, 1, pairs, 0);
  asc_copy_gm2l1_dn2nz(sa1, sa, pairs * 2, static_cast<asc_load_l2_cache_mode>(0), pairs, M, 0, false);
  asc_copy_gm2l1_dn2nz(sb1, sb, pairs * 2, static_cast<asc_load_l2_cache_mode>(0), pairs, N, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  // The first pairs, then the rest, into places one behind the other.
  for (int32_t part = 0; part < 2; ++part) {
    const int32_t p0 = part ? first : 0, ps = part ? pairs - first : first;
    if (ps == 0) continue;
    const int32_t per = kb / pairs;  // groups of a pair
    __ca__ float8_e4m3_t* a0 = (__ca__ float8_e4m3_t*)0 + part * 16384;
    __cb__ float8_e4m3_t* b0 = (__cb__ float8_e4m3_t*)0 + part * 16384;
    asc_copy_l12l0a(a0, (__cbuf__ float8_e4m3_t*)a1, 0, p0 * per, mb, ps * per, mb, mb);
    asc_copy_l12l0b(b0, (__cbuf__ float8_e4m3_t*)b1, 0, p0 * per, nb, ps * per, nb, nb);
    asc_copy_l12l0a_mx(uint64_t(uintptr_t(a0)) / 16, (__cbuf__ fp8_e8m0_t*)sa1, 0, p0, mb, ps, pairs, ps);
    asc_copy_l12l0b_mx(uint64_t(uintptr_t(b0)) / 16, (__cbuf__ fp8_e8m0_t*)sb1, 0, p0, nb, ps, pairs, ps);
    asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(part));
    asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(part));
    asc_mmad_mx((__cc__ float*)0, a0, b0, M, ps * 64, N, 0, true, false, part == 0);
  }
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, N, M, N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                  static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                  static_cast<asc_relu_pre_mode>(0), false, true, false, false);
}
