// Index queries rotated and quantised to E2M1 in groups of 32 with one power of two as scale; SIMD by hand.
//
// By hand, because the records of a token's heads are odd numbers of bytes side by side: two copies with strides put the
// codes and the scales of all heads into them, from places in UB that follow one another. TileLang has that for tiles
// whose sizes it knows when it lowers, so it would be one text per width.
//
// One token at a time, its heads as one row of K channels; the next token comes while one is worked on.
#include "c_api/asc_simd.h"

namespace {

constexpr int32_t LANES = 64;
constexpr uint32_t MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000, NAN_BITS = 0x7fc00000;
constexpr int32_t LEAST = 0x01c00000;              // 6 * 2^-126, the least maximum of a group
constexpr int32_t CARRY = 0x3fffff, EXPONENTS = 2;  // 6 = 1.5 * 2^2
// To add: rounds to multiples of 1/2, 1 and 2, ties to even.
constexpr float HALVES = 1.5f * (1 << 22), ONES = 1.5f * (1 << 23), TWOS = 1.5f * (1 << 24);
constexpr int32_t HALF_BITS = 0x4ac00000, ONE_BITS = 0x4b400000, TWO_BITS = 0x4bc00000;
// Places in UB, bytes: a token's channels and angles, twice; largest magnitudes of 8 channels and factors; the codes and
// the scales, twice.
constexpr int32_t ROW = 0, ROW_BYTES = 16384, ANGLES = 32768, ANGLES_BYTES = 2304, TOP = 37376, INVERSE = 41728,
                  CODES = 46080, CODES_BYTES = 4096, SCALES = 54272, SCALES_BYTES = 288;
enum { ROW_0, ROW_1, RECORD_0, RECORD_1 };

constexpr auto load = static_cast<asc_load_l2_cache_mode>(0);
constexpr auto store = static_cast<asc_store_l2_cache_mode>(0);

}  // namespace

// The last `turned` channels of each head by the row's angles (cosine, sine), rounded to bf16, in place.
__simd_vf__ inline void turn_heads(__ubuf__ bfloat16_t* x, __ubuf__ float* angles, int32_t heads, int32_t di,
                                   int32_t turned) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), halves = asc_create_mask_b16(PAT_ALL);
  uint32_t left = turned;
  for (int32_t c = 0; c < turned; c += LANES) {
    vector_bool some = asc_update_mask_b32(left);
    vector_f32 pair, cosine, sine, down, unused;
    asc_loadalign(pair, angles + c, 0);
    asc_deintlv(cosine, sine, pair, pair);
    asc_intlv(cosine, unused, cosine, cosine);
    asc_mul_scalar(down, sine, -1.0f, all);
    asc_intlv(sine, unused, down, sine);
    for (int32_t h = 0; h < heads; ++h) {
      __ubuf__ bfloat16_t* at = x + h * di + di - turned + c;
      vector_bf16 raw, rounded;
      vector_f32 value, even, odd, other;
      asc_loadalign_unpack(raw, at, 0);
      vcvt(value, raw, halves, PART_EVEN, MODE_ZEROING);
      asc_deintlv(even, odd, value, value);
      asc_intlv(other, unused, odd, even);
      asc_mul(value, value, cosine, some);
      asc_mul(other, other, sine, some);
      asc_add(value, value, other, some);
      vcvt(rounded, value, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
      asc_storealign_pack((__ubuf__ uint32_t*)at, reinterpret_cast<vector_u32&>(rounded), 0, some);
    }
  }
}

__simd_vf__ inline void magnitudes(__ubuf__ bfloat16_t* x, __ubuf__ int32_t* top, int32_t K) {
  vector_bool halves = asc_create_mask_b16(PAT_ALL), all = asc_create_mask_b32(PAT_ALL);
  uint32_t left = K;
  vector_s32 bits_on;
  asc_duplicate_scalar(bits_on, int32_t(MAGNITUDE), all);
  for (int32_t c = 0; c < K; c += LANES) {
    vector_bool some = asc_update_mask_b32(left);
    vector_bf16 raw;
    vector_f32 value;
    vector_s32 size, largest;
    asc_loadalign_unpack(raw, x + c, 0);
    vcvt(value, raw, halves, PART_EVEN, MODE_ZEROING);
    asc_and(size, reinterpret_cast<vector_s32&>(value), bits_on, some);
    asc_reduce_max_datablock(largest, size, some);
    asc_storealign(top + c / 8, largest, 0, asc_create_mask_b32(PAT_VL8));
  }
}

// The least power of two with maximum / scale <= 6, of groups of 32: its byte, and bits of 1 / scale for every 8
// channels; 255 and NaN for a group with NaN or infinity.
__simd_vf__ inline void scales(__ubuf__ int32_t* top, __ubuf__ int32_t* inverse, __ubuf__ uint8_t* bytes, int32_t K) {
  vector_bool all = asc_create_mask_b32(PAT_ALL), finite;
  uint32_t left = K / 32;
  vector_s32 nan, none, bias;
  asc_duplicate_scalar(nan, int32_t(NAN_BITS), all);
  asc_duplicate_scalar(none, 255, all);
  asc_duplicate_scalar(bias, 254, all);
  for (int32_t g = 0; g < K / 8; g += LANES) {
    uint32_t groups = left < 16 ? left : 16;
    left -= groups;
    vector_bool some = asc_update_mask_b32(groups);
    vector_s32 value, even, odd, largest, exponent, byte, bits, unused;
    asc_loadalign(value, top + g, 0);
    asc_deintlv(even, odd, value, value);
    asc_max(value, even, odd, all);
    asc_deintlv(even, odd, value, value);
    asc_max(largest, even, odd, all);
    asc_max_scalar(largest, largest, LEAST, all);
    asc_add_scalar(exponent, largest, CARRY, all);
    asc_shiftright_scalar(exponent, exponent, int16_t(23), all);
    asc_add_scalar(exponent, exponent, -EXPONENTS, all);
    asc_lt_scalar(finite, largest, int32_t(INFINITE), all);
    asc_select(byte, exponent, none, finite);
    asc_storealign_pack_quarter((__ubuf__ uint32_t*)(bytes + g / 4), reinterpret_cast<vector_u32&>(byte), 0, some);
    asc_sub(bits, bias, exponent, all);
    asc_shiftleft_scalar(bits, bits, int16_t(23), all);
    asc_select(bits, bits, nan, finite);
    asc_intlv(bits, unused, bits, bits);
    asc_intlv(bits, unused, bits, bits);
    asc_storealign(inverse + g, bits, 0, all);
  }
}

// Codes, the even channel of a pair in the low half of a byte. The sum's last bits count steps of 1/2 below 2, of 1
// below 4, of 2 from there on; 2 or 4 are added for the steps that the smaller numbers had.
__simd_vf__ inline void quantise(__ubuf__ bfloat16_t* x, __ubuf__ int32_t* inverse, __ubuf__ uint8_t* codes, int32_t K) {
  vector_bool halves_on = asc_create_mask_b16(PAT_ALL), all = asc_create_mask_b32(PAT_ALL);
  vector_s32 bits_on, eight, zero, half_base, one_base, two_base;
  vector_f32 halves, ones, twos;
  asc_duplicate_scalar(bits_on, int32_t(MAGNITUDE), all);
  asc_duplicate_scalar(eight, 8, all);
  asc_duplicate_scalar(zero, 0, all);
  asc_duplicate_scalar(half_base, HALF_BITS, all);
  asc_duplicate_scalar(one_base, ONE_BITS - 2, all);
  asc_duplicate_scalar(two_base, TWO_BITS - 4, all);
  asc_duplicate_scalar(halves, HALVES, all);
  asc_duplicate_scalar(ones, ONES, all);
  asc_duplicate_scalar(twos, TWOS, all);
  for (int32_t c = 0; c < K; c += LANES) {
    uint32_t pairs = K - c < LANES ? (K - c) / 2 : LANES / 2;
    vector_bool some = asc_update_mask_b32(pairs), bad, above2, above4;
    vector_bf16 raw;
    vector_f32 value, size, step;
    vector_s32 factor, base, code, sign, even, odd;
    asc_loadalign_unpack(raw, x + c, 0);
    vcvt(value, raw, halves_on, PART_EVEN, MODE_ZEROING);
    asc_loadalign_brc_elem2datablock(factor, inverse + c / 8, 0);
    asc_eq_scalar(bad, factor, int32_t(NAN_BITS), all);
    asc_mul(value, value, reinterpret_cast<vector_f32&>(factor), all);
    asc_and(reinterpret_cast<vector_s32&>(size), reinterpret_cast<vector_s32&>(value), bits_on, all);
    asc_min_scalar(size, size, 6.0f, all);
    asc_ge_scalar(above2, size, 2.0f, all);
    asc_ge_scalar(above4, size, 4.0f, all);
    asc_select(step, twos, ones, above4);
    asc_select(step, step, halves, above2);
    asc_select(base, two_base, one_base, above4);
    asc_select(base, base, half_base, above2);
    asc_add(step, size, step, all);
    asc_sub(code, reinterpret_cast<vector_s32&>(step), base, all);
    asc_shiftright_scalar(sign, reinterpret_cast<vector_s32&>(value), int16_t(28), all);
    asc_and(sign, sign, eight, all);
    asc_add(code, code, sign, all);
    asc_select(code, zero, code, bad);
    asc_deintlv(even, odd, code, code);
    asc_shiftleft_scalar(odd, odd, int16_t(4), all);
    asc_add(code, even, odd, all);
    asc_storealign_pack_quarter((__ubuf__ uint32_t*)(codes + c / 2), reinterpret_cast<vector_u32&>(code), 0, some);
  }
}

extern "C" __global__ __vector__ void index_query_pack(__gm__ bfloat16_t* q, __gm__ int32_t* positions,
                                                       __gm__ float* table, __gm__ uint8_t* packed, int32_t rows,
                                                       int32_t heads, int32_t di, int32_t turned, int32_t cores) {
  asc_init();
  const int32_t K = heads * di, record = di / 2 + di / 32;
  auto fetch = [&](int64_t row, int32_t turn) {
    asc_lock(PIPE_MTE2, ROW_0 + turn);
    asc_copy_gm2ub_align((__ubuf__ bfloat16_t*)(ROW + turn * ROW_BYTES), q + row * K, 1, K * 2, 0, 0, false, load, K * 2,
                         K * 2);
    asc_copy_gm2ub_align((__ubuf__ float*)(ANGLES + turn * ANGLES_BYTES), table + int64_t(positions[row]) * turned, 1,
                         turned * 4, 0, 0, false, load, turned * 4, turned * 4);
    asc_unlock(PIPE_MTE2, ROW_0 + turn);
  };
  int32_t turn = 0;
  int64_t row = block_idx;
  if (row < rows) fetch(row, turn);
  for (; row < rows; row += cores, turn ^= 1) {
    if (row + cores < rows) fetch(row + cores, turn ^ 1);
    __ubuf__ bfloat16_t* x = (__ubuf__ bfloat16_t*)(ROW + turn * ROW_BYTES);
    __ubuf__ int32_t* top = (__ubuf__ int32_t*)TOP;
    __ubuf__ int32_t* inverse = (__ubuf__ int32_t*)INVERSE;
    __ubuf__ uint8_t* codes = (__ubuf__ uint8_t*)(CODES + turn * CODES_BYTES);
    __ubuf__ uint8_t* bytes = (__ubuf__ uint8_t*)(SCALES + turn * SCALES_BYTES);
    asc_lock(PIPE_V, ROW_0 + turn);
    asc_lock(PIPE_V, RECORD_0 + turn);
    turn_heads(x, (__ubuf__ float*)(ANGLES + turn * ANGLES_BYTES), heads, di, turned);
    magnitudes(x, top, K);
    scales(top, inverse, bytes, K);
    quantise(x, inverse, codes, K);
    asc_unlock(PIPE_V, RECORD_0 + turn);
    asc_unlock(PIPE_V, ROW_0 + turn);
    asc_lock(PIPE_MTE3, RECORD_0 + turn);
    __gm__ uint8_t* to = packed + row * heads * record;
    asc_copy_ub2gm_align(to, codes, heads, di / 2, store, record, di / 2);
    asc_copy_ub2gm_align(to + di / 2, bytes, heads, di / 32, store, record, di / 32);
    asc_unlock(PIPE_MTE3, RECORD_0 + turn);
  }
}
