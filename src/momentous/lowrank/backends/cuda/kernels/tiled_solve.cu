// A block per row solves its system, one tile of 8 x 8 per thread, in registers.

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
    const A* sums = partial + (first - first_chunk) * PARTIAL;
    A tile[AREA];
#pragma unroll
    for (int r = 0; r < TILE; r++) {
#pragma unroll
        for (int c = 0; c < TILE; c++) tile[r * TILE + c] = A(0);
        if (working && some)
            read_sums(sums + row_begin(down * TILE + r) + right * TILE, tile + r * TILE);
    }
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
