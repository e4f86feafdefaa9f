// C = A^T B with A[K,M], B[K,N] in bf16, C in bf16: both operands are turned on their way out of L1.
// Covers: asc_copy_l12l0a_transpose and asc_copy_l12l0b_transpose of 16-bit elements, asc_copy_l0c2gm with the bf16
// conversion, stores of one column block after another.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_trans_kernel(__gm__ bfloat16_t* a, __gm__ bfloat16_t* b,
                                                      __gm__ bfloat16_t* c, int32_t M, int32_t N, int32_t K) {
  asc_init();
  const int32_t mb = (M + 15) / 16, nb = (N + 15) / 16, kb = (K + 15) / 16;
  __cbuf__ bfloat16_t* a1 = (__cbuf__ bfloat16_t*)0;
  __cbuf__ bfloat16_t* b1 = (__cbuf__ bfloat16_t*)131072;
  asc_set_gm2l1_nz_para(1, 1, kb * 16, 0);
  asc_copy_gm2l1_nd2nz(a1, a, M * 2, static_cast<asc_load_l2_cache_mode>(0), K, M, 0, false);
  asc_copy_gm2l1_nd2nz(b1, b, N * 2, static_cast<asc_load_l2_cache_mode>(0), K, N, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID7);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID7);
  // Rows of the source are k; source fractals are kb high and mb (nb) wide, the result's k groups mb (nb) apart.
  asc_copy_l12l0a_transpose((__ca__ bfloat16_t*)0, a1, 0, 0, kb, mb, kb, mb);
  asc_copy_l12l0b_transpose((__cb__ bfloat16_t*)0, b1, 0, 0, kb, nb, kb, nb);
  asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID7);
  asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID7);
  asc_mmad((__cc__ float*)0, (__ca__ bfloat16_t*)0, (__cb__ bfloat16_t*)0, M, K, N, 0, true, false, true);
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID7);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID7);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  // Columns 32 at a time, each time into a tile of its own.
  for (int32_t j = 0; j < (nb + 1) / 2; ++j) {
    const int32_t n = N - j * 32 < 32 ? N - j * 32 : 32;
    asc_copy_l0c2gm(c + j * M * 32, (__cc__ float*)0 + j * mb * 512, n, M, 32, mb * 16,
                    static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0),
                    static_cast<asc_quant_mode>(16), static_cast<asc_relu_pre_mode>(0), false, true, false, false);
  }
}
