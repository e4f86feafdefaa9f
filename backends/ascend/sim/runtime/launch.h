// What the Python launcher passes (launch.py mirrors these structures), and the entry of a built kernel.
#pragma once
#include "../include/ascsim/runtime.h"

namespace ascsim {

constexpr int kNameBytes = 64;

struct ArgumentPart {  // of one kernel argument
  char name[kNameBytes];
  void* data;       // of a tensor, else null
  int64_t bytes;    // of a tensor
  int64_t value;    // bits of a scalar
  int64_t touched;  // out: end of the highest byte touched
};
struct Request {
  char kernel[kNameBytes];
  int32_t kind, simt, joint, blocks;  // kind: 0 vector cores, 1 cube cores, 2 one cube and two vector cores per block
  int32_t schedule, pipe, late, reverse_cores, reverse_threads, overlap, relaxed, trace;
  uint64_t seed;
  double seconds;
  int32_t arguments, sites;
  ArgumentPart* argument;
  const int32_t* site;  // fault injection
  int64_t delta;
  char* error;
  int64_t error_bytes;
  // out
  uint64_t ops[7], bytes[7], flop, cube_steps, threads, barriers;
  uint64_t high[5];  // UB L1 L0A L0B L0C: end of the highest byte touched on any core
  uint64_t events;
  uint64_t global;  // bytes from and to global memory
  uint64_t simd_busy, simd_offered, simt_busy, simt_offered;  // lanes at work, and lanes that there were
};

using Entry = void (*)(void* const* arguments);
int launch(Request* request, Entry entry);

}  // namespace ascsim

extern "C" {
__attribute__((visibility("default"))) int64_t ascsim_event(int64_t index, int32_t* block, int32_t* kind, int32_t* pipe,
                                                            const char** name);
}
