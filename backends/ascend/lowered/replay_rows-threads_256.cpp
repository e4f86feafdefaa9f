// Lowered by tilelang 0.1.15 from mirror_kernels.py: replay_rows(threads=256), source 87396f4e854fbf6e9c733bb1.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void replay_rows_kernel_simt_vf_0(int32_t i, int32_t cores, int32_t K, int32_t Q, __gm__ int32_t* COUNT, int32_t ranks, int32_t own, __gm__ int32_t* KEEP, __gm__ int32_t* CONTRIBUTION, int32_t m, __gm__ int32_t* INVERSE) {
  int32_t near[1];
  int32_t kept[1];
  int32_t found[1];
  int32_t owner[1];
  int32_t token[1];
  int32_t q[1];
  int32_t ps[1];
  int32_t first[1];
  int32_t count[1];
  int32_t at[1];
  int32_t rank[1];
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < K) {
    near[0] = 0;
    kept[0] = 0;
    found[0] = -1;
    for (int32_t s = 0; s < Q; ++s) {
      q[0] = COUNT[((int64_t)s)];
      ps[0] = ((((ranks * 2) + q[0]) - 1) / (ranks * 2));
      for (int32_t h = 0; h < 2; ++h) {
        at[0] = ((own + (h * (((ranks * 2) - (own * 2)) - 1))) * ps[0]);
        first[0] = max(at[0], (q[0] - KEEP[((int64_t)s)]));
        count[0] = max((min((at[0] + ps[0]), q[0]) - first[0]), 0);
        if ((kept[0] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) && ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (kept[0] + count[0]))) {
          found[0] = ((((((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + near[0]) + (h * ps[0])) + first[0]) + ((int32_t)threadIdx.x)) - at[0]) - kept[0]);
        }
        kept[0] = (kept[0] + count[0]);
      }
      int32_t condval;
      if ((ranks == 1)) {
        condval = q[0];
      } else {
        condval = (((((ranks * 2) + q[0]) - 1) / (ranks * 2)) * 2);
      }
      near[0] = (near[0] + condval);
    }
    CONTRIBUTION[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = found[0];
  }
  if ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < m) {
    near[0] = 0;
    owner[0] = -1;
    token[0] = -1;
    found[0] = -1;
    for (int32_t s_1 = 0; s_1 < Q; ++s_1) {
      q[0] = KEEP[((int64_t)s_1)];
      int32_t condval_1;
      if ((ranks == 1)) {
        condval_1 = q[0];
      } else {
        condval_1 = (((((ranks * 2) + q[0]) - 1) / (ranks * 2)) * 2);
      }
      count[0] = condval_1;
      if ((near[0] <= (((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x))) && ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) < (near[0] + count[0]))) {
        ps[0] = ((((ranks * 2) + q[0]) - 1) / (ranks * 2));
        at[0] = ((((((int32_t)block_idx) * 256) + ((i * cores) * 256)) + ((int32_t)threadIdx.x)) - near[0]);
        int32_t condval_2;
        if ((at[0] < ps[0])) {
          condval_2 = own;
        } else {
          condval_2 = (((ranks * 2) - own) - 2);
        }
        token[0] = (at[0] + (condval_2 * ps[0]));
        if (token[0] < q[0]) {
          owner[0] = s_1;
          token[0] = ((COUNT[((int64_t)s_1)] + token[0]) - q[0]);
        }
      }
      near[0] = (near[0] + count[0]);
    }
    if (0 <= owner[0]) {
      int32_t condval_3;
      if (((0 <= owner[0]) && (owner[0] < Q))) {
        condval_3 = COUNT[owner[(int64_t)0]];
      } else {
        condval_3 = 0;
      }
      at[0] = (token[0] / ((((ranks * 2) + condval_3) - 1) / (ranks * 2)));
      int32_t condval_4;
      if ((at[0] < ranks)) {
        condval_4 = at[0];
      } else {
        condval_4 = (((ranks * 2) - at[0]) - 1);
      }
      rank[0] = condval_4;
      kept[0] = 0;
      for (int32_t s_2 = 0; s_2 < Q; ++s_2) {
        if (s_2 <= owner[0]) {
          q[0] = COUNT[((int64_t)s_2)];
          ps[0] = ((((ranks * 2) + q[0]) - 1) / (ranks * 2));
          for (int32_t h_1 = 0; h_1 < 2; ++h_1) {
            at[0] = ((rank[0] + (h_1 * (((ranks * 2) - (rank[0] * 2)) - 1))) * ps[0]);
            first[0] = max(at[0], (q[0] - KEEP[((int64_t)s_2)]));
            count[0] = max((min((at[0] + ps[0]), q[0]) - first[0]), 0);
            if (s_2 == owner[0]) {
              if ((first[0] <= token[0]) && (token[0] < (first[0] + count[0]))) {
                found[0] = ((((rank[0] * K) + kept[0]) + token[0]) - first[0]);
              }
            }
            kept[0] = (kept[0] + count[0]);
          }
        }
      }
    }
    INVERSE[(((((int64_t)((int32_t)block_idx)) * (int64_t)256) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)256)) + ((int64_t)((int32_t)threadIdx.x)))] = found[0];
  }
}

extern "C" __global__ __vector__ void replay_rows_kernel(__gm__ int32_t* CONTRIBUTION, __gm__ int32_t* COUNT, __gm__ int32_t* INVERSE, __gm__ int32_t* KEEP, int32_t K, int32_t Q, int32_t blocks, int32_t cores, int32_t m, int32_t own, int32_t ranks) {
  asc_init();
  for (int32_t i = 0; i < (((((blocks + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((blocks + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    asc_vf_call<replay_rows_kernel_simt_vf_0>(cce::dim3(256), i, cores, K, Q, COUNT, ranks, own, KEEP, CONTRIBUTION, m, INVERSE);
  }
}

