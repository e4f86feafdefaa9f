// Vector registers (256 bytes), masks, and the constants that select a form of an instruction.
#pragma once
#include "memory.h"

#define __simd_vf__
#define __simd_callee__

namespace ascsim {
template <class T>
struct vreg {
  static constexpr int N = 256 / sizeof(T);
  T v[N];
};
struct vmask {  // one bit per byte; a lane of w bytes is ruled by bit w * lane
  bool b[256];
};
template <int V>
using tagc = std::integral_constant<int, V>;
template <class T>
ASC_API bool act(const vmask& m, int lane) {
  return m.b[lane * int(sizeof(T))];
}
// Counts the lanes of one instruction that work.
template <class T>
ASC_API void tally(const vmask& m) {
  constexpr int N = 256 / sizeof(T);
  int on = 0;
  for (int i = 0; i < N; i++) on += m.b[i * int(sizeof(T))];
  simd_busy += uint64_t(on);
  simd_offered += N;
}
}  // namespace ascsim
using vector_f32 = ascsim::vreg<float>;
using vector_f16 = ascsim::vreg<half>;
using vector_bf16 = ascsim::vreg<bfloat16_t>;
using vector_u32 = ascsim::vreg<uint32_t>;
using vector_u16 = ascsim::vreg<uint16_t>;
using vector_u8 = ascsim::vreg<uint8_t>;
using vector_s32 = ascsim::vreg<int32_t>;
using vector_s16 = ascsim::vreg<int16_t>;
using vector_s8 = ascsim::vreg<int8_t>;
using vector_s64 = ascsim::vreg<int64_t>;
using vector_u64 = ascsim::vreg<uint64_t>;
using vector_f8e4m3 = ascsim::vreg<float8_e4m3_t>;
using vector_f8e5m2 = ascsim::vreg<float8_e5m2_t>;
using vector_f8e8m0 = ascsim::vreg<float8_e8m0_t>;
using vector_f4e2m1x2 = ascsim::vreg<float4_e2m1x2_t>;
using vector_f4e1m2x2 = ascsim::vreg<float4_e1m2x2_t>;
using vector_uint16_t = vector_u16;
using vector_uint32_t = vector_u32;
using vector_bool = ascsim::vmask;

#define ASCSIM_TAG(NAME, V) \
  inline constexpr ascsim::tagc<V> NAME {}
ASCSIM_TAG(LOWER, 100);
ASCSIM_TAG(HIGHER, 101);
ASCSIM_TAG(MODE_ZEROING, 110);  // inactive lanes become zero
ASCSIM_TAG(MODE_MERGING, 111);  // inactive lanes keep their value
ASCSIM_TAG(MODE_STORED, 112);
ASCSIM_TAG(POS_LOWEST, 120);
ASCSIM_TAG(POS_HIGHEST, 121);
ASCSIM_TAG(INC_ORDER, 130);
ASCSIM_TAG(DEC_ORDER, 131);
ASCSIM_TAG(Bin_N0, 140);
ASCSIM_TAG(Bin_N1, 141);
ASCSIM_TAG(POST_UPDATE, 150);
ASCSIM_TAG(ROUND_R, 160);  // nearest even; A away from zero at ties, F floor, C ceiling, Z to zero, O odd, H hybrid
ASCSIM_TAG(ROUND_A, 161);
ASCSIM_TAG(ROUND_F, 162);
ASCSIM_TAG(ROUND_C, 163);
ASCSIM_TAG(ROUND_Z, 164);
ASCSIM_TAG(ROUND_O, 165);
ASCSIM_TAG(ROUND_H, 166);
ASCSIM_TAG(RS_DISABLE, 170);
ASCSIM_TAG(RS_ENABLE, 171);
ASCSIM_TAG(PART_EVEN, 180);
ASCSIM_TAG(PART_ODD, 181);
ASCSIM_TAG(PART_P0, 190);
ASCSIM_TAG(PART_P1, 191);
ASCSIM_TAG(PART_P2, 192);
ASCSIM_TAG(PART_P3, 193);
ASCSIM_TAG(VST_VLD, 200);
ASCSIM_TAG(VLD_VST, 201);
ASCSIM_TAG(VST_VST, 202);
ASCSIM_TAG(VST_LD, 203);
ASCSIM_TAG(ST_VLD, 204);
// Mask patterns: all, none, the first n lanes, every third or fourth, the first half or quarter.
ASCSIM_TAG(PAT_ALL, -1);
ASCSIM_TAG(PAT_ALLF, 0);
ASCSIM_TAG(PAT_VL1, 1);
ASCSIM_TAG(PAT_VL2, 2);
ASCSIM_TAG(PAT_VL3, 3);
ASCSIM_TAG(PAT_VL4, 4);
ASCSIM_TAG(PAT_VL8, 8);
ASCSIM_TAG(PAT_VL16, 16);
ASCSIM_TAG(PAT_VL32, 32);
ASCSIM_TAG(PAT_VL64, 64);
ASCSIM_TAG(PAT_VL128, 128);
ASCSIM_TAG(PAT_M3, -3);
ASCSIM_TAG(PAT_M4, -4);
ASCSIM_TAG(PAT_H, -5);
ASCSIM_TAG(PAT_Q, -6);

namespace ascsim {
ASC_API vmask pattern_mask(int width, int pattern) {
  vmask m{};
  const int n = 256 / width;
  for (int i = 0; i < n; i++)
    m.b[i * width] = pattern == -1   ? true
                     : pattern == -3 ? i % 3 == 0
                     : pattern == -4 ? i % 4 == 0
                     : pattern == -5 ? i < n / 2
                     : pattern == -6 ? i < n / 4
                                     : i < pattern;
  return m;
}
ASC_API vmask count_mask(int width, uint32_t& count) {
  vmask m{};
  const int n = 256 / width, k = count < uint32_t(n) ? int(count) : n;
  for (int i = 0; i < k; i++) m.b[i * width] = true;
  count -= uint32_t(k);
  return m;
}
template <int W>
ASC_API void mask_interleave(vmask& d0, vmask& d1, vmask a, vmask b) {
  constexpr int N = 256 / W;
  vmask x{}, y{};
  for (int i = 0; i < N / 2; i++) {
    x.b[2 * i * W] = a.b[i * W];
    x.b[(2 * i + 1) * W] = b.b[i * W];
    y.b[2 * i * W] = a.b[(N / 2 + i) * W];
    y.b[(2 * i + 1) * W] = b.b[(N / 2 + i) * W];
  }
  d0 = x;
  d1 = y;
}
template <int W>
ASC_API void mask_deinterleave(vmask& d0, vmask& d1, vmask a, vmask b) {
  constexpr int N = 256 / W;
  vmask x{}, y{};
  for (int i = 0; i < N; i++) {
    x.b[i * W] = 2 * i < N ? a.b[2 * i * W] : b.b[(2 * i - N) * W];
    y.b[i * W] = 2 * i + 1 < N ? a.b[(2 * i + 1) * W] : b.b[(2 * i + 1 - N) * W];
  }
  d0 = x;
  d1 = y;
}
}  // namespace ascsim

// asc_create_mask_b8, _b16, _b32: a mask for lanes of 8, 16 or 32 bits, by pattern.
ASC_API vector_bool asc_create_mask_b8(int pattern) { return ascsim::pattern_mask(1, pattern); }
ASC_API vector_bool asc_create_mask_b16(int pattern) { return ascsim::pattern_mask(2, pattern); }
ASC_API vector_bool asc_create_mask_b32(int pattern) { return ascsim::pattern_mask(4, pattern); }
// asc_update_mask_b8, _b16, _b32: a mask of the first `count` lanes; count is lowered by the lanes of a register, down
// to zero.
ASC_API vector_bool asc_update_mask_b8(uint32_t& count) { return ascsim::count_mask(1, count); }
ASC_API vector_bool asc_update_mask_b16(uint32_t& count) { return ascsim::count_mask(2, count); }
ASC_API vector_bool asc_update_mask_b32(uint32_t& count) { return ascsim::count_mask(4, count); }

// asc_and, asc_or, asc_xor, asc_not, asc_select of masks under a mask: where it is off the result is off (asc_select:
// b).
#define ASCSIM_MASK_OP(NAME, EXPR)                                                                      \
  ASC_API void NAME(vector_bool& d, const vector_bool& a, const vector_bool& b, const vector_bool& m) { \
    for (int i = 0; i < 256; i++) {                                                                     \
      const bool x = a.b[i], y = b.b[i];                                                                \
      d.b[i] = m.b[i] && (EXPR);                                                                        \
    }                                                                                                   \
  }
ASCSIM_MASK_OP(asc_and, x&& y)
ASCSIM_MASK_OP(asc_or, x || y)
ASCSIM_MASK_OP(asc_xor, x != y)
#undef ASCSIM_MASK_OP
ASC_API void asc_not(vector_bool& d, const vector_bool& a, const vector_bool& m) {
  for (int i = 0; i < 256; i++) d.b[i] = m.b[i] && !a.b[i];
}
ASC_API void asc_select(vector_bool& d, const vector_bool& a, const vector_bool& b, const vector_bool& m) {
  for (int i = 0; i < 256; i++) d.b[i] = m.b[i] ? a.b[i] : b.b[i];
}
// asc_pack_to_low, asc_pack_to_high: every second bit to the lower or upper half; asc_unpack_lower, _upper: back.
ASC_API void asc_pack_to_low(vector_bool& d, const vector_bool& a) {
  vector_bool r{};
  for (int i = 0; i < 128; i++) r.b[i] = a.b[2 * i];
  d = r;
}
ASC_API void asc_pack_to_high(vector_bool& d, const vector_bool& a) {
  vector_bool r{};
  for (int i = 0; i < 128; i++) r.b[128 + i] = a.b[2 * i];
  d = r;
}
ASC_API void asc_unpack_lower(vector_bool& d, const vector_bool& a) {
  vector_bool r{};
  for (int i = 0; i < 128; i++) r.b[2 * i] = a.b[i];
  d = r;
}
ASC_API void asc_unpack_upper(vector_bool& d, const vector_bool& a) {
  vector_bool r{};
  for (int i = 0; i < 128; i++) r.b[2 * i] = a.b[128 + i];
  d = r;
}
// asc_intlv_b8 and its like: lanes of two masks in turn; asc_deintlv_b8: back.
#define ASCSIM_MASK_LACE(S, W)                                                                 \
  ASC_API void asc_intlv_##S(vector_bool& a, vector_bool& b, vector_bool c, vector_bool d) {   \
    ascsim::mask_interleave<W>(a, b, c, d);                                                    \
  }                                                                                            \
  ASC_API void asc_deintlv_##S(vector_bool& a, vector_bool& b, vector_bool c, vector_bool d) { \
    ascsim::mask_deinterleave<W>(a, b, c, d);                                                  \
  }
ASCSIM_MASK_LACE(b8, 1)
ASCSIM_MASK_LACE(b16, 2)
ASCSIM_MASK_LACE(b32, 4)
#undef ASCSIM_MASK_LACE
// asc_mem_bar: orders accesses to UB within a SIMD function; the model executes them in order.
template <class T>
ASC_API void asc_mem_bar(T) {}
