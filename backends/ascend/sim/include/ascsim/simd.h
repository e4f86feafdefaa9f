// SIMD functions: code on 256-byte vector registers and masks, on pipe V, called like plain functions.
//
//   __simd_vf__ inline void twice(__ubuf__ float* x) {
//     vector_f32 r;
//     asc_loadalign(r, x, 0);
//     asc_add(r, r, r, asc_create_mask_b32(PAT_ALL));
//     asc_storealign(x, r, 0, asc_create_mask_b32(PAT_ALL));
//   }
#pragma once
#include "simd_registers.h"
#include "simd_math.h"
#include "simd_memory.h"
#include "simd_convert.h"
