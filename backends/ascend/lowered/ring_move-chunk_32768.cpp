// Lowered by tilelang 0.1.15 from moves_kernels.py: ring_move(chunk=32768), source ad63cabf9debbb44ab98497d.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
extern "C" __global__ __vector__ void ring_move_kernel(__gm__ int32_t* BEGIN, __gm__ int32_t* END, __gm__ int32_t* FROM, __gm__ int32_t* INTO, __gm__ uint8_t* SOURCE, __gm__ uint8_t* TARGET, int32_t L, int32_t R, int32_t cores, int64_t from_pitch, int64_t from_stride, int64_t into_pitch, int64_t into_stride, int32_t items, int32_t most, int32_t rec) {
  asc_init();
  __ubuf__ uint8_t *x = (__ubuf__ uint8_t *)0;
  int32_t x_version_counter_1 = 0;
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
  x_version_counter_1 = 0;
  for (int32_t i = 0; i < (((((items + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((items + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t target = 0;
    target = INTO[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)most))];
    int32_t at = 0;
    at = BEGIN[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)most))];
    int8_t __cond_1 = ((int8_t)(bool)0);
    __cond_1 = ((int8_t)(0 <= target));
    int8_t __cond_0 = ((int8_t)(bool)0);
    if ((bool)__cond_1) {
      __cond_0 = ((int8_t)(((((int32_t)block_idx) + (i * cores)) % most) < (END[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)most))] - at)));
    }
    int32_t source = 0;
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        source = FROM[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) / ((int64_t)most))];
      }
    }
    int32_t p = 0;
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        p = (at + ((((int32_t)block_idx) + (i * cores)) % most));
      }
    }
    int64_t begin = (int64_t)0;
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        begin = ((((int64_t)source) * from_stride) + ((((int64_t)((at + ((((int32_t)block_idx) + (i * cores)) % most)) % L)) + ((int64_t)(L & (((at + ((((int32_t)block_idx) + (i * cores)) % most)) % L) >> 31)))) * from_pitch));
      }
    }
    int64_t into = (int64_t)0;
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        into = ((((int64_t)target) * into_stride) + ((((int64_t)((at + ((((int32_t)block_idx) + (i * cores)) % most)) % R)) + ((int64_t)(R & (((at + ((((int32_t)block_idx) + (i * cores)) % most)) % R) >> 31)))) * into_pitch));
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_gm2ub_align((__ubuf__ uint8_t*)((&(x[((x_version_counter_1 & 1) * 32768)]))), (__gm__ uint8_t*)((&(SOURCE[((((int64_t)source) * from_stride) + ((((int64_t)((at + ((((int32_t)block_idx) + (i * cores)) % most)) % L)) + ((int64_t)(L & (((at + ((((int32_t)block_idx) + (i * cores)) % most)) % L) >> 31)))) * from_pitch))]))), 1, rec, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), rec, rec);
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_notify(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_pipe(PIPE_MTE3);
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if ((bool)__cond_1) {
      if ((bool)__cond_0) {
        asc_copy_ub2gm_align((__gm__ uint8_t*)((&(TARGET[((((int64_t)target) * into_stride) + ((((int64_t)((at + ((((int32_t)block_idx) + (i * cores)) % most)) % R)) + ((int64_t)(R & (((at + ((((int32_t)block_idx) + (i * cores)) % most)) % R) >> 31)))) * into_pitch))]))), (__ubuf__ uint8_t*)((&(x[((x_version_counter_1 & 1) * 32768)]))), 1, rec, static_cast<asc_store_l2_cache_mode>(4), rec, rec);
      }
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      asc_sync_notify(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>((x_version_counter_1 & 1)));
    }
    if (((bool)__cond_1) && ((bool)__cond_0)) {
      x_version_counter_1 = (x_version_counter_1 + 1);
    }
  }
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE3, PIPE_MTE2, static_cast<event_t>(1));
}

