// What all kernels share.  Set before: T (the numbers of factors and ratings), A (the type of sums),
// SIZE (numbers in a row of a factor).  What calls a loss has X after it: what was observed, a T, or
// with weights two of them.

constexpr int V = 16 / sizeof(T);  // numbers that are read at a time
constexpr unsigned ALL = 0xffffffffu;

struct alignas(16) Vec {
    T v[V];
};

struct Entry {
    A value, slope, curvature;
};

typedef long long Int;

__host__ __device__ constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }

__device__ inline A larger(A a, A b) { return a > b ? a : b; }

// Sums of N numbers per lane over 2 HALF lanes, each so far from the next: each lane keeps N / (2 HALF)
// of them, in the order of the lanes.  Templates, because a loop would leave the numbers in slow memory.
template <int HALF, int N, int FAR = 1>
__device__ inline void share_sums(A* v, int lane) {
    if constexpr (HALF > 0) {
        const bool upper = lane & HALF;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            A given = upper ? v[i] : v[i + N / 2];
            A kept = upper ? v[i + N / 2] : v[i];
            v[i] = kept + __shfl_xor_sync(ALL, given, HALF * FAR);
        }
        share_sums<HALF / 2, N / 2, FAR>(v, lane);
    }
}

// The sum of one number per lane, in every lane.
template <class N>
__device__ inline N add_all(N x) {
#pragma unroll
    for (int half = 16; half; half /= 2) x += __shfl_xor_sync(ALL, x, half);
    return x;
}

__device__ inline A largest_of_all(A x) {
#pragma unroll
    for (int half = 16; half; half /= 2) x = larger(x, __shfl_xor_sync(ALL, x, half));
    return x;
}
