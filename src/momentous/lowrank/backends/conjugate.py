"""Half a sweep by conjugate gradients: a few steps for every row from where it is.

A row's system ``A = sum_j c f_j f_j' + diag(w)`` is never formed: a step multiplies it with one
vector, ``sum_j c (d . f_j) f_j + w d``, which is a pass over the row's entries.  So the sums of
several ranks can be added up with as many numbers as the row has parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike

from momentous.io.types import Integers, Matrix
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.factors import products
from momentous.lowrank.losses import Loss

BLOCK = 1 << 21  # numbers of gathered features that are held at a time


def least_curvature(dtype: DTypeLike) -> float:
    """Steps of a row end where a direction is curved by less than this, relative to the
    preconditioner.

    Where entries and penalty do not determine a row, its rest becomes rounding that they do not
    see: a step along that would be as long as rounding has it.
    """
    return max(1e-10, 8.0 * float(np.finfo(dtype).eps))


class RowSlopes(NamedTuple):
    """What the entries say about each row where it is, with s and c the loss's slopes and
    curvatures; the penalty and a dense part are not in it."""

    downwards: Matrix  # -sum_j s f_j, (rows, parameters), in double precision
    curved: Matrix  # sum_j c, (rows,)
    curvatures: Floats | None  # c, one per entry; None: all of them are 1
    losses: float  # the sum over all entries


def row_slopes(
    groups: Compressed,
    loss: Loss,
    features: Floats,
    offsets: Floats | None,
    current: Floats | None,
) -> RowSlopes:
    """In NumPy, block by block."""
    F = features.astype(np.float64, copy=False)
    o = np.zeros(len(F)) if offsets is None else offsets.astype(np.float64)
    rows, size, total = groups.starts.size - 1, F.shape[1], 0.0
    downwards, curved = np.zeros((rows, size)), np.zeros(rows)
    curvatures = None if loss.unit_curvature else np.empty(groups.others.size, features.dtype)
    for first, last, entries, owners in _blocks(groups, size):
        others, z = groups.others[entries], o[groups.others[entries]]
        if current is not None:
            part = current[first:last].astype(np.float64, copy=False)
            z = z + products(part, F, owners, others)
        values, slopes, bends = loss.entries(z, groups.values[entries].astype(np.float64))
        total += float(np.sum(values))
        if curvatures is not None:
            curvatures[entries] = bends
        seen = _sparse(groups, first, last, -slopes, len(F))
        downwards[first:last] = seen @ F
        weights = np.full(z.shape, bends, np.float64)
        curved[first:last] = np.bincount(owners, weights, last - first)
    return RowSlopes(downwards, curved, curvatures, total)


def row_products(
    groups: Compressed, features: Floats, curvatures: Floats | None, directions: Floats
) -> Matrix:
    """``sum_j c (d_i . f_j) f_j`` for every row i, in NumPy, block by block."""
    F, D = (array.astype(np.float64, copy=False) for array in (features, directions))
    out = np.empty(D.shape)
    for first, last, entries, owners in _blocks(groups, F.shape[1]):
        moves = products(D[first:last], F, owners, groups.others[entries])
        if curvatures is not None:
            moves *= curvatures[entries]
        out[first:last] = _sparse(groups, first, last, moves, len(F)) @ F
    return out


def conjugate_change(
    downwards: Matrix,
    diagonal: Matrix,
    product: Callable[[Matrix], Matrix],
    steps: int,
    dtype: DTypeLike,
    xp: ModuleType = np,
) -> Matrix:
    """The change of every row by so many steps towards the solution of ``A x = downwards``.

    ``product`` multiplies the directions, one per row, with the rows' own matrices; ``diagonal``
    are the diagonals of preconditioners; ``dtype`` is that of the features.  Each row's step is the
    best one in the space of its directions so far, ``x'Ax = x.downwards``, so its parabola never
    rises.  A row whose direction has hardly any curvature is left as it is (`least_curvature`).
    """
    inverse = xp.where(diagonal > 0.0, 1.0 / xp.where(diagonal > 0.0, diagonal, 1.0), 0.0)
    x: Matrix = xp.zeros_like(downwards)
    rest = downwards.copy()
    scaled = inverse * rest
    direction, size = scaled, xp.sum(rest * scaled, axis=1)
    going, square = size > 0.0, size  # square is d'Md, with M the preconditioner
    for step in range(steps):
        turned = product(direction)
        curvature = xp.sum(direction * turned, axis=1)
        going = going & (curvature > least_curvature(dtype) * square)
        length = xp.where(going, size / xp.where(going, curvature, 1.0), 0.0)[:, None]
        x += length * direction
        if step + 1 < steps:
            rest -= length * turned
            scaled = inverse * rest
            before, size = size, xp.sum(rest * scaled, axis=1)
            share = xp.where(before > 0.0, size / xp.where(before > 0.0, before, 1.0), 0.0)
            direction = scaled + share[:, None] * direction
            square = size + share * share * square
    return x


def _blocks(groups: Compressed, size: int) -> Iterator[tuple[int, int, slice[int, int], Integers]]:
    """Ranges of whole rows of about so many entries: first, last, their entries, their owners."""
    starts, first, rows = groups.starts, 0, groups.starts.size - 1
    length = max(1, BLOCK // size)
    while first < rows:
        last = int(np.searchsorted(starts, starts[first] + length, side="right")) - 1
        last = min(max(last, first + 1), rows)
        counts = np.diff(starts[first : last + 1])
        entries = slice(int(starts[first]), int(starts[last]))
        yield first, last, entries, np.repeat(np.arange(counts.size), counts)
        first = last


def _sparse(
    groups: Compressed, first: int, last: int, data: Floats, width: int
) -> scipy.sparse.csr_array:
    starts = groups.starts[first : last + 1]
    others = groups.others[starts[0] : starts[-1]]
    return scipy.sparse.csr_array((data, others, starts - starts[0]), shape=(last - first, width))
