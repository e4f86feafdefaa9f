// SIMT functions: scalar code that up to 2048 threads run on a vector core, in warps of 32, on pipe V.
//
//   __simt_vf__ __launch_bounds__(256) inline void add(__ubuf__ float* a) { a[threadIdx.x] += 1.f; }
//   ... asc_vf_call<add>(cce::dim3(256), a);
//
// Threads see UB and global memory directly. Between two asc_syncthreads, threads that touch one byte, one of them
// changing it, race, and the model says so (runtime/access.cpp). Default launch bound: 1024 threads.
#pragma once
#include <utility>

#include "memory.h"

#define __simt_vf__
#define __simt_callee__
#define __SIMT_DEVICE_FUNCTIONS_DECL__
#define __launch_bounds__(n)

namespace cce {
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
}  // namespace cce
using cce::dim3;

namespace ascsim {
template <auto F>
struct LaunchBound {  // the launcher specialises it for functions with __launch_bounds__
  static constexpr unsigned value = 1024;
};
template <auto F>
struct FunctionName {
  static constexpr const char* value = "function";
};
// Argument of an exchange with the width of its groups.
ASC_API int grouped(int argument, int width) {
  if (width < 1 || width > 32 || (width & (width - 1))) fail("width %d of an exchange; a power of 2 up to 32", width);
  return argument * 64 + width;
}
template <class T>
ASC_API T collective(Warp kind, T value, int argument = 0) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_collective(kind, bits, argument);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace ascsim
extern thread_local ascsim::Index3 threadIdx, blockDim;

// Runs F on every thread of `dims`, or, without `dims`, F as a SIMD function; on pipe V.
template <auto F, class... A>
ASC_API void asc_vf_call(cce::dim3 dims, A... args) {
  ascsim::push_simt(ascsim::FunctionName<F>::value, dims.x, dims.y, dims.z, ascsim::LaunchBound<F>::value,
                    [=]() ASC_PLAIN { F(args...); });
}
template <auto F, class A0, class... A>
  requires(!std::is_convertible_v<A0, cce::dim3>)
ASC_API void asc_vf_call(A0 first, A... args) {
  ascsim::push_simd(ascsim::FunctionName<F>::value, [=]() ASC_PLAIN { F(first, args...); });
}

// Every thread of the launch waits for all others; what they wrote before is seen after.
ASC_API void asc_syncthreads() { ascsim::thread_barrier(); }

// Exchanges within a warp, in groups of `width` threads (a power of 2 up to 32): the value of the thread whose number
// is this one's xor `mask` (asc_shfl_xor), `by` above it (asc_shfl_down), `by` below it (asc_shfl_up), or `lane` of the
// group (asc_shfl). All 32 threads take part; a source outside the group gives back the own value. They order no
// memory.
template <class T>
ASC_API T asc_shfl_xor(T v, int mask, int width = 32) {
  return ascsim::collective(ascsim::Warp::shfl_xor, v, ascsim::grouped(mask, width));
}
template <class T>
ASC_API T asc_shfl_down(T v, int by, int width = 32) {
  return ascsim::collective(ascsim::Warp::shfl_down, v, ascsim::grouped(by, width));
}
template <class T>
ASC_API T asc_shfl_up(T v, int by, int width = 32) {
  return ascsim::collective(ascsim::Warp::shfl_up, v, ascsim::grouped(by, width));
}
template <class T>
ASC_API T asc_shfl(T v, int lane, int width = 32) {
  return ascsim::collective(ascsim::Warp::shfl, v, ascsim::grouped(lane, width));
}
// asc_ballot, bit i: whether thread i of the warp has a non-zero value.
ASC_API uint32_t asc_ballot(int predicate) {
  return uint32_t(ascsim::collective<int>(ascsim::Warp::ballot, predicate != 0));
}
// asc_reduce_add, _max, _min: sum, largest, smallest over the warp, the same for every thread. Float sums go in order
// of the thread here.
ASC_API float asc_reduce_add(float v) { return ascsim::collective(ascsim::Warp::add_f, v); }
ASC_API int32_t asc_reduce_add(int32_t v) { return ascsim::collective(ascsim::Warp::add_i, v); }
ASC_API uint32_t asc_reduce_add(uint32_t v) { return ascsim::collective(ascsim::Warp::add_i, v); }
ASC_API float asc_reduce_max(float v) { return ascsim::collective(ascsim::Warp::max_f, v); }
ASC_API int32_t asc_reduce_max(int32_t v) { return ascsim::collective(ascsim::Warp::max_i, v); }
ASC_API uint32_t asc_reduce_max(uint32_t v) { return ascsim::collective(ascsim::Warp::max_u, v); }
ASC_API float asc_reduce_min(float v) { return ascsim::collective(ascsim::Warp::min_f, v); }
ASC_API int32_t asc_reduce_min(int32_t v) { return ascsim::collective(ascsim::Warp::min_i, v); }
ASC_API uint32_t asc_reduce_min(uint32_t v) { return ascsim::collective(ascsim::Warp::min_u, v); }

// Atomic updates of UB or global memory; each returns the value before it: add, subtract, the larger, the smaller, put
// `v` there (asc_atomic_exch), put `value` there if `expected` is (asc_atomic_cas).
template <class T, class U>
ASC_API T asc_atomic_add(T* p, U v) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_add");
  const T old = *p;
  *p = T(old + T(v));
  return old;
}
template <class T, class U>
ASC_API T asc_atomic_sub(T* p, U v) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_sub");
  const T old = *p;
  *p = T(old - T(v));
  return old;
}
template <class T, class U>
ASC_API T asc_atomic_max(T* p, U v) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_max");
  const T old = *p;
  if (T(v) > old) *p = T(v);
  return old;
}
template <class T, class U>
ASC_API T asc_atomic_min(T* p, U v) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_min");
  const T old = *p;
  if (T(v) < old) *p = T(v);
  return old;
}
template <class T, class U>
ASC_API T asc_atomic_exch(T* p, U v) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_exch");
  const T old = *p;
  *p = T(v);
  return old;
}
template <class T>
ASC_API T asc_atomic_cas(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  ascsim::atomic_access(p, sizeof(T), "asc_atomic_cas");
  const T old = *p;
  if (old == expected) *p = value;
  return old;
}

// Larger and smaller of two numbers of any types, as their common type.
template <class T, class U>
ASC_API constexpr auto max(T a, U b) {
  using C = std::common_type_t<T, U>;
  return C(a) > C(b) ? C(a) : C(b);
}
template <class T, class U>
ASC_API constexpr auto min(T a, U b) {
  using C = std::common_type_t<T, U>;
  return C(a) < C(b) ? C(a) : C(b);
}
ASC_API float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
