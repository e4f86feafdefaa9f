// Lowered by tilelang 0.1.15 from vision_kernels.py: image_patches(most=16384), source 0e0075506eaf6caaa889766b.
#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/debug.h>
__simt_vf__ __launch_bounds__(256) inline void image_patches_kernel_simt_vf_0(int32_t E, int32_t image, int32_t images, int64_t top, int32_t patch, int32_t count, __gm__ int64_t* I, int64_t left, int64_t B, __gm__ uint8_t* X, __ubuf__ bfloat16_t* y) {
  int32_t byte = 0;
  for (int32_t c = 0; c < ((E + 255) >> 8); ++c) {
    if (((c * 256) + ((int32_t)threadIdx.x)) < E) {
      if ((0 <= image) && (image < images)) {
        int64_t condval;
        if (((0 <= image) && (image < count))) {
          condval = I[((((int64_t)image) * (int64_t)5) + (int64_t)4)];
        } else {
          condval = (int64_t)0;
        }
        int64_t yy = ((top + ((int64_t)((((c * 256) + ((int32_t)threadIdx.x)) % (patch * patch)) / patch))) - condval);
        int64_t condval_1;
        if (((0 <= image) && (image < count))) {
          condval_1 = I[((((int64_t)image) * (int64_t)5) + (int64_t)3)];
        } else {
          condval_1 = (int64_t)0;
        }
        int64_t xx = ((left + ((int64_t)((((c * 256) + ((int32_t)threadIdx.x)) % (patch * patch)) % patch))) - condval_1);
        int64_t condval_2;
        if (((0 <= image) && (image < count))) {
          condval_2 = I[((((int64_t)image) * (int64_t)5) + (int64_t)2)];
        } else {
          condval_2 = (int64_t)0;
        }
        int64_t condval_3;
        if (((0 <= image) && (image < count))) {
          condval_3 = I[((((int64_t)image) * (int64_t)5) + (int64_t)1)];
        } else {
          condval_3 = (int64_t)0;
        }
        bool inside = (((((int64_t)0 <= yy) && (yy < condval_2)) && ((int64_t)0 <= xx)) && (xx < condval_3));
        byte = 127;
        if (inside) {
          int64_t condval_5;
          if (((0 <= image) && (image < count))) {
            condval_5 = I[((((int64_t)image) * (int64_t)5) + (int64_t)1)];
          } else {
            condval_5 = (int64_t)0;
          }
          int64_t condval_6;
          if (((0 <= image) && (image < count))) {
            condval_6 = I[(((int64_t)image) * (int64_t)5)];
          } else {
            condval_6 = (int64_t)0;
          }
          int64_t condval_7;
          if (((0 <= image) && (image < count))) {
            condval_7 = I[((((int64_t)image) * (int64_t)5) + (int64_t)1)];
          } else {
            condval_7 = (int64_t)0;
          }
          int64_t condval_8;
          if (((0 <= image) && (image < count))) {
            condval_8 = I[(((int64_t)image) * (int64_t)5)];
          } else {
            condval_8 = (int64_t)0;
          }
          uint8_t condval_4;
          if ((((int64_t)0 <= (((((yy * condval_5) * (int64_t)3) + (xx * (int64_t)3)) + condval_6) + ((int64_t)(((c * 256) + ((int32_t)threadIdx.x)) / (patch * patch))))) && ((((((yy * condval_7) * (int64_t)3) + (xx * (int64_t)3)) + condval_8) + ((int64_t)(((c * 256) + ((int32_t)threadIdx.x)) / (patch * patch)))) < B))) {
            int64_t condval_9;
            if (((0 <= image) && (image < count))) {
              condval_9 = I[((((int64_t)image) * (int64_t)5) + (int64_t)1)];
            } else {
              condval_9 = (int64_t)0;
            }
            int64_t condval_10;
            if (((0 <= image) && (image < count))) {
              condval_10 = I[(((int64_t)image) * (int64_t)5)];
            } else {
              condval_10 = (int64_t)0;
            }
            condval_4 = X[(((((yy * condval_9) * (int64_t)3) + (xx * (int64_t)3)) + condval_10) + ((int64_t)(((c * 256) + ((int32_t)threadIdx.x)) / (patch * patch))))];
          } else {
            condval_4 = (uint8_t)0;
          }
          byte = ((int32_t)condval_4);
        }
        float z = ((((float)byte) / float(0x1.fep+7f/*2.550000e+02*/)) - float(0x1p-1f/*5.000000e-01*/));
        y[((c * 256) + ((int32_t)threadIdx.x))] = ((bfloat16_t)(z / float(0x1p-1f/*5.000000e-01*/)));
      } else {
        y[((c * 256) + ((int32_t)threadIdx.x))] = bfloat16_t(0x0p+0f/*0.000000e+00*/);
      }
    }
  }
}

extern "C" __global__ __vector__ void image_patches_kernel(__gm__ int64_t* I, __gm__ int32_t* P, __gm__ uint8_t* X, __gm__ bfloat16_t* Y, int64_t B, int32_t E, int32_t cores, int32_t count, int32_t images, int32_t m, int32_t patch) {
  asc_init();
  __ubuf__ bfloat16_t *y = (__ubuf__ bfloat16_t *)0;
  asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  for (int32_t i = 0; i < (((((m + cores) - ((int32_t)block_idx)) - 1) / cores) + (((((m + cores) - ((int32_t)block_idx)) - 1) % cores) >> 31)); ++i) {
    int32_t image = 0;
    image = P[((((int64_t)((int32_t)block_idx)) * (int64_t)3) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)3))];
    int64_t top = (int64_t)0;
    top = (((int64_t)P[(((((int64_t)((int32_t)block_idx)) * (int64_t)3) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)3)) + (int64_t)1)]) * ((int64_t)patch));
    int64_t left = (int64_t)0;
    left = (((int64_t)P[(((((int64_t)((int32_t)block_idx)) * (int64_t)3) + ((((int64_t)i) * ((int64_t)cores)) * (int64_t)3)) + (int64_t)2)]) * ((int64_t)patch));
    asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
    asc_vf_call<image_patches_kernel_simt_vf_0>(cce::dim3(256), E, image, images, top, patch, count, I, left, B, X, y);
    asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
    asc_copy_ub2gm_align((__gm__ uint8_t*)((&(Y[((((int64_t)((int32_t)block_idx)) + (((int64_t)i) * ((int64_t)cores))) * ((int64_t)E))]))), (__ubuf__ uint8_t*)((&(y[0]))), 1, (E * 2), static_cast<asc_store_l2_cache_mode>(4), (E * 2), (E * 2));
    asc_sync_notify(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
  }
  asc_sync_wait(PIPE_MTE3, PIPE_V, static_cast<event_t>(0));
}

