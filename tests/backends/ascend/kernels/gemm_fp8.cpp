// C[M,N] = A[M,K] B[N,K]^T, A in e4m3, B in e4m3, over several blocks of M and slices of K.
// Covers: nd2nz and l12l0 of 8-bit elements (32 in a line), asc_mmad that goes on from L0C, slices of K through two L0
// stages under asc_lock / asc_unlock, a start row and a start column of asc_copy_l12l0a / l12l0b, several cores.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_fp8_kernel(__gm__ float8_e4m3_t* a, __gm__ float8_e4m3_t* b, __gm__ float* c,
                                                    int32_t M, int32_t N, int32_t K) {
  asc_init();
  const int32_t m0 = int32_t(block_idx) * 32, rows = M - m0 < 32 ? M - m0 : 32;
  if (rows <= 0) return;
  const int32_t mb = (rows + 15) / 16, nb = (N + 15) / 16, slices = (K + 63) / 64;
  __cbuf__ float8_e4m3_t* a1 = (__cbuf__ float8_e4m3_t*)0;
  __cbuf__ float8_e4m3_t* b1 = (__cbuf__ float8_e4m3_t*)65536;
  asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
  asc_copy_gm2l1_nd2nz(a1, a + int64_t(m0) * K, K, static_cast<asc_load_l2_cache_mode>(0), rows, K, 0, false);
  asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
  asc_copy_gm2l1_nd2nz(b1, b, K, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  for (int32_t s = 0; s < slices; ++s) {
    const int32_t k = K - s * 64 < 64 ? K - s * 64 : 64, kb = (k + 31) / 32;
    __ca__ float8_e4m3_t* a0 = (__ca__ float8_e4m3_t*)0 + (s & 1) * 16384;
    __cb__ float8_e4m3_t* b0 = (__cb__ float8_e4m3_t*)0 + (s & 1) * 16384;
    asc_lock(PIPE_MTE1, 5 + (s & 1));
    asc_copy_l12l0a(a0, a1, 0, s * 2, mb, kb, mb, mb);
    asc_copy_l12l0b(b0, b1, 0, s * 2, nb, kb, nb, nb);
    asc_unlock(PIPE_MTE1, 5 + (s & 1));
    asc_lock(PIPE_M, 5 + (s & 1));
    asc_mmad((__cc__ float*)0, a0, b0, rows, k, N, 0, true, false, s == 0);
    asc_unlock(PIPE_M, 5 + (s & 1));
  }
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID1);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID1);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c + int64_t(m0) * N, (__cc__ float*)0, N, rows, N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                  static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                  static_cast<asc_relu_pre_mode>(0), false, true, false, false);
}
