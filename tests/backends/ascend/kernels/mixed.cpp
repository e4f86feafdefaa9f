// A cube core and its two vector cores: UB to L1, a product, halves back to both UBs; `what` chooses what is wrong.
#include "c_api/asc_simd.h"

extern "C" __global__ __mix__(1, 2) void mixed_kernel(__gm__ bfloat16_t* a, __gm__ bfloat16_t* b, __gm__ float* c,
                                                      int32_t what) {
  asc_init();
  constexpr int32_t M = 32, K = 32, N = 32;
  __cbuf__ bfloat16_t* a1 = (__cbuf__ bfloat16_t*)0;
  __cbuf__ bfloat16_t* b1 = (__cbuf__ bfloat16_t*)8192;
  __cc__ float* c0 = (__cc__ float*)0;
  __ubuf__ float* out = (__ubuf__ float*)4096;
  if (ASC_IS_AIC) {
    asc_set_gm2l1_nz_para(1, 1, N, 0);
    asc_copy_gm2l1_nd2nz(b1, b, K * 2, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    asc_sync_intra_wait(PIPE_MTE1, 1);
    if (what != 1) asc_sync_intra_wait(PIPE_MTE1, 17);
    asc_copy_l12l0a((__ca__ bfloat16_t*)0, a1, 0, 0, M / 16, K / 16, M / 16, M / 16);
    asc_copy_l12l0b((__cb__ bfloat16_t*)0, b1, 0, 0, N / 16, K / 16, N / 16, N / 16);
    asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID0);
    asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID0);
    asc_mmad(c0, (__ca__ bfloat16_t*)0, (__cb__ bfloat16_t*)0, M, K, N, 0, true, false, true);
    asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
    asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2ub(out, c0, N, M, N, M, 0, static_cast<asc_dual_dst_mode>(1), static_cast<asc_unit_flag_mode>(0),
                    static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), false, true, false, false);
    if (what != 2) asc_sync_intra_arrive(PIPE_FIX, 2);
    asc_sync_intra_arrive(PIPE_FIX, 18);
  } else {
    const int32_t half = asc_get_sub_block_id();
    __ubuf__ bfloat16_t* in = (__ubuf__ bfloat16_t*)0;
    // 16 rows of A, one 32-byte column group after the other, as L1 has them.
    for (int32_t g = 0; g < K / 16; g++)
      asc_copy_gm2ub_align(in + g * 256, a + half * 16 * K + g * 16, 16, 32, 0, 0, false,
                           static_cast<asc_load_l2_cache_mode>(0), K * 2, 32);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    asc_copy_ub2l1(a1 + half * 256, in, K / 16, 16, 0, 16);
    asc_sync_intra_arrive(PIPE_MTE3, 1);
    asc_sync_intra_wait(PIPE_MTE3, 2);
    asc_copy_ub2gm_align(c + half * 16 * N, out, 16, N * 4, static_cast<asc_store_l2_cache_mode>(0), N * 4, N * 4);
  }
}
