// Arithmetic on vector registers.
#pragma once
#include "simd_registers.h"

// Two registers, or a register and a scalar (`_scalar`), lane by lane; lanes whose mask is off become zero. asc_add,
// asc_sub and asc_mul wrap around for integers; asc_div is for floats; asc_max and asc_min take the larger and smaller,
// asc_abs_sub the distance |a - b|; asc_and, asc_or and asc_xor go bit by bit.
#define ASCSIM_BIN(NAME, EXPR)                                                                                      \
  template <class T>                                                                                                \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) { \
    ascsim::tally<T>(m);                                                                                            \
    ascsim::vreg<T> r;                                                                                              \
    for (int i = 0; i < ascsim::vreg<T>::N; i++) {                                                                  \
      T x = a.v[i], y = b.v[i];                                                                                     \
      (void)x;                                                                                                      \
      (void)y;                                                                                                      \
      r.v[i] = ascsim::act<T>(m, i) ? T(EXPR) : T(0);                                                               \
    }                                                                                                               \
    d = r;                                                                                                          \
  }
#define ASCSIM_BINS(NAME, EXPR)                                                                \
  template <class T, class S>                                                                  \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, S s, const vector_bool& m) { \
    ascsim::tally<T>(m);                                                                       \
    ascsim::vreg<T> r;                                                                         \
    for (int i = 0; i < ascsim::vreg<T>::N; i++) {                                             \
      T x = a.v[i], y = T(s);                                                                  \
      r.v[i] = ascsim::act<T>(m, i) ? T(EXPR) : T(0);                                          \
    }                                                                                          \
    d = r;                                                                                     \
  }
#define ASCSIM_BOTH(NAME, EXPR) ASCSIM_BIN(NAME, EXPR) ASCSIM_BINS(NAME##_scalar, EXPR)
ASCSIM_BOTH(asc_add, x + y)
ASCSIM_BOTH(asc_sub, x - y) ASCSIM_BOTH(asc_mul, x* y) ASCSIM_BIN(asc_div, x / y) ASCSIM_BOTH(asc_max, (x > y ? x : y))
    ASCSIM_BOTH(asc_min, (x < y ? x : y)) ASCSIM_BIN(asc_and, x& y) ASCSIM_BIN(asc_or, x | y) ASCSIM_BIN(asc_xor, x ^ y)
        ASCSIM_BIN(asc_abs_sub, (x > y ? x - y : y - x))
    // asc_shiftleft and asc_shiftright: each lane by the number of bits in that lane of b, or by one number
    // (`_scalar`); to the right with the sign of signed lanes.
    template <class T, class U>
    ASC_API
    void asc_shiftleft(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<U>& b, const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) r.v[i] = ascsim::act<T>(m, i) ? T(a.v[i] << b.v[i]) : T(0);
  d = r;
}
template <class T, class U>
ASC_API void asc_shiftright(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<U>& b,
                            const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) r.v[i] = ascsim::act<T>(m, i) ? T(a.v[i] >> b.v[i]) : T(0);
  d = r;
}
ASCSIM_BINS(asc_shiftleft_scalar, x << y)
ASCSIM_BINS(asc_shiftright_scalar, x >> y)
// One register, lane by lane: asc_ln the natural logarithm, asc_sqrt, asc_exp (those of the host here), asc_abs,
// asc_neg, asc_relu (negative to zero), asc_not (all bits), asc_leakyrelu and asc_prelu (negative times a scalar, or
// times that lane of b), asc_exp_sub exp(a - b).
#define ASCSIM_UN(NAME, EXPR)                                                             \
  template <class T>                                                                      \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) { \
    ascsim::tally<T>(m);                                                                  \
    ascsim::vreg<T> r;                                                                    \
    for (int i = 0; i < ascsim::vreg<T>::N; i++) {                                        \
      T x = a.v[i];                                                                       \
      r.v[i] = ascsim::act<T>(m, i) ? T(EXPR) : T(0);                                     \
    }                                                                                     \
    d = r;                                                                                \
  }
    ASCSIM_UN(asc_ln, std::log(float(x))) ASCSIM_UN(asc_sqrt, std::sqrt(float(x)))
        ASCSIM_UN(asc_exp, std::exp(float(x))) ASCSIM_UN(asc_abs, (x < T(0) ? T(-x) : x)) ASCSIM_UN(asc_neg, -x)
            ASCSIM_UN(asc_relu, (x > T(0) ? x : T(0))) ASCSIM_UN(asc_not, ~x) template <class T, class S>
            ASC_API void asc_leakyrelu(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, S s, const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    r.v[i] = ascsim::act<T>(m, i) ? (a.v[i] > T(0) ? a.v[i] : T(a.v[i] * T(s))) : T(0);
  d = r;
}
ASCSIM_BIN(asc_prelu, (x > T(0) ? x : T(x * y)))
ASCSIM_BIN(asc_exp_sub, std::exp(float(x) - float(y)))
// asc_madd: d = d * a + b; asc_axpy: d = a * s + d; with one rounding. Lanes whose mask is off become zero.
template <class T>
ASC_API void asc_madd(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    r.v[i] = ascsim::act<T>(m, i) ? T(std::fma(float(d.v[i]), float(a.v[i]), float(b.v[i]))) : T(0);
  d = r;
}
template <class T, class S>
ASC_API void asc_axpy(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, S s, const vector_bool& m) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    d.v[i] = ascsim::act<T>(m, i) ? T(std::fma(float(a.v[i]), float(s), float(d.v[i]))) : T(0);
}
// Comparisons of two registers, or with a scalar (`_scalar`): a mask of the lanes where a is equal to b (eq), not equal
// (ne), greater (gt), greater or equal (ge), less (lt), less or equal (le); off where the mask is off.
#define ASCSIM_CMP(NAME, op)                                                                                          \
  template <class T>                                                                                                  \
  ASC_API void asc_##NAME(vector_bool& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) { \
    vector_bool r{};                                                                                                  \
    for (int i = 0; i < ascsim::vreg<T>::N; i++) r.b[i * sizeof(T)] = ascsim::act<T>(m, i) && a.v[i] op b.v[i];       \
    d = r;                                                                                                            \
  }                                                                                                                   \
  template <class T, class S>                                                                                         \
  ASC_API void asc_##NAME##_scalar(vector_bool& d, const ascsim::vreg<T>& a, S s, const vector_bool& m) {             \
    vector_bool r{};                                                                                                  \
    for (int i = 0; i < ascsim::vreg<T>::N; i++) r.b[i * sizeof(T)] = ascsim::act<T>(m, i) && a.v[i] op T(s);         \
    d = r;                                                                                                            \
  }
ASCSIM_CMP(eq, ==)
ASCSIM_CMP(ne, !=) ASCSIM_CMP(gt, >) ASCSIM_CMP(ge, >=) ASCSIM_CMP(lt, <) ASCSIM_CMP(le, <=)
    // asc_select: a where the mask is on, else b.
    template <class T>
    ASC_API
    void asc_select(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) r.v[i] = ascsim::act<T>(m, i) ? a.v[i] : b.v[i];
  d = r;
}
// One value in every lane whose mask is on, zero elsewhere: a scalar (asc_duplicate_scalar), the lowest lane of a
// (asc_duplicate), the highest (asc_duplicate_highest). asc_arange: s + i in lane i; asc_arange_descend: s + N - 1 - i.
template <class T, class S>
ASC_API void asc_duplicate_scalar(ascsim::vreg<T>& d, S s, const vector_bool& m) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = ascsim::act<T>(m, i) ? T(s) : T(0);
}
template <class T>
ASC_API void asc_duplicate(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  T x = a.v[0];
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = ascsim::act<T>(m, i) ? x : T(0);
}
template <class T>
ASC_API void asc_duplicate_highest(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  T x = a.v[ascsim::vreg<T>::N - 1];
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = ascsim::act<T>(m, i) ? x : T(0);
}
template <class T, class S>
ASC_API void asc_arange(ascsim::vreg<T>& d, S s) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = T(T(s) + T(i));
}
template <class T, class S>
ASC_API void asc_arange_descend(ascsim::vreg<T>& d, S s) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = T(T(s) + T(ascsim::vreg<T>::N - 1 - i));
}
// asc_reduce_sum, asc_reduce_max, asc_reduce_min: over all active lanes, the result in lane 0, the rest zero. A sum may
// be of a wider type. Sums of float32 go as a binary tree of neighbours; the largest and smallest have the index of
// their first occurrence in lane 1.
template <class D, class T>
ASC_API void asc_reduce_sum(ascsim::vreg<D>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<D> r{};
  D s = D(0);
  if constexpr (std::is_same_v<T, float>) {
    float t[64];
    for (int i = 0; i < 64; i++) t[i] = ascsim::act<T>(m, i) ? a.v[i] : 0.f;
    for (int h = 32; h; h /= 2)
      for (int i = 0; i < h; i++) t[i] = t[2 * i] + t[2 * i + 1];
    s = t[0];
  } else
    for (int i = 0; i < ascsim::vreg<T>::N; i++)
      if (ascsim::act<T>(m, i)) s = D(s + D(a.v[i]));
  r.v[0] = s;
  d = r;
}
template <class T>
ASC_API void asc_reduce_max(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<T> r{};
  int b = -1;
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i) && (b < 0 || a.v[i] > a.v[b])) b = i;
  if (b >= 0) {
    r.v[0] = a.v[b];
    if constexpr (sizeof(T) == 4) {
      uint32_t k = b;
      std::memcpy(&r.v[1], &k, 4);
    } else {
      uint16_t k = b;
      std::memcpy(&r.v[1], &k, sizeof(T));
    }
  }
  d = r;
}
template <class T>
ASC_API void asc_reduce_min(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<T> r{};
  int b = -1;
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i) && (b < 0 || a.v[i] < a.v[b])) b = i;
  if (b >= 0) {
    r.v[0] = a.v[b];
    if constexpr (sizeof(T) == 4) {
      uint32_t k = b;
      std::memcpy(&r.v[1], &k, 4);
    } else {
      uint16_t k = b;
      std::memcpy(&r.v[1], &k, sizeof(T));
    }
  }
  d = r;
}
// asc_reduce_sum_datablock and its like: the same within each 32-byte block, block g to lane g; no index.
#define ASCSIM_DB(NAME, INIT, STEP)                                                       \
  template <class T>                                                                      \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) { \
    ascsim::vreg<T> r{};                                                                  \
    constexpr int W = 32 / sizeof(T);                                                     \
    for (int g = 0; g < 8; g++) {                                                         \
      bool any = false;                                                                   \
      T s = T(0);                                                                         \
      for (int i = 0; i < W; i++) {                                                       \
        int k = g * W + i;                                                                \
        if (!ascsim::act<T>(m, k)) continue;                                              \
        T x = a.v[k];                                                                     \
        if (!any) s = x;                                                                  \
        else s = T(STEP);                                                                 \
        any = true;                                                                       \
      }                                                                                   \
      r.v[g] = s;                                                                         \
    }                                                                                     \
    d = r;                                                                                \
  }
ASCSIM_DB(asc_reduce_sum_datablock, 0, s + x)
ASCSIM_DB(asc_reduce_max_datablock, 0, (x > s ? x : s)) ASCSIM_DB(asc_reduce_min_datablock, 0, (x < s ? x : s))
    // asc_pair_reduce_sum: lanes 2 i and 2 i + 1 added into lane i; the upper half becomes zero.
    template <class T>
    ASC_API void asc_pair_reduce_sum(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<T> r{};
  for (int i = 0; i < ascsim::vreg<T>::N / 2; i++)
    r.v[i] = T((ascsim::act<T>(m, 2 * i) ? a.v[2 * i] : T(0)) + (ascsim::act<T>(m, 2 * i + 1) ? a.v[2 * i + 1] : T(0)));
  d = r;
}
// asc_squeeze: active lanes moved together at the bottom, zeros above. asc_unsqueeze: in each lane, how many active
// lanes lie below it.
template <class T>
ASC_API void asc_squeeze(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<T> r{};
  int k = 0;
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i)) r.v[k++] = a.v[i];
  d = r;
}
template <class T>
ASC_API void asc_unsqueeze(ascsim::vreg<T>& d, const vector_bool& m) {
  T k{};
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) {
    r.v[i] = k;
    if (ascsim::act<T>(m, i)) k = T(k + 1);
  }
  d = r;
}
// asc_intlv: lanes of a and b in turn, the lower halves to d0, the upper to d1. asc_deintlv: the even lanes of a and b
// behind it to d0, the odd ones to d1.
template <class T>
ASC_API void asc_intlv(ascsim::vreg<T>& d0, ascsim::vreg<T>& d1, ascsim::vreg<T> a, ascsim::vreg<T> b) {
  constexpr int N = ascsim::vreg<T>::N;
  ascsim::vreg<T> x, y;
  for (int i = 0; i < N / 2; i++) {
    x.v[2 * i] = a.v[i];
    x.v[2 * i + 1] = b.v[i];
    y.v[2 * i] = a.v[N / 2 + i];
    y.v[2 * i + 1] = b.v[N / 2 + i];
  }
  d0 = x;
  d1 = y;
}
template <class T>
ASC_API void asc_deintlv(ascsim::vreg<T>& d0, ascsim::vreg<T>& d1, ascsim::vreg<T> a, ascsim::vreg<T> b) {
  constexpr int N = ascsim::vreg<T>::N;
  ascsim::vreg<T> x, y;
  auto at = [&](int i) { return i < N ? a.v[i] : b.v[i - N]; };
  for (int i = 0; i < N; i++) {
    x.v[i] = at(2 * i);
    y.v[i] = at(2 * i + 1);
  }
  d0 = x;
  d1 = y;
}
// asc_pack_to_low, asc_pack_to_high: the lower half of each lane, packed into the lower or upper half of the register,
// zeros elsewhere. asc_unpack_lower, asc_unpack_upper: lanes of the lower or upper half, widened.
template <class D, class S>
ASC_API void asc_pack_to_low(ascsim::vreg<D>& d, const ascsim::vreg<S>& a) {
  static_assert(sizeof(S) == 2 * sizeof(D));
  ascsim::vreg<D> r{};
  for (int i = 0; i < ascsim::vreg<S>::N; i++) std::memcpy(&r.v[i], &a.v[i], sizeof(D));
  d = r;
}
template <class D, class S>
ASC_API void asc_pack_to_high(ascsim::vreg<D>& d, const ascsim::vreg<S>& a) {
  static_assert(sizeof(S) == 2 * sizeof(D));
  ascsim::vreg<D> r{};
  for (int i = 0; i < ascsim::vreg<S>::N; i++) std::memcpy(&r.v[ascsim::vreg<S>::N + i], &a.v[i], sizeof(D));
  d = r;
}
template <class D, class S>
ASC_API void asc_unpack_lower(ascsim::vreg<D>& d, const ascsim::vreg<S>& a) {
  for (int i = 0; i < ascsim::vreg<D>::N; i++) d.v[i] = D(a.v[i]);
}
template <class D, class S>
ASC_API void asc_unpack_upper(ascsim::vreg<D>& d, const ascsim::vreg<S>& a) {
  for (int i = 0; i < ascsim::vreg<D>::N; i++) d.v[i] = D(a.v[ascsim::vreg<D>::N + i]);
}
