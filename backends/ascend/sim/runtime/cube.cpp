// Matrix products (pipe M) and the copies out of L0C (pipe FIX).
#include <cstring>

#include "elements.h"
#include "machine.h"

namespace ascsim {

namespace {
constexpr uint32_t kLargest = 4095;

// The values of all codes of a type of 8 bits.
struct Values {
  float of[256];
  explicit Values(Type t) {
    for (int i = 0; i < 256; i++) {
      const uint8_t code = uint8_t(i);
      of[i] = load(&code, 0, t);
    }
  }
};

// Rows x K of an operand as floats, row-major, from 16 x 32-byte fractals.
void unpack(std::vector<float>& out, const void* p, Type t, uint32_t rows, uint32_t k_size) {
  const uint32_t c0 = group_of(t), blocks = (rows + 15) / 16;
  out.resize(size_t(rows) * k_size);
  if (t == Type::e4m3 || t == Type::e5m2) {
    static const Values e4m3(Type::e4m3), e5m2(Type::e5m2);
    const float* value = (t == Type::e4m3 ? e4m3 : e5m2).of;
    for (uint32_t r = 0; r < rows; r++)
      for (uint32_t k = 0; k < k_size; k++)
        out[size_t(r) * k_size + k] =
            value[((const uint8_t*)p)[(size_t(k / 32) * blocks + r / 16) * 512 + (r % 16) * 32 + k % 32]];
    return;
  }
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t k = 0; k < k_size; k++)
      out[size_t(r) * k_size + k] = load(p, (size_t(k / c0) * blocks + r / 16) * 16 * c0 + (r % 16) * c0 + k % c0, t);
}

void scale(std::vector<float>& values, const std::vector<uint8_t>& scales, size_t offset, uint32_t rows,
           uint32_t k_size, const char* which) {
  const uint32_t groups = (k_size + 63) / 64;
  if (offset + size_t((rows + 15) / 16) * groups * 32 > scales.size())
    fail("asc_mmad_mx: no scales loaded for %s", which);
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t first = 0; first < k_size; first += 32) {
      const uint8_t e = scales[offset + (size_t(r / 16) * groups + first / 64) * 32 + (r % 16) * 2 + (first / 32) % 2];
      const float factor = e == 0xff ? NAN : std::ldexp(1.f, int(e) - 127);
      for (uint32_t k = first; k < first + 32 && k < k_size; k++) values[size_t(r) * k_size + k] *= factor;
    }
}

void multiply(Core* c, bool scaled, float* cp, const void* a, Type at, const void* b, Type bt, uint32_t m_size,
              uint32_t k_size, uint32_t n_size, bool from_bias, bool zero) {
  static thread_local std::vector<float> left, right, turned, row;
  unpack(left, a, at, m_size, k_size);
  unpack(right, b, bt, n_size, k_size);
  if (scaled) {
    scale(left, c->scales_a, size_t((const uint8_t*)a - c->l0a->base) / 16, m_size, k_size, "L0A");
    scale(right, c->scales_b, size_t((const uint8_t*)b - c->l0b->base) / 16, n_size, k_size, "L0B");
  }
  if (from_bias && c->bias.size() < n_size) fail("asc_mmad: the bias table holds no %u values", n_size);
  turned.resize(right.size());
  row.resize(n_size);
  // Through pointers that nothing else writes to: the loops over n are then done in vectors.
  float* __restrict const out = row.data();
  float* __restrict const columns = turned.data();
  const float* __restrict const x = left.data();
  const float* __restrict const w = right.data();
  for (uint32_t n = 0; n < n_size; n++)
    for (uint32_t k = 0; k < k_size; k++) columns[size_t(k) * n_size + n] = w[size_t(n) * k_size + k];
  const uint32_t blocks = (m_size + 15) / 16;
  for (uint32_t m = 0; m < m_size; m++) {
    auto place = [&](uint32_t n) { return (size_t(n / 16) * blocks + m / 16) * 256 + (m % 16) * 16 + n % 16; };
    for (uint32_t n = 0; n < n_size; n++) out[n] = zero ? 0.f : from_bias ? c->bias[n] : cp[place(n)];
    for (uint32_t k = 0; k < k_size; k++) {
      const float factor = x[size_t(m) * k_size + k];
      const float* y = columns + size_t(k) * n_size;
      for (uint32_t n = 0; n < n_size; n++) out[n] += factor * y[n];
    }
    for (uint32_t n = 0; n < n_size; n++) cp[place(n)] = out[n];
  }
}
}  // namespace

void mmad(bool scaled, void* cp, Type ct, const void* a, Type at, const void* b, Type bt, uint32_t m, uint32_t k,
          uint32_t n, uint32_t unit_flag, bool gemv, bool from_bias, bool zero) {
  Core* c = current();
  const char* what = scaled ? "asc_mmad_mx" : "asc_mmad";
  const uint64_t stores_before = c->unit_f_issued;
  if (unit_flag) c->unit_m_issued++;
  auto run = [=] {
    if (m > kLargest || n > kLargest || k > kLargest) fail("%s: M %u, K %u, N %u; at most %u", what, m, k, n, kLargest);
    if (gemv && m > 1) fail("%s: the matrix-vector form takes 1 row of A, not %u", what, m);
    if (ct != Type::f32) fail("%s: accumulators other than float32 are not modelled", what);
    if (group_of(at) != group_of(bt)) fail("%s: operands of different sizes", what);
    if (m && n && k) {
      const uint32_t c0 = group_of(at);
      const size_t mb = (m + 15) / 16, nb = (n + 15) / 16, kb = (k + c0 - 1) / c0;
      check(c->l0a, a, mb * kb * 512, 512, "asc_mmad, A");
      check(c->l0b, b, nb * kb * 512, 512, "asc_mmad, B");
      check(c->l0c, cp, mb * nb * 1024, 64, "asc_mmad, C");
      multiply(c, scaled, (float*)cp, a, at, b, bt, m, k, n, from_bias, zero);
      c->stats.flop += 2ull * m * n * k;
      c->stats.cube_steps += mb * nb * kb;
      count_bytes((mb + nb) * kb * 512);
    }
    if (unit_flag) c->unit_m_done++;
  };
  push(M, {.name = what, .wait = unit_flag ? Wait::unit : Wait::none, .a = 1, .c = stores_before, .run = run});
}

void set_fixpipe_matrices(uint32_t num, uint32_t, uint32_t) {
  if (num != 1) fail("asc_set_l0c_copy_nz_para: %u matrices; only 1 is modelled", num);
}

namespace {
void put(uint8_t* to, float value, Type t) {
  if (t == Type::f32) std::memcpy(to, &value, 4);
  else if (t == Type::f16) {
    const half h = half(value);
    std::memcpy(to, &h, 2);
  } else {
    const bfloat16_t b(value);
    std::memcpy(to, &b, 2);
  }
}

void check_modes(const Fixpipe& f, const char* what) {
  if (f.st != Type::f32) fail("%s: sources other than float32 are not modelled", what);
  const int quant = f.dt == Type::bf16 ? 16 : f.dt == Type::f16 ? 1 : f.dt == Type::f32 ? 0 : -1;
  if (quant < 0) fail("%s: destinations other than float32, half and bfloat16 are not modelled", what);
  if (f.quant != quant) fail("%s: quant mode %d does not fit the destination's type (mode %d)", what, f.quant, quant);
  if (!f.nz2nd || f.nz2dn || f.channel_split) fail("%s: only row-major output (nz2nd) is modelled", what);
  if (f.relu != 0 && f.relu != 1) fail("%s: relu mode %d is not modelled", what, f.relu);
  if (f.n > kLargest) fail("%s: N %u; at most %u", what, f.n, kLargest);
  if (!f.dst_pitch) fail("%s: a row pitch of 0", what);
  const uint32_t columns = f.to_ub && f.dual == 2 ? f.n / 2 : f.n;
  if (f.m > 1 && columns > f.dst_pitch)
    fail("%s: %u columns exceed the row pitch of %u: rows overlap", what, columns, f.dst_pitch);
  if (!f.to_ub) return;
  if (f.dual < 0 || f.dual > 2) fail("%s: dual mode %d; 0, 1 or 2", what, f.dual);
  if (f.dual && f.dt != f.st) fail("%s: no conversion in dual mode", what);
  if (f.dual == 1 && f.m % 2) fail("%s: dual mode 1 halves the rows, and M is %u", what, f.m);
  if (f.dual == 2 && f.n % 32) fail("%s: dual mode 2 halves the columns, and N %u is no multiple of 32", what, f.n);
  if (!f.dual && (f.sub_block < 0 || f.sub_block > 1)) fail("%s: sub_block %d; 0 or 1", what, f.sub_block);
  if (f.dst_pitch * size_of(f.dt) % 32)
    fail("%s: row pitch of %zu bytes is no multiple of 32", what, f.dst_pitch * size_of(f.dt));
}

void copy_out(Core* c, const Fixpipe& f, int mode, Type type, const char* what) {
  check_modes(f, what);
  const size_t size = size_of(f.dt);
  check(c->l0c, f.src, (size_t((f.n - 1) / 16) * f.src_pitch + f.m) * 64, 64, what);
  uint8_t* offset = nullptr;
  if (f.to_ub) {
    if (!c->block->aiv[0]) fail("%s: this kernel has no vector core", what);
    offset = (uint8_t*)((uint8_t*)f.dst - c->block->aiv[0]->ub->base);
  }
  static thread_local std::vector<uint8_t> line;
  line.resize(f.n * size);
  for (uint32_t m = 0; m < f.m; m++) {
    for (uint32_t n = 0; n < f.n; n++) {
      float v = at<float>(f.src, size_t(n / 16) * f.src_pitch * 16 + size_t(m) * 16 + n % 16);
      if (f.relu && v < 0) v = 0;
      put(&line[n * size], v, f.dt);
    }
    if (!f.to_ub) {
      uint8_t* d = (uint8_t*)f.dst + size_t(m) * f.dst_pitch * size;
      check_gm(d, line.size(), what);
      store_gm(d, line.data(), line.size(), mode, type);
      continue;
    }
    for (int half_of_n = 0; half_of_n < (f.dual == 2 ? 2 : 1); half_of_n++) {
      const bool lower = f.dual == 1 && m >= f.m / 2;
      const int to = f.dual == 2 ? half_of_n : f.dual == 1 ? lower : f.sub_block;
      const size_t bytes = f.dual == 2 ? line.size() / 2 : line.size(), row = lower ? m - f.m / 2 : m;
      Region* ub = c->block->aiv[to]->ub;
      uint8_t* d = ub->base + (size_t)offset + row * f.dst_pitch * size;
      check(ub, d, bytes, 32, what);
      std::memcpy(d, &line[half_of_n * bytes], bytes);
    }
  }
  count_bytes(size_t(f.m) * f.n * size);
  if (!f.to_ub) count_global(size_t(f.m) * f.n * size);
}
}  // namespace

void fixpipe(const Fixpipe& f) {
  Core* c = current();
  const int mode = c->atomic;
  const Type type = c->atomic_type;
  const uint64_t products = c->unit_m_issued;
  const char* what = f.to_ub ? "asc_copy_l0c2ub" : "asc_copy_l0c2gm";
  if (f.unit_flag) c->unit_f_issued++;
  auto run = [=] {
    if (f.n && f.m) copy_out(c, f, mode, type, what);
    if (f.unit_flag) c->unit_f_done++;
  };
  push(FIX,
       {.name = what, .wait = f.unit_flag ? Wait::unit : Wait::none, .c = products, .copy = !f.unit_flag, .run = run});
}

}  // namespace ascsim
