// Scalar types of the device language: bfloat16, half, the 8-bit and 4-bit floats, and the small vectors SIMT code
// uses.
//
// Conversions from float round to nearest, ties to even. The 8-bit floats saturate to their largest finite value.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__SANITIZE_THREAD__)
// Device text is compiled with the compiler's access hooks; the interface itself needs none (runtime/access.cpp).
#define ASC_PLAIN __attribute__((no_sanitize("thread")))
#else
#define ASC_PLAIN
#endif
#define ASC_API ASC_PLAIN inline

namespace ascsim {

// Value of a float with `exponent` and `mantissa` bits. With `infinities` the top exponent holds inf and NaN as IEEE
// 754 has it; without, only the all-ones pattern is NaN.
ASC_API float decode_small(unsigned bits, int exponent, int mantissa, bool infinities) {
  const int sign = bits >> (exponent + mantissa), e = (bits >> mantissa) & ((1 << exponent) - 1);
  const int m = bits & ((1 << mantissa) - 1), bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
  float value;
  if (infinities && e == top) value = m ? NAN : INFINITY;
  else if (!infinities && e == top && m == (1 << mantissa) - 1) value = NAN;
  else if (e) value = std::ldexp(1.f + float(m) / float(1 << mantissa), e - bias);
  else value = std::ldexp(float(m) / float(1 << mantissa), 1 - bias);
  return sign ? -value : value;
}

// Round to nearest even; what exceeds the range becomes the largest finite value.
ASC_API unsigned encode_small(float value, int exponent, int mantissa, bool infinities) {
  const unsigned sign = std::signbit(value) ? 1u << (exponent + mantissa) : 0;
  if (std::isnan(value)) return sign | ((1u << (exponent + mantissa)) - 1);
  const int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1 - (infinities ? 1 : 0);
  const unsigned ones = (1u << mantissa) - 1, largest = (unsigned(top) << mantissa) | (infinities ? ones : ones - 1);
  const double size = std::fabs(double(value));
  if (size == 0) return sign;
  if (std::isinf(value)) return sign | largest;
  int e;
  std::frexp(size, &e);
  e -= 1;
  if (e < 1 - bias) e = 1 - bias;
  double steps = std::nearbyint(size / std::ldexp(1.0, e - mantissa));
  if (steps >= std::ldexp(1.0, mantissa + 1)) {
    steps /= 2;
    e++;
  }
  const unsigned field = steps >= std::ldexp(1.0, mantissa) ? unsigned(e + bias) : 0;
  if (int(field) > top) return sign | largest;
  const unsigned bits = (field << mantissa) | (unsigned(steps) & ones);
  return sign | (bits > largest ? largest : bits);
}

}  // namespace ascsim

struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  ASC_PLAIN bfloat16_t(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? uint16_t((u >> 16) | 0x40) : uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  }
  ASC_PLAIN operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};
using half = _Float16;

struct float8_e4m3_t {
  uint8_t bits;
  float8_e4m3_t() = default;
  ASC_PLAIN float8_e4m3_t(float value) : bits(uint8_t(ascsim::encode_small(value, 4, 3, false))) {}
  ASC_PLAIN operator float() const { return ascsim::decode_small(bits, 4, 3, false); }
};
struct float8_e5m2_t {
  uint8_t bits;
  float8_e5m2_t() = default;
  ASC_PLAIN float8_e5m2_t(float value) : bits(uint8_t(ascsim::encode_small(value, 5, 2, true))) {}
  ASC_PLAIN operator float() const { return ascsim::decode_small(bits, 5, 2, true); }
};
struct float8_e8m0_t {  // a power of two: 2^(bits - 127)
  uint8_t bits;
  ASC_PLAIN operator float() const { return std::ldexp(1.f, int(bits) - 127); }
};
using fp8_e8m0_t = float8_e8m0_t;
using fp8_e4m3fn_t = float8_e4m3_t;
struct float4_e2m1x2_t {  // two 4-bit floats, the even element in the low nibble
  uint8_t bits;
};
struct float4_e1m2x2_t {
  uint8_t bits;
};
struct int4b_t {
  uint8_t v;
};

namespace ascsim {

// What the runtime, which is compiled apart from the kernel, is told of an element type.
enum class Type : int { f32, f16, bf16, e4m3, e5m2, e8m0, e2m1x2, e1m2x2, i8, u8, i16, u16, i32, u32, i64, u64, other };

template <class T>
constexpr Type type_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return Type::f32;
  else if constexpr (std::is_same_v<U, half>) return Type::f16;
  else if constexpr (std::is_same_v<U, bfloat16_t>) return Type::bf16;
  else if constexpr (std::is_same_v<U, float8_e4m3_t>) return Type::e4m3;
  else if constexpr (std::is_same_v<U, float8_e5m2_t>) return Type::e5m2;
  else if constexpr (std::is_same_v<U, float8_e8m0_t>) return Type::e8m0;
  else if constexpr (std::is_same_v<U, float4_e2m1x2_t>) return Type::e2m1x2;
  else if constexpr (std::is_same_v<U, float4_e1m2x2_t>) return Type::e1m2x2;
  else if constexpr (std::is_integral_v<U>) {
    constexpr bool s = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return s ? Type::i8 : Type::u8;
    else if constexpr (sizeof(U) == 2) return s ? Type::i16 : Type::u16;
    else if constexpr (sizeof(U) == 4) return s ? Type::i32 : Type::u32;
    else return s ? Type::i64 : Type::u64;
  } else return Type::other;
}

}  // namespace ascsim

// ---- small vectors of SIMT code: NAME1, NAME2, NAME4, aligned to their size ----
#define ASCSIM_VECTOR(NAME, T)                                \
  struct alignas(sizeof(T)) NAME##1 { T x; };                 \
  struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };          \
  struct alignas(4 * sizeof(T)) NAME##4 { T x, y, z, w; };    \
  ASC_API NAME##2 make_##NAME##2(T a, T b) { return {a, b}; } \
  ASC_API NAME##4 make_##NAME##4(T a, T b, T c, T d) { return {a, b, c, d}; }
ASCSIM_VECTOR(float, float)
ASCSIM_VECTOR(int, int32_t)
ASCSIM_VECTOR(uint, uint32_t)
ASCSIM_VECTOR(short, int16_t)
ASCSIM_VECTOR(ushort, uint16_t)
ASCSIM_VECTOR(char, int8_t)
ASCSIM_VECTOR(uchar, uint8_t)
ASCSIM_VECTOR(longlong, int64_t)
ASCSIM_VECTOR(ulonglong, uint64_t)
#define ASCSIM_VECTOR_OP(V, op)                                                                               \
  ASC_API V##2 operator op(V##2 a, V##2 b) { return {decltype(a.x)(a.x op b.x), decltype(a.x)(a.y op b.y)}; } \
  ASC_API V##4 operator op(V##4 a, V##4 b) {                                                                  \
    return {decltype(a.x)(a.x op b.x), decltype(a.x)(a.y op b.y), decltype(a.x)(a.z op b.z),                  \
            decltype(a.x)(a.w op b.w)};                                                                       \
  }
ASCSIM_VECTOR_OP(float, +)
ASCSIM_VECTOR_OP(float, -)
ASCSIM_VECTOR_OP(float, *)
ASCSIM_VECTOR_OP(float, /)
ASCSIM_VECTOR_OP(int, +)
ASCSIM_VECTOR_OP(int, -)
ASCSIM_VECTOR_OP(int, *)
#undef ASCSIM_VECTOR
#undef ASCSIM_VECTOR_OP

struct alignas(4) half2 {
  half x, y;
};
struct alignas(4) bfloat16x2_t {
  bfloat16_t x, y;
};
struct float8_e4m3x2_t {
  float8_e4m3_t x, y;
};
struct float8_e5m2x2_t {
  float8_e5m2_t x, y;
};
// Pairwise conversions; `_rn` rounds to nearest even.
ASC_API float2 __bfloat1622float2(bfloat16x2_t v) { return {float(v.x), float(v.y)}; }
ASC_API bfloat16x2_t __float22bfloat162_rn(float2 v) { return {bfloat16_t(v.x), bfloat16_t(v.y)}; }
ASC_API float2 __half22float2(half2 v) { return {float(v.x), float(v.y)}; }
ASC_API half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
ASC_API float2 __e4m3x22float2(float8_e4m3x2_t v) { return {float(v.x), float(v.y)}; }
ASC_API float2 __e5m2x22float2(float8_e5m2x2_t v) { return {float(v.x), float(v.y)}; }

using __asc_fp8x2_storage_t = uint16_t;
enum { __ASC_SATFINITE = 1, __ASC_E4M3 = 0, __ASC_E5M2 = 1 };
// Two floats to two 8-bit floats in 16 bits, x in the low byte; saturating.
ASC_API __asc_fp8x2_storage_t __asc_cvt_float2_to_fp8x2(float2 v, int, int kind) {
  const bool e4m3 = kind == __ASC_E4M3;
  const unsigned x = ascsim::encode_small(v.x, e4m3 ? 4 : 5, e4m3 ? 3 : 2, !e4m3);
  const unsigned y = ascsim::encode_small(v.y, e4m3 ? 4 : 5, e4m3 ? 3 : 2, !e4m3);
  return uint16_t(x | (y << 8));
}
