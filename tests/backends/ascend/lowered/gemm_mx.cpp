// Lowered from ascend_kernels.py: gemm_mx(), source b07035933a268c517f23a36c.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void gemm_mx_kernel(__gm__ fp8_e4_t* A, __gm__ fp8_e4_t* B, __gm__ float* C, __gm__ uint16_t* SA, __gm__ uint16_t* SB) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ fp8_e4_t*)buf_dyn_l1), (&(A[0])), 128, static_cast<asc_load_l2_cache_mode>(0), 32, 128, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
  asc_copy_gm2l1_nd2nz(((__cbuf__ fp8_e4_t*)buf_dyn_l1 + 4096), (&(B[0])), 128, static_cast<asc_load_l2_cache_mode>(0), 32, 128, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(2), 0);
  asc_copy_gm2l1_dn2nz(((__cbuf__ uint16_t*)buf_dyn_l1 + 4096), (&(SA[0])), 4, static_cast<asc_load_l2_cache_mode>(0), 2, 32, 0, 0);
  asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(2), 0);
  asc_copy_gm2l1_dn2nz(((__cbuf__ uint16_t*)buf_dyn_l1 + 4352), (&(SB[0])), 4, static_cast<asc_load_l2_cache_mode>(0), 2, 32, 0, 0);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
  ascend_blockscaled_gemm_l1<32, 128, 32, 128, true, 2, float8_e4m3_t, uint16_t, float>(((__cc__ float*)c), ((__cbuf__ fp8_e4_t*)buf_dyn_l1), ((__cbuf__ fp8_e4_t*)buf_dyn_l1 + 4096), (__cbuf__ uint16_t*)(((__cbuf__ uint16_t*)buf_dyn_l1 + 4096)), (__cbuf__ uint16_t*)(((__cbuf__ uint16_t*)buf_dyn_l1 + 4352)), (bool)1, 0, 0, 0);
  asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
  asc_set_l0c_copy_nz_para(1, 0, 0);
  asc_copy_l0c2gm((&(C[0])), ((__cc__ float*)c), 32, 32, 32, 32, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
}

