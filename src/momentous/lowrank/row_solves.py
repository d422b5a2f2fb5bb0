"""Ridge regressions for all rows at once: the half step of a sweep with a penalty for every row."""

from __future__ import annotations

import numpy as np

from momentous.lowrank.losses import find_loss
from momentous.lowrank.objective import _threads, compiled_part
from momentous.lowrank.plain import products
from momentous.lowrank.ratings import Compressed, Floats

# Rows whose systems the plain form holds at a time.
BLOCK = 4096
# The penalty in place of none, relative to the trace: with fewer entries than parameters the system
# would be singular, and this picks a short solution.
DAMPING = 1e-10


class RowSolver:
    """For every row i the p_i that minimises ``sum_j (p.f_j + o_j - t_ij)^2 + weights_i . p^2``.

    For the squared loss the targets t are the values.  For the logistic loss, l'' <= 1/4: at the
    current z the parabola ``(z - t)^2 / 8`` with ``t = z + 4 y sigmoid(-y z)`` touches the loss and
    lies above it, so that the step lowers the sum of the losses and of ``weights_i . p^2 / 8``.

    Rows are independent and their sums are taken in one order: the outcome does not depend on the
    number of threads.  Sums are in double precision.  A row without entries gets zeros.

    Parameters
    ----------
    groups : Compressed
        The entries by row, with values or labels.
    weights : array, (rows, parameters)
    threads : int, optional
        By default as many as this process may use.
    compiled : bool, optional
        By numba; by default where it is installed and works.
    """

    def __init__(
        self,
        groups: Compressed,
        weights: Floats,
        threads: int | None = None,
        compiled: bool | None = None,
    ):
        self.groups, self.weights, self.threads = groups, weights, _threads(threads)
        kernels = compiled_part("row_kernels", compiled)
        self._solve = solve_plainly if kernels is None else kernels.solve_compiled

    def __call__(
        self, features: Floats, offsets: Floats, current: Floats | None = None
    ) -> tuple[Floats, float]:
        """The solutions, and what the step tells about the objective.

        Parameters
        ----------
        features : array, (others, parameters)
            f.
        offsets : array, (others,)
            o, what is predicted without the row's parameters.
        current : array, (rows, parameters), optional
            The parameters now, for the logistic loss.

        Returns
        -------
        solutions : array, (rows, parameters)
        told : float
            Half the least value of the sum above; with ``current`` the sum of the losses there.
        """
        solutions, told = self._solve(
            self.groups, features, offsets, current, self.weights, self.threads
        )
        return solutions, told


def solve_plainly(
    groups: Compressed,
    features: Floats,
    offsets: Floats,
    current: Floats | None,
    weights: Floats,
    threads: int,
) -> tuple[Floats, float]:
    """Row by row for the systems, block by block for their solutions; in one thread."""
    offset = offsets[groups.others]
    targets, told = groups.values - offset, 0.0
    if current is not None:
        rows = np.repeat(np.arange(len(weights)), np.diff(groups.starts))
        z = products(current, features, rows, groups.others) + offset
        told, slopes = find_loss("logistic").evaluate(z, groups.values)
        targets = z - 4.0 * slopes - offset
    solutions, explained = np.zeros(weights.shape, features.dtype), 0.0
    counts, diagonal = np.diff(groups.starts), np.arange(weights.shape[1])
    for begin in range(0, len(weights), BLOCK):
        rows = np.arange(begin, min(begin + BLOCK, len(weights)))
        rows = rows[counts[rows] > 0]
        systems = np.empty((rows.size, diagonal.size, diagonal.size))
        sides = np.empty((rows.size, diagonal.size))
        for k, i in enumerate(rows):
            entries = slice(groups.starts[i], groups.starts[i + 1])
            f = features[groups.others[entries]].astype(np.float64, copy=False)
            systems[k], sides[k] = f.T @ f, targets[entries] @ f
        damping = DAMPING * np.trace(systems, axis1=1, axis2=2)
        damping[damping == 0.0] = 1.0  # all features are 0, and so is the solution
        mine = weights[rows]
        systems[:, diagonal, diagonal] += np.where(mine > 0.0, mine, damping[:, None])
        found = np.linalg.solve(systems, sides[:, :, None])[:, :, 0]
        solutions[rows] = found
        explained += float(np.sum(found * sides))
    if current is None:
        told = 0.5 * (float(np.sum(np.square(targets, dtype=np.float64))) - explained)
    return solutions, told
