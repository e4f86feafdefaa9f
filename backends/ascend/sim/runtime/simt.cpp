// SIMT functions: threads as coroutines, barriers, warp collectives. SIMD functions run at once.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "machine.h"

extern "C" void ascsim_switch(void** save, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden ascsim_switch
.globl ascsim_switch
.type ascsim_switch,@function
ascsim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

thread_local ascsim::Index3 threadIdx{0, 0, 0}, blockDim{1, 1, 1};

namespace ascsim {

constexpr unsigned kMostThreads = 2048, kWarp = 32;
constexpr size_t kStack = 64 * kKiB;

enum class State { ready, barrier, warp, done };
struct Thread {
  void* sp = nullptr;
  State state = State::ready;
  Index3 index{};
  Warp kind{};
  uint64_t value = 0, result = 0;
  int argument = 0;
  uint64_t accesses = 0;  // since the last barrier
};
struct Threads {
  std::vector<Thread> all;
  std::vector<uint8_t*> stacks;  // kept for the next launch
  void* main_sp = nullptr;
  unsigned running = 0;
  bool inside = false;
  std::function<void()>* body = nullptr;
  std::string error;
  ~Threads() {
    for (auto* s : stacks) munmap(s, kStack);
  }
};

namespace {
thread_local Threads the_threads;

void yield(State state) {
  Threads& s = the_threads;
  settle_write();
  Thread& t = s.all[s.running];
  t.state = state;
  s.inside = false;
  ascsim_switch(&t.sp, s.main_sp);
}

void thread_main() {
  (*the_threads.body)();
  yield(State::done);
  __builtin_trap();
}

template <class T>
T as(uint64_t bits) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
template <class T, class F>
void reduce(std::vector<Thread>& t, unsigned from, unsigned to, F f) {
  T r = as<T>(t[from].value);
  for (unsigned i = from + 1; i < to; i++) r = f(r, as<T>(t[i].value));
  for (unsigned i = from; i < to; i++) {
    t[i].result = 0;
    std::memcpy(&t[i].result, &r, sizeof r);
  }
}

void finish_warp(std::vector<Thread>& t, unsigned from, unsigned to) {
  auto add = [](auto a, auto b) { return decltype(a)(a + b); };
  auto larger = [](auto a, auto b) { return a > b ? a : b; };
  auto smaller = [](auto a, auto b) { return a < b ? a : b; };
  switch (t[from].kind) {
    case Warp::add_f:
      return reduce<float>(t, from, to, add);
    case Warp::add_i:
      return reduce<uint32_t>(t, from, to, add);
    case Warp::max_f:
      return reduce<float>(t, from, to, larger);
    case Warp::max_i:
      return reduce<int32_t>(t, from, to, larger);
    case Warp::max_u:
      return reduce<uint32_t>(t, from, to, larger);
    case Warp::min_f:
      return reduce<float>(t, from, to, smaller);
    case Warp::min_i:
      return reduce<int32_t>(t, from, to, smaller);
    case Warp::min_u:
      return reduce<uint32_t>(t, from, to, smaller);
    case Warp::ballot: {
      uint32_t mask = 0;
      for (unsigned i = from; i < to; i++)
        if (t[i].value) mask |= 1u << (i - from);
      for (unsigned i = from; i < to; i++) t[i].result = mask;
      return;
    }
    default:
      for (unsigned i = from; i < to; i++) {
        const int lane = int(i - from), width = t[i].argument & 63, a = t[i].argument >> 6, first = lane / width * width;
        const int source = t[i].kind == Warp::shfl_xor    ? lane ^ a
                           : t[i].kind == Warp::shfl_down ? lane + a
                           : t[i].kind == Warp::shfl_up   ? lane - a
                                                          : first + a;
        const bool inside = source >= first && source < first + width && from + unsigned(source) < to;
        t[i].result = inside ? t[from + unsigned(source)].value : t[i].value;
      }
  }
}

void create(Threads& s, unsigned x, unsigned y, unsigned n) {
  while (s.stacks.size() < n) {
    void* p = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("the simulator cannot map the stacks of %u threads", n);
    s.stacks.push_back(static_cast<uint8_t*>(p));
  }
  s.all.assign(n, Thread{});
  for (unsigned i = 0; i < n; i++) {
    s.all[i].index = {i % x, i / x % y, i / (x * y)};
    void** top = (void**)(s.stacks[i] + kStack - 64);
    *--top = nullptr;
    *--top = (void*)thread_main;
    for (int k = 0; k < 6; k++) *--top = nullptr;
    s.all[i].sp = top;
  }
}

// Warps go as far as their busiest lane: what the others do less, their lanes stand idle.
void count_lanes(Core* c, Threads& s) {
  for (size_t from = 0; from < s.all.size(); from += kWarp) {
    uint64_t most = 0;
    for (size_t i = from; i < std::min(from + kWarp, s.all.size()); i++) {
      most = std::max(most, s.all[i].accesses);
      c->stats.simt_busy += s.all[i].accesses;
      s.all[i].accesses = 0;
    }
    c->stats.simt_offered += most * kWarp;
  }
}

[[noreturn]] void diverged(const Threads& s) {
  unsigned done = 0, barrier = 0, warp = 0;
  for (auto& t : s.all) {
    done += t.state == State::done;
    barrier += t.state == State::barrier;
    warp += t.state == State::warp;
  }
  fail(
      "divergence: of %zu threads %u have ended, %u wait in asc_syncthreads, %u in a warp collective that not all "
      "threads of the warp reach",
      s.all.size(), done, barrier, warp);
}

// Warps whose threads all wait in the same collective go on; so do all threads once all are at the barrier.
bool release(Core* c, Threads& s) {
  bool moved = false;
  const unsigned n = unsigned(s.all.size());
  for (unsigned from = 0; from < n; from += kWarp) {
    const unsigned to = std::min(from + kWarp, n);
    bool together = true;
    for (unsigned i = from; i < to; i++)
      together = together && s.all[i].state == State::warp && s.all[i].kind == s.all[from].kind;
    if (!together) continue;
    finish_warp(s.all, from, to);
    for (unsigned i = from; i < to; i++) s.all[i].state = State::ready;
    moved = true;
  }
  if (std::all_of(s.all.begin(), s.all.end(), [](const Thread& t) { return t.state == State::barrier; })) {
    for (auto& t : s.all) t.state = State::ready;
    c->stats.barriers++;
    count_lanes(c, s);
    begin_phase(c);
    moved = true;
  }
  return moved;
}

void run_threads(unsigned x, unsigned y, unsigned z, unsigned bound, std::function<void()>& body) {
  Core* c = current();
  Threads& s = the_threads;
  const uint64_t total = uint64_t(x) * y * z;
  if (!total || total > kMostThreads) fail("launch of %lu threads; 1 to %u", (unsigned long)total, kMostThreads);
  if (total > bound)
    fail("launch of %lu threads exceeds the function's launch bound of %u", (unsigned long)total, bound);
  const unsigned n = unsigned(total);
  blockDim = {x, y, z};
  s.body = &body;
  s.error.clear();
  create(s, x, y, n);
  begin_phase(c);
  const bool reverse = c->group->schedule.reverse_threads;
  for (unsigned done = 0; done < n;) {
    bool moved = false;
    for (unsigned k = 0; k < n; k++) {
      const unsigned i = reverse ? n - 1 - k : k;
      if (s.all[i].state != State::ready) continue;
      moved = true;
      s.running = i;
      s.inside = true;
      threadIdx = s.all[i].index;
      ascsim_switch(&s.main_sp, s.all[i].sp);
      if (!s.error.empty()) throw Error{s.error};
      done += s.all[i].state == State::done;
    }
    moved = release(c, s) || moved;
    if (!moved && done < n) diverged(s);
  }
  count_lanes(c, s);
  c->stats.threads += n;
}
}  // namespace

Threads* threads() { return the_threads.inside ? &the_threads : nullptr; }
int thread_number() { return int(the_threads.running); }
void count_access(const Region* r, size_t bytes) {
  the_threads.all[the_threads.running].accesses++;
  if (r->space == Space::gm) count_global(bytes);
}

void end_thread(const std::string& text) {
  if (the_threads.error.empty()) the_threads.error = text;
  yield(State::done);
  __builtin_trap();
}

void thread_barrier() {
  if (!threads()) fail("asc_syncthreads outside a SIMT function");
  yield(State::barrier);
}

uint64_t warp_collective(Warp kind, uint64_t value, int argument) {
  if (!threads()) fail("a warp collective outside a SIMT function");
  Thread& t = the_threads.all[the_threads.running];
  t.kind = kind;
  t.argument = argument;
  t.value = value;
  yield(State::warp);
  return the_threads.all[the_threads.running].result;
}

void device_assert(const char* condition) { fail("device assertion failed: %s", condition); }

void push_simt(const char* name, unsigned x, unsigned y, unsigned z, unsigned bound, std::function<void()> body) {
  push(V, {.name = name, .run = [=]() mutable { run_threads(x, y, z, bound, body); }});
}
void push_simd(const char* name, std::function<void()> body) { push(V, {.name = name, .run = std::move(body)}); }

}  // namespace ascsim
