// Lowered by tilelang 0.1.15 from linear_kernels.py: linear_bf16(out='float32', rows=16), source a1466eff6fdd55b22b8e4dcc.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/gemm.h>
extern "C" __global__ __cube__ void linear_bf16_kernel(__gm__ bfloat16_t* W, __gm__ bfloat16_t* X, __gm__ float* Y, int32_t K, int32_t N, int32_t across, int32_t cores, int32_t m, int32_t tiles) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ float *c = (__cc__ float *)0;
  asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((tiles + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((tiles + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    for (int32_t k = 0; k < ((K + 127) >> 7); ++k) {
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((k + (i * ((K + 127) >> 7))) & 1) * 16384)) + (((min(128, max((K - (k * 128)), 0)) + 15) >> 4) * 4096)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>((8 - ((min(128, max((K - (k * 128)), 0)) + 15) >> 4))), .blk_num = static_cast<uint64_t>(128), .dst_gap = static_cast<uint64_t>(0)});
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(128), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((k + (i * ((K + 127) >> 7))) & 1) * 16384)), (&(W[((((int64_t)k) * (int64_t)128) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)across)) * ((int64_t)K)) * (int64_t)128))])), (K * 2), static_cast<asc_load_l2_cache_mode>(0), min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)), min(128, max((K - (k * 128)), 0)), 0, 0);
      asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768) + (((min(128, max((K - (k * 128)), 0)) + 15) >> 4) * 512)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>((8 - ((min(128, max((K - (k * 128)), 0)) + 15) >> 4))), .blk_num = static_cast<uint64_t>(16), .dst_gap = static_cast<uint64_t>(0)});
      asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(16), 0);
      asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768), (&(X[((((int64_t)k) * (int64_t)128) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)across)) * ((int64_t)K)) * (int64_t)16))])), (K * 2), static_cast<asc_load_l2_cache_mode>(0), min(16, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 16)), 0)), min(128, max((K - (k * 128)), 0)), 0, 0);
      asc_sync_pipe(PIPE_MTE2);
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((k + (i * ((K + 127) >> 7))) & 1) * 16384)) + (min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(8), .blk_num = static_cast<uint64_t>(max(0, (128 - max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)))), .dst_gap = static_cast<uint64_t>((128 - max(0, (128 - max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)))))});
      asc_sync_pipe(PIPE_MTE2);
      asc_fill_l1((__cbuf__ uint16_t*)((__cbuf__ uint8_t*)((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768) + (min(16, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 16)), 0)) * 32)), (uint32_t)((uint32_t)0), { .repeat = static_cast<uint64_t>(8), .blk_num = static_cast<uint64_t>(max(0, (16 - max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 16)), 0)))), .dst_gap = static_cast<uint64_t>((16 - max(0, (16 - max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 16)), 0)))))});
      asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
      if (k == 0) {
        asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
      }
      asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
      ascend_gemm_l1<16, 128, 128, 128, true, bfloat16_t>(((__cc__ float*)c), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 32768), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + (((k + (i * ((K + 127) >> 7))) & 1) * 16384)), (k == 0), 0, 0);
      asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
      if (((K + 127) >> 7) == (k + 1)) {
        asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
      }
    }
    asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2gm((&(Y[((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)across)) * (int64_t)128) + ((((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) % ((int64_t)across)) * ((int64_t)N)) * (int64_t)16))])), ((__cc__ float*)c), min(128, max((N - (((((int32_t)block_idx) + (i * cores)) / across) * 128)), 0)), min(16, max((m - (((((int32_t)block_idx) + (i * cores)) % across) * 16)), 0)), N, 16, static_cast<asc_store_l2_cache_mode>(0), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
    asc_sync_notify(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_FIX, PIPE_M, static_cast<event_t>(0));
}

