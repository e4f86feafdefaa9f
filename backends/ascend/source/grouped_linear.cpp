// Y[i] = bf16(x[source_row[i]] w[e]^T) for the rows i of expert e, O[e] <= i < O[e+1]: E4M3 rows, E2M1 weights, both with
// a scale for 32 channels.
//
// By hand, since the matrix unit takes two operands of one width: the vector cores widen the codes of the weights to E4M3,
// which has every value of E2M1, on their way from global memory to L1, half of a tile's columns each. TileLang has no
// tiles of run-time rows in L1 for its block-scaled product, and no copy from UB to a part of an L1 tile.
//
// W: [E][groups][N][16], the 16 bytes of 32 channels of a row; an even number of groups. SX: [rows][pairs] of scale bytes
// as the rows lie in Y. SW: [E][N][pairs]. Where K is an odd number of groups, the caller has filled up both with codes of
// zero and scales that are numbers; codes of x are filled up here.
//
// Tiles of 128 x 128 outputs, 256 channels at a time, in order, one accumulator: a row's bits depend on it alone. Experts
// without rows are not read.
#include "c_api/asc_simd.h"

// E2M1 codes as E4M3, four bytes in a lane: c4 holds 4 times the codes without signs. 2 to 7 become 0x30 + 4 c, 1 becomes
// 0x30, 0 stays.
__simd_callee__ inline void widened(vector_u32& d, const vector_u32& c4, const vector_u32& sign, const vector_u32& step,
                                    const vector_u32& border, const vector_u32& bit, const vector_bool& all) {
  vector_u32 some, many, keep, part;
  asc_add(some, c4, step, all);
  asc_and(some, some, bit, all);  // 0x20 from code 1 on
  asc_add(many, c4, border, all);
  asc_and(many, many, bit, all);  // 0x20 from code 2 on
  asc_shiftright_scalar(keep, many, int16_t(1), all);
  asc_shiftright_scalar(part, many, int16_t(2), all);
  asc_or(keep, keep, part, all);
  asc_shiftright_scalar(part, many, int16_t(3), all);
  asc_or(keep, keep, part, all);
  asc_and(keep, keep, c4, all);
  asc_shiftright_scalar(part, some, int16_t(1), all);
  asc_or(some, some, part, all);
  asc_add(keep, keep, some, all);
  asc_or(d, keep, sign, all);
}

// 256 bytes of codes at a time become 512: the even channel is in the low half of a byte.
__simd_vf__ inline void widen(__ubuf__ uint32_t* in, __ubuf__ uint32_t* out, int32_t vectors) {
  const vector_bool all = asc_create_mask_b32(PAT_ALL);
  const vector_bool bytes = asc_create_mask_b8(PAT_ALL);
  vector_u32 step, border, bit, signs;
  asc_duplicate_scalar(step, uint32_t(0x1C1C1C1C), all);
  asc_duplicate_scalar(border, uint32_t(0x18181818), all);
  asc_duplicate_scalar(bit, uint32_t(0x20202020), all);
  asc_duplicate_scalar(signs, uint32_t(0x80808080), all);
  for (int32_t i = 0; i < vectors; ++i) {
    vector_u32 v, code, sign, low, high;
    vector_u8 first, second;
    asc_loadalign(v, in + i * 64, 0);
    asc_shiftleft_scalar(code, v, int16_t(2), all);
    asc_and(code, code, step, all);
    asc_shiftleft_scalar(sign, v, int16_t(4), all);
    asc_and(sign, sign, signs, all);
    widened(low, code, sign, step, border, bit, all);
    asc_shiftright_scalar(code, v, int16_t(2), all);
    asc_and(code, code, step, all);
    asc_and(sign, v, signs, all);
    widened(high, code, sign, step, border, bit, all);
    asc_intlv(first, second, reinterpret_cast<vector_u8&>(low), reinterpret_cast<vector_u8&>(high));
    asc_storealign((__ubuf__ uint8_t*)(out + i * 128), first, 0, bytes);
    asc_storealign((__ubuf__ uint8_t*)(out + i * 128 + 64), second, 0, bytes);
  }
}

extern "C" __global__ __mix__(1, 2) void grouped_linear_kernel(__gm__ uint8_t* X, __gm__ uint8_t* SX, __gm__ uint8_t* W,
                                                             __gm__ uint8_t* SW, __gm__ int32_t* S, __gm__ int32_t* O,
                                                             __gm__ bfloat16_t* Y, int32_t gathered, int32_t E,
                                                             int32_t N, int32_t K, int32_t cores) {
  asc_init();
  constexpr int32_t kTile = 128, kHalf = 64, kChunk = 256;
  const asc_load_l2_cache_mode near = static_cast<asc_load_l2_cache_mode>(0);
  const int32_t down = (N + kTile - 1) / kTile, pairs = (K + 63) / 64, groups = pairs * 2;
  const int64_t tiles = int64_t(E) * down;
  int32_t step = 0;
  if (ASC_IS_AIC) {
    for (int32_t b = 0; b < 2; ++b) {
      asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
      asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
      asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(b));
    }
    int32_t done = 0;
    for (int64_t t = int64_t(block_idx); t < tiles; t += cores) {
      const int64_t e = t / down, n0 = t % down * kTile;
      const int32_t columns = N - n0 < kTile ? int32_t(N - n0) : kTile, nb = (columns + 15) / 16, end = O[e + 1];
      for (int32_t m0 = O[e]; m0 < end; m0 += kTile, ++done) {
        const int32_t rows = end - m0 < kTile ? end - m0 : kTile, mb = (rows + 15) / 16, acc = done & 1;
        __cc__ float* c = (__cc__ float*)0 + acc * kTile * kTile;
        for (int32_t k0 = 0; k0 < K; k0 += kChunk, ++step) {
          const int32_t channels = K - k0 < kChunk ? K - k0 : kChunk, ps = (channels + 63) / 64, b = step & 1;
          __cbuf__ uint8_t* x1 = (__cbuf__ uint8_t*)0 + b * 65536;
          __cbuf__ uint8_t* w1 = (__cbuf__ uint8_t*)32768 + b * 65536;
          __cbuf__ uint16_t* sx1 = (__cbuf__ uint16_t*)131072 + b * 1024;
          __cbuf__ uint16_t* sw1 = (__cbuf__ uint16_t*)132096 + b * 1024;
          asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
          if (channels % 64) {
            const asc_fill_value_config fill = {1, uint64_t(mb) * 16, 0};
            asc_fill_l1((__cbuf__ uint16_t*)(x1 + channels * mb * 16), uint32_t(0), fill);
          }
          asc_set_gm2l1_nz_para(1, 1, mb * 16, 0);
          if (gathered) {
            for (int32_t r = 0; r < rows; ++r)
              asc_copy_gm2l1_nd2nz(x1 + r * 32, X + int64_t(S[m0 + r]) * K + k0, K, near, 1, channels, 0, false);
          } else {
            asc_copy_gm2l1_nd2nz(x1, X + int64_t(m0) * K + k0, K, near, rows, channels, 0, false);
          }
          asc_set_gm2l1_nz_para(1, 1, ps, 0);
          asc_copy_gm2l1_dn2nz(sx1, (__gm__ uint16_t*)(SX + (int64_t(m0) * pairs + k0 / 64) * 2), pairs * 2, near, ps,
                               rows, 0, false);
          asc_copy_gm2l1_dn2nz(sw1, (__gm__ uint16_t*)(SW + ((e * N + n0) * pairs + k0 / 64) * 2), pairs * 2, near, ps,
                               columns, 0, false);
          asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(b));
          asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(b));
          asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
          asc_sync_intra_wait(PIPE_MTE1, b);  // both halves of the columns are there
          asc_sync_intra_wait(PIPE_MTE1, 16 + b);
          __ca__ float8_e4m3_t* a0 = (__ca__ float8_e4m3_t*)0 + b * 32768;
          __cb__ float8_e4m3_t* b0 = (__cb__ float8_e4m3_t*)0 + b * 32768;
          asc_copy_l12l0a(a0, (__cbuf__ float8_e4m3_t*)x1, 0, 0, mb, ps * 2, mb, mb);
          asc_copy_l12l0b(b0, (__cbuf__ float8_e4m3_t*)w1, 0, 0, nb, ps * 2, kTile / 16, nb);
          asc_copy_l12l0a_mx(uint64_t(uintptr_t(a0)) / 16, (__cbuf__ fp8_e8m0_t*)sx1, 0, 0, mb, ps, ps, ps);
          asc_copy_l12l0b_mx(uint64_t(uintptr_t(b0)) / 16, (__cbuf__ fp8_e8m0_t*)sw1, 0, 0, nb, ps, ps, ps);
          asc_sync_intra_arrive(PIPE_MTE1, 2 + b);  // they may be written over
          asc_sync_intra_arrive(PIPE_MTE1, 18 + b);
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
        asc_copy_l0c2gm(Y + int64_t(m0) * N + n0, c, columns, rows, N, mb * 16, static_cast<asc_store_l2_cache_mode>(0),
                        static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(16),
                        static_cast<asc_relu_pre_mode>(0), false, true, false, false);
        asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(acc));
      }
    }
    for (int32_t b = 0; b < 2; ++b) {
      asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(b));
      asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(b));
      asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(b));
    }
  } else {
    const int32_t half = asc_get_sub_block_id();
    for (int32_t b = 0; b < 2; ++b) {
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(b));
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(b));
    }
    for (int64_t t = int64_t(block_idx); t < tiles; t += cores) {
      const int64_t e = t / down, n0 = t % down * kTile + half * kHalf;
      const int32_t columns = N <= n0 ? 0 : N - n0 < kHalf ? int32_t(N - n0) : kHalf, end = O[e + 1];
      for (int32_t m0 = O[e]; m0 < end; m0 += kTile) {
        for (int32_t k0 = 0; k0 < K; k0 += kChunk, ++step) {
          const int32_t channels = K - k0 < kChunk ? K - k0 : kChunk, gs = (channels + 63) / 64 * 2, b = step & 1;
          __ubuf__ uint8_t* in = (__ubuf__ uint8_t*)0 + b * 8192;
          __ubuf__ uint8_t* out = (__ubuf__ uint8_t*)16384 + b * 16384;
          __cbuf__ uint8_t* w1 = (__cbuf__ uint8_t*)32768 + b * 65536;
          if (columns) {
            asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(b));
            asc_copy_gm2ub_align(in, W + ((e * groups + k0 / 32) * N + n0) * 16, gs, columns * 16, 0, 0, false, near,
                                 uint64_t(N) * 16, kHalf * 16);
            asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(b));
            asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(b));
            asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(b));
            widen((__ubuf__ uint32_t*)in, (__ubuf__ uint32_t*)out, gs * kHalf / 16);
            asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(b));
            asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(b));
            asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(b));
          }
          if (step >= 2) asc_sync_intra_wait(PIPE_MTE3, 2 + b);
          if (columns) {
            asc_copy_ub2l1(w1 + half * kHalf * 32, out, gs, columns, kHalf - columns, kTile - columns);
            asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(b));
          }
          asc_sync_intra_arrive(PIPE_MTE3, b);
        }
      }
    }
    for (int32_t b = 0; b < 2; ++b) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(b));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(b));
      if (step > b) asc_sync_intra_wait(PIPE_MTE3, 2 + b);
    }
  }
}
