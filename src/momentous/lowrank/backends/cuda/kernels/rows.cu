// What half sweeps of all sizes share: the features of a row as they lie in memory, and how far a
// step of Newton's may go.
// Set before: OFFSET (1: the features have offsets), DENSE (weight of the sum over all pairs).

__device__ inline double inverse_of(double pivot) { return pivot > 0.0 ? 1.0 / pivot : 0.0; }
// Fast, and one step of Newton's to the last bits; a division would call a function for tiny numbers.
__device__ inline float inverse_of(float pivot) {
    const float near = __fdividef(1.0f, pivot);
    return pivot > 1e-37f ? near + near * (1.0f - pivot * near) : 0.0f;
}

__device__ inline void raise_to(float* place, float x) { atomicMax((int*)place, __float_as_int(x)); }
__device__ inline void raise_to(double* place, double x) {
    atomicMax((long long*)place, __double_as_longlong(x));
}

// The largest |change . f_j| of the rows whose `reach` is not negative; one warp per chunk.  Numbers
// from 0 on are ordered as their bits are, and the largest does not depend on the order.
extern "C" __global__ void __launch_bounds__(128) furthest_moves(
    Int chunks, const int* owners, const Int* begins, const int* others, const T* features,
    const A* changes, A* reach) {
    Int chunk = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (chunk >= chunks) return;
    const int row = owners[chunk];
    if (reach[row] < A(0)) return;
    A most = A(0);
    for (Int k = begins[chunk] + threadIdx.x % 32; k < begins[chunk + 1]; k += 32) {
        const T* f = features + Int(others[k]) * STRIDE;
        A move = A(0);
        for (int q = 0; q < SIZE; q++) move += changes[Int(row) * SIZE + q] * A(f[q]);
        most = larger(most, move < A(0) ? -move : move);
    }
    most = largest_of_all(most);
    if (threadIdx.x % 32 == 0) raise_to(reach + row, most);
}

// Rows whose predictions would move too far get a shorter step.
extern "C" __global__ void shorten_steps(
    Int rows, const A* reach, const A* changes, const T* current, T* solutions) {
    Int i = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= rows || !(reach[i] > A(FULL_STEP))) return;
    A step = log1p(reach[i]) / reach[i];
    for (int q = 0; q < SIZE; q++) {
        A before = current ? A(current[i * SIZE + q]) : A(0);
        solutions[i * SIZE + q] = T(before + step * changes[i * SIZE + q]);
    }
}
