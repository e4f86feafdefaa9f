// The copies of pipes MTE1, MTE2 and MTE3.
#include <cstring>

#include "elements.h"
#include "machine.h"

namespace ascsim {

namespace {
constexpr uint32_t kMostBursts = 4095, kLongestBurst = 2097151;

void check_burst(const char* what, uint32_t bursts, uint32_t len, const char* stride_name, uint64_t stride) {
  if (bursts > kMostBursts) fail("%s: %u bursts; at most %u", what, bursts, kMostBursts);
  if (len > kLongestBurst) fail("%s: bursts of %u bytes; at most %u", what, len, kLongestBurst);
  if (bursts > 1 && stride != len && stride % 32)
    fail("%s: %s %lu is neither the burst length nor a multiple of 32 bytes", what, stride_name, (unsigned long)stride);
}

void check_element(const void* gm, int size, const char* what) {
  if (uintptr_t(gm) % size) fail("%s: the global address is not a multiple of its elements' %d bytes", what, size);
}
}  // namespace

void set_pad_value(uint32_t value) { current()->pad = value; }
void set_atomic(int mode, Type type) {
  current()->atomic = mode;
  current()->atomic_type = type;
}
void set_nz_registers(uint32_t num, uint32_t n_stride, uint32_t c0_stride, uint32_t matrix_stride) {
  Core* c = current();
  c->nz_num = num;
  c->nz_n = n_stride;
  c->nz_c0 = c0_stride;
  c->nz_matrix = matrix_stride;
}

void store_gm(uint8_t* to, const uint8_t* from, size_t bytes, int mode, Type type) {
  if (!mode) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (bytes % size_of(type)) fail("atomic store of %zu bytes: not whole elements", bytes);
  combine(to, from, bytes, mode, type);
}

void copy_gm2ub(void* dst, const void* src, int size, uint32_t bursts, uint32_t len, uint32_t lpad, uint32_t rpad,
                bool constant, uint64_t src_stride, uint64_t dst_stride) {
  Core* c = current();
  const uint32_t pad = c->pad;
  auto run = [=] {
    const char* what = "asc_copy_gm2ub_align";
    if (!bursts || !len) return;
    check_burst(what, bursts, len, "dst_stride", dst_stride);
    if (lpad * size > 32 || rpad * size > 32)
      fail("%s: padding of %u and %u elements of %d bytes; at most 32 bytes each", what, lpad, rpad, size);
    check_element(src, size, what);
    check(c->ub, dst, 1, 32, what);
    const size_t left = size_t(lpad) * size, right = size_t(rpad) * size, total = left + len + right;
    for (uint32_t i = 0; i < bursts; i++) {
      const uint8_t* s = (const uint8_t*)src + i * src_stride;
      uint8_t* d = (uint8_t*)dst + i * dst_stride;
      check_gm(s, len, "asc_copy_gm2ub_align, source");
      check(c->ub, d, total, 1, "asc_copy_gm2ub_align, destination");
      uint8_t value[8];
      std::memcpy(value, constant ? (const void*)&pad : (const void*)s, size_t(constant && size > 4 ? 4 : size));
      for (size_t k = 0; k < lpad; k++) std::memcpy(d + k * size, value, size);
      std::memcpy(d + left, s, len);
      for (size_t k = 0; k < rpad; k++) std::memcpy(d + left + len + k * size, value, size);
      const bool compact = dst_stride == len && bursts > 1 && i + 1 < bursts;
      const size_t line = (total + 31) / 32 * 32;
      if (!compact && size_t(d - c->ub->base) + line <= c->ub->bytes) std::memset(d + total, 0xff, line - total);
    }
    count_bytes(size_t(bursts) * len);
    count_global(size_t(bursts) * len);
  };
  push(MTE2, {.name = "asc_copy_gm2ub_align", .copy = true, .run = run});
}

void copy_ub2gm(void* dst, const void* src, int size, uint32_t bursts, uint32_t len, uint64_t dst_stride, uint64_t src_stride) {
  Core* c = current();
  const int mode = c->atomic;
  const Type type = c->atomic_type;
  auto run = [=] {
    const char* what = "asc_copy_ub2gm_align";
    if (!bursts || !len) return;
    check_burst(what, bursts, len, "src_stride", src_stride);
    check_element(dst, size, what);
    check(c->ub, src, 1, 32, what);
    for (uint32_t i = 0; i < bursts; i++) {
      const uint8_t* s = (const uint8_t*)src + i * src_stride;
      uint8_t* d = (uint8_t*)dst + i * dst_stride;
      check(c->ub, s, len, 1, "asc_copy_ub2gm_align, source");
      check_gm(d, len, "asc_copy_ub2gm_align, destination");
      store_gm(d, s, len, mode, type);
    }
    count_bytes(size_t(bursts) * len);
    count_global(size_t(bursts) * len);
  };
  push(MTE3, {.name = "asc_copy_ub2gm_align", .copy = true, .run = run});
}

void copy_ub2l1(void* dst, const void* src, uint32_t bursts, uint32_t len, uint32_t src_gap, uint32_t dst_gap) {
  Core* c = current();
  auto run = [=] {
    for (uint32_t i = 0; i < bursts && len; i++) {
      const uint8_t* s = (const uint8_t*)src + size_t(i) * (len + src_gap) * 32;
      uint8_t* d = (uint8_t*)dst + size_t(i) * (len + dst_gap) * 32;
      check(c->ub, s, size_t(len) * 32, 32, "asc_copy_ub2l1, source");
      check(c->block->aic ? c->block->aic->l1 : nullptr, d, size_t(len) * 32, 32, "asc_copy_ub2l1, destination");
      std::memcpy(d, s, size_t(len) * 32);
    }
    count_bytes(size_t(bursts) * len * 32);
  };
  push(MTE3, {.name = "asc_copy_ub2l1", .copy = true, .run = run});
}

void copy_gm2l1(void* dst, const void* src, int size, uint64_t stride, uint32_t rows, uint32_t cols,
                uint64_t matrix_stride, bool dn) {
  Core* c = current();
  const uint32_t num = c->nz_num, n_stride = c->nz_n, c0_stride = c->nz_c0, nz_matrix = c->nz_matrix;
  const char* what = dn ? "asc_copy_gm2l1_dn2nz" : "asc_copy_gm2l1_nd2nz";
  auto run = [=] {
    const uint32_t c0 = 32 / size;
    if (!rows || !cols) return;
    check(c->l1, dst, 1, 32, what);
    for (uint32_t q = 0; q < num; q++) {
      const uint8_t* from = (const uint8_t*)src + q * matrix_stride;
      uint8_t* to = (uint8_t*)dst + size_t(q) * nz_matrix * 32;
      for (uint32_t r = 0; r < (dn ? cols : rows); r++)
        check_gm(from + r * stride, size_t(dn ? rows : cols) * size, what);
      for (uint32_t n = 0; n < rows; n++)
        for (uint32_t d0 = 0; d0 < cols; d0 += c0) {
          uint8_t* line = to + (size_t(d0 / c0) * c0_stride + size_t(n) * n_stride) * 32;
          check(c->l1, line, 32, 32, what);
          const uint32_t k = cols - d0 < c0 ? cols - d0 : c0;
          if (k < c0) std::memset(line, 0, 32);
          if (!dn) std::memcpy(line, from + n * stride + size_t(d0) * size, size_t(k) * size);
          else
            for (uint32_t i = 0; i < k; i++)
              std::memcpy(line + size_t(i) * size, from + size_t(d0 + i) * stride + size_t(n) * size, size);
        }
    }
    count_bytes(size_t(num) * rows * cols * size);
    count_global(size_t(num) * rows * cols * size);
  };
  push(MTE2, {.name = what, .copy = true, .run = run});
}

void fill_l1(void* dst, uint32_t value, int size, uint64_t repeat, uint64_t blocks, uint64_t gap) {
  Core* c = current();
  auto run = [=] {
    for (uint64_t r = 0; r < repeat && blocks; r++) {
      uint8_t* d = (uint8_t*)dst + r * (blocks + gap) * 32;
      check(c->l1, d, blocks * 32, 32, "asc_fill_l1");
      for (size_t i = 0; i < blocks * 32; i += size) std::memcpy(d + i, &value, size < 4 ? size : 4);
    }
    count_bytes(repeat * blocks * 32);
  };
  push(MTE2, {.name = "asc_fill_l1", .copy = true, .run = run});
}

void copy_l12l0(Space to, void* dst, const void* src, int size, uint32_t m0, uint32_t k0, uint32_t m_step,
                uint32_t k_step, int src_stride, uint32_t dst_stride, bool transpose) {
  Core* c = current();
  const char* what = to == Space::l0a ? (transpose ? "asc_copy_l12l0a_transpose" : "asc_copy_l12l0a")
                                      : (transpose ? "asc_copy_l12l0b_transpose" : "asc_copy_l12l0b");
  auto run = [=] {
    Region* l0 = to == Space::l0a ? c->l0a : c->l0b;
    const uint32_t c0 = 32 / size;
    if (!m_step || !k_step) return;
    check(l0, dst, 1, 512, what);
    if (transpose && c0 > 16 && m_step % (c0 / 16)) fail("%s: m_step %u is not even, as 8-bit data need", what, m_step);
    if (transpose && c0 < 16 && k_step % (16 / c0))
      fail("%s: k_step %u is not even, as 32-bit data need", what, k_step);
    // One run of destination fractals, and how many runs there are.
    const uint32_t run = transpose ? (k_step * c0 + 15) / 16 : m_step;
    const uint32_t runs = transpose ? (m_step * 16 + c0 - 1) / c0 : k_step;
    if (runs > 1 && run > dst_stride)
      fail("%s: %u fractals in a run exceed the destination's stride of %u: one is written twice", what, run, dst_stride);
    for (uint32_t k = 0; k < k_step; k++)
      for (uint32_t m = 0; m < m_step; m++) {
        const uint8_t* s = (const uint8_t*)src + (int64_t(k0 + k) * src_stride + m0 + m) * 512;
        check(c->l1, s, 512, 32, what);
        if (!transpose) {
          uint8_t* d = (uint8_t*)dst + (size_t(k) * dst_stride + m) * 512;
          check(l0, d, 512, 512, what);
          std::memcpy(d, s, 512);
          continue;
        }
        for (uint32_t r = 0; r < 16; r++)
          for (uint32_t x = 0; x < c0; x++) {
            const uint32_t row = m * 16 + r, col = k * c0 + x;
            uint8_t* d =
                (uint8_t*)dst + (size_t(row / c0) * dst_stride + col / 16) * 512 + (col % 16) * 32 + (row % c0) * size;
            check(l0, d, size, 1, what);
            std::memcpy(d, s + r * 32 + x * size, size);
          }
      }
    count_bytes(size_t(m_step) * k_step * 512);
  };
  push(MTE1, {.name = what, .copy = true, .run = run});
}

void copy_l12l0_scales(Space to, uint64_t dst, const void* src, uint32_t x0, uint32_t y0, uint32_t x_step,
                       uint32_t y_step, uint32_t src_stride, uint32_t dst_stride) {
  Core* c = current();
  const char* what = to == Space::l0a ? "asc_copy_l12l0a_mx" : "asc_copy_l12l0b_mx";
  auto run = [=] {
    Region* l0 = to == Space::l0a ? c->l0a : c->l0b;
    if (!l0) fail("%s: this kernel has no cube core", what);
    auto& scales = to == Space::l0a ? c->scales_a : c->scales_b;
    scales.resize(l0->bytes / 16, 0xff);
    // A plain number is an offset in L0 / 16; a pointer that was divided is one of the model's addresses / 16.
    if (x_step > 1 && y_step > dst_stride)
      fail("%s: %u fractals in a run exceed the destination's stride of %u: one is written twice", what, y_step,
           dst_stride);
    const int64_t base = dst < l0->bytes / 16 ? int64_t(dst) : int64_t(dst) - int64_t(uintptr_t(l0->base) / 16);
    for (uint32_t x = 0; x < x_step; x++)
      for (uint32_t y = 0; y < y_step; y++) {
        const uint8_t* s = (const uint8_t*)src + (size_t(x0 + x) * src_stride + y0 + y) * 32;
        check(c->l1, s, 32, 32, what);
        const int64_t d = base + (int64_t(x) * dst_stride + y) * 32;
        if (d < 0 || d + 32 > int64_t(scales.size()))
          fail("%s: scales of byte %ld are outside the %zu KiB of %s", what, long(d * 16), l0->bytes / 1024,
               to == Space::l0a ? "L0A" : "L0B");
        std::memcpy(&scales[size_t(d)], s, 32);
      }
    count_bytes(size_t(x_step) * y_step * 32);
  };
  push(MTE1, {.name = what, .copy = true, .run = run});
}

void copy_l12bt(uint64_t dst, const void* src, Type type, uint32_t bursts, uint32_t len, uint32_t src_gap,
                uint32_t dst_gap) {
  Core* c = current();
  auto run = [=] {
    const char* what = "asc_copy_l12bt";
    if (type != Type::f32 && type != Type::f16) fail("%s: float32 and half sources only", what);
    c->bias.resize(kBias / sizeof(float), NAN);
    const size_t size = size_of(type), elements = size_t(len) * 64 / size;
    for (uint32_t i = 0; i < bursts && len; i++) {
      const uint8_t* s = (const uint8_t*)src + size_t(i) * (len + src_gap) * 64;
      check(c->l1, s, size_t(len) * 64, 32, what);
      const size_t at = (dst + size_t(i) * (len + dst_gap) * 64) / 4;
      if (dst % 64 || at + elements > c->bias.size())
        fail("%s: destination outside the 4 KiB table or not 64-byte aligned", what);
      for (size_t k = 0; k < elements; k++) c->bias[at + k] = load(s, k, type);
    }
    count_bytes(size_t(bursts) * len * 64);
  };
  push(MTE1, {.name = "asc_copy_l12bt", .copy = true, .run = run});
}

}  // namespace ascsim
