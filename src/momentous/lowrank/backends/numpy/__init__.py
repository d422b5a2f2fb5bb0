"""The backend in NumPy and SciPy alone: no compiler needed, one thread, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from momentous.io.types import Matrix
from momentous.lowrank.backends.base import DAMPING, FULL_STEP, LEAST, Backend, RowStep, Side
from momentous.lowrank.backends.sums import DensePart
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.factors import products
from momentous.lowrank.losses import Loss

BLOCK = 1 << 17  # entries worked on at a time: the temporaries take this times the rank
SYSTEMS = 1 << 22  # numbers in the normal equations that are held at a time


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return NumpySide(groups, loss)


class NumpySide(Side):
    """Every block is made of whole groups, so what is needed beside the factors and the entries
    does not grow with the number of entries."""

    threads = 1

    def __init__(self, groups: Compressed, loss: Loss):
        self.groups, self.loss = groups, loss

    # --- value and gradient -----------------------------------------------------------------------

    def value(self, left: Floats, right: Floats) -> float:
        return sum(self._block(left, right, first, last)[0] for first, last in self._ranges())

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        total = 0.0
        for first, last in self._ranges():
            value, slopes = self._block(left, right, first, last)
            slopes *= slopes.dtype.type(scale)
            own[first:last] += slopes @ right
            far += slopes.T @ left[first:last]
            total += value
        return total

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges of groups with about `BLOCK` entries; a longer group is a block of its own."""
        starts = self.groups.starts
        first, count = 0, starts.size - 1
        while first < count:
            last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
            last = min(max(last, first + 1), count)
            yield first, last
            first = last

    def _block(
        self, left: Floats, right: Floats, first: int, last: int
    ) -> tuple[float, scipy.sparse.csr_array]:
        """The losses of the groups first to last - 1, summed; their slopes as a sparse matrix."""
        starts = self.groups.starts[first : last + 1]
        entries = slice(starts[0], starts[-1])
        others = self.groups.others[entries]
        rows = np.repeat(np.arange(first, last), np.diff(starts))
        z = np.einsum("ij,ij->i", left[rows], right[others])
        values, slopes, _ = self.loss.entries(z, self.groups.values[entries])
        slopes = np.asarray(slopes, z.dtype)
        shape = (last - first, right.shape[0])
        matrix = scipy.sparse.csr_array((slopes, others, starts - starts[0]), shape=shape)
        return float(np.sum(values, dtype=np.float64)), matrix

    # --- half sweeps ------------------------------------------------------------------------------

    def solve_rows(self, step: RowStep) -> tuple[Floats, float]:
        groups, loss = self.groups, self.loss
        rows, size = step.weights.shape
        F = step.features.astype(np.float64, copy=False)
        o = np.zeros(len(F)) if step.offsets is None else step.offsets.astype(np.float64)
        squares = (F[:, :, None] * F[:, None, :]).reshape(-1, size * size)  # one f_j f_j' per row
        dense = DensePart.of(loss, step.features, step.offsets)
        solutions, total = np.zeros((rows, size), step.features.dtype), 0.0
        length = max(1, SYSTEMS // size**2)
        for first in range(0, rows, length):
            part = slice(first, min(first + length, rows))
            starts = groups.starts[first : part.stop + 1]
            entries, counts = slice(starts[0], starts[-1]), np.diff(starts)
            others, owners = groups.others[entries], np.repeat(np.arange(counts.size), counts)
            before = np.zeros((counts.size, size))
            if step.current is not None:
                before += step.current[part]
            if dense is None:
                before[counts == 0] = 0.0
            z = products(before, F, owners, others) + o[others]
            values, slopes, curvatures = loss.entries(z, groups.values[entries].astype(np.float64))
            seen = scipy.sparse.csr_array(
                (np.full(z.shape, curvatures), others, starts - starts[0]),
                shape=(counts.size, len(F)),
            )
            systems = (seen @ squares).reshape(-1, size, size)
            seen.data = -slopes
            penalty = step.weights[part].astype(np.float64)
            b = seen @ F - penalty * before
            total += float(np.sum(values))
            if dense is not None:
                systems += dense.weight * dense.gram
                total += dense.add_to_sides(b, before)
            change, value = solve_systems(systems, b, penalty, before, shortest=loss.quadratic)
            if loss.quadratic:
                total += value
            elif loss.self_concordant:
                moves = np.abs(products(change, F, owners, others))
                reach = np.zeros(counts.size)
                np.maximum.at(reach, owners, moves)
                far = reach > FULL_STEP
                change[far] *= (np.log1p(reach[far]) / reach[far])[:, None]
            solutions[part] = before + change
        return solutions, total


def solve_systems(
    systems: Matrix, b: Matrix, penalty: Matrix, before: Matrix, *, shortest: bool
) -> tuple[Matrix, float]:
    """The changes of rows, given their systems without a penalty and their right-hand sides with
    it, and what a quadratic loss and its penalty add up to then, less the loss before.

    ``shortest``: to the shortest row, unless that would raise the sum; if so, the shortest change.
    """
    damping = add_penalty(systems, penalty)
    change = _solve(systems, b)
    if not shortest:
        return change, 0.0
    whole = change - _solve(systems, damping * before)
    gains, safe = (
        np.sum(d * (b + damping * (d + start)), axis=1)
        for d, start in ((whole, before), (change, 0.0))
    )
    raised = gains < 0.0
    value = np.sum(penalty * np.square(before)) - np.sum(np.where(raised, safe, gains))
    return np.where(raised[:, None], change, whole), 0.5 * float(value)


def add_penalty(systems: Matrix, penalty: Matrix) -> Matrix:
    """Returns the damping: what the penalty lacks for rounding to leave the systems regular."""
    diagonal = np.arange(penalty.shape[1])
    trace = np.trace(systems, axis1=1, axis2=2)[:, None]
    damping: Matrix = np.maximum(np.maximum(DAMPING * trace, LEAST) - penalty, 0.0)
    systems[:, diagonal, diagonal] += penalty + damping
    return damping


def _solve(systems: Matrix, sides: Matrix) -> Matrix:
    return np.asarray(np.linalg.solve(systems, sides[:, :, None])[:, :, 0], np.float64)
