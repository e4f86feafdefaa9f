// Fixed-point weights of rows' tokens: their sum, and where they are wanted the weights themselves; SIMD by hand.
//
// By hand, because tilelang 0.1.15 had not lowered it after 40 s of processor time: its simplifier looks through the long
// chains of results that weights are.
//
// A weight is 2^31 times a power of two, truncated: upper and lower 16 bits are summed apart, in 64 lanes each, and the
// lanes in two words at the end, so that no sum passes 32 bits before (V below 2^22). Sums of integers: any order.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>

namespace {

constexpr int32_t LANES = 64, CHUNK = 8192;
constexpr auto load = static_cast<asc_load_l2_cache_mode>(0);
constexpr auto store = static_cast<asc_store_l2_cache_mode>(0);

__aicore__ inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

// Vector instructions on all 64 lanes.
__simd_callee__ inline vector_bool all() { return asc_create_mask_b32(PAT_ALL); }
template <class V>
__simd_callee__ inline V add(V a, V b) { return simd_inst::vadd(a, b, all(), MODE_ZEROING); }
template <class V>
__simd_callee__ inline V sub(V a, V b) { return simd_inst::vsub(a, b, all(), MODE_ZEROING); }
template <class V>
__simd_callee__ inline V mul(V a, V b) { return simd_inst::vmul(a, b, all(), MODE_ZEROING); }
template <class V, class T>
__simd_callee__ inline V plus(V a, T b) { return simd_inst::vadds(a, b, all(), MODE_ZEROING); }
template <class V, class T>
__simd_callee__ inline V times(V a, T b) { return simd_inst::vmuls(a, b, all(), MODE_ZEROING); }
template <class V>
__simd_callee__ inline V left(V a, int16_t n) { return simd_inst::vshls(a, n, all(), MODE_ZEROING); }
template <class V>
__simd_callee__ inline V right(V a, int16_t n) { return simd_inst::vshrs(a, n, all(), MODE_ZEROING); }
__simd_callee__ inline vector_f32 same(float x) { return simd_inst::vdup<float>(x, all(), MODE_ZEROING); }
__simd_callee__ inline vector_s32 same(int32_t x) { return simd_inst::vdup<int32_t>(x, all(), MODE_ZEROING); }
__simd_callee__ inline vector_u32 same(uint32_t x) { return simd_inst::vdup<uint32_t>(x, all(), MODE_ZEROING); }
__simd_callee__ inline vector_s32 numbers(int32_t first) { return simd_inst::vci<int32_t>(first, INC_ORDER); }
__simd_callee__ inline vector_f32 to_float(vector_s32 x) {
  return simd_inst::vcvt<float>(x, all(), ROUND_R, MODE_ZEROING);
}

// The written-down functions, one rounding each (docs/numerics.md).
// 2^x for x <= 0. A sum with 1.5 * 2^23 is x rounded to an integer, which its bits hold.
__simd_callee__ inline vector_f32 exp2(vector_f32 x) {
  x = simd_inst::vmaxs(x, -126.0f, all(), MODE_ZEROING);
  vector_f32 shifted = plus(x, 0x1.8p+23f);
  const vector_f32 f = sub(x, plus(shifted, -0x1.8p+23f));
  vector_s32 scale = left(plus(*(vector_s32*)(&shifted), 126 - 0x4B400000), 23);
  vector_f32 r = times(f, 0x1.416b52p-12f);
  r = mul(plus(r, 0x1.5f082ep-9f), f);
  r = mul(plus(r, 0x1.3b2de0p-6f), f);
  r = mul(plus(r, 0x1.c6af7cp-4f), f);
  r = mul(plus(r, 0x1.ebfbdcp-2f), f);
  r = mul(plus(r, 0x1.62e430p+0f), f);
  return mul(plus(r, 0x1.000000p+1f), *(vector_f32*)(&scale));
}

// (z - top) * rate in two roundings, 0 where z = top.
__simd_callee__ inline vector_f32 exponent(vector_f32 z, vector_f32 top, vector_f32 rate) {
  const vector_bool highest = simd_inst::vcmp_eq(z, top, all());
  return simd_inst::vsel(same(0.0f), mul(sub(z, top), rate), highest);
}

// The tokens that a filter keeps: above its threshold, or at it and up to its last id.
__simd_callee__ inline vector_bool kept(vector_f32 z, vector_s32 token, vector_f32 threshold, int32_t last,
                                        vector_bool inside) {
  const vector_bool equal = simd_inst::vcmp_eq(z, threshold, inside);
  const vector_bool early = simd_inst::vcmps_le(token, last, equal);
  const vector_bool above = simd_inst::vcmp_gt(z, threshold, inside);
  return simd_inst::por(early, above, inside);
}

// trunc(power * 2^31) for power in [0, 1]: its upper 16 bits and its lower 16.
__simd_callee__ inline void halves(vector_f32 power, vector_s32& high, vector_s32& low) {
  const vector_f32 scaled = times(power, 0x1p+15f);
  high = simd_inst::vcvt<int32_t>(scaled, all(), ROUND_Z, RS_ENABLE, MODE_ZEROING);
  low = simd_inst::vcvt<int32_t>(times(sub(scaled, to_float(high)), 0x1p+16f), all(), ROUND_Z, RS_ENABLE, MODE_ZEROING);
}

// Sums of the lower and of the upper 16 bits of 64 lanes, in all lanes.
__simd_callee__ inline void lane_sums(vector_s32 x, vector_s32& low, vector_s32& high) {
  const vector_u32 bits = *(vector_u32*)(&x);
  const vector_u32 upper = right(bits, 16);
  const vector_s32 lower = simd_inst::vand(x, same(0xFFFF), all(), MODE_ZEROING);
  low = simd_inst::vdupv(simd_inst::vcadd(lower, all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
  high = simd_inst::vdupv(simd_inst::vcadd(*(vector_s32*)(&upper), all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
}

// Places in UB, bytes: a chunk of logits, of weights; registers.
constexpr int32_t LOGITS = 0, WEIGHTS = 32768, BEST = 65536, BAD = 65792, HIGH_SUM = 66048, LOW_SUM = 66304, SUM = 66560;

}  // namespace

__simd_vf__ inline void clear(__ubuf__ float* best, __ubuf__ int32_t* bad, __ubuf__ int32_t* upper,
                              __ubuf__ int32_t* lower, float top) {
  simd_inst::vsts_norm(same(top), best, 0, all());
  simd_inst::vsts_norm(same(0), bad, 0, all());
  simd_inst::vsts_norm(same(0), upper, 0, all());
  simd_inst::vsts_norm(same(0), lower, 0, all());
}

// The largest number of each lane, and whether it saw a NaN.
__simd_vf__ inline void search(__ubuf__ float* z, __ubuf__ float* best, __ubuf__ int32_t* bad, int32_t count) {
  vector_f32 largest = simd_inst::vlds_norm<float>(best, 0);
  vector_s32 wrong = simd_inst::vlds_norm<int32_t>(bad, 0);
  for (int32_t c = 0; c < count; c += LANES) {
    const vector_bool some = simd_inst::update_mask_b32(count - c);
    const vector_f32 x = simd_inst::vlds_norm<float>(z + c, 0);
    largest = simd_inst::vsel(x, largest, simd_inst::vcmp_gt(x, largest, some));
    wrong = simd_inst::vsel(same(1), wrong, simd_inst::vcmp_ne(x, x, some));
  }
  simd_inst::vsts_norm(largest, best, 0, all());
  simd_inst::vsts_norm(wrong, bad, 0, all());
}

// The row's maximum in all lanes, NaN if it has one.
__simd_vf__ inline void found(__ubuf__ float* best, __ubuf__ int32_t* bad) {
  const vector_f32 largest = simd_inst::vdupv(
      simd_inst::vcmax(simd_inst::vlds_norm<float>(best, 0), all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
  const vector_s32 wrong = simd_inst::vdupv(
      simd_inst::vcmax(simd_inst::vlds_norm<int32_t>(bad, 0), all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
  vector_s32 nan = same(0x7FC00000);
  simd_inst::vsts_norm(simd_inst::vsel(*(vector_f32*)(&nan), largest, simd_inst::vcmps_gt(wrong, 0, all())), best, 0,
                       all());
}

// Weights of a chunk. With `below` only kept tokens with a logit below `bound` count.
__simd_vf__ inline void weigh(__ubuf__ float* z, __ubuf__ int32_t* w, __ubuf__ float* best, __ubuf__ int32_t* upper,
                              __ubuf__ int32_t* lower, int32_t first, int32_t count, float inverse, int32_t below,
                              float border, int32_t last, float bound, int32_t stored) {
  vector_s32 high_sum = simd_inst::vlds_norm<int32_t>(upper, 0), low_sum = simd_inst::vlds_norm<int32_t>(lower, 0);
  const vector_f32 top = simd_inst::vlds_norm<float>(best, 0), rate = times(same(inverse), 0x1.715476p+0f);
  const vector_f32 threshold = same(border), limit = same(bound);
  for (int32_t c = 0; c < count; c += LANES) {
    vector_bool counted = simd_inst::update_mask_b32(count - c);
    const vector_f32 x = simd_inst::vlds_norm<float>(z + c, 0);
    if (below) {
      const vector_bool chosen = kept(x, numbers(first + c), threshold, last, counted);
      counted = simd_inst::vcmp_lt(x, limit, chosen);
    }
    vector_s32 high, low;
    halves(exp2(exponent(x, top, rate)), high, low);
    if (stored) {
      const vector_s32 word = simd_inst::vor(left(high, 16), low, all(), MODE_ZEROING);
      simd_inst::vsts_norm(word, w + c, 0, all());
    }
    high_sum = add(high_sum, simd_inst::vsel(high, same(0), counted));
    low_sum = add(low_sum, simd_inst::vsel(low, same(0), counted));
  }
  simd_inst::vsts_norm(high_sum, upper, 0, all());
  simd_inst::vsts_norm(low_sum, lower, 0, all());
}

// The sum of high * 2^16 + low over lanes, its lower word in lane 0, its upper one in lane 1.
__simd_vf__ inline void total(__ubuf__ int32_t* upper, __ubuf__ int32_t* lower, __ubuf__ int32_t* sum) {
  vector_s32 low0, low1, high0, high1;
  lane_sums(simd_inst::vlds_norm<int32_t>(lower, 0), low0, low1);
  lane_sums(simd_inst::vlds_norm<int32_t>(upper, 0), high0, high1);
  const vector_s32 middle = add(add(low1, high0), right(low0, 16));
  const vector_s32 part = simd_inst::vand(low0, same(0xFFFF), all(), MODE_ZEROING);
  const vector_s32 word = simd_inst::vor(part, left(middle, 16), all(), MODE_ZEROING);
  const vector_s32 next = add(high1, right(middle, 16));
  const vector_bool lane0 = simd_inst::vcmps_eq(numbers(0), 0, all());
  simd_inst::vsts_norm(simd_inst::vsel(word, next, lane0), sum, 0, all());
}

// Y = the sum as two words. With `given` M is the rows' maxima, else written. With `below` (thresholds H, last ids L,
// tokens I) only kept tokens below token I count, none for -1. With `stored` the weights go to W.
extern "C" __global__ __vector__ void token_weights_kernel(__gm__ float* Z, __gm__ float* R, __gm__ float* M,
                                                           __gm__ float* H, __gm__ int32_t* L, __gm__ int32_t* I,
                                                           __gm__ int32_t* Y, __gm__ int32_t* W, int32_t m, int32_t V,
                                                           int32_t given, int32_t below, int32_t stored,
                                                           int32_t cores) {
  asc_init();
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  for (int32_t r = int32_t(block_idx); r < m; r += cores) {
    const int64_t row = int64_t(r) * V;
    const float inverse = R[r];
    const float border = below ? H[r] : 0.0f;
    const int32_t last = below ? L[r] : 0, token = below ? I[r] : -1;
    const float bound = token < 0 ? -__builtin_inff() : Z[row + token];
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
    clear((__ubuf__ float*)BEST, (__ubuf__ int32_t*)BAD, (__ubuf__ int32_t*)HIGH_SUM, (__ubuf__ int32_t*)LOW_SUM,
          given ? M[r] : -__builtin_inff());
    if (!given) {
      for (int32_t first = 0; first < V; first += CHUNK) {
        const int32_t count = least(CHUNK, V - first);
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)LOGITS, (__gm__ uint8_t*)(Z + row + first), 1, count * 4, 0, 0, 0, load,
                             count * 4, count * 4);
        asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        search((__ubuf__ float*)LOGITS, (__ubuf__ float*)BEST, (__ubuf__ int32_t*)BAD, count);
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      }
      found((__ubuf__ float*)BEST, (__ubuf__ int32_t*)BAD);
    }
    for (int32_t first = 0; first < V; first += CHUNK) {
      const int32_t count = least(CHUNK, V - first);
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)LOGITS, (__gm__ uint8_t*)(Z + row + first), 1, count * 4, 0, 0, 0, load,
                           count * 4, count * 4);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      weigh((__ubuf__ float*)LOGITS, (__ubuf__ int32_t*)WEIGHTS, (__ubuf__ float*)BEST, (__ubuf__ int32_t*)HIGH_SUM,
            (__ubuf__ int32_t*)LOW_SUM, first, count, inverse, below, border, last, bound, stored);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      if (stored)
        asc_copy_ub2gm_align((__gm__ uint8_t*)(W + row + first), (__ubuf__ uint8_t*)WEIGHTS, 1, count * 4, store,
                             count * 4, count * 4);
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    total((__ubuf__ int32_t*)HIGH_SUM, (__ubuf__ int32_t*)LOW_SUM, (__ubuf__ int32_t*)SUM);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    asc_copy_ub2gm_align((__gm__ uint8_t*)(Y + 2 * int64_t(r)), (__ubuf__ uint8_t*)SUM, 1, 8, store, 8, 8);
    if (!given) asc_copy_ub2gm_align((__gm__ uint8_t*)(M + r), (__ubuf__ uint8_t*)BEST, 1, 4, store, 4, 4);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
}
