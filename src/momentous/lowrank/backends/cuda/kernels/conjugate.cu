// Half a sweep by conjugate gradients: what a step does to a row's own vectors, a warp per row.
//
// A pass over the entries has multiplied the directions with the rows' systems.  Directions and rests
// are in rows of STRIDE numbers, those beyond SIZE are 0.  Sums over a row are in double precision.
// The preconditioner M of a row is diagonal: curved * squares + weights + dense_squares.

constexpr int EACH = (STRIDE + 31) / 32;  // numbers per lane

__device__ inline double inverse_diagonal(
    double curved, double square, double weight, double dense_square) {
    return inverse_of(curved * square + weight + dense_square);
}

// out = the sum over the chunks of each row.
extern "C" __global__ void add_bends(Int rows, const int* firsts, const double* bends, double* out) {
    Int row = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0.0;
    for (int chunk = firsts[row]; chunk < firsts[row + 1]; chunk++) sum += bends[chunk];
    out[row] = sum;
}

// rest = minus the slopes of the row, direction = M^-1 rest; sizes has rest . direction, and
// direction . M direction.
extern "C" __global__ void __launch_bounds__(256) begin_steps(
    Int rows, Int slopes_stride, const int* firsts, const T* slopes, const double* curved,
    const T* weights, const double* squares, const double* dense_squares, const T* dense,
    const T* current, T* rest, T* direction, double2* sizes) {
    const Int row = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    double size = 0.0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int q = lane + 32 * e;
        if (q >= STRIDE) continue;
        double b = 0.0, d = 0.0;
        if (q < SIZE) {
            const double weight = weights[row * SIZE + q];
            for (int chunk = firsts[row]; chunk < firsts[row + 1]; chunk++)
                b -= slopes[Int(chunk) * slopes_stride + q];
            if (current) b -= weight * current[row * SIZE + q];
            if (dense) b += dense[row * STRIDE + q];
            d = b * inverse_diagonal(curved[row], squares[q], weight, dense_squares[q]);
            size += b * d;
        }
        rest[row * STRIDE + q] = T(b);
        direction[row * STRIDE + q] = T(d);
    }
    size = add_all(size);
    if (lane == 0) sizes[row] = {size, size};
}

// One step, from `scale` times what a pass has made of the directions; after the last one the new row.
// A row whose direction has hardly any curvature stays where it is: its size is 0 from then on.
extern "C" __global__ void __launch_bounds__(256) take_step(
    Int rows, const int* firsts, const T* products, double scale, const double* curved,
    const T* weights, const double* squares, const double* dense_squares, const T* dense,
    const T* current, double least, Int first, Int last, T* rest, T* direction, T* changes,
    double2* sizes, T* solutions) {
    const Int row = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    double d[EACH], turned[EACH], inverses[EACH], curvature = 0.0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int q = lane + 32 * e;
        d[e] = turned[e] = inverses[e] = 0.0;
        if (q >= SIZE) continue;
        const double weight = weights[row * SIZE + q];
        d[e] = direction[row * STRIDE + q];
        for (int chunk = firsts[row]; chunk < firsts[row + 1]; chunk++)
            turned[e] += products[Int(chunk) * STRIDE + q];
        turned[e] = scale * turned[e] + weight * d[e];
        if (dense) turned[e] += dense[row * STRIDE + q];
        inverses[e] = inverse_diagonal(curved[row], squares[q], weight, dense_squares[q]);
        curvature += d[e] * turned[e];
    }
    curvature = add_all(curvature);
    const double2 before = sizes[row];
    const bool going = before.x > 0.0 && curvature > least * before.y;
    const double length = going ? before.x / curvature : 0.0;
    const bool empty = !dense && firsts[row] == firsts[row + 1];
    double size = 0.0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int q = lane + 32 * e;
        if (q >= SIZE) continue;
        const Int at = row * SIZE + q;
        const double change = (first ? 0.0 : double(changes[at])) + length * d[e];
        changes[at] = T(change);
        if (last) {
            solutions[at] = empty ? T(0) : T((current ? double(current[at]) : 0.0) + change);
        } else {
            const double r = double(rest[row * STRIDE + q]) - length * turned[e];
            rest[row * STRIDE + q] = T(r);
            turned[e] = r * inverses[e];
            size += r * turned[e];
        }
    }
    if (last) return;
    size = add_all(size);
    const double share = before.x > 0.0 ? size / before.x : 0.0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int q = lane + 32 * e;
        if (q < SIZE) direction[row * STRIDE + q] = T(turned[e] + share * d[e]);
    }
    if (lane == 0) sizes[row] = {going ? size : 0.0, size + share * share * before.y};
}
