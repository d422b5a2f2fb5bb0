"""Half a sweep by conjugate gradients, and its parts for ranks: the kernels that call a loss.

This file is a template like `entry_kernels`: `kernels_for` loads it once per loss.  Rows do not
depend on each other, so the result is the same, to the bit, for any number of threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.conjugate import least_curvature
from momentous.lowrank.backends.numba.compiler import kernel_of, kernels_for
from momentous.lowrank.backends.numba.row_passes import (
    BLOCK,
    CHUNK,
    add_block,
    add_block_dots,
    add_products,
)
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.losses import Loss, Squared

LOSS: type[Loss] = globals().get("LOSS", Squared)
SINGLE, DOUBLE = least_curvature(np.float32), least_curvature(np.float64)
UNIT, CUT, DENSE = LOSS.unit_curvature, LOSS.self_concordant, float(LOSS.dense_weight)

compiled_kernel = kernel_of(LOSS)
weigh, newton_cut = kernels_for(LOSS).weigh, kernels_for(LOSS).newton_cut


@compiled_kernel()
def slope_of_row(
    with_value: bool,
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    begin: int,
    end: int,
    u: Floats,
    parameters: tuple[float, ...],
    z: Matrix,
    slopes: Matrix,
    part: Floats,
    curvatures: Floats,
    side: Matrix,
) -> tuple[float, float]:
    """Add what the entries from begin to end - 1 say at u to ``side``; returns the sums of their
    losses and of their curvatures, which are also kept, unless all of them are 1."""
    loss, curved = 0.0, 0.0
    for chunk in range(begin, end, CHUNK):
        stop = min(chunk + CHUNK, end)
        count = stop - chunk
        z[:], slopes[:], part[:] = 0.0, 0.0, 0.0
        if offsets.size:
            for k in range(count):
                z[k] = offsets[others[chunk + k]]
        for k in range(chunk, stop, BLOCK):
            add_block_dots(features, others, k, end, u, z, k - chunk)
        loss += weigh(count, values, chunk, z, slopes, with_value, parameters)
        for k in range(chunk, stop, BLOCK):
            add_block(features, others, k, end, slopes, k - chunk, part)
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
    steps: int,
    squares: Matrix,
    aligned: Floats,
    with_value: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    lengths: Matrix,
    offsets: Floats,
    gram: Matrix,
    pull: Matrix,
    rest_of_all: float,
    current: Floats,
    weights: Floats,
    first: int,
    last: int,
    parameters: tuple[float, ...],
    solutions: Floats,
    row_values: Matrix,
) -> None:
    """So many steps of conjugate gradients for the rows first to last - 1; ``aligned`` is for the
    vectors of the passes, like features."""
    size, width = weights.shape[1], features.shape[1]
    longest = 0
    for i in range(first, last):
        longest = max(longest, starts[i + 1] - starts[i])
    curvatures = np.empty(1 if UNIT else longest, features.dtype)
    z, slopes, moves = np.zeros(CHUNK), np.zeros(CHUNK), np.zeros(BLOCK)
    least = SINGLE if features.itemsize == 4 else DOUBLE
    narrow, part = aligned[0], aligned[1]
    x, rest, scaled = np.zeros(width), np.zeros(width), np.zeros(width)
    direction, turned, diagonal = np.zeros(width), np.zeros(width), np.zeros(width)
    for q in range(width):
        diagonal[q] = np.inf  # of what fills up the registers
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end and DENSE == 0.0:
            continue
        for q in range(size):
            narrow[q] = current[i, q]
        rest[:], x[:] = 0.0, 0.0
        loss, curved = slope_of_row(
            with_value, others, values, features, offsets, begin, end, narrow, parameters, z,
            slopes, part, curvatures, rest,
        )  # fmt: skip
        for q in range(size):
            diagonal[q] = curved * squares[q] + weights[i, q]
        if DENSE != 0.0:
            value = DENSE * rest_of_all
            turned[:] = 0.0
            add_gram(gram, narrow, turned)
            for q in range(size):
                rest[q] -= turned[q] + DENSE * pull[q]
                value += narrow[q] * (turned[q] + 2.0 * DENSE * pull[q])
                diagonal[q] += DENSE * gram[q, q]
            loss += 0.5 * value
        for q in range(size):
            rest[q] -= weights[i, q] * narrow[q]
            if not diagonal[q] > 0.0:
                diagonal[q] = np.inf
        product = precondition(diagonal, rest, scaled)
        for q in range(width):  # a loop: numba is seconds slower to compile slices of arrays
            direction[q] = scaled[q]
        square = product  # d'Md, with M the preconditioner
        for step in range(steps):
            turned[:] = 0.0
            for q in range(width):
                narrow[q] = direction[q]
            add_products(
                features, others, begin, end, curvatures, not UNIT, narrow, moves, part, turned
            )
            if DENSE != 0.0:
                add_gram(gram, direction, turned)
            for q in range(size):
                turned[q] += weights[i, q] * direction[q]
            curvature = inner(direction, turned)
            if not curvature > least * square:
                break
            length = product / curvature
            for q in range(width):
                x[q] += length * direction[q]
            if step + 1 == steps:
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
            cut = newton_cut(x, others, features, lengths, begin, end)
        for q in range(size):
            solutions[i, q] = current[i, q] + cut * x[q]


@compiled_kernel()
def slope_rows(
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    current: Floats,
    first: int,
    last: int,
    aligned: Floats,
    parameters: tuple[float, ...],
    curvatures: Floats,
    downwards: Matrix,
    curved: Matrix,
    losses: Matrix,
) -> None:
    """The first part of `improve_rows` alone, with the curvatures of all entries."""
    size, u, part = current.shape[1], aligned[0], aligned[1]
    z, slopes, side = np.zeros(CHUNK), np.zeros(CHUNK), np.zeros(features.shape[1])
    for i in range(first, last):
        for q in range(size):
            u[q] = current[i, q]
        side[:] = 0.0
        losses[i], curved[i] = slope_of_row(
            True, others, values, features, offsets, starts[i], starts[i + 1], u, parameters, z,
            slopes, part, curvatures[0 if UNIT else starts[i] :], side,
        )  # fmt: skip
        for q in range(size):
            downwards[i, q] = side[q]


@compiled_kernel()
def multiply_rows(
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    features: Floats,
    curvatures: Floats,
    directions: Floats,
    first: int,
    last: int,
    aligned: Floats,
    products: Matrix,
) -> None:
    """``sum_j c_ij (d_i . f_j) f_j`` for the rows first to last - 1."""
    size, direction, part = directions.shape[1], aligned[0], aligned[1]
    moves, turned = np.zeros(BLOCK), np.zeros(features.shape[1])
    for i in range(first, last):
        for q in range(size):
            direction[q] = directions[i, q]
        turned[:] = 0.0
        add_products(
            features, others, starts[i], starts[i + 1], curvatures[0 if UNIT else starts[i] :],
            not UNIT, direction, moves, part, turned,
        )  # fmt: skip
        for q in range(size):
            products[i, q] = turned[q]
