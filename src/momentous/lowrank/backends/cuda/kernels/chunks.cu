// Sums over the chunks of a row.

// Add the chunks of a row, in double precision, into its first; for the rows that have several.
extern "C" __global__ void add_chunks(
    Int first_chunk, const int* rows, const int* firsts, A* partial) {
    const int row = rows[blockIdx.x], first = firsts[row], last = firsts[row + 1];
    for (int at = blockIdx.y * blockDim.x + threadIdx.x; at < PARTIAL; at += gridDim.y * blockDim.x) {
        double sum = 0.0;
        A most = A(0);
        for (int chunk = first; chunk < last; chunk++) {
            A part = partial[(chunk - first_chunk) * PARTIAL + at];
            sum += part;
            most = larger(most, part);
        }
        partial[(first - first_chunk) * PARTIAL + at] = at == MOST ? most : A(sum);
    }
}
