// C = A B^T on a cube core and two vector cores: A comes through the vector cores, C goes through them.
// Covers: asc_copy_ub2l1 with gaps, asc_copy_l0c2ub to one vector core (0), by halves of the rows (1) and of the columns
// (2), with bf16 conversion to one core, asc_sync_intra_arrive / wait in both directions, ASC_IS_AIC / AIV.
#include "c_api/asc_simd.h"

extern "C" __global__ __mix__(1, 2) void halves_kernel(__gm__ half* a, __gm__ half* b, __gm__ float* c,
                                                       __gm__ bfloat16_t* narrow, int32_t M, int32_t N, int32_t K,
                                                       int32_t dual) {
  asc_init();
  const int32_t mb = M / 16, nb = (N + 15) / 16, kb = K / 16, half_rows = M / 2;
  __cbuf__ half* a1 = (__cbuf__ half*)0;
  __cbuf__ half* b1 = (__cbuf__ half*)131072;
  __ubuf__ float* out = (__ubuf__ float*)65536;
  __ubuf__ bfloat16_t* out16 = (__ubuf__ bfloat16_t*)196608;
  const int32_t pitch = dual == 2 ? N / 2 : (N + 7) / 8 * 8;
  if (ASC_IS_AIC) {
    asc_set_gm2l1_nz_para(1, 1, nb * 16, 0);
    asc_copy_gm2l1_nd2nz(b1, b, K * 2, static_cast<asc_load_l2_cache_mode>(0), N, K, 0, false);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    asc_sync_wait(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    asc_sync_intra_wait(PIPE_MTE1, 3);
    asc_sync_intra_wait(PIPE_MTE1, 19);
    asc_copy_l12l0a((__ca__ half*)0, a1, 0, 0, mb, kb, mb, mb);
    asc_copy_l12l0b((__cb__ half*)0, b1, 0, 0, nb, kb, nb, nb);
    asc_sync_notify(PIPE_MTE1, PIPE_M, EVENT_ID0);
    asc_sync_wait(PIPE_MTE1, PIPE_M, EVENT_ID0);
    asc_mmad((__cc__ float*)0, (__ca__ half*)0, (__cb__ half*)0, M, K, N, 0, true, false, true);
    asc_sync_notify(PIPE_M, PIPE_FIX, EVENT_ID0);
    asc_sync_wait(PIPE_M, PIPE_FIX, EVENT_ID0);
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2ub(out, (__cc__ float*)0, N, M, pitch, M, 1, static_cast<asc_dual_dst_mode>(dual),
                    static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                    static_cast<asc_relu_pre_mode>(0), false, true, false, false);
    asc_copy_l0c2ub(out16, (__cc__ float*)0, N, M, nb * 16, M, 0, static_cast<asc_dual_dst_mode>(0),
                    static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(16),
                    static_cast<asc_relu_pre_mode>(1), false, true, false, false);
    asc_sync_intra_arrive(PIPE_FIX, 4);
    asc_sync_intra_arrive(PIPE_FIX, 20);
  } else {
    const int32_t which = asc_get_sub_block_id();
    __ubuf__ half* in = (__ubuf__ half*)0;
    for (int32_t g = 0; g < kb; ++g)  // with a line between the groups
      asc_copy_gm2ub_align(in + g * (half_rows + 1) * 16, a + which * half_rows * K + g * 16, half_rows, 32, 0, 0, false,
                           static_cast<asc_load_l2_cache_mode>(0), K * 2, 32);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    asc_copy_ub2l1(a1 + which * half_rows * 16, in, kb, half_rows, 1, M - half_rows);
    asc_sync_intra_arrive(PIPE_MTE3, 3);
    asc_sync_intra_wait(PIPE_MTE3, 4);
    if (dual == 1)
      asc_copy_ub2gm_align(c + which * half_rows * N, out, half_rows, N * 4, static_cast<asc_store_l2_cache_mode>(0),
                           N * 4, pitch * 4);
    else if (dual == 2)
      asc_copy_ub2gm_align(c + which * (N / 2), out, M, N / 2 * 4, static_cast<asc_store_l2_cache_mode>(0), N * 4,
                           pitch * 4);
    else if (which == 1)
      asc_copy_ub2gm_align(c, out, M, N * 4, static_cast<asc_store_l2_cache_mode>(0), N * 4, pitch * 4);
    if (which == 0)
      asc_copy_ub2gm_align(narrow, out16, M, N * 2, static_cast<asc_store_l2_cache_mode>(0), N * 2, nb * 32);
  }
}
