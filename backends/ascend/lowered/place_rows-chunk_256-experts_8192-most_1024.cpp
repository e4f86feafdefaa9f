// Lowered by tilelang 0.1.15 from exchange_kernels.py: place_rows(chunk=256, experts=8192, most=1024), source 5eb7c7370aad6ca66ca21cfc.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void place_rows_kernel_simd_vf_0(int32_t ranks, __ubuf__ uint8_t* buf_dyn_shmem, int32_t count) {
  for (int32_t c = 0; c < ((ranks + 63) >> 6); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto zero = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    simd_inst::vsts_norm(zero, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 8192)])), 0, v);
    simd_inst::vsts_norm(zero, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 9216)])), 0, v);
    simd_inst::vsts_norm(zero, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 10240)])), 0, v);
    simd_inst::vsts_norm(zero, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 11264)])), 0, v);
  }
  for (int32_t c_1 = 0; c_1 < ((count + 63) >> 6); ++c_1) {
    vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v_1, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c_1 * 64)])), 0, v_1);
  }
}

__simt_vf__ __launch_bounds__(256) inline void place_rows_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t i, int32_t cores, int32_t n, __gm__ int32_t* F, __gm__ int32_t* O, int32_t per_rank) {
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)] = -1;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12544)] = -2;
  asc_syncthreads();
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n) {
    ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12544)] = F[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
    if (0 <= O[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))]) {
      ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)] = ((O[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] / per_rank) + ((O[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] % per_rank) >> 31));
    }
  }
  asc_syncthreads();
  for (int32_t c = 0; c < ((n + 255) >> 8); ++c) {
    if (((c * 256) + ((int32_t)threadIdx.x)) < n) {
      int32_t x = O[((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x)))];
      if (0 <= x) {
        asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[((int64_t)x)])), 1);
        asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[((((int64_t)x) / ((int64_t)per_rank)) + (int64_t)8192)])), 1);
        if (c < (((int32_t)block_idx) + (i * cores))) {
          asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[((((int64_t)x) / ((int64_t)per_rank)) + (int64_t)10240)])), 1);
        }
      }
      int32_t f = F[((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x)))];
      if (0 <= f) {
        asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)f) + (int64_t)9216)])), 1);
        if (c < (((int32_t)block_idx) + (i * cores))) {
          asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)f) + (int64_t)11264)])), 1);
        }
      }
    }
  }
}

__simd_vf__ inline void place_rows_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_s32 rank;
  vector_s32 rank_1;
  for (int32_t b = 0; b < 4; ++b) {
    auto own = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((b * 64) + 12288)])), 0);
    auto lane = simd_inst::vci<int32_t>(0, INC_ORDER);
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
    rank = none;
    for (int32_t j = 0; j < (b * 64); ++j) {
      auto same = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(j + 12288)])), 0), v);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, same), v, MODE_ZEROING);
    }
    for (int32_t y = 0; y < 64; ++y) {
      auto after = simd_inst::vcmps_gt(lane, y, v);
      auto equal = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((b * 64) + y) + 12288)])), 0), after);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, equal), v, MODE_ZEROING);
    }
    simd_inst::vsts_norm(rank, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((b * 64) + 12800)])), 0, v);
    auto lane_1 = simd_inst::vci<int32_t>(0, INC_ORDER);
    auto none_1 = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    auto one_1 = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
    rank_1 = none_1;
    for (int32_t j_1 = 0; j_1 < (b * 64); ++j_1) {
      auto same_1 = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(j_1 + 12544)])), 0), v);
      rank_1 = simd_inst::vadd(rank_1, simd_inst::vsel(one_1, none_1, same_1), v, MODE_ZEROING);
    }
    for (int32_t y_1 = 0; y_1 < 64; ++y_1) {
      auto after_1 = simd_inst::vcmps_gt(lane_1, y_1, v);
      auto equal_1 = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((b * 64) + y_1) + 12544)])), 0), after_1);
      rank_1 = simd_inst::vadd(rank_1, simd_inst::vsel(one_1, none_1, equal_1), v, MODE_ZEROING);
    }
    simd_inst::vsts_norm(rank_1, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((b * 64) + 13056)])), 0, v);
  }
}

__simt_vf__ __launch_bounds__(256) inline void place_rows_kernel_simt_vf_1(__ubuf__ uint8_t* buf_dyn_shmem, int32_t capacity, int32_t returns, int32_t slots, int32_t i, int32_t cores, int32_t n, __gm__ int32_t* O, int32_t per_rank, __gm__ int32_t* SE, __gm__ float* SW, __gm__ float* W, int32_t tiles, int32_t ranks, int64_t B, __gm__ int32_t* C) {
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13312)] = -1;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13568)] = -1;
  asc_syncthreads();
  if (0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)]) {
    ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12800)] = (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12800)] + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)12288)] + 10240)]);
    ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)] = (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)] + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)((int32_t)threadIdx.x)) + (int64_t)12288)] + 11264)]);
    if (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12544)] < 0) {
      ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)] = (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)] - 1);
    }
    if (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)] < capacity) {
      if (((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12800)] < returns) {
        ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13312)] = ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)] * returns) + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12800)]);
      }
      if (0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12544)]) {
        ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13568)] = ((((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)] * capacity) + ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13056)]);
      }
    }
  }
  if (0 <= ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13568)]) {
    for (int32_t j = 0; j < slots; ++j) {
      int32_t condval;
      if ((((((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / slots) * slots) + j) < n)) {
        condval = O[((((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)slots)) * ((int64_t)slots)) + ((int64_t)j))];
      } else {
        condval = 0;
      }
      int32_t o = condval;
      int64_t z = ((((int64_t)((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 13568)]) * ((int64_t)slots)) + ((int64_t)j));
      if ((0 <= o) && (((o / per_rank) + ((o % per_rank) >> 31)) == ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12288)])) {
        if ((int64_t)0 <= z) {
          SE[z] = (o % per_rank);
          float condval_1;
          if ((((((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / slots) * slots) + j) < n)) {
            condval_1 = W[((((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)slots)) * ((int64_t)slots)) + ((int64_t)j))];
          } else {
            condval_1 = float(0x0p+0f/*0.000000e+00*/);
          }
          SW[z] = condval_1;
        }
      } else {
        if ((int64_t)0 <= z) {
          SE[z] = -1;
          SW[z] = float(0x0p+0f/*0.000000e+00*/);
        }
      }
    }
  }
  asc_syncthreads();
  int32_t rmod = ((((tiles * 256) + (ranks * capacity)) - 1) % (tiles * 256));
  int32_t rdiv = ((((tiles * 256) + (ranks * capacity)) - 1) / (tiles * 256));
  for (int32_t c = 0; c < ((((0 <= tiles) && (0 <= rmod)) || ((tiles < 0) && (rmod <= 0))) ? rdiv : (rdiv - 1)); ++c) {
    if ((((((c * tiles) * 256) + (((int32_t)block_idx) * 256)) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (ranks * capacity)) {
      int64_t rmod_1 = ((((((((int64_t)c) * ((int64_t)tiles)) * (int64_t)256) + (((int64_t)((int32_t)block_idx)) * (int64_t)256)) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) % ((int64_t)capacity));
      int64_t rdiv_1 = ((((((((int64_t)c) * ((int64_t)tiles)) * (int64_t)256) + (((int64_t)((int32_t)block_idx)) * (int64_t)256)) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) / ((int64_t)capacity));
      int32_t rmod_2 = ((((((c * tiles) * 256) + (((int32_t)block_idx) * 256)) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) % capacity);
      if (((__ubuf__ int32_t*)buf_dyn_shmem)[((((((int64_t)0 <= ((int64_t)capacity)) && ((int64_t)0 <= rmod_1)) || ((((int64_t)capacity) < (int64_t)0) && (rmod_1 <= (int64_t)0))) ? rdiv_1 : (rdiv_1 - (int64_t)1)) + (int64_t)9216)] <= ((((0 <= capacity) && (0 <= rmod_2)) || ((capacity < 0) && (rmod_2 <= 0))) ? rmod_2 : (rmod_2 + capacity))) {
        for (int32_t j_1 = 0; j_1 < slots; ++j_1) {
          if (((((((((int64_t)(c * tiles)) * (int64_t)256) + (((int64_t)((int32_t)block_idx)) * (int64_t)256)) + (((int64_t)(i * cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)slots)) + ((int64_t)j_1)) < B) {
            SE[((((((((int64_t)(c * tiles)) * (int64_t)256) + (((int64_t)((int32_t)block_idx)) * (int64_t)256)) + (((int64_t)(i * cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)slots)) + ((int64_t)j_1))] = -1;
            SW[((((((((int64_t)(c * tiles)) * (int64_t)256) + (((int64_t)((int32_t)block_idx)) * (int64_t)256)) + (((int64_t)(i * cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x))) * ((int64_t)slots)) + ((int64_t)j_1))] = float(0x0p+0f/*0.000000e+00*/);
          }
        }
      }
    }
  }
  if ((((int32_t)block_idx) + (i * cores)) == 0) {
    for (int32_t c_1 = 0; c_1 < ((ranks + 255) >> 8); ++c_1) {
      if (((c_1 * 256) + ((int32_t)threadIdx.x)) < ranks) {
        C[((c_1 * 512) + (((int32_t)threadIdx.x) * 2))] = ((__ubuf__ int32_t*)buf_dyn_shmem)[(((c_1 * 256) + ((int32_t)threadIdx.x)) + 9216)];
        C[(((c_1 * 512) + (((int32_t)threadIdx.x) * 2)) + 1)] = ((__ubuf__ int32_t*)buf_dyn_shmem)[(((c_1 * 256) + ((int32_t)threadIdx.x)) + 8192)];
      }
    }
  }
}

extern "C" __global__ __vector__ void place_rows_kernel(__gm__ int32_t* C, __gm__ int32_t* F, __gm__ int32_t* L, __gm__ int32_t* O, __gm__ int32_t* P, __gm__ int32_t* SE, __gm__ float* SW, __gm__ int32_t* TO, __gm__ float* W, int64_t B, int32_t capacity, int32_t cores, int32_t count, int32_t n, int32_t per_rank, int32_t ranks, int32_t returns, int32_t slots, int32_t tiles) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
    place_rows_kernel_simd_vf_0(ranks, buf_dyn_shmem, count);
    asc_vf_call<place_rows_kernel_simt_vf_0>(cce::dim3(256), buf_dyn_shmem, i, cores, n, F, O, per_rank);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    place_rows_kernel_simd_vf_1(buf_dyn_shmem);
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    if ((((int32_t)block_idx) + (i * cores)) == 0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(L[0]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0]))), 1, (count * 4), static_cast<asc_store_l2_cache_mode>(4), (count * 4), (count * 4));
    }
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_vf_call<place_rows_kernel_simt_vf_1>(cce::dim3(256), buf_dyn_shmem, capacity, returns, slots, i, cores, n, O, per_rank, SE, SW, W, tiles, ranks, B, C);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    if (0 < ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(TO[((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[13568]))), 1, (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(P[((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[13312]))), 1, (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4));
    }
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
}

