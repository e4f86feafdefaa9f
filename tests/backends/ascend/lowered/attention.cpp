// Lowered from ascend_kernels.py: attention(), source 76a0c47702b1e1b5b13a1865.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/nd2nz_copy.h>
__simt_vf__ __launch_bounds__(64) inline void attention_kernel_kernel_simt_vf_0(__ubuf__ uint8_t* buf_dyn_shmem) {
  #pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    float broadcast_var = float(0x0p+0f/*0.000000e+00*/);
    *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 1024)) = make_float2(broadcast_var, broadcast_var);
  }
  if (((int32_t)threadIdx.x) < 16) {
    ((__ubuf__ float*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 3600)] = float(-0x1.93e5939a08ceap+99f/*-1.000000e+30*/);
    ((__ubuf__ float*)buf_dyn_shmem)[(((int32_t)threadIdx.x) + 3616)] = float(0x0p+0f/*0.000000e+00*/);
  }
}

__simt_vf__ __launch_bounds__(64) inline void attention_kernel_kernel_simt_vf_1(__ubuf__ uint8_t* buf_dyn_shmem) {
  float sf[8];
  float m2[2];
  float ls[2];
  #pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    float broadcast_var = float(0x1p-3f/*1.250000e-01*/);
    *(float2*)(sf + (i * 2)) = (*(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((((i >> 1) * 256) + (((int32_t)threadIdx.x) * 4)) + ((i & 1) * 2)) + 2048)) * make_float2(broadcast_var, broadcast_var));
  }
  #pragma unroll
  for (int32_t i_1 = 0; i_1 < 2; ++i_1) {
    m2[i_1] = tl::limits::kFloatNInf;
    #pragma unroll
    for (int32_t rv = 0; rv < 4; ++rv) {
      m2[i_1] = max(m2[i_1], sf[((i_1 * 4) + rv)]);
    }
    m2[i_1] = tl::AscendAllReduce<tl::MaxOp, 8, 1, 0>::run(m2[i_1]);
  }
  #pragma unroll
  for (int32_t i_2 = 0; i_2 < 2; ++i_2) {
    m2[i_2] = max(m2[i_2], ((__ubuf__ float*)buf_dyn_shmem)[(((i_2 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3600)]);
  }
  #pragma unroll
  for (int32_t i_3 = 0; i_3 < 4; ++i_3) {
    float2 _;
      float2 v_ = *(float2*)(sf + (i_3 * 2)) - make_float2(m2[(i_3 >> 1)], m2[(i_3 >> 1)]);
      _.x = expf(v_.x);
      _.y = expf(v_.y);
    *(float2*)(sf + (i_3 * 2)) = _;
  }
  #pragma unroll
  for (int32_t i_4 = 0; i_4 < 2; ++i_4) {
    ls[i_4] = float(0x0p+0f/*0.000000e+00*/);
    #pragma unroll
    for (int32_t rv_1 = 0; rv_1 < 4; ++rv_1) {
      ls[i_4] = (ls[i_4] + sf[((i_4 * 4) + rv_1)]);
    }
    ls[i_4] = tl::AscendAllReduce<tl::SumOp, 8, 1, 0>::run(ls[i_4]);
  }
  asc_syncthreads();
  if ((((int32_t)threadIdx.x) % 8) == 0) {
    #pragma unroll
    for (int32_t i_5 = 0; i_5 < 2; ++i_5) {
      ((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3632)] = expf((((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3600)] - m2[i_5]));
      ((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3616)] = ((((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3616)] * expf((((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3600)] - m2[i_5]))) + ls[i_5]);
      ((__ubuf__ float*)buf_dyn_shmem)[(((i_5 * 8) + (((int32_t)threadIdx.x) >> 3)) + 3600)] = m2[i_5];
    }
  }
  #pragma unroll
  for (int32_t i_6 = 0; i_6 < 2; ++i_6) {
    bfloat16_t pb_local_cast[4];
    for (int32_t vec = 0; vec < 2; ++vec) {
      uint1 __1;
        float2 v__1 = *(float2*)(sf + ((i_6 * 4) + (vec * 2)));
        (reinterpret_cast<bfloat16x2_t*>(&__1))[0] = __float22bfloat162_rn(((float2*)(&v__1))[0]);
      *(uint1*)(pb_local_cast + (vec * 2)) = __1;
    }
    *(__ubuf__ uint2*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + (((i_6 * 256) + (((int32_t)threadIdx.x) * 4)) + 6688)) = *(uint2*)(pb_local_cast + 0);
  }
}

__simt_vf__ __launch_bounds__(64) inline void attention_kernel_kernel_simt_vf_2(__ubuf__ uint8_t* buf_dyn_shmem) {
  #pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 1024)) = ((*(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 1024)) * make_float2(((__ubuf__ float*)buf_dyn_shmem)[(((i * 2) + (((int32_t)threadIdx.x) >> 5)) + 3632)], ((__ubuf__ float*)buf_dyn_shmem)[(((i * 2) + (((int32_t)threadIdx.x) >> 5)) + 3632)])) + *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + ((i * 128) + (((int32_t)threadIdx.x) * 2))));
  }
}

__simt_vf__ __launch_bounds__(64) inline void attention_kernel_kernel_simt_vf_3(__ubuf__ uint8_t* buf_dyn_shmem) {
  #pragma unroll
  for (int32_t i = 0; i < 8; ++i) {
    bfloat16_t ob_local_cast_1[2];
    float acc_local_cast_2[2];
    float l_local_cast_3[2];
    *(float2*)(acc_local_cast_2 + 0) = *(__ubuf__ float2*)(((__ubuf__ float*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 1024));
    *(float2*)(l_local_cast_3 + 0) = make_float2(((__ubuf__ float*)buf_dyn_shmem)[(((i * 2) + (((int32_t)threadIdx.x) >> 5)) + 3616)], ((__ubuf__ float*)buf_dyn_shmem)[(((i * 2) + (((int32_t)threadIdx.x) >> 5)) + 3616)]);
    uint1 _;
      float2 __1;
        float2 v_ = *(float2*)(acc_local_cast_2 + 0);
        float2 v__1 = *(float2*)(l_local_cast_3 + 0);
        __1.x = (v_.x/v__1.x);
        __1.y = (v_.y/v__1.y);
      (reinterpret_cast<bfloat16x2_t*>(&_))[0] = __float22bfloat162_rn(((float2*)(&__1))[0]);
    *(uint1*)(ob_local_cast_1 + 0) = _;
    *(__ubuf__ uint1*)(((__ubuf__ bfloat16_t*)buf_dyn_shmem) + (((i * 128) + (((int32_t)threadIdx.x) * 2)) + 5120)) = *(uint1*)(ob_local_cast_1 + 0);
  }
}

extern "C" __global__ __mix__(1, 2) void attention_kernel_kernel(__gm__ int32_t* Idx, __gm__ bfloat16_t* KV, __gm__ bfloat16_t* O, __gm__ bfloat16_t* Q, int32_t B_) {
  asc_init();
  __cbuf__ uint8_t *buf_dyn_l1 = (__cbuf__ uint8_t *)0;
  __cc__ uint8_t *buf_dyn_l0c = (__cc__ uint8_t *)0;
  __cb__ uint8_t *buf_dyn_l0b = (__cb__ uint8_t *)0;
  __ca__ uint8_t *buf_dyn_l0a = (__ca__ uint8_t *)0;
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  if ASC_IS_AIC {
    asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
    asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
    for (int32_t w = 0; w < (((((((B_ - 1) / max(1, min(8, B_))) + (((B_ - 1) % max(1, min(8, B_))) >> 31)) + 1) * max(1, min(8, B_))) + 1) >> 1); ++w) {
      if ((((((w * 2) + ((int32_t)block_idx)) / max(1, min(8, B_))) * max(1, min(8, B_))) + (((w * 2) + ((int32_t)block_idx)) % max(1, min(8, B_)))) < B_) {
        asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
        asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
        asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1), (&(Q[((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)2048) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)2048))])), 128, static_cast<asc_load_l2_cache_mode>(0), 32, 64, 0, 0);
        asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(1));
        for (int32_t n = 0; n < 2; ++n) {
          for (int32_t r = 0; r < 32; ++r) {
            int32_t src = Idx[((((((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)64) + ((((((int64_t)w) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)64)) + (((int64_t)n) * (int64_t)32)) + ((int64_t)r))];
            if (r == 0) {
              asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
            }
            asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>(32), 0);
            asc_copy_gm2l1_nd2nz(((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((r * 16) + 2048)), (&(KV[(((int64_t)src) * (int64_t)64)])), 128, static_cast<asc_load_l2_cache_mode>(0), 1, 64, 0, 0);
            if (r == 31) {
              asc_sync_notify(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
            }
          }
          asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(0));
          asc_copy_l12l0b(((__cb__ bfloat16_t*)buf_dyn_l0b), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 2048), 0, 0, 2, 4, 2, 2);
          if (n == 0) {
            asc_sync_wait(PIPE_MTE2, PIPE_MTE1, static_cast<event_t>(1));
          }
          asc_copy_l12l0a(((__ca__ bfloat16_t*)buf_dyn_l0a), ((__cbuf__ bfloat16_t*)buf_dyn_l1), 0, 0, 2, 4, 2, 2);
          asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(1));
          if (n == 1) {
            asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
          }
          asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(1));
          asc_mmad(((__cc__ float*)buf_dyn_l0c + 2048), ((__ca__ bfloat16_t*)buf_dyn_l0a), ((__cb__ bfloat16_t*)buf_dyn_l0b), 32, 64, 32, 0, 1, 0, (bool)1);
          asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(1));
          asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(1));
          asc_set_l0c_copy_nz_para(1, 0, 0);
          asc_copy_l0c2ub((&(((__ubuf__ float*)buf_dyn_shmem)[2048])), ((__cc__ float*)buf_dyn_l0c + 2048), 32, 32, 32, 32, 0, static_cast<asc_dual_dst_mode>(1), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
          asc_sync_intra_arrive(PIPE_FIX, 2);
          asc_sync_intra_arrive(PIPE_FIX, 18);
          asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
          asc_copy_l12l0b_transpose(((__cb__ bfloat16_t*)buf_dyn_l0b + 2048), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 2048), 0, 0, 2, 4, 2, 4);
          asc_sync_notify(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
          asc_sync_intra_wait(PIPE_MTE1, 17);
          asc_sync_intra_wait(PIPE_MTE1, 1);
          asc_copy_l12l0a(((__ca__ bfloat16_t*)buf_dyn_l0a + 2048), ((__cbuf__ bfloat16_t*)buf_dyn_l1 + 4096), 0, 0, 2, 2, 2, 2);
          asc_sync_notify(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
          asc_sync_wait(PIPE_MTE1, PIPE_M, static_cast<event_t>(0));
          asc_mmad(((__cc__ float*)buf_dyn_l0c), ((__ca__ bfloat16_t*)buf_dyn_l0a + 2048), ((__cb__ bfloat16_t*)buf_dyn_l0b + 2048), 32, 32, 64, 0, 1, 0, (bool)1);
          asc_sync_notify(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
          asc_sync_notify(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
          asc_sync_wait(PIPE_M, PIPE_FIX, static_cast<event_t>(0));
          asc_set_l0c_copy_nz_para(1, 0, 0);
          asc_copy_l0c2ub((&(((__ubuf__ float*)buf_dyn_shmem)[0])), ((__cc__ float*)buf_dyn_l0c), 64, 32, 64, 32, 0, static_cast<asc_dual_dst_mode>(1), static_cast<asc_unit_flag_mode>(0), static_cast<asc_quant_mode>(0), static_cast<asc_relu_pre_mode>(0), 0, 1, 0, 0);
          asc_sync_intra_arrive(PIPE_FIX, 0);
          asc_sync_intra_arrive(PIPE_FIX, 16);
        }
      }
    }
    asc_sync_wait(PIPE_M, PIPE_MTE1, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE1, PIPE_MTE2, static_cast<event_t>(1));
  }
  if ASC_IS_AIV {
    int32_t sid = asc_get_sub_block_id();
    for (int32_t w_1 = 0; w_1 < (((((((B_ - 1) / max(1, min(8, B_))) + (((B_ - 1) % max(1, min(8, B_))) >> 31)) + 1) * max(1, min(8, B_))) + 1) >> 1); ++w_1) {
      if ((((((w_1 * 2) + ((int32_t)block_idx)) / max(1, min(8, B_))) * max(1, min(8, B_))) + (((w_1 * 2) + ((int32_t)block_idx)) % max(1, min(8, B_)))) < B_) {
        asc_vf_call<attention_kernel_kernel_simt_vf_0>(cce::dim3(64), buf_dyn_shmem);
        for (int32_t n_1 = 0; n_1 < 2; ++n_1) {
          asc_sync_intra_wait(PIPE_V, 2);
          asc_vf_call<attention_kernel_kernel_simt_vf_1>(cce::dim3(64), buf_dyn_shmem);
          ascend_nd2nz_scatter<16, 32, bfloat16_t, bfloat16_t>((__ubuf__ bfloat16_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[6688]))), (__ubuf__ bfloat16_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[6144]))));
          asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
          asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
          asc_copy_ub2l1((__cbuf__ void*)(((__cbuf__ bfloat16_t*)buf_dyn_l1 + ((sid * 256) + 4096))), (__ubuf__ void*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[6144]))), 2, 16, 1, 16);
          asc_sync_intra_arrive(PIPE_MTE3, 1);
          asc_sync_intra_wait(PIPE_V, 0);
          asc_vf_call<attention_kernel_kernel_simt_vf_2>(cce::dim3(64), buf_dyn_shmem);
        }
        asc_vf_call<attention_kernel_kernel_simt_vf_3>(cce::dim3(64), buf_dyn_shmem);
        asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
        asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(O[(((((((((int64_t)w_1) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) / max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)2048) + ((((((int64_t)w_1) * (int64_t)2) + ((int64_t)((int32_t)block_idx))) % max((int64_t)1, min((int64_t)8, ((int64_t)B_)))) * (int64_t)2048)) + (((int64_t)sid) * (int64_t)1024))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[5120]))), 1, 2048, static_cast<asc_store_l2_cache_mode>(0), 2048, 2048);
      }
    }
  }
}

