// C[M,N] = A[M,K] B[N,K]^T + bias[N] in fp16; rows of A and the end of the bias are filled in L1, not read.
// Covers: asc_fill_l1 (blocks, repeats and gaps), asc_copy_l12bt, asc_mmad that starts from the bias table, a barrier of
// one pipe between a fill and the copy over part of it.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_bias_kernel(__gm__ half* a, __gm__ half* b, __gm__ float* bias,
                                                     __gm__ float* c, int32_t M, int32_t N, int32_t K, int32_t given,
                                                     int32_t biased) {
  asc_init();
  const int32_t mb = (M + 15) / 16, nb = (N + 15) / 16, kb = (K + 15) / 16;
  __cbuf__ half* a1 = (__cbuf__ half*)0;
  __cbuf__ half* b1 = (__cbuf__ half*)131072;
  __cbuf__ float* bias1 = (__cbuf__ float*)262144;
  // Ones in rows given..M of each group of 16 columns, then the rows that are given.
  asc_fill_l1(a1 + given * 16, half(1.0f), {uint64_t(kb), uint64_t(mb * 16 - given), uint64_t(given)});
  asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
  asc_copy_gm2l1_nd2nz(a1, a, K * 2, static_cast<asc_load_l2_cache_mode>(0), given, K, 0, false);
  asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
  asc_copy_gm2l1_nd2nz(b1, b, K * 2, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
  // Zeros for all columns, then the bias of those that have one.
  asc_fill_l1(bias1, 0u, {1, uint64_t(nb * 2), 0});
  asc_sync_pipe(PIPE_MTE2);
  asc_set_gm2l1_nz_para(1, 1, 1, 0);
  asc_copy_gm2l1_nd2nz(bias1, bias, biased * 4, static_cast<asc_load_l2_cache_mode>(0), 1, biased, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_copy_l12l0a((__ca__ half*)0, a1, 0, 0, mb, kb, mb, mb);
  asc_copy_l12l0b((__cb__ half*)0, b1, 0, 0, nb, kb, nb, nb);
  asc_copy_l12bt(uint64_t(0), bias1, false, 1, nb, 0, 0);
  asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID0);
  asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID0);
  asc_mmad((__cc__ float*)0, (__ca__ half*)0, (__cb__ half*)0, M, K, N, 0, true, true, false);
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, N, M, N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                  static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                  static_cast<asc_relu_pre_mode>(0), false, true, false, false);
}
