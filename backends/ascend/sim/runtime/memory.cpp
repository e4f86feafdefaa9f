// Memories with guard pages and poison, and the checks of ranges.
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "machine.h"

#ifdef __SANITIZE_ADDRESS__  // a build for the host's address sanitizer, which knows nothing of this memory
extern "C" void __asan_poison_memory_region(const volatile void* p, size_t bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* p, size_t bytes);
#else
static void __asan_poison_memory_region(const volatile void*, size_t) {}
static void __asan_unpoison_memory_region(const volatile void*, size_t) {}
#endif

namespace ascsim {

const char* const kPipeNames[kPipes + 1] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"};
constexpr size_t kPage = 4096;
constexpr size_t kReach = size_t(1) << 42;
constexpr size_t kLine = 128;  // granule of global memory

// An address far from every region must still fall into the arena: outside it lies the memory of the process, where an
// access need not fault. So half of kReach is reserved before the regions and half behind them; it costs no memory.
// Where address space is limited, less.
Arena::Arena(size_t bytes) {
  for (size_t reach = kReach;; reach /= 2) {
    bytes_ = bytes + reach;
    void* p = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      base_ = static_cast<uint8_t*>(p);
      first_ = used_ = reach / 2 / kPage * kPage;
      end_ = first_ + bytes;
      return;
    }
    if (!reach) throw Error{"the simulator cannot reserve address space"};
  }
}

Arena::~Arena() {
  for (auto& r : regions_)
    if (r->cells) munmap(r->cells, r->bytes * sizeof(Cell));
  __asan_unpoison_memory_region(base_ + first_, used_ - first_);
  munmap(base_, bytes_);
}

// The region ends as near to its guard page as its alignment allows. All of it is poison: NaN in every float type.
Region* Arena::add(size_t bytes, size_t guard, Space space, Core* core, std::string name) {
  const size_t held = (bytes + kLine - 1) / kLine * kLine, pages = (held + kPage - 1) / kPage * kPage;
  if (used_ + pages + 2 * guard > end_) throw Error{"the simulator's address space is used up"};
  uint8_t* at = base_ + used_ + guard;
  used_ += pages + guard;
  if (pages) {
    if (mprotect(at, pages, PROT_READ | PROT_WRITE)) throw Error{"the simulator cannot map memory"};
    std::memset(at, 0xff, pages);
  }
  auto r = std::make_unique<Region>();
  r->base = at + pages - held;
  __asan_poison_memory_region(at, pages - held);
  __asan_poison_memory_region(r->base + bytes, held - bytes);
  r->bytes = bytes;
  r->space = space;
  r->core = core;
  r->name = std::move(name);
  regions_.push_back(std::move(r));
  return regions_.back().get();
}

Region* Arena::find(const void* p) const {
  static thread_local Region* last = nullptr;
  static thread_local const Arena* of = nullptr;
  auto in = [p](const Region* r) { return size_t((const uint8_t*)p - r->base) < r->bytes; };
  if (of == this && last && in(last)) return last;
  for (auto& r : regions_)
    if (in(r.get())) {
      of = this;
      return last = r.get();
    }
  return nullptr;
}

Cell* Arena::cells(Region* r) {
  if (!r->cells) {
    void* p = mmap(nullptr, r->bytes * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw Error{"the simulator cannot map memory"};
    r->cells = static_cast<Cell*>(p);
  }
  return r->cells;
}

std::string Arena::describe(const void* p) const {
  const Region* best = nullptr;
  long distance = 0;
  for (auto& r : regions_) {
    const auto* q = static_cast<const uint8_t*>(p);
    const long d = q < r->base ? q - r->base : long(q - r->base) - long(r->bytes);
    if (!best || std::labs(d) < std::labs(distance)) {
      best = r.get();
      distance = d;
    }
  }
  if (!best) return "no memory near";
  char text[200];
  if (distance < 0) snprintf(text, sizeof text, "%ld bytes before %s", -distance, best->name.c_str());
  else snprintf(text, sizeof text, "%ld bytes behind the %zu of %s", distance, best->bytes, best->name.c_str());
  return text;
}

[[noreturn]] void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Core* c = current();
  std::string full = c->where() + ": " + text;
  if (threads()) end_thread(full);
  throw Error{full};
}

std::string Core::where() const {
  char text[300];
  const char* name = kind == 0 ? "AIC" : kind == 1 ? "AIV0" : "AIV1";
  int n = snprintf(text, sizeof text, "kernel %s, block %d %s, pipe %s", group->kernel, index, name,
                   kPipeNames[doing_pipe]);
  if (doing_pipe != S)
    n += snprintf(text + n, sizeof text - n, ", instruction %lu %s", (unsigned long)doing_number, doing);
  else if (*doing) n += snprintf(text + n, sizeof text - n, ", %s", doing);
  std::string s = text;
  if (threads()) s += ", thread " + std::to_string(thread_number());
  return s;
}

void check(Region* memory, const void* p, size_t bytes, size_t align, const char* what) {
  if (!memory) fail("%s: this kernel has no core with that memory", what);
  const long at = (const uint8_t*)p - memory->base;
  if (at < 0 || size_t(at) + bytes > memory->bytes)
    fail("%s: bytes [%ld, %ld) are outside the %zu KiB of %s", what, at, at + long(bytes), memory->bytes / kKiB,
         memory->name.c_str());
  if (size_t(at) % align) fail("%s: offset %ld is not a multiple of %zu bytes", what, at, align);
  if (bytes && size_t(at) + bytes > memory->high) memory->high = size_t(at) + bytes;
}

void check_ub(const void* p, size_t bytes, size_t align, const char* what) {
  check(current()->ub, p, bytes, align, what);
}

void check_gm(const void* p, size_t bytes, const char* what) {
  if (!bytes) return;
  Arena* arena = current()->group->arena;
  Region* r = arena->find(p);
  if (!r || r->space != Space::gm || (const uint8_t*)p + bytes > r->base + r->bytes)
    fail("%s: %zu bytes of global memory outside every argument (%s)", what, bytes,
         r && r->space == Space::gm ? arena->describe((const uint8_t*)p + bytes).c_str() : arena->describe(p).c_str());
  const size_t end = size_t((const uint8_t*)p - r->base) + bytes;
  if (end > r->high) r->high = end;
}

void* space_base(Space space) {
  Core* c = current();
  Core *cube = c->block->aic, *vec = c->kind ? c : c->block->aiv[0];
  Region* r = nullptr;
  switch (space) {
    case Space::ub:
      r = vec ? vec->ub : nullptr;
      break;
    case Space::l1:
      r = cube ? cube->l1 : nullptr;
      break;
    case Space::l0a:
      r = cube ? cube->l0a : nullptr;
      break;
    case Space::l0b:
      r = cube ? cube->l0b : nullptr;
      break;
    case Space::l0c:
      r = cube ? cube->l0c : nullptr;
      break;
    default:
      break;
  }
  return r ? r->base : nullptr;
}

int core_kind() { return current()->kind; }
int core_block() { return current()->index; }
void count_global(size_t bytes) { current()->stats.global += bytes; }
void count_bytes(size_t bytes) { current()->stats.bytes[current()->doing_pipe] += bytes; }

}  // namespace ascsim
