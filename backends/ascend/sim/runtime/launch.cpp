// Runs the blocks of a launch and collects what happened.
#include "launch.h"

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "machine.h"

namespace ascsim {

extern thread_local sigjmp_buf* escape;
extern thread_local std::string escape_text;
unsigned char site_on[kSites];
uint64_t simd_busy = 0, simd_offered = 0;
int64_t site_delta;

namespace {
constexpr size_t kGmGuard = size_t(256) << 20, kChipGuard = size_t(2) << 20;
std::vector<Event> the_events;
thread_local void* fault_address = nullptr;

void on_fault(int number, siginfo_t* info, void*) {
  fault_address = info->si_addr;
  if (escape) siglongjmp(*escape, number == SIGFPE ? 3 : number == SIGILL ? 4 : 1);
  _exit(139);
}

struct Handlers {  // for the time of a launch
  struct sigaction old_segv, old_fpe, old_bus, old_ill;
  Handlers() {
    struct sigaction a{};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &a, &old_segv);
    sigaction(SIGFPE, &a, &old_fpe);
    sigaction(SIGBUS, &a, &old_bus);
    sigaction(SIGILL, &a, &old_ill);
  }
  ~Handlers() {
    sigaction(SIGSEGV, &old_segv, nullptr);
    sigaction(SIGFPE, &old_fpe, nullptr);
    sigaction(SIGBUS, &old_bus, nullptr);
    sigaction(SIGILL, &old_ill, nullptr);
  }
};

struct World {  // one group and what it owns
  Group group;
  std::vector<std::unique_ptr<Core>> cores;
  std::vector<std::unique_ptr<Block>> blocks;
};

void add_core(World& w, Block* block, int kind, int index, bool simt) {
  auto core = std::make_unique<Core>();
  Core* c = core.get();
  c->group = &w.group;
  c->block = block;
  c->kind = kind;
  c->index = index;
  c->order = int(w.group.cores.size());
  char name[64];
  auto memory = [&](size_t bytes, Space space, const char* what) {
    snprintf(name, sizeof name, "%s of block %d %s", what, index, kind == 0 ? "AIC" : kind == 1 ? "AIV0" : "AIV1");
    return w.group.arena->add(bytes, kChipGuard, space, c, name);
  };
  if (kind) {
    c->ub = simt ? memory(kUbSimt, Space::ub, "UB (248 KiB less 32 for the SIMT data cache)")
                 : memory(kUbSimd, Space::ub, "UB");
    block->aiv[kind - 1] = c;
    w.group.vector_cores++;
  } else {
    c->l1 = memory(kL1, Space::l1, "L1");
    c->l0a = memory(kL0A, Space::l0a, "L0A");
    c->l0b = memory(kL0B, Space::l0b, "L0B");
    c->l0c = memory(kL0C, Space::l0c, "L0C");
    block->aic = c;
    w.group.cube_cores++;
  }
  w.group.cores.push_back(c);
  w.cores.push_back(std::move(core));
}

// The program of a core, on its thread. Returns what went wrong, or "".
std::string run_core(Core* c, Entry entry, void* const* arguments) {
  set_current(c);
  static thread_local std::vector<uint8_t> alternative(1 << 16);
  stack_t stack{};
  stack.ss_sp = alternative.data();
  stack.ss_size = alternative.size();
  sigaltstack(&stack, nullptr);
  sigjmp_buf out;
  escape = &out;
  const int why = sigsetjmp(out, 1);
  if (why == 2) return escape_text;
  if (why == 3) return c->where() + ": integer division by zero";
  // Where the compiler sees that a path divides by zero or reads through a null pointer, it puts a trap.
  if (why == 4) return c->where() + ": undefined behaviour, a division by the constant zero or the like";
  if (why == 1) return c->where() + ": access outside every memory (" + c->group->arena->describe(fault_address) + ")";
  try {
    entry(arguments);
    c->scalar_done = true;
    drain();
  } catch (Error& e) {
    return e.text.empty() ? " " : e.text;
  }
  return "";
}

void thread_of(World& w, Core* c, Entry entry, void* const* arguments) {
  Group& g = w.group;
  {
    std::unique_lock<std::mutex> lock(g.mutex);
    g.changed.wait(lock, [&] { return g.abort || g.turn == c->order; });
  }
  std::string problem = g.abort ? " " : run_core(c, entry, arguments);
  escape = nullptr;
  std::unique_lock<std::mutex> lock(g.mutex);
  c->finished = true;
  g.progress++;
  if (!problem.empty()) {
    if (g.error.empty()) g.error = problem;
    g.abort = true;
    g.changed.notify_all();
  } else if (!g.abort) hand_over(c, lock);
}

// Flags, counters and locks that are left over: the next launch on that core would start from them.
std::string left_over(Core* c) {
  const std::string where = c->where() + ": the kernel ends with ";
  for (int s = 0; s < kPipes; s++)
    for (int d = 0; d < kPipes; d++)
      for (int id = 0; id < 8; id++)
        if (c->flag[s][d][id])
          return where + "flag " + kPipeNames[s] + "->" + kPipeNames[d] + " id " + std::to_string(id) + " still set";
  for (int id = 0; id < 32; id++) {
    if (c->intra[id]) return where + "counter " + std::to_string(id) + " at " + std::to_string(c->intra[id]);
    if (c->held[id]) return where + "mutex " + std::to_string(id) + " locked";
    if (c->inter_arrivals[id] > c->inter_waits[id])
      return where + "an arrival at the barrier of all cores, id " + std::to_string(id) + ", that it did not wait for";
  }
  return "";
}

void collect(Request* q, Core* c) {
  for (int p = 0; p < kPipes; p++) {
    q->ops[p] += c->stats.ops[p];
    q->bytes[p] += c->stats.bytes[p];
  }
  q->flop += c->stats.flop;
  q->cube_steps += c->stats.cube_steps;
  q->threads += c->stats.threads;
  q->global += c->stats.global;
  q->barriers += c->stats.barriers;
  q->simt_busy += c->stats.simt_busy;
  q->simt_offered += c->stats.simt_offered;
  Region* memories[5] = {c->ub, c->l1, c->l0a, c->l0b, c->l0c};
  for (int i = 0; i < 5; i++)
    if (memories[i] && memories[i]->high > q->high[i]) q->high[i] = memories[i]->high;
}

std::string run_group(Request* q, Entry entry, void* const* arguments, Arena* arena, int first, int count) {
  World w;
  Group& g = w.group;
  g.schedule.kind = q->schedule;
  g.schedule.pipe = q->pipe;
  g.schedule.late = q->late;
  g.schedule.seed = q->seed;
  g.schedule.reverse_cores = q->reverse_cores != 0;
  g.schedule.reverse_threads = q->reverse_threads != 0;
  g.schedule.overlap = q->overlap != 0;
  g.schedule.relaxed = q->relaxed != 0;
  g.rng.seed(q->seed * 7919 + uint64_t(first));
  g.kernel = q->kernel;
  g.arena = arena;
  g.deadline = now() + q->seconds;
  g.trace = q->trace != 0;
  g.events = &the_events;
  for (int b = first; b < first + count; b++) {
    w.blocks.push_back(std::make_unique<Block>());
    Block* block = w.blocks.back().get();
    if (q->kind != 0) add_core(w, block, 0, b, q->simt);
    if (q->kind != 1) add_core(w, block, 1, b, q->simt);
    if (q->kind == 2) add_core(w, block, 2, b, q->simt);
  }
  for (Core* c : g.cores)
    if (c->kind != g.schedule.late) {
      g.turn = c->order;
      break;
    }
  std::vector<std::thread> running;
  for (Core* c : g.cores) running.emplace_back([&, c] { thread_of(w, c, entry, arguments); });
  for (auto& t : running) t.join();
  std::string error = g.abort ? g.error : "";
  for (Core* c : g.cores) {
    if (error.empty() && !g.schedule.relaxed) error = left_over(c);
    collect(q, c);
  }
  return error;
}

std::string run(Request* q, Entry entry) {
  size_t total = 0;
  for (int i = 0; i < q->arguments; i++) total += size_t(q->argument[i].bytes) + 2 * kGmGuard;
  // Blocks that cannot affect each other run one after the other; in each the memories lie anew.
  const int per_group = q->joint ? q->blocks : 1;
  const size_t chip = size_t(per_group) * 3 * 5 * (2 * kChipGuard + kL1);
  std::string error;
  for (int k = 0; k < q->blocks && error.empty(); k += per_group) {
    const int first = q->reverse_cores ? q->blocks - per_group - k : k;
    Arena arena(total + chip + (size_t(1) << 30));
    std::vector<Region*> regions(size_t(q->arguments), nullptr);
    std::vector<void*> arguments;
    for (int i = 0; i < q->arguments; i++) {
      ArgumentPart& a = q->argument[i];
      if (!a.data) {
        arguments.push_back((void*)intptr_t(a.value));
        continue;
      }
      // Two parameters of the same bytes: an operation in place.
      int same = 0;
      while (same < i && (q->argument[same].data != a.data || q->argument[same].bytes != a.bytes)) same++;
      if (same < i && a.bytes) {
        arguments.push_back(regions[size_t(same)]->base);
        continue;
      }
      Region* r = arena.add(size_t(a.bytes), kGmGuard, Space::gm, nullptr, std::string("argument ") + a.name);
      std::memcpy(r->base, a.data, size_t(a.bytes));
      regions[size_t(i)] = r;
      arguments.push_back(r->base);
    }
    error = run_group(q, entry, arguments.data(), &arena, first, per_group);
    for (int i = 0; i < q->arguments; i++) {
      if (!regions[size_t(i)]) continue;
      std::memcpy(q->argument[i].data, regions[size_t(i)]->base, size_t(q->argument[i].bytes));
      if (int64_t(regions[size_t(i)]->high) > q->argument[i].touched)
        q->argument[i].touched = int64_t(regions[size_t(i)]->high);
    }
  }
  return error;
}
}  // namespace

int launch(Request* q, Entry entry) {
  Handlers handlers;
  the_events.clear();
  for (int i = 0; i < q->sites; i++) site_on[q->site[i]] = 1;
  site_delta = q->delta;
  simd_busy = simd_offered = 0;
  std::string error;
  try {
    error = run(q, entry);
  } catch (Error& e) {
    error = e.text;
  }
  std::memset(site_on, 0, sizeof site_on);
  q->events = the_events.size();
  q->simd_busy = simd_busy;
  q->simd_offered = simd_offered;
  snprintf(q->error, size_t(q->error_bytes), "%s", error.c_str());
  return error.empty() ? 0 : 1;
}

}  // namespace ascsim

int64_t ascsim_event(int64_t i, int32_t* block, int32_t* kind, int32_t* pipe, const char** name) {
  const auto& e = ascsim::the_events[size_t(i)];
  *block = e.block;
  *kind = e.kind;
  *pipe = e.pipe;
  *name = e.name;
  return int64_t(e.number);
}
