// Pipes, and how they wait for each other.
//
// The scalar unit (PIPE_S) runs the program and hands every other instruction to the pipe it belongs to: MTE2 (global
// memory to UB or L1, fills of L1), MTE1 (L1 to L0A/L0B), M (cube), FIX (L0C to global memory or UB), V (vector unit,
// SIMD or SIMT), MTE3 (UB to global memory or L1). A pipe starts its instructions in order; pipes run beside each
// other, and only the calls below order them.
#pragma once
#include "runtime.h"

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
enum event_t : int { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
enum ascMutexExecuteMode { ASC_LOCK_BLOCK = 0, ASC_LOCK_NON_BLOCK = 1 };

// Start of a kernel; nothing to do here.
ASC_API void asc_init() {}
// 0 on AIV0, 1 on AIV1: which half of the vector work this core has.
ASC_API int asc_get_sub_block_id() { return ascsim::core_kind() - 1; }

// Sets flag `id` (0 to 7) from pipe `src` to pipe `dst` once all that `src` was given before has finished.
ASC_API void asc_sync_notify(pipe_t src, pipe_t dst, int id) { ascsim::flag_notify(src, dst, id); }
// Pipe `dst` waits for that flag, then clears it. Other pipes go on; with dst PIPE_S the program itself waits.
ASC_API void asc_sync_wait(pipe_t src, pipe_t dst, int id) { ascsim::flag_wait(src, dst, id); }

// Mutex `id` (0 to 31) of a core. The lock holds `pipe` until every unlock of that id issued before it has executed.
// Locks and unlocks of one id alternate in program order and are never nested; the first lock needs no unlock.
ASC_API void asc_lock(pipe_t pipe, int id, ascMutexExecuteMode = ASC_LOCK_BLOCK) { ascsim::mutex_lock(pipe, id); }
ASC_API void asc_unlock(pipe_t pipe, int id, ascMutexExecuteMode = ASC_LOCK_BLOCK) { ascsim::mutex_unlock(pipe, id); }

// What `pipe` is given from here on starts after what it was given before has finished. Needed between copies of one
// pipe that depend on each other: they may overlap. PIPE_ALL: all pipes, and the program waits.
ASC_API void asc_sync_pipe(pipe_t pipe) { ascsim::pipe_barrier(pipe); }
// The program waits until every pipe of this core is empty.
ASC_API void asc_sync() { ascsim::drain(); }

// Counters between the cube core and the two vector cores of a block, 4 bits each. On the cube core id 0 to 15 means
// AIV0 and 16 to 31 AIV1 (counter id - 16 there); a vector core's id names counter id (AIV0) or id + 16 (AIV1) of the
// cube core. The arrive increments once `pipe` has finished what precedes it, the wait holds `pipe` until the counter
// is above zero and decrements it.
ASC_API void asc_sync_intra_arrive(pipe_t pipe, uint64_t id) { ascsim::intra_arrive(pipe, id); }
ASC_API void asc_sync_intra_wait(pipe_t pipe, uint64_t id) { ascsim::intra_wait(pipe, id); }

// A barrier over all cores of one kind (all cube cores, or all vector cores) of the launch: the n-th wait of an id on a
// pipe ends when every core has arrived n times.
ASC_API void asc_sync_inter_arrive(pipe_t pipe, uint64_t id) { ascsim::inter_arrive(pipe, id); }
ASC_API void asc_sync_inter_wait(pipe_t pipe, uint64_t id) { ascsim::inter_wait(pipe, id); }

// Orders this thread's accesses to global memory before those that follow. The model executes them in order.
ASC_API void asc_threadfence() {}
