// Pipes, flags, mutexes, counters, and the schedules that choose among what is ready.
#include <chrono>
#include <cstdio>

#include "machine.h"

namespace ascsim {

namespace {
thread_local Core* the_core = nullptr;
constexpr size_t kQueued = 20000;   // instructions a program may run ahead of its pipes
constexpr size_t kOutstanding = 8;  // copies of a pipe that may overlap

bool ready(Core* c, const Op& o) {
  switch (o.wait) {
    case Wait::flag:
      return c->flag[o.a][o.b][o.c] > 0;
    case Wait::intra:
      return c->intra[o.c] > 0;
    case Wait::mutex:
      return c->unlocks_done[o.a] >= o.c;
    case Wait::inter: {
      const int k = c->kind ? 1 : 0;
      const uint64_t n = uint64_t(k ? c->group->vector_cores : c->group->cube_cores);
      return c->group->inter_arrived[k][o.a] >= n * o.c;
    }
    case Wait::unit:
      return (o.a == 0 ? c->unit_m_done : c->unit_f_done) >= o.c;
    default:
      return true;
  }
}

std::string describe(const Core* c, const Op& o) {
  char text[160] = "";
  switch (o.wait) {
    case Wait::flag:
      snprintf(text, sizeof text, " waits for flag %s->%s id %d", kPipeNames[o.a], kPipeNames[o.b], int(o.c));
      break;
    case Wait::intra: {
      const char* from = c->kind ? "AIC" : o.c < 16 ? "AIV0" : "AIV1";
      snprintf(text, sizeof text, " waits for an arrival of %s, counter %d", from, int(o.c));
      break;
    }
    case Wait::mutex:
      snprintf(text, sizeof text, " waits for mutex %d (%d of %d unlocks done)", o.a, int(c->unlocks_done[o.a]),
               int(o.c));
      break;
    case Wait::inter: {
      const int k = c->kind ? 1 : 0;
      const uint64_t n = uint64_t(k ? c->group->vector_cores : c->group->cube_cores);
      snprintf(text, sizeof text, " waits for all cores, id %d (%lu of %lu arrivals)", o.a,
               (unsigned long)c->group->inter_arrived[k][o.a], (unsigned long)(n * o.c));
      break;
    }
    case Wait::unit:
      snprintf(text, sizeof text, " waits for the unit flag of pipe %s", o.a == 0 ? "M" : "FIX");
      break;
    default:
      break;
  }
  return text;
}

// Which of the copies at the head of a pipe completes next: the first, or under overlap one that was issued after it.
size_t choose_copy(Core* c, int pipe) {
  auto& q = c->queue[pipe];
  if (!c->group->schedule.overlap || !q.front().copy) return 0;
  size_t n = 1;
  while (n < q.size() && n < kOutstanding && q[n].copy) n++;
  return c->group->schedule.kind == Schedule::random ? c->group->rng() % n : n - 1;
}

void execute(Core* c, int pipe) {
  const size_t i = choose_copy(c, pipe);
  Op o = std::move(c->queue[pipe][i]);
  c->queue[pipe].erase(c->queue[pipe].begin() + long(i));
  if (o.wait == Wait::flag) c->flag[o.a][o.b][o.c]--;
  if (o.wait == Wait::intra) c->intra[o.c]--;
  c->doing = o.name;
  c->doing_pipe = pipe;
  c->doing_number = o.number;
  if (c->group->trace) c->group->events->push_back({c->index, c->kind, pipe, o.name, o.number});
  if (o.run) o.run();
  if (!o.silent) c->stats.ops[pipe]++;
  c->doing = "";
  c->doing_pipe = S;
  c->group->progress++;
}

int pick(Group* g, const std::vector<int>& ready_pipes, size_t& turn) {
  const Schedule& s = g->schedule;
  if (s.kind == Schedule::random) return ready_pipes[g->rng() % ready_pipes.size()];
  if (s.kind == Schedule::first)
    for (int p : ready_pipes)
      if (p == s.pipe) return p;
  if (s.kind == Schedule::last) {
    std::vector<int> others;
    for (int p : ready_pipes)
      if (p != s.pipe) others.push_back(p);
    return others.empty() ? ready_pipes[0] : others[turn++ % others.size()];
  }
  return ready_pipes[turn++ % ready_pipes.size()];
}

void check_time(Core* c) {
  if ((++c->calls & 255) == 0 && now() > c->group->deadline) fail("time limit reached\n%s", heads(c->group).c_str());
}

// The program's own part of a synchronisation: named in errors.
struct Doing {
  Core* c;
  Doing(Core* core, const char* name) : c(core) { c->doing = name; }
  ~Doing() { c->doing = ""; }
};

int check_id(uint64_t id, uint64_t limit, const char* what) {
  if (id >= limit) fail("%s: id %ld is outside 0 to %lu", what, long(id), (unsigned long)(limit - 1));
  return int(id);
}
void check_pipe(int pipe, const char* what) {
  if (pipe < 0 || pipe >= kPipes) fail("%s: no single pipe", what);
}
}  // namespace

Core* current() { return the_core; }
void set_current(Core* core) { the_core = core; }
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool step(Core* c) {
  static thread_local size_t turn = 0;
  std::vector<int> pipes;
  for (int p = 1; p < kPipes; p++)
    if (!c->queue[p].empty() && ready(c, c->queue[p].front())) pipes.push_back(p);
  if (pipes.empty()) return false;
  execute(c, pick(c->group, pipes, turn));
  return true;
}

void push(int pipe, Op op) {
  Core* c = current();
  op.number = ++c->issued[pipe];
  c->queue[pipe].push_back(std::move(op));
  check_time(c);
  if (c->group->schedule.kind == Schedule::eager) {
    while (step(c)) {
    }
    return;
  }
  size_t n = 0;
  for (int p = 1; p < kPipes; p++) n += c->queue[p].size();
  if (n > kQueued)
    for (size_t i = 0; i < kQueued / 4 && step(c); i++) {
    }
}

std::string heads(Group* g) {
  std::string s;
  for (Core* c : g->cores) {
    char text[300];
    const char* name = c->kind == 0 ? "AIC" : c->kind == 1 ? "AIV0" : "AIV1";
    if (!c->finished) {
      const char* state = c->scalar_done ? "at its end" : *c->waiting ? "waits for " : "runs";
      const char* what = c->scalar_done ? "" : c->waiting;
      snprintf(text, sizeof text, "  block %d %s program: %s%s\n", c->index, name, state, what);
      s += text;
    }
    for (int p = 1; p < kPipes; p++) {
      if (c->queue[p].empty()) continue;
      const Op& o = c->queue[p].front();
      snprintf(text, sizeof text, "  block %d %s pipe %s: instruction %lu %s%s; %zu queued\n", c->index, name,
               kPipeNames[p], (unsigned long)o.number, o.name, describe(c, o).c_str(), c->queue[p].size());
      s += text;
    }
  }
  return s;
}

// The turn goes to another unfinished core; returns when it is back.
void hand_over(Core* c, std::unique_lock<std::mutex>& lock) {
  Group* g = c->group;
  const int n = int(g->cores.size()), me = c->order;
  int next = -1, alive = 0;
  for (Core* x : g->cores) alive += !x->finished;
  // A late core stays behind as long as others get on.
  auto waits = [&](const Core* x) { return x->finished || (x->kind == g->schedule.late && g->stuck < 2 * alive); };
  if (g->schedule.kind == Schedule::random) {
    std::vector<int> others;
    for (int i = 0; i < n; i++)
      if (i != me && !waits(g->cores[i])) others.push_back(i);
    if (!others.empty()) next = others[g->rng() % others.size()];
  } else {
    const int by = g->schedule.reverse_cores ? n - 1 : 1;
    for (int k = 1; k < n && next < 0; k++)
      if (!waits(g->cores[(me + k * by) % n])) next = (me + k * by) % n;
  }
  for (int i = 0; i < n && next < 0; i++)  // only late ones are left beside this one
    if (i != me && !g->cores[i]->finished && (c->finished || g->stuck >= alive)) next = i;
  if (next < 0) {
    if (c->finished) {
      g->turn = -1;
      g->changed.notify_all();
      return;
    }
    next = me;
  }
  g->turn = next;
  g->changed.notify_all();
  if (c->finished) return;
  g->changed.wait(lock, [&] { return g->abort || g->turn == me; });
  if (g->abort) throw Error{""};
}

bool pump(Core* c) {
  if (step(c)) return true;
  Group* g = c->group;
  if (now() > g->deadline) fail("time limit reached\n%s", heads(g).c_str());
  std::unique_lock<std::mutex> lock(g->mutex);
  if (g->stuck_at != g->progress) {
    g->stuck_at = g->progress;
    g->stuck = 0;
  }
  int alive = 0;
  for (Core* x : g->cores) alive += !x->finished;
  const int patience = g->schedule.kind == Schedule::random ? 40 * alive + 400 : 6 * alive + 16;
  if (++g->stuck > patience) {
    g->error = std::string("kernel ") + g->kernel + ": deadlock, nothing can run\n" + heads(g);
    g->abort = true;
    g->changed.notify_all();
    throw Error{""};
  }
  hand_over(c, lock);
  return false;
}

// ---- synchronisation ----

void flag_notify(int src, int dst, int id) {
  Core* c = current();
  Doing doing(c, "asc_sync_notify");
  check_pipe(src, "asc_sync_notify");
  check_pipe(dst, "asc_sync_notify");
  check_id(uint64_t(id), 8, "asc_sync_notify");
  auto set = [=] {
    if (++c->flag[src][dst][id] > 1 && !c->group->schedule.relaxed)
      fail("flag %s->%s id %d is set again before it was waited for", kPipeNames[src], kPipeNames[dst], id);
  };
  if (src == S) {
    set();
    c->group->progress++;
  } else push(src, {.name = "asc_sync_notify", .silent = true, .run = set});
}

void flag_wait(int src, int dst, int id) {
  Core* c = current();
  Doing doing(c, "asc_sync_wait");
  check_pipe(src, "asc_sync_wait");
  check_pipe(dst, "asc_sync_wait");
  check_id(uint64_t(id), 8, "asc_sync_wait");
  Op o{.name = "asc_sync_wait", .wait = Wait::flag, .a = src, .b = dst, .c = uint64_t(id), .silent = true};
  if (dst != S) return push(dst, std::move(o));
  c->wait_text = "flag " + std::string(kPipeNames[src]) + "->S id " + std::to_string(id);
  wait_until(c, c->wait_text.c_str(), [&] { return ready(c, o); });
  c->flag[src][dst][id]--;
}

void mutex_lock(int pipe, int id) {
  Core* c = current();
  Doing doing(c, "asc_lock");
  check_pipe(pipe, "asc_lock");
  check_id(uint64_t(id), 32, "asc_lock");
  if (c->held[id]++) fail("asc_lock of mutex %d, which is locked already: locks are not nested", id);
  c->holder[id] = pipe;
  push(pipe, {.name = "asc_lock", .wait = Wait::mutex, .a = id, .c = c->unlocks_issued[id], .silent = true});
}

void mutex_unlock(int pipe, int id) {
  Core* c = current();
  Doing doing(c, "asc_unlock");
  check_pipe(pipe, "asc_unlock");
  check_id(uint64_t(id), 32, "asc_unlock");
  if (--c->held[id] < 0) fail("asc_unlock of mutex %d, which is not locked", id);
  if (c->holder[id] != pipe)
    fail("asc_unlock of mutex %d by %s, which %s has locked", id, kPipeNames[pipe], kPipeNames[c->holder[id]]);
  c->unlocks_issued[id]++;
  push(pipe, {.name = "asc_unlock", .silent = true, .run = [=] { c->unlocks_done[id]++; }});
}

void drain() {
  Core* c = current();
  wait_until(c, "all pipes to be empty", [=] {
    for (auto& q : c->queue)
      if (!q.empty()) return false;
    return true;
  });
}

void pipe_barrier(int pipe) {
  if (pipe == ALL) return drain();
  if (pipe != S) push(pipe, {.name = "asc_sync_pipe", .silent = true});
}

void intra_arrive(int pipe, uint64_t id) {
  Core* c = current();
  Doing doing(c, "asc_sync_intra_arrive");
  check_pipe(pipe, "asc_sync_intra_arrive");
  check_id(id, c->kind ? 16 : 32, "asc_sync_intra_arrive");
  Core* to = c->kind ? c->block->aic : c->block->aiv[id >> 4];
  const int at = c->kind ? int(id) + (c->kind - 1) * 16 : int(id & 15);
  if (!to) fail("asc_sync_intra_arrive id %d: this kernel has no such core", int(id));
  auto arrive = [=] {
    if (++to->intra[at] > 15) fail("counter %d of the other core exceeds its 4 bits", at);
  };
  if (pipe == S) {
    arrive();
    c->group->progress++;
  } else push(pipe, {.name = "asc_sync_intra_arrive", .silent = true, .run = arrive});
}

void intra_wait(int pipe, uint64_t id) {
  Core* c = current();
  Doing doing(c, "asc_sync_intra_wait");
  check_pipe(pipe, "asc_sync_intra_wait");
  check_id(id, c->kind ? 16 : 32, "asc_sync_intra_wait");
  Op o{.name = "asc_sync_intra_wait", .wait = Wait::intra, .c = id, .silent = true};
  if (pipe != S) return push(pipe, std::move(o));
  c->wait_text = "an arrival at counter " + std::to_string(id);
  wait_until(c, c->wait_text.c_str(), [&] { return ready(c, o); });
  c->intra[id]--;
}

void inter_arrive(int pipe, uint64_t id) {
  Core* c = current();
  Doing doing(c, "asc_sync_inter_arrive");
  check_pipe(pipe, "asc_sync_inter_arrive");
  check_id(id, 32, "asc_sync_inter_arrive");
  c->inter_arrivals[id]++;
  auto arrive = [=] { c->group->inter_arrived[c->kind ? 1 : 0][id]++; };
  if (pipe == S) {
    arrive();
    c->group->progress++;
  } else push(pipe, {.name = "asc_sync_inter_arrive", .silent = true, .run = arrive});
}

void inter_wait(int pipe, uint64_t id) {
  Core* c = current();
  Doing doing(c, "asc_sync_inter_wait");
  check_pipe(pipe, "asc_sync_inter_wait");
  check_id(id, 32, "asc_sync_inter_wait");
  Op o{.name = "asc_sync_inter_wait", .wait = Wait::inter, .a = int(id), .c = ++c->inter_waits[id], .silent = true};
  if (pipe != S) return push(pipe, std::move(o));
  c->wait_text = "all cores, id " + std::to_string(id);
  wait_until(c, c->wait_text.c_str(), [&] { return ready(c, o); });
}

}  // namespace ascsim
