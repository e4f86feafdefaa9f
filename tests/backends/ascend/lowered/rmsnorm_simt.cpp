// Lowered from ascend_kernels.py: rmsnorm_simt(), source 7ad207fa1729a64c9a164328.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(64) inline void rmsnorm_simt_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  float sq[16];
  float ss[1];
  #pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    bfloat16_t x_local_cast[4];
    *(uint2*)(x_local_cast + 0) = *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + ((i * 256) + (((int32_t)threadIdx.x) * 4)));
    for (int32_t vec = 0; vec < 2; ++vec) {
      float2 _;
        uint1 v_ = *(uint1*)(x_local_cast + (vec * 2));
        ((float2*)(&_))[0] = __bfloat1622float2((reinterpret_cast<bfloat16x2_t*>(&v_))[0]);
      float2 __1;
        uint1 v__1 = *(uint1*)(x_local_cast + (vec * 2));
        ((float2*)(&__1))[0] = __bfloat1622float2((reinterpret_cast<bfloat16x2_t*>(&v__1))[0]);
      *(float2*)(sq + ((i * 4) + (vec * 2))) = (_ * __1);
    }
  }
  float ss_clear[4];
  #pragma unroll
  for (int32_t i_1 = 0; i_1 < 4; ++i_1) {
    ss_clear[i_1] = float(0x0p+0f/*0.000000e+00*/);
    #pragma unroll
    for (int32_t rv = 0; rv < 4; ++rv) {
      ss_clear[i_1] = (ss_clear[i_1] + sq[((i_1 * 4) + rv)]);
    }
    asc_syncthreads();
    ss_clear[i_1] = tl::AscendAllReduce<tl::SumOp, 64, 1, 0>::run(ss_clear[i_1], (&(((__ubuf__ float*)buf_dyn_shmem)[1152])));
    if ((((int32_t)threadIdx.x) & 3) == i_1) {
      ss[0] = ss_clear[i_1];
    }
  }
  ss[0] = rsqrtf(((ss[0] / float(0x1p+8f/*2.560000e+02*/)) + float(0x1.0c6f7a0b5ed8dp-20f/*1.000000e-06*/)));
  asc_syncthreads();
  if ((((int32_t)threadIdx.x) >> 2) == 0) {
    #pragma unroll
    for (int32_t i_2 = 0; i_2 < 64; ++i_2) {
      bfloat16_t y_local_cast_1[4];
      bfloat16_t x_local_cast_2[4];
      bfloat16_t w_local_cast_3[4];
      *(uint2*)(x_local_cast_2 + 0) = *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + (((((int32_t)threadIdx.x) & 3) * 256) + (i_2 * 4)));
      *(uint2*)(w_local_cast_3 + 0) = *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + ((i_2 * 4) + 2048));
      for (int32_t vec_1 = 0; vec_1 < 2; ++vec_1) {
        uint1 __2;
          float2 __3;
            uint1 v__2 = *(uint1*)(x_local_cast_2 + (vec_1 * 2));
            ((float2*)(&__3))[0] = __bfloat1622float2((reinterpret_cast<bfloat16x2_t*>(&v__2))[0]);
          float2 __4;
            uint1 v__3 = *(uint1*)(w_local_cast_3 + (vec_1 * 2));
            ((float2*)(&__4))[0] = __bfloat1622float2((reinterpret_cast<bfloat16x2_t*>(&v__3))[0]);
          float2 v__4 = (__3 * make_float2(ss[0], ss[0])) * __4;
          (reinterpret_cast<bfloat16x2_t*>(&__2))[0] = __float22bfloat162_rn(((float2*)(&v__4))[0]);
        *(uint1*)(y_local_cast_1 + (vec_1 * 2)) = __2;
      }
      *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + ((((((int32_t)threadIdx.x) & 3) * 256) + (i_2 * 4)) + 1024)) = *(uint2*)(y_local_cast_1 + 0);
    }
  }
}

extern "C" __global__ __vector__ void rmsnorm_simt_kernel(__gm__ bfloat16_t* W, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[2048]))), (__gm__ uint8_t*)((&(W[0]))), 1, 512, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), 512, 512);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
  for (int32_t w = 0; w < (((((((((m + 3) >> 2) - 1) / max(1, min(8, ((m + 3) >> 2)))) + (((((m + 3) >> 2) - 1) % max(1, min(8, ((m + 3) >> 2)))) >> 31)) + 1) * max(1, min(8, ((m + 3) >> 2)))) + 1) >> 1); ++w) {
    if ((((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) + (((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2))))) < ((m + 3) >> 2)) {
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)1024) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)1024))]))), 1, (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_vf_call<rmsnorm_simt_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)1024) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((((int64_t)m) + (int64_t)3) >> (int64_t)2)))) * (int64_t)1024))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[1024]))), 1, (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), static_cast<asc_store_l2_cache_mode>(4), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512), (min(4, ((m - (((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, ((m + 3) >> 2)))) * max(1, min(8, ((m + 3) >> 2)))) * 4)) - ((((w * 2) + ((int32_t)block_idx)) % max(1, min(8, ((m + 3) >> 2)))) * 4))) * 512));
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
}

