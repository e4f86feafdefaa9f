// Lowered from ascend_kernels.py: over_capacity(l0c), source a9363549a066b38d5a1d9f3f.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void too_large_kernel(__gm__ bfloat16_t* A, __gm__ bfloat16_t* B, __gm__ float* C) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(256), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768), (&(A[0])), 128, static_cast<asc_load_l2_cache_mode>(0), 256, 64, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(512), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1), (&(B[0])), 128, static_cast<asc_load_l2_cache_mode>(0), 512, 64, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  ascend_gemm_l1<256, 64, 512, 32, true, bfloat16_t>(((__cc__ float*)c), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768), ((__cbuf__ bfloat16_t*)buf_dyn_l1), (bool)1, 0, 0);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm((&(C[0])), ((__cc__ float*)c), 512, 256, 512, 256, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
}

