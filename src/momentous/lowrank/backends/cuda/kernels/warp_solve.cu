// A warp per row solves its system of up to 64 parameters: a lane has one row of the lower triangle in
// registers, and with more than 32 parameters a second one, 32 further down.

constexpr int WARPS = 4, UPPER = PADDED < 32 ? PADDED : 32;
constexpr bool LOWER = PADDED > 32;  // is there a second row?
constexpr int WIDTH = PADDED < 32 ? 32 : PADDED;

// One number for each of a lane's rows.
struct Two {
    A upper, lower;
};

__device__ inline A sum_of(Two x) { return add_all(LOWER ? x.upper + x.lower : x.upper); }

// The number of row c, in every lane.
__device__ inline A number_of(Two x, int c) { return __shfl_sync(ALL, c < 32 ? x.upper : x.lower, c % 32); }

struct System {
    A upper[UPPER], lower[LOWER ? PADDED : 1];
    Two inverses;  // of the pivots
    int lane;

    __device__ inline Two column(int c) const {
        return {c < 32 && lane > c ? upper[c < UPPER ? c : 0] : A(0),
                LOWER && lane + 32 > c ? lower[LOWER ? c : 0] : A(0)};
    }

    // L D L', where columns stay as they were when their turn came: L D.
    __device__ inline void eliminate(A (*room)[WIDTH]) {
#pragma unroll
        for (int c = 0; c < SIZE; c++) {
            A* whole = room[c % 2];  // this column; the one before may still be read
            if (c < 32) whole[lane] = upper[c < UPPER ? c : 0];
            if (LOWER && lane + 32 < PADDED) whole[lane + 32] = lower[LOWER ? c : 0];
            __syncwarp();
            const A inverse = inverse_of(whole[c]);
            if (lane == c % 32) (c < 32 ? inverses.upper : inverses.lower) = inverse;
            const Two own = column(c);
            const A share = own.upper * inverse, lower_share = own.lower * inverse;
#pragma unroll
            for (int t = (c + 1) / 4 * 4; t < PADDED; t += 4) {
                const Sums four = *(const Sums*)(whole + t);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (t + k <= c) continue;
                    if (t + k < UPPER) upper[t + k < UPPER ? t + k : 0] -= share * four.v[k];
                    if (LOWER) lower[LOWER ? t + k : 0] -= lower_share * four.v[k];
                }
            }
        }
    }

    // L y = b, in place.
    __device__ inline void go_forward(Two& b) const {
#pragma unroll
        for (int c = 0; c < SIZE - 1; c++) {
            const Two own = column(c);
            const A known = number_of({b.upper * inverses.upper, b.lower * inverses.lower}, c);
            b.upper -= own.upper * known;
            b.lower -= own.lower * known;
        }
    }

    // D L' x = y.
    __device__ inline Two go_back(Two y) const {
        Two x = {A(0), A(0)};
#pragma unroll
        for (int c = SIZE - 1; c >= 0; c--) {
            const Two own = column(c);
            const A sum = sum_of({own.upper * x.upper, own.lower * x.lower});
            if (lane == c % 32) {
                if (c < 32) x.upper = (y.upper - sum) * inverses.upper;
                else x.lower = (y.lower - sum) * inverses.lower;
            }
        }
        return x;
    }
};

// What a lane knows about one of its parameters beside the system.
struct Parameter {
    A before, damping, b, away, square;
};

// See Side.solve_rows for what is solved.
extern "C" __global__ void __launch_bounds__(32 * WARPS, SOLVE_RESIDENT) solve(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, const T* weights,
    const T* current, const double* gram_matrix, const double* pull, double rest, T* solutions,
    A* changes, A* reach, double* row_values) {
    alignas(16) __shared__ A rooms[WARPS][2][WIDTH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Int i = first_row + Int(blockIdx.x) * WARPS + warp;
    if (i >= first_row + rows) return;
    const int first = firsts[i];
    const bool some = first < firsts[i + 1];
    if (CUT && lane == 0) reach[i] = A(-1);
    if (!some && DENSE == 0.0) {
        for (int q = lane; q < SIZE; q += 32) solutions[i * SIZE + q] = T(0);
        if (lane == 0) row_values[i] = 0.0;
        return;
    }
    const A* sums = partial + (first - first_chunk) * PARTIAL;
    A(*room)[WIDTH] = rooms[warp];
    System system;
    system.lane = lane;
    system.inverses = {A(0), A(0)};
    auto read_row = [&](int row, A* to, int width) {
#pragma unroll
        for (int t = 0; t < width; t += 4) {
            Sums four = {};
            // Rows end with their last tile.
            if (some && row < PADDED && t < (row / TILE + 1) * TILE)
                four = *(const Sums*)(sums + row_begin(row) + t);
#pragma unroll
            for (int k = 0; k < 4; k++) to[t + k] = four.v[k];
        }
    };
    read_row(lane, system.upper, UPPER);
    if (LOWER) read_row(lane + 32, system.lower, PADDED);
    A* before_all = room[0];
    for (int q = lane; q < WIDTH; q += 32)
        before_all[q] = current && q < SIZE ? A(current[i * SIZE + q]) : A(0);
    __syncwarp();
    // The trace comes before the damping, and the damping before the diagonal.
    auto diagonal_of = [&](int row) {
        if (row >= SIZE) return A(0);
        A sum = some ? sums[row_begin(row) + row] : A(0);
        if (DENSE != 0.0) sum += A(DENSE * gram_matrix[row * SIZE + row]);
        return sum;
    };
    const Two diagonal = {diagonal_of(lane), LOWER ? diagonal_of(lane + 32) : A(0)};
    const A least = A(fmax(double(sum_of(diagonal)) * DAMPING, LEAST));
    auto prepare = [&](int row, A* own, int width) {
        Parameter p = {A(0), A(0), A(0), A(0), A(0)};
        if (row < SIZE) {
            const A weight = weights[i * SIZE + row];
            p.before = before_all[row];
            p.damping = weight < least ? least - weight : A(0);
            p.b = some ? sums[RIGHT + row] : A(0);
            if (DENSE != 0.0) {
                A moved = A(0);
                for (int q = 0; q < SIZE; q++) moved += A(gram_matrix[q * SIZE + row]) * before_all[q];
                const A to = A(pull[row]);
                p.b -= A(DENSE) * (moved + to);
                p.square = A(DENSE) * p.before * (moved + A(2) * to);
#pragma unroll
                for (int t = 0; t < width; t++)
                    if (t <= row) own[t] += A(DENSE * gram_matrix[row * SIZE + t]);
            }
            p.b -= weight * p.before;
            p.square += weight * p.before * p.before;
            p.away = p.damping * p.before;
#pragma unroll
            for (int t = 0; t < width; t++)
                if (t == row) own[t] += weight + p.damping;
        }
        return p;
    };
    const Parameter up = prepare(lane, system.upper, UPPER);
    const Parameter low =
        LOWER ? prepare(lane + 32, system.lower, PADDED) : Parameter{A(0), A(0), A(0), A(0), A(0)};
    const Two damping = {up.damping, low.damping};
    const bool damped = QUADRATIC && sum_of(damping) > A(0);
    __syncwarp();
    system.eliminate(room);
    Two y = {up.b, low.b}, away = {up.away, low.away};
    system.go_forward(y);
    const Two inverses = system.inverses;
    const double square = double(sum_of({up.square, low.square}));
    double after =
        square - double(sum_of({y.upper * y.upper * inverses.upper, y.lower * y.lower * inverses.lower}));
    Two change = system.go_back(y);
    const double loss = some ? double(sums[LOSS]) : 0.0;
    if (QUADRATIC) {
        const double dense_rest = DENSE * rest;
        after += 2.0 * loss + dense_rest;
        if (damped) {
            system.go_forward(away);
            const A pulled = sum_of(
                {y.upper * away.upper * inverses.upper, y.lower * away.lower * inverses.lower});
            const Two drawn = system.go_back(away);
            const double from = square + 2.0 * loss + dense_rest;
            const Two left = {change.upper - drawn.upper, change.lower - drawn.lower};
            double shortest = after + double(pulled);
            after -= double(sum_of({damping.upper * change.upper * change.upper,
                                    damping.lower * change.lower * change.lower}));
            shortest -= double(sum_of({damping.upper * (up.before + left.upper) * left.upper,
                                       damping.lower * (low.before + left.lower) * left.lower}));
            if (!(shortest > from)) {
                after = shortest;
                change = left;
            }
        }
        if (lane == 0) row_values[i] = 0.5 * after;
    } else if (lane == 0) {
        row_values[i] = loss;
    }
    if (lane < SIZE) solutions[i * SIZE + lane] = T(up.before + change.upper);
    if (LOWER && lane + 32 < SIZE) solutions[i * SIZE + lane + 32] = T(low.before + change.lower);
    if (CUT) {
        const A length = sum_of({change.upper * change.upper, change.lower * change.lower});
        if (length * sums[MOST] > A(FULL_STEP * FULL_STEP)) {
            if (lane == 0) reach[i] = A(0);
            if (lane < SIZE) changes[i * SIZE + lane] = change.upper;
            if (LOWER && lane + 32 < SIZE) changes[i * SIZE + lane + 32] = change.lower;
        }
    }
}
