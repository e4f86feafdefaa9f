// The scores of chosen entries, SIMT by hand: y[t, i] is the score of entry chosen[t, i], -infinity for -1.
//
// By hand, because of the search: with candidate blocks the lane of an entry is where its block stands among the row's
// blocks, ascending and -1 after them. A loop of unknown length in a thread is not what TileLang's parallel loops have.
#include "c_api/asc_simd.h"
#include "simt_api/asc_simt.h"

__simt_vf__ __launch_bounds__(512) inline void pick(__gm__ bfloat16_t* scores, __gm__ int32_t* blocks,
                                                    __gm__ int32_t* chosen, __gm__ bfloat16_t* y, int32_t k,
                                                    int32_t block_count, int32_t block_shift) {
  for (int32_t i = threadIdx.x; i < k; i += blockDim.x) {
    const int32_t entry = chosen[i];
    bfloat16_t value = bfloat16_t(-__builtin_inff());
    if (entry >= 0) {
      int32_t lane = entry;
      if (block_count) {
        int32_t low = 0, high = block_count - 1;
        while (low < high) {
          const int32_t middle = (low + high) / 2, block = blocks[middle];
          if (block >= 0 && block < entry >> block_shift) low = middle + 1;
          else high = middle;
        }
        lane = (low << block_shift) + (entry & ((1 << block_shift) - 1));
      }
      value = scores[lane];
    }
    y[i] = value;
  }
}

extern "C" __global__ __vector__ void index_pick(__gm__ bfloat16_t* scores, __gm__ int32_t* blocks,
                                                 __gm__ int32_t* chosen, __gm__ bfloat16_t* y, int32_t rows,
                                                 int32_t lanes, int32_t k, int32_t block_count, int32_t block_shift,
                                                 int32_t cores) {
  asc_init();
  for (int64_t row = block_idx; row < rows; row += cores)
    asc_vf_call<pick>(cce::dim3(512), scores + row * lanes, blocks + row * block_count, chosen + row * k, y + row * k, k,
                      block_count, block_shift);
}
