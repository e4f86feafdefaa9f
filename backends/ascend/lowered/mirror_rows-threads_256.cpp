// Lowered by tilelang 0.1.15 from mirror_kernels.py: mirror_rows(threads=256), source f045ceb62ea9ba6b259af9ed.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void mirror_rows_kernel_simt_vf_0(int32_t Q, __gm__ int32_t* COUNT, int32_t ranks, int32_t i, int32_t cores, int32_t m, int32_t own, __gm__ int32_t* LOCAL, __gm__ int32_t* OWNER, __gm__ int32_t* FIRST, __gm__ int32_t* VALID, __gm__ int32_t* LENGTH, __gm__ int32_t* POSITION, int32_t R, __gm__ int32_t* VISIBLE, __gm__ int32_t* RATIO, int32_t M, __gm__ int32_t* INVERSE) {
  int32_t packed[1];
  int32_t near[1];
  int32_t owner[1];
  int32_t begin[1];
  int32_t place[1];
  int32_t other[1];
  int32_t there[1];
  int32_t away[1];
  int32_t ps[1];
  int32_t half[1];
  int32_t token[1];
  int32_t q[1];
  packed[0] = 0;
  near[0] = 0;
  owner[0] = -1;
  other[0] = -1;
  for (int32_t s = 0; s < Q; ++s) {
    q[0] = COUNT[((int64_t)s)];
    int32_t condval;
    if ((ranks == 1)) {
      condval = q[0];
    } else {
      condval = (((((ranks * 2) + q[0]) - 1) / (ranks * 2)) * 2);
    }
    ps[0] = condval;
    if ((near[0] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) && ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (near[0] + ps[0]))) {
      owner[0] = s;
      begin[0] = packed[0];
      place[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) - near[0]);
    }
    if ((packed[0] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) && ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (packed[0] + q[0]))) {
      other[0] = s;
      there[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) - packed[0]);
      away[0] = near[0];
    }
    packed[0] = (packed[0] + q[0]);
    near[0] = (near[0] + ps[0]);
  }
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < m) {
    token[0] = -1;
    if (0 <= owner[0]) {
      int32_t condval_1;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_1 = COUNT[owner[(int64_t)0]];
      } else {
        condval_1 = 0;
      }
      q[0] = condval_1;
      ps[0] = ((((ranks * 2) + q[0]) - 1) / (ranks * 2));
      int32_t condval_2;
      if ((place[0] < ps[0])) {
        condval_2 = 0;
      } else {
        condval_2 = 1;
      }
      half[0] = condval_2;
      int32_t condval_3;
      if ((half[0] == 0)) {
        condval_3 = own;
      } else {
        condval_3 = (((ranks * 2) - own) - 2);
      }
      token[0] = (place[0] + (condval_3 * ps[0]));
      if (q[0] <= token[0]) {
        token[0] = -1;
      }
    }
    if (0 <= token[0]) {
      LOCAL[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = (begin[0] + token[0]);
      OWNER[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = owner[0];
      int32_t condval_4;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_4 = VALID[owner[(int64_t)0]];
      } else {
        condval_4 = 0;
      }
      FIRST[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = condval_4;
      int32_t condval_5;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_5 = LENGTH[owner[(int64_t)0]];
      } else {
        condval_5 = 0;
      }
      place[0] = ((condval_5 + token[0]) - q[0]);
      POSITION[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = place[0];
      for (int32_t k = 0; k < R; ++k) {
        VISIBLE[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + (((int64_t)k) * ((int64_t)m))) + ((int64_t)((int32_t)threadIdx.x)))] = ((place[0] + 1) / RATIO[((int64_t)k)]);
      }
    } else {
      LOCAL[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
      OWNER[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
      FIRST[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      POSITION[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      for (int32_t k_1 = 0; k_1 < R; ++k_1) {
        VISIBLE[((((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + (((int64_t)k_1) * ((int64_t)m))) + ((int64_t)((int32_t)threadIdx.x)))] = 0;
      }
    }
  }
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < M) {
    if (0 <= other[0]) {
      int32_t condval_6;
      if (((0 <= other[0]) && (other[0] < Q))) {
        condval_6 = COUNT[other[(int64_t)0]];
      } else {
        condval_6 = 0;
      }
      ps[0] = ((((ranks * 2) + condval_6) - 1) / (ranks * 2));
      half[0] = (there[0] / ps[0]);
      if (half[0] < ranks) {
        INVERSE[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = ((((half[0] * m) + away[0]) + there[0]) - (half[0] * ps[0]));
      } else {
        INVERSE[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = ((((((((ranks * 2) - half[0]) - 1) * m) + away[0]) + ps[0]) + there[0]) - (half[0] * ps[0]));
      }
    } else {
      INVERSE[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = -1;
    }
  }
}

extern "C" __global__ __vector__ void mirror_rows_kernel(__gm__ int32_t* COUNT, __gm__ int32_t* FIRST, __gm__ int32_t* INVERSE, __gm__ int32_t* LENGTH, __gm__ int32_t* LOCAL, __gm__ int32_t* OWNER, __gm__ int32_t* POSITION, __gm__ int32_t* RATIO, __gm__ int32_t* VALID, __gm__ int32_t* VISIBLE, int32_t M, int32_t Q, int32_t R, int32_t blocks, int32_t cores, int32_t m, int32_t own, int32_t ranks) {
  asc_init();
  for (int32_t i = 0; i < (((((blocks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((blocks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<mirror_rows_kernel_simt_vf_0>(cce::dim3(256), Q, COUNT, ranks, i, cores, m, own, LOCAL, OWNER, FIRST, VALID, LENGTH, POSITION, R, VISIBLE, RATIO, M, INVERSE);
  }
}

