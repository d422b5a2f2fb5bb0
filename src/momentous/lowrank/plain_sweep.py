"""Half a sweep in NumPy and SciPy: the best parameters of every row for a fixed other side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import find_loss
from momentous.lowrank.plain import products

Matrix = NDArray[np.float64]

BLOCK = 1 << 22  # numbers in the normal equations that are held at a time
# The least penalty of a change, relative to the trace of the row's system: enough to solve it when
# entries do not determine it, too little to be seen when they do.
DAMPING = 1e-10
# The same where the trace is 0, or next to it: the right-hand side is so, too, and any system that
# can be solved will do.  Traces of factors in single precision, if not 0, are far above it.
LEAST = 1e-200
# Curvatures of the logistic loss below this count as this: more is on the safe side.
FLATTEST = 1e-8
# Newton's step lowers the loss where no prediction moves by more than the R with e^R - R - 1 = R^2.
FULL_STEP = 1.79


class HalfStep(NamedTuple):
    """What is asked for; see `RowSolver`."""

    groups: Compressed
    weights: Floats
    features: Floats
    offsets: Floats | None  # None: zeros
    current: Floats | None  # None: zeros
    curved: bool  # is it the logistic loss?
    telling: bool


def solve_plainly(asked: HalfStep, threads: int) -> tuple[Floats, float]:
    """The rows and what they tell, by blocks of rows, in one thread."""
    groups, weights, features, offsets, current, curved, _ = asked
    rows, size = weights.shape
    F = features.astype(np.float64, copy=False)
    squares = (F[:, :, None] * F[:, None, :]).reshape(-1, size * size)  # f_j f_j', one a row
    solutions, told = np.zeros((rows, size), features.dtype), 0.0
    length = max(1, BLOCK // size**2)
    for first in range(0, rows, length):
        part = slice(first, min(first + length, rows))
        starts = groups.starts[first : part.stop + 1]
        entries, counts = slice(starts[0], starts[-1]), np.diff(starts)
        others, owners = groups.others[entries], np.repeat(np.arange(counts.size), counts)
        before = np.zeros((counts.size, size)) if current is None else current[part].astype(float)
        before[counts == 0] = 0.0
        z = products(before, F, owners, others)
        z += 0.0 if offsets is None else offsets[others]
        total, slopes = find_loss("logistic" if curved else "squared").evaluate(
            z, groups.values[entries].astype(np.float64)
        )
        sizes = np.abs(slopes)
        curvatures = np.maximum(sizes * (1.0 - sizes), FLATTEST) if curved else np.ones_like(z)
        seen = scipy.sparse.csr_array(
            (curvatures, others, starts - starts[0]), shape=(counts.size, len(F))
        )
        systems = (seen @ squares).reshape(-1, size, size)
        seen.data = -slopes
        penalty = weights[part].astype(np.float64)
        b = seen @ F - penalty * before
        damping = add_penalty(systems, penalty)
        change = _solved(systems, b)
        told += total
        if curved:
            moves = np.abs(products(change, F, owners, others))
            reach = np.zeros(counts.size)
            np.maximum.at(reach, owners, moves)
            far = reach > FULL_STEP
            change[far] *= (np.log1p(reach[far]) / reach[far])[:, None]
        else:
            # To the shortest row, unless that would raise the sum; if so, the shortest change.
            whole = change - _solved(systems, damping * before)
            gains, safe = (
                np.sum(d * (b + damping * (d + start)), axis=1)
                for d, start in ((whole, before), (change, 0.0))
            )
            raised = gains < 0.0
            change = np.where(raised[:, None], change, whole)
            told += 0.5 * float(np.sum(penalty * np.square(before)))
            told -= 0.5 * float(np.sum(np.where(raised, safe, gains)))
        solutions[part] = before + change
    return solutions, float(told)


def add_penalty(systems: Matrix, penalty: Matrix) -> Matrix:
    """Returns the damping: what the penalty lacks for rounding to leave the systems regular."""
    diagonal = np.arange(penalty.shape[1])
    trace = np.trace(systems, axis1=1, axis2=2)[:, None]
    damping: Matrix = np.maximum(np.maximum(DAMPING * trace, LEAST) - penalty, 0.0)
    systems[:, diagonal, diagonal] += penalty + damping
    return damping


def _solved(systems: Matrix, sides: Matrix) -> Matrix:
    return np.asarray(np.linalg.solve(systems, sides[:, :, None])[:, :, 0], np.float64)
