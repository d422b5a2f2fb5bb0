// Half a sweep for many parameters per row: the system in tiles of 8 x 8, one tile per thread.
//
// One block per chunk of a row copies the features of K entries at a time to shared memory and adds
// their products to the tiles of the lower triangle, which stay in registers.  Where there are fewer
// tiles than threads, G threads share a tile and take turns at the entries.

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
// Of a chunk: the rows of the lower triangle, each as long as its last tile, the right-hand side, loss,
// largest |f|^2.
constexpr int PARTIAL = TILES * AREA + (SIZE + 2 + 3) / 4 * 4;
constexpr int RIGHT = TILES * AREA, LOSS = RIGHT + SIZE, MOST = LOSS + 1;

// Where a piece of an entry's features is in shared memory.  Threads of a warp read the same piece of
// neighbouring tiles at a time: without this order, from the same banks.
constexpr int PIECES = TILE / V;  // of a tile
__device__ inline int place_of(int piece) {
    return piece < ACROSS * PIECES ? piece ^ (piece / 8 % PIECES) : piece;
}

__device__ inline int place_of_number(int q) { return place_of(q / V) * V + q % V; }

// The numbers of a tile, whose first piece is at this place.
__device__ inline void read_eight(const Vec* from, int first, A* to) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        Vec piece = from[first ^ p];
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

__host__ __device__ constexpr int row_begin(int row) {
    return row / TILE * (row / TILE + 1) / 2 * AREA + row % TILE * (row / TILE + 1) * TILE;
}

// Row and column of a tile of the lower triangle.
__device__ inline void find_tile(int tile, int& down, int& right) {
    down = 0;
    while ((down + 1) * (down + 2) / 2 <= tile) down++;
    right = tile - down * (down + 1) / 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) gram(
    Int first, Int chunks, const Int* begins, const int* owners, const int* others, const X* values,
    const Vec* features, const T* current, const double* parameters, A* partial) {
    __shared__ Vec staged[2][K * QS];
    alignas(16) __shared__ A pulls[K];
    __shared__ A row[PADDED], curvatures[K];
    __shared__ A losses[K], squares[K];
    // Neighbouring lanes have neighbouring tiles, and the same turn.
    constexpr int LANE_TILES = 32 / G;
    const int me = threadIdx.x, turn = me % 32 / LANE_TILES;
    const int own = me / 32 * LANE_TILES + me % LANE_TILES, tile = blockIdx.y * BLOCK_TILES + own;
    const bool working = own < BLOCK_TILES && tile < TILES;
    const Int chunk = first + blockIdx.x, begin = begins[chunk], end = begins[chunk + 1];
    const int rounds = int((end - begin + K - 1) / K);
    int down = 0, right = 0;
    if (working) find_tile(tile, down, right);
    const int down_place = place_of(down * PIECES), right_place = place_of(right * PIECES);
    if (current)
        for (int q = me; q < SIZE; q += THREADS) row[q] = current[Int(owners[chunk]) * SIZE + q];
    int next[TASKS];
    // Written so that one address does for all pieces of a thread, where that is so.
    constexpr bool EVEN = THREADS % Q == 0;
    auto entry_of = [&](int m) { return EVEN ? me / Q + m * (THREADS / Q) : (me + THREADS * m) / Q; };
    auto piece_of = [&](int m) { return EVEN ? me % Q : (me + THREADS * m) % Q; };
    auto look_up = [&](int round) {
#pragma unroll
        for (int m = 0; m < TASKS; m++) {
            Int k = begin + Int(K) * round + entry_of(m);
            next[m] = entry_of(m) < K && k < end ? others[k] : -1;
        }
    };
    auto stage = [&](int round) {
#pragma unroll
        for (int m = 0; m < TASKS; m++) {
            const int entry = entry_of(m), piece = piece_of(m), j = next[m];
            if (entry < K)
                copy_async(&staged[round & 1][entry * QS + place_of(piece)],
                           features + Int(j < 0 ? 0 : j) * Q + piece, j >= 0);
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
                for (int q = helper; q < SIZE; q += HELPERS) z += row[q] * A(f[place_of_number(q)]);
            if (CUT)
                for (int q = helper; q < SIZE; q += HELPERS) {
                    const A number = A(f[place_of_number(q)]);
                    square += number * number;
                }
#pragma unroll
            for (int half = HELPERS / 2; half; half /= 2) {
                z += __shfl_xor_sync(ALL, z, half);
                if (CUT) square += __shfl_xor_sync(ALL, square, half);
            }
            if (helper == 0) {
                Int at = begin + Int(K) * round + k;
                Entry e = {A(0), A(0), A(0)};
                if (OFFSET) z += A(f[OFFSET ? PADDED : 0]);
                if (at < end) e = entry(z, values[at], parameters);
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
                read_eight(staged[round & 1] + k * QS, down_place, a);
                read_eight(staged[round & 1] + k * QS, right_place, b);
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
                const int q = me + m * THREADS, at = place_of_number(q);
                if (q < SIZE)
#pragma unroll 2
                    for (int k = 0; k < K; k += TILE) {
                        A pull[TILE];
                        read_sums(pulls + k, pull);
#pragma unroll
                        for (int i = 0; i < TILE; i++)
                            right_side[m] += pull[i] * A(here[(k + i) * QS * V + at]);
                    }
            }
        }
    }
    A* out = partial + (chunk - first) * PARTIAL;
    // Each of the threads that share a tile keeps its share of the sums.
    share_sums<G / 2, AREA, LANE_TILES>(sums, turn);
    if (working) {
        find_tile(tile, down, right);  // again: registers are short in between
        constexpr int SHARE = AREA / G, N = SHARE < int(16 / sizeof(A)) ? 1 : 16 / sizeof(A);
#pragma unroll
        for (int i = 0; i < SHARE; i += N) {
            const int at = turn * SHARE + i;
            A* to = out + row_begin(down * TILE + at / TILE) + right * TILE + at % TILE;
            if (N > 1) {
                Sums piece;
#pragma unroll
                for (int k = 0; k < N; k++) piece.v[k] = sums[i + k];
                *(Sums*)to = piece;
            } else {
                *to = sums[i];
            }
        }
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

// The sums of products of each row, as out[a][b][row].  Chunks are added already.
extern "C" __global__ void unpack(
    Int first_row, Int rows, Int first_chunk, const int* firsts, const A* partial, double* out) {
    Int at = Int(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= rows * SIZE * (SIZE + 1) / 2) return;
    Int row = at % rows, k = at / rows;
    int a = 0, first = firsts[first_row + row];
    while ((a + 1) * (a + 2) / 2 <= k) a++;
    const int b = int(k) - a * (a + 1) / 2;
    double sum = 0.0;
    if (first < firsts[first_row + row + 1])
        sum = partial[(first - first_chunk) * PARTIAL + row_begin(a) + b];
    out[(Int(a) * SIZE + b) * rows + row] = sum;
}
