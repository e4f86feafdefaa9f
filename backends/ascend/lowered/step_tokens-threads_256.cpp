// Lowered by tilelang 0.1.15 from step_kernels.py: step_tokens(threads=256), source a5f2c1804d90c7892ffcd7a8.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void step_tokens_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t items, int32_t size, int32_t m, __gm__ int32_t* OWNER, __gm__ int32_t* AT, int32_t Q, __gm__ int32_t* START, __gm__ int32_t* SLOT, __gm__ int32_t* FIRST, int32_t F, __gm__ int32_t* FRESH, int32_t Z, __gm__ int32_t* LAST, int32_t drafts, int32_t D, __gm__ int32_t* DRAFT, int32_t past, __gm__ int32_t* SKIP, int32_t H, __gm__ int32_t* HISTORY, int32_t G, __gm__ int32_t* GRAM, __gm__ int32_t* TOKEN, __gm__ uint8_t* IMAGE, int32_t vocab) {
  int32_t row[1];
  int32_t owner[1];
  int32_t place[1];
  int32_t far[1];
  int32_t slot[1];
  int32_t token[1];
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < items) {
    row[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) / size);
    token[0] = -1;
    int32_t condval;
    if (((0 <= row[0]) && (row[0] < m))) {
      condval = OWNER[row[(int64_t)0]];
    } else {
      condval = 0;
    }
    owner[0] = condval;
    if (0 <= owner[0]) {
      int32_t condval_1;
      if (((0 <= row[0]) && (row[0] < m))) {
        condval_1 = AT[row[(int64_t)0]];
      } else {
        condval_1 = 0;
      }
      place[0] = ((((condval_1 + (row[0] * size)) - ((int32_t)threadIdx.x)) - (((int32_t)block_idx) * 256)) - ((i * cores) * 256));
      int32_t condval_2;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_2 = START[owner[(int64_t)0]];
      } else {
        condval_2 = 0;
      }
      far[0] = (place[0] - condval_2);
      if (0 <= far[0]) {
        int32_t condval_3;
        if (((0 <= owner[0]) && (owner[0] < Q))) {
          condval_3 = SLOT[owner[(int64_t)0]];
        } else {
          condval_3 = 0;
        }
        slot[0] = condval_3;
        if (slot[0] < 0) {
          int32_t condval_5;
          if (((0 <= owner[0]) && (owner[0] < Q))) {
            condval_5 = FIRST[owner[(int64_t)0]];
          } else {
            condval_5 = 0;
          }
          int32_t condval_6;
          if (((0 <= owner[0]) && (owner[0] < Q))) {
            condval_6 = FIRST[owner[(int64_t)0]];
          } else {
            condval_6 = 0;
          }
          int32_t condval_4;
          if (((0 <= (condval_5 + far[0])) && ((condval_6 + far[0]) < F))) {
            int64_t condval_7;
            if ((((int64_t)0 <= ((int64_t)owner[(int64_t)0])) && (((int64_t)owner[(int64_t)0]) < ((int64_t)Q)))) {
              condval_7 = ((int64_t)FIRST[owner[(int64_t)0]]);
            } else {
              condval_7 = (int64_t)0;
            }
            condval_4 = FRESH[(condval_7 + ((int64_t)far[(int64_t)0]))];
          } else {
            condval_4 = 0;
          }
          token[0] = condval_4;
        } else {
          if (far[0] == 0) {
            int32_t condval_8;
            if (((0 <= slot[0]) && (slot[0] < Z))) {
              condval_8 = LAST[slot[(int64_t)0]];
            } else {
              condval_8 = 0;
            }
            token[0] = condval_8;
          } else {
            int32_t condval_9;
            if ((((int64_t)1 <= ((((int64_t)slot[0]) * ((int64_t)drafts)) + ((int64_t)far[0]))) && (((((int64_t)slot[0]) * ((int64_t)drafts)) + ((int64_t)far[0])) <= ((int64_t)D)))) {
              condval_9 = DRAFT[(((((int64_t)slot[0]) * ((int64_t)drafts)) + ((int64_t)far[0])) - (int64_t)1)];
            } else {
              condval_9 = 0;
            }
            token[0] = condval_9;
          }
        }
      } else {
        int32_t condval_10;
        if (((0 <= owner[0]) && (owner[0] < Q))) {
          condval_10 = SKIP[owner[(int64_t)0]];
        } else {
          condval_10 = 0;
        }
        if ((0 <= place[0]) && (0 <= ((past + far[0]) - condval_10))) {
          int32_t condval_12;
          if (((0 <= owner[0]) && (owner[0] < Q))) {
            condval_12 = SKIP[owner[(int64_t)0]];
          } else {
            condval_12 = 0;
          }
          int32_t condval_13;
          if (((0 <= owner[0]) && (owner[0] < Q))) {
            condval_13 = SKIP[owner[(int64_t)0]];
          } else {
            condval_13 = 0;
          }
          int32_t condval_11;
          if ((((int64_t)1 <= (((((int64_t)owner[0]) * ((int64_t)past)) + ((int64_t)condval_12)) - ((int64_t)far[0]))) && ((((((int64_t)owner[0]) * ((int64_t)past)) + ((int64_t)condval_13)) - ((int64_t)far[0])) <= ((int64_t)H)))) {
            int32_t condval_14;
            if (((0 <= owner[0]) && (owner[0] < Q))) {
              condval_14 = SKIP[owner[(int64_t)0]];
            } else {
              condval_14 = 0;
            }
            condval_11 = HISTORY[((((((int64_t)owner[0]) * ((int64_t)past)) + ((int64_t)condval_14)) - ((int64_t)far[0])) - (int64_t)1)];
          } else {
            condval_11 = 0;
          }
          token[0] = condval_11;
        }
      }
    }
    if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < G) {
      GRAM[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = token[0];
    }
    if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) == (row[0] * size)) {
      if (0 <= row[0]) {
        if (row[0] < m) {
          TOKEN[row[(int64_t)0]] = token[0];
        }
      }
      if (0 <= row[0]) {
        if (row[0] < m) {
          uint8_t condval_15;
          if ((vocab <= token[0])) {
            condval_15 = (uint8_t)1;
          } else {
            condval_15 = (uint8_t)0;
          }
          IMAGE[row[(int64_t)0]] = condval_15;
        }
      }
    }
  }
}

extern "C" __global__ __vector__ void step_tokens_kernel(__gm__ int32_t* AT, __gm__ int32_t* DRAFT, __gm__ int32_t* FIRST, __gm__ int32_t* FRESH, __gm__ int32_t* GRAM, __gm__ int32_t* HISTORY, __gm__ uint8_t* IMAGE, __gm__ int32_t* LAST, __gm__ int32_t* OWNER, __gm__ int32_t* SKIP, __gm__ int32_t* SLOT, __gm__ int32_t* START, __gm__ int32_t* TOKEN, int32_t D, int32_t F, int32_t G, int32_t H, int32_t Q, int32_t Z, int32_t cores, int32_t drafts, int32_t items, int32_t m, int32_t past, int32_t size, int32_t vocab) {
  asc_init();
  for (int32_t i = 0; i < (((((((items + 255) >> 8) + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((((items + 255) >> 8) + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<step_tokens_kernel_simt_vf_0>(cce::dim3(256), i, cores, items, size, m, OWNER, AT, Q, START, SLOT, FIRST, F, FRESH, Z, LAST, drafts, D, DRAFT, past, SKIP, H, HISTORY, G, GRAM, TOKEN, IMAGE, vocab);
  }
}

