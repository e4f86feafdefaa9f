// Lowered by tilelang 0.1.15 from index_kernels.py: topk_select(blocks=True, dtype='float32', most=4096), source 4152064f51e34ab3959660bc.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void topk_select_kernel_simd_vf_0(__ubuf__ uint8_t* buf_dyn_shmem, int32_t k) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(-2147483648, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41024])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41216])), 0, v);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41280])), 0, v);
  for (int32_t c = 0; c < ((k + 63) >> 6); ++c) {
    simd_inst::vsts_norm(simd_inst::vdup<int32_t>(-1, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 32768)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41088])), 0, v);
}

__simd_vf__ inline void topk_select_kernel_simd_vf_2(int32_t N, int32_t ch, __ubuf__ uint8_t* buf_dyn_shmem, int16_t shift, int32_t size, int32_t visible) {
  for (int32_t c = 0; c < ((min(16384, (N - (ch * 16384))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(16384, (N - (ch * 16384))) - (c * 64)));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto zero = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    auto value32 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0);
    auto nought32 = simd_inst::vcmps_eq(value32, float(0x0p+0f/*0.000000e+00*/), v);
    auto plain = simd_inst::vsel(zero, (*(vector_s32 *)(&(value32))), nought32);
    auto mask = simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING);
    auto negative = simd_inst::vshrs(plain, (int16_t)31, v, MODE_ZEROING);
    auto ordered = simd_inst::vxor(plain, simd_inst::vand(negative, mask, v, MODE_ZEROING), v, MODE_ZEROING);
    auto nan = simd_inst::vcmps_gt(simd_inst::vand(plain, mask, v, MODE_ZEROING), 2139095040, v);
    auto number = simd_inst::vsel(simd_inst::vdup<int32_t>(-2147483647, v, MODE_ZEROING), ordered, nan);
    auto lane = simd_inst::vci<int32_t>(((ch * 16384) + (c * 64)), INC_ORDER);
    auto within = simd_inst::vci<int32_t>((c * 64), INC_ORDER);
      vector_s32 v_ = simd_inst::vshrs(within, shift, v, MODE_ZEROING);
    auto block = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[36928])), (*(vector_u32 *)(&(v_))), some);
    auto start = simd_inst::vshls(block, shift, v, MODE_ZEROING);
    auto entry = simd_inst::vadd(start, simd_inst::vand(lane, simd_inst::vdup<int32_t>((size - 1), v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
    auto there = simd_inst::vcmps_ge(block, 0, some);
    auto seen = simd_inst::vcmps_lt(entry, visible, there);
    simd_inst::vsts_norm(simd_inst::vsel(number, simd_inst::vdup<int32_t>(-2147483648, v, MODE_ZEROING), seen), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_3(__ubuf__ uint8_t* buf_dyn_shmem, int32_t p, int32_t N, int32_t ch) {
  vector_s32 found;
  found = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41088])), 0);
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  int32_t condval;
  if (((p == 0) || (32 < p))) {
    condval = 1;
  } else {
    condval = (1 << (32 - p));
  }
  auto candidate = simd_inst::vadds(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41024])), 0), condval, v, MODE_ZEROING);
  for (int32_t c = 0; c < ((min(16384, (N - (ch * 16384))) + 63) >> 6); ++c) {
    auto enough = simd_inst::vcmp_ge(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0), candidate, v);
    auto one = simd_inst::vsel(simd_inst::vdup<int32_t>(1, v, MODE_ZEROING), simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), enough);
    found = simd_inst::vadd(found, one, v, MODE_ZEROING);
  }
  simd_inst::vsts_norm(found, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41088])), 0, v);
}

__simd_vf__ inline void topk_select_kernel_simd_vf_4(__ubuf__ uint8_t* buf_dyn_shmem, int32_t p, int32_t k) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  auto total = simd_inst::vdupv(simd_inst::vcadd(simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41088])), 0), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING);
  auto old = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41024])), 0);
  auto wanted = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41152])), 0);
  if (p == 0) {
    simd_inst::vsts_norm(simd_inst::vmin(total, simd_inst::vdup<int32_t>(k, v, MODE_ZEROING), v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41152])), 0, v);
  }
  if ((0 < p) && (p <= 32)) {
    auto keep = simd_inst::vcmp_ge(total, wanted, v);
    simd_inst::vsts_norm(simd_inst::vsel(simd_inst::vadds(old, (1 << (32 - p)), v, MODE_ZEROING), old, keep), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41024])), 0, v);
  }
  if (32 < p) {
    simd_inst::vsts_norm(simd_inst::vsub(wanted, total, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41344])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_5(int32_t N, int32_t ch_1, __ubuf__ uint8_t* buf_dyn_shmem, int16_t shift, int32_t size, int32_t visible) {
  for (int32_t c = 0; c < ((min(16384, (N - (ch_1 * 16384))) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(16384, (N - (ch_1 * 16384))) - (c * 64)));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto zero = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    auto value32 = simd_inst::vlds_norm<float>((__ubuf__ float*)(&(((__ubuf__ float*)buf_dyn_shmem)[(c * 64)])), 0);
    auto nought32 = simd_inst::vcmps_eq(value32, float(0x0p+0f/*0.000000e+00*/), v);
    auto plain = simd_inst::vsel(zero, (*(vector_s32 *)(&(value32))), nought32);
    auto mask = simd_inst::vdup<int32_t>(2147483647, v, MODE_ZEROING);
    auto negative = simd_inst::vshrs(plain, (int16_t)31, v, MODE_ZEROING);
    auto ordered = simd_inst::vxor(plain, simd_inst::vand(negative, mask, v, MODE_ZEROING), v, MODE_ZEROING);
    auto nan = simd_inst::vcmps_gt(simd_inst::vand(plain, mask, v, MODE_ZEROING), 2139095040, v);
    auto number = simd_inst::vsel(simd_inst::vdup<int32_t>(-2147483647, v, MODE_ZEROING), ordered, nan);
    auto lane = simd_inst::vci<int32_t>(((ch_1 * 16384) + (c * 64)), INC_ORDER);
    auto within = simd_inst::vci<int32_t>((c * 64), INC_ORDER);
      vector_s32 v_ = simd_inst::vshrs(within, shift, v, MODE_ZEROING);
    auto block = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[36928])), (*(vector_u32 *)(&(v_))), some);
    auto start = simd_inst::vshls(block, shift, v, MODE_ZEROING);
    auto entry = simd_inst::vadd(start, simd_inst::vand(lane, simd_inst::vdup<int32_t>((size - 1), v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
    auto there = simd_inst::vcmps_ge(block, 0, some);
    auto seen = simd_inst::vcmps_lt(entry, visible, there);
    simd_inst::vsts_norm(simd_inst::vsel(number, simd_inst::vdup<int32_t>(-2147483648, v, MODE_ZEROING), seen), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0, v);
  }
}

__simd_vf__ inline void topk_select_kernel_simd_vf_6(__ubuf__ uint8_t* buf_dyn_shmem, int32_t N, int32_t ch_1, int16_t shift, int32_t size) {
  vector_s32 written;
  vector_s32 passed;
  written = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41216])), 0);
  passed = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41280])), 0);
  auto border = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41024])), 0);
  auto ties = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41344])), 0);
  vector_bool full = asc_create_mask_b32(PAT_ALL);
  for (int32_t c = 0; c < ((min(16384, (N - (ch_1 * 16384))) + 63) >> 6); ++c) {
    auto value = simd_inst::vlds_norm<int32_t>((__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[((c * 64) + 16384)])), 0);
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto above = simd_inst::vcmp_gt(value, border, v);
    auto equal = simd_inst::vcmp_eq(value, border, v);
    auto early = simd_inst::vcmp_lt(simd_inst::vadd(simd_inst::vusqz<int32_t>(equal), passed, v, MODE_ZEROING), ties, equal);
    auto taken = simd_inst::por(above, early, full);
    auto place = simd_inst::vadd(simd_inst::vusqz<int32_t>(taken), written, v, MODE_ZEROING);
    auto lane = simd_inst::vci<int32_t>(((ch_1 * 16384) + (c * 64)), INC_ORDER);
    auto within = simd_inst::vshrs(simd_inst::vci<int32_t>((c * 64), INC_ORDER), shift, v, MODE_ZEROING);
    auto block = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[36928])), (*(vector_u32 *)(&(within))), taken);
    auto start = simd_inst::vshls(block, shift, v, MODE_ZEROING);
    auto entry = simd_inst::vadd(start, simd_inst::vand(lane, simd_inst::vdup<int32_t>((size - 1), v, MODE_ZEROING), v, MODE_ZEROING), v, MODE_ZEROING);
    simd_inst::vscatter(entry, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[32768])), (*(vector_u32 *)(&(place))), taken);
    auto one = simd_inst::vdup<int32_t>(1, v, MODE_ZEROING);
    auto none = simd_inst::vdup<int32_t>(0, v, MODE_ZEROING);
    written = simd_inst::vadd(written, simd_inst::vdupv(simd_inst::vcadd(simd_inst::vsel(one, none, taken), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
    passed = simd_inst::vadd(passed, simd_inst::vdupv(simd_inst::vcadd(simd_inst::vsel(one, none, equal), v, MODE_ZEROING), v, POS_LOWEST, MODE_ZEROING), v, MODE_ZEROING);
  }
  vector_bool v_1 = asc_create_mask_b32(PAT_ALL);
  simd_inst::vsts_norm(written, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41216])), 0, v_1);
  simd_inst::vsts_norm(passed, (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[41280])), 0, v_1);
}

extern "C" __global__ __vector__ void topk_select_kernel(__gm__ int32_t* B, __gm__ int32_t* I, __gm__ int32_t* V, __gm__ float* X, int32_t KB, int32_t N, int32_t cores, int32_t k, int32_t m, int16_t shift, int32_t size) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    topk_select_kernel_simd_vf_0(buf_dyn_shmem, k);
    int32_t visible = 0;
    visible = V[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))];
    for (int32_t p = 0; p < 34; ++p) {
      topk_select_kernel_simd_vf_1(buf_dyn_shmem);
      if (p == 0) {
        asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
        asc_sync_pipe(PIPE_MTE2);
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
      }
      for (int32_t ch = 0; ch < ((N + 16383) >> 14); ++ch) {
        int8_t __cond_0 = ((int8_t)(bool)0);
        __cond_0 = ((int8_t)((p == 0) || (16384 < N)));
        if ((bool)__cond_0) {
          asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        }
        if ((bool)__cond_0) {
          int32_t rmod = ((ch * 16384) % size);
          int32_t rdiv = ((ch * 16384) / size);
          int32_t rmod_1 = (min(16384, (N - (ch * 16384))) % size);
          int32_t rdiv_1 = (min(16384, (N - (ch * 16384))) / size);
          if ((0 < (KB - ((((0 <= size) && (0 <= rmod)) || ((size < 0) && (rmod <= 0))) ? rdiv : (rdiv - 1)))) && (0 < ((((0 <= size) && (0 <= rmod_1)) || ((size < 0) && (rmod_1 <= 0))) ? rdiv_1 : (rdiv_1 - 1)))) {
            int64_t rmod_2 = ((((int64_t)ch) * (int64_t)16384) % ((int64_t)size));
            int64_t rdiv_2 = ((((int64_t)ch) * (int64_t)16384) / ((int64_t)size));
            int32_t rmod_3 = ((ch * 16384) % size);
            int32_t rdiv_3 = ((ch * 16384) / size);
            int32_t rmod_4 = (min(16384, (N - (ch * 16384))) % size);
            int32_t rdiv_4 = (min(16384, (N - (ch * 16384))) / size);
            int32_t rmod_5 = ((ch * 16384) % size);
            int32_t rdiv_5 = ((ch * 16384) / size);
            int32_t rmod_6 = (min(16384, (N - (ch * 16384))) % size);
            int32_t rdiv_6 = (min(16384, (N - (ch * 16384))) / size);
            int32_t rmod_7 = ((ch * 16384) % size);
            int32_t rdiv_7 = ((ch * 16384) / size);
            int32_t rmod_8 = (min(16384, (N - (ch * 16384))) % size);
            int32_t rdiv_8 = (min(16384, (N - (ch * 16384))) / size);
            asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[36928]))), (__gm__ uint8_t*)((&(B[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)KB)) + (((((int64_t)0 <= ((int64_t)size)) && ((int64_t)0 <= rmod_2)) || ((((int64_t)size) < (int64_t)0) && (rmod_2 <= (int64_t)0))) ? rdiv_2 : (rdiv_2 - (int64_t)1)))]))), 1, (min(min((KB - ((((0 <= size) && (0 <= rmod_3)) || ((size < 0) && (rmod_3 <= 0))) ? rdiv_3 : (rdiv_3 - 1))), ((((0 <= size) && (0 <= rmod_4)) || ((size < 0) && (rmod_4 <= 0))) ? rdiv_4 : (rdiv_4 - 1))), 4096) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(min((KB - ((((0 <= size) && (0 <= rmod_5)) || ((size < 0) && (rmod_5 <= 0))) ? rdiv_5 : (rdiv_5 - 1))), ((((0 <= size) && (0 <= rmod_6)) || ((size < 0) && (rmod_6 <= 0))) ? rdiv_6 : (rdiv_6 - 1))), 4096) * 4), (min(min((KB - ((((0 <= size) && (0 <= rmod_7)) || ((size < 0) && (rmod_7 <= 0))) ? rdiv_7 : (rdiv_7 - 1))), ((((0 <= size) && (0 <= rmod_8)) || ((size < 0) && (rmod_8 <= 0))) ? rdiv_8 : (rdiv_8 - 1))), 4096) * 4));
          }
        }
        if ((bool)__cond_0) {
          asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch) * (int64_t)16384) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(16384, (N - (ch * 16384))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (N - (ch * 16384))) * 4), (min(16384, (N - (ch * 16384))) * 4));
        }
        if ((bool)__cond_0) {
          asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
        }
        if ((bool)__cond_0) {
          asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(1));
        }
        if ((bool)__cond_0) {
          topk_select_kernel_simd_vf_2(N, ch, buf_dyn_shmem, shift, size, visible);
        }
        if ((bool)__cond_0) {
          asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
        }
        topk_select_kernel_simd_vf_3(buf_dyn_shmem, p, N, ch);
      }
      if (p == 33) {
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(4));
        asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(3));
      }
      topk_select_kernel_simd_vf_4(buf_dyn_shmem, p, k);
    }
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(3));
    asc_sync_pipe(PIPE_MTE2);
    asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(4));
    for (int32_t ch_1 = 0; ch_1 < ((N + 16383) >> 14); ++ch_1) {
      int8_t __cond_1 = ((int8_t)(bool)0);
      __cond_1 = ((int8_t)(16384 < N));
      if ((bool)__cond_1) {
        asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
      }
      if ((bool)__cond_1) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ float*)buf_dyn_shmem)[0]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch_1) * (int64_t)16384) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(16384, (N - (ch_1 * 16384))) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (N - (ch_1 * 16384))) * 4), (min(16384, (N - (ch_1 * 16384))) * 4));
      }
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
      if ((bool)__cond_1) {
        int32_t rmod_9 = ((ch_1 * 16384) % size);
        int32_t rdiv_9 = ((ch_1 * 16384) / size);
        int32_t rmod_10 = (min(16384, (N - (ch_1 * 16384))) % size);
        int32_t rdiv_10 = (min(16384, (N - (ch_1 * 16384))) / size);
        if ((0 < (KB - ((((0 <= size) && (0 <= rmod_9)) || ((size < 0) && (rmod_9 <= 0))) ? rdiv_9 : (rdiv_9 - 1)))) && (0 < ((((0 <= size) && (0 <= rmod_10)) || ((size < 0) && (rmod_10 <= 0))) ? rdiv_10 : (rdiv_10 - 1)))) {
          int64_t rmod_11 = ((((int64_t)ch_1) * (int64_t)16384) % ((int64_t)size));
          int64_t rdiv_11 = ((((int64_t)ch_1) * (int64_t)16384) / ((int64_t)size));
          int32_t rmod_12 = ((ch_1 * 16384) % size);
          int32_t rdiv_12 = ((ch_1 * 16384) / size);
          int32_t rmod_13 = (min(16384, (N - (ch_1 * 16384))) % size);
          int32_t rdiv_13 = (min(16384, (N - (ch_1 * 16384))) / size);
          int32_t rmod_14 = ((ch_1 * 16384) % size);
          int32_t rdiv_14 = ((ch_1 * 16384) / size);
          int32_t rmod_15 = (min(16384, (N - (ch_1 * 16384))) % size);
          int32_t rdiv_15 = (min(16384, (N - (ch_1 * 16384))) / size);
          int32_t rmod_16 = ((ch_1 * 16384) % size);
          int32_t rdiv_16 = ((ch_1 * 16384) / size);
          int32_t rmod_17 = (min(16384, (N - (ch_1 * 16384))) % size);
          int32_t rdiv_17 = (min(16384, (N - (ch_1 * 16384))) / size);
          asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[36928]))), (__gm__ uint8_t*)((&(B[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)KB)) + (((((int64_t)0 <= ((int64_t)size)) && ((int64_t)0 <= rmod_11)) || ((((int64_t)size) < (int64_t)0) && (rmod_11 <= (int64_t)0))) ? rdiv_11 : (rdiv_11 - (int64_t)1)))]))), 1, (min(min((KB - ((((0 <= size) && (0 <= rmod_12)) || ((size < 0) && (rmod_12 <= 0))) ? rdiv_12 : (rdiv_12 - 1))), ((((0 <= size) && (0 <= rmod_13)) || ((size < 0) && (rmod_13 <= 0))) ? rdiv_13 : (rdiv_13 - 1))), 4096) * 4), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(min((KB - ((((0 <= size) && (0 <= rmod_14)) || ((size < 0) && (rmod_14 <= 0))) ? rdiv_14 : (rdiv_14 - 1))), ((((0 <= size) && (0 <= rmod_15)) || ((size < 0) && (rmod_15 <= 0))) ? rdiv_15 : (rdiv_15 - 1))), 4096) * 4), (min(min((KB - ((((0 <= size) && (0 <= rmod_16)) || ((size < 0) && (rmod_16 <= 0))) ? rdiv_16 : (rdiv_16 - 1))), ((((0 <= size) && (0 <= rmod_17)) || ((size < 0) && (rmod_17 <= 0))) ? rdiv_17 : (rdiv_17 - 1))), 4096) * 4));
        }
      }
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(2));
      if ((bool)__cond_1) {
        topk_select_kernel_simd_vf_5(N, ch_1, buf_dyn_shmem, shift, size, visible);
      }
      if ((bool)__cond_1) {
        asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
      }
      topk_select_kernel_simd_vf_6(buf_dyn_shmem, N, ch_1, shift, size);
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
    }
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(I[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)k))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[32768]))), 1, (k * 4), static_cast<asc_store_l2_cache_mode>(4), (k * 4), (k * 4));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(1));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(2));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(3));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
}

