// Lowered by tilelang 0.1.15 from exchange_kernels.py: choose_experts(chunk=256), source c2d4fcca8061c17a2c892b38.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void choose_experts_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t take, int32_t n, int32_t i, int32_t cores, __gm__ int32_t* I, int32_t X, int32_t E, int32_t span, __gm__ int32_t* R, int32_t own, int32_t slots, int32_t ranks, int32_t per_rank) {
  int32_t condval;
  if (((((int32_t)threadIdx.x) < take) && (((int32_t)threadIdx.x) < (n - ((((int32_t)block_idx) + (i * cores)) * take))))) {
    condval = I[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)take)) + ((int64_t)((int32_t)threadIdx.x)))];
  } else {
    condval = -1;
  }
  ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = condval;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] = 0;
  for (int32_t x = 0; x < X; ++x) {
    asc_syncthreads();
    if (((0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)]) && (((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] < E)) && (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] == x)) {
      int32_t condval_1;
      if (((0 <= ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] * X) + x)) && (((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] * X) + x) < span))) {
        condval_1 = R[((((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[((int64_t)((int32_t)threadIdx.x))]) * ((int64_t)X)) + ((int64_t)x))];
      } else {
        condval_1 = 0;
      }
      if (0 <= condval_1) {
        ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] = (x + 1);
      }
    }
  }
  if (0 < X) {
    if (0 < ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]) {
      int32_t rmod = ((own + ((((((int32_t)block_idx) + (i * cores)) * take) + ((int32_t)threadIdx.x)) / slots)) % ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]);
      int32_t rmod_1 = ((own + ((((((int32_t)block_idx) + (i * cores)) * take) + ((int32_t)threadIdx.x)) / slots)) % ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]);
      int32_t condval_2;
      if (((0 <= ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] * X) + ((((0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]) && (0 <= rmod)) || ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] < 0) && (rmod <= 0))) ? rmod : (rmod + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)])))) && (((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] * X) + ((((0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]) && (0 <= rmod_1)) || ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)] < 0) && (rmod_1 <= 0))) ? rmod_1 : (rmod_1 + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 256)]))) < span))) {
        int64_t rmod_2 = ((((int64_t)own) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)take)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)slots))) % ((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)256)]));
        condval_2 = R[((((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[((int64_t)((int32_t)threadIdx.x))]) * ((int64_t)X)) + (((((int64_t)0 <= ((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)256)])) && ((int64_t)0 <= rmod_2)) || ((((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)256)]) < (int64_t)0) && (rmod_2 <= (int64_t)0))) ? rmod_2 : (rmod_2 + ((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)256)]))))];
      } else {
        condval_2 = 0;
      }
      ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = condval_2;
    } else {
      ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = -1;
    }
  }
  asc_syncthreads();
  if ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] < 0) || ((ranks * per_rank) <= ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)])) {
    ((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] = -1;
  }
  int32_t condval_3;
  if ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] < 0)) {
    condval_3 = -1;
  } else {
    condval_3 = ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] / per_rank) + ((((__ubuf__ int32_t*)buf_dyn_shmem)[((int32_t)threadIdx.x)] % per_rank) >> 31));
  }
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 512)] = condval_3;
  for (int32_t j = 1; j < slots; ++j) {
    asc_syncthreads();
    if ((j <= (((int32_t)threadIdx.x) % slots)) && (0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 512)])) {
      if ((0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) - j)]) && (((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) - j)] / per_rank) + ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) - j)] % per_rank) >> 31)) == ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 512)])) {
        ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 512)] = -1;
      }
    }
  }
}

extern "C" __global__ __vector__ void choose_experts_kernel(__gm__ int32_t* F, __gm__ int32_t* I, __gm__ int32_t* O, __gm__ int32_t* R, int32_t E, int32_t X, int32_t cores, int32_t n, int32_t own, int32_t per_rank, int32_t ranks, int32_t slots, int32_t span, int32_t take, int32_t tiles) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_vf_call<choose_experts_kernel_simt_vf_0>(cce::dim3(256), buf_dyn_shmem, take, n, i, cores, I, X, E, span, R, own, slots, ranks, per_rank);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(O[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)take))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0]))), 1, (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4), (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(F[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)take))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[512]))), 1, (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4), (min(take, (n - ((((int32_t)block_idx) + (i * cores)) * take))) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

