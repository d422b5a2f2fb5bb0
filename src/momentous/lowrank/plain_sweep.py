"""Half a sweep in NumPy and SciPy: the least-squares solution for every row of a factor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.lowrank.losses import find_loss
from momentous.lowrank.ratings import Compressed, Floats

Matrix = NDArray[np.float64]

BLOCK = 1 << 22  # numbers in the normal equations that are held at a time
DEPENDENT = 1e-13  # a pivot or eigenvalue this small, relatively, counts as zero


class HalfStep(NamedTuple):
    """What half a sweep gives."""

    factor: Floats  # the solutions u, one a row
    explained: float  # sum of b.u, with b the right-hand sides: what is taken off the sum of t^2
    losses: float  # for the logistic loss their sum at the current factors, otherwise 0


def plain_half_step(
    side: Compressed, fixed: Floats, current: Floats | None, ridge: float
) -> HalfStep:
    """Minimise ``sum_j (u.v_j - t_ij)^2 + ridge |u|^2`` for every row i, j its entries.

    The targets t are the ratings, or, where a current factor is given, the labels y moved to
    z + 4 y sigmoid(-y z) with z = u_i.v_j: a parabola around them lies above the logistic loss.
    The sums are in double precision.  Of a singular system the shortest solution is taken.

    Parameters
    ----------
    side : Compressed
        The entries, grouped by the row of the factor that is wanted.
    fixed : array
        The other factor, v_j in row j.
    current : array or None
        What the wanted factor is now, for the logistic loss; None for the squared loss.
    ridge : float
    """
    rows, rank = side.starts.size - 1, fixed.shape[1]
    V = fixed.astype(np.float64, copy=False)
    squares = (V[:, :, None] * V[:, None, :]).reshape(-1, rank * rank)  # v_j v_j', one a row
    factor, explained, losses = np.empty((rows, rank), fixed.dtype), 0.0, 0.0
    for first in range(0, rows, max(1, BLOCK // rank**2)):
        last = min(first + max(1, BLOCK // rank**2), rows)
        starts = side.starts[first : last + 1]
        entries = slice(starts[0], starts[-1])
        others = side.others[entries]
        targets = side.values[entries].astype(np.float64)
        if current is not None:
            before = np.repeat(current[first:last], np.diff(starts), axis=0)
            z = np.einsum("kp,kp->k", before, V[others])
            loss, slopes = find_loss("logistic").evaluate(z, targets)
            losses += loss
            targets = z - 4.0 * slopes
        shape = (last - first, len(V))
        sparse = scipy.sparse.csr_array((targets, others, starts - starts[0]), shape=shape)
        b = sparse @ V
        sparse.data = np.ones_like(targets)
        solution = _solved((sparse @ squares).reshape(-1, rank, rank), b, ridge)
        explained += float(np.vdot(solution, b))
        factor[first:last] = solution
    return HalfStep(factor, explained, losses)


def _solved(systems: Matrix, b: Matrix, ridge: float) -> Matrix:
    if ridge:
        diagonal = np.arange(b.shape[1])
        systems[:, diagonal, diagonal] += ridge
        return np.asarray(np.linalg.solve(systems, b[:, :, None])[:, :, 0], np.float64)
    values, vectors = np.linalg.eigh(systems)
    kept = values > DEPENDENT * values[:, -1:]
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=kept)
    solution: Matrix = vectors @ (inverse[:, :, None] * (vectors.mT @ b[:, :, None]))
    return solution[:, :, 0]
