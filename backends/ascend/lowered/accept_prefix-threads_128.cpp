// Lowered by tilelang 0.1.15 from verify_kernels.py: accept_prefix(threads=128), source 03aff3286e085e5db4b3228b.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(128) inline void accept_prefix_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t i, int32_t cores, int32_t s, int32_t W, __gm__ int32_t* N, __gm__ int32_t* B, int32_t forced, __gm__ int32_t* G, __gm__ int32_t* X, __gm__ int32_t* D, __gm__ uint8_t* A, __gm__ int32_t* Y1, int32_t stops, int32_t C, __gm__ int32_t* P, __gm__ int32_t* Y0, __gm__ int32_t* Y2, __gm__ int32_t* Y3, __gm__ uint8_t* Y4) {
  ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = 0;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 128)] = -1;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] = 0;
  asc_syncthreads();
  if ((((((int32_t)block_idx) * 128) + ((i * cores) * 128)) + ((int32_t)threadIdx.x)) < s) {
    for (int32_t j = 0; j < W; ++j) {
      if ((j < N[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))]) && (((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] == j)) {
        int32_t row = (B[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] + j);
        int32_t condval;
        if ((0 < forced)) {
          condval = G[((int64_t)row)];
        } else {
          condval = -1;
        }
        int32_t golden = condval;
        int32_t condval_1;
        if ((0 <= golden)) {
          condval_1 = golden;
        } else {
          condval_1 = X[((int64_t)row)];
        }
        int32_t token = condval_1;
        int32_t condval_2;
        if ((0 <= golden)) {
          int32_t condval_3;
          if ((golden == D[((int64_t)row)])) {
            condval_3 = 1;
          } else {
            condval_3 = 0;
          }
          condval_2 = condval_3;
        } else {
          condval_2 = ((int32_t)A[((int64_t)row)]);
        }
        int32_t good = condval_2;
        Y1[(((((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)W)) + ((int64_t)j))] = token;
        ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 128)] = token;
        for (int32_t c = 0; c < stops; ++c) {
          int32_t condval_4;
          if ((c < C)) {
            condval_4 = P[(((((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)C)) + ((int64_t)c))];
          } else {
            condval_4 = 0;
          }
          if ((condval_4 == token) && (0 <= token)) {
            ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] = 1;
          }
        }
        if ((good != 0) && ((j + 1) < N[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))])) {
          ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = (j + 1);
        }
      } else {
        Y1[(((((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)W)) + ((int64_t)j))] = -1;
      }
    }
    Y0[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] = ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)];
    Y2[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] = ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 128)];
    int32_t condval_5;
    if ((0 < N[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))])) {
      condval_5 = (B[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] + ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)]);
    } else {
      condval_5 = -1;
    }
    Y3[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] = condval_5;
    Y4[(((((int64_t)((int32_t)block_idx)) * (int64_t)128) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)128)) + ((int64_t)((int32_t)threadIdx.x)))] = ((uint8_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]);
  }
}

extern "C" __global__ __vector__ void accept_prefix_kernel(__gm__ uint8_t* A, __gm__ int32_t* B, __gm__ int32_t* D, __gm__ int32_t* G, __gm__ int32_t* N, __gm__ int32_t* P, __gm__ int32_t* X, __gm__ int32_t* Y0, __gm__ int32_t* Y1, __gm__ int32_t* Y2, __gm__ int32_t* Y3, __gm__ uint8_t* Y4, int32_t C, int32_t W, int32_t chunks, int32_t cores, int32_t forced, int32_t s, int32_t stops) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<accept_prefix_kernel_simt_vf_0>(cce::dim3(128), buf_dyn_shmem, i, cores, s, W, N, B, forced, G, X, D, A, Y1, stops, C, P, Y0, Y2, Y3, Y4);
  }
}

