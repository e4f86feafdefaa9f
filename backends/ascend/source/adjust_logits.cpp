// Penalties, biases and bans of listed tokens; SIMD by hand.
//
// By hand, because tilelang 0.1.15 had not lowered it after 40 s of processor time: lists begin and end where global
// memory says, inside pieces that have tails of their own, and its simplifier tries to prove what holds.
//
// A piece of a row lies in UB; its listed tokens are gathered from there, 64 at a time, and scattered back. A list is
// read for every piece of its row. Ids of a row are distinct, so no two lanes meet.
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

// Places in UB, bytes: a piece of a row, words of its mask, entries of a list.
constexpr int32_t ENTRIES = 2048;
constexpr int32_t PIECE = 0, WORDS = 32768, IDS = 36864, COUNTS = 45056, VALUES = 53248;
constexpr float NEVER = -__builtin_inff();

// Places in the piece of 64 listed ids, and which of them lie in it.
__simd_callee__ inline vector_bool places(__ubuf__ int32_t* ids, int32_t first, int32_t count, int32_t listed,
                                          vector_s32& place) {
  place = plus(simd_inst::vlds_norm<int32_t>(ids, 0), -first);
  const vector_bool later = simd_inst::vcmps_ge(place, 0, simd_inst::update_mask_b32(listed));
  return simd_inst::vcmps_lt(place, count, later);
}

}  // namespace

__simd_vf__ inline void penalise(__ubuf__ float* x, __ubuf__ int32_t* ids, __ubuf__ int32_t* counts, int32_t first,
                                 int32_t count, int32_t listed, float repetition, float inverse, float frequency,
                                 float presence) {
  for (int32_t c = 0; c < listed; c += LANES) {
    vector_s32 place;
    const vector_bool here = places(ids + c, first, count, listed - c, place);
    const vector_f32 z = simd_inst::vgather2(x, *(vector_u32*)(&place), here);
    const vector_s32 much = simd_inst::vlds_norm<int32_t>(counts + c, 0);
    const vector_bool positive = simd_inst::vcmps_gt(z, 0.0f, all());
    const vector_f32 scaled = simd_inst::vsel(times(z, inverse), times(z, repetition), positive);
    const vector_f32 less = sub(scaled, times(to_float(much), frequency));
    const vector_bool present = simd_inst::vcmps_gt(much, 0, all());
    const vector_f32 result = simd_inst::vsel(sub(less, same(presence)), less, present);
    simd_inst::vscatter(result, x, *(vector_u32*)(&place), here);
  }
}

__simd_vf__ inline void bias(__ubuf__ float* x, __ubuf__ int32_t* ids, __ubuf__ float* values, int32_t first,
                             int32_t count, int32_t listed) {
  for (int32_t c = 0; c < listed; c += LANES) {
    vector_s32 place;
    const vector_bool here = places(ids + c, first, count, listed - c, place);
    const vector_f32 z = simd_inst::vgather2(x, *(vector_u32*)(&place), here);
    const vector_f32 value = simd_inst::vlds_norm<float>(values + c, 0);
    const vector_bool ban = simd_inst::vcmps_eq(value, NEVER, all());
    simd_inst::vscatter(simd_inst::vsel(value, add(z, value), ban), x, *(vector_u32*)(&place), here);
  }
}

// Two words of the mask are the bits of 64 tokens.
__simd_vf__ inline void mask(__ubuf__ float* x, __ubuf__ int32_t* words, int32_t count) {
  const vector_s32 lane = numbers(0);
  const vector_s32 low = simd_inst::vand(lane, same(31), all(), MODE_ZEROING);
  const vector_s32 bit = simd_inst::vshl(same(1), low, all(), MODE_ZEROING);
  const vector_s32 half = right(lane, 5);
  for (int32_t c = 0; c < count; c += LANES) {
    const vector_bool some = simd_inst::update_mask_b32(count - c);
    vector_s32 number = plus(half, c / 32);
    const vector_s32 word = simd_inst::vgather2(words, *(vector_u32*)(&number), some);
    const vector_bool clear = simd_inst::vcmps_eq(simd_inst::vand(word, bit, all(), MODE_ZEROING), 0, some);
    simd_inst::vsts_norm(simd_inst::vsel(same(NEVER), simd_inst::vlds_norm<float>(x + c, 0), clear), x + c, 0, some);
  }
}

// Penalties P (repetition, its inverse, frequency, presence) of ids SI with counts SC, entries SO[r] to SO[r + 1] of row
// r; values BV of ids BI, by BO; bits W. Tensors of a group that is not given are not read.
extern "C" __global__ __vector__ void adjust_logits_kernel(
    __gm__ float* Z, __gm__ float* P, __gm__ int32_t* SO, __gm__ int32_t* SI, __gm__ int32_t* SC, __gm__ int32_t* BO,
    __gm__ int32_t* BI, __gm__ float* BV, __gm__ int32_t* W, __gm__ float* Y, int32_t V, int32_t C, int32_t penal,
    int32_t biased, int32_t masked, int32_t pieces, int32_t items, int32_t cores) {
  asc_init();
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  for (int32_t item = int32_t(block_idx); item < items; item += cores) {
    const int32_t r = item / pieces, first = item % pieces * CHUNK, count = least(CHUNK, V - first);
    const int64_t at = int64_t(r) * V + first;
    asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)PIECE, (__gm__ uint8_t*)(Z + at), 1, count * 4, 0, 0, 0, load, count * 4,
                         count * 4);
    const int32_t stat = penal ? SO[r] : 0, stats = penal ? SO[r + 1] - stat : 0;
    for (int32_t e = 0; e < stats; e += ENTRIES) {
      const int32_t listed = least(ENTRIES, stats - e);
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)IDS, (__gm__ uint8_t*)(SI + stat + e), 1, listed * 4, 0, 0, 0, load,
                           listed * 4, listed * 4);
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)COUNTS, (__gm__ uint8_t*)(SC + stat + e), 1, listed * 4, 0, 0, 0, load,
                           listed * 4, listed * 4);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      penalise((__ubuf__ float*)PIECE, (__ubuf__ int32_t*)IDS, (__ubuf__ int32_t*)COUNTS, first, count, listed,
               P[4 * int64_t(r)], P[4 * int64_t(r) + 1], P[4 * int64_t(r) + 2], P[4 * int64_t(r) + 3]);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    const int32_t begin = biased ? BO[r] : 0, biases = biased ? BO[r + 1] - begin : 0;
    for (int32_t e = 0; e < biases; e += ENTRIES) {
      const int32_t listed = least(ENTRIES, biases - e);
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)IDS, (__gm__ uint8_t*)(BI + begin + e), 1, listed * 4, 0, 0, 0, load,
                           listed * 4, listed * 4);
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)VALUES, (__gm__ uint8_t*)(BV + begin + e), 1, listed * 4, 0, 0, 0, load,
                           listed * 4, listed * 4);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      bias((__ubuf__ float*)PIECE, (__ubuf__ int32_t*)IDS, (__ubuf__ float*)VALUES, first, count, listed);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    if (masked) {
      const int32_t bytes = (count + 31) / 32 * 4;
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)WORDS, (__gm__ uint8_t*)(W + int64_t(r) * C + first / 32), 1, bytes, 0, 0,
                           0, load, bytes, bytes);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      mask((__ubuf__ float*)PIECE, (__ubuf__ int32_t*)WORDS, count);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    // The vector pipe passes on that the piece is there: without a list or mask it would have nothing else to wait for,
    // and set its flag for the store of a later piece before that of this one has begun.
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)(Y + at), (__ubuf__ uint8_t*)PIECE, 1, count * 4, store, count * 4, count * 4);
    asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
}
