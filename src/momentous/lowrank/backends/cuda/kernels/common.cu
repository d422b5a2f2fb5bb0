// What all kernels share.  Set before: T (the numbers of factors and ratings), A (the type of sums),
// SIZE (numbers in a row of a factor).

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

// Sums of 32 numbers per lane over all lanes: lane l gets that of v[l].
__device__ inline A add_lanes(A* v, int lane) {
#pragma unroll
    for (int half = 16; half; half /= 2) {
        bool upper = lane & half;
#pragma unroll
        for (int i = 0; i < half; i++) {
            A given = upper ? v[i] : v[i + half];
            A kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(ALL, given, half);
        }
    }
    return v[0];
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
