// What the headers of the device language ask of the runtime. Device code does not call these itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "types.h"

namespace ascsim {

struct Index3 {
  unsigned x, y, z;
};
enum class Space : int { gm, ub, l1, l0a, l0b, l0c };
enum class Wait : int { none, flag, intra, mutex, inter, unit };

// Ends the run (or, in a SIMT thread, the thread) with a message that names kernel, core, pipe and instruction.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- where this code runs ---
int core_kind();                // 0 AIC, 1 AIV0, 2 AIV1
int core_block();               // block index
void* space_base(Space space);  // null when this kernel has no core with that memory
void check_ub(const void* p, size_t bytes, size_t align, const char* what);
void check_gm(const void* p, size_t bytes, const char* what);

// --- instructions, each put at the end of its pipe ---
void flag_notify(int src, int dst, int id);
void flag_wait(int src, int dst, int id);
void mutex_lock(int pipe, int id);
void mutex_unlock(int pipe, int id);
void pipe_barrier(int pipe);
void drain();
void intra_arrive(int pipe, uint64_t id);
void intra_wait(int pipe, uint64_t id);
void inter_arrive(int pipe, uint64_t id);
void inter_wait(int pipe, uint64_t id);

void set_pad_value(uint32_t value);
void set_nz_registers(uint32_t num, uint32_t n_stride, uint32_t c0_stride, uint32_t matrix_stride);
void set_atomic(int mode, Type type);  // 0 none, 1 add, 2 max, 3 min
void copy_gm2ub(void* dst, const void* src, int size, uint32_t bursts, uint32_t len, uint32_t lpad, uint32_t rpad,
                bool constant, uint64_t src_stride, uint64_t dst_stride);
void copy_ub2gm(void* dst, const void* src, int size, uint32_t bursts, uint32_t len, uint64_t dst_stride,
                uint64_t src_stride);
void copy_ub2l1(void* dst, const void* src, uint32_t bursts, uint32_t len, uint32_t src_gap, uint32_t dst_gap);
void copy_gm2l1(void* dst, const void* src, int size, uint64_t stride, uint32_t n, uint32_t d, uint64_t matrix_stride,
                bool dn);
void fill_l1(void* dst, uint32_t value, int size, uint64_t repeat, uint64_t blocks, uint64_t gap);
void copy_l12l0(Space to, void* dst, const void* src, int size, uint32_t m0, uint32_t k0, uint32_t m_step,
                uint32_t k_step, int src_stride, uint32_t dst_stride, bool transpose);
void copy_l12l0_scales(Space to, uint64_t dst, const void* src, uint32_t x0, uint32_t y0, uint32_t x_step,
                       uint32_t y_step, uint32_t src_stride, uint32_t dst_stride);
void mmad(bool scaled, void* c, Type ct, const void* a, Type at, const void* b, Type bt, uint32_t m, uint32_t k,
          uint32_t n, uint32_t unit_flag, bool gemv, bool from_bias, bool zero);
void copy_l12bt(uint64_t dst, const void* src, Type type, uint32_t bursts, uint32_t len, uint32_t src_gap,
                uint32_t dst_gap);
struct Fixpipe {
  void* dst;
  Type dt;
  const void* src;
  Type st;
  uint32_t n, m, dst_pitch, src_pitch;
  int sub_block, dual, unit_flag, quant, relu;
  bool channel_split, nz2nd, nz2dn, to_ub;
};
void fixpipe(const Fixpipe& f);
void set_fixpipe_matrices(uint32_t num, uint32_t src_stride, uint32_t dst_stride);

void push_simt(const char* name, unsigned x, unsigned y, unsigned z, unsigned bound, std::function<void()> body);
void push_simd(const char* name, std::function<void()> body);

// --- inside a SIMT thread ---
void thread_barrier();
enum class Warp : int {
  shfl_xor,
  shfl_down,
  shfl_up,
  shfl,
  add_f,
  add_i,
  max_f,
  max_i,
  max_u,
  min_f,
  min_i,
  min_u,
  ballot
};
uint64_t warp_collective(Warp kind, uint64_t value, int argument);
void atomic_access(const void* p, size_t bytes, const char* what);
[[noreturn]] void device_assert(const char* condition);

// --- counts for reports: lanes that vector arithmetic and stores use, and lanes that there are ---
extern uint64_t simd_busy, simd_offered;

// --- fault injection (mutate.py): sites switched on for this run ---
inline constexpr int kSites = 8192;
extern unsigned char site_on[kSites];
extern int64_t site_delta;
}  // namespace ascsim
