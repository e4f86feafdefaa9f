// Arithmetic on vector registers.
#pragma once
#include "simd_registers.h"

// Two registers, or a register and a scalar (`_scalar`), lane by lane; lanes whose mask is off become zero.
#define ASCSIM_BIN(NAME, EXPR)                                                                                      \
  template <class T>                                                                                                \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) { \
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
    // Shifts by lane.
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
// One register, lane by lane. Logarithm, exponential and square root are those of the host here.
#define ASCSIM_UN(NAME, EXPR)                                                             \
  template <class T>                                                                      \
  ASC_API void NAME(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) { \
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
// d = d * a + b and d = a * s + d, with one rounding.
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
// Comparisons: a mask of lanes; off where the mask is off.
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
    // a where the mask is on, else b.
    template <class T>
    ASC_API
    void asc_select(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<T>& b, const vector_bool& m) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) r.v[i] = ascsim::act<T>(m, i) ? a.v[i] : b.v[i];
  d = r;
}
// One value in every lane: a scalar, the lowest lane, the highest lane; and counting up or down from a scalar.
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
// Over all active lanes, the result in lane 0, the rest zero. Sums of float32 go as a binary tree of neighbours; the
// largest and smallest have the index of their first occurrence in lane 1.
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
// The same within each 32-byte block: block g to lane g.
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
    // Sums of neighbours, in the lower half.
    template <class T>
    ASC_API void asc_pair_reduce_sum(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const vector_bool& m) {
  ascsim::vreg<T> r{};
  for (int i = 0; i < ascsim::vreg<T>::N / 2; i++)
    r.v[i] = T((ascsim::act<T>(m, 2 * i) ? a.v[2 * i] : T(0)) + (ascsim::act<T>(m, 2 * i + 1) ? a.v[2 * i + 1] : T(0)));
  d = r;
}
// Active lanes moved together at the bottom; and, per lane, how many active lanes lie below it.
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
// Lanes of two registers in turn, and back.
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
// Lower half of each lane, packed into the lower or upper half of the register; and lanes widened from there.
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
