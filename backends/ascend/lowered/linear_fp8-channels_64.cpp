// Lowered by tilelang 0.1.15 from linear_kernels.py: linear_fp8(channels=64), source 29d91a9c0d0345b683024816.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void linear_fp8_kernel(__gm__ uint16_t* SW, __gm__ uint16_t* SX, __gm__ fp8_e4_t* W, __gm__ fp8_e4_t* X, __gm__ bfloat16_t* Y, int32_t K, int32_t N, int32_t across, int32_t cores, int32_t m, int32_t tiles) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    for (int32_t k = 0; k < (K >> 6); ++k) {
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(128), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ fp8_e4_t*)buf_dyn_l1 + (((k + (i * (K >> 6))) & 1) * 8192)), (&(X[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)across)) * ((int64_t)K)) * (int64_t)128) + (((int64_t)k) * (int64_t)64))])), K, static_cast<asc_load_l2_cache_mode>(0), min(128, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)), min(64, max((K - (k * 64)), 0)), 0, 0);
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ fp8_e4_t*)buf_dyn_l1 + (((k + (i * (K >> 6))) & 1) * 8192)) + (min(128, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(2), .blk_num = static_cast<uint64_t>(max(0, (128 - max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)))), .dst_gap = static_cast<uint64_t>((128 - max(0, (128 - max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)))))});
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(1), 0);
      asc_copy_gm2l1_dn2nz(((__cbuf__ uint16_t*)buf_dyn_l1 + ((((k + (i * (K >> 6))) & 1) * 128) + 12544)), (&(SW[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)across)) * (((int64_t)K) >> (int64_t)6)) * (int64_t)128) + ((int64_t)k))])), ((K >> 6) * 2), static_cast<asc_load_l2_cache_mode>(0), 1, min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)), 0, 0);
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(1), 0);
      asc_copy_gm2l1_dn2nz(((__cbuf__ uint16_t*)buf_dyn_l1 + ((((k + (i * (K >> 6))) & 1) * 128) + 12288)), (&(SX[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)across)) * (((int64_t)K) >> (int64_t)6)) * (int64_t)128) + ((int64_t)k))])), ((K >> 6) * 2), static_cast<asc_load_l2_cache_mode>(0), 1, min(128, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)), 0, 0);
      asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(128), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ fp8_e4_t*)buf_dyn_l1 + 16384), (&(W[(((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)across)) * ((int64_t)K)) * (int64_t)128) + (((int64_t)k) * (int64_t)64))])), K, static_cast<asc_load_l2_cache_mode>(0), min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)), min(64, max((K - (k * 64)), 0)), 0, 0);
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ fp8_e4_t*)buf_dyn_l1 + 16384) + (min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(2), .blk_num = static_cast<uint64_t>(max(0, (128 - max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)))), .dst_gap = static_cast<uint64_t>((128 - max(0, (128 - max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)))))});
      asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
      if (k == 0) {
        asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
      ascend_blockscaled_gemm_l1<128, 64, 128, 64, true, 1, float8_e4m3_t, uint16_t, float>(((__cc__ float*)c), ((__cbuf__ fp8_e4_t*)buf_dyn_l1 + (((k + (i * (K >> 6))) & 1) * 8192)), ((__cbuf__ fp8_e4_t*)buf_dyn_l1 + 16384), (__cbuf__ uint16_t*)(((__cbuf__ uint16_t*)buf_dyn_l1 + ((((k + (i * (K >> 6))) & 1) * 128) + 12288))), (__cbuf__ uint16_t*)(((__cbuf__ uint16_t*)buf_dyn_l1 + ((((k + (i * (K >> 6))) & 1) * 128) + 12544))), (k == 0), 0, 0, 0);
      asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
      if ((K >> 6) == (k + 1)) {
        asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2gm((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)across)) * (int64_t)128) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)across)) * ((int64_t)N)) * (int64_t)128))])), ((__cc__ float*)c), min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)), min(128, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 128)), 0)), N, 128, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(16), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
    asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
}

