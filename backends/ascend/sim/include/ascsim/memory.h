// Address spaces. On the device a pointer carries its memory in its type:
//
//   __gm__    global memory, byte aligned                __cbuf__  L1, 512 KiB, 32-byte aligned
//   __ubuf__  unified buffer of a vector core, 32-byte   __ca__    L0A, 64 KiB, 512-byte aligned
//             aligned: 248 KiB, or 216 KiB in a kernel   __cb__    L0B, 64 KiB, 512-byte aligned
//             with SIMT functions (their data cache)     __cc__    L0C, 256 KiB, 64-byte aligned
//
// On-chip buffers have no allocator: a buffer is an address, `(__ubuf__ float*)0x1000`. The launcher rewrites such
// casts into `ascsim::Cast<Space, T>{} ->* address`, which turns an integer into a pointer into this core's memory and
// leaves pointers alone. `->*` binds as a cast does for all that can follow one.
#pragma once
#include "runtime.h"

#define __NPU_ARCH__ 3510
#define __aicore__
#define __global__
#define __gm__
#define __ubuf__
#define __cbuf__
#define __cc__
#define __ca__
#define __cb__

namespace ascsim {

template <Space S, class T>
ASC_API T* on_chip(uint64_t offset) {
  auto* base = static_cast<uint8_t*>(space_base(S));
  // Without such a memory the address stays an invalid one: naming it is no fault, using it is.
  return reinterpret_cast<T*>(base ? base + offset : reinterpret_cast<uint8_t*>(uintptr_t(offset)));
}

template <Space S, class T>
struct Cast {
  template <class V>
  ASC_PLAIN friend T* operator->*(Cast, V value) {
    if constexpr (std::is_pointer_v<V>) return (T*)value;
    else return on_chip<S, T>(uint64_t(value));
  }
};
template <Space S, class T>
struct CastDeref {
  template <class V>
  ASC_PLAIN friend T& operator->*(CastDeref, V value) {
    return *(Cast<S, T>{}->*value);
  }
};
template <Space S, class T>
ASC_API CastDeref<S, T> operator*(Cast<S, T>) {
  return {};
}
template <Space S, class T, Space S2, class T2>
ASC_API Cast<S, T> operator->*(Cast<S, T>, Cast<S2, T2>) {
  return {};
}
template <Space S, class T, class V>
ASC_API T* cast(V value) {
  return Cast<S, T>{}->*value;
}

// Mutated values of the fault injection.
template <class T>
ASC_API auto mutant(int site, T value) {
  if constexpr (std::is_class_v<T> && std::is_convertible_v<T, int64_t>) {  // block_idx
    return mutant(site, int64_t(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return site_on[site] ? !value : value;
  } else {
    return site_on[site] ? T(value + site_delta) : value;
  }
}
ASC_API bool keep(int site) { return !site_on[site]; }
template <class A, class B>
ASC_API auto unclamped(int site, A a, B b) {
  using C = std::common_type_t<A, B>;
  const C x = C(a), y = C(b);
  return site_on[site] ? x : (x < y ? x : y);
}

}  // namespace ascsim
