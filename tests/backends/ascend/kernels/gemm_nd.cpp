// C[M,N] = A[M,K] B[N,K]^T in bf16, one tile, ragged in all three.
// Covers: asc_copy_gm2l1_nd2nz of both operands with a row pitch, asc_copy_l12l0a / l12l0b, asc_mmad that starts from
// zero, asc_copy_l0c2gm row-major in float32 with a pitch of the output.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_nd_kernel(__gm__ bfloat16_t* a, __gm__ bfloat16_t* b, __gm__ float* c,
                                                   int32_t M, int32_t N, int32_t K, int32_t apitch, int32_t cpitch) {
  asc_init();
  const int32_t mb = (M + 15) / 16, nb = (N + 15) / 16, kb = (K + 15) / 16;
  __cbuf__ bfloat16_t* a1 = (__cbuf__ bfloat16_t*)0;
  __cbuf__ bfloat16_t* b1 = (__cbuf__ bfloat16_t*)131072;
  asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
  asc_copy_gm2l1_nd2nz(a1, a, apitch * 2, static_cast<asc_load_l2_cache_mode>(0), M, K, 0, false);
  asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
  asc_copy_gm2l1_nd2nz(b1, b, K * 2, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID2);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID2);
  asc_copy_l12l0a((__ca__ bfloat16_t*)0, a1, 0, 0, mb, kb, mb, mb);
  asc_copy_l12l0b((__cb__ bfloat16_t*)0, b1, 0, 0, nb, kb, nb, nb);
  asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID3);
  asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID3);
  asc_mmad((__cc__ float*)0, (__ca__ bfloat16_t*)0, (__cb__ bfloat16_t*)0, M, K, N, 0, true, false, true);
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, (__cc__ float*)0, N, M, cpitch, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                  static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                  static_cast<asc_relu_pre_mode>(0), false, true, false, false);
}
