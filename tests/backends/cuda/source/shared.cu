// Static and dynamic shared memory in one kernel: the last word of each, written by one thread and read by another.

extern "C" __global__ void last_word(int* out, int words) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) fixed[i] = i;
    for (int i = threadIdx.x; i < words; i += blockDim.x) dynamic[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = fixed[255] + 7, out[1] = dynamic[words - 1] + 7;
}
