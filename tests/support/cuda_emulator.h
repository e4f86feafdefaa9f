// A CUDA thread block on one CPU thread, for kernels that reach the device through a few small functions.
//
// Every CUDA thread is a fibre with its own stack. Barriers, warp exchanges and cluster barriers switch fibres; a
// schedule (the seed) decides in which order fibres run between them, so code that depends on that order shows it.
// Shared memory starts full of garbage. A barrier that not everyone reaches ends the process with a message.

#pragma once
#undef _FORTIFY_SOURCE  // its longjmp takes a switch to another stack for a jump to a frame that is gone, and aborts
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define DEVICE static inline
#define DEVICE_CALL static
#define CUDA_ERROR(TEXT) (fprintf(stderr, "emulator: %s\n", TEXT), abort())

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline float __uint_as_float(unsigned x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}
static inline unsigned __float_as_uint(float x) {
    unsigned y;
    memcpy(&y, &x, 4);
    return y;
}

namespace emulator {

constexpr size_t STACK = 64 << 10;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};
struct Warp {
    Barrier barrier;
    unsigned slot[2][32];
};
struct Cta {
    unsigned index;
    std::vector<char> memory;
    std::vector<Warp> warps;
    Barrier barrier;
    char* base() { return memory.data() + (64 - (size_t)memory.data() % 64); }
};
struct Fibre {
    jmp_buf at;
    ucontext_t context;
    Cta* cta;
    int thread;
    const Barrier* at_barrier = nullptr;  // waits until its generation is another than `seen`
    unsigned seen = 0;
    bool started = false, done = false;
};

static std::vector<std::unique_ptr<Cta>> ctas;  // of the running cluster
static std::vector<Fibre> fibres;
static std::vector<std::unique_ptr<char[]>> stacks;  // of fibres; kept, since to make them took most of the time
static Fibre* current;
static jmp_buf scheduler;
static Barrier cluster_barrier;
static unsigned long progress;
static std::function<void(Cta&)> body;

static void yield() {
    if (!_setjmp(current->at)) _longjmp(scheduler, 1);
}
static void wait(Barrier& barrier, unsigned members) {
    const unsigned mine = barrier.generation;
    progress++;
    if (++barrier.arrived == members) {
        barrier.arrived = 0, barrier.generation++;
    } else {
        current->at_barrier = &barrier, current->seen = mine;
        yield();
        current->at_barrier = nullptr;
    }
}
static const unsigned* exchange(unsigned value) {
    Warp& warp = current->cta->warps[current->thread / 32];
    unsigned* slot = warp.slot[warp.barrier.generation & 1];
    slot[current->thread % 32] = value;
    wait(warp.barrier, 32);
    return slot;
}
static void enter() {
    body(*current->cta);
    current->done = true, progress++;
    _longjmp(scheduler, 1);
}

// Run a cluster of `count` CTAs of `threads` threads with `bytes` of shared memory each.
static void run_cluster(unsigned first, unsigned count, int threads, size_t bytes, unsigned seed) {
    ctas.clear(), fibres.clear();
    cluster_barrier = Barrier{};
    for (unsigned c = 0; c < count; c++) {
        ctas.push_back(std::make_unique<Cta>());
        Cta& cta = *ctas.back();
        cta.index = first + c;
        cta.memory.resize(bytes + 64);
        for (size_t i = 0; i < cta.memory.size(); i++) cta.memory[i] = (char)(0xA5 + 37 * i);
        cta.warps.resize(threads / 32);
    }
    fibres.resize((size_t)count * threads);
    std::vector<int> order;
    for (size_t i = 0; i < fibres.size(); i++) {
        Fibre& f = fibres[i];
        f.cta = ctas[i / threads].get(), f.thread = (int)(i % threads);
        if (i == stacks.size()) stacks.emplace_back(new char[STACK]);
        order.push_back((int)i);
    }
    unsigned state = seed * 2654435761u + 12345;
    static ucontext_t home;
    for (size_t left = fibres.size(); left;) {
        for (size_t i = order.size(); seed && i > 1; i--) {  // seed 0: in order
            state = state * 1664525u + 1013904223u;
            std::swap(order[i - 1], order[(state >> 8) % i]);
        }
        const unsigned long before = progress;
        for (int i : order) {
            Fibre& f = fibres[i];
            if (f.done || (f.at_barrier && f.at_barrier->generation == f.seen)) continue;
            current = &f;
            if (_setjmp(scheduler)) {
                if (current->done) left--;
                continue;
            }
            if (f.started) _longjmp(f.at, 1);
            f.started = true;
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = stacks[i].get(), f.context.uc_stack.ss_size = STACK, f.context.uc_link = nullptr;
            makecontext(&f.context, enter, 0);
            swapcontext(&home, &f.context);
        }
        if (progress == before) CUDA_ERROR("a barrier that not every thread reaches");
    }
}

}  // namespace emulator

static inline int thread_index() { return emulator::current->thread; }
static inline unsigned block_index() { return emulator::current->cta->index; }
static inline void cta_sync() {
    emulator::Cta& cta = *emulator::current->cta;
    emulator::wait(cta.barrier, (unsigned)cta.warps.size() * 32);
}
static inline void cluster_sync() { emulator::wait(emulator::cluster_barrier, (unsigned)emulator::fibres.size()); }
static inline unsigned shuffle(unsigned value, int lane) { return emulator::exchange(value)[lane & 31]; }
static inline unsigned shuffle_up(unsigned value, int by) {
    const int lane = emulator::current->thread % 32;
    return emulator::exchange(value)[lane >= by ? lane - by : lane];
}
static inline unsigned vote(bool value) {
    const unsigned* slot = emulator::exchange(value);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= slot[i] << i;
    return bits;
}
static inline unsigned warp_sum(unsigned value) {
    const unsigned* slot = emulator::exchange(value);
    unsigned sum = 0;
    for (int i = 0; i < 32; i++) sum += slot[i];
    return sum;
}
static inline unsigned warp_max(unsigned value) {
    const unsigned* slot = emulator::exchange(value);
    unsigned most = 0;
    for (int i = 0; i < 32; i++) most = slot[i] > most ? slot[i] : most;
    return most;
}
static inline unsigned warp_min(unsigned value) { return ~warp_max(~value); }
static inline unsigned count_atomically(unsigned* counter) { return (*counter)++; }
static inline float emulated_half(unsigned pair, int half) { return __uint_as_float(half ? pair & 0xFFFF0000u : pair << 16); }
static inline unsigned at_least2(unsigned a, unsigned b) {
    unsigned mask = 0;
    for (int half = 0; half < 2; half++)
        if (emulated_half(a, half) >= emulated_half(b, half)) mask |= 0xFFFFu << (16 * half);
    return mask;
}
static inline unsigned larger2(unsigned a, unsigned b) {
    unsigned most = 0;
    for (int half = 0; half < 2; half++)
        most |= __float_as_uint(fmaxf(emulated_half(a, half), emulated_half(b, half))) >> 16 << (16 * half);
    return most;
}
static inline uint4 load16(const void* address) {
    if ((size_t)address & 15) CUDA_ERROR("a misaligned 16-byte load");
    uint4 v;
    memcpy(&v, address, 16);
    return v;
}
static inline void store_if(bool wanted, uint2* at, unsigned first, unsigned second) {
    if (wanted) *at = uint2{first, second};
}
static inline unsigned* peer(const unsigned* local, unsigned rank) {
    const size_t offset = (const char*)local - emulator::current->cta->base();
    return (unsigned*)(emulator::ctas[rank]->base() + offset);
}
static inline unsigned load_peer(const unsigned* local, unsigned rank) { return *peer(local, rank); }
static inline void store_peer(uint2* local, unsigned rank, uint2 value) { *(uint2*)peer(&local->x, rank) = value; }
