// Lowered from ascend_kernels.py: gemm(), source 296fad2299b9a739c278d5d6.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void gemm_kernel_kernel(__gm__ bfloat16_t* A, __gm__ bfloat16_t* B, __gm__ float* C, int32_t M) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  for (int32_t w = 0; w < ((M + 31) >> 5); ++w) {
    for (int32_t k = 0; k < 3; ++k) {
      asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>((((w * 3) + k) & 1)));
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((((w * 3) + k) & 1) * 1024)), (&(A[(((((int64_t)w) % ((((int64_t)M) + (int64_t)31) >> (int64_t)5)) * (int64_t)3072) + (((int64_t)k) * (int64_t)32))])), 192, static_cast<asc_load_l2_cache_mode>(0), min(32, max((M - ((w % ((M + 31) >> 5)) * 32)), 0)), 32, 0, 0);
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((((w * 3) + k) & 1) * 1024)) + (min(32, max((M - ((w % ((M + 31) >> 5)) * 32)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(2), .blk_num = static_cast<uint64_t>(max(0, (32 - max((M - ((w % ((M + 31) >> 5)) * 32)), 0)))), .dst_gap = static_cast<uint64_t>((32 - max(0, (32 - max((M - ((w % ((M + 31) >> 5)) * 32)), 0)))))});
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((((w * 3) + k) & 1) * 1024) + 2048)) + (min(32, max(((56 - (((int32_t)block_idx) * 32)) - ((w / ((M + 31) >> 5)) * 64)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(2), .blk_num = static_cast<uint64_t>(max(0, (32 - max(((56 - (((int32_t)block_idx) * 32)) - ((w / ((M + 31) >> 5)) * 64)), 0)))), .dst_gap = static_cast<uint64_t>((32 - max(0, (32 - max(((56 - (((int32_t)block_idx) * 32)) - ((w / ((M + 31) >> 5)) * 64)), 0)))))});
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((((w * 3) + k) & 1) * 1024) + 2048)), (&(B[((((((int64_t)w) / ((((int64_t)M) + (int64_t)31) >> (int64_t)5)) * (int64_t)6144) + (((int64_t)((int32_t)block_idx)) * (int64_t)3072)) + (((int64_t)k) * (int64_t)32))])), 192, static_cast<asc_load_l2_cache_mode>(0), min(32, max(((56 - (((int32_t)block_idx) * 32)) - ((w / ((M + 31) >> 5)) * 64)), 0)), 32, 0, 0);
      asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>((((w * 3) + k) & 1)));
      if (k == 0) {
        asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>((((w * 3) + k) & 1)));
      ascend_gemm_l1<32, 32, 32, 32, true, bfloat16_t>(((__cc__ float*)c), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((((w * 3) + k) & 1) * 1024)), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((((w * 3) + k) & 1) * 1024) + 2048)), (k == 0), 0, 0);
      asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>((((w * 3) + k) & 1)));
      if (k == 2) {
        asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2gm((&(C[((((((int64_t)w) % ((((int64_t)M) + (int64_t)31) >> (int64_t)5)) * (int64_t)1792) + ((((int64_t)w) / ((((int64_t)M) + (int64_t)31) >> (int64_t)5)) * (int64_t)64)) + (((int64_t)((int32_t)block_idx)) * (int64_t)32))])), ((__cc__ float*)c), min(32, max(((56 - (((int32_t)block_idx) * 32)) - ((w / ((M + 31) >> 5)) * 64)), 0)), min(32, max((M - ((w % ((M + 31) >> 5)) * 32)), 0)), 56, 32, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
    asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
}

