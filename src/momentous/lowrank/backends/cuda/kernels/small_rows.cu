// Half a sweep for few parameters per row: all sums of a row's system in registers.
//
// A warp goes from one pair of chunks to the next, half of the lanes for each: chunks are sorted by
// length, so that both end at the same time, and what is to be done then is done for two.  It copies
// the features of 32 entries at a time to shared memory, whole rows by neighbouring lanes, and while it
// does, each lane adds the products of one entry of the 32 before to sums of its own.

constexpr int Q = STRIDE / V;   // pieces of 16 bytes in the features of an entry
constexpr int QS = Q | 1;       // the same in shared memory: odd, so that lanes read different banks
constexpr int TRIANGLE = SIZE * (SIZE + 1) / 2;
constexpr int SUMS = TRIANGLE + SIZE + 1;   // products, right-hand side, losses
constexpr int PARTIAL = (SUMS + 1 + 3) / 4 * 4;  // and the largest |f|^2
constexpr int MOST = SUMS, WARPS = 4, HALF = 16;
constexpr int RESIDENT = SUMS * sizeof(A) <= 320 ? 4 : 1;  // blocks per processor, at least

// A row is solved in double precision as long as its system fits the registers of a thread.
template <bool SMALL> struct Chosen { typedef double type; };
template <> struct Chosen<false> { typedef A type; };
typedef Chosen<SIZE <= 12>::type S;

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT) gram(
    Int first, Int chunks, const int* order, const uint2* bounds, const int* owners,
    const int* others, const X* values, const Vec* features, const T* current,
    const double* parameters, A* partial) {
    __shared__ Vec staged[WARPS][3][32 * QS];
    __shared__ A row[WARPS][2][SIZE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / HALF, spot = lane % HALF;
    const int warps = gridDim.x * WARPS, mine = blockIdx.x * WARPS + warp;
    const Int pairs = (chunks + 1) / 2;
    // Back and forth, all warps get about the same number of entries.
    auto place_in = [&](int lap) {
        return 2 * (Int(lap) * warps + (lap % 2 ? warps - 1 - mine : mine)) + half;
    };
    auto bounds_in = [&](int lap) {
        Int at = place_in(lap);
        return at < chunks ? bounds[at] : make_uint2(0, 0);
    };
    // How many rounds a pair takes: the first chunk of it is the longer one.
    auto rounds_of = [&](uint2 own) {
        return int(__shfl_sync(ALL, (own.y - own.x + HALF - 1) / HALF, 0));
    };
    // Four rounds of 32 entries are under way: `here` is added, `next` and `later` are copied, and
    // the indices of `far` are read; across the ends of chunks, too.
    int lap = 0, far_lap = 0;
    if (mine >= pairs) return;
    uint2 far = bounds_in(0), after = bounds_in(1);
    int far_rounds = rounds_of(far);  // left; 0: there is nothing more
    auto advance = [&]() {
        far.x += HALF;
        if (--far_rounds == 0) {
            far = after;
            far_rounds = rounds_of(far);
            far_lap++;
            after = bounds_in(far_lap + 1);
        }
    };
    auto is_far = [&]() { return far.x + spot < far.y; };
    auto other_of = [&]() { return is_far() ? others[far.x + spot] : -1; };
    auto value_of = [&]() { return is_far() ? values[far.x + spot] : X{}; };
    auto stage = [&](int buffer, int other) {
#pragma unroll
        for (int m = 0; m < Q; m++) {
            int task = lane + 32 * m, entry = task / Q, piece = task % Q;
            int j = __shfl_sync(ALL, other, entry);
            copy_async(&staged[warp][buffer][entry * QS + piece],
                       features + Int(j < 0 ? 0 : j) * Q + piece, j >= 0);
        }
    };
    auto take_row = [&]() {
        if (!current) return;
        Int at = place_in(lap);
        for (int q = spot; q < SIZE; q += HALF)
            row[warp][half][q] = at < chunks ? A(current[Int(owners[order[at]]) * SIZE + q]) : A(0);
        __syncwarp();
    };
    A sums[SUMS], most = A(0);
#pragma unroll
    for (int i = 0; i < SUMS; i++) sums[i] = A(0);
    int buffer = 0;
    stage(0, other_of());
    close_group();
    bool there = is_far(), next_there = false;
    int rounds = far_rounds, next_rounds = 0;
    X x = value_of(), next_x = X{};
    advance();
    if (far_rounds) {
        next_there = is_far();
        next_rounds = far_rounds;
        next_x = value_of();
        stage(1, other_of());
        advance();
    }
    close_group();
    int other = other_of();
    take_row();
    while (true) {
        const bool later_there = is_far();
        const int later_rounds = far_rounds;
        const X later_x = value_of();
        if (far_rounds) {
            stage(buffer == 0 ? 2 : buffer - 1, other);
            advance();
            other = other_of();
        }
        close_group();
        wait_for_groups<2>();
        __syncwarp();
        T read[Q * V];
#pragma unroll
        for (int p = 0; p < Q; p++) {
            Vec piece = staged[warp][buffer][lane * QS + p];
#pragma unroll
            for (int i = 0; i < V; i++) read[p * V + i] = piece.v[i];
        }
        A f[SIZE];
#pragma unroll
        for (int q = 0; q < SIZE; q++) f[q] = A(read[q]);
        A z = OFFSET ? A(read[SIZE < Q * V ? SIZE : 0]) : A(0);
        if (current) {
#pragma unroll
            for (int q = 0; q < SIZE; q++) z += row[warp][half][q] * f[q];
        }
        Entry e = entry(z, x, parameters);
        if (!there) e.value = e.slope = e.curvature = A(0);
#pragma unroll
        for (int a = 0; a < SIZE; a++) {
            A weighted = UNIT ? f[a] : e.curvature * f[a];
#pragma unroll
            for (int b = 0; b <= a; b++) sums[a * (a + 1) / 2 + b] += weighted * f[b];
            sums[TRIANGLE + a] -= e.slope * f[a];
        }
        sums[TRIANGLE + SIZE] += e.value;
        if (CUT) {
            A square = A(0);
#pragma unroll
            for (int q = 0; q < SIZE; q++) square += f[q] * f[q];
            most = larger(most, square);
        }
        __syncwarp();
        if (rounds == 1) {  // the chunks end here
            const Int at = place_in(lap);
            A* out = at < chunks ? partial + (order[at] - first) * PARTIAL : nullptr;
            constexpr int GROUPS = SUMS / HALF, REST = SUMS % HALF;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                A part[HALF];
#pragma unroll
                for (int i = 0; i < HALF; i++) part[i] = sums[HALF * g + i];
                share_sums<HALF / 2, HALF>(part, lane);
                if (out) out[HALF * g + spot] = part[0];
            }
#pragma unroll
            for (int i = 0; i < REST; i++) {
                A sum = sums[HALF * GROUPS + i];
#pragma unroll
                for (int far_by = HALF / 2; far_by; far_by /= 2) sum += __shfl_xor_sync(ALL, sum, far_by);
                if (out && spot == i) out[HALF * GROUPS + i] = sum;
            }
            if (CUT) {
#pragma unroll
                for (int far_by = HALF / 2; far_by; far_by /= 2)
                    most = larger(most, __shfl_xor_sync(ALL, most, far_by));
                if (out && spot == 0) out[MOST] = most;
                most = A(0);
            }
#pragma unroll
            for (int i = 0; i < SUMS; i++) sums[i] = A(0);
            lap++;
            if (next_rounds) take_row();
        }
        if (!next_rounds) break;
        there = next_there;
        rounds = next_rounds;
        x = next_x;
        next_there = later_there;
        next_rounds = later_rounds;
        next_x = later_x;
        buffer = buffer == 2 ? 0 : buffer + 1;
    }
}

__device__ constexpr int place(int a, int b) { return a * (a + 1) / 2 + b; }

// The solution of L D L' x = y, where y has gone through L already.
__device__ inline void go_back(const S* a, const S* inverses, S* y) {
#pragma unroll
    for (int c = SIZE - 1; c >= 0; c--) {
#pragma unroll
        for (int r = c + 1; r < SIZE; r++) y[c] -= a[place(r, c)] * y[r];
        y[c] *= inverses[c];
    }
}

// One thread per row; see Side.solve_rows for what is solved.
extern "C" __global__ void __launch_bounds__(64) solve(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, const T* weights,
    const T* current, const double* gram_matrix, const double* pull, double rest, T* solutions,
    A* changes, A* reach, double* row_values) {
    Int i = first_row + Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= first_row + rows) return;
    if (CUT) reach[i] = A(-1);
    const int first = firsts[i], last = firsts[i + 1];
    if (first == last && DENSE == 0.0) {
        for (int q = 0; q < SIZE; q++) solutions[i * SIZE + q] = T(0);
        row_values[i] = 0.0;
        return;
    }
    S a[TRIANGLE], b[SIZE], loss = S(0), most = S(0);
    const bool some = first < last;
    const A* sums = partial + (first - first_chunk) * PARTIAL;
#pragma unroll
    for (int k = 0; k < TRIANGLE; k++) a[k] = some ? S(sums[k]) : S(0);
#pragma unroll
    for (int q = 0; q < SIZE; q++) b[q] = some ? S(sums[TRIANGLE + q]) : S(0);
    if (some) loss = S(sums[TRIANGLE + SIZE]);
    if (some && CUT) most = S(sums[MOST]);
    const T* u = current ? current + i * SIZE : nullptr;
    S square = S(2) * loss, trace = S(0);
    if (DENSE != 0.0) {
#pragma unroll
        for (int q = 0; q < SIZE; q++) {
            S moved = S(0);
            if (u)
                for (int p = 0; p < SIZE; p++) moved += S(gram_matrix[q * SIZE + p]) * S(u[p]);
#pragma unroll
            for (int p = 0; p <= q; p++) a[place(q, p)] += S(DENSE * gram_matrix[q * SIZE + p]);
            b[q] -= S(DENSE) * (moved + S(pull[q]));
            if (u) square += S(DENSE) * S(u[q]) * (moved + S(2.0 * pull[q]));
        }
        square += S(DENSE * rest);
    }
#pragma unroll
    for (int q = 0; q < SIZE; q++) trace += a[place(q, q)];
    const S least = S(fmax(double(trace) * DAMPING, LEAST));
    bool damped = false;
#pragma unroll
    for (int q = 0; q < SIZE; q++) {
        S weight = S(weights[i * SIZE + q]), before = u ? S(u[q]) : S(0);
        damped |= weight < least;
        a[place(q, q)] += weight < least ? least : weight;
        b[q] -= weight * before;
        square += weight * before * before;
    }
    S inverses[SIZE], product = S(0);
#pragma unroll
    for (int c = 0; c < SIZE; c++) {
        inverses[c] = inverse_of(a[place(c, c)]);
        product += b[c] * b[c] * inverses[c];
#pragma unroll
        for (int r = c + 1; r < SIZE; r++) {
            S share = a[place(r, c)] * inverses[c];
#pragma unroll
            for (int t = c + 1; t <= r; t++) a[place(r, t)] -= share * a[place(t, c)];
            b[r] -= share * b[c];
        }
    }
    S away[SIZE], pulled = S(0);
    if (QUADRATIC && damped) {
        // Where the damping alone would draw the row: from the change to the shortest row.
#pragma unroll
        for (int q = 0; q < SIZE; q++) {
            S weight = S(weights[i * SIZE + q]);
            away[q] = u && weight < least ? (least - weight) * S(u[q]) : S(0);
        }
#pragma unroll
        for (int c = 0; c < SIZE; c++) {
            pulled += b[c] * away[c] * inverses[c];
#pragma unroll
            for (int r = c + 1; r < SIZE; r++) away[r] -= a[place(r, c)] * inverses[c] * away[c];
        }
        go_back(a, inverses, away);
    }
    go_back(a, inverses, b);
    if (QUADRATIC) {
        S after = square - product;
        if (damped) {
            S shortest = after + pulled;
#pragma unroll
            for (int q = 0; q < SIZE; q++) {
                S weight = S(weights[i * SIZE + q]), before = u ? S(u[q]) : S(0);
                S damping = weight < least ? least - weight : S(0);
                after -= damping * b[q] * b[q];
                shortest -= damping * (before + b[q] - away[q]) * (b[q] - away[q]);
            }
            if (!(shortest > square)) {
                after = shortest;
#pragma unroll
                for (int q = 0; q < SIZE; q++) b[q] -= away[q];
            }
        }
        row_values[i] = 0.5 * double(after);
    } else {
        row_values[i] = loss;
    }
    S length = S(0);
#pragma unroll
    for (int q = 0; q < SIZE; q++) {
        length += b[q] * b[q];
        solutions[i * SIZE + q] = T((u ? S(u[q]) : S(0)) + b[q]);
    }
    if (CUT && length * most > S(FULL_STEP * FULL_STEP)) {
        reach[i] = A(0);
#pragma unroll
        for (int q = 0; q < SIZE; q++) changes[i * SIZE + q] = A(b[q]);
    }
}

// The sums of products of each row, as out[a][b][row].  Chunks are added already.
extern "C" __global__ void unpack(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, double* out) {
    Int at = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= rows * TRIANGLE) return;
    Int row = at / TRIANGLE, k = at % TRIANGLE;
    int a = 0;
    while (place(a + 1, 0) <= k) a++;
    const int first = firsts[first_row + row];
    const bool some = first < firsts[first_row + row + 1];
    double sum = some ? double(partial[(first - first_chunk) * PARTIAL + k]) : 0.0;
    out[(Int(a) * SIZE + (k - place(a, 0))) * rows + row] = sum;
}
