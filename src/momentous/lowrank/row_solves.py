"""Ridge regressions for all rows at once: the half step of a sweep with a penalty for every row."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.objective import _threads
from momentous.lowrank.ratings import Compressed, Floats

# Rows whose systems the plain form holds at a time.
BLOCK = 4096
# The penalty in place of none, relative to the trace: with fewer entries than parameters the system
# would be singular, and this picks a short solution.
DAMPING = 1e-10


class RowSolver:
    """For every row i the p_i that minimises ``sum_j (p.f_j - t_ij)^2 + weights_i . p^2``.

    Rows are independent and their sums are taken in one order: the outcome does not depend on the
    number of threads.  Sums are in double precision.  A row without entries gets zeros.

    Parameters
    ----------
    groups : Compressed
        The entries by row; their values are not looked at.
    weights : array, (rows, parameters)
    threads : int, optional
        By default as many as this process may use.
    compiled : bool, optional
        By numba; by default where it is installed.
    """

    def __init__(
        self,
        groups: Compressed,
        weights: Floats,
        threads: int | None = None,
        compiled: bool | None = None,
    ):
        self.groups, self.weights, self.threads = groups, weights, _threads(threads)
        if compiled is None:
            compiled = find_spec("numba") is not None
        self._solve = (
            import_module("momentous.lowrank.row_kernels").solve_compiled
            if compiled
            else solve_plainly
        )

    def __call__(self, features: Floats, targets: Floats) -> tuple[Floats, float]:
        """The solutions, and the sum over rows of p_i . b_i with b_i = sum_j t_ij f_j."""
        groups = Compressed(self.groups.starts, self.groups.others, targets)
        solutions = np.zeros((groups.starts.size - 1, features.shape[1]), features.dtype)
        explained = np.zeros(len(solutions))
        self._solve(groups, features, self.weights, solutions, explained, self.threads)
        return solutions, float(explained.sum())


def solve_plainly(
    groups: Compressed,
    features: Floats,
    weights: Floats,
    solutions: Floats,
    explained: NDArray[np.float64],
    threads: int,
) -> None:
    """Row by row for the systems, block by block for their solutions; in one thread."""
    width, counts = features.shape[1], np.diff(groups.starts)
    diagonal = np.arange(width)
    for begin in range(0, len(solutions), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(solutions)))
        rows = rows[counts[rows] > 0]
        systems, sides = np.empty((rows.size, width, width)), np.empty((rows.size, width))
        for k, i in enumerate(rows):
            entries = slice(groups.starts[i], groups.starts[i + 1])
            f = features[groups.others[entries]].astype(np.float64, copy=False)
            systems[k], sides[k] = f.T @ f, groups.values[entries] @ f
        damping = DAMPING * np.trace(systems, axis1=1, axis2=2)
        mine = weights[rows]
        systems[:, diagonal, diagonal] += np.where(mine > 0.0, mine, damping[:, None])
        found = np.linalg.solve(systems, sides[:, :, None])[:, :, 0]
        solutions[rows] = found
        explained[rows] = np.einsum("ij,ij->i", found, sides)
