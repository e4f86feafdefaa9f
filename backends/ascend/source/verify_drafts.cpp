// Verification of drafts and what it needs: distributions kept for it, tests of drafts, tokens; SIMD by hand.
//
// By hand, because of its long chains of results (two powers, two logarithms and ten rounds of Philox for a token):
// tilelang's simplifier looks through them, and its time doubles with each link.
//
// Three launches. `DISTRIBUTION`: base-2 log-probabilities of a row to its slot of the pool. `TEST`: what becomes of a
// draft. `FINISH`: tokens and decisions, with the residual draw where a draft failed; the draw of rows without a test
// is that of sample_draw. A row's result depends on its own logits and numbers alone.
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

__simd_callee__ inline vector_f32 log2_polynomial(vector_f32 f, vector_s32 k) {
  vector_f32 r = times(f, 0x1.01ba32p-3f);
  r = mul(plus(r, -0x1.a78030p-3f), f);
  r = mul(plus(r, 0x1.b94dfap-3f), f);
  r = mul(plus(r, -0x1.e9809ep-3f), f);
  r = mul(plus(r, 0x1.26dd48p-2f), f);
  r = mul(plus(r, -0x1.715b7ep-2f), f);
  r = mul(plus(r, 0x1.ec7366p-2f), f);
  r = mul(plus(r, -0x1.715472p-1f), f);
  r = plus(r, 0x1.715476p+0f);
  return add(mul(r, f), to_float(k));
}

// x = 2^k (1 + f).
__simd_callee__ inline vector_f32 split(vector_f32 x, vector_s32& k) {
  const vector_s32 bits = *(vector_s32*)(&x);
  k = right(plus(bits, -0x3F3504F3), 23);
  vector_s32 mantissa = sub(bits, left(k, 23));
  return plus(*(vector_f32*)(&mantissa), -1.0f);
}

__simd_callee__ inline vector_f32 log2(vector_f32 x) {
  vector_s32 k;
  const vector_f32 f = split(x, k);
  return log2_polynomial(f, k);
}

// -log2(1 - v).
__simd_callee__ inline vector_f32 exponential(vector_f32 v) {
  vector_s32 k;
  const vector_f32 minus = times(v, -1.0f);
  vector_f32 f = split(plus(minus, 1.0f), k);
  f = simd_inst::vsel(minus, f, simd_inst::vcmps_eq(k, 0, all()));
  return times(log2_polynomial(f, k), -1.0f);
}

// (x + 1/2) / 2^32 of words x, rounded once: both parts of the sum are exact.
__simd_callee__ inline vector_f32 uniform(vector_u32 word) {
  vector_u32 high = right(word, 12), low = simd_inst::vand(word, same(0xFFFu), all(), MODE_ZEROING);
  const vector_f32 total =
      add(times(to_float(*(vector_s32*)(&high)), 4096.0f), plus(to_float(*(vector_s32*)(&low)), 0.5f));
  return simd_inst::vmins(times(total, 0x1p-32f), 0x1.fffffep-1f, all(), MODE_ZEROING);
}

// What the random words of a row come from.
struct Source {
  uint32_t seed0, seed1, at0, at1, purpose;
};

struct Words {
  vector_u32 w[4];
};

// Philox4x32-10 of 64 counters, `lanes` their last words.
__simd_callee__ inline Words philox(const Source& s, vector_u32 lanes) {
  vector_u32 c0 = same(s.at0), c1 = same(s.at1), c2 = same(s.purpose), c3 = lanes;
  uint32_t k0 = s.seed0, k1 = s.seed1;
  for (int32_t step = 0; step < 10; ++step) {
    auto p0 = simd_inst::vmull(c0, same(0xD2511F53u), all());
    auto p1 = simd_inst::vmull(c2, same(0xCD9E8D57u), all());
    const vector_u32 a = simd_inst::vxor(p1.v1, c1, all(), MODE_ZEROING);
    const vector_u32 b = simd_inst::vxor(p0.v1, c3, all(), MODE_ZEROING);
    c0 = simd_inst::vxor(a, same(k0), all(), MODE_ZEROING);
    c1 = p1.v0;
    c2 = simd_inst::vxor(b, same(k1), all(), MODE_ZEROING);
    c3 = p0.v0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// A row: where it stands in the order of likelihood, and its filter.
struct Row {
  float top, log_sum, inverse, border;
  int32_t last;
};

constexpr float NEVER = -__builtin_inff(), TINY = 0x1p-100f;

// Base-2 log-probabilities of kept tokens of a valid row, -infinity for others.
__simd_callee__ inline vector_f32 log2_probability(const Row& row, vector_f32 z, vector_s32 token, vector_bool inside) {
  const vector_f32 top = same(row.top), rate = times(same(row.inverse), 0x1.715476p+0f);
  const vector_bool valid = simd_inst::vcmps_gt(top, NEVER, inside);
  const vector_bool chosen = kept(z, token, same(row.border), row.last, valid);
  return simd_inst::vsel(sub(exponent(z, top, rate), same(row.log_sum)), same(NEVER), chosen);
}

// Places in UB, bytes: chunks of logits, of the pool and of residuals; registers.
constexpr int32_t LOGITS = 0, POOL = 32768, REST = 65536, BEST = 98304, NAMES = 98560, OUT = 98816, FLAG = 99072;
constexpr int32_t NONE = 0x7FFFFFFF;
enum { DISTRIBUTION, TEST, FINISH };
enum { UNTESTED, ACCEPTED, REPLACED };

}  // namespace

__simd_vf__ inline void distribute(__ubuf__ float* z, __ubuf__ float* y, Row row, int32_t several, int32_t token,
                                   int32_t first, int32_t count) {
  for (int32_t c = 0; c < count; c += LANES) {
    const vector_bool some = simd_inst::update_mask_b32(count - c);
    const vector_s32 ids = numbers(first + c);
    vector_f32 value;
    if (several > 1) value = log2_probability(row, simd_inst::vlds_norm<float>(z + c, 0), ids, some);
    else value = simd_inst::vsel(same(0.0f), same(NEVER), simd_inst::vcmps_eq(ids, token, all()));
    simd_inst::vsts_norm(value, y + c, 0, some);
  }
}

// What becomes of a draft, whether it is tested at all; and how many tokens sample_draw chooses from.
__simd_vf__ inline void test(__ubuf__ int32_t* out, __ubuf__ int32_t* flag, Row row, Source source, float logit,
                             int32_t draft, float proposal, int32_t several, int32_t tested) {
  const vector_f32 own = log2_probability(row, same(logit), same(draft), all());
  const vector_f32 chance = exp2(simd_inst::vmins(sub(own, same(proposal)), 0.0f, all(), MODE_ZEROING));
  const vector_bool possible = simd_inst::vcmps_gt(own, NEVER, all());
  const Words words = philox(source, same(0u));
  const vector_bool passes = simd_inst::vcmp_gt(chance, uniform(words.w[0]), possible);
  const vector_s32 verdict = simd_inst::vsel(same(int32_t(ACCEPTED)), same(int32_t(REPLACED)), passes);
  simd_inst::vsts_norm(tested ? verdict : same(int32_t(UNTESTED)), flag, 0, all());
  simd_inst::vsts_norm(same(tested ? 0 : several), out, 0, all());
}

__simd_vf__ inline void begin(__ubuf__ float* best, __ubuf__ int32_t* names) {
  simd_inst::vsts_norm(same(NEVER), best, 0, all());
  simd_inst::vsts_norm(same(NONE), names, 0, all());
}

// Residuals of a chunk, then the race among them: the best score of each lane, and its token.
__simd_vf__ inline void race(__ubuf__ float* z, __ubuf__ float* q, __ubuf__ float* rest, __ubuf__ float* best,
                             __ubuf__ int32_t* names, Row row, Source source, int32_t draft, int32_t known,
                             int32_t first, int32_t count) {
  const int32_t end = (count + 4 * LANES - 1) / (4 * LANES) * (4 * LANES);
  for (int32_t c = 0; c < end; c += LANES) {
    const int32_t there = count - c;
    const vector_bool some = simd_inst::update_mask_b32(there > 0 ? there : 0);
    const vector_s32 ids = numbers(first + c);
    const vector_f32 own = log2_probability(row, simd_inst::vlds_norm<float>(z + c, 0), ids, some);
    vector_f32 proposal;
    if (known) proposal = simd_inst::vlds_norm<float>(q + c, 0);
    else proposal = simd_inst::vsel(same(0.0f), same(NEVER), simd_inst::vcmps_eq(ids, draft, all()));
    simd_inst::vsts_norm(simd_inst::vsel(sub(exp2(own), exp2(proposal)), same(0.0f), some), rest + c, 0, all());
  }
  simd_inst::mem_bar(VST_VLD);
  vector_f32 score = simd_inst::vlds_norm<float>(best, 0);
  vector_s32 token = simd_inst::vlds_norm<int32_t>(names, 0);
  const vector_s32 lane = left(numbers(0), 2);
  for (int32_t c = 0; c < end; c += 4 * LANES) {
    vector_s32 counters = numbers((first + c) / 4);
    const Words words = philox(source, *(vector_u32*)(&counters));
    auto low = simd_inst::vdintlv(simd_inst::vlds_norm<float>(rest + c, 0), simd_inst::vlds_norm<float>(rest + c + 64, 0));
    auto high =
        simd_inst::vdintlv(simd_inst::vlds_norm<float>(rest + c + 128, 0), simd_inst::vlds_norm<float>(rest + c + 192, 0));
    auto even = simd_inst::vdintlv(low.v0, high.v0);
    auto odd = simd_inst::vdintlv(low.v1, high.v1);
    const vector_f32 residual[4] = {even.v0, odd.v0, even.v1, odd.v1};
    for (int32_t w = 0; w < 4; ++w) {
      const vector_f32 noise = log2(exponential(uniform(words.w[w])));
      const vector_f32 own = sub(log2(simd_inst::vmaxs(residual[w], TINY, all(), MODE_ZEROING)), noise);
      const vector_bool likely = simd_inst::vcmps_gt(residual[w], TINY, all());
      const vector_bool more = simd_inst::vcmp_gt(own, score, likely);
      score = simd_inst::vsel(own, score, more);
      token = simd_inst::vsel(plus(lane, first + c + w), token, more);
    }
  }
  simd_inst::vsts_norm(score, best, 0, all());
  simd_inst::vsts_norm(token, names, 0, all());
}

__simd_vf__ inline void decide(__ubuf__ float* best, __ubuf__ int32_t* names, __ubuf__ int32_t* out,
                               __ubuf__ int32_t* flag, int32_t fate, int32_t draft, int32_t drawn, int32_t several,
                               int32_t only) {
  const vector_f32 score = simd_inst::vlds_norm<float>(best, 0);
  const vector_f32 largest =
      simd_inst::vdupv(simd_inst::vcmax(score, all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
  const vector_bool first = simd_inst::vcmp_eq(score, largest, all());
  const vector_s32 token = simd_inst::vsel(simd_inst::vlds_norm<int32_t>(names, 0), same(NONE), first);
  const vector_s32 winner =
      simd_inst::vdupv(simd_inst::vcmin(token, all(), MODE_ZEROING), all(), POS_LOWEST, MODE_ZEROING);
  const vector_s32 residual = simd_inst::vsel(winner, same(only), simd_inst::vcmps_gt(largest, NEVER, all()));
  const bool good = fate == ACCEPTED || (fate == UNTESTED && draft >= 0 && several > 0 && draft == drawn);
  simd_inst::vsts_norm(fate == REPLACED ? residual : same(fate == ACCEPTED ? draft : drawn), out, 0, all());
  simd_inst::vsts_norm(same(good ? 1 : 0), flag, 0, all());
}

// M: maximum and log2 of the sum of powers, by rows. Q: the pool, rows `stride` apart, `start` the first. O: a row's slot
// of it (none below 0); not read without `pooled`. X: drafts; of DISTRIBUTION the token of rows with one kept token.
// N, F: tokens to draw from and what becomes of a draft, written by TEST. D: draws. Y, B: tokens and decisions.
extern "C" __global__ __vector__ void verify_drafts_kernel(
    __gm__ float* Z, __gm__ float* R, __gm__ float* H, __gm__ int32_t* L, __gm__ int32_t* C, __gm__ int32_t* A,
    __gm__ int32_t* X, __gm__ uint32_t* SEED, __gm__ uint32_t* AT, __gm__ float* M, __gm__ float* Q, __gm__ int32_t* O,
    __gm__ int32_t* N, __gm__ int32_t* F, __gm__ int32_t* D, __gm__ int32_t* Y, __gm__ uint8_t* B, int32_t what,
    int64_t stride, int64_t start, int32_t purpose, int32_t shared, int32_t pooled, int32_t V, int32_t pieces,
    int32_t items, int32_t cores) {
  asc_init();
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t item = int32_t(block_idx); item < items; item += cores) {
    const int32_t r = item / pieces, draft = X[r], several = C[r], slot = pooled ? O[r] : -1;
    const Row row = {M[2 * int64_t(r)], M[2 * int64_t(r) + 1], R[r], H[r], L[r]};
    __gm__ float* z = Z + int64_t(r) * V;
    __gm__ float* q = Q + (int64_t(slot < 0 ? 0 : slot) * stride + start);
    if (what == DISTRIBUTION) {
      if (slot < 0) continue;
      const int32_t first = item % pieces * CHUNK, count = least(CHUNK, V - first);
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)LOGITS, (__gm__ uint8_t*)(z + first), 1, count * 4, 0, 0, 0, load,
                           count * 4, count * 4);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      distribute((__ubuf__ float*)LOGITS, (__ubuf__ float*)REST, row, several, draft, first, count);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)(q + first), (__ubuf__ uint8_t*)REST, 1, count * 4, store, count * 4,
                           count * 4);
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      continue;
    }
    const Source source = {SEED[2 * int64_t(r)], SEED[2 * int64_t(r) + 1], AT[2 * int64_t(r)], AT[2 * int64_t(r) + 1],
                           uint32_t(purpose)};
    if (what == TEST) {
      const int32_t tested = draft >= 0 && !shared && several > 1 ? 1 : 0;
      const int32_t x = draft < 0 ? 0 : draft;
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      test((__ubuf__ int32_t*)OUT, (__ubuf__ int32_t*)FLAG, row, source, z[x], x, tested && slot >= 0 ? q[x] : 0.0f,
           several, tested);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)(N + r), (__ubuf__ uint8_t*)OUT, 1, 4, store, 4, 4);
      asc_copy_ub2gm_align((__gm__ uint8_t*)(F + r), (__ubuf__ uint8_t*)FLAG, 1, 4, store, 4, 4);
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      continue;
    }
    const int32_t fate = F[r];
    begin((__ubuf__ float*)BEST, (__ubuf__ int32_t*)NAMES);
    for (int32_t first = 0; fate == REPLACED && first < V; first += CHUNK) {
      const int32_t count = least(CHUNK, V - first);
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)LOGITS, (__gm__ uint8_t*)(z + first), 1, count * 4, 0, 0, 0, load,
                           count * 4, count * 4);
      if (slot >= 0)
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)POOL, (__gm__ uint8_t*)(q + first), 1, count * 4, 0, 0, 0, load,
                             count * 4, count * 4);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      race((__ubuf__ float*)LOGITS, (__ubuf__ float*)POOL, (__ubuf__ float*)REST, (__ubuf__ float*)BEST,
           (__ubuf__ int32_t*)NAMES, row, source, draft, slot >= 0 ? 1 : 0, first, count);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    decide((__ubuf__ float*)BEST, (__ubuf__ int32_t*)NAMES, (__ubuf__ int32_t*)OUT, (__ubuf__ int32_t*)FLAG, fate, draft,
           D[r], several, A[r]);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)(Y + r), (__ubuf__ uint8_t*)OUT, 1, 4, store, 4, 4);
    asc_copy_ub2gm_align((__gm__ uint8_t*)(B + r), (__ubuf__ uint8_t*)FLAG, 1, 1, store, 1, 1);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}
