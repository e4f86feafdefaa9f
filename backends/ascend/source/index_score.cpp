// Index scores of all entries, or of candidate blocks; a mixed kernel by hand.
//
// By hand, because pieces of a tile of keys come from pages that global memory names, in lengths known at run time: the
// codes straight into L1, the scales through the vector cores, which put them side by side as the matrix unit wants
// them. TileLang's tiles have static sizes, and its loads of scales take whole tensors.
//
// score = bf16(sum over heads of weight * relu(q . k)). A block takes a row and up to 8 tiles of 128 lanes. Cube: E2M1
// times E2M1, with the scales that the records have; vector cores: 64 lanes each, heads in order. A lane's bits depend on
// its own entry and the row's query alone, for both ops.
#include "c_api/asc_simd.h"

namespace {

constexpr int32_t LANES = 128, HALF = 64, TILES = 8, LINE = 32;
// Places in UB, bytes.
constexpr int32_t RAW = 0, RAW_BYTES = 2304;       // scales of 64 entries as they came, twice
constexpr int32_t QUERY_RAW = 4608, LINES = 5120;  // scales of the query's heads; scales as lines of 16 pairs
constexpr int32_t WEIGHT = 5632, FACTOR = 6144;    // the heads' weights as they came, and in fp32
constexpr int32_t RESULT = 6400, RESULT_BYTES = 128, SCORES = 6656, SCORES_BYTES = 16384;
// L1: codes of the query and of two tiles of keys, and their scales.
constexpr int32_t QUERY_1 = 0, QUERY_SCALES_1 = 4096, KEYS_1 = 8192, KEYS_BYTES = 8192, SCALES_1 = 24576,
                  SCALES_BYTES = 512;
// Mutexes of a vector core, of the cube core; counters to the cube core, and from it.
enum { RAW_0, RAW_1, QUERY_RAW_M, LINES_M, WEIGHT_M, RESULT_0, RESULT_1 };
enum { QUERY_M, LEFT_M, KEYS_0, KEYS_1_M, RIGHT_0, RIGHT_1, PRODUCT_0, PRODUCT_1 };
enum { SCALES_READY, QUERY_READY, SCORES_FREE };
enum { SCORES_READY, SCALES_FREE, QUERY_FREE };

constexpr auto load = static_cast<asc_load_l2_cache_mode>(0);
constexpr auto store = static_cast<asc_store_l2_cache_mode>(0);

__aicore__ inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
__aicore__ inline int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }

}  // namespace

// Scale bytes of 64 rows, `bytes` each, in pieces of 2^shift rows `pitch` bytes apart, as pairs: those of channels 0 to
// 63 of all rows, then those of 64 to 127. A single byte gets 2^0 beside it, for the zeros that fill 64 channels.
__simd_vf__ inline void pair_scales(__ubuf__ uint8_t* raw, __ubuf__ uint16_t* lines, int32_t bytes, int32_t shift,
                                    int32_t pitch) {
  vector_bool all = asc_create_mask_b16(PAT_ALL), odd;
  vector_u16 lane, row, low, second, piece, place, word, upper, one;
  asc_arange(lane, uint16_t(0));
  asc_duplicate_scalar(low, uint16_t(HALF - 1), all);
  asc_and(row, lane, low, all);
  asc_shiftright_scalar(second, lane, int16_t(6), all);
  asc_shiftright_scalar(piece, row, int16_t(shift), all);
  asc_duplicate_scalar(low, uint16_t((1 << shift) - 1), all);
  asc_and(row, row, low, all);
  asc_mul_scalar(place, piece, uint16_t(pitch), all);
  asc_mul_scalar(row, row, uint16_t(bytes), all);
  asc_add(place, place, row, all);
  asc_shiftright_scalar(row, place, int16_t(1), all);
  if (bytes == 4) asc_add(row, row, second, all);
  asc_gather(word, (__ubuf__ uint16_t*)raw, row, all);
  if (bytes == 1) {
    asc_duplicate_scalar(one, uint16_t(1), all);
    asc_and(one, place, one, all);
    asc_eq_scalar(odd, one, uint16_t(1), all);
    asc_shiftright_scalar(upper, word, int16_t(8), all);
    asc_duplicate_scalar(low, uint16_t(255), all);
    asc_and(word, word, low, all);
    asc_select(word, upper, word, odd);
    asc_duplicate_scalar(low, uint16_t(127 << 8), all);
    asc_or(word, word, low, all);
  }
  uint32_t count = bytes == 4 ? 2 * HALF : HALF;
  vector_bool some = asc_update_mask_b16(count);
  asc_storealign(lines, word, 0, some);
}

__simd_vf__ inline void widen(__ubuf__ bfloat16_t* weight, __ubuf__ float* factor) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_bf16 raw;
  vector_f32 wide;
  asc_loadalign_unpack(raw, weight, 0);
  vcvt(wide, raw, asc_create_mask_b16(PAT_ALL), PART_EVEN, MODE_ZEROING);
  asc_storealign(factor, wide, 0, all);
}

__simd_vf__ inline void add_heads(__ubuf__ float* scores, __ubuf__ float* factor, __ubuf__ bfloat16_t* result,
                                  int32_t heads) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), negative;
  vector_f32 zero, sum;
  vector_bf16 rounded;
  asc_duplicate_scalar(zero, 0.0f, all);
  asc_duplicate_scalar(sum, 0.0f, all);
  for (int32_t h = 0; h < heads; ++h) {
    vector_f32 dot, weight;
    asc_loadalign(dot, scores + h * HALF, 0);
    asc_loadalign_brc_elem(weight, factor, h);
    asc_lt_scalar(negative, dot, 0.0f, all);  // NaN stays
    asc_select(dot, zero, dot, negative);
    asc_mul(dot, dot, weight, all);
    asc_add(sum, sum, dot, all);
  }
  vcvt(rounded, sum, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
  asc_storealign_pack((__ubuf__ uint32_t*)result, reinterpret_cast<vector_u32&>(rounded), 0, all);
}

extern "C" __global__ __mix__(1, 2) void index_score(
    __gm__ uint8_t* query, __gm__ bfloat16_t* head_weight, __gm__ uint8_t* pages, __gm__ int32_t* blocks,
    __gm__ int32_t* visible, __gm__ int32_t* row_seq, __gm__ int32_t* block_table, __gm__ bfloat16_t* scores,
    __gm__ int32_t* seen, int64_t page_stride, int32_t rows, int32_t heads, int32_t di, int32_t table_width, int32_t entries, int32_t lanes,
    int32_t block_shift, int32_t block_count, int32_t note, int32_t cores) {
  asc_init();
  const int32_t codes = di / 2, bytes = di / 32, record = codes + bytes, deep = most(di, 64), pairs = deep / 64;
  const int32_t chunks = (lanes + TILES * LANES - 1) / (TILES * LANES);
  const int32_t shift = block_count ? least(block_shift, 6) : 6, piece = 1 << shift;  // lanes that lie together
  int32_t tile = 0, rows_done = 0;

  for (int64_t unit = block_idx; unit < int64_t(rows) * chunks; unit += cores) {
    const int64_t row = unit / chunks;
    const int32_t sequence = row_seq[row], limit = visible[row];
    if (note && ASC_IS_AIV && unit % chunks == 0 && asc_get_sub_block_id() == 0)  // for a selection that follows
      asc_store_dev(seen + row, sequence < 0 ? 0 : limit);
    if (sequence < 0) continue;
    const int32_t begin = int32_t(unit % chunks) * TILES * LANES, end = least(lanes, begin + TILES * LANES);
    // First entry of the lanes from `lane` on that lie together, and how many of them the row sees.
    auto entry_of = [&](int32_t lane, int32_t& count) -> int32_t {
      count = 0;
      if (lane >= lanes) return 0;
      int32_t first = lane;
      if (block_count) {
        const int32_t block = blocks[row * block_count + (lane >> block_shift)];
        if (block < 0 || block > limit >> block_shift) return 0;
        first = (block << block_shift) + (lane & ((1 << block_shift) - 1));
      }
      count = most(least(least(limit - first, piece), lanes - lane), 0);
      return first;
    };
    auto next_tile = [&](int32_t lane) -> int32_t {
      for (; lane < end; lane += LANES)
        for (int32_t l = lane; l < lane + LANES; l += piece) {
          int32_t count;
          entry_of(l, count);
          if (count) return lane;
        }
      return end;
    };
    auto page_of = [&](int32_t entry) -> __gm__ uint8_t* {
      return pages + block_table[int64_t(sequence) * table_width + entry / entries] * page_stride;
    };
    int32_t lane = next_tile(begin);
    if (lane >= end) continue;

    if (ASC_IS_AIC) {
      __ca__ float4_e2m1x2_t* a0 = (__ca__ float4_e2m1x2_t*)0;
      const int32_t mb = (heads + 15) / 16, tall = mb * 16;
      asc_lock(PIPE_MTE2, QUERY_M);
      asc_set_gm2l1_nz_para(1, 1, tall, 0);
      asc_copy_gm2l1_nd2nz((__cbuf__ uint8_t*)QUERY_1, query + row * heads * record, record, load, heads, codes, 0, false);
      asc_unlock(PIPE_MTE2, QUERY_M);
      asc_sync_intra_wait(PIPE_MTE1, QUERY_READY);
      asc_lock(PIPE_MTE1, QUERY_M);
      asc_lock(PIPE_MTE1, LEFT_M);
      asc_copy_l12l0a(a0, (__cbuf__ float4_e2m1x2_t*)QUERY_1, 0, 0, mb, pairs, mb, mb);
      asc_copy_l12l0a_mx(uint64_t(uintptr_t(a0)) / 16, (__cbuf__ fp8_e8m0_t*)QUERY_SCALES_1, 0, 0, mb, pairs, pairs,
                         pairs);
      asc_unlock(PIPE_MTE1, LEFT_M);
      asc_unlock(PIPE_MTE1, QUERY_M);
      asc_sync_intra_arrive(PIPE_MTE1, QUERY_FREE);
      for (; lane < end; lane = next_tile(lane + LANES), ++tile) {
        const int32_t turn = tile & 1;
        __cbuf__ uint8_t* k1 = (__cbuf__ uint8_t*)(KEYS_1 + turn * KEYS_BYTES);
        __cb__ float4_e2m1x2_t* b0 = (__cb__ float4_e2m1x2_t*)(turn * 8192);
        __cc__ float* c0 = (__cc__ float*)(turn * 32768);
        asc_lock(PIPE_MTE2, KEYS_0 + turn);
        asc_set_gm2l1_nz_para(1, 1, LANES, 0);
        for (int32_t l = 0; l < LANES; l += piece) {
          int32_t count;
          const int32_t entry = entry_of(lane + l, count);
          if (count == 0) continue;
          asc_copy_gm2l1_nd2nz(k1 + l * LINE, page_of(entry) + entry % entries * int64_t(codes), codes, load, count,
                               codes, 0, false);
        }
        asc_unlock(PIPE_MTE2, KEYS_0 + turn);
        asc_sync_intra_wait(PIPE_MTE1, SCALES_READY);
        asc_sync_intra_wait(PIPE_MTE1, SCALES_READY + 16);
        asc_lock(PIPE_MTE1, KEYS_0 + turn);
        asc_lock(PIPE_MTE1, RIGHT_0 + turn);
        asc_copy_l12l0b(b0, (__cbuf__ float4_e2m1x2_t*)k1, 0, 0, LANES / 16, pairs, LANES / 16, LANES / 16);
        asc_copy_l12l0b_mx(uint64_t(uintptr_t(b0)) / 16, (__cbuf__ fp8_e8m0_t*)(SCALES_1 + turn * SCALES_BYTES), 0, 0,
                           LANES / 16, pairs, pairs, pairs);
        asc_unlock(PIPE_MTE1, RIGHT_0 + turn);
        asc_unlock(PIPE_MTE1, KEYS_0 + turn);
        asc_sync_intra_arrive(PIPE_MTE1, SCALES_FREE);
        asc_sync_intra_arrive(PIPE_MTE1, SCALES_FREE + 16);
        asc_lock(PIPE_M, LEFT_M);
        asc_lock(PIPE_M, RIGHT_0 + turn);
        asc_lock(PIPE_M, PRODUCT_0 + turn);
        asc_mmad_mx(c0, a0, b0, heads, deep, LANES, 0, true, false, true);
        asc_unlock(PIPE_M, PRODUCT_0 + turn);
        asc_unlock(PIPE_M, RIGHT_0 + turn);
        asc_unlock(PIPE_M, LEFT_M);
        if (tile >= 2) {
          asc_sync_intra_wait(PIPE_FIX, SCORES_FREE);
          asc_sync_intra_wait(PIPE_FIX, SCORES_FREE + 16);
        }
        asc_lock(PIPE_FIX, PRODUCT_0 + turn);
        asc_set_l0c_copy_nz_para(1, 0, 0);
        asc_copy_l0c2ub((__ubuf__ float*)(SCORES + turn * SCORES_BYTES), c0, LANES, heads, HALF, tall, 0,
                        static_cast<asc_dual_dst_mode>(2), static_cast<asc_unit_flag_mode>(0),
                        static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), false, true, false, false);
        asc_unlock(PIPE_FIX, PRODUCT_0 + turn);
        asc_sync_intra_arrive(PIPE_FIX, SCORES_READY);
        asc_sync_intra_arrive(PIPE_FIX, SCORES_READY + 16);
      }
      continue;
    }

    const int32_t half = asc_get_sub_block_id();
    asc_lock(PIPE_MTE2, WEIGHT_M);
    asc_copy_gm2ub_align((__ubuf__ bfloat16_t*)WEIGHT, head_weight + row * heads, 1, heads * 2, 0, 0, false, load,
                         heads * 2, heads * 2);
    asc_unlock(PIPE_MTE2, WEIGHT_M);
    asc_lock(PIPE_V, WEIGHT_M);
    widen((__ubuf__ bfloat16_t*)WEIGHT, (__ubuf__ float*)FACTOR);
    asc_unlock(PIPE_V, WEIGHT_M);
    // Lines of 16 pairs in UB to L1, those of 16 rows side by side.
    auto put_lines = [&](int32_t to, int32_t count) {
      for (int32_t y = 0; y < pairs; ++y)
        asc_copy_ub2l1((__cbuf__ uint8_t*)(to + y * LINE), (__ubuf__ uint8_t*)(LINES + y * HALF * 2), count, 1, 0,
                       pairs - 1);
    };
    if (half == 0) {
      asc_lock(PIPE_MTE2, QUERY_RAW_M);
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)QUERY_RAW, query + row * heads * record + codes, heads, bytes, 0, 0, false,
                           load, record, bytes);
      asc_unlock(PIPE_MTE2, QUERY_RAW_M);
      asc_lock(PIPE_V, QUERY_RAW_M);
      asc_lock(PIPE_V, LINES_M);
      pair_scales((__ubuf__ uint8_t*)QUERY_RAW, (__ubuf__ uint16_t*)LINES, bytes, 6, 0);
      asc_unlock(PIPE_V, LINES_M);
      asc_unlock(PIPE_V, QUERY_RAW_M);
      if (rows_done) asc_sync_intra_wait(PIPE_MTE3, QUERY_FREE);
      asc_lock(PIPE_MTE3, LINES_M);
      put_lines(QUERY_SCALES_1, (heads + 15) / 16);
      asc_unlock(PIPE_MTE3, LINES_M);
      asc_sync_intra_arrive(PIPE_MTE3, QUERY_READY);
      rows_done = 1;
    }
    // This core's scales of a tile into L1, as the cube core's tile number `at`.
    auto stage = [&](int32_t from, int32_t at) {
      const int32_t turn = at & 1, pitch = (piece * bytes + LINE - 1) / LINE * LINE;
      __ubuf__ uint8_t* raw = (__ubuf__ uint8_t*)(RAW + turn * RAW_BYTES);
      asc_lock(PIPE_MTE2, RAW_0 + turn);
      for (int32_t l = 0; l < HALF; l += piece) {
        int32_t count;
        const int32_t entry = entry_of(from + half * HALF + l, count);
        if (count == 0) continue;
        asc_copy_gm2ub_align(raw + l / piece * pitch,
                             page_of(entry) + entries * int64_t(codes) + entry % entries * int64_t(bytes), 1,
                             count * bytes, 0, 0, false, load, count * bytes, count * bytes);
      }
      asc_unlock(PIPE_MTE2, RAW_0 + turn);
      asc_lock(PIPE_V, RAW_0 + turn);
      asc_lock(PIPE_V, LINES_M);
      pair_scales(raw, (__ubuf__ uint16_t*)LINES, bytes, shift, pitch);
      asc_unlock(PIPE_V, LINES_M);
      asc_unlock(PIPE_V, RAW_0 + turn);
      if (at >= 2) asc_sync_intra_wait(PIPE_MTE3, SCALES_FREE);
      asc_lock(PIPE_MTE3, LINES_M);
      put_lines(SCALES_1 + turn * SCALES_BYTES + half * HALF / 16 * pairs * LINE, HALF / 16);
      asc_unlock(PIPE_MTE3, LINES_M);
      asc_sync_intra_arrive(PIPE_MTE3, SCALES_READY);
    };
    stage(lane, tile);
    for (; lane < end; ++tile) {
      const int32_t next = next_tile(lane + LANES), turn = tile & 1, first = lane + half * HALF;
      const int32_t count = most(least(HALF, (block_count ? lanes : least(lanes, limit)) - first), 0);
      __ubuf__ bfloat16_t* result = (__ubuf__ bfloat16_t*)(RESULT + turn * RESULT_BYTES);
      if (next < end) stage(next, tile + 1);
      asc_sync_intra_wait(PIPE_V, SCORES_READY);
      asc_lock(PIPE_V, RESULT_0 + turn);
      add_heads((__ubuf__ float*)(SCORES + turn * SCORES_BYTES), (__ubuf__ float*)FACTOR, result, heads);
      asc_unlock(PIPE_V, RESULT_0 + turn);
      asc_sync_intra_arrive(PIPE_V, SCORES_FREE);
      asc_lock(PIPE_MTE3, RESULT_0 + turn);
      if (count)
        asc_copy_ub2gm_align(scores + row * lanes + first, result, 1, count * 2, store, count * 2, count * 2);
      asc_unlock(PIPE_MTE3, RESULT_0 + turn);
      lane = next;
    }
  }
  // What was freed and nobody waited for.
  for (int32_t t = 0; t < least(tile, 2); ++t) {
    if (ASC_IS_AIC) {
      asc_sync_intra_wait(PIPE_FIX, SCORES_FREE);
      asc_sync_intra_wait(PIPE_FIX, SCORES_FREE + 16);
    } else {
      asc_sync_intra_wait(PIPE_MTE3, SCALES_FREE);
    }
  }
  if (rows_done) asc_sync_intra_wait(PIPE_MTE3, QUERY_FREE);
}
