// The kernel's side of a launch.
//
//   extern "C" __global__ __vector__ void add(__gm__ float* x, int32_t n) { ... }     one AIV per block
//                         __cube__                                                    one AIC per block
//                         __mix__(1, 2)                                               one AIC and AIV0, AIV1 per block
//
// The same program runs on each core of a block; ASC_IS_AIC and ASC_IS_AIV tell which it is. The launcher adds the
// entry that turns the caller's arguments into the kernel's.
#pragma once
#include "runtime.h"
#include "simt.h"

#define __vector__
#define __cube__
#define __mix__(cube, vector)
#define ASC_IS_AIC (ascsim::core_kind() == 0)
#define ASC_IS_AIV (ascsim::core_kind() != 0)
#define blockIdx (cce::dim3(unsigned(ascsim::core_block()), 0u, 0u))

// Of device code: ends the run with the condition, instead of the host process.
#include <cassert>
#undef assert
#define assert(condition) ((condition) ? (void)0 : ascsim::device_assert(#condition))

namespace AscendC {}
namespace ascsim {
// A variable, not a macro: lowered functions have parameters of that name.
struct block_number {
  ASC_API operator int32_t() const { return int32_t(core_block()); }
};
template <class T>
ASC_API T argument(void* bits) {
  if constexpr (std::is_pointer_v<T>) return (T)bits;
  else {
    static_assert(sizeof(T) <= sizeof(bits));
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
}
}  // namespace ascsim
inline constexpr ascsim::block_number block_idx{};
