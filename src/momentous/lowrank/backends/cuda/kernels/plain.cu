// Kernels without a size and a loss: rows packed for reading, sums.

__device__ inline T infinity() { return T(__int_as_float(0x7f800000)); }

// Rows of `width` numbers as rows of `stride`, an offset of each at the place `offset_at`, else 0.
extern "C" __global__ void pack(
    Int rows, Int width, Int stride, Int offset_at, const T* from, const T* offsets, T* to) {
    Int at = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= rows * stride) return;
    Int row = at / stride, q = at % stride;
    to[at] = q < width ? from[row * width + q] : offsets && q == offset_at ? offsets[row] : T(0);
}

// Sums of w_i u_i u_i' in double precision: the lower triangle, one partial sum per block.  The first
// blocks have the rows before the cut, the others those after it.
extern "C" __global__ void __launch_bounds__(256) weighted_gram(
    Int cut, Int rows, Int first_blocks, Int rank, Int stride, const T* factor, const T* weights,
    double* partial) {
    constexpr int HELD = 16384 / sizeof(T);  // numbers in shared memory
    __shared__ T held[HELD];
    __shared__ T weight[HELD];
    const Int many = HELD / rank, pairs = rank * (rank + 1) / 2;
    const bool is_first = blockIdx.x < first_blocks;
    const Int from = is_first ? 0 : cut, to = is_first ? cut : rows;
    const Int blocks = is_first ? first_blocks : gridDim.x - first_blocks;
    const Int share = (to - from + blocks - 1) / blocks;
    const Int begin = from + share * (is_first ? blockIdx.x : blockIdx.x - first_blocks);
    const Int end = begin + share < to ? begin + share : to;
    for (Int group = 0; group < pairs; group += 4 * 256) {
        double sums[4] = {0.0, 0.0, 0.0, 0.0};
        int down[4], right[4];
        for (int m = 0; m < 4; m++) {
            Int pair = group + m * 256 + threadIdx.x;
            int a = int((sqrt(8.0 * double(pair) + 1.0) - 1.0) / 2.0);
            while (Int(a + 1) * (a + 2) / 2 <= pair) a++;
            while (Int(a) * (a + 1) / 2 > pair) a--;
            down[m] = pair < pairs ? a : 0;
            right[m] = pair < pairs ? int(pair - Int(a) * (a + 1) / 2) : 0;
        }
        for (Int base = begin; base < end; base += many) {
            const Int count = end - base < many ? end - base : many;
            __syncthreads();
            for (Int k = threadIdx.x; k < count * rank; k += 256)
                held[k] = factor[(base + k / rank) * stride + k % rank];
            for (Int k = threadIdx.x; k < count; k += 256)
                weight[k] = weights ? weights[(base + k) * stride] : T(1);
            __syncthreads();
            for (int m = 0; m < 4; m++)
                if (group + m * 256 + Int(threadIdx.x) < pairs)
                    for (Int k = 0; k < count; k++)
                        sums[m] += double(weight[k]) * double(held[k * rank + down[m]]) *
                                   double(held[k * rank + right[m]]);
        }
        for (int m = 0; m < 4; m++) {
            Int pair = group + m * 256 + threadIdx.x;
            if (pair < pairs) partial[Int(blockIdx.x) * pairs + pair] = sums[m];
        }
    }
}

// The blocks' sums added up, as full symmetric matrices, one for each part of the rows; one warp per
// pair of columns.
extern "C" __global__ void fold_gram(
    Int first_blocks, Int blocks, Int rank, const double* partial, double* out) {
    const Int warp = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32, pairs = rank * (rank + 1) / 2;
    const Int part = warp / pairs, pair = warp % pairs;
    if (part > (first_blocks < blocks)) return;
    double sum = 0.0;
    for (Int k = (part ? first_blocks : 0) + threadIdx.x % 32; k < (part ? blocks : first_blocks); k += 32)
        sum += partial[k * pairs + pair];
    sum = add_all(sum);
    if (threadIdx.x % 32 != 0) return;
    Int a = Int((sqrt(8.0 * double(pair) + 1.0) - 1.0) / 2.0);
    while ((a + 1) * (a + 2) / 2 <= pair) a++;
    while (a * (a + 1) / 2 > pair) a--;
    const Int b = pair - a * (a + 1) / 2;
    out += part * rank * rank;
    out[a * rank + b] = out[b * rank + a] = sum;
}

extern "C" __global__ void __launch_bounds__(256) add_up(Int count, const double* numbers, double* out) {
    write_block_sum(share_of_sum(count, numbers, gridDim.x), out);
}

// The same of all w p^2.
extern "C" __global__ void __launch_bounds__(256) weighted_squares(
    Int count, const T* weights, const T* numbers, double* out) {
    double sum = 0.0;
    for (Int k = Int(blockIdx.x) * 256 + threadIdx.x; k < count; k += 256 * gridDim.x)
        sum += double(weights[k]) * double(numbers[k]) * double(numbers[k]);
    write_block_sum(sum, out);
}

// The scores of what a row has seen become minus infinity; one warp per row.
extern "C" __global__ void hide_seen(
    Int rows, Int columns, const Int* starts, const int* seen, T* scores) {
    const Int row = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (row >= rows) return;
    for (Int k = starts[row] + threadIdx.x % 32; k < starts[row + 1]; k += 32)
        scores[row * columns + seen[k]] = -infinity();
}

// The highest scores of a row, best first, and of equal ones the first; one block per row.  A thread
// knows the best of its own columns that is not taken yet, and looks again when it was taken.
extern "C" __global__ void __launch_bounds__(256) best_columns(
    Int columns, Int count, const T* scores, Int* best, T* found) {
    __shared__ T tops[8];
    __shared__ int places[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, none = 0x7fffffff;
    scores += Int(blockIdx.x) * columns;
    // The best so far; nothing at first.
    T last = infinity(), top;
    int last_at = -1, at;
    auto look = [&]() {
        top = -infinity();
        at = none;
        for (int j = threadIdx.x; j < columns; j += 256) {
            const T score = scores[j];
            const bool is_left = score < last || (score == last && j > last_at);
            if (is_left && score > top) top = score, at = j;
        }
    };
    look();
    for (Int k = 0; k < count; k++) {
        T most = top;
        int where = at;
        auto take_better = [&](T other, int place) {
            if (other > most || (other == most && place < where)) most = other, where = place;
        };
#pragma unroll
        for (int half = 16; half; half /= 2) {
            const T other = __shfl_xor_sync(ALL, most, half);
            const int place = __shfl_xor_sync(ALL, where, half);
            take_better(other, place);
        }
        __syncthreads();
        if (lane == 0) tops[warp] = most, places[warp] = where;
        __syncthreads();
        most = tops[0], where = places[0];
        for (int w = 1; w < 8; w++) take_better(tops[w], places[w]);
        if (threadIdx.x == 0) {
            best[Int(blockIdx.x) * count + k] = where == none ? -1 : where;
            found[Int(blockIdx.x) * count + k] = where == none ? T(0) : most;
        }
        last = most, last_at = where;
        if (at == where && at != none) look();
    }
}
