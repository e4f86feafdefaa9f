// SIMT functions that are right and wrong in one way each; `what` chooses.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

__simt_vf__ __launch_bounds__(64) inline void body(__ubuf__ float* a, __gm__ float* x, __gm__ float* y, int32_t what) {
  const int32_t i = threadIdx.x;
  const int32_t n = 100;
  switch (what) {
    case 0:  // right: neighbours exchange across a barrier
      a[i] = x[i];
      asc_syncthreads();
      y[i] = a[(i + 1) % 64];
      break;
    case 1:  // reads what another thread wrote, no barrier
      a[i] = x[i];
      y[i] = a[(i + 1) % 64];
      break;
    case 2:  // two threads write different values
      a[i / 2] = float(i);
      break;
    case 3:  // all write the same value: harmless
      a[0] = 7.0f;
      asc_syncthreads();
      y[i] = a[0];
      break;
    case 4:  // overwrites what another thread has read
      y[i] = a[(i + 1) % 64];
      a[i] = float(i);
      break;
    case 5:  // atomics: harmless among each other
      if (i == 0) a[0] = 0.0f;
      asc_syncthreads();
      asc_atomic_add(a, 1.0f);
      asc_syncthreads();
      y[i] = a[0];
      break;
    case 6:  // an atomic update beside a plain read
      if (i == 0) a[0] = 0.0f;
      asc_syncthreads();
      if (i == 5) y[0] = a[0];
      else asc_atomic_add(a, 1.0f);
      break;
    case 7:  // reads one element behind a tensor
      y[i] = x[i + n - 63];
      break;
    case 8:  // reads before a tensor
      y[i] = x[i - 1];
      break;
    case 9:  // reads far away
      y[i] = x[i + (i == 3 ? 1000000000ll : 0ll)];
      break;
    case 17:  // reads as far as 31 bits of elements reach
      y[i] = x[i - (i == 3 ? 2147483647ll : 0ll)];
      break;
    case 10:  // writes behind a tensor
      y[i + 37] = 1.0f;
      break;
    case 11:  // reads UB behind its end
      y[i] = a[216 * 256 + i];
      break;
    case 12:  // part of the threads at a barrier
      if (i < 10) asc_syncthreads();
      break;
    case 13:
      assert(i != 17);
      break;
    case 14:  // a collective that one thread of a warp leaves out
      if (i != 40) y[i] = asc_reduce_add(1.0f);
      break;
    case 15:  // collectives, all
      y[i] = asc_reduce_add(float(i)) + asc_shfl_xor(float(i), 1) + float(asc_ballot(i % 2 == 0) & 3);
      break;
    case 16:  // last byte of a tensor: allowed
      y[i] = x[i + n - 64];
      break;
  }
}

extern "C" __global__ __vector__ void threads_kernel(__gm__ float* x, __gm__ float* y, int32_t what, int32_t count) {
  asc_init();
  asc_vf_call<body>(cce::dim3(count), (__ubuf__ float*)0, x, y, what);
}
