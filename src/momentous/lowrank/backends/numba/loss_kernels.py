"""The kernels that call a loss: the pass over all entries, half a sweep, and its parts for ranks.

This file is a template: `kernels_for` loads it once per loss, with ``LOSS`` set; imported as it is,
its kernels are those of the squared loss.  What depends on the loss's kind is decided when a
kernel is compiled.

The pass takes three short steps per block of entries of one group: all inner products into a
buffer, the loss and its slopes on the buffer (a loop that the compiler vectorises), the slopes into
both gradients.  The rows of the right factor are still in the cache when they are read for the
second time.

Rows of half a sweep do not depend on each other, so the result is the same, to the bit, for any
number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import Matrix
from momentous.lowrank.backends.base import FULL_STEP
from momentous.lowrank.backends.conjugate import least_curvature
from momentous.lowrank.backends.numba.compiler import compiled_entry, kernel_of
from momentous.lowrank.backends.numba.passes import (
    CHUNK,
    FOUR,
    Entries,
    StepArrays,
    add_four,
    add_products,
    four_dots,
    four_others,
)
from momentous.lowrank.backends.numba.simd import add_multiple, dot_rows, load_row, store_row
from momentous.lowrank.backends.numba.systems import (
    COLUMNS,
    PIECE,
    add_side,
    add_sums,
    factorise,
    gather,
    scale_columns,
    solve,
    solve_system,
    well_determined,
    whole_tiles,
)
from momentous.lowrank.backends.sums import LEAST, DensePart
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.losses import Loss, Squared

LOSS: type[Loss] = globals().get("LOSS", Squared)
QUADRATIC, UNIT, CUT = LOSS.quadratic, LOSS.unit_curvature, LOSS.self_concordant
DENSE = float(LOSS.dense_weight)
BLOCK = 512  # entries in the buffer: these and their rows of the right factor fit the fast caches
# Of the systems of rows with fewer entries than parameters, at most: with smaller weights their
# relative errors, this over that of rounding, would matter.
LARGEST_CONDITION = 1e6
SINGLE, DOUBLE = least_curvature(np.float32), least_curvature(np.float64)

Parameters = tuple[float, ...]
entry = compiled_entry(LOSS)
compiled_kernel = kernel_of(LOSS)


# --- value and gradient ---------------------------------------------------------------------------


@compiled_kernel("contract", "reassoc")
def evaluate(z: Floats, values: Floats, count: int, scale: float, parameters: Parameters) -> float:
    """Replace predictions by `scale` times the slopes; return the sum of the losses."""
    total = 0.0
    for k in range(count):
        value, slope, _ = entry(np.float64(z[k]), values, k, parameters)
        z[k] = scale * slope
        total += value
    return total


@compiled_kernel()
def add_groups(
    lanes: tuple[int, ...],
    left: Floats,
    right: Floats,
    entries: Entries,
    first: int,
    last: int,
    scale: float,
    left_gradient: Floats,
    right_gradient: Floats,
    parameters: Parameters,
) -> float:
    """Sum of the losses of the groups first to last - 1; scale 0 means that no gradient is made.

    A row is taken in strips of as many numbers as there are lanes.  With j the other index and s
    the slope of an entry: ``left_gradient[i] += s right[j]``, ``right_gradient[j] += s left[i]``.
    """
    starts, others, values = entries
    width, strip = left.shape[1], len(lanes)
    z, total = np.empty(BLOCK, left.dtype), 0.0
    for i in range(first, last):
        for begin in range(starts[i], starts[i + 1], BLOCK):
            count = min(BLOCK, starts[i + 1] - begin)
            u = load_row(lanes, left, i * width)
            for k in range(count):
                z[k] = dot_rows(u, load_row(lanes, right, others[begin + k] * width))
            for at in range(strip, width, strip):
                u = load_row(lanes, left, i * width + at)
                for k in range(count):
                    z[k] += dot_rows(u, load_row(lanes, right, others[begin + k] * width + at))
            total += evaluate(z, values[begin : begin + count], count, scale, parameters)
            if scale == 0.0:
                continue
            for at in range(0, width, strip):
                own = i * width + at
                u, sums = load_row(lanes, left, own), load_row(lanes, left_gradient, own)
                for k in range(count):
                    far = others[begin + k] * width + at
                    sums = add_multiple(sums, z[k], load_row(lanes, right, far))
                    before = load_row(lanes, right_gradient, far)
                    store_row(right_gradient, far, add_multiple(before, z[k], u))
                store_row(left_gradient, own, sums)
    return total


@compiled_kernel("contract", "reassoc")
def slope_entries(
    entries: Entries,
    left: Matrix,
    right: Matrix,
    first: int,
    last: int,
    parameters: Parameters,
    z: Matrix,
    slopes: Matrix,
    losses: Matrix,
) -> None:
    """What ``left_i . right_j`` predicts for the entries of the rows first to last - 1, the slopes
    there, downwards, and the sum of the losses of each row."""
    starts, others, values = entries
    for i in range(first, last):
        begin, end = np.uint64(starts[i]), np.uint64(starts[i + 1])
        # Unsigned indices need no look at their sign: 2.5 to 5 times faster.
        for k in range(begin, end):
            j, product = np.uint32(others[k]), 0.0
            for q in range(left.shape[1]):
                product += left[i, q] * right[j, q]
            z[k] = product
        total = 0.0
        for k in range(begin, end):
            value, slope, _ = entry(z[k], values, k, parameters)
            slopes[k] = -slope
            total += value
        losses[i] = total


# --- what half sweeps share -----------------------------------------------------------------------


@compiled_kernel("contract", "reassoc")
def weigh(
    count: int,
    values: Floats,
    begin: int,
    z: Matrix,
    slopes: Matrix,
    with_value: bool,
    parameters: Parameters,
) -> float:
    """The loss at the predictions z: its slopes, downwards, and in place of z its curvatures;
    returns the sum of the losses, where it is wanted."""
    total = 0.0
    if with_value:
        for k in range(count):
            value, slope, curvature = entry(z[k], values, begin + k, parameters)
            slopes[k], z[k] = -slope, curvature
            total += value
    else:  # which saves what only the value needs
        for k in range(count):
            _, slope, curvature = entry(z[k], values, begin + k, parameters)
            slopes[k], z[k] = -slope, curvature
    return total


@compiled_kernel("contract", "reassoc")
def add_dense(dense: DensePart, u: Floats, side: Matrix) -> float:
    """Add the descent direction of the sum over all pairs, and return its value at the row u."""
    value = dense.rest
    for q in range(dense.pull.size):
        moved = 0.0
        for p in range(dense.pull.size):
            moved += dense.gram[q, p] * u[p]
        side[q] -= DENSE * (moved + dense.pull[q])
        value += u[q] * (moved + 2.0 * dense.pull[q])
    return 0.5 * DENSE * value


@compiled_kernel("contract", "reassoc")
def newton_cut(
    x: Matrix, entries: Entries, features: Floats, lengths: Matrix, begin: int, end: int
) -> float:
    """How much of Newton's step x to take; ``lengths`` are the squares |f_j|^2."""
    most = square = reach = 0.0
    for k in range(begin, end):
        most = max(most, lengths[entries.others[k]])
    for q in range(x.size):
        square += x[q] * x[q]
    if square * most > FULL_STEP * FULL_STEP:
        for k in range(begin, end):
            j, move = entries.others[k], 0.0
            for q in range(features.shape[1]):
                move += x[q] * features[j, q]
            reach = max(reach, abs(move))
    return math.log(1.0 + reach) / reach if reach > FULL_STEP else 1.0


# --- half a sweep, exactly ------------------------------------------------------------------------


@compiled_kernel("contract")
def add_entries(
    entries: Entries,
    step: StepArrays,
    from_zero: bool,
    begin: int,
    end: int,
    u: Matrix,
    parameters: Parameters,
    T: Floats,
    S: Floats,
    room: Matrix,
    A: Matrix,
    side: Matrix,
) -> float:
    """Add the entries from begin to end - 1, at the row u, to its system and its right-hand side;
    returns the sum of their losses."""
    loss, z, slopes = 0.0, room[0], room[1]
    for piece in range(begin, end, PIECE):
        count = min(PIECE, end - piece)
        whole = gather(entries.others, piece, count, step.features, T)
        for k in range(whole):
            z[k] = slopes[k] = 0.0
        if step.offsets.size:
            for k in range(count):
                z[k] = step.offsets[entries.others[piece + k]]
        if not from_zero:
            for q in range(T.shape[0]):
                for k in range(whole):
                    z[k] += u[q] * T[q, k]
        wanted = step.with_value or QUADRATIC
        loss += weigh(count, entries.values, piece, z, slopes, wanted, parameters)
        add_side(whole, slopes, T, side)
        if UNIT:
            add_sums(whole, T, T, A)
        else:
            scale_columns(whole, z, T, S)
            add_sums(whole, S, T, A)
    return loss


@compiled_kernel("contract", "reassoc")
def solve_short_rows(
    entries: Entries,
    step: StepArrays,
    from_zero: bool,
    lengths: Matrix,
    base: int,
    first: int,
    last: int,
    parameters: Parameters,
    out: Floats,
    row_values: Matrix,
    done: NDArray[np.bool_],
) -> None:
    """`sum_rows` with ``solving``, for rows with fewer entries than parameters; says which.

    A row's system is one of its entries.  With F their features, H = R^2 their curvatures, s their
    slopes at the row u, downwards, and D the weights, the next row (of Newton's step) is

        ``(F'HF + D)^-1 F'(s + HFu) = D^-1 F'R (I + R F D^-1 F'R)^-1 R^-1 (s + HFu)``.

    Left to `sum_rows` are rows with too small a penalty for that.
    """
    features, others, size = step.features, entries.others, np.uint64(step.features.shape[1])
    F, G, B = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
    inverse_weights, u, y = np.zeros(size), np.zeros(size), np.zeros(size)
    z, slopes, side, x = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    inverses = np.zeros(size)
    # One loop with all in it, and unsigned indices: to call a function for each row, with all of
    # these arrays, takes ten times as long as a row with one entry.
    for i in range(np.uint64(first), np.uint64(last)):
        first_entry, end = entries.starts[i], entries.starts[i + np.uint64(1)]
        few = end - first_entry
        begin, count = np.uint64(first_entry), np.uint64(few)
        if count == 0 or count >= size:
            continue
        for q in range(size):
            inverse_weights[q] = 1.0 / step.weights[i, q]
        if not (QUADRATIC or from_zero):  # a quadratic loss has the same next row for every u
            for q in range(size):
                u[q] = step.current[i, q]
        for k in range(count):
            j, known = np.uint64(others[begin + k]), 0.0
            for q in range(size):
                F[k, q] = features[j, q]
            if not QUADRATIC:
                for q in range(size):
                    known += u[q] * F[k, q]
            side[k] = z[k] = known
            if step.offsets.size:
                z[k] += step.offsets[j]
        loss = weigh(few, entries.values, first_entry, z, slopes, step.with_value, parameters)
        condition = 1.0
        for k in range(count):
            root, square = 1.0, 0.0
            if not UNIT:
                root = math.sqrt(max(z[k], LEAST))
            side[k] = slopes[k] / root + root * side[k]
            for q in range(size):
                F[k, q] *= root
                G[k, q] = F[k, q] * inverse_weights[q]
                square += F[k, q] * G[k, q]
            condition += square
            B[k, k] = 1.0 + square
            for m in range(k):
                product = 0.0
                for q in range(size):
                    product += F[k, q] * G[m, q]
                B[k, m] = product
        if not condition < LARGEST_CONDITION:
            continue
        if count == 1:
            x[0] = side[0] / B[0, 0]
            least = side[0] * x[0]
        else:
            factorise(few, B, inverses)
            least = solve(few, B, inverses, side, x)
        for q in range(size):
            y[q] = 0.0
        for k in range(count):
            for q in range(size):
                y[q] += x[k] * G[k, q]
        done[i - np.uint64(first)], place = True, i - np.uint64(base)
        row_values[place] = 0.5 * least if QUADRATIC else loss
        if CUT:
            for q in range(size):
                y[q] -= u[q]
            share = newton_cut(y, entries, features, lengths, first_entry, end)
            for q in range(size):
                y[q] = u[q] + share * y[q]
        for q in range(size):
            out[place, q] = y[q]


@compiled_kernel()
def sum_rows(
    entries: Entries,
    step: StepArrays,
    from_zero: bool,
    dense: DensePart,
    lengths: Matrix,
    solving: bool,
    base: int,
    first: int,
    last: int,
    parameters: Parameters,
    out: Floats,
    row_values: Matrix,
) -> None:
    """Half a sweep for the rows first to last - 1, the first of ``out`` being the row ``base``:
    their solutions and what these say about the objective; without ``solving`` their sums, one line
    for each (see `lowrank.backends.sums`), and their losses.

    ``from_zero``: all that is in ``current`` is 0.
    """
    size = step.features.shape[1]
    width = whole_tiles(size)
    T, exact_T = np.zeros((width, COLUMNS), step.features.dtype), np.zeros((width, COLUMNS))
    S, exact_S = np.zeros_like(T), np.zeros_like(exact_T)
    A, room, rooms = np.empty((width, width)), np.zeros((2, PIECE)), np.zeros((4, width))
    u, side, x = np.zeros(width), np.zeros(width), np.zeros(width)
    done = np.zeros(last - first, np.bool_)
    if solving and DENSE == 0.0:
        solve_short_rows(
            entries, step, from_zero, lengths, base, first, last, parameters, out, row_values, done
        )
    for i in range(first, last):
        begin, end = entries.starts[i], entries.starts[i + 1]
        if done[i - first] or (begin == end and DENSE == 0.0):
            continue
        if not from_zero:
            for q in range(size):  # numba is seconds slower to compile slices of arrays
                u[q] = step.current[i, q]
        A[:], side[:] = 0.0, 0.0
        loss = add_entries(entries, step, from_zero, begin, end, u, parameters, T, S, room, A, side)
        if T.itemsize < 8 and not well_determined(size, step.weights[i], A):
            A[:], side[:] = 0.0, 0.0
            loss = add_entries(
                entries, step, from_zero, begin, end, u, parameters, exact_T, exact_S, room, A, side
            )
        if not solving:
            row_values[i - base], place = loss, 0
            for p in range(size):
                for q in range(p + 1):
                    out[i - base, place] = A[p, q]
                    place += 1
            for q in range(size):
                out[i - base, place + q] = side[q]
            continue
        if DENSE != 0.0:
            for p in range(size):
                for q in range(p + 1):
                    A[p, q] += DENSE * dense.gram[p, q]
            loss += add_dense(dense, u, side)
        value = solve_system(size, QUADRATIC, step.weights[i], u, loss, A, side, x, rooms)
        row_values[i - base], share = value, 1.0
        if CUT:
            share = newton_cut(x, entries, step.features, lengths, begin, end)
        for q in range(size):
            out[i - base, q] = u[q] + share * x[q]


# --- half a sweep by conjugate gradients ----------------------------------------------------------


@compiled_kernel()
def add_slopes(
    entries: Entries,
    step: StepArrays,
    begin: int,
    end: int,
    u: Floats,
    parameters: Parameters,
    room: Matrix,
    part: Floats,
    curvatures: Floats,
    side: Matrix,
) -> tuple[float, float]:
    """Add what the entries from begin to end - 1 say at u to ``side``; returns the sums of their
    losses and of their curvatures, which are also kept, unless all of them are 1."""
    features, others = step.features, entries.others
    loss, curved, z, slopes, zeros = 0.0, 0.0, room[0], room[1], len(features) - 1
    for chunk in range(begin, end, CHUNK):
        stop = min(chunk + CHUNK, end)
        count = stop - chunk
        slopes[:], part[:] = 0.0, 0.0
        for k in range(0, count, FOUR):
            z[k], z[k + 1], z[k + 2], z[k + 3] = four_dots(
                features, four_others(others, chunk + k, end, zeros), u
            )
        if step.offsets.size:
            for k in range(count):
                z[k] += step.offsets[others[chunk + k]]
        loss += weigh(count, entries.values, chunk, z, slopes, step.with_value, parameters)
        for k in range(0, count, FOUR):
            four = slopes[k], slopes[k + 1], slopes[k + 2], slopes[k + 3]
            add_four(features, four_others(others, chunk + k, end, zeros), four, part)
        for q in range(side.size):
            side[q] += part[q]
        if UNIT:
            curved += count
        else:
            for k in range(count):
                curvatures[chunk - begin + k] = z[k]
                curved += z[k]
    return loss, curved


@compiled_kernel("contract", "reassoc")
def precondition(diagonal: Matrix, rest: Matrix, scaled: Matrix) -> float:
    """The rest over the diagonal, and the product of both."""
    product = 0.0
    for q in range(rest.size):
        scaled[q] = rest[q] / diagonal[q]
        product += rest[q] * scaled[q]
    return product


@compiled_kernel("contract", "reassoc")
def inner(one: Matrix, other: Matrix) -> float:
    """Their product."""
    product = 0.0
    for q in range(one.size):
        product += one[q] * other[q]
    return product


@compiled_kernel("contract", "reassoc")
def add_gram(gram: Matrix, vector: Matrix, out: Matrix) -> None:
    """Add the product of the dense part's matrix with a vector."""
    for p in range(gram.shape[0]):
        factor = DENSE * vector[p]
        for q in range(gram.shape[1]):
            out[q] += factor * gram[p, q]


@compiled_kernel()
def improve_rows(
    entries: Entries,
    step: StepArrays,
    steps: int,
    squares: Matrix,
    dense: DensePart,
    lengths: Matrix,
    first: int,
    last: int,
    parameters: Parameters,
    solutions: Floats,
    row_values: Matrix,
) -> None:
    """So many steps of conjugate gradients for the rows first to last - 1."""
    features, current, weights = step.features, step.current, step.weights
    size, width = weights.shape[1], features.shape[1]
    longest = 0
    for i in range(first, last):
        longest = max(longest, entries.starts[i + 1] - entries.starts[i])
    curvatures = np.empty(1 if UNIT else longest, features.dtype)
    room, least = np.zeros((2, CHUNK)), SINGLE if features.itemsize == 4 else DOUBLE
    narrow, part = np.zeros(width, features.dtype), np.zeros(width, features.dtype)
    x, rest, scaled = np.zeros(width), np.zeros(width), np.zeros(width)
    direction, turned, diagonal = np.zeros(width), np.zeros(width), np.zeros(width)
    for q in range(width):
        diagonal[q] = np.inf  # of what fills up the registers
    for i in range(first, last):
        begin, end = entries.starts[i], entries.starts[i + 1]
        if begin == end and DENSE == 0.0:
            continue
        for q in range(size):
            narrow[q] = current[i, q]
        rest[:], x[:] = 0.0, 0.0
        loss, curved = add_slopes(
            entries, step, begin, end, narrow, parameters, room, part, curvatures, rest
        )
        if DENSE != 0.0:
            loss += add_dense(dense, narrow, rest)
        for q in range(size):
            diagonal[q] = curved * squares[q] + weights[i, q]
            if DENSE != 0.0:
                diagonal[q] += DENSE * dense.gram[q, q]
            rest[q] -= weights[i, q] * narrow[q]
            if not diagonal[q] > 0.0:
                diagonal[q] = np.inf
        product = precondition(diagonal, rest, scaled)
        for q in range(width):  # a loop: numba is seconds slower to compile slices of arrays
            direction[q] = scaled[q]
        square = product  # d'Md, with M the preconditioner
        for number in range(steps):
            turned[:] = 0.0
            for q in range(width):
                narrow[q] = direction[q]
            add_products(
                features, entries.others, begin, end, curvatures, not UNIT, narrow, part, turned
            )
            if DENSE != 0.0:
                add_gram(dense.gram, direction, turned)
            for q in range(size):
                turned[q] += weights[i, q] * direction[q]
            curvature = inner(direction, turned)
            if not curvature > least * square:
                break
            length = product / curvature
            for q in range(width):
                x[q] += length * direction[q]
            if number + 1 == steps:
                break
            for q in range(width):
                rest[q] -= length * turned[q]
            before = product
            product = precondition(diagonal, rest, scaled)
            if not product > 0.0:
                break
            share = product / before
            for q in range(width):
                direction[q] = scaled[q] + share * direction[q]
            square = product + share * share * square
        row_values[i], cut = loss, 1.0
        if CUT:
            cut = newton_cut(x, entries, features, lengths, begin, end)
        for q in range(size):
            solutions[i, q] = current[i, q] + cut * x[q]


@compiled_kernel()
def slope_rows(
    entries: Entries,
    step: StepArrays,
    first: int,
    last: int,
    parameters: Parameters,
    curvatures: Floats,
    downwards: Matrix,
    curved: Matrix,
    losses: Matrix,
) -> None:
    """The first part of `improve_rows` alone, with the curvatures of all entries."""
    size, width = step.current.shape[1], step.features.shape[1]
    u, part = np.zeros(width, step.features.dtype), np.zeros(width, step.features.dtype)
    room, side = np.zeros((2, CHUNK)), np.zeros(width)
    for i in range(first, last):
        begin, end = entries.starts[i], entries.starts[i + 1]
        for q in range(size):
            u[q] = step.current[i, q]
        side[:] = 0.0
        kept = curvatures[0 if UNIT else begin :]
        losses[i], curved[i] = add_slopes(
            entries, step, begin, end, u, parameters, room, part, kept, side
        )
        for q in range(size):
            downwards[i, q] = side[q]


@compiled_kernel()
def multiply_rows(
    entries: Entries,
    features: Floats,
    curvatures: Floats,
    directions: Floats,
    first: int,
    last: int,
    products: Matrix,
) -> None:
    """``sum_j c_ij (d_i . f_j) f_j`` for the rows first to last - 1."""
    size, width = directions.shape[1], features.shape[1]
    direction, part = np.zeros(width, features.dtype), np.zeros(width, features.dtype)
    turned = np.zeros(width)
    for i in range(first, last):
        begin, end = entries.starts[i], entries.starts[i + 1]
        for q in range(size):
            direction[q] = directions[i, q]
        turned[:] = 0.0
        kept = curvatures[0 if UNIT else begin :]
        add_products(features, entries.others, begin, end, kept, not UNIT, direction, part, turned)
        for q in range(size):
            products[i, q] = turned[q]
