// Elements by type code: size, value as float, and combination for atomic stores.
#pragma once
#include "machine.h"

namespace ascsim {

inline size_t size_of(Type t) {
  switch (t) {
    case Type::f32:
    case Type::i32:
    case Type::u32:
      return 4;
    case Type::f16:
    case Type::bf16:
    case Type::i16:
    case Type::u16:
      return 2;
    case Type::i64:
    case Type::u64:
      return 8;
    default:
      return 1;
  }
}

// Elements in a 32-byte column group.
inline uint32_t group_of(Type t) { return t == Type::e2m1x2 || t == Type::e1m2x2 ? 64 : uint32_t(32 / size_of(t)); }

template <class T>
inline T at(const void* p, size_t i) {
  T v;
  std::memcpy(&v, (const uint8_t*)p + i * sizeof(T), sizeof(T));
  return v;
}

inline float load(const void* p, size_t i, Type t) {
  static const float e2m1[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6}, e1m2[8] = {0, .25f, .5f, .75f, 1, 1.25f, 1.5f, 1.75f};
  switch (t) {
    case Type::f32:
      return at<float>(p, i);
    case Type::f16:
      return float(at<half>(p, i));
    case Type::bf16:
      return float(at<bfloat16_t>(p, i));
    case Type::e4m3:
      return float(at<float8_e4m3_t>(p, i));
    case Type::e5m2:
      return float(at<float8_e5m2_t>(p, i));
    case Type::i8:
      return float(at<int8_t>(p, i));
    case Type::i32:
      return float(at<int32_t>(p, i));
    case Type::e2m1x2:
    case Type::e1m2x2: {
      const int v = (at<uint8_t>(p, i / 2) >> (i % 2 * 4)) & 15;
      const float size = t == Type::e2m1x2 ? e2m1[v & 7] : e1m2[v & 7];
      return v & 8 ? -size : size;
    }
    default:
      fail("element type %d is not modelled here", int(t));
  }
}

template <class T>
inline void combine_as(uint8_t* to, const uint8_t* from, size_t bytes, int mode) {
  for (size_t i = 0; i < bytes / sizeof(T); i++) {
    const T old = at<T>(to, i), value = at<T>(from, i);
    T r;
    if (mode == 1) r = T(old + value);
    else if (mode == 2) r = value > old ? value : old;
    else r = value < old ? value : old;
    std::memcpy(to + i * sizeof(T), &r, sizeof(T));
  }
}
inline void combine(uint8_t* to, const uint8_t* from, size_t bytes, int mode, Type t) {
  switch (t) {
    case Type::f32:
      return combine_as<float>(to, from, bytes, mode);
    case Type::f16:
      return combine_as<half>(to, from, bytes, mode);
    case Type::bf16:
      return combine_as<bfloat16_t>(to, from, bytes, mode);
    case Type::i32:
      return combine_as<int32_t>(to, from, bytes, mode);
    case Type::i16:
      return combine_as<int16_t>(to, from, bytes, mode);
    case Type::i8:
      return combine_as<int8_t>(to, from, bytes, mode);
    default:
      fail("atomic stores of element type %d are not modelled", int(t));
  }
}

void store_gm(uint8_t* to, const uint8_t* from, size_t bytes, int mode, Type type);

}  // namespace ascsim
