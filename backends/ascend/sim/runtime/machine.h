// The model's state: memories, cores with their pipes, and the group of cores that can affect each other.
//
// Each core is an operating system thread, of which one at a time runs. The program of a core only puts instructions
// into the queues of its pipes; flags, mutexes and counters hold the head of a queue back. Which of the ready heads
// goes next, and which core, is the schedule's choice, so that order is decided by synchronisation and never by the
// order of the text.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "../include/ascsim/runtime.h"

namespace ascsim {

constexpr int kPipes = 7;  // S V M MTE1 MTE2 MTE3 FIX, as pipe_t numbers them
enum { S, V, M, MTE1, MTE2, MTE3, FIX, ALL };
extern const char* const kPipeNames[kPipes + 1];

constexpr size_t kKiB = 1024;
constexpr size_t kL1 = 512 * kKiB, kL0A = 64 * kKiB, kL0B = 64 * kKiB, kL0C = 256 * kKiB, kBias = 4 * kKiB;
// 256 KiB, of which 8 are reserved; SIMT functions take at least 32 more as data cache.
constexpr size_t kUbSimd = 248 * kKiB, kUbSimt = 216 * kKiB;

struct Core;

struct Cell {  // of one byte: who touched it in the present phase of a SIMT function
  uint32_t phase;
  uint16_t writer, reader;  // thread + 1; kMany for several readers, kAtomic for atomic updates
};
constexpr uint16_t kMany = 0xffff, kAtomic = 0xfffe;

struct Region {  // one memory or one argument
  uint8_t* base = nullptr;
  size_t bytes = 0;
  Space space = Space::gm;
  Core* core = nullptr;
  std::string name;
  size_t high = 0;  // end of the highest byte touched
  Cell* cells = nullptr;
};

// Address range that holds every region, with unmapped pages between them.
class Arena {
 public:
  explicit Arena(size_t bytes);
  ~Arena();
  Region* add(size_t bytes, size_t guard, Space space, Core* core, std::string name);
  Region* find(const void* p) const;
  bool holds(const void* p) const { return size_t((const uint8_t*)p - base_) < bytes_; }
  Cell* cells(Region* r);
  std::string describe(const void* p) const;  // the nearest region and the distance from it

 private:
  uint8_t* base_;
  size_t bytes_ = 0, first_ = 0, used_ = 0, end_ = 0;  // regions lie in [first_, used_), and may up to end_
  std::vector<std::unique_ptr<Region>> regions_;
};

struct Op {
  const char* name;
  Wait wait = Wait::none;
  int a = 0, b = 0;
  uint64_t c = 0;
  bool copy = false;    // may overlap its neighbours in the pipe
  bool silent = false;  // synchronisation: not counted as an instruction
  std::function<void()> run;
  uint64_t number = 0;  // position in its pipe
};

struct Stats {
  uint64_t ops[kPipes] = {}, bytes[kPipes] = {}, flop = 0, cube_steps = 0, threads = 0, barriers = 0;
  uint64_t global = 0;  // bytes from and to global memory
  uint64_t simt_busy = 0, simt_offered = 0;  // accesses of threads, and those of warps whose lanes all did as many
};

struct Group;
struct Block;
struct Error {
  std::string text;
};

struct Core {
  Group* group = nullptr;
  Block* block = nullptr;
  int kind = 0, index = 0, order = 0;
  bool scalar_done = false, finished = false;
  std::deque<Op> queue[kPipes];
  uint64_t issued[kPipes] = {};
  int flag[kPipes][kPipes][8] = {};
  int intra[32] = {};
  uint64_t unlocks_issued[32] = {}, unlocks_done[32] = {};
  int held[32] = {}, holder[32] = {};
  uint64_t unit_m_issued = 0, unit_m_done = 0, unit_f_issued = 0, unit_f_done = 0;
  uint64_t inter_waits[32] = {}, inter_arrivals[32] = {};
  Region *ub = nullptr, *l1 = nullptr, *l0a = nullptr, *l0b = nullptr, *l0c = nullptr;
  std::vector<float> bias;
  std::vector<uint8_t> scales_a, scales_b;  // at 1/16 of the L0 address they belong to
  // registers, read when an instruction is issued
  uint32_t nz_num = 1, nz_n = 1, nz_c0 = 0, nz_matrix = 0, pad = 0;
  int atomic = 0;
  Type atomic_type = Type::f32;
  Stats stats;
  const char* doing = "";  // instruction in execution, its pipe and number
  int doing_pipe = S;
  uint64_t doing_number = 0;
  const char* waiting = "";  // what the program itself waits for
  std::string wait_text;
  uint64_t calls = 0;
  std::string where() const;
};

struct Block {
  Core* aic = nullptr;
  Core* aiv[2] = {};
};

struct Schedule {
  enum Kind { eager, lazy, last, first, random };
  int kind = eager, pipe = 0, late = -1;  // late: kind of core that gets its turn when no other can go on
  uint64_t seed = 0;
  bool reverse_cores = false, reverse_threads = false, overlap = false, relaxed = false;
};

struct Event {
  int block, kind, pipe;
  const char* name;
  uint64_t number;
};

struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Core*> cores;
  Schedule schedule;
  std::mt19937_64 rng;
  const char* kernel = "";
  Arena* arena = nullptr;
  int turn = 0, cube_cores = 0, vector_cores = 0, stuck = 0;
  uint64_t progress = 0, stuck_at = 0, inter_arrived[2][32] = {};
  uint32_t phase = 0;
  bool abort = false;
  std::string error;
  double deadline = 0;  // seconds, steady clock
  bool trace = false;
  std::vector<Event>* events = nullptr;
};

Core* current();
void set_current(Core* core);
double now();

void push(int pipe, Op op);
bool step(Core* core);
template <class F>
void wait_until(Core* core, const char* what, F done);
bool pump(Core* core);  // one step, or the turn to another core; throws on deadlock and time-out
std::string heads(Group* group);
void hand_over(Core* core, std::unique_lock<std::mutex>& lock);

// Range [p, p + bytes) of a memory: inside it, and p a multiple of `align`.
void check(Region* memory, const void* p, size_t bytes, size_t align, const char* what);
void count_bytes(size_t bytes);   // moved by the pipe in execution
void count_global(size_t bytes);  // from or to global memory

// SIMT (simt.cpp) and the watch over raw accesses (access.cpp)
struct Threads;
Threads* threads();  // of the SIMT function in execution, or null
int thread_number();
void count_access(const Region* r, size_t bytes);  // of the thread in execution
void end_thread(const std::string& text);
void begin_phase(Core* core);
void settle_write();

template <class F>
void wait_until(Core* core, const char* what, F done) {
  core->waiting = what;
  while (!done()) pump(core);
  core->waiting = "";
}

}  // namespace ascsim
