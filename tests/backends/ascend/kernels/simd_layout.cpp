// A bf16 tile is doubled in float32 and goes to L1's layout in UB; a table is read and written through indices.
// Covers: asc_loadalign_unpack, vcvt in both directions, asc_storealign_pack, block-strided asc_storealign (ND to NZ in
// UB), asc_gather and asc_scatter, asc_intlv / asc_deintlv.
#include "c_api/asc_simd.h"

__simd_vf__ inline void doubled(__ubuf__ bfloat16_t* x, __ubuf__ bfloat16_t* y, int32_t n) {
  uint32_t left = n;
  vector_bool all = asc_create_mask_b16(PAT_ALL);
  for (int32_t i = 0; i < n; i += 64) {
    vector_bool mask = asc_update_mask_b32(left);
    vector_bf16 raw, back;
    vector_f32 wide;
    asc_loadalign_unpack(raw, x + i, 0);
    vcvt(wide, raw, all, PART_EVEN, MODE_ZEROING);
    asc_mul_scalar(wide, wide, 2.0f, mask);
    vcvt(back, wide, all, ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING);
    asc_storealign_pack((__ubuf__ uint32_t*)(y + i), reinterpret_cast<vector_u32&>(back), 0, mask);
  }
}

__simd_vf__ inline void to_nz(__ubuf__ bfloat16_t* x, __ubuf__ bfloat16_t* z, int32_t rows, int32_t cols) {
  for (int32_t r = 0; r < rows; ++r) {
    uint32_t left = cols;
    vector_bool mask = asc_update_mask_b16(left);
    vector_bf16 v;
    asc_loadalign(v, x + r * cols, 0);
    asc_storealign(z + r * 16, v, uint16_t(rows), uint16_t(1), mask);
  }
}

__simd_vf__ inline void through(__ubuf__ float* table, __ubuf__ uint32_t* from, __ubuf__ uint32_t* to,
                                __ubuf__ float* out, int32_t n) {
  uint32_t left = n;
  for (int32_t i = 0; i < n; i += 64) {
    vector_bool mask = asc_update_mask_b32(left);
    vector_u32 f, t;
    vector_f32 v;
    asc_loadalign(f, from + i, 0);
    asc_loadalign(t, to + i, 0);
    asc_gather(v, table, f, mask);
    asc_scatter(out, v, t, mask);
  }
}

__simd_vf__ inline void woven(__ubuf__ float* a, __ubuf__ float* y) {
  vector_bool all = asc_create_mask_b32(PAT_ALL);
  vector_f32 lo, hi, p, q;
  asc_loadalign(lo, a, 0);
  asc_loadalign(hi, a + 64, 0);
  asc_intlv(p, q, lo, hi);
  asc_storealign(y, p, 0, all);
  asc_storealign(y + 64, q, 0, all);
  asc_deintlv(p, q, lo, hi);
  asc_storealign(y + 128, p, 0, all);
  asc_storealign(y + 192, q, 0, all);
}

extern "C" __global__ __vector__ void simd_layout_kernel(__gm__ bfloat16_t* x, __gm__ bfloat16_t* y,
                                                         __gm__ bfloat16_t* nz, __gm__ float* table,
                                                         __gm__ uint32_t* from, __gm__ uint32_t* to, __gm__ float* moved,
                                                         __gm__ float* weave, int32_t rows, int32_t cols, int32_t n) {
  asc_init();
  const auto load = static_cast<asc_load_l2_cache_mode>(0);
  const auto store = static_cast<asc_store_l2_cache_mode>(0);
  __ubuf__ bfloat16_t* tile = (__ubuf__ bfloat16_t*)0;
  __ubuf__ float* f = (__ubuf__ float*)65536;
  __ubuf__ uint32_t* u = (__ubuf__ uint32_t*)131072;
  const int32_t size = rows * cols;
  asc_copy_gm2ub_align(tile, x, 1, size * 2, 0, 0, false, load, size * 2, size * 2);
  asc_copy_gm2ub_align(f, table, 1, 128 * 4, 0, 0, false, load, 512, 512);
  asc_copy_gm2ub_align(u, from, 1, n * 4, 0, 0, false, load, n * 4, n * 4);
  asc_copy_gm2ub_align(u + 1024, to, 1, n * 4, 0, 0, false, load, n * 4, n * 4);
  asc_copy_gm2ub_align(f + 1024, moved, 1, 128 * 4, 0, 0, false, load, 512, 512);
  asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT_ID0);
  asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT_ID0);
  doubled(tile, tile + 8192, size);
  to_nz(tile, tile + 16384, rows, cols);
  through(f, u, u + 1024, f + 1024, n);
  woven(f, f + 2048);
  asc_sync_notify(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_sync_wait(PIPE_V, PIPE_MTE3, EVENT_ID0);
  asc_copy_ub2gm_align(y, tile + 8192, 1, size * 2, store, size * 2, size * 2);
  asc_copy_ub2gm_align(nz, tile + 16384, 1, size * 2, store, size * 2, size * 2);
  asc_copy_ub2gm_align(moved, f + 1024, 1, 512, store, 512, 512);
  asc_copy_ub2gm_align(weave, f + 2048, 1, 1024, store, 1024, 1024);
}
