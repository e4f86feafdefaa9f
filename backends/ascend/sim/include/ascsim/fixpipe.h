// Copies out of L0C, pipe FIX, with conversion.
#pragma once
#include "memory.h"

enum class asc_dual_dst_mode : int {};
enum class asc_unit_flag_mode : int {};
enum class asc_quant_mode : int {};
enum class asc_relu_pre_mode : int {};
namespace ascsim {
template <class E>
struct Mode {  // an enumeration or its number
  int value;
  constexpr Mode(int v) : value(v) {}
  constexpr Mode(E v) : value(int(v)) {}
};
}  // namespace ascsim

// L0C to global memory, N columns and M rows. dst_pitch: elements from row to row of the destination (the model refuses
// fewer than N, where rows would overlap); src_pitch: rows of the tile in L0C (16-element units from one n-block to the
// next). quant: 0 keeps the type, 1 to half, 16 to bfloat16, and must agree with the destination's type. relu 1:
// negative values become 0. unit_flag 2 or 3: waits for the products of the same flag mode issued before. Only nz2nd
// (row-major output) is modelled. N <= 4095.
template <class D, class S>
ASC_API void asc_copy_l0c2gm(D* dst, S* src, uint32_t N, uint32_t M, uint32_t dst_pitch, uint32_t src_pitch,
                             ascsim::Hint, ascsim::Mode<asc_unit_flag_mode> unit_flag,
                             ascsim::Mode<asc_quant_mode> quant, ascsim::Mode<asc_relu_pre_mode> relu,
                             bool channel_split, bool nz2nd, bool nz2dn, bool /*clip*/) {
  ascsim::fixpipe({(void*)dst, ascsim::type_of<D>(), (const void*)src, ascsim::type_of<S>(), N, M, dst_pitch, src_pitch,
                   0, 0, unit_flag.value, quant.value, relu.value, channel_split, nz2nd, nz2dn, false});
}
// L0C to the UB of a vector core of the block: of AIV `sub_block`, or of both. dual 1: the upper half of the rows to
// AIV0 and the lower half to AIV1, at the same address; dual 2: halves of the columns (N a multiple of 32). No
// conversion with dual. Row pitch of the destination a multiple of 32 bytes.
template <class D, class S>
ASC_API void asc_copy_l0c2ub(D* dst, S* src, uint32_t N, uint32_t M, uint32_t dst_pitch, uint32_t src_pitch,
                             int sub_block, ascsim::Mode<asc_dual_dst_mode> dual,
                             ascsim::Mode<asc_unit_flag_mode> unit_flag, ascsim::Mode<asc_quant_mode> quant,
                             ascsim::Mode<asc_relu_pre_mode> relu, bool channel_split, bool nz2nd, bool nz2dn,
                             bool /*clip*/) {
  ascsim::fixpipe({(void*)dst, ascsim::type_of<D>(), (const void*)src, ascsim::type_of<S>(), N, M, dst_pitch, src_pitch,
                   sub_block, dual.value, unit_flag.value, quant.value, relu.value, channel_split, nz2nd, nz2dn, true});
}
// Registers of the next row-major copies out of L0C: matrices, and the strides from one to the next. One matrix only.
ASC_API void asc_set_l0c_copy_nz_para(uint32_t num, uint32_t src_stride, uint32_t dst_stride) {
  ascsim::set_fixpipe_matrices(num, src_stride, dst_stride);
}
