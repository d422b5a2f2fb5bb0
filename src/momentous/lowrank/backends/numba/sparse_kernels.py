"""Products with a sparse matrix that has a number for each entry, and with two factors at them."""

from __future__ import annotations

import numpy as np

from momentous.io.types import AnyArray
from momentous.lowrank.backends.numba.compiler import compiled_kernel


@compiled_kernel("contract", "reassoc")
def predict_entries(
    starts: AnyArray,
    others: AnyArray,
    left: AnyArray,
    right: AnyArray,
    first: int,
    last: int,
    out: AnyArray,
) -> None:
    """``left_i . right_j`` for the entries of the rows first to last - 1."""
    for i in range(first, last):
        for e in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            j, total = np.uint32(others[e]), 0.0
            for q in range(left.shape[1]):
                total += left[i, q] * right[j, q]
            out[e] = total


@compiled_kernel("contract", "reassoc")
def multiply_entries(
    starts: AnyArray,
    others: AnyArray,
    data: AnyArray,
    v: AnyArray,
    first: int,
    last: int,
    out: AnyArray,
) -> None:
    """The rows first to last - 1 of the sparse matrix times v, four columns at a time."""
    width = v.shape[1]
    for i in range(first, last):
        # Unsigned indices need no look at their sign: 2.5 to 5 times faster.
        entries, q = range(np.uint64(starts[i]), np.uint64(starts[i + 1])), 0
        while q + 4 <= width:
            t0 = t1 = t2 = t3 = 0.0
            for e in entries:
                x, j = data[e], np.uint32(others[e])
                t0 += x * v[j, q]
                t1 += x * v[j, q + 1]
                t2 += x * v[j, q + 2]
                t3 += x * v[j, q + 3]
            out[i, q], out[i, q + 1], out[i, q + 2], out[i, q + 3] = t0, t1, t2, t3
            q += 4
        while q < width:
            total = 0.0
            for e in entries:
                total += data[e] * v[np.uint32(others[e]), q]
            out[i, q] = total
            q += 1
