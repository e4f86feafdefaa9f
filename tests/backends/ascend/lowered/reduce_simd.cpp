// Lowered from ascend_kernels.py: reduce_simd(), source 4842ff15bd7da34603dacf76.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void reduce_simd_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  for (int32_t vrepeat = 0; vrepeat < 8; ++vrepeat) {
    vector_bool mask = asc_create_mask_b32(PAT_ALL);
    auto vreg_0 = simd_inst::vdup<float>(float(0x0p+0f/*0.000000e+00*/), mask, MODE_ZEROING);
    auto vreg_1 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(vrepeat * 128)])), 0);
    auto vreg_2 = simd_inst::vcadd(vreg_1, mask, MODE_ZEROING);
    auto vreg_3 = simd_inst::vadd(vreg_0, vreg_2, mask, MODE_ZEROING);
    auto vreg_4 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((vrepeat * 128) + 64)])), 0);
    auto vreg_5 = simd_inst::vcadd(vreg_4, mask, MODE_ZEROING);
    auto vreg_6 = simd_inst::vadd(vreg_3, vreg_5, mask, MODE_ZEROING);
    simd_inst::vsts_norm(vreg_6, (__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[((vrepeat * 64) + 1024)])), 0, mask);
  }
}

extern "C" __global__ __vector__ void reduce_simd_kernel(__gm__ float* X, __gm__ float* Y) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[0]))), 1, 4096, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 4096, 4096);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  reduce_simd_kernel_simd_vf_0(buf_dyn_shmem);
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[0]))), (__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[1024]))), 1, 32, static_cast<asc_store_l2_cache_mode>(4), 32, 32);
}

