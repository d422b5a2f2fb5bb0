// Half a sweep for many parameters per row: the system in tiles of 8 x 8, one tile per thread.
//
// One block per chunk of a row copies the features of K entries at a time to shared memory and adds
// their products to the tiles of the lower triangle, which stay in registers.  Where there are fewer
// tiles than threads, G threads share a tile and take turns at the entries.  Then the chunks of a row
// are added in double precision, and a block per row eliminates, with the same tiles in registers.

constexpr int TILE = 8, AREA = TILE * TILE;
constexpr int ACROSS = (SIZE + TILE - 1) / TILE;      // tiles in a row of tiles
constexpr int TILES = ACROSS * (ACROSS + 1) / 2;
constexpr int PADDED = ACROSS * TILE;
constexpr int Q = STRIDE / V;                         // pieces of 16 bytes in the features of an entry
constexpr int QS = Q | 1;                             // the same in shared memory: other banks
constexpr int SPLITS = (TILES + 255) / 256;           // blocks that share a chunk's tiles
constexpr int BLOCK_TILES = (TILES + SPLITS - 1) / SPLITS;

__host__ __device__ constexpr int sharing(int g) { return g > 1 && BLOCK_TILES * g > 192 ? sharing(g / 2) : g; }
__host__ __device__ constexpr int entries_at_a_time(int k) {
    return k > 8 && 2 * k * QS * 16 > 40960 ? entries_at_a_time(k / 2) : k;
}

constexpr int G = sharing(32);
constexpr int THREADS = (BLOCK_TILES * G + 31) / 32 * 32;
constexpr int RESIDENT = sizeof(A) == 4 ? 480 / THREADS : 1;  // blocks per processor
constexpr int K = entries_at_a_time(32);
static_assert(K >= G, "threads that share a tile take turns at the entries");
constexpr int HELPERS = THREADS / K >= 4 ? 4 : THREADS / K >= 2 ? 2 : 1;  // threads per prediction
constexpr int TASKS = (K * Q + THREADS - 1) / THREADS;  // pieces that a thread copies
// Of a chunk: all tiles' sums of one place after the other, the right-hand side, loss, largest |f|^2.
constexpr int PARTIAL = TILES * AREA + (SIZE + 2 + 3) / 4 * 4;
constexpr int RIGHT = TILES * AREA, LOSS = RIGHT + SIZE, MOST = LOSS + 1;

__device__ inline void read_eight(const T* from, A* to) {
#pragma unroll
    for (int p = 0; p < TILE / V; p++) {
        Vec piece = ((const Vec*)from)[p];
#pragma unroll
        for (int i = 0; i < V; i++) to[p * V + i] = A(piece.v[i]);
    }
}

struct alignas(16) Sums {
    A v[16 / sizeof(A)];
};

__device__ inline void read_sums(const A* from, A* to) {
    constexpr int N = 16 / sizeof(A);
#pragma unroll
    for (int p = 0; p < TILE / N; p++) {
        Sums piece = ((const Sums*)from)[p];
#pragma unroll
        for (int i = 0; i < N; i++) to[p * N + i] = piece.v[i];
    }
}

// Row and column of a tile of the lower triangle.
__device__ inline void find_tile(int tile, int& down, int& right) {
    down = 0;
    while ((down + 1) * (down + 2) / 2 <= tile) down++;
    right = tile - down * (down + 1) / 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) gram(
    Int first, Int chunks, const Int* begins, const int* owners, const int* others, const T* values,
    const Vec* features, const T* current, const double* parameters, A* partial) {
    __shared__ Vec staged[2][K * QS];
    alignas(16) __shared__ A pulls[K];
    __shared__ A row[PADDED], curvatures[K];
    __shared__ A losses[K], squares[K];
    const int me = threadIdx.x, tile = blockIdx.y * BLOCK_TILES + me / G, turn = me % G;
    const bool working = me / G < BLOCK_TILES && tile < TILES;
    const Int chunk = first + blockIdx.x, begin = begins[chunk], end = begins[chunk + 1];
    const int rounds = int((end - begin + K - 1) / K);
    int down = 0, right = 0;
    if (working) find_tile(tile, down, right);
    if (current)
        for (int q = me; q < SIZE; q += THREADS) row[q] = current[Int(owners[chunk]) * SIZE + q];
    int next[TASKS];
    auto look_up = [&](int round) {
#pragma unroll
        for (int m = 0; m < TASKS; m++) {
            int task = me + THREADS * m;
            Int k = begin + Int(K) * round + task / Q;
            next[m] = task < K * Q && k < end ? others[k] : -1;
        }
    };
    auto stage = [&](int round) {
#pragma unroll
        for (int m = 0; m < TASKS; m++) {
            int task = me + THREADS * m, j = next[m];
            if (task < K * Q)
                copy_async(&staged[round & 1][task / Q * QS + task % Q],
                           features + Int(j < 0 ? 0 : j) * Q + task % Q, j >= 0);
        }
        close_group();
    };
    A sums[AREA], right_side[(SIZE + THREADS - 1) / THREADS], loss = A(0), most = A(0);
#pragma unroll
    for (int i = 0; i < AREA; i++) sums[i] = A(0);
#pragma unroll
    for (int m = 0; m < (SIZE + THREADS - 1) / THREADS; m++) right_side[m] = A(0);
    look_up(0);
    stage(0);
    look_up(1);
    for (int round = 0; round < rounds; round++) {
        wait_for_groups<0>();
        __syncthreads();  // this round's features are there, and nobody reads those before them
        if (round + 1 < rounds) {
            stage(round + 1);
            look_up(round + 2);
        }
        const T* here = (const T*)staged[round & 1];
        if (me < K * HELPERS) {
            const int k = me / HELPERS, helper = me % HELPERS;
            const T* f = here + k * QS * V;
            A z = A(0), square = A(0);
            if (current)
                for (int q = helper; q < SIZE; q += HELPERS) z += row[q] * A(f[q]);
            if (CUT)
                for (int q = helper; q < SIZE; q += HELPERS) square += A(f[q]) * A(f[q]);
#pragma unroll
            for (int half = HELPERS / 2; half; half /= 2) {
                z += __shfl_xor_sync(ALL, z, half);
                if (CUT) square += __shfl_xor_sync(ALL, square, half);
            }
            if (helper == 0) {
                Int at = begin + Int(K) * round + k;
                Entry e = {A(0), A(0), A(0)};
                if (OFFSET) z += A(f[OFFSET ? PADDED : 0]);
                if (at < end) e = entry(z, A(values[at]), parameters);
                pulls[k] = -e.slope;
                curvatures[k] = e.curvature;
                loss += e.value;
                most = larger(most, square);
            }
        }
        __syncthreads();
        if (working) {
#pragma unroll 2
            for (int k = turn; k < K; k += G) {
                A a[TILE], b[TILE];
                read_eight(here + k * QS * V + down * TILE, a);
                read_eight(here + k * QS * V + right * TILE, b);
                if (!UNIT) {
                    A curvature = curvatures[k];
#pragma unroll
                    for (int i = 0; i < TILE; i++) a[i] *= curvature;
                }
#pragma unroll
                for (int i = 0; i < TILE; i++)
#pragma unroll
                    for (int j = 0; j < TILE; j++) sums[i * TILE + j] += a[i] * b[j];
            }
        }
        if (blockIdx.y == 0) {
#pragma unroll
            for (int m = 0; m < (SIZE + THREADS - 1) / THREADS; m++) {
                int q = me + m * THREADS;
                if (q < SIZE)
#pragma unroll 2
                    for (int k = 0; k < K; k += TILE) {
                        A pull[TILE];
                        read_sums(pulls + k, pull);
#pragma unroll
                        for (int i = 0; i < TILE; i++)
                            right_side[m] += pull[i] * A(here[(k + i) * QS * V + q]);
                    }
            }
        }
    }
    A* out = partial + (chunk - first) * PARTIAL;
    // Each of the threads that share a tile keeps its share of the sums.
    share_sums<G / 2, AREA>(sums, turn);
    if (working) {
#pragma unroll
        for (int i = 0; i < AREA / G; i++) out[(turn * (AREA / G) + i) * TILES + tile] = sums[i];
    }
    if (blockIdx.y == 0) {
#pragma unroll
        for (int m = 0; m < (SIZE + THREADS - 1) / THREADS; m++)
            if (me + m * THREADS < SIZE) out[RIGHT + me + m * THREADS] = right_side[m];
        if (me < K * HELPERS && me % HELPERS == 0) {
            losses[me / HELPERS] = loss;
            squares[me / HELPERS] = most;
        }
        __syncthreads();
        if (me == 0) {
            A all = A(0), largest = A(0);
            for (int k = 0; k < K; k++) {
                all += losses[k];
                largest = larger(largest, squares[k]);
            }
            out[LOSS] = all;
            out[MOST] = largest;
        }
    }
}

constexpr int SOLVERS = ((TILES > PADDED ? TILES : PADDED) + 31) / 32 * 32;
constexpr int SOLVING = sizeof(A) == 4 && SOLVERS <= 320 ? 640 / SOLVERS : 1;  // blocks per processor

// The sum of one number per thread, in every thread, in a fixed order.
__device__ inline A add_block(A x, A* room) {
    x = add_all(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    A sum = A(0);
    for (int w = 0; w < SOLVERS / 32; w++) sum += room[w];
    return sum;
}

#if TILED_SOLVE
// L D L' x = y in tiles; y has gone through L, and its entries are in `y`; x gets the solution.
__device__ inline void go_back(
    const A* tile, bool working, int down, int right, const A* inverses, A* y, A* x) {
    for (int block = ACROSS - 1; block >= 0; block--) {
        __syncthreads();
        if (working && down == block && right == block) {
            A found[TILE], scale[TILE];
            read_sums(y + block * TILE, found);
            read_sums(inverses + block * TILE, scale);
#pragma unroll
            for (int c = TILE - 1; c >= 0; c--) {
#pragma unroll
                for (int r = c + 1; r < TILE; r++) found[c] -= tile[r * TILE + c] * found[r];
                found[c] *= scale[c];
            }
#pragma unroll
            for (int c = 0; c < TILE; c++) x[block * TILE + c] = found[c];
        }
        __syncthreads();
        if (working && down == block && right < block) {
            A found[TILE];
            read_sums(x + block * TILE, found);
#pragma unroll
            for (int c = 0; c < TILE; c++) {
                A sum = A(0);
#pragma unroll
                for (int r = 0; r < TILE; r++) sum += tile[r * TILE + c] * found[r];
                y[right * TILE + c] -= sum;
            }
        }
    }
    __syncthreads();
}

// One block per row; see Side.solve_rows for what is solved.
extern "C" __global__ void __launch_bounds__(SOLVERS, SOLVING) solve(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, const T* weights,
    const T* current, const double* gram_matrix, const double* pull, double rest, T* solutions,
    A* changes, A* reach, double* row_values) {
    alignas(16) __shared__ A columns[TILE][PADDED];
    alignas(16) __shared__ A diagonal_tile[AREA];
    alignas(16) __shared__ A inverses[PADDED], diagonal[PADDED], y[PADDED], away_y[PADDED];
    alignas(16) __shared__ A x[PADDED], away[PADDED], before[PADDED], room[SOLVERS / 32];
    const int me = threadIdx.x;
    const Int i = first_row + blockIdx.x;
    const int first = firsts[i];
    if (CUT && me == 0) reach[i] = A(-1);
    if (first == firsts[i + 1] && DENSE == 0.0) {
        for (int q = me; q < SIZE; q += SOLVERS) solutions[i * SIZE + q] = T(0);
        if (me == 0) row_values[i] = 0.0;
        return;
    }
    const bool working = me < TILES, some = first < firsts[i + 1];
    int down = 0, right = 0;
    if (working) {
        // By columns of tiles, the last first: those that are at work longest share a warp.
        int from_last = 0, rest_of = me;
        while (rest_of > from_last) rest_of -= ++from_last;
        right = ACROSS - 1 - from_last;
        down = right + rest_of;
    }
    const int number = down * (down + 1) / 2 + right;
    const A* sums = partial + (first - first_chunk) * PARTIAL;
    A tile[AREA];
#pragma unroll
    for (int k = 0; k < AREA; k++) tile[k] = working && some ? sums[k * TILES + number] : A(0);
    A b = A(0), square = A(0), moved = A(0), pulled_to = A(0);
    if (me < PADDED) before[me] = current && me < SIZE ? A(current[i * SIZE + me]) : A(0);
    __syncthreads();
    if (me < SIZE) {
        b = some ? sums[RIGHT + me] : A(0);
        if (DENSE != 0.0) {
            for (int p = 0; p < SIZE; p++) moved += A(gram_matrix[p * SIZE + me]) * before[p];
            pulled_to = A(pull[me]);
            b -= A(DENSE) * (moved + pulled_to);
            square = A(DENSE) * before[me] * (moved + A(2) * pulled_to);
        }
    }
    if (DENSE != 0.0 && working) {
#pragma unroll
        for (int r = 0; r < TILE; r++)
#pragma unroll
            for (int c = 0; c < TILE; c++) {
                int p = down * TILE + r, q = right * TILE + c;
                if (p < SIZE && q < SIZE) tile[r * TILE + c] += A(DENSE * gram_matrix[p * SIZE + q]);
            }
    }
    if (working && down == right) {
#pragma unroll
        for (int r = 0; r < TILE; r++) diagonal[down * TILE + r] = tile[r * TILE + r];
    }
    __syncthreads();
    const A trace = add_block(me < SIZE ? diagonal[me] : A(0), room);
    const A least = A(fmax(double(trace) * DAMPING, LEAST));
    A damping = A(0), away_b = A(0);
    if (me < SIZE) {
        A weight = weights[i * SIZE + me];
        damping = weight < least ? least - weight : A(0);
        diagonal[me] += weight + damping;
        b -= weight * before[me];
        square += weight * before[me] * before[me];
        away_b = damping * before[me];
    }
    __syncthreads();
    if (working && down == right) {
#pragma unroll
        for (int r = 0; r < TILE; r++) tile[r * TILE + r] = diagonal[down * TILE + r];
    }
    if (me < PADDED) {
        y[me] = b;
        away_y[me] = away_b;
        if (me >= SIZE) inverses[me] = A(0);
    }
    __syncthreads();
    const bool damped = QUADRATIC && add_block(damping, room) > A(0);
    // Elimination, eight columns at a time.  Columns stay as they were when their turn came: L D.
    for (int block = 0; block < ACROSS; block++) {
        const int corner = block * TILE;
        if (working && down == block && right == block) {
            A own[TILE];
            read_sums(y + corner, own);
#pragma unroll
            for (int c = 0; c < TILE; c++) {
                const A inverse = corner + c < SIZE ? inverse_of(tile[c * TILE + c]) : A(0);
                inverses[corner + c] = inverse;
#pragma unroll
                for (int r = c + 1; r < TILE; r++) {
                    const A share = tile[r * TILE + c] * inverse;
#pragma unroll
                    for (int t = c + 1; t <= r; t++) tile[r * TILE + t] -= share * tile[t * TILE + c];
                    own[r] -= share * own[c];
                    if (damped) away_y[corner + r] -= share * away_y[corner + c];
                    diagonal_tile[r * TILE + c] = tile[r * TILE + c];
                }
            }
#pragma unroll
            for (int c = 0; c < TILE; c++) y[corner + c] = own[c];
        }
        __syncthreads();
        if (working && right == block && down > block) {
#pragma unroll
            for (int c = 0; c < TILE; c++) {
                const A inverse = inverses[corner + c];
#pragma unroll
                for (int r = 0; r < TILE; r++) columns[c][down * TILE + r] = tile[r * TILE + c];
#pragma unroll
                for (int t = c + 1; t < TILE; t++) {
                    const A share = diagonal_tile[t * TILE + c] * inverse;
#pragma unroll
                    for (int r = 0; r < TILE; r++) tile[r * TILE + t] -= share * tile[r * TILE + c];
                }
            }
        }
        __syncthreads();
        if (working && right > block) {
#pragma unroll 2
            for (int c = 0; c < TILE; c++) {
                A p[TILE], q[TILE];
                const A inverse = inverses[corner + c];
                read_sums(columns[c] + down * TILE, p);
                read_sums(columns[c] + right * TILE, q);
#pragma unroll
                for (int r = 0; r < TILE; r++) q[r] *= inverse;
#pragma unroll
                for (int r = 0; r < TILE; r++)
#pragma unroll
                    for (int t = 0; t < TILE; t++) tile[r * TILE + t] -= p[r] * q[t];
            }
        }
        if (me >= corner + TILE && me < SIZE) {
            A less = A(0), away_less = A(0);
#pragma unroll
            for (int c = 0; c < TILE; c++) {
                const A share = columns[c][me] * inverses[corner + c];
                less += share * y[corner + c];
                if (damped) away_less += share * away_y[corner + c];
            }
            y[me] -= less;
            if (damped) away_y[me] -= away_less;
        }
        __syncthreads();
    }
    b = me < PADDED ? y[me] : A(0);
    away_b = me < PADDED ? away_y[me] : A(0);
    const A part = me < SIZE ? b * inverses[me] : A(0);
    square = add_block(square, room);
    double after = double(square) - double(add_block(part * b, room));
    const A pulled = damped ? add_block(part * away_b, room) : A(0);
    const double loss = some ? double(sums[LOSS]) : 0.0;
    go_back(tile, working, down, right, inverses, y, x);
    if (damped) go_back(tile, working, down, right, inverses, away_y, away);
    A change = me < SIZE ? x[me] : A(0), drawn = damped && me < SIZE ? away[me] : A(0);
    if (QUADRATIC) {
        const double dense_rest = DENSE * rest;
        after += 2.0 * loss + dense_rest;
        if (damped) {
            const double from = double(square) + 2.0 * loss + dense_rest;
            A old = me < SIZE ? before[me] : A(0);
            double shortest = after + double(pulled);
            after -= double(add_block(damping * change * change, room));
            shortest -= double(add_block(damping * (old + change - drawn) * (change - drawn), room));
            if (!(shortest > from)) {
                after = shortest;
                change -= drawn;
            }
        }
        if (me == 0) row_values[i] = 0.5 * after;
    } else if (me == 0) {
        row_values[i] = loss;
    }
    if (me < SIZE) solutions[i * SIZE + me] = T(before[me] + change);
    if (CUT) {
        const A length = add_block(change * change, room);
        if (length * sums[MOST] > A(FULL_STEP * FULL_STEP)) {
            if (me == 0) reach[i] = A(0);
            if (me < SIZE) changes[i * SIZE + me] = change;
        }
    }
}
#endif

// The sums of products of each row, as out[a][b][row].  Chunks are added already.
extern "C" __global__ void unpack(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, double* out) {
    Int at = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= rows * SIZE * (SIZE + 1) / 2) return;
    Int row = at % rows, k = at / rows;
    int a = 0, first = firsts[first_row + row];
    while ((a + 1) * (a + 2) / 2 <= k) a++;
    const int b = int(k) - a * (a + 1) / 2, down = a / TILE, right = b / TILE;
    double sum = 0.0;
    if (first < firsts[first_row + row + 1])
        sum = partial[(first - first_chunk) * PARTIAL + (a % TILE * TILE + b % TILE) * TILES +
                      down * (down + 1) / 2 + right];
    out[(Int(a) * SIZE + b) * rows + row] = sum;
}
