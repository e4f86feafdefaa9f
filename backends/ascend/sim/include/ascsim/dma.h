// Copies between memories. Sizes and strides are in the units named at each call; a size of zero copies nothing.
#pragma once
#include "memory.h"

enum class asc_load_l2_cache_mode : int {};
enum class asc_store_l2_cache_mode : int {};
struct asc_fill_value_config {
  uint64_t repeat, blk_num, dst_gap;
};
namespace ascsim {
// The bits of a number of at most 4 bytes.
template <class T>
ASC_API uint32_t bits32(T value) {
  static_assert(sizeof(T) <= 4);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
struct Hint {  // a cache hint, taken and ignored
  constexpr Hint(int) {}
  constexpr Hint(asc_load_l2_cache_mode) {}
  constexpr Hint(asc_store_l2_cache_mode) {}
};
}  // namespace ascsim

// Global memory to UB, pipe MTE2: `bursts` runs of `len` bytes whose heads lie src_stride and dst_stride bytes apart.
// lpad and rpad elements (at most 32 bytes each) are put before and after each burst: the value of asc_set_copy_pad_val
// if `constant`, else copies of its first element. bursts <= 4095, len <= 2097151, dst 32-byte aligned, dst_stride a
// multiple of 32 unless equal to len (compact), src aligned to its elements. Bytes between the end of a burst and the
// next 32-byte line are unspecified afterwards; the model poisons them.
template <class D, class S>
ASC_API void asc_copy_gm2ub_align(D* dst, S* src, uint32_t bursts, uint32_t len, uint32_t lpad, uint32_t rpad,
                                  bool constant, ascsim::Hint, uint64_t src_stride, uint64_t dst_stride) {
  ascsim::copy_gm2ub((void*)dst, (const void*)src, sizeof(D), bursts, len, lpad, rpad, constant, src_stride,
                     dst_stride);
}
// The value of constant padding, in the type of the elements; read when the copy is issued.
template <class T>
ASC_API void asc_set_copy_pad_val(T value) {
  ascsim::set_pad_value(ascsim::bits32(value));
}

// UB to global memory, pipe MTE3: the same, src 32-byte aligned, src_stride a multiple of 32 unless equal to len. With
// an atomic mode set, each element is combined with what is there.
template <class D, class S>
ASC_API void asc_copy_ub2gm_align(D* dst, S* src, uint32_t bursts, uint32_t len, ascsim::Hint, uint64_t dst_stride,
                                  uint64_t src_stride) {
  ascsim::copy_ub2gm((void*)dst, (const void*)src, sizeof(D), bursts, len, dst_stride, src_stride);
}

// UB to L1 of the block's cube core, pipe MTE3: `bursts` runs of `len` 32-byte lines; gaps in lines, tail to head.
ASC_API void asc_copy_ub2l1(void* dst, const void* src, uint32_t bursts, uint32_t len, uint32_t src_gap,
                            uint32_t dst_gap) {
  ascsim::copy_ub2l1(dst, src, bursts, len, src_gap, dst_gap);
}

// Registers of the next copies into the NZ format of L1: number of matrices, lines (32 B) from row to row, lines from
// one column group to the next (the rows of the L1 tile), lines from matrix to matrix. 0 matrices: nothing is copied.
ASC_API void asc_set_gm2l1_nz_para(uint32_t num, uint32_t n_stride, uint32_t c0_stride, uint32_t matrix_stride) {
  ascsim::set_nz_registers(num, n_stride, c0_stride, matrix_stride);
}
// Global memory to L1, row-major [N][D] to NZ, pipe MTE2. Rows lie row_bytes apart. Element (n, d) goes to line
// (d / C0) * c0_stride + n * n_stride, place d % C0, with C0 = 32 bytes / element size; the rest of the last column
// group becomes zero.
template <class D, class S>
ASC_API void asc_copy_gm2l1_nd2nz(D* dst, S* src, uint64_t row_bytes, ascsim::Hint, uint32_t N, uint32_t cols,
                                  uint64_t matrix_bytes = 0, bool = false) {
  ascsim::copy_gm2l1((void*)dst, (const void*)src, sizeof(D), row_bytes, N, cols, matrix_bytes, false);
}
// The same destination from a source stored [D][N].
template <class D, class S>
ASC_API void asc_copy_gm2l1_dn2nz(D* dst, S* src, uint64_t row_bytes, ascsim::Hint, uint32_t N, uint32_t cols,
                                  uint64_t matrix_bytes = 0, bool = false) {
  ascsim::copy_gm2l1((void*)dst, (const void*)src, sizeof(D), row_bytes, N, cols, matrix_bytes, true);
}
// Fills L1 on pipe MTE2: `repeat` runs of blk_num 32-byte blocks, dst_gap blocks between them. An integer is the bits
// of an element, a half or a bfloat16 its value.
template <class T, class V>
ASC_API void asc_fill_l1(T* dst, V value, asc_fill_value_config f) {
  ascsim::fill_l1((void*)dst, ascsim::bits32(value), sizeof(T), f.repeat, f.blk_num, f.dst_gap);
}

// L1 to L0A or L0B, pipe MTE1, in fractals of 512 bytes (16 rows of 32 bytes). Source fractal (m, k) lies at
// (k0 + k) * src_stride + m0 + m, destination fractal at k * dst_stride + m, for m < m_step and k < k_step. The model
// refuses to write a fractal twice.
template <class D, class S>
ASC_API void asc_copy_l12l0a(D* dst, S* src, uint32_t m0, uint32_t k0, uint32_t m_step, uint32_t k_step, int src_stride,
                             uint32_t dst_stride) {
  ascsim::copy_l12l0(ascsim::Space::l0a, (void*)dst, (const void*)src, sizeof(D), m0, k0, m_step, k_step, src_stride,
                     dst_stride, false);
}
template <class D, class S>
ASC_API void asc_copy_l12l0b(D* dst, S* src, uint32_t m0, uint32_t k0, uint32_t m_step, uint32_t k_step, int src_stride,
                             uint32_t dst_stride) {
  ascsim::copy_l12l0(ascsim::Space::l0b, (void*)dst, (const void*)src, sizeof(D), m0, k0, m_step, k_step, src_stride,
                     dst_stride, false);
}
// The same with a transposition: element (row R, column X) of the source region becomes row X, column R, in fractal
// (R / C0) * dst_stride + X / 16. 8-bit elements need an even m_step, 32-bit ones an even k_step.
template <class D, class S>
ASC_API void asc_copy_l12l0a_transpose(D* dst, S* src, uint32_t m0, uint32_t k0, uint32_t m_step, uint32_t k_step,
                                       int src_stride, uint32_t dst_stride) {
  ascsim::copy_l12l0(ascsim::Space::l0a, (void*)dst, (const void*)src, sizeof(D), m0, k0, m_step, k_step, src_stride,
                     dst_stride, true);
}
template <class D, class S>
ASC_API void asc_copy_l12l0b_transpose(D* dst, S* src, uint32_t m0, uint32_t k0, uint32_t m_step, uint32_t k_step,
                                       int src_stride, uint32_t dst_stride) {
  ascsim::copy_l12l0(ascsim::Space::l0b, (void*)dst, (const void*)src, sizeof(D), m0, k0, m_step, k_step, src_stride,
                     dst_stride, true);
}
// Block scales (E8M0) of L0A or L0B. dst is the L0 byte address of the data divided by 16. Fractals of 32 bytes: 16
// rows of 2 scales, that is 64 elements of k; x counts row blocks, y groups of 64 along k. Source fractal (x, y) lies
// at (x0 + x) * src_stride + y0 + y, destination fractal at x * dst_stride + y.
template <class S>
ASC_API void asc_copy_l12l0a_mx(uint64_t dst, S* src, uint32_t x0, uint32_t y0, uint32_t x_step, uint32_t y_step,
                                uint32_t src_stride, uint32_t dst_stride) {
  ascsim::copy_l12l0_scales(ascsim::Space::l0a, dst, (const void*)src, x0, y0, x_step, y_step, src_stride, dst_stride);
}
template <class S>
ASC_API void asc_copy_l12l0b_mx(uint64_t dst, S* src, uint32_t x0, uint32_t y0, uint32_t x_step, uint32_t y_step,
                                uint32_t src_stride, uint32_t dst_stride) {
  ascsim::copy_l12l0_scales(ascsim::Space::l0b, dst, (const void*)src, x0, y0, x_step, y_step, src_stride, dst_stride);
}

// How stores of MTE3 and FIX to global memory combine with what is there, from here on.
#define ASCSIM_ATOMIC_MODE(NAME, MODE)                                                         \
  template <class T>                                                                           \
  ASC_API void asc_set_atomic_##NAME##_t() {                                                   \
    ascsim::set_atomic(MODE, ascsim::type_of<T>());                                            \
  }                                                                                            \
  ASC_API void asc_set_atomic_##NAME##_float() { asc_set_atomic_##NAME##_t<float>(); }         \
  ASC_API void asc_set_atomic_##NAME##_float16() { asc_set_atomic_##NAME##_t<half>(); }        \
  ASC_API void asc_set_atomic_##NAME##_bfloat16() { asc_set_atomic_##NAME##_t<bfloat16_t>(); } \
  ASC_API void asc_set_atomic_##NAME##_int() { asc_set_atomic_##NAME##_t<int32_t>(); }         \
  ASC_API void asc_set_atomic_##NAME##_int16() { asc_set_atomic_##NAME##_t<int16_t>(); }       \
  ASC_API void asc_set_atomic_##NAME##_int8() { asc_set_atomic_##NAME##_t<int8_t>(); }
ASCSIM_ATOMIC_MODE(add, 1)
ASCSIM_ATOMIC_MODE(max, 2)
ASCSIM_ATOMIC_MODE(min, 3)
#undef ASCSIM_ATOMIC_MODE
ASC_API void asc_set_atomic_none() { ascsim::set_atomic(0, ascsim::Type::f32); }

// One element of global memory, read or written by the program past the scalar cache.
template <class T>
ASC_API T asc_load_dev(T* p) {
  ascsim::check_gm(p, sizeof(T), "asc_load_dev");
  return *p;
}
template <class T>
ASC_API void asc_store_dev(T* p, std::type_identity_t<T> value) {
  ascsim::check_gm(p, sizeof(T), "asc_store_dev");
  *p = value;
}
