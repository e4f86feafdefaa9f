// C = relu(A^T B) with A[K,M], B[K,N] in fp16, C in fp16: both operands are turned on their way into L1.
// Covers: asc_copy_gm2l1_dn2nz (ragged), asc_mmad in fp16, asc_copy_l0c2gm with the fp16 conversion and ReLU.
#include "c_api/asc_simd.h"

extern "C" __global__ __cube__ void gemm_dn_kernel(__gm__ half* a, __gm__ half* b, __gm__ half* c, int32_t M,
                                                   int32_t N, int32_t K, int32_t relu) {
  asc_init();
  const int32_t mb = (M + 15) / 16, nb = (N + 15) / 16, kb = (K + 15) / 16;
  __cbuf__ half* a1 = (__cbuf__ half*)65536;
  __cbuf__ half* b1 = (__cbuf__ half*)262144;
  __cc__ float* c0 = (__cc__ float*)16384;
  asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
  asc_copy_gm2l1_dn2nz(a1, a, M * 2, static_cast<asc_load_l2_cache_mode>(0), M, K, 0, false);
  asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
  asc_copy_gm2l1_dn2nz(b1, b, N * 2, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
  asc_copy_l12l0a((__ca__ half*)512, a1, 0, 0, mb, kb, mb, mb);
  asc_copy_l12l0b((__cb__ half*)1024, b1, 0, 0, nb, kb, nb, nb);
  asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID0);
  asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID0);
  asc_mmad(c0, (__ca__ half*)512, (__cb__ half*)1024, M, K, N, 0, true, false, true);
  asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm(c, c0, N, M, N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                  static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(1),
                  static_cast<asc_relu_pre_mode>(relu), false, true, false, false);
}
