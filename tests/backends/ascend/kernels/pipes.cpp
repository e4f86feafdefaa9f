// Pipes, flags, mutexes and copies, right and wrong in one way each; `what` chooses.
#include "c_api/asc_simd.h"

extern "C" __global__ __vector__ void pipes_kernel(__gm__ float* x, __gm__ float* y, int32_t what, int32_t n) {
  asc_init();
  __ubuf__ float* a = (__ubuf__ float*)0;
  __ubuf__ float* b = (__ubuf__ float*)(4096);
  const auto load = static_cast<asc_load_l2_cache_mode>(0);
  const auto store = static_cast<asc_store_l2_cache_mode>(0);
  const int32_t bytes = n * 4;
  switch (what) {
    case 0:  // right
      asc_copy_gm2ub_align(a, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(3));
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(3));
      asc_copy_ub2gm_align(y, a, 1, bytes, store, bytes, bytes);
      break;
    case 1:  // no wait
      asc_copy_gm2ub_align(a, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_copy_ub2gm_align(y, a, 1, bytes, store, bytes, bytes);
      break;
    case 2:  // waits for what nobody sets
      asc_copy_gm2ub_align(a, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(5));
      asc_copy_ub2gm_align(y, a, 1, bytes, store, bytes, bytes);
      break;
    case 3:  // set twice
      asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID1);
      asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID1);
      asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID1);
      asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID1);
      break;
    case 4:  // left over
      asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID1);
      break;
    case 5:
      asc_lock(PIPE_MTE2, 4);
      asc_lock(PIPE_V, 4);
      break;
    case 6:
      asc_unlock(PIPE_MTE2, 4);
      break;
    case 7:  // two copies of one pipe to one place: they may overlap
    case 8:  // and with a barrier of the pipe between them
      asc_copy_gm2ub_align(a, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_copy_gm2ub_align(b, x + n, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
      asc_copy_ub2gm_align(y, a, 1, bytes, store, bytes, bytes);
      if (what == 8) asc_sync_pipe(PIPE_MTE3);
      asc_copy_ub2gm_align(y, b, 1, bytes, store, bytes, bytes);
      break;
    case 9:  // UB address that is no multiple of 32
      asc_copy_gm2ub_align(a + 1, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      break;
    case 10:  // behind the tensor
      asc_copy_gm2ub_align(a, x + n, 1, bytes + 4, 0, 0, false, load, bytes, bytes);
      break;
    case 11:  // behind UB
      asc_copy_gm2ub_align((__ubuf__ float*)(248 * 1024 - 32), x, 1, bytes, 0, 0, false, load, bytes, bytes);
      break;
    case 12:
      asc_sync_notify(PIPE_MTE2, PIPE_V, 8);
      break;
    case 13:
      for (;;) asc_sync_pipe(PIPE_MTE2);
    case 14: {
      volatile int32_t zero = 0;
      asc_copy_gm2ub_align(a, x, n / zero, bytes, 0, 0, false, load, bytes, bytes);
      break;
    }
    case 15:  // UB that no copy wrote: poison
      asc_copy_ub2gm_align(y, a, 1, bytes, store, bytes, bytes);
      break;
    case 16:  // the program reads a scalar behind the tensor
      asc_copy_gm2ub_align(a, x, int32_t(x[2 * n]), bytes, 0, 0, false, load, bytes, bytes);
      break;
    case 17:  // the program waits for a copy, then reads what it wrote
      asc_copy_gm2ub_align(a, x, 1, bytes, 0, 0, false, load, bytes, bytes);
      asc_sync_notify(PIPE_MTE2, PIPE_S, EVENT_ID0);
      asc_sync_wait(PIPE_MTE2, PIPE_S, EVENT_ID0);
      asc_store_dev(y, a[n - 1]);
      break;
    case 18:  // what the compiler makes of a path that divides by zero
      __builtin_trap();
  }
}
