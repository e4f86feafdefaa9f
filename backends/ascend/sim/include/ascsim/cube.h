// The matrix unit, pipe M: C[M, N] (+)= A[M, K] B[N, K]^T.
//
// L0A holds A in column groups of 32 bytes, outer, with 16-row blocks inner: row-major 16 x 32-byte fractals, ceil(M /
// 16) to a group. L0B holds B the same way over n. L0C holds C in fractals of 16 x 16, n-blocks outer, ceil(M / 16) to
// a block.
#pragma once
#include "memory.h"

// M, K, N <= 4095; any of them 0 does nothing. `zero` starts from zero, `bias` from the bias table, else C is added to.
// `unit_flag` 2 or 3 makes the copy out of L0C wait for this product by itself (see fixpipe.h). Without `no_gemv` the
// matrix-vector form is on: M is 1; it changes no result. Products and sums are float32 here, k ascending; the
// hardware's order of accumulation is not published.
template <class C, class A, class B>
ASC_API void asc_mmad(C* c, A* a, B* b, uint32_t M, uint32_t K, uint32_t N, int unit_flag, bool no_gemv, bool bias,
                      bool zero) {
  ascsim::mmad(false, c, ascsim::type_of<C>(), (const void*)a, ascsim::type_of<A>(), (const void*)b,
               ascsim::type_of<B>(), M, K, N, uint32_t(unit_flag), !no_gemv, bias, zero);
}
// The same on operands times their block scales (asc_copy_l12l0a_mx), one E8M0 scale for 32 elements of k.
template <class C, class A, class B>
ASC_API void asc_mmad_mx(C* c, A* a, B* b, uint32_t M, uint32_t K, uint32_t N, int unit_flag, bool no_gemv,
                         bool bias, bool zero) {
  ascsim::mmad(true, c, ascsim::type_of<C>(), (const void*)a, ascsim::type_of<A>(), (const void*)b,
               ascsim::type_of<B>(), M, K, N, uint32_t(unit_flag), !no_gemv, bias, zero);
}
// L1 to the bias table (4 KiB), pipe MTE1: `bursts` runs of `len` 64-byte lines; gaps in lines, tail to head. The table
// is addressed by its byte offset and holds float32; float32 and half sources.
template <class S>
ASC_API void asc_copy_l12bt(uint64_t dst, S* src, bool /*convert*/, uint16_t bursts, uint16_t len, uint16_t src_gap,
                            uint16_t dst_gap) {
  ascsim::copy_l12bt(dst, (const void*)src, ascsim::type_of<S>(), bursts, len, src_gap, dst_gap);
}
// Which of m and n the unit walks first; changes no result.
ASC_API void asc_set_mmad_direction_m() {}
ASC_API void asc_set_mmad_direction_n() {}
// Rounding of float32 operands to HF32 is not modelled: switching it on ends the run.
ASC_API void asc_enable_hf32() { ascsim::fail("asc_enable_hf32: HF32 rounding is not modelled"); }
ASC_API void asc_disable_hf32() {}
