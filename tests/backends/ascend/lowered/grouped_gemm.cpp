// Lowered from ascend_kernels.py: grouped_gemm(), source abdce668dbd5e17891d83567.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __cube__ void ggemm_kernel(__gm__ bfloat16_t* A, __gm__ bfloat16_t* B, __gm__ bfloat16_t* C, __gm__ int32_t* Off) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __ca__ bfloat16_t *a0 = (__ca__ bfloat16_t *)0;
  __cb__ bfloat16_t *b0 = (__cb__ bfloat16_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  int32_t a_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(3));
  asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  a_version_counter_1 = 0;
  for (int32_t w = 0; w < 3; ++w) {
    int32_t lo = Off[w];
    int32_t hi = Off[(w + 1)];
    for (int32_t mt = 0; mt < (((hi + 31) - lo) >> 5); ++mt) {
      for (int32_t k = 0; k < 2; ++k) {
        asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(((a_version_counter_1 & 1) + 2)));
        asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
        asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((a_version_counter_1 & 1) * 1024) + 2048)), (&(B[(((w * 4096) + (((int32_t)block_idx) * 2048)) + (k * 32))])), 128, static_cast<asc_load_l2_cache_mode>(0), 32, 32, 0, 0);
        asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(((a_version_counter_1 & 1) + 2)));
        asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>((a_version_counter_1 & 1)));
        asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
        asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((a_version_counter_1 & 1) * 1024)), (&(A[(((((int64_t)mt) * (int64_t)2048) + (((int64_t)lo) * (int64_t)64)) + (((int64_t)k) * (int64_t)32))])), 128, static_cast<asc_load_l2_cache_mode>(0), min(32, ((hi - lo) - (mt * 32))), 32, 0, 0);
        asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>((a_version_counter_1 & 1)));
        asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
        asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(((a_version_counter_1 & 1) + 2)));
        asc_copy_l12l0b(((__cb__ bfloat16_t*)b0), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((a_version_counter_1 & 1) * 1024) + 2048)), 0, 0, 2, 2, 2, 2);
        asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(((a_version_counter_1 & 1) + 2)));
        asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>((a_version_counter_1 & 1)));
        asc_copy_l12l0a(((__ca__ bfloat16_t*)a0), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((a_version_counter_1 & 1) * 1024)), 0, 0, (((min(32, ((hi - lo) - (mt * 32))) - 1) >> 4) + 1), 2, 2, (((min(32, ((hi - lo) - (mt * 32))) - 1) >> 4) + 1));
        asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
        asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>((a_version_counter_1 & 1)));
        if (k == 0) {
          asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
        }
        asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
        asc_mmad(((__cc__ float*)c), ((__ca__ bfloat16_t*)a0), ((__cb__ bfloat16_t*)b0), min(32, ((hi - lo) - (mt * 32))), 32, 32, 0, 1, 0, (k == 0));
        asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
        if (k == 1) {
          asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
        }
        a_version_counter_1 = (a_version_counter_1 + 1);
      }
      asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
      asc_set_l0c_copy_nz_para(1, 0, 0);
      asc_copy_l0c2gm((&(C[(((((int64_t)mt) * (int64_t)2048) + (((int64_t)lo) * (int64_t)64)) + (((int64_t)((int32_t)block_idx)) * (int64_t)32))])), ((__cc__ float*)c), 32, min(32, ((hi - lo) - (mt * 32))), 64, ((((min(32, ((hi - lo) - (mt * 32))) - 1) >> 4) * 16) + 16), static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(16), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
      asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(3));
  asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
  asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
}

