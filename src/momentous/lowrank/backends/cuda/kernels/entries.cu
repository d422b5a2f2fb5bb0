// The pass over all entries: losses, and the gradient of the factor that the entries are grouped by.
//
// One warp per chunk of a group.  As many lanes as it takes to read a row of the other factor, 16
// bytes each, share an entry, so a warp reads several whole rows at a time.  The loss of STEPS
// entries is evaluated at once, one entry per lane.  Nothing is added by atomics: the same bits every
// time.  Set before: F (how the other factor is stored: T, or unsigned short for half precision),
// CURVED (1: the curvatures are written down).

constexpr int Q = (SIZE + V - 1) / V;                     // pieces of 16 bytes in a row
constexpr int LANES = power_of_two(Q < 32 ? Q : 32);      // that share an entry
constexpr int PER_LANE = (Q + LANES - 1) / LANES;         // pieces per lane
constexpr int SLOTS = 32 / LANES;                         // entries at a time
constexpr int STEPS = PER_LANE > 1 ? 2 : PASS_STEPS;      // such rounds at once
constexpr int ROUND = SLOTS * STEPS;                      // entries that a warp has at once
constexpr bool SHARED_LOSS = LANES >= STEPS;

struct alignas(V * sizeof(F)) Stored {
    F v[V];
};

__device__ inline T number_of(T x) { return x; }
__device__ inline T number_of(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return T(y);
}

extern "C" __global__ void __launch_bounds__(128, PER_LANE > 1 ? 1 : PASS_RESIDENT) pass_entries(
    Int chunks, const int* order, const int* owners, const uint2* bounds, const int* others,
    const X* values, const Vec* left, const Stored* right, const double* parameters, Int with_gradient,
    Vec* gradients, double* totals, T* curvatures, double* bends) {
    Int warp = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (warp >= chunks) return;
    const int lane = threadIdx.x % 32, part = lane % LANES, slot = lane / LANES;
    const int chunk = order[warp];
    const unsigned begin = bounds[warp].x, end = bounds[warp].y;  // below 2^31
    Vec u[PER_LANE], g[PER_LANE];
#pragma unroll
    for (int p = 0; p < PER_LANE; p++) {
        const unsigned piece = part + LANES * p;
#pragma unroll
        for (int i = 0; i < V; i++) u[p].v[i] = g[p].v[i] = T(0);
        if (piece < Q) u[p] = left[Int(owners[chunk]) * Q + piece];
    }
    double total = 0.0, bend = 0.0;
    // Where an entry's factor is, and its value, are read one round ahead.
    int other[STEPS];
    X x[SHARED_LOSS ? 1 : STEPS];
    auto look_up = [&](unsigned base) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            unsigned k = base + s * SLOTS;
            other[s] = k < end ? others[k] : -1;
            if (!SHARED_LOSS) x[SHARED_LOSS ? 0 : s] = k < end ? values[k] : X{};
        }
        if (SHARED_LOSS) {
            unsigned k = base + part % STEPS * SLOTS;
            x[0] = k < end ? values[k] : X{};
        }
    };
    look_up(begin + slot);
    for (unsigned base = begin + slot; base - slot < end; base += ROUND) {
        Vec f[STEPS][PER_LANE];
        T z[STEPS], slopes[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int p = 0; p < PER_LANE; p++) {
                const unsigned piece = part + LANES * p;
#pragma unroll
                for (int i = 0; i < V; i++) f[s][p].v[i] = T(0);
                if (other[s] >= 0 && piece < Q) {
                    const Stored stored = right[Int(other[s]) * Q + piece];
#pragma unroll
                    for (int i = 0; i < V; i++) f[s][p].v[i] = number_of(stored.v[i]);
                }
            }
        X here[SHARED_LOSS ? 1 : STEPS];
#pragma unroll
        for (int s = 0; s < (SHARED_LOSS ? 1 : STEPS); s++) here[s] = x[s];
        look_up(base + ROUND);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            z[s] = T(0);
#pragma unroll
            for (int p = 0; p < PER_LANE; p++)
#pragma unroll
                for (int i = 0; i < V; i++) z[s] += u[p].v[i] * f[s][p].v[i];
#pragma unroll
            for (int half = LANES / 2; half; half /= 2) z[s] += __shfl_xor_sync(ALL, z[s], half);
        }
        if (SHARED_LOSS) {
            T mine = z[0];
            const int step = part % STEPS;
#pragma unroll
            for (int s = 1; s < STEPS; s++)
                if (step == s) mine = z[s];
            unsigned k = base + step * SLOTS;
            T slope = T(0);
            if (k < end) {
                Entry e = entry(mine, here[0], parameters);
                slope = e.slope;
                if (part < STEPS) total += e.value;
                if (CURVED && part < STEPS) {
                    curvatures[k] = e.curvature;
                    bend += e.curvature;
                }
            }
#pragma unroll
            for (int s = 0; s < STEPS; s++) slopes[s] = __shfl_sync(ALL, slope, slot * LANES + s);
        } else {
#pragma unroll
            for (int s = 0; s < STEPS; s++) {
                unsigned k = base + s * SLOTS;
                slopes[s] = T(0);
                if (k < end) {
                    Entry e = entry(z[s], here[SHARED_LOSS ? 0 : s], parameters);
                    slopes[s] = e.slope;
                    if (part == 0) total += e.value;
                    if (CURVED && part == 0) {
                        curvatures[k] = e.curvature;
                        bend += e.curvature;
                    }
                }
            }
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int p = 0; p < PER_LANE; p++)
#pragma unroll
                for (int i = 0; i < V; i++) g[p].v[i] += slopes[s] * f[s][p].v[i];
    }
    if (with_gradient) {
#pragma unroll
        for (int p = 0; p < PER_LANE; p++) {
#pragma unroll
            for (int i = 0; i < V; i++)
#pragma unroll
                for (int half = LANES; half < 32; half *= 2)
                    g[p].v[i] += __shfl_xor_sync(ALL, g[p].v[i], half);
            const unsigned piece = part + LANES * p;
            if (slot == 0 && piece < Q) gradients[Int(chunk) * Q + piece] = g[p];
        }
    }
    total = add_all(total);
    if (lane == 0) totals[chunk] = total;
    if (CURVED) {
        bend = add_all(bend);
        if (lane == 0) bends[chunk] = bend;
    }
}

// own += scale times the sum over a row's chunks, in double precision.
extern "C" __global__ void add_chunks(
    Int count, const int* firsts, const T* gradients, double scale, T* own) {
    Int at = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) return;
    Int row = at / SIZE, q = at % SIZE;
    double sum = 0.0;
    for (int chunk = firsts[row]; chunk < firsts[row + 1]; chunk++)
        sum += gradients[Int(chunk) * Q * V + q];
    own[at] += T(scale * sum);
}

// out = scale times (the sum over a row's chunks + ridge p + 2 balance p (G - H) + dense p H), where G
// and H are the Gram matrices of the row's factor and of the other one; for all rows of both.  The
// first `summing` blocks add up the losses of all chunks, and half of balance |G - H|^2 +
// ridge trace(G + H) + dense <G, H> more.
extern "C" __global__ void __launch_bounds__(256) finish_gradient(
    Int cut, Int count, const int* left_firsts, const T* left_gradients, const int* right_firsts,
    const T* right_gradients, double scale, const T* x, const double* grams, double balance,
    double ridge, double dense, T* out, Int summing, Int chunks, const double* totals, double* sums) {
    if (blockIdx.x < summing) {
        double sum = share_of_sum(chunks, totals, unsigned(summing));
        if (blockIdx.x == 0)
            for (int k = threadIdx.x; k < SIZE * SIZE; k += 256) {
                double g = grams[k], h = grams[SIZE * SIZE + k];
                sum += 0.5 * (balance * (g - h) * (g - h) + dense * g * h);
                if (k % (SIZE + 1) == 0) sum += 0.5 * ridge * (g + h);
            }
        write_block_sum(sum, sums);
        return;
    }
    // What a row is multiplied by: 2 balance (G - H) + dense H, and the same for the other factor.
    constexpr bool HELD = SIZE <= 32;
    __shared__ double pulls[2][HELD ? SIZE * SIZE : 1];
    const bool pulled = balance != 0.0 || dense != 0.0;
    auto pull = [&](bool left, int k) {
        const double own = grams[(left ? 0 : SIZE * SIZE) + k], far = grams[(left ? SIZE * SIZE : 0) + k];
        return 2.0 * balance * (own - far) + dense * far;
    };
    if (HELD && pulled) {
        for (int k = threadIdx.x; k < 2 * SIZE * SIZE; k += 256)
            pulls[k / (SIZE * SIZE)][HELD ? k % (SIZE * SIZE) : 0] =
                pull(k < SIZE * SIZE, k % (SIZE * SIZE));
        __syncthreads();
    }
    Int at = Int(blockIdx.x - summing) * 256 + threadIdx.x;
    if (at >= count) return;
    const bool is_left = at < cut;
    const Int row = (is_left ? at : at - cut) / SIZE;
    const int q = at % SIZE;
    const int* firsts = is_left ? left_firsts : right_firsts;
    const T* gradients = is_left ? left_gradients : right_gradients;
    double sum = ridge * double(x[at]);
    for (int chunk = firsts[row]; chunk < firsts[row + 1]; chunk++)
        sum += gradients[Int(chunk) * Q * V + q];
    if (pulled)
        for (int k = 0; k < SIZE; k++) {
            const int place = k * SIZE + q;
            sum += double(x[at - q + k]) * (HELD ? pulls[!is_left][HELD ? place : 0] : pull(is_left, place));
        }
    out[at] = T(scale * sum);
}

// The prediction for each of some pairs, and what it is worth there: the loss's error.
extern "C" __global__ void pair_errors(
    Int count, const int* rows, const int* cols, const T* values, const Vec* left, const Vec* right,
    double low, double high, double* errors) {
    Int k = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k >= count) return;
    const Vec *u = left + Int(rows[k]) * Q, *v = right + Int(cols[k]) * Q;
    T z = T(0);
    for (int p = 0; p < Q; p++) {
        Vec a = u[p], b = v[p];
#pragma unroll
        for (int i = 0; i < V; i++) z += a.v[i] * b.v[i];
    }
    errors[k] = error_of(z, values[k], low, high);
}
