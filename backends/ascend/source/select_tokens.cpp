// The kept set of rows by forced top-k, top-k, top-p and min-p, or the list of their k best tokens; SIMT by hand.
//
// By hand, because what a pass over the row has counted decides what the next one looks for, or that there is none:
// in TileLang only global memory can decide that, and its threads have no sums of 64 bits in UB.
//
// A row's tokens are ordered by integers: 32 bits in the order of the logits, then the lower id. The place where a
// count or a sum of weights passes a limit is found digit by digit of 8 bits: one pass adds up the tokens of each
// value of the digit, atomically, then 256 threads look for the value where the limit is passed. Sums are of integers,
// so their order does not matter. Weights are those of weight_sums. One row a core at a time, its logits read anew
// for each digit.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

namespace {

constexpr int32_t THREADS = 512, BINS = 256, GROUP = 16, MOST = 4096;
constexpr uint32_t LOWEST = 0x007FFFFFu;  // the key of -infinity
constexpr int32_t NOTHING = -1, LARGEST_ID = 0x7FFFFFFF;
constexpr uint64_t ONE = 1ull << 31;

struct Row {
  __gm__ int32_t* z;  // bits of the logits
  __gm__ int32_t* w;  // weights, 32 bits without a sign; not read where `weighed` is false
  int32_t width;
  bool weighed;
};

struct State {
  uint32_t counts[BINS], low[BINS], high[BINS];  // tokens of each value of a digit, and their weight in two words
  uint32_t group_counts[GROUP];
  uint64_t group_sums[GROUP];
  uint32_t found, digit, above, equal;  // of the last digit: whether there is a place, where, tokens before and there
  uint64_t sum_above, sum_equal;
  uint32_t finite, first, border, next, listed;
  uint32_t words[4], tokens[2];  // sums above the edge and at it; tokens there
  uint32_t keys[MOST], ids[MOST];
};

// Where a limit is passed: the key, tokens and weight before it and at it.
struct Place {
  bool found;
  uint32_t key, above, equal;
  uint64_t sum_above, sum_equal;
};

// Larger for larger logits; the zeros are one value.
__simt_callee__ inline uint32_t order(int32_t bits) {
  uint32_t b = uint32_t(bits);
  if (b == 0x80000000u) b = 0;
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}

__simt_callee__ inline int32_t logit(uint32_t key) {
  return int32_t(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

__simt_callee__ inline void add64(__ubuf__ uint32_t* low, __ubuf__ uint32_t* high, uint64_t value) {
  const uint32_t word = uint32_t(value);
  uint32_t carry = uint32_t(value >> 32);
  if (word) {
    const uint32_t old = asc_atomic_add(low, word);
    carry += old + word < old ? 1u : 0u;
  }
  if (carry) asc_atomic_add(high, carry);
}

// The first place, from the largest key down, where more than `limit` is passed: tokens, or weights with `masses`.
// With `tie` keys are ids of the tokens with that logit, lower ids first; else those above -infinity take part.
__simt_callee__ inline Place find(__ubuf__ State* s, const Row& row, int32_t digits, bool masses, uint64_t limit,
                                  uint32_t tie) {
  const int32_t t = threadIdx.x;
  Place p = {true, 0, 0, 0, 0, 0};
  for (int32_t d = digits - 1; d >= 0 && p.found; --d) {
    if (t < BINS) s->counts[t] = s->low[t] = s->high[t] = 0;
    if (t == 0) s->found = 0;
    asc_syncthreads();
    for (int32_t i = t; i < row.width; i += THREADS) {
      uint32_t key = order(row.z[i]);
      if (tie ? key != tie : key <= LOWEST) continue;
      if (tie) key = uint32_t((1ull << 8 * digits) - 1) - uint32_t(i);
      const uint32_t upper = d == 3 ? 0 : key >> (8 * d + 8);
      if (d < digits - 1 && upper != p.key) continue;
      const uint32_t bin = (key >> 8 * d) & 255u;
      asc_atomic_add(&s->counts[bin], 1u);
      if (row.weighed && !tie) add64(&s->low[bin], &s->high[bin], uint32_t(row.w[i]));
    }
    asc_syncthreads();
    if (t < GROUP) {
      uint32_t count = 0;
      uint64_t sum = 0;
      for (int32_t j = t * GROUP; j < t * GROUP + GROUP; ++j) {
        count += s->counts[255 - j];
        sum += uint64_t(s->high[255 - j]) << 32 | s->low[255 - j];
      }
      s->group_counts[t] = count;
      s->group_sums[t] = sum;
    }
    asc_syncthreads();
    if (t < BINS) {
      uint32_t count = p.above;
      uint64_t sum = p.sum_above;
      for (int32_t g = 0; g < t / GROUP; ++g) {
        count += s->group_counts[g];
        sum += s->group_sums[g];
      }
      for (int32_t j = t / GROUP * GROUP; j < t; ++j) {
        count += s->counts[255 - j];
        sum += uint64_t(s->high[255 - j]) << 32 | s->low[255 - j];
      }
      const uint32_t own = s->counts[255 - t];
      const uint64_t mass = uint64_t(s->high[255 - t]) << 32 | s->low[255 - t];
      const uint64_t before = masses ? sum : count;
      if (before <= limit && before + (masses ? mass : own) > limit) {
        s->found = 1;
        s->digit = 255 - t;
        s->above = count;
        s->equal = own;
        s->sum_above = sum;
        s->sum_equal = mass;
      }
    }
    asc_syncthreads();
    p = {s->found != 0, p.key << 8 | s->digit, s->above, s->equal, s->sum_above, s->sum_equal};
    asc_syncthreads();
  }
  return p;
}

__simt_callee__ inline int32_t id_digits(int32_t width) { return width <= 256 ? 1 : width <= 65536 ? 2 : 3; }

// The id of the tie of number `rank` from 1 on.
__simt_callee__ inline int32_t tie_id(__ubuf__ State* s, const Row& row, uint32_t key, uint32_t rank) {
  const int32_t digits = id_digits(row.width);
  const Place p = find(s, row, digits, false, rank - 1, key);
  return int32_t(uint32_t((1ull << 8 * digits) - 1) - p.key);
}

// Number of tokens above -infinity, the first of key `top`, the largest key that weighs less than `least`.
__simt_callee__ inline void survey(__ubuf__ State* s, const Row& row, uint32_t top, uint64_t least) {
  const int32_t t = threadIdx.x;
  if (t == 0) s->finite = s->border = s->listed = 0, s->first = LARGEST_ID, s->next = 0xFFFFFFFFu;
  if (t < 4) s->words[t] = 0;
  if (t < 2) s->tokens[t] = 0;
  asc_syncthreads();
  uint32_t finite = 0, first = LARGEST_ID, border = 0;
  for (int32_t i = t; i < row.width; i += THREADS) {
    const uint32_t key = order(row.z[i]);
    if (key <= LOWEST) continue;
    ++finite;
    if (key == top && uint32_t(i) < first) first = i;
    if (least && key > border && uint32_t(row.w[i]) < least) border = key;
  }
  finite = asc_reduce_add(finite);
  first = asc_reduce_min(first);
  border = asc_reduce_max(border);
  if (t % 32 == 0) {
    asc_atomic_add(&s->finite, finite);
    asc_atomic_min(&s->first, first);
    asc_atomic_max(&s->border, border);
  }
  asc_syncthreads();
}

// The smallest key above a border.
__simt_callee__ inline uint32_t lowest_above(__ubuf__ State* s, const Row& row, uint32_t border) {
  uint32_t next = 0xFFFFFFFFu;
  for (int32_t i = threadIdx.x; i < row.width; i += THREADS) {
    const uint32_t key = order(row.z[i]);
    if (key > border && key < next) next = key;
  }
  next = asc_reduce_min(next);
  if (threadIdx.x % 32 == 0) asc_atomic_min(&s->next, next);
  asc_syncthreads();
  return s->next;
}

// Tokens and weights above a key and at it.
__simt_callee__ inline Place measure(__ubuf__ State* s, const Row& row, uint32_t edge) {
  uint32_t above = 0, equal = 0;
  uint64_t sum_above = 0, sum_equal = 0;
  for (int32_t i = threadIdx.x; i < row.width; i += THREADS) {
    const uint32_t key = order(row.z[i]);
    if (key < edge) continue;
    const uint32_t weight = uint32_t(row.w[i]);
    if (key == edge) ++equal, sum_equal += weight;
    else ++above, sum_above += weight;
  }
  above = asc_reduce_add(above);
  equal = asc_reduce_add(equal);
  if (threadIdx.x % 32 == 0) {
    asc_atomic_add(&s->tokens[0], above);
    asc_atomic_add(&s->tokens[1], equal);
  }
  add64(&s->words[0], &s->words[1], sum_above);
  add64(&s->words[2], &s->words[3], sum_equal);
  asc_syncthreads();
  return {true, edge, s->tokens[0], s->tokens[1], uint64_t(s->words[1]) << 32 | s->words[0],
          uint64_t(s->words[3]) << 32 | s->words[2]};
}

}  // namespace

// One row's filter. `limits` holds what is off as what never binds: top-k 0, top-p 2^31, min-p 0.
__simt_vf__ __launch_bounds__(512) inline void filter(__ubuf__ State* s, __gm__ int32_t* z, __gm__ int32_t* w,
                                                      int32_t width, int32_t top, int32_t greedy, int32_t top_k,
                                                      int64_t top_p, int64_t min_p, int32_t force, int64_t total,
                                                      __gm__ int32_t* A, __gm__ int32_t* I, __gm__ int32_t* H,
                                                      __gm__ int32_t* L, __gm__ int32_t* C, __gm__ int64_t* S) {
  const Row row = {z, w, width, true};
  const uint32_t best = order(top);
  const bool valid = (uint32_t(top) & 0x7FFFFFFFu) <= 0x7F800000u && best > LOWEST;
  uint32_t count = 0, edge = order(0x7F800000);
  int32_t first = 0, last = NOTHING;
  uint64_t mass = 0;
  if (valid) {
    const uint64_t least = greedy || min_p <= 0 ? 0 : uint64_t(min_p) < ONE ? uint64_t(min_p) : ONE;
    survey(s, row, best, least);
    const uint32_t finite = s->finite;
    first = int32_t(s->first);
    const uint32_t pool = force > 0 && uint32_t(force) < finite ? uint32_t(force) : finite;
    const uint32_t most = top_k > 0 && uint32_t(top_k) < pool ? uint32_t(top_k) : pool;
    count = finite, mass = uint64_t(total), edge = LOWEST;
    uint32_t ties = 0;  // kept tokens at the edge; 0 for all of them
    if (greedy) {
      edge = best, ties = 1;
    } else {
      uint64_t pooled = uint64_t(total);
      if (pool < finite && (top_p < int64_t(ONE) || most == pool)) {
        const Place p = find(s, row, 4, false, pool - 1, 0);
        pooled = p.sum_above + (pool - p.above) * (p.sum_equal / p.equal);
        edge = p.key, ties = pool - p.above;
      }
      if (most < pool) {
        const Place p = find(s, row, 4, false, most - 1, 0);
        edge = p.key, ties = most - p.above;
      }
      if (top_p < int64_t(ONE)) {
        const uint64_t share = (pooled >> 31) * uint64_t(top_p) + ((pooled & (ONE - 1)) * uint64_t(top_p) >> 31);
        const Place p = find(s, row, 4, true, share, 0);
        if (p.found) {
          const uint32_t n = uint32_t((share - p.sum_above) / (p.sum_equal / p.equal)) + 1;
          if (p.key > edge || (p.key == edge && n < ties)) edge = p.key, ties = n;
        }
      }
      if (s->border >= edge && s->border > 0) {
        if (s->border >= best) edge = best, ties = 1;
        else edge = lowest_above(s, row, s->border), ties = 0;
      }
    }
    if (edge > LOWEST) {
      const Place p = measure(s, row, edge);
      if (!ties) ties = p.equal;
      count = p.above + ties;
      mass = greedy ? ONE : p.sum_above + ties * (p.sum_equal / p.equal);
      if (count < finite) last = tie_id(s, row, edge, ties);
      else edge = LOWEST;
    }
  }
  if (threadIdx.x == 0) {
    *A = valid ? logit(best) : int32_t(0xFF800000u);
    *I = first;
    *H = logit(edge);
    *L = last;
    *C = int32_t(count);
    *S = int64_t(mass);
  }
}

// One row's list of its k best tokens among the kept ones: ids, then -1, and their log-probabilities, then -9999.
__simt_vf__ __launch_bounds__(512) inline void list(__ubuf__ State* s, __gm__ int32_t* z, int32_t width, int32_t k,
                                                    float top, float rate, float log_sum, int32_t threshold,
                                                    int32_t last, int32_t filtered, __gm__ int32_t* ids,
                                                    __gm__ float* values) {
  const Row row = {z, z, width, false};
  const int32_t t = threadIdx.x;
  const bool valid = top == top && top > -__builtin_inff();
  survey(s, row, 0xFFFFFFFFu, 0);
  uint32_t listed = 0;
  if (valid) {
    uint32_t edge = LOWEST + 1;  // every key above -infinity
    int32_t up_to = LARGEST_ID;
    if (uint32_t(k) < s->finite) {
      const Place p = find(s, row, 4, false, uint32_t(k) - 1, 0);
      edge = p.key;
      if (p.above + p.equal > uint32_t(k)) up_to = tie_id(s, row, edge, uint32_t(k) - p.above);
    }
    const uint32_t border = filtered ? order(threshold) : LOWEST;
    for (int32_t i = t; i < width; i += THREADS) {
      const uint32_t key = order(z[i]);
      if (key < edge || (key == edge && i > up_to)) continue;
      if (key < border || (key == border && i > last)) continue;
      const uint32_t n = asc_atomic_add(&s->listed, 1u);
      s->keys[n] = key;
      s->ids[n] = uint32_t(i);
    }
    asc_syncthreads();
    listed = s->listed;
  }
  for (int32_t n = t; n < k; n += THREADS) {
    if (uint32_t(n) < listed) {
      const uint32_t key = s->keys[n], id = s->ids[n];
      uint32_t rank = 0;
      for (uint32_t j = 0; j < listed; ++j) rank += s->keys[j] > key || (s->keys[j] == key && s->ids[j] < id) ? 1u : 0u;
      const int32_t bits = logit(key);
      float x;
      __builtin_memcpy(&x, &bits, 4);
      const float e = x == top ? 0.0f : (x - top) * rate;
      const float value = (e - log_sum) * 0x1.62e430p-1f;
      ids[rank] = int32_t(id);
      values[rank] = value > -9999.0f ? value : -9999.0f;
    } else {
      ids[n] = -1;
      values[n] = -9999.0f;
    }
  }
}

// Filters of rows, or with `k` > 0 lists. M: the rows' maxima (of lists: maximum and log2 of the sum of powers, both).
// Y0 to Y5: max_logit, max_id, threshold, last_id, count, mass. Tensors of what is off are not read.
extern "C" __global__ __vector__ void select_tokens_kernel(
    __gm__ int32_t* Z, __gm__ int32_t* W, __gm__ float* R, __gm__ float* M, __gm__ int32_t* K, __gm__ int64_t* P,
    __gm__ int64_t* Q, __gm__ int64_t* S, __gm__ int32_t* H, __gm__ int32_t* L, __gm__ int32_t* Y0, __gm__ int32_t* Y1,
    __gm__ int32_t* Y2, __gm__ int32_t* Y3, __gm__ int32_t* Y4, __gm__ int64_t* Y5, __gm__ int32_t* IDS,
    __gm__ float* VALUES, int32_t m, int32_t V, int32_t k, int32_t force, int32_t tempered, int32_t filtered,
    int32_t has_k, int32_t has_p, int32_t has_q, int32_t cores) {
  asc_init();
  for (int32_t r = int32_t(block_idx); r < m; r += cores) {
    __gm__ int32_t* z = Z + int64_t(r) * V;
    const float rate = (tempered ? R[r] : 1.0f) * 0x1.715476p+0f;
    if (k > 0) {
      asc_vf_call<list>(cce::dim3(THREADS), (__ubuf__ State*)0, z, V, k, M[2 * int64_t(r)], rate,
                        M[2 * int64_t(r) + 1], filtered ? H[r] : 0, filtered ? L[r] : 0, filtered,
                        IDS + int64_t(r) * k, VALUES + int64_t(r) * k);
    } else {
      const float top = M[r];
      int32_t bits;
      __builtin_memcpy(&bits, &top, 4);
      asc_vf_call<filter>(cce::dim3(THREADS), (__ubuf__ State*)0, z, W + int64_t(r) * V, V, bits,
                          rate == __builtin_inff() ? 1 : 0, has_k ? K[r] : 0, has_p ? P[r] : int64_t(ONE),
                          has_q ? Q[r] : int64_t(0), force, S[r], Y0 + r, Y1 + r, Y2 + r, Y3 + r, Y4 + r, Y5 + r);
    }
  }
}
