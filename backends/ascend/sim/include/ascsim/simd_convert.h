// Conversions, wide products, carries, histograms.
#pragma once
#include "simd_registers.h"

namespace ascsim {
template <class R>
ASC_API double round_as(double x, R) {
  constexpr int r = R::value;
  return r == 160   ? std::nearbyint(x)
         : r == 161 ? std::round(x)
         : r == 162 ? std::floor(x)
         : r == 163 ? std::ceil(x)
         : r == 164 ? std::trunc(x)
                    : std::nearbyint(x);
}
template <class D, class S, class R>
ASC_API D convert_one(S s, R r) {
  if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
    double x = round_as(double(float(s)), r), lo = double(std::numeric_limits<D>::min()),
           hi = double(std::numeric_limits<D>::max());
    return x != x ? D(0) : x < lo ? std::numeric_limits<D>::min() : x > hi ? std::numeric_limits<D>::max() : D(x);
  } else if constexpr (std::is_integral_v<D>) return D(s);
  else return D(float(s));
}
template <class... C>
constexpr int control(int lo, int hi, int dflt) {
  int r = dflt;
  ((C::value >= lo&& C::value <= hi ? r = C::value : 0), ...);
  return r;
}

ASC_API void count_values(vector_u16& d, vector_u8 s, const vmask& m, int base, bool cum) {
  for (int i = 0; i < 256; i++)
    if (m.b[i])
      for (int k = 0; k < 128; k++)
        if (cum ? s.v[i] <= base + k : s.v[i] == base + k) d.v[k]++;
}
}  // namespace ascsim

// vmula: d + a * b, and vmadd: d * a + b, with one rounding; lanes whose mask is off become zero or, merging, stay.
template <class T, class M>
ASC_API void vmula(ascsim::vreg<T>& d, ascsim::vreg<T> a, ascsim::vreg<T> b, const vector_bool& m, M) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    d.v[i] = ascsim::act<T>(m, i) ? T(std::fma(float(a.v[i]), float(b.v[i]), float(d.v[i])))
                                  : (M::value == 111 ? d.v[i] : T(0));
}
template <class T, class M>
ASC_API void vmadd(ascsim::vreg<T>& d, ascsim::vreg<T> a, ascsim::vreg<T> b, const vector_bool& m, M) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    d.v[i] = ascsim::act<T>(m, i) ? T(std::fma(float(d.v[i]), float(a.v[i]), float(b.v[i])))
                                  : (M::value == 111 ? d.v[i] : T(0));
}
// vcvt: conversion. To a narrower type the results go to one of every two lanes (PART_EVEN, PART_ODD) or four (PART_P0
// to P3); to a wider one they come from there. Integers saturate, NaN becomes 0.
template <class D, class S, class... C>
ASC_API void vcvt(ascsim::vreg<D>& d, ascsim::vreg<S> s, const vector_bool& m, C...) {
  constexpr int part = ascsim::control<C...>(180, 193, 180);
  constexpr ascsim::tagc<ascsim::control<C...>(160, 166, 160)> R{};
  ascsim::vreg<D> r;
  std::memset((void*)&r, 0, 256);
  constexpr int p = part >= 190 ? part - 190 : part - 180;
  if constexpr (sizeof(D) == sizeof(S)) {
    for (int i = 0; i < ascsim::vreg<D>::N; i++)
      if (ascsim::act<S>(m, i)) r.v[i] = ascsim::convert_one<D>(s.v[i], R);
  } else if constexpr (sizeof(D) < sizeof(S)) {
    constexpr int q = sizeof(S) / sizeof(D);
    for (int i = 0; i < ascsim::vreg<S>::N; i++)
      if (ascsim::act<S>(m, i)) r.v[q * i + p] = ascsim::convert_one<D>(s.v[i], R);
  } else {
    constexpr int q = sizeof(D) / sizeof(S);
    for (int i = 0; i < ascsim::vreg<D>::N; i++)
      if (ascsim::act<S>(m, q * i + p)) r.v[i] = ascsim::convert_one<D>(s.v[q * i + p], R);
  }
  d = r;
}
// asc_mull: products of 32-bit lanes as low and high halves. asc_add and asc_sub with a mask as their second result,
// asc_addc and asc_subc with one in as well: sums and differences with carries.
template <class T>
ASC_API void asc_mull(ascsim::vreg<T>& lo, ascsim::vreg<T>& hi, ascsim::vreg<T> a, ascsim::vreg<T> b,
                      const vector_bool& m) {
  for (int i = 0; i < ascsim::vreg<T>::N; i++) {
    auto x = int64_t(a.v[i]) * int64_t(b.v[i]);
    if constexpr (std::is_unsigned_v<T>) {
      uint64_t u = uint64_t(a.v[i]) * b.v[i];
      lo.v[i] = ascsim::act<T>(m, i) ? T(u) : 0;
      hi.v[i] = ascsim::act<T>(m, i) ? T(u >> 32) : 0;
    } else {
      lo.v[i] = ascsim::act<T>(m, i) ? T(x) : 0;
      hi.v[i] = ascsim::act<T>(m, i) ? T(x >> 32) : 0;
    }
  }
}
ASC_API void asc_add(vector_bool& c, vector_u32& d, vector_u32 a, vector_u32 b, const vector_bool& m) {
  vector_bool r{};
  for (int i = 0; i < 64; i++) {
    uint64_t s = uint64_t(a.v[i]) + b.v[i];
    bool on = ascsim::act<uint32_t>(m, i);
    r.b[4 * i] = on && s >> 32;
    d.v[i] = on ? uint32_t(s) : 0;
  }
  c = r;
}
ASC_API void asc_sub(vector_bool& c, vector_u32& d, vector_u32 a, vector_u32 b, const vector_bool& m) {
  vector_bool r{};
  for (int i = 0; i < 64; i++) {
    bool on = ascsim::act<uint32_t>(m, i);
    r.b[4 * i] = on && a.v[i] >= b.v[i];
    d.v[i] = on ? a.v[i] - b.v[i] : 0;
  }
  c = r;
}
ASC_API void asc_addc(vector_bool& c, vector_u32& d, vector_u32 a, vector_u32 b, vector_bool ci, const vector_bool& m) {
  vector_bool r{};
  for (int i = 0; i < 64; i++) {
    uint64_t s = uint64_t(a.v[i]) + b.v[i] + ci.b[4 * i];
    bool on = ascsim::act<uint32_t>(m, i);
    r.b[4 * i] = on && s >> 32;
    d.v[i] = on ? uint32_t(s) : 0;
  }
  c = r;
}
// a - b - carry_in: what its page says, in its formula, examples and code, although the mask that comes out, as that of
// asc_sub, is on where nothing was borrowed.
ASC_API void asc_subc(vector_bool& c, vector_u32& d, vector_u32 a, vector_u32 b, vector_bool ci, const vector_bool& m) {
  vector_bool r{};
  for (int i = 0; i < 64; i++) {
    uint64_t bb = uint64_t(b.v[i]) + ci.b[4 * i];
    bool on = ascsim::act<uint32_t>(m, i);
    r.b[4 * i] = on && a.v[i] >= bb;
    d.v[i] = on ? uint32_t(a.v[i] - bb) : 0;
  }
  c = r;
}

// asc_frequency_histogram_bin0 and _bin1: how many bytes have each value of 0 to 127, and of 128 to 255; the forms in
// `cumulative`: at most that value. Added to d.
ASC_API void asc_frequency_histogram_bin0(vector_u16& d, vector_u8 s, const vector_bool& m) {
  ascsim::count_values(d, s, m, 0, false);
}
ASC_API void asc_frequency_histogram_bin1(vector_u16& d, vector_u8 s, const vector_bool& m) {
  ascsim::count_values(d, s, m, 128, false);
}
ASC_API void asc_cumulative_histogram_bin0(vector_u16& d, vector_u8 s, const vector_bool& m) {
  ascsim::count_values(d, s, m, 0, true);
}
ASC_API void asc_cumulative_histogram_bin1(vector_u16& d, vector_u8 s, const vector_bool& m) {
  ascsim::count_values(d, s, m, 128, true);
}
