// Sparse attention over window and selected keys; a mixed kernel by hand.
//
// By hand, because one text has to serve every number of heads and channels: tiles of TileLang have the sizes that they
// were lowered with, slices of them at run time come out wrong (docs/ascend.md), and the three cores of a block have to
// skip the same tiles of keys, which they find out from global memory.
//
// A block takes a row and up to 64 of its heads from the first tile of 64 keys to the last. Each vector core gathers 32
// keys of a tile, widens them to bf16 and puts them into L1, once, for both products. Cube: S = q K^T, kept for vector
// cores, each of which has half of the heads; they put P = exp(S - M) back; cube: O = P V; vector cores add it to what
// they have, rescaled. Keys of the next tile come while a tile is worked on. What a row's bits depend on: its own
// query and keys, h and d.
#include "c_api/asc_simd.h"

namespace {

// Places in UB, bytes. Column groups of staged keys and of P lie 33 lines apart, not 32: other banks.
constexpr int32_t KEYS = 64, HALF = 32, LINE = 32, PITCH = 33;
constexpr int32_t RAW = 0, RAW_BYTES = 17408;      // records of 32 keys as they came, twice
constexpr int32_t APART = 34816;                   // their scales, where they are no whole lines behind the codes
constexpr int32_t INDEX = 36864;                   // the tile's indices, twice
constexpr int32_t STAGED = 37376, TABLE = 71168;   // keys in bf16; their scales in fp32
constexpr int32_t SCORES = 75264, WEIGHTS = 83456; // S and P of this core's heads
constexpr int32_t STATE = 87680;                   // 64 numbers each: see below
constexpr int32_t VALUES = 89472, SUMS = 155008, RESULT = 220544;  // O of a tile; of all tiles; in bf16: to 253,312
// Rows of STATE: maximum, denominator, tile's maximum, tile's sum, subtrahend, factor, sink.
constexpr int32_t TOP = 0, TOTAL = 64, TILE_TOP = 128, TILE_SUM = 192, SHIFT = 256, FACTOR = 320, SINK = 384;
// Mutexes of a vector core, and of the cube core; counters to the cube core, and from it.
enum { RAW_0, RAW_1, STAGED_M, WEIGHTS_M, RESULT_M, SINK_M };
enum { QUERY_M, L0_0, L0_1, LEFT_M, SCORES_M, VALUES_M };
enum { KEYS_READY, WEIGHTS_READY };
enum { SCORES_READY, VALUES_READY, KEYS_FREE };
// L1: the query, two tiles of keys, P.
constexpr int32_t QUERY_1 = 0, KEYS_1 = 65536, KEYS_BYTES = 65536, WEIGHTS_1 = 196608;

constexpr auto load = static_cast<asc_load_l2_cache_mode>(0);
constexpr auto store = static_cast<asc_store_l2_cache_mode>(0);

__aicore__ inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
__aicore__ inline int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }

// The slots of a row's keys: window slots from `first` on, then the selected section from tile `tiles_w` on.
struct Slots {
  int32_t window, first, base, count, tiles_w, tiles;
  __gm__ int32_t* indices;
};

__aicore__ inline int32_t next_tile(const Slots& s, int32_t n) {
  for (; n < s.tiles_w; ++n)
    if (most(s.first, n * KEYS) < least(s.window, n * KEYS + KEYS)) return n;
  for (; n < s.tiles; ++n) {
    const int32_t j = (n - s.tiles_w) * KEYS, end = least(s.count, j + KEYS);
    for (int32_t i = j; i < end; ++i)
      if (s.indices[i] >= 0) return n;
  }
  return n;
}

}  // namespace

// Scales of 32 records of FP8-32, one byte for 32 channels, as fp32: 2^(b - 127), 255 is NaN.
__simd_vf__ inline void powers(__ubuf__ uint8_t* raw, __ubuf__ float* table, uint32_t present, int32_t count,
                               int32_t pitch) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  uint32_t left = count;
  vector_bool some = asc_update_mask_b32(left);
  vector_u32 nan, least_power;
  asc_duplicate_scalar(nan, 0x7fc00000u, all);
  asc_duplicate_scalar(least_power, 0x00400000u, all);
  for (int32_t s = 0; s < HALF; ++s) {
    if (!(present >> s & 1)) continue;
    vector_u8 bytes;
    asc_loadalign_unpack4(bytes, raw + s * pitch, 0);
    vector_u32 e = reinterpret_cast<vector_u32&>(bytes), bits;
    vector_bool is_nan, is_least;
    asc_shiftleft_scalar(bits, e, int16_t(23), some);
    asc_eq_scalar(is_nan, e, 255u, some);
    asc_eq_scalar(is_least, e, 0u, some);
    asc_select(bits, nan, bits, is_nan);
    asc_select(bits, least_power, bits, is_least);
    asc_storealign((__ubuf__ uint32_t*)table + s * HALF, bits, 0, some);
  }
}

// The same of FP4-16: E4M3, one for 16 channels.
__simd_vf__ inline void factors(__ubuf__ uint8_t* raw, __ubuf__ float* table, uint32_t present, int32_t count,
                                int32_t pitch) {
  vector_bool bytes_on = asc_create_mask_b8(PAT_ALL);
  uint32_t left = count;
  vector_bool some = asc_update_mask_b32(left);
  for (int32_t s = 0; s < HALF; ++s) {
    if (!(present >> s & 1)) continue;
    vector_u8 bytes;
    vector_f32 value;
    asc_loadalign_unpack4(bytes, raw + s * pitch, 0);
    vcvt(value, reinterpret_cast<vector_f8e4m3&>(bytes), bytes_on, PART_P0, MODE_ZEROING);
    asc_storealign(table + s * HALF, value, 0, some);
  }
}

// Even and odd channels, times their scales, as 128 numbers of bf16; exact.
#define JOINED(result, even, odd, scale, all)                              \
  asc_mul(even, even, scale, all);                                         \
  asc_mul(odd, odd, scale, all);                                           \
  vector_bf16 low, high;                                                   \
  vcvt(low, even, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);       \
  vcvt(high, odd, all, ROUND_R, RS_ENABLE, PART_ODD, MODE_ZEROING);        \
  asc_or(result, reinterpret_cast<vector_u16&>(low), reinterpret_cast<vector_u16&>(high), asc_create_mask_b16(PAT_ALL))

// Keys in bf16, column group by column group of 16 channels; keys that do not exist are zeros.
__simd_vf__ inline void widen_fp8(__ubuf__ uint8_t* raw, __ubuf__ float* table, __ubuf__ uint16_t* staged,
                                  uint32_t present, int32_t d, int32_t pitch) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), bytes_on = asc_create_mask_b8(PAT_ALL);
  vector_s32 lane, group;
  asc_arange(lane, 0);
  asc_shiftright_scalar(group, lane, int16_t(4), all);
  for (int32_t c = 0; c < d; c += 128) {
    uint32_t left = d - c;
    vector_bool some = asc_update_mask_b16(left);
    vector_s32 place;
    asc_add_scalar(place, group, c / 32, all);
    for (int32_t s = 0; s < HALF; ++s) {
      vector_u16 key;
      asc_duplicate_scalar(key, uint16_t(0), asc_create_mask_b16(PAT_ALL));
      if (present >> s & 1) {
        vector_u8 bytes;
        vector_f32 even, odd, scale;
        asc_loadalign_unpack(bytes, raw + s * pitch + c, 0);
        vcvt(even, reinterpret_cast<vector_f8e4m3&>(bytes), bytes_on, PART_P0, MODE_ZEROING);
        vcvt(odd, reinterpret_cast<vector_f8e4m3&>(bytes), bytes_on, PART_P2, MODE_ZEROING);
        asc_gather(scale, table + s * HALF, reinterpret_cast<vector_u32&>(place), all);
        JOINED(key, even, odd, scale, all);
      }
      asc_storealign(staged + c * PITCH + s * 16, key, uint16_t(PITCH), uint16_t(1), some);
    }
  }
}

__simd_vf__ inline void widen_fp4(__ubuf__ uint8_t* raw, __ubuf__ float* table, __ubuf__ uint16_t* staged,
                                  uint32_t present, int32_t d, int32_t pitch) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), small;
  vector_s32 lane, group, seven, eight, fifteen, size, sign, bits;
  vector_f32 value, halves;
  asc_arange(lane, 0);
  asc_shiftright_scalar(group, lane, int16_t(3), all);
  // Lane i is the value of code i % 16 in E2M1: sign, exponent with bias 1, one bit of mantissa; 1 is a half, 0 zero.
  asc_duplicate_scalar(seven, 7, all);
  asc_duplicate_scalar(eight, 8, all);
  asc_duplicate_scalar(fifteen, 15, all);
  asc_and(size, lane, seven, all);
  asc_shiftleft_scalar(bits, size, int16_t(22), all);
  asc_add_scalar(bits, bits, 126 << 23, all);
  vcvt(halves, size, all, ROUND_R, MODE_ZEROING);
  asc_mul_scalar(halves, halves, 0.5f, all);
  asc_lt_scalar(small, size, 2, all);
  asc_select(value, halves, reinterpret_cast<vector_f32&>(bits), small);
  asc_and(sign, lane, eight, all);
  asc_shiftleft_scalar(sign, sign, int16_t(28), all);
  asc_or(bits, reinterpret_cast<vector_s32&>(value), sign, all);
  vector_f32 codes = reinterpret_cast<vector_f32&>(bits);
  for (int32_t c = 0; c < d; c += 128) {
    uint32_t left = d - c;
    vector_bool some = asc_update_mask_b16(left);
    vector_s32 place;
    asc_add_scalar(place, group, c / 16, all);
    for (int32_t s = 0; s < HALF; ++s) {
      vector_u16 key;
      asc_duplicate_scalar(key, uint16_t(0), asc_create_mask_b16(PAT_ALL));
      if (present >> s & 1) {
        vector_u8 bytes;
        vector_u32 low_code, high_code;
        vector_f32 even, odd, scale;
        asc_loadalign_unpack4(bytes, raw + s * pitch + c / 2, 0);
        asc_and(low_code, reinterpret_cast<vector_u32&>(bytes), reinterpret_cast<vector_u32&>(fifteen), all);
        asc_shiftright_scalar(high_code, reinterpret_cast<vector_u32&>(bytes), int16_t(4), all);
        asc_gather(even, codes, low_code);
        asc_gather(odd, codes, high_code);
        asc_gather(scale, table + s * HALF, reinterpret_cast<vector_u32&>(place), all);
        JOINED(key, even, odd, scale, all);
      }
      asc_storealign(staged + c * PITCH + s * 16, key, uint16_t(PITCH), uint16_t(1), some);
    }
  }
}

// Before a row's first tile: no maximum, nothing summed.
__simd_vf__ inline void begin(__ubuf__ float* state) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_f32 low, none;
  asc_duplicate_scalar(low, -__builtin_inff(), all);
  asc_duplicate_scalar(none, 0.0f, all);
  asc_storealign(state + TOP, low, 0, all);
  asc_storealign(state + TOTAL, none, 0, all);
}

// P of a tile, and what sums before it are to be multiplied by. Slots lo .. hi - 1 of the tile may exist; of a selected
// tile those with an index.
__simd_vf__ inline void weigh(__ubuf__ float* scores, __ubuf__ uint16_t* weights, __ubuf__ float* state,
                              __ubuf__ int32_t* indices, int32_t heads, int32_t lo, int32_t hi, int32_t selected,
                              float factor) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), there, none;
  vector_s32 lane;
  vector_f32 low, zero;
  asc_arange(lane, 0);
  asc_ge_scalar(there, lane, lo, all);
  asc_lt_scalar(there, lane, hi, there);
  if (selected) {
    asc_loadalign(lane, indices, 0);
    asc_ge_scalar(there, lane, 0, there);
  }
  asc_duplicate_scalar(low, -__builtin_inff(), all);
  asc_duplicate_scalar(zero, 0.0f, all);
  for (int32_t h = 0; h < heads; ++h) {
    vector_f32 score, top;
    asc_loadalign(score, scores + h * KEYS, 0);
    asc_mul_scalar(score, score, factor, all);
    asc_select(score, score, low, there);
    asc_storealign(scores + h * KEYS, score, 0, all);
    asc_reduce_max(top, score, all);
    asc_storealign_1st(state + TILE_TOP, top, h);
  }
  asc_mem_bar(VST_VLD);
  // One lane a head. While no score is above -infinity nothing is subtracted: the weights are 0, not NaN.
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
  for (int32_t h = 0; h < heads; ++h) {
    vector_f32 weight, from, tile_sum;
    vector_bf16 rounded;
    vector_u16 packed;
    asc_loadalign(weight, scores + h * KEYS, 0);
    asc_loadalign_brc_elem(from, state + SHIFT, h);
    asc_sub(weight, weight, from, all);
    asc_exp(weight, weight, all);
    asc_reduce_sum(tile_sum, weight, all);
    asc_storealign_1st(state + TILE_SUM, tile_sum, h);
    vcvt(rounded, weight, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    asc_pack_to_low(packed, reinterpret_cast<vector_u32&>(rounded));
    asc_storealign(weights + h * 16, packed, uint16_t(PITCH), uint16_t(1), asc_create_mask_b16(PAT_VL64));
  }
  asc_mem_bar(VST_VLD);
  asc_loadalign(total, state + TOTAL, 0);
  asc_loadalign(sum, state + TILE_SUM, 0);
  asc_mul(total, total, change, all);
  asc_add(total, total, sum, all);
  asc_storealign(state + TOTAL, total, 0, all);
}

__simd_vf__ inline void accumulate(__ubuf__ float* values, __ubuf__ float* sums, __ubuf__ float* state, int32_t heads,
                                   int32_t d, int32_t first) {
  for (int32_t h = 0; h < heads; ++h) {
    uint32_t left = d;
    vector_f32 factor;
    asc_loadalign_brc_elem(factor, state + FACTOR, h);
    for (int32_t c = 0; c < d; c += 64) {
      vector_bool some = asc_update_mask_b32(left);
      vector_f32 value, sum;
      asc_loadalign(value, values + h * d + c, 0);
      if (!first) {
        asc_loadalign(sum, sums + h * d + c, 0);
        asc_mul(sum, sum, factor, some);
        asc_add(value, value, sum, some);
      }
      asc_storealign(sums + h * d + c, value, 0, some);
    }
  }
}

// The quotient. M - M makes it NaN where M is infinite, and else adds nothing.
__simd_vf__ inline void finish(__ubuf__ float* sums, __ubuf__ float* state, __ubuf__ bfloat16_t* result, int32_t heads,
                               int32_t d) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_f32 top, sink, total;
  asc_loadalign(top, state + TOP, 0);
  asc_loadalign(sink, state + SINK, 0);
  asc_loadalign(total, state + TOTAL, 0);
  asc_sub(sink, sink, top, all);
  asc_exp(sink, sink, all);
  asc_add(total, total, sink, all);
  asc_sub(top, top, top, all);
  asc_add(total, total, top, all);
  asc_storealign(state + TOTAL, total, 0, all);
  asc_mem_bar(VST_VLD);
  for (int32_t h = 0; h < heads; ++h) {
    uint32_t left = d;
    vector_f32 divisor;
    asc_loadalign_brc_elem(divisor, state + TOTAL, h);
    for (int32_t c = 0; c < d; c += 64) {
      vector_bool some = asc_update_mask_b32(left);
      vector_f32 value;
      vector_bf16 rounded;
      asc_loadalign(value, sums + h * d + c, 0);
      asc_div(value, value, divisor, some);
      vcvt(rounded, value, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
      asc_storealign_pack((__ubuf__ uint32_t*)(result + h * d + c), reinterpret_cast<vector_u32&>(rounded), 0, some);
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

extern "C" __global__ __mix__(1, 2) void sparse_attention(
    __gm__ bfloat16_t* q, __gm__ uint8_t* fresh, __gm__ uint8_t* ring, __gm__ float* sink, __gm__ int32_t* first_key,
    __gm__ int32_t* last_key, __gm__ int32_t* row_seq, __gm__ int32_t* seq_start, __gm__ int32_t* row_begin,
    __gm__ int32_t* state_slot, __gm__ uint8_t* pages, __gm__ int32_t* block_table, __gm__ int32_t* indices,
    __gm__ bfloat16_t* o, int64_t state_stride, int64_t slot_stride, int64_t page_stride, int32_t rows, int32_t h,
    int32_t d, int32_t slots, int32_t window, int32_t K, int32_t table_width, int32_t entries, int32_t fp4, float scale,
    int32_t cores) {
  asc_init();
  const int32_t groups = (h + 63) / 64;
  const int32_t record_w = d + d / 32, record_s = fp4 ? d / 2 + d / 16 : record_w;
  int32_t tile = 0;  // tiles so far on this block: the place of their keys in L1

  for (int64_t unit = block_idx; unit < int64_t(rows) * groups; unit += cores) {
    const int64_t row = unit / groups;
    const int32_t head = int32_t(unit % groups) * 64, heads = least(h - head, 64), tall = (heads + 15) / 16 * 16;
    const int32_t sequence = row_seq[row];
    Slots keys{window, window, 0, K, (window + KEYS - 1) / KEYS, 0, indices + row * K};
    if (sequence >= 0) {
      const int32_t last = last_key[row], begin_key = most(first_key[row], 0);
      keys.base = last - window + 1;
      if (begin_key <= last) keys.first = most(begin_key, keys.base) - keys.base;
      keys.tiles = keys.tiles_w + (K + KEYS - 1) / KEYS;
    } else {
      keys.tiles_w = 0;
    }
    int32_t n = next_tile(keys, 0);

    if (ASC_IS_AIC) {
      if (n == keys.tiles) continue;
      __cbuf__ bfloat16_t* q1 = (__cbuf__ bfloat16_t*)QUERY_1;
      __cbuf__ bfloat16_t* p1 = (__cbuf__ bfloat16_t*)WEIGHTS_1;
      __ca__ bfloat16_t* p0 = (__ca__ bfloat16_t*)32768;
      __cc__ float* s0 = (__cc__ float*)0;
      __cc__ float* o0 = (__cc__ float*)16384;
      const int32_t mb = tall / 16;
      int32_t turn = 0;
      asc_lock(PIPE_MTE2, QUERY_M);
      asc_set_gm2l1_nz_para(1, 1, tall, 0);
      asc_copy_gm2l1_nd2nz(q1, q + (row * h + head) * d, d * 2, load, heads, d, 0, false);
      asc_unlock(PIPE_MTE2, QUERY_M);
      for (; n < keys.tiles; n = next_tile(keys, n + 1), ++tile) {
        __cbuf__ bfloat16_t* k1 = (__cbuf__ bfloat16_t*)(KEYS_1 + (tile & 1) * KEYS_BYTES);
        asc_sync_intra_wait(PIPE_MTE1, KEYS_READY);
        asc_sync_intra_wait(PIPE_MTE1, KEYS_READY + 16);
        asc_lock(PIPE_M, SCORES_M);
        for (int32_t c = 0; c < d; c += 128, turn ^= 1) {
          const int32_t wide = least(d - c, 128);
          __ca__ bfloat16_t* a0 = (__ca__ bfloat16_t*)(turn * 16384);
          __cb__ bfloat16_t* b0 = (__cb__ bfloat16_t*)(turn * 16384);
          asc_lock(PIPE_MTE1, L0_0 + turn);
          asc_lock(PIPE_MTE1, QUERY_M);
          asc_copy_l12l0a(a0, q1, 0, c / 16, mb, wide / 16, mb, mb);
          asc_unlock(PIPE_MTE1, QUERY_M);
          asc_copy_l12l0b(b0, k1, 0, c / 16, KEYS / 16, wide / 16, KEYS / 16, KEYS / 16);
          asc_unlock(PIPE_MTE1, L0_0 + turn);
          asc_lock(PIPE_M, L0_0 + turn);
          asc_mmad(s0, a0, b0, heads, wide, KEYS, 0, true, false, c == 0);
          asc_unlock(PIPE_M, L0_0 + turn);
        }
        asc_unlock(PIPE_M, SCORES_M);
        asc_lock(PIPE_FIX, SCORES_M);
        asc_set_l0c_copy_nz_para(1, 0, 0);
        asc_copy_l0c2ub((__ubuf__ float*)SCORES, s0, KEYS, tall, KEYS, tall, 0, static_cast<asc_dual_dst_mode>(1),
                        static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                        static_cast<asc_relu_pre_mode>(0), false, true, false, false);
        asc_unlock(PIPE_FIX, SCORES_M);
        asc_sync_intra_arrive(PIPE_FIX, SCORES_READY);
        asc_sync_intra_arrive(PIPE_FIX, SCORES_READY + 16);

        asc_sync_intra_wait(PIPE_MTE1, WEIGHTS_READY);
        asc_sync_intra_wait(PIPE_MTE1, WEIGHTS_READY + 16);
        asc_lock(PIPE_MTE1, LEFT_M);
        asc_copy_l12l0a(p0, p1, 0, 0, mb, KEYS / 16, mb, mb);
        asc_unlock(PIPE_MTE1, LEFT_M);
        asc_lock(PIPE_M, LEFT_M);
        asc_lock(PIPE_M, VALUES_M);
        for (int32_t c = 0; c < d; c += 128, turn ^= 1) {
          const int32_t wide = least(d - c, 128);
          __cb__ bfloat16_t* b0 = (__cb__ bfloat16_t*)(turn * 16384);
          asc_lock(PIPE_MTE1, L0_0 + turn);
          asc_copy_l12l0b_transpose(b0, k1, 0, c / 16, KEYS / 16, wide / 16, KEYS / 16, wide / 16);
          asc_unlock(PIPE_MTE1, L0_0 + turn);
          asc_lock(PIPE_M, L0_0 + turn);
          asc_mmad(o0 + c * tall, p0, b0, heads, KEYS, wide, 0, true, false, true);
          asc_unlock(PIPE_M, L0_0 + turn);
        }
        asc_unlock(PIPE_M, VALUES_M);
        asc_unlock(PIPE_M, LEFT_M);
        asc_sync_intra_arrive(PIPE_MTE1, KEYS_FREE);
        asc_sync_intra_arrive(PIPE_MTE1, KEYS_FREE + 16);
        asc_lock(PIPE_FIX, VALUES_M);
        asc_copy_l0c2ub((__ubuf__ float*)VALUES, o0, d, tall, d, tall, 0, static_cast<asc_dual_dst_mode>(1),
                        static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0),
                        static_cast<asc_relu_pre_mode>(0), false, true, false, false);
        asc_unlock(PIPE_FIX, VALUES_M);
        asc_sync_intra_arrive(PIPE_FIX, VALUES_READY);
        asc_sync_intra_arrive(PIPE_FIX, VALUES_READY + 16);
      }
      continue;
    }

    const int32_t half = asc_get_sub_block_id(), tall_half = tall / 2;
    const int32_t mine = most(least(heads - half * tall_half, tall_half), 0);  // heads of this core
    const int64_t place = (row * h + head + half * tall_half) * d;
    __ubuf__ bfloat16_t* result = (__ubuf__ bfloat16_t*)RESULT;
    __ubuf__ float* state = (__ubuf__ float*)STATE;
    if (n == keys.tiles) {
      if (mine == 0) continue;
      asc_lock(PIPE_V, RESULT_M);
      clear((__ubuf__ uint16_t*)RESULT, mine * d);
      asc_unlock(PIPE_V, RESULT_M);
      asc_lock(PIPE_MTE3, RESULT_M);
      asc_copy_ub2gm_align(o + place, result, 1, mine * d * 2, store, mine * d * 2, mine * d * 2);
      asc_unlock(PIPE_MTE3, RESULT_M);
      continue;
    }

    // Fetches this core's keys of a tile into its raw buffer; a bit for each that exists.
    auto fetch = [&](int32_t t, int32_t turn) -> uint32_t {
      __ubuf__ uint8_t* raw = (__ubuf__ uint8_t*)(RAW + turn * RAW_BYTES);
      uint32_t present = 0;
      asc_lock(PIPE_MTE2, RAW_0 + turn);
      if (t < keys.tiles_w) {
        const int32_t begin_slot = t * KEYS + half * HALF, pitch = (record_w + LINE - 1) / LINE * LINE;
        const int32_t end = least(window, begin_slot + HALF), start = seq_start[sequence];
        for (int32_t i = most(keys.first, begin_slot); i < end;) {
          const int32_t position = keys.base + i;
          int32_t run = end - i;
          __gm__ uint8_t* from;
          int64_t stride = record_w;
          if (position >= start) {
            from = fresh + (int64_t(row_begin[sequence]) + (position - start)) * record_w;
          } else {
            const int32_t slot = position % slots;
            run = least(least(run, start - position), slots - slot);
            from = ring + state_slot[sequence] * state_stride + slot * slot_stride;
            stride = slot_stride;
          }
          asc_copy_gm2ub_align(raw + (i - begin_slot) * pitch, from, run, record_w, 0, 0, false, load, stride, pitch);
          for (int32_t k = 0; k < run; ++k) present |= 1u << (i - begin_slot + k);
          i += run;
        }
      } else {
        const int32_t j = (t - keys.tiles_w) * KEYS, begin_slot = j + half * HALF, count = least(K - j, KEYS);
        const int32_t pitch = (record_s + LINE - 1) / LINE * LINE, codes = fp4 ? d / 2 : d;
        for (int32_t i = begin_slot; i < least(K, begin_slot + HALF); ++i) {
          const int32_t entry = keys.indices[i];
          if (entry < 0) continue;
          const int64_t page = block_table[int64_t(sequence) * table_width + entry / entries];
          __gm__ uint8_t* from = pages + page * page_stride + entry % entries * int64_t(record_s);
          asc_copy_gm2ub_align(raw + (i - begin_slot) * pitch, from, 1, record_s, 0, 0, false, load, record_s, pitch);
          if (codes % LINE)
            asc_copy_gm2ub_align((__ubuf__ uint8_t*)(APART + turn * 1024 + (i - begin_slot) * LINE), from + codes, 1,
                                 record_s - codes, 0, 0, false, load, LINE, LINE);
          present |= 1u << (i - begin_slot);
        }
        asc_copy_gm2ub_align((__ubuf__ int32_t*)(INDEX + turn * 256), keys.indices + j, 1, count * 4, 0, 0, false, load,
                             count * 4, count * 4);
      }
      asc_unlock(PIPE_MTE2, RAW_0 + turn);
      return present;
    };
    // Widens them, and puts them into L1 as the cube core's tile number `at`.
    auto stage = [&](int32_t t, int32_t at, uint32_t present) {
      const int32_t turn = at & 1, whole = t >= keys.tiles_w && fp4;
      const int32_t record = whole ? record_s : record_w, pitch = (record + LINE - 1) / LINE * LINE;
      const int32_t codes = whole ? d / 2 : d;
      __ubuf__ uint8_t* raw = (__ubuf__ uint8_t*)(RAW + turn * RAW_BYTES);
      __ubuf__ uint16_t* staged = (__ubuf__ uint16_t*)STAGED;
      __ubuf__ float* table = (__ubuf__ float*)TABLE;
      asc_lock(PIPE_V, RAW_0 + turn);
      asc_lock(PIPE_V, STAGED_M);
      if (whole) {
        if (codes % LINE) factors((__ubuf__ uint8_t*)(APART + turn * 1024), table, present, d / 16, LINE);
        else factors(raw + codes, table, present, d / 16, pitch);
        widen_fp4(raw, table, staged, present, d, pitch);
      } else {
        powers(raw + codes, table, present, d / 32, pitch);
        widen_fp8(raw, table, staged, present, d, pitch);
      }
      asc_unlock(PIPE_V, STAGED_M);
      asc_unlock(PIPE_V, RAW_0 + turn);
      if (at >= 2) asc_sync_intra_wait(PIPE_MTE3, KEYS_FREE);
      asc_lock(PIPE_MTE3, STAGED_M);
      asc_copy_ub2l1((__cbuf__ bfloat16_t*)(KEYS_1 + turn * KEYS_BYTES) + half * HALF * 16,
                     (__ubuf__ bfloat16_t*)STAGED, d / 16, HALF, 1, HALF);
      asc_unlock(PIPE_MTE3, STAGED_M);
      asc_sync_intra_arrive(PIPE_MTE3, KEYS_READY);
    };

    if (mine) {
      asc_lock(PIPE_MTE2, SINK_M);
      asc_copy_gm2ub_align(state + SINK, sink + head + half * tall_half, 1, mine * 4, 0, 0, false, load, mine * 4,
                           mine * 4);
      asc_unlock(PIPE_MTE2, SINK_M);
    }
    begin(state);
    stage(n, tile, fetch(n, tile & 1));
    for (int32_t first = 1; n < keys.tiles; first = 0, ++tile) {
      const int32_t next = next_tile(keys, n + 1), selected = n >= keys.tiles_w;
      const int32_t lo = selected ? 0 : keys.first - n * KEYS;
      const int32_t hi = selected ? K - (n - keys.tiles_w) * KEYS : window - n * KEYS;
      uint32_t present = 0;
      if (next < keys.tiles) present = fetch(next, (tile + 1) & 1);
      asc_sync_intra_wait(PIPE_V, SCORES_READY);
      asc_lock(PIPE_V, RAW_0 + (tile & 1));
      asc_lock(PIPE_V, WEIGHTS_M);
      weigh((__ubuf__ float*)SCORES, (__ubuf__ uint16_t*)WEIGHTS, state,
            (__ubuf__ int32_t*)(INDEX + (tile & 1) * 256), mine, lo, hi, selected, scale);
      asc_unlock(PIPE_V, WEIGHTS_M);
      asc_unlock(PIPE_V, RAW_0 + (tile & 1));
      asc_lock(PIPE_MTE3, WEIGHTS_M);
      asc_copy_ub2l1((__cbuf__ bfloat16_t*)WEIGHTS_1 + half * tall_half * 16, (__ubuf__ bfloat16_t*)WEIGHTS, KEYS / 16,
                     tall_half, PITCH - tall_half, tall - tall_half);
      asc_unlock(PIPE_MTE3, WEIGHTS_M);
      asc_sync_intra_arrive(PIPE_MTE3, WEIGHTS_READY);
      if (next < keys.tiles) stage(next, tile + 1, present);
      asc_sync_intra_wait(PIPE_V, VALUES_READY);
      accumulate((__ubuf__ float*)VALUES, (__ubuf__ float*)SUMS, state, mine, d, first);
      n = next;
    }
    if (mine) {
      asc_lock(PIPE_V, SINK_M);
      asc_lock(PIPE_V, RESULT_M);
      finish((__ubuf__ float*)SUMS, state, result, mine, d);
      asc_unlock(PIPE_V, RESULT_M);
      asc_unlock(PIPE_V, SINK_M);
      asc_lock(PIPE_MTE3, RESULT_M);
      asc_copy_ub2gm_align(o + place, result, 1, mine * d * 2, store, mine * d * 2, mine * d * 2);
      asc_unlock(PIPE_MTE3, RESULT_M);
    }
  }
  if (ASC_IS_AIV)  // what the cube core freed and nobody waited for
    for (int32_t t = 0; t < least(tile, 2); ++t) asc_sync_intra_wait(PIPE_MTE3, KEYS_FREE);
}
