// Lowered by tilelang 0.1.15 from engram_kernels.py: engram_hash(threads=256), source 8c0852ff9376c0e272b68a32.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void engram_hash_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t items, int32_t C, int32_t heads, int32_t n, int32_t m, __gm__ int32_t* GRAM, int32_t V, __gm__ int32_t* LOOKUP, int32_t pad, __gm__ int64_t* FACTOR, __gm__ int64_t* PRIME, __gm__ int64_t* Y, __gm__ int64_t* OFFSET) {
  int32_t row[1];
  int32_t column[1];
  int32_t token[1];
  int32_t whole[1];
  int64_t state[1];
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < items) {
    row[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / C);
    column[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) - (row[0] * C));
    whole[0] = 1;
    state[0] = (int64_t)0;
    for (int32_t k = 0; k < ((column[0] / heads) + 2); ++k) {
      int32_t condval;
      if ((((k < n) && (0 <= row[0])) && (row[0] < m))) {
        condval = GRAM[((((int64_t)row[(int64_t)0]) * ((int64_t)n)) + ((int64_t)k))];
      } else {
        condval = 0;
      }
      token[0] = condval;
      if ((token[0] < 0) || (V <= token[0])) {
        whole[0] = 0;
      }
      if (whole[0] == 1) {
        int32_t condval_1;
        if (((0 <= token[0]) && (token[0] < V))) {
          condval_1 = LOOKUP[token[(int64_t)0]];
        } else {
          condval_1 = 0;
        }
        token[0] = condval_1;
      } else {
        token[0] = pad;
      }
      int64_t condval_2;
      if ((k < n)) {
        condval_2 = FACTOR[((int64_t)k)];
      } else {
        condval_2 = (int64_t)0;
      }
      state[0] = (state[0] ^ (((int64_t)token[0]) * condval_2));
    }
    int64_t condval_3;
    if (((0 <= column[0]) && (column[0] < C))) {
      condval_3 = PRIME[column[(int64_t)0]];
    } else {
      condval_3 = (int64_t)0;
    }
    state[0] = (state[0] % condval_3);
    if (state[0] < (int64_t)0) {
      int64_t condval_4;
      if (((0 <= column[0]) && (column[0] < C))) {
        condval_4 = PRIME[column[(int64_t)0]];
      } else {
        condval_4 = (int64_t)0;
      }
      state[0] = (state[0] + condval_4);
    }
    int64_t condval_5;
    if (((0 <= column[0]) && (column[0] < C))) {
      condval_5 = OFFSET[column[(int64_t)0]];
    } else {
      condval_5 = (int64_t)0;
    }
    Y[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (state[0] + condval_5);
  }
}

extern "C" __global__ __vector__ void engram_hash_kernel(__gm__ int64_t* FACTOR, __gm__ int32_t* GRAM, __gm__ int32_t* LOOKUP, __gm__ int64_t* OFFSET, __gm__ int64_t* PRIME, __gm__ int64_t* Y, int32_t C, int32_t V, int32_t cores, int32_t heads, int32_t items, int32_t m, int32_t n, int32_t pad) {
  asc_init();
  for (int32_t i = 0; i < (((((((items + 255) >> 8) + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((((items + 255) >> 8) + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<engram_hash_kernel_simt_vf_0>(cce::dim3(256), i, cores, items, C, heads, n, m, GRAM, V, LOOKUP, pad, FACTOR, PRIME, Y, OFFSET);
  }
}

