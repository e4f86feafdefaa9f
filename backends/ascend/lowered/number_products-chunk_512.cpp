// Lowered by tilelang 0.1.15 from exchange_kernels.py: number_products(chunk=512), source 561dadc4efd489a4ab3757b1.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void number_products_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 1024)] = 0;
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 1088)] = 512;
}

#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void number_products_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_s32 running;
  running = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1024])), 0);
  auto most = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1088])), 0);
  for (int32_t c = 0; c < 8; ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto inside = simd_inst::vcmp_lt(simd_inst::vci<int32_t>((c * 64), INC_ORDER), most, v);
    auto names = simd_inst::vcmps_ge(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0), 0, inside);
    auto one = simd_inst::vsel(simd_inst::vdup<int32_t>(1, v, MODE_ZEROING), simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), names);
    running = simd_inst::vadd(running, simd_inst::vdupv(simd_inst::vcadd(one, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
  }
  vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(running, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1024])), 0, v_1);
}

__simt_vf__ __launch_bounds__(64) inline void number_products_kernel_simt_vf_1(__ubuf__ uint8_t* buf_dyn_shmem, int32_t part, int32_t i, int32_t cores, int32_t chunks) {
  ((__ubuf__ int32_t*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 1088)] = min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512)));
}

__simd_vf__ inline void number_products_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_s32 running;
  running = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1024])), 0);
  auto most = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1088])), 0);
  for (int32_t c = 0; c < 8; ++c) {
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto inside = simd_inst::vcmp_lt(simd_inst::vci<int32_t>((c * 64), INC_ORDER), most, v);
    auto names = simd_inst::vcmps_ge(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0), 0, inside);
    auto own = simd_inst::vadd(simd_inst::vusqz<int32_t>(names), running, v, MODE_ZEROING);
    simd_inst::vsts_norm(simd_inst::vsel(own, simd_inst::vdup<int32_t>(-1, v, MODE_ZEROING), names), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 512)])), 0, v);
    auto one = simd_inst::vsel(simd_inst::vdup<int32_t>(1, v, MODE_ZEROING), simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), names);
    running = simd_inst::vadd(running, simd_inst::vdupv(simd_inst::vcadd(one, v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
  }
  vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(running, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[1024])), 0, v_1);
}

extern "C" __global__ __vector__ void number_products_kernel(__gm__ int32_t* N, __gm__ int32_t* P, int32_t chunks, int32_t cores, int32_t part, int32_t tiles) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<number_products_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    for (int32_t c = 0; c < ((((int32_t)block_idx) + (i * cores)) % chunks); ++c) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(P[((((int64_t)c) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)chunks)) * ((int64_t)part)))]))), 1, 2048, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 2048, 2048);
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      number_products_kernel_simd_vf_0(buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
    }
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
    asc_sync_pipe(PIPE_MTE2);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
    asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(P[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)chunks)) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)chunks)) * ((int64_t)part)))]))), 1, (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4), (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    asc_vf_call<number_products_kernel_simt_vf_1>(cce::dim3(64), buf_dyn_shmem, part, i, cores, chunks);
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
    number_products_kernel_simd_vf_1(buf_dyn_shmem);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(N[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)chunks)) * (int64_t)512) + (((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)chunks)) * ((int64_t)part)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[512]))), 1, (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4), static_cast<asc_store_l2_cache_mode>(4), (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4), (min(512, (part - (((((int32_t)block_idx) + (i * cores)) % chunks) * 512))) * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
}

