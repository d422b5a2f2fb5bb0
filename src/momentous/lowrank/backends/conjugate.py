"""Half a sweep by conjugate gradients: a few steps for every row from where it is.

A row's system ``A = sum_j c f_j f_j' + diag(w)`` is never formed: a step multiplies it with one
vector, ``sum_j c (d . f_j) f_j + w d``, which is a pass over the row's entries.  So the sums of
several ranks can be added up with as many numbers as the row has parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from momentous.io.types import Matrix
from momentous.lowrank.data.ratings import Floats


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


def conjugate_change(
    downwards: Matrix,
    diagonal: Matrix,
    product: Callable[[Matrix], Matrix],
    steps: int,
    dtype: DTypeLike,
) -> Matrix:
    """The change of every row by so many steps towards the solution of ``A x = downwards``.

    ``product`` multiplies the directions, one per row, with the rows' own matrices; ``diagonal``
    are the diagonals of preconditioners; ``dtype`` is that of the features.  Each row's step is the
    best one in the space of its directions so far, ``x'Ax = x.downwards``, so its parabola never
    rises.  A row whose direction has hardly any curvature is left as it is (`least_curvature`).
    """
    inverse = np.where(diagonal > 0.0, 1.0 / np.where(diagonal > 0.0, diagonal, 1.0), 0.0)
    x: Matrix = np.zeros_like(downwards)
    rest = downwards.copy()
    scaled = inverse * rest
    direction, size = scaled, np.sum(rest * scaled, axis=1)
    going, square = size > 0.0, size  # square is d'Md, with M the preconditioner
    for step in range(steps):
        turned = product(direction)
        curvature = np.sum(direction * turned, axis=1)
        going = going & (curvature > least_curvature(dtype) * square)
        length = np.where(going, size / np.where(going, curvature, 1.0), 0.0)[:, None]
        x += length * direction
        if step + 1 < steps:
            rest -= length * turned
            scaled = inverse * rest
            before, size = size, np.sum(rest * scaled, axis=1)
            share = np.where(before > 0.0, size / np.where(before > 0.0, before, 1.0), 0.0)
            direction = scaled + share[:, None] * direction
            square = size + share * share * square
    return x
