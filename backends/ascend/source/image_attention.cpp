// Full attention of the patches of images, head by head; a mixed kernel by hand.
//
// By hand for the reason that sparse attention is: rows that share their keys are found from global memory, so tiles of
// queries have lengths known at run time, and one text serves every width of a head.
//
// A block takes a head of up to 64 rows, run by run of rows that have the same keys. Tiles of 64 keys count from the
// first key of a row. Cube: S = q K^T; vector cores, half of the rows each: P = exp(S - M); cube: O = P V; vector cores
// add it to what they have, rescaled. Rows of a product share nothing, so a row's bits depend on its own keys alone.
#include "c_api/asc_simd.h"

namespace {

constexpr int32_t ROWS = 64, KEYS = 64, PITCH = 33;
// Places in UB, bytes. Column groups of P lie 33 lines apart, not 32: other banks.
constexpr int32_t SCORES = 0, WEIGHTS = 8192, STATE = 12416, VALUES = 14336, SUMS = 30720, RESULT = 47104;
// Rows of STATE, 64 numbers each.
constexpr int32_t TOP = 0, TOTAL = 64, TILE_TOP = 128, TILE_SUM = 192, SHIFT = 256, FACTOR = 320;
// L1: queries, two tiles of keys and of values, P.
constexpr int32_t QUERY_1 = 0, KEYS_1 = 16384, VALUES_1 = 49152, TILE_BYTES = 16384, WEIGHTS_1 = 81920;
// Mutexes of the cube core, of a vector core; counters from the cube core, and to it.
enum { QUERY_M, KEYS_0, KEYS_1_M, VALUES_0, VALUES_1_M, LEFT_M, RIGHT_M, WEIGHTS_LEFT_M, VALUES_RIGHT_M, SCORES_M, SUMS_M };
enum { WEIGHTS_M, RESULT_M };
enum { SCORES_READY, VALUES_READY };
enum { WEIGHTS_READY };

constexpr auto load = static_cast<asc_load_l2_cache_mode>(0);
constexpr auto store = static_cast<asc_store_l2_cache_mode>(0);

__aicore__ inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
__aicore__ inline int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }

}  // namespace

// Before the first tile: no maximum, nothing summed.
__simd_vf__ inline void begin_rows(__ubuf__ float* state) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_f32 low, none;
  asc_duplicate_scalar(low, -__builtin_inff(), all);
  asc_duplicate_scalar(none, 0.0f, all);
  asc_storealign(state + TOP, low, 0, all);
  asc_storealign(state + TOTAL, none, 0, all);
}

// P of a tile of `count` keys, and what sums before it are to be multiplied by.
__simd_vf__ inline void weigh(__ubuf__ float* scores, __ubuf__ uint16_t* weights, __ubuf__ float* state, int32_t rows,
                              int32_t count, float factor) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), none;
  uint32_t left = count;
  vector_bool there = asc_update_mask_b32(left);
  vector_f32 low, zero;
  asc_duplicate_scalar(low, -__builtin_inff(), all);
  asc_duplicate_scalar(zero, 0.0f, all);
  for (int32_t r = 0; r < rows; ++r) {
    vector_f32 score, top;
    asc_loadalign(score, scores + r * KEYS, 0);
    asc_mul_scalar(score, score, factor, all);
    asc_select(score, score, low, there);
    asc_storealign(scores + r * KEYS, score, 0, all);
    asc_reduce_max(top, score, all);
    asc_storealign_1st(state + TILE_TOP, top, r);
  }
  asc_mem_bar(VST_VLD);
  // One lane a row. While no score is above -infinity nothing is subtracted: the weights are 0, not NaN.
  vector_f32 old, tile, shift, change, total, sum;
  asc_loadalign(old, state + TOP, 0);
  asc_loadalign(tile, state + TILE_TOP, 0);
  asc_max(tile, old, tile, all);
  asc_eq(none, tile, low, all);
  asc_select(shift, zero, tile, none);
  asc_sub(change, old, shift, all);
  asc_exp(change, change, all);
  asc_storealign(state + TOP, tile, 0, all);
  asc_storealign(state + SHIFT, shift, 0, all);
  asc_storealign(state + FACTOR, change, 0, all);
  asc_mem_bar(VST_VLD);
  for (int32_t r = 0; r < rows; ++r) {
    vector_f32 weight, from, tile_sum;
    vector_bf16 rounded;
    vector_u16 packed;
    asc_loadalign(weight, scores + r * KEYS, 0);
    asc_loadalign_brc_elem(from, state + SHIFT, r);
    asc_sub(weight, weight, from, all);
    asc_exp(weight, weight, all);
    asc_reduce_sum(tile_sum, weight, all);
    asc_storealign_1st(state + TILE_SUM, tile_sum, r);
    vcvt(rounded, weight, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    asc_pack_to_low(packed, reinterpret_cast<vector_u32&>(rounded));
    asc_storealign(weights + r * 16, packed, uint16_t(PITCH), uint16_t(1), asc_create_mask_b16(PAT_VL64));
  }
  asc_mem_bar(VST_VLD);
  asc_loadalign(total, state + TOTAL, 0);
  asc_loadalign(sum, state + TILE_SUM, 0);
  asc_mul(total, total, change, all);
  asc_add(total, total, sum, all);
  asc_storealign(state + TOTAL, total, 0, all);
}

__simd_vf__ inline void accumulate(__ubuf__ float* values, __ubuf__ float* sums, __ubuf__ float* state, int32_t rows,
                                   int32_t wide, int32_t first) {
  for (int32_t r = 0; r < rows; ++r) {
    uint32_t left = wide;
    vector_f32 factor;
    asc_loadalign_brc_elem(factor, state + FACTOR, r);
    for (int32_t c = 0; c < wide; c += 64) {
      vector_bool some = asc_update_mask_b32(left);
      vector_f32 value, sum;
      asc_loadalign(value, values + r * wide + c, 0);
      if (!first) {
        asc_loadalign(sum, sums + r * wide + c, 0);
        asc_mul(sum, sum, factor, some);
        asc_add(value, value, sum, some);
      }
      asc_storealign(sums + r * wide + c, value, 0, some);
    }
  }
}

// The quotient. M - M makes it NaN where M is infinite, and else adds nothing.
__simd_vf__ inline void finish(__ubuf__ float* sums, __ubuf__ float* state, __ubuf__ bfloat16_t* result, int32_t rows,
                               int32_t wide) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_f32 top, total;
  asc_loadalign(top, state + TOP, 0);
  asc_loadalign(total, state + TOTAL, 0);
  asc_sub(top, top, top, all);
  asc_add(total, total, top, all);
  asc_storealign(state + TOTAL, total, 0, all);
  asc_mem_bar(VST_VLD);
  for (int32_t r = 0; r < rows; ++r) {
    uint32_t left = wide;
    vector_f32 divisor;
    asc_loadalign_brc_elem(divisor, state + TOTAL, r);
    for (int32_t c = 0; c < wide; c += 64) {
      vector_bool some = asc_update_mask_b32(left);
      vector_f32 value;
      vector_bf16 rounded;
      asc_loadalign(value, sums + r * wide + c, 0);
      asc_div(value, value, divisor, some);
      vcvt(rounded, value, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
      asc_storealign_pack((__ubuf__ uint32_t*)(result + r * wide + c), reinterpret_cast<vector_u32&>(rounded), 0, some);
    }
  }
}

__simd_vf__ inline void clear(__ubuf__ uint16_t* result, int32_t count) {
  vector_u16 zero;
  asc_duplicate_scalar(zero, uint16_t(0), asc_create_mask_b16(PAT_ALL));
  uint32_t left = count;
  for (int32_t i = 0; i < count; i += 128) {
    vector_bool some = asc_update_mask_b16(left);
    asc_storealign(result + i, zero, 0, some);
  }
}

extern "C" __global__ __mix__(1, 2) void image_attention(
    __gm__ bfloat16_t* q, __gm__ bfloat16_t* k, __gm__ bfloat16_t* v, __gm__ int32_t* begin, __gm__ int32_t* end,
    __gm__ bfloat16_t* o, int64_t q_stride, int64_t q_head, int64_t k_stride, int64_t k_head, int64_t v_stride,
    int64_t v_head, int32_t rows, int32_t h, int32_t d, float scale, int32_t cores) {
  asc_init();
  const int32_t wide = (d + 15) / 16 * 16;
  const int64_t units = int64_t((rows + ROWS - 1) / ROWS) * h;
  int32_t turn = 0;  // which place of L1 a tile of keys has

  for (int64_t unit = block_idx; unit < units; unit += cores) {
    const int32_t head = int32_t(unit % h), last_row = least(rows, int32_t(unit / h) * ROWS + ROWS);
    for (int32_t row = int32_t(unit / h) * ROWS, next; row < last_row; row = next) {
      const int32_t from = begin[row], count = end[row] - from;
      for (next = row + 1; next < last_row && begin[next] == from && end[next] == from + count;) ++next;
      const int32_t run = next - row, tall = (run + 15) / 16 * 16, mb = tall / 16;

      if (ASC_IS_AIC) {
        if (count <= 0) continue;
        __cbuf__ bfloat16_t* q1 = (__cbuf__ bfloat16_t*)QUERY_1;
        __cbuf__ bfloat16_t* p1 = (__cbuf__ bfloat16_t*)WEIGHTS_1;
        __ca__ bfloat16_t* q0 = (__ca__ bfloat16_t*)0;
        __ca__ bfloat16_t* p0 = (__ca__ bfloat16_t*)32768;
        __cb__ bfloat16_t* k0 = (__cb__ bfloat16_t*)0;
        __cb__ bfloat16_t* v0 = (__cb__ bfloat16_t*)32768;
        __cc__ float* s0 = (__cc__ float*)0;
        __cc__ float* o0 = (__cc__ float*)32768;
        asc_lock(PIPE_MTE2, QUERY_M);
        asc_set_gm2l1_nz_para(1, 1, tall, 0);
        asc_copy_gm2l1_nd2nz(q1, q + row * q_stride + head * q_head, q_stride * 2, load, run, d, 0, false);
        asc_unlock(PIPE_MTE2, QUERY_M);
        asc_lock(PIPE_MTE1, QUERY_M);
        asc_lock(PIPE_MTE1, LEFT_M);
        asc_copy_l12l0a(q0, q1, 0, 0, mb, wide / 16, mb, mb);
        asc_unlock(PIPE_MTE1, LEFT_M);
        asc_unlock(PIPE_MTE1, QUERY_M);
        for (int32_t key = 0; key < count; key += KEYS, turn ^= 1) {
          const int32_t keys = least(count - key, KEYS);
          __cbuf__ bfloat16_t* k1 = (__cbuf__ bfloat16_t*)(KEYS_1 + turn * TILE_BYTES);
          __cbuf__ bfloat16_t* v1 = (__cbuf__ bfloat16_t*)(VALUES_1 + turn * TILE_BYTES);
          asc_set_gm2l1_nz_para(1, 1, KEYS, 0);
          asc_lock(PIPE_MTE2, KEYS_0 + turn);
          asc_copy_gm2l1_nd2nz(k1, k + (int64_t(from) + key) * k_stride + head * k_head, k_stride * 2, load, keys, d, 0,
                               false);
          asc_unlock(PIPE_MTE2, KEYS_0 + turn);
          asc_lock(PIPE_MTE2, VALUES_0 + turn);
          asc_copy_gm2l1_nd2nz(v1, v + (int64_t(from) + key) * v_stride + head * v_head, v_stride * 2, load, keys, d, 0,
                               false);
          asc_unlock(PIPE_MTE2, VALUES_0 + turn);
          asc_lock(PIPE_MTE1, KEYS_0 + turn);
          asc_lock(PIPE_MTE1, RIGHT_M);
          asc_copy_l12l0b(k0, k1, 0, 0, KEYS / 16, wide / 16, KEYS / 16, KEYS / 16);
          asc_unlock(PIPE_MTE1, RIGHT_M);
          asc_unlock(PIPE_MTE1, KEYS_0 + turn);
          asc_lock(PIPE_M, LEFT_M);
          asc_lock(PIPE_M, RIGHT_M);
          asc_lock(PIPE_M, SCORES_M);
          asc_mmad(s0, q0, k0, run, wide, KEYS, 0, true, false, true);
          asc_unlock(PIPE_M, SCORES_M);
          asc_unlock(PIPE_M, RIGHT_M);
          asc_unlock(PIPE_M, LEFT_M);
          asc_lock(PIPE_FIX, SCORES_M);
          asc_set_l0c_copy_nz_para(1, 0, 0);
          asc_copy_l0c2ub((__ubuf__ float*)SCORES, s0, KEYS, tall, KEYS, tall, 0, static_cast<asc_dual_dst_mode>(1),
                          static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                          static_cast<asc_relu_pre_mode>(0), false, true, false, false);
          asc_unlock(PIPE_FIX, SCORES_M);
          asc_sync_intra_arrive(PIPE_FIX, SCORES_READY);
          asc_sync_intra_arrive(PIPE_FIX, SCORES_READY + 16);

          asc_lock(PIPE_MTE1, VALUES_0 + turn);
          asc_lock(PIPE_MTE1, VALUES_RIGHT_M);
          asc_copy_l12l0b_transpose(v0, v1, 0, 0, KEYS / 16, wide / 16, KEYS / 16, wide / 16);
          asc_unlock(PIPE_MTE1, VALUES_RIGHT_M);
          asc_unlock(PIPE_MTE1, VALUES_0 + turn);
          asc_sync_intra_wait(PIPE_MTE1, WEIGHTS_READY);
          asc_sync_intra_wait(PIPE_MTE1, WEIGHTS_READY + 16);
          asc_lock(PIPE_MTE1, WEIGHTS_LEFT_M);
          asc_copy_l12l0a(p0, p1, 0, 0, mb, KEYS / 16, mb, mb);
          asc_unlock(PIPE_MTE1, WEIGHTS_LEFT_M);
          asc_lock(PIPE_M, WEIGHTS_LEFT_M);
          asc_lock(PIPE_M, VALUES_RIGHT_M);
          asc_lock(PIPE_M, SUMS_M);
          // As deep as there are keys: rows of V behind them hold what was there before.
          asc_mmad(o0, p0, v0, run, keys, wide, 0, true, false, true);
          asc_unlock(PIPE_M, SUMS_M);
          asc_unlock(PIPE_M, VALUES_RIGHT_M);
          asc_unlock(PIPE_M, WEIGHTS_LEFT_M);
          asc_lock(PIPE_FIX, SUMS_M);
          asc_copy_l0c2ub((__ubuf__ float*)VALUES, o0, wide, tall, wide, tall, 0, static_cast<asc_dual_dst_mode>(1),
                          static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                          static_cast<asc_relu_pre_mode>(0), false, true, false, false);
          asc_unlock(PIPE_FIX, SUMS_M);
          asc_sync_intra_arrive(PIPE_FIX, VALUES_READY);
          asc_sync_intra_arrive(PIPE_FIX, VALUES_READY + 16);
        }
        continue;
      }

      const int32_t half = asc_get_sub_block_id(), tall_half = tall / 2;
      const int32_t mine = most(least(run - half * tall_half, tall_half), 0);  // rows of this core
      __gm__ bfloat16_t* to = o + (int64_t(row + half * tall_half) * h + head) * d;
      __ubuf__ bfloat16_t* result = (__ubuf__ bfloat16_t*)RESULT;
      __ubuf__ float* state = (__ubuf__ float*)STATE;
      if (count > 0) begin_rows(state);
      for (int32_t key = 0; key < count; key += KEYS) {
        asc_sync_intra_wait(PIPE_V, SCORES_READY);
        asc_lock(PIPE_V, WEIGHTS_M);
        weigh((__ubuf__ float*)SCORES, (__ubuf__ uint16_t*)WEIGHTS, state, mine, least(count - key, KEYS), scale);
        asc_unlock(PIPE_V, WEIGHTS_M);
        asc_lock(PIPE_MTE3, WEIGHTS_M);
        asc_copy_ub2l1((__cbuf__ bfloat16_t*)WEIGHTS_1 + half * tall_half * 16, (__ubuf__ bfloat16_t*)WEIGHTS,
                       KEYS / 16, tall_half, PITCH - tall_half, tall - tall_half);
        asc_unlock(PIPE_MTE3, WEIGHTS_M);
        asc_sync_intra_arrive(PIPE_MTE3, WEIGHTS_READY);
        asc_sync_intra_wait(PIPE_V, VALUES_READY);
        accumulate((__ubuf__ float*)VALUES, (__ubuf__ float*)SUMS, state, mine, wide, key == 0);
      }
      if (mine == 0) continue;
      asc_lock(PIPE_V, RESULT_M);
      if (count > 0) finish((__ubuf__ float*)SUMS, state, result, mine, wide);
      else clear((__ubuf__ uint16_t*)RESULT, mine * wide);
      asc_unlock(PIPE_V, RESULT_M);
      asc_lock(PIPE_MTE3, RESULT_M);
      asc_copy_ub2gm_align(to, result, mine, d * 2, store, int64_t(h) * d * 2, wide * 2);
      asc_unlock(PIPE_MTE3, RESULT_M);
    }
  }
}
