// Lowered from ascend_kernels.py: over_capacity(l1), source 2b0b11721f2635c4e245ec6b.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void too_large_kernel(__gm__ bfloat16_t* A, __gm__ bfloat16_t* B, __gm__ float* C) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(128), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1), (&(A[0])), 4608, static_cast<asc_load_l2_cache_mode>(0), 128, 2304, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(128), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + 294912), (&(B[0])), 4608, static_cast<asc_load_l2_cache_mode>(0), 128, 2304, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  ascend_gemm_l1<128, 2304, 128, 128, true, bfloat16_t>(((__cc__ float*)c), ((__cbuf__ bfloat16_t*)buf_dyn_l1), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 294912), (bool)1, 0, 0);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm((&(C[0])), ((__cc__ float*)c), 128, 128, 128, 128, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
}

