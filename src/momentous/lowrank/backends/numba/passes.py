"""Passes over the entries of one row: products of their features with a vector, and sums of them.

Entries are taken four at a time, so that their loops share what they read of the vector.  The
features are read where they lie, twice in a row, so from the fastest cache the second time; to
gather them once per row would take longer than a step of conjugate gradients.

Features, and vectors like them, are `in_whole_registers`.  This file needs numba, so is itself
imported only where it is used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.simd import add_multiple, load_row, store_row
from momentous.lowrank.data.ratings import Floats

FOUR = 4  # entries at a time
REGISTER_BYTES = 64  # of the longest registers that machines have, and of a line of the caches
CHUNK = 64  # entries between two additions to sums in double precision


class Entries(NamedTuple):
    """`Compressed` as kernels take it."""

    starts: NDArray[np.int64]
    others: NDArray[np.int32]
    values: Floats


class StepArrays(NamedTuple):
    """`RowStep` as kernels take it: an empty array where there are no offsets, and zeros where
    there are no current rows."""

    weights: Floats
    features: Floats
    offsets: Floats
    current: Floats
    with_value: bool


Four = tuple[int, int, int, int]
FourNumbers = tuple[float, float, float, float]


def in_whole_registers(features: Floats) -> Floats:
    """A copy whose rows, filled up with zeros, begin and end with lines of the caches: half of all
    reads would otherwise touch two.  One more row has zeros alone."""
    rows, size = features.shape
    numbers = REGISTER_BYTES // features.itemsize
    width = size + -size % numbers
    memory = np.zeros((rows + 1) * width + numbers, features.dtype)
    first = -memory.ctypes.data % REGISTER_BYTES // features.itemsize
    copy: Floats = memory[first : first + (rows + 1) * width].reshape(rows + 1, width)
    copy[:rows, :size] = features
    return copy


@compiled_kernel(inline=True)
def four_others(others: NDArray[np.int32], k: int, end: int, zeros: int) -> Four:
    """Those of the entries from k on; from ``end`` on the row of zeros."""
    return (
        others[k],
        others[k + 1] if k + 1 < end else zeros,
        others[k + 2] if k + 2 < end else zeros,
        others[k + 3] if k + 3 < end else zeros,
    )


@compiled_kernel("contract", "reassoc", inline=True)
def four_dots(features: Floats, others: Four, vector: Floats) -> FourNumbers:
    """Products with a vector."""
    i, j, k, m = others
    a = b = c = d = features.dtype.type(0.0)
    for q in range(features.shape[1]):
        number = vector[q]
        a += number * features[i, q]
        b += number * features[j, q]
        c += number * features[k, q]
        d += number * features[m, q]
    return a, b, c, d  # type: ignore[return-value]  # numbers of the features' type


@compiled_kernel("contract", "reassoc", inline=True)
def add_four(features: Floats, others: Four, factors: FourNumbers, out: Floats) -> None:
    """Add multiples of their features."""
    i, j, k, m = others
    number = features.dtype.type
    a, b, c, d = number(factors[0]), number(factors[1]), number(factors[2]), number(factors[3])
    for q in range(features.shape[1]):
        out[q] += a * features[i, q] + b * features[j, q] + c * features[k, q] + d * features[m, q]


@compiled_kernel()
def add_products(
    features: Floats, others: NDArray[np.int32], begin: int, end: int, curvatures: Floats,
    weighted: bool, direction: Floats, part: Floats, out: Matrix,
) -> None:  # fmt: skip
    """``out += sum_k c_k (direction . f_k) f_k`` for the entries from begin to end - 1; the first
    curvature is that of the first of them.  ``part`` is for its own use."""
    zeros = features.shape[0] - 1
    for chunk in range(begin, end, CHUNK):
        part[:] = 0.0
        for k in range(chunk, min(chunk + CHUNK, end), FOUR):
            four = four_others(others, k, end, zeros)
            a, b, c, d = four_dots(features, four, direction)
            if weighted:
                at, last = k - begin, end - 1 - begin
                a *= curvatures[at]
                b *= curvatures[min(at + 1, last)]
                c *= curvatures[min(at + 2, last)]
                d *= curvatures[min(at + 3, last)]
            add_four(features, four, (a, b, c, d), part)
        for q in range(out.size):
            out[q] += part[q]


@compiled_kernel()
def sum_partners(
    starts: NDArray[np.int64], others: NDArray[np.int32], weights: Floats, numbers: Floats,
    first: int, last: int, out: Matrix,
) -> None:  # fmt: skip
    """Add the numbers of the partners of the rows first to last - 1, times the weights of the
    entries, where there are any, to the rows of ``out``."""
    zeros, weighted, unit = numbers.shape[0] - 1, weights.size > 0, (1.0, 1.0, 1.0, 1.0)
    part = np.zeros(numbers.shape[1], numbers.dtype)
    for i in range(first, last):
        end = starts[i + 1]
        for chunk in range(starts[i], end, CHUNK):
            part[:] = 0.0
            for k in range(chunk, min(chunk + CHUNK, end), FOUR):
                four, factors = four_others(others, k, end, zeros), unit
                if weighted:
                    top = end - 1
                    factors = (
                        float(weights[k]),
                        float(weights[min(k + 1, top)]),
                        float(weights[min(k + 2, top)]),
                        float(weights[min(k + 3, top)]),
                    )
                add_four(numbers, four, factors, part)
            for q in range(out.shape[1]):
                out[i, q] += part[q]


# --- products with a sparse matrix that has a number for each entry -------------------------------


@compiled_kernel()
def multiply_entries(
    lanes: tuple[int, ...], entries: Entries, data: Matrix, v: Matrix, first: int, last: int,
    out: Matrix,
) -> None:  # fmt: skip
    """The rows first to last - 1 of the sparse matrix times v, as many columns at a time as there
    are lanes; ``out`` has zeros before."""
    starts, others, _ = entries
    width = v.shape[1]
    for i in range(first, last):
        for at in range(0, width, len(lanes)):
            # Two sums: each has to wait for its last product.
            sums = odd = load_row(lanes, out, i * width + at)
            for e in range(starts[i], starts[i + 1] - 1, 2):
                row = load_row(lanes, v, others[e] * width + at)
                sums = add_multiple(sums, data[e], row)
                row = load_row(lanes, v, others[e + 1] * width + at)
                odd = add_multiple(odd, data[e + 1], row)
            if (starts[i + 1] - starts[i]) % 2:
                e = starts[i + 1] - 1
                sums = add_multiple(sums, data[e], load_row(lanes, v, others[e] * width + at))
            store_row(out, i * width + at, add_multiple(sums, 1.0, odd))
