// Lowered by tilelang 0.1.15 from index_kernels.py: block_tops(), source 9a7fdcfb70507819577e8cf9.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
#include <tl_templates/ascend/simd_inst.h>
__simd_vf__ inline void block_tops_kernel_simd_vf_0(int32_t size, int32_t visible, int32_t ch, __ubuf__ uint8_t* buf_dyn_shmem, int16_t shift) {
  vector_s32 best;
  for (int32_t c = 0; c < ((min((min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) * size), 16384) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32(max((min(16384, (visible - (ch * 16384))) - (c * 64)), 0));
    vector_bool v = asc_create_mask_b32(PAT_ALL);
    auto mask = simd_inst::vdup<int32_t>(32767, v, MODE_ZEROING);
    vector_bool v_1 = asc_create_mask_b16(PAT_ALL);
    auto value = simd_inst::vcvt<float>(simd_inst::vlds_unpack<bfloat16_t>((__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c * 64) + 49216)])), 0), v_1, PART_EVEN, MODE_ZEROING);
    auto word = simd_inst::vshrs((*(vector_s32 *)(&(value))), (int16_t)16, v, MODE_ZEROING);
    auto nought = simd_inst::vcmps_eq(value, float(0x0p+0f/*0.000000e+00*/), v);
    auto plain = simd_inst::vsel(simd_inst::vdup<int32_t>(0, v, MODE_ZEROING), word, nought);
    auto ordered = simd_inst::vxor(plain, simd_inst::vand(simd_inst::vshrs(plain, (int16_t)31, v, MODE_ZEROING), mask, v, MODE_ZEROING), v, MODE_ZEROING);
    auto odd = simd_inst::vcmps_gt(simd_inst::vand(plain, mask, v, MODE_ZEROING), 32640, v);
    auto number = simd_inst::vsel(simd_inst::vdup<int32_t>(-32767, v, MODE_ZEROING), ordered, odd);
    simd_inst::vsts_norm(simd_inst::vsel(number, simd_inst::vdup<int32_t>(-32768, v, MODE_ZEROING), some), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[(c * 64)])), 0, v);
  }
  simd_inst::mem_bar(VST_VLD);
  for (int32_t c_1 = 0; c_1 < ((min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) + 63) >> 6); ++c_1) {
    auto rest = simd_inst::update_mask_b32((min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) - (c_1 * 64)));
    auto lane = simd_inst::vci<int32_t>((c_1 * 64), INC_ORDER);
    vector_bool v_2 = asc_create_mask_b32(PAT_ALL);
    auto start = simd_inst::vshls(lane, shift, v_2, MODE_ZEROING);
    best = simd_inst::vdup<int32_t>(-32768, v_2, MODE_ZEROING);
    for (int32_t j = 0; j < size; ++j) {
      auto at = simd_inst::vadds(start, j, v_2, MODE_ZEROING);
      auto one = simd_inst::vgather2((&(((__ubuf__ int32_t*)buf_dyn_shmem)[0])), (*(vector_u32 *)(&(at))), rest);
      best = simd_inst::vmax(best, one, v_2, MODE_ZEROING);
    }
    auto capped = simd_inst::vmins(best, 32639, v_2, MODE_ZEROING);
    auto newest = simd_inst::vcmps_eq(simd_inst::vadds(lane, ((ch * 16384) / size), v_2, MODE_ZEROING), (max((visible - 1), 0) / size), v_2);
    auto final = simd_inst::vsel(simd_inst::vdup<int32_t>(32640, v_2, MODE_ZEROING), capped, newest);
    auto turned = simd_inst::vxor(final, simd_inst::vand(simd_inst::vshrs(final, (int16_t)31, v_2, MODE_ZEROING), simd_inst::vdup<int32_t>(32767, v_2, MODE_ZEROING), v_2, MODE_ZEROING), v_2, MODE_ZEROING);
    auto none = simd_inst::vcmps_le(final, -32767, v_2);
    auto bits = simd_inst::vsel(simd_inst::vdup<int32_t>(32704, v_2, MODE_ZEROING), turned, none);
    simd_inst::vsts_pack_b32((*(vector_bf16 *)(&(bits))), (__ubuf__ bfloat16_t*)(&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[((c_1 * 64) + 32768)])), 0, rest);
  }
}

__simd_vf__ inline void block_tops_kernel_simd_vf_1(__ubuf__ uint8_t* buf_dyn_shmem, int32_t visible, int32_t size) {
  vector_bool v = asc_create_mask_b32(PAT_ALL);
  int32_t condval;
  if ((0 < visible)) {
    condval = (((visible - 1) / size) + 1);
  } else {
    condval = 0;
  }
  simd_inst::vsts_norm(simd_inst::vdup<int32_t>(condval, v, MODE_ZEROING), (__ubuf__ int32_t*)(&(((__ubuf__ int32_t*)buf_dyn_shmem)[32800])), 0, v);
}

extern "C" __global__ __vector__ void block_tops_kernel(__gm__ int32_t* SEEN, __gm__ int32_t* V, __gm__ bfloat16_t* X, __gm__ bfloat16_t* Y, int32_t N, int32_t cores, int32_t count, int32_t m, int16_t shift, int32_t size) {
  asc_init();
  __ubuf__ uint8_t *buf_dyn_shmem = (__ubuf__ uint8_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t visible = 0;
    visible = min(V[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))], N);
    int32_t last = 0;
    last = (max((visible - 1), 0) / size);
    for (int32_t ch = 0; ch < ((visible + 16383) >> 14); ++ch) {
      int32_t begin = 0;
      begin = ((ch * 16384) / size);
      int32_t blocks = 0;
      blocks = min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size)));
      asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[49216]))), (__gm__ uint8_t*)((&(X[((((int64_t)ch) * (int64_t)16384) + ((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)N)))]))), 1, (min(16384, (visible - (ch * 16384))) * 2), 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), (min(16384, (visible - (ch * 16384))) * 2), (min(16384, (visible - (ch * 16384))) * 2));
      asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
      asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
      block_tops_kernel_simd_vf_0(size, visible, ch, buf_dyn_shmem, shift);
      asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_sync_notify(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
      asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
      asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[(((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)count)) + ((((int64_t)ch) * (int64_t)16384) / ((int64_t)size)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ bfloat16_t*)buf_dyn_shmem)[32768]))), 1, (min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) * 2), static_cast<asc_store_l2_cache_mode>(4), (min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) * 2), (min((16384 / size), (((max((visible - 1), 0) / size) + 1) - ((ch * 16384) / size))) * 2));
      asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    }
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
    block_tops_kernel_simd_vf_1(buf_dyn_shmem, visible, size);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(1));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(SEEN[(((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores)))]))), (__ubuf__ uint8_t*)((&(((__ubuf__ int32_t*)buf_dyn_shmem)[32800]))), 1, 4, static_cast<asc_store_l2_cache_mode>(4), 4, 4);
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(1));
}

