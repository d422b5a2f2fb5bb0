// Sums of many numbers, in a fixed order: one per block of 256 threads.

// What this thread adds, of all numbers, where so many blocks share them.
__device__ inline double share_of_sum(Int count, const double* numbers, unsigned blocks) {
    double sum = 0.0;
    for (Int k = Int(blockIdx.x) * 256 + threadIdx.x; k < count; k += 256 * blocks) sum += numbers[k];
    return sum;
}

__device__ inline void write_block_sum(double sum, double* out) {
    __shared__ double room[32];
    sum = add_all(sum);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = add_all(threadIdx.x < blockDim.x / 32 ? room[threadIdx.x] : 0.0);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}
