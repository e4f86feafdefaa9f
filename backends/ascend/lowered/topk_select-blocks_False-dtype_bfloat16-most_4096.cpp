// Lowered by tilelang 0.1.15 from index_kernels.py: topk_select(blocks=False, dtype='bfloat16', most=4096), source bed62f750d25fa4a7e823134.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void topk_select_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t k) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(-32768, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28736])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28928])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28992])), 0, v);
  for (int32_t c = 0; c < ((k + 63) >> 6); ++c) {
    simd_inst::vsts_norm(simd_inst::vdup<int32_t>(-1, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 24576)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28800])), 0, v);
}

__simd_vf__ inline void topk_select_kernel_simd_vf_2(int32_t N, int32_t ch, __ubuf__ uint8_t* buf_dyn_shmem, int32_t visible) {
  for (int32_t c = 0; c < ((min(16384, (N - (ch * 16384))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(16384, (N - (ch * 16384))) - (c * 64)));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto zero = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto value = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto word = simd_inst::vshrs((*(vector_s32 *)(&(value))), (int16_t)16, v, MODE_ZEROING);
    auto nought = simd_inst::vcmps_eq(value, float(0x0p+0f/*0.000000e+00*/), v);
    auto plain = simd_inst::vsel(zero, word, nought);
    auto mask = simd_inst::vdup<int32_t>(32767, v, MODE_ZEROING);
    auto negative = simd_inst::vshrs(plain, (int16_t)31, v, MODE_ZEROING);
    auto ordered = simd_inst::vxor(plain, simd_inst::vand(negative, mask, v, MODE_ZEROING), v, MODE_ZEROING);
    auto nan = simd_inst::vcmps_gt(simd_inst::vand(plain, mask, v, MODE_ZEROING), 32640, v);
    auto number = simd_inst::vsel(simd_inst::vdup<int32_t>(-32767, v, MODE_ZEROING), ordered, nan);
    auto lane = simd_inst::vci<int32_t>(((ch * 16384) + (c * 64)), INC_ORDER);
    auto near = simd_inst::vcmps_lt(lane, visible, some);
    simd_inst::vsts_norm(simd_inst::vsel(number, simd_inst::vdup<int32_t>(-32768, v, MODE_ZEROING), near), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_3(__ubuf__ uint8_t* buf_dyn_shmem, int32_t p, int32_t N, int32_t ch) {
  vector_s32 found;
  found = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28800])), 0);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  int32_t condval;
  if (((p == 0) || (16 < p))) {
    condval = 1;
  } else {
    condval = (1 << (16 - p));
  }
  auto candidate = simd_inst::vadds(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28736])), 0), condval, v, MODE_ZEROING);
  for (int32_t c = 0; c < ((min(16384, (N - (ch * 16384))) + 63) >> 6); ++c) {
    auto enough = simd_inst::vcmp_ge(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0), candidate, v);
    auto one = simd_inst::vsel(simd_inst::vdup<int32_t>(1, v, MODE_ZEROING), simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), enough);
    found = simd_inst::vadd(found, one, v, MODE_ZEROING);
  }
  simd_inst::vsts_norm(found, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28800])), 0, v);
}

__simd_vf__ inline void topk_select_kernel_simd_vf_4(__ubuf__ uint8_t* buf_dyn_shmem, int32_t p, int32_t k) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto total = simd_inst::vdupv(simd_inst::vcadd(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28800])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING);
  auto old = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28736])), 0);
  auto wanted = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28864])), 0);
  if (p == 0) {
    simd_inst::vsts_norm(simd_inst::vmin(total, simd_inst::vdup<int32_t>(k, v, MODE_ZEROING), v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28864])), 0, v);
  }
  if ((0 < p) && (p <= 16)) {
    auto keep = simd_inst::vcmp_ge(total, wanted, v);
    simd_inst::vsts_norm(simd_inst::vsel(simd_inst::vadds(old, (1 << (16 - p)), v, MODE_ZEROING), old, keep), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28736])), 0, v);
  }
  if (16 < p) {
    simd_inst::vsts_norm(simd_inst::vsub(wanted, total, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[29056])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_5(int32_t N, int32_t ch_1, __ubuf__ uint8_t* buf_dyn_shmem, int32_t visible) {
  for (int32_t c = 0; c < ((min(16384, (N - (ch_1 * 16384))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(16384, (N - (ch_1 * 16384))) - (c * 64)));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto zero = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto value = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto word = simd_inst::vshrs((*(vector_s32 *)(&(value))), (int16_t)16, v, MODE_ZEROING);
    auto nought = simd_inst::vcmps_eq(value, float(0x0p+0f/*0.000000e+00*/), v);
    auto plain = simd_inst::vsel(zero, word, nought);
    auto mask = simd_inst::vdup<int32_t>(32767, v, MODE_ZEROING);
    auto negative = simd_inst::vshrs(plain, (int16_t)31, v, MODE_ZEROING);
    auto ordered = simd_inst::vxor(plain, simd_inst::vand(negative, mask, v, MODE_ZEROING), v, MODE_ZEROING);
    auto nan = simd_inst::vcmps_gt(simd_inst::vand(plain, mask, v, MODE_ZEROING), 32640, v);
    auto number = simd_inst::vsel(simd_inst::vdup<int32_t>(-32767, v, MODE_ZEROING), ordered, nan);
    auto lane = simd_inst::vci<int32_t>(((ch_1 * 16384) + (c * 64)), INC_ORDER);
    auto near = simd_inst::vcmps_lt(lane, visible, some);
    simd_inst::vsts_norm(simd_inst::vsel(number, simd_inst::vdup<int32_t>(-32768, v, MODE_ZEROING), near), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_6(__ubuf__ uint8_t* buf_dyn_shmem, int32_t N, int32_t ch_1) {
  vector_s32 written;
  vector_s32 passed;
  written = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28928])), 0);
  passed = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28992])), 0);
  auto border = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28736])), 0);
  auto ties = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[29056])), 0);
  vector_bool full = asc_create_mask_b32(PAT_ALL);
  for (int32_t c = 0; c < ((min(16384, (N - (ch_1 * 16384))) + 63) >> 6); ++c) {
    auto value = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0);
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto above = simd_inst::vcmp_gt(value, border, v);
    auto equal = simd_inst::vcmp_eq(value, border, v);
    auto early = simd_inst::vcmp_lt(simd_inst::vadd(simd_inst::vusqz<int32_t>(equal), passed, v, MODE_ZEROING), ties, equal);
    auto taken = simd_inst::por(above, early, full);
    auto place = simd_inst::vadd(simd_inst::vusqz<int32_t>(taken), written, v, MODE_ZEROING);
    auto lane = simd_inst::vci<int32_t>(((ch_1 * 16384) + (c * 64)), INC_ORDER);
    simd_inst::vscatter(lane, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[24576])), (*(vector_u32 *)(&(place))), taken);
    auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
    auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    written = simd_inst::vadd(written, simd_inst::vdupv(simd_inst::vcadd(simd_inst::vsel(one, none, taken), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
    passed = simd_inst::vadd(passed, simd_inst::vdupv(simd_inst::vcadd(simd_inst::vsel(one, none, equal), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
  }
  vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(written, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28928])), 0, v_1);
  simd_inst::vsts_norm(passed, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[28992])), 0, v_1);
}

extern "C" __global__ __vector__ void topk_select_kernel(__gm__ int32_t* I, __gm__ int32_t* V, __gm__ bfloat16_t* X, int32_t N, int32_t cores, int32_t k, int32_t m) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t visible = 0;
    visible = V[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    topk_select_kernel_simd_vf_0(buf_dyn_shmem, k);
    for (int32_t p = 0; p < 18; ++p) {
      topk_select_kernel_simd_vf_1(buf_dyn_shmem);
      if (p == 0) {
        asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        asc_sync_pipe(PIPE_MTE2);
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
      }
      for (int32_t ch = 0; ch < ((N + 16383) >> 14); ++ch) {
        int8_t __cond_0 = ((int8_t)(bool)0);
        __cond_0 = ((int8_t)((p == 0) || (16384 < N)));
        if ((bool)__cond_0) {
          asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        }
        if ((bool)__cond_0) {
          asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch) * (int64_t)16384) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(16384, (N - (ch * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (N - (ch * 16384))) * 2), (min(16384, (N - (ch * 16384))) * 2));
        }
        if ((bool)__cond_0) {
          asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
        }
        if ((bool)__cond_0) {
          asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
        }
        if ((bool)__cond_0) {
          topk_select_kernel_simd_vf_2(N, ch, buf_dyn_shmem, visible);
        }
        if ((bool)__cond_0) {
          asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        }
        topk_select_kernel_simd_vf_3(buf_dyn_shmem, p, N, ch);
      }
      if (p == 17) {
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
        asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(3));
      }
      topk_select_kernel_simd_vf_4(buf_dyn_shmem, p, k);
    }
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(3));
    asc_sync_pipe(PIPE_MTE2);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
    for (int32_t ch_1 = 0; ch_1 < ((N + 16383) >> 14); ++ch_1) {
      int8_t __cond_1 = ((int8_t)(bool)0);
      __cond_1 = ((int8_t)(16384 < N));
      if ((bool)__cond_1) {
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
      }
      if ((bool)__cond_1) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch_1) * (int64_t)16384) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(16384, (N - (ch_1 * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (N - (ch_1 * 16384))) * 2), (min(16384, (N - (ch_1 * 16384))) * 2));
      }
      if ((bool)__cond_1) {
        asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
      }
      if ((bool)__cond_1) {
        asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
      }
      if ((bool)__cond_1) {
        topk_select_kernel_simd_vf_5(N, ch_1, buf_dyn_shmem, visible);
      }
      if ((bool)__cond_1) {
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
      }
      topk_select_kernel_simd_vf_6(buf_dyn_shmem, N, ch_1);
    }
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(I[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)k))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[24576]))), 1, (k * 4), static_cast<asc_store_l2_cache_mode>(4), (k * 4), (k * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
}

