// Raw loads and stores of device code.
//
// Kernels are compiled with the instrumentation that compilers have for their thread checker, which calls a function
// with the address before every load and store. These are those functions. They check that the address lies within a
// memory that may be touched there, and that no two threads of a SIMT function race.
//
// Race: between two barriers, one thread changes a byte that another reads or changes. A store of the value that is
// there already changes nothing, in whichever order the two go, and is none. Atomic updates race with other accesses
// only.
#include <csetjmp>
#include <cstring>

#include "machine.h"

namespace ascsim {

thread_local sigjmp_buf* escape = nullptr;  // out of the program of a core, which cannot unwind from within a load
thread_local std::string escape_text;

namespace {
struct Pending {  // a store whose hook was called; it happens after that
  uint8_t* p = nullptr;
  size_t bytes = 0;
  Region* region = nullptr;
  uint8_t old[64];
};
thread_local Pending pending;

[[noreturn]] void reject(const std::string& text) {
  Core* c = current();
  if (threads()) end_thread(c->where() + ": " + text);
  escape_text = c->where() + ": " + text;
  if (escape) siglongjmp(*escape, 2);
  abort();
}

std::string place(const Region* r, const void* p) {
  return "byte " + std::to_string((const uint8_t*)p - r->base) + " of " + r->name;
}
std::string thread_name(uint16_t t) {
  return t == kMany ? "several threads" : t == kAtomic ? "an atomic update" : "thread " + std::to_string(t - 1);
}

[[noreturn]] void race(const Region* r, const uint8_t* p, const char* mine, const char* theirs, uint16_t other) {
  pending.p = nullptr;
  reject("race: " + place(r, p) + " is " + mine + " here and " + theirs + " by " + thread_name(other) +
         " with no asc_syncthreads between");
}

Region* allowed(const void* p, size_t bytes, bool write) {
  Core* c = current();
  Region* r = c->group->arena->find(p);
  const char* what = write ? "write" : "read";
  if (!r || (const uint8_t*)p + bytes > r->base + r->bytes) {
    const void* at = r ? (const void*)((const uint8_t*)p + bytes) : p;
    reject(std::string(what) + " of " + std::to_string(bytes) + " bytes outside every memory and argument (" +
           c->group->arena->describe(at) + ")");
  }
  if (r->space != Space::gm && (r->space != Space::ub || r->core != c))
    reject(std::string("direct ") + what + " of " + place(r, p) + ", which this core reaches by copies only");
  const size_t end = size_t((const uint8_t*)p - r->base) + bytes;
  if (end > r->high) r->high = end;
  return r;
}

// In a SIMT function, unless only data is to betray a missing barrier.
bool races_count() { return threads() && !current()->group->schedule.relaxed; }

uint16_t me() { return uint16_t(thread_number() + 1); }

Cell& cell(Region* r, const uint8_t* p) {
  Core* c = current();
  Cell& x = c->group->arena->cells(r)[p - r->base];
  if (x.phase != c->group->phase) x = {c->group->phase, 0, 0};
  return x;
}

void note_reader(Cell& x) { x.reader = !x.reader || x.reader == me() ? me() : kMany; }

void on_read(const void* at, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(at);
  Region* r = allowed(p, bytes, false);
  if (threads()) count_access(r, bytes);
  if (!races_count()) return;
  for (size_t i = 0; i < bytes; i++) {
    Cell& x = cell(r, p + i);
    if (x.writer && x.writer != me()) race(r, p + i, "read", "written", x.writer);
    note_reader(x);
  }
}

void on_write(void* at, size_t bytes) {
  auto* p = static_cast<uint8_t*>(at);
  Region* r = allowed(p, bytes, true);
  if (threads()) count_access(r, bytes);
  if (!races_count()) return;
  while (bytes) {  // what is longer is settled in parts: only the last is pending
    const size_t n = bytes < sizeof pending.old ? bytes : sizeof pending.old;
    pending.p = p;
    pending.bytes = n;
    pending.region = r;
    std::memcpy(pending.old, p, n);
    p += n;
    bytes -= n;
    if (bytes) settle_write();
  }
}
}  // namespace

void settle_write() {
  if (!pending.p) return;
  const Pending w = pending;
  pending.p = nullptr;
  for (size_t i = 0; i < w.bytes; i++) {
    Cell& x = cell(w.region, w.p + i);
    if (w.p[i] == w.old[i]) {
      if (!x.writer) note_reader(x);
      continue;
    }
    if (x.writer && x.writer != me()) race(w.region, w.p + i, "changed", "written", x.writer);
    if (x.reader && x.reader != me()) race(w.region, w.p + i, "changed", "read", x.reader);
    x.writer = me();
  }
}

void atomic_access(const void* at, size_t bytes, const char* what) {
  settle_write();
  const auto* p = static_cast<const uint8_t*>(at);
  Region* r = allowed(p, bytes, true);
  if (threads()) count_access(r, bytes);
  if (uintptr_t(p) % bytes) fail("%s: address is no multiple of %zu bytes", what, bytes);
  if (!races_count()) return;
  for (size_t i = 0; i < bytes; i++) {
    Cell& x = cell(r, p + i);
    if (x.writer && x.writer != kAtomic && x.writer != me()) race(r, p + i, "updated", "written", x.writer);
    if (x.reader && x.reader != me() && x.writer != kAtomic) race(r, p + i, "updated", "read", x.reader);
    x.writer = kAtomic;
  }
}

void begin_phase(Core* c) { c->group->phase++; }

}  // namespace ascsim

namespace {
inline bool watched(const void* p) {
  ascsim::Core* c = ascsim::current();
  return c && c->group->arena->holds(p);
}
void read_hook(void* p, size_t bytes) {
  ascsim::settle_write();
  if (watched(p)) ascsim::on_read(p, bytes);
}
void write_hook(void* p, size_t bytes) {
  ascsim::settle_write();
  if (watched(p)) ascsim::on_write(p, bytes);
}
}  // namespace

#define ASCSIM_HOOKS(N)                                                     \
  void __tsan_read##N(void* p) { read_hook(p, N); }                         \
  void __tsan_write##N(void* p) { write_hook(p, N); }                       \
  void __tsan_unaligned_read##N(void* p) { read_hook(p, N); }               \
  void __tsan_unaligned_write##N(void* p) { write_hook(p, N); }             \
  void __tsan_volatile_read##N(void* p) { read_hook(p, N); }                \
  void __tsan_volatile_write##N(void* p) { write_hook(p, N); }              \
  void __tsan_unaligned_volatile_read##N(void* p) { read_hook(p, N); }      \
  void __tsan_unaligned_volatile_write##N(void* p) { write_hook(p, N); }    \
  void __tsan_read_write##N(void* p) { read_hook(p, N), write_hook(p, N); } \
  void __tsan_unaligned_read_write##N(void* p) { read_hook(p, N), write_hook(p, N); }
extern "C" {
#pragma GCC visibility push(hidden)
ASCSIM_HOOKS(1)
ASCSIM_HOOKS(2)
ASCSIM_HOOKS(4)
ASCSIM_HOOKS(8)
ASCSIM_HOOKS(16)
void __tsan_read_range(void* p, size_t bytes) { read_hook(p, bytes); }
void __tsan_write_range(void* p, size_t bytes) { write_hook(p, bytes); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#pragma GCC visibility pop
}
