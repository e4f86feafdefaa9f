// Lowered by tilelang 0.1.15 from moe_kernels.py: moe_pack(chunk=256, most=4096), source b7d403b5e2f745c6908109dd.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void moe_pack_kernel_simd_vf_0(int32_t count, __ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t c = 0; c < ((count >> 6) + 1); ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0, v);
    simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 4160)])), 0, v);
  }
}

__simt_vf__ __launch_bounds__(256) inline void moe_pack_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t i, int32_t cores, int32_t n, __gm__ int32_t* E, int32_t first, int32_t count) {
  int32_t condval;
  if (((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n)) {
    condval = (E[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] - first);
  } else {
    condval = -1;
  }
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12480)] = condval;
  asc_syncthreads();
  for (int32_t c = 0; c < ((n + 255) >> 8); ++c) {
    if (((c * 256) + ((int32_t)threadIdx.x)) < n) {
      int32_t x = (E[((((int64_t)c) * (int64_t)256) + ((int64_t)((int32_t)threadIdx.x)))] - first);
      if ((0 <= x) && (x < count)) {
        asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[((int64_t)x)])), 1);
        if (c < (((int32_t)block_idx) + (i * cores))) {
          asc_atomic_add((&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((int64_t)x) + (int64_t)4160)])), 1);
        }
      }
    }
  }
}

__simd_vf__ inline void moe_pack_kernel_simd_vf_1(int32_t count, __ubuf__ uint8_t* buf_dyn_shmem) {
  vector_s32 carry;
  vector_s32 sum;
  vector_s32 rank;
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  carry = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
  auto lane = simd_inst::vci<int32_t>(0, INC_ORDER);
  auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
  auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
  for (int32_t c = 0; c < ((count >> 6) + 1); ++c) {
    sum = carry;
    for (int32_t y = 0; y < 64; ++y) {
      auto later = simd_inst::vcmps_gt(lane, y, v);
      sum = simd_inst::vadd(sum, simd_inst::vsel(simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + y)])), 0), none, later), v, MODE_ZEROING);
    }
    simd_inst::vsts_norm(sum, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 8320)])), 0, v);
    simd_inst::vsts_norm(simd_inst::vadd(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 4160)])), 0), sum, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 4160)])), 0, v);
    carry = simd_inst::vadd(carry, simd_inst::vdupv(simd_inst::vcadd(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t b = 0; b < 4; ++b) {
    auto own = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((b * 64) + 12480)])), 0);
    rank = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    for (int32_t j = 0; j < (b * 64); ++j) {
      auto same = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(j + 12480)])), 0), v);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, same), v, MODE_ZEROING);
    }
    for (int32_t y_1 = 0; y_1 < 64; ++y_1) {
      auto after = simd_inst::vcmps_gt(lane, y_1, v);
      auto equal = simd_inst::vcmp_eq(own, simd_inst::vlds_brc_elem<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(((b * 64) + y_1) + 12480)])), 0), after);
      rank = simd_inst::vadd(rank, simd_inst::vsel(one, none, equal), v, MODE_ZEROING);
    }
    auto real = simd_inst::vcmps_ge(own, 0, v);
    auto here = simd_inst::vcmps_lt(own, count, real);
    auto start = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[4160])), (*(vector_u32 *)(&(own))), here);
    simd_inst::vsts_norm(simd_inst::vsel(simd_inst::vadd(start, rank, v, MODE_ZEROING), simd_inst::vdup<int32_t>(-1, v, MODE_ZEROING), here), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((b * 64) + 12736)])), 0, v);
  }
}

__simt_vf__ __launch_bounds__(256) inline void moe_pack_kernel_simt_vf_1(int32_t i, int32_t cores, int32_t n, __ubuf__ uint8_t* buf_dyn_shmem, __gm__ int32_t* R, int32_t slots, __gm__ float* Q, __gm__ float* W, int32_t count) {
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < n) {
    int32_t p = ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 12736)];
    if (0 <= p) {
      R[((int64_t)p)] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / slots);
      Q[((int64_t)p)] = W[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
    }
    if (((__ubuf__ int32_t*)buf_dyn_shmem)[(count + 8320)] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) {
      R[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
      Q[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = float(0x0p+0f/*0.000000e+00*/);
    }
  }
}

extern "C" __global__ __vector__ void moe_pack_kernel(__gm__ int32_t* E, __gm__ int32_t* O, __gm__ int32_t* P, __gm__ float* Q, __gm__ int32_t* R, __gm__ float* W, int32_t chunks, int32_t cores, int32_t count, int32_t first, int32_t n, int32_t slots) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((chunks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((chunks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    moe_pack_kernel_simd_vf_0(count, buf_dyn_shmem);
    asc_vf_call<moe_pack_kernel_simt_vf_0>(cce::dim3(256), buf_dyn_shmem, i, cores, n, E, first, count);
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    moe_pack_kernel_simd_vf_1(count, buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    if (0 < ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(P[((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[12736]))), 1, (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4), (min(256, ((n - (((int32_t)block_idx) * 256)) - ((i * cores) * 256))) * 4));
    }
    asc_vf_call<moe_pack_kernel_simt_vf_1>(cce::dim3(256), i, cores, n, buf_dyn_shmem, R, slots, Q, W, count);
    if ((((int32_t)block_idx) + (i * cores)) == 0) {
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(O[0]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[8320]))), 1, ((count * 4) + 4), static_cast<asc_store_l2_cache_mode>(4), ((count * 4) + 4), ((count * 4) + 4));
    }
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

