// Lowered by tilelang 0.1.15 from step_kernels.py: step_metadata(threads=256), source b4463a8b14e9d29fd0f04f0d.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void step_metadata_kernel_simt_vf_0(int32_t Q, int32_t i, int32_t cores, __gm__ int32_t* COUNT, int32_t m, __gm__ int32_t* OWNER, __gm__ int32_t* LENGTH, __gm__ int32_t* POSITION, __gm__ int32_t* FIRST, __gm__ int32_t* VALID, int32_t R, __gm__ int32_t* VISIBLE, __gm__ int32_t* RATIO, __gm__ int32_t* START, __gm__ int32_t* END, __gm__ int32_t* BEGIN) {
  int32_t owner[1];
  int32_t first[1];
  int32_t total[1];
  int32_t position[1];
  int32_t before[1];
  owner[0] = -1;
  first[0] = 0;
  total[0] = 0;
  before[0] = 0;
  for (int32_t s = 0; s < Q; ++s) {
    if ((total[0] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) && ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (total[0] + COUNT[((int64_t)s)]))) {
      owner[0] = s;
      first[0] = total[0];
    }
    if (s < (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) {
      before[0] = (before[0] + COUNT[((int64_t)s)]);
    }
    total[0] = (total[0] + COUNT[((int64_t)s)]);
  }
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < m) {
    OWNER[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = owner[0];
    if (0 <= owner[0]) {
      int32_t condval;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval = LENGTH[owner[(int64_t)0]];
      } else {
        condval = 0;
      }
      int32_t condval_1;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_1 = COUNT[owner[(int64_t)0]];
      } else {
        condval_1 = 0;
      }
      position[0] = ((((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + condval) + ((int32_t)threadIdx.x)) - condval_1) - first[0]);
      POSITION[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = position[0];
      int32_t condval_2;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_2 = VALID[owner[(int64_t)0]];
      } else {
        condval_2 = 0;
      }
      FIRST[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = condval_2;
      for (int32_t k = 0; k < R; ++k) {
        VISIBLE[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + (((int64_t)k) * ((int64_t)m))) + ((int64_t)((int32_t)threadIdx.x)))] = ((position[0] + 1) / RATIO[((int64_t)k)]);
      }
    } else {
      POSITION[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      FIRST[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      for (int32_t k_1 = 0; k_1 < R; ++k_1) {
        VISIBLE[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + (((int64_t)k_1) * ((int64_t)m))) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      }
    }
  }
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < Q) {
    START[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (LENGTH[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] - COUNT[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))]);
    END[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = LENGTH[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))];
    BEGIN[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = before[0];
  }
}

extern "C" __global__ __vector__ void step_metadata_kernel(__gm__ int32_t* BEGIN, __gm__ int32_t* COUNT, __gm__ int32_t* END, __gm__ int32_t* FIRST, __gm__ int32_t* LENGTH, __gm__ int32_t* OWNER, __gm__ int32_t* POSITION, __gm__ int32_t* RATIO, __gm__ int32_t* START, __gm__ int32_t* VALID, __gm__ int32_t* VISIBLE, int32_t Q, int32_t R, int32_t blocks, int32_t cores, int32_t m) {
  asc_init();
  for (int32_t i = 0; i < (((((blocks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((blocks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<step_metadata_kernel_simt_vf_0>(cce::dim3(256), Q, i, cores, COUNT, m, OWNER, LENGTH, POSITION, FIRST, VALID, R, VISIBLE, RATIO, START, END, BEGIN);
  }
}

