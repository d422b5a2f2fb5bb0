"""Products with a sparse matrix that has a number for each entry, and with two factors at them."""

from __future__ import annotations

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
        for e in range(starts[i], starts[i + 1]):
            j, total = others[e], 0.0
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
    """The rows first to last - 1 of the sparse matrix times v."""
    for i in range(first, last):
        if v.shape[1] == 1:
            total = 0.0
            for e in range(starts[i], starts[i + 1]):
                total += data[e] * v[others[e], 0]
            out[i, 0] = total
        else:
            for e in range(starts[i], starts[i + 1]):
                for q in range(v.shape[1]):
                    out[i, q] += data[e] * v[others[e], q]
