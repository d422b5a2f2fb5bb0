"""Half a sweep in parts: the sums over a row's entries, which can be added up over many ranks.

What the entries say about a row are the lower triangle of ``sum_j c f_j f_j'``, row by row, and
``-sum_j s f_j``, with s and c the slopes and curvatures of the loss: one line of numbers per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse

from momentous.io.types import AnyArray, Integers, Matrix
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.factors import products
from momentous.lowrank.losses import Loss
from momentous.lowrank.losses.base import Triple

BLOCK = 1 << 21  # numbers in the features' products that are held at a time
# The least penalty of a change, relative to the trace of the row's system: enough to solve it when
# entries do not determine it, too little to be seen when they do.
DAMPING = 1e-10
# The same where the trace is 0, or next to it: the right-hand side is so, too, and any system that
# can be solved will do.  Traces of factors in single precision, if not 0, are far above it.
LEAST = 1e-200


def numbers_per_row(size: int) -> int:
    """The length of a line, for so many parameters per row."""
    return size * (size + 1) // 2 + size


class Block(NamedTuple):
    """Entries one after another, of whole rows or of parts of them."""

    rows: slice[int, int]
    entries: slice[int, int]
    starts: Integers  # of each of the rows
    others: Integers
    owners: Integers  # the rows of the entries

    def predictions(self, left: Floats, right: Floats) -> Matrix:
        """``left_i . right_j``, in double precision."""
        F, G = (side.astype(np.float64, copy=False) for side in (left, right))
        return np.asarray(products(F, G, self.owners, self.others), np.float64)

    def matrix(self, data: Floats, width: int) -> scipy.sparse.csr_array:
        """The rows of the sparse matrix with these numbers."""
        return scipy.sparse.csr_array(
            (data, self.others, self.starts), shape=(len(self.starts) - 1, width)
        )


def blocks(
    groups: Compressed, numbers: int, first: int = 0, last: int | None = None
) -> Iterator[Block]:
    """The entries of the rows first to last - 1, as many at a time as have `BLOCK` numbers."""
    starts, last = groups.starts, groups.starts.size - 1 if last is None else last
    end, length = int(starts[last]), max(1, BLOCK // max(1, numbers))
    for start in range(int(starts[first]), end, length):
        stop = min(start + length, end)
        low = int(np.searchsorted(starts, start, side="right")) - 1
        high = int(np.searchsorted(starts, stop, side="left"))
        own = np.clip(starts[low : high + 1], start, stop) - start
        owners = np.repeat(np.arange(low, high), np.diff(own))
        yield Block(slice(low, high), slice(start, stop), own, groups.others[start:stop], owners)


def partner_sums(groups: Compressed, numbers: Floats) -> Matrix:
    """For every row the sum of its partners' numbers, times the weights of its entries."""
    out = np.zeros((groups.starts.size - 1, numbers.shape[1]))
    for block in blocks(groups, numbers.shape[1]):
        values = groups.values[block.entries]
        data = np.ones(len(values)) if values.ndim == 1 else values[:, 1].astype(np.float64)
        out[block.rows] += block.matrix(data, len(numbers)) @ numbers
    return out


def evaluate(
    block: Block, groups: Compressed, loss: Loss, features: Floats, offsets: Floats | None,
    current: Floats | None,
) -> Triple:  # fmt: skip
    """Values, slopes and curvatures of the losses of a block, for a half sweep from ``current``."""
    z = np.zeros(len(block.owners))
    if offsets is not None:
        z += offsets[block.others]
    if current is not None:
        z += block.predictions(current, features)
    return loss.entries(z, groups.values[block.entries].astype(np.float64))


class DensePart(NamedTuple):
    """What the sum of ``weight z^2 / 2`` over all pairs adds to the systems of rows."""

    weight: float
    gram: Matrix  # F'F, with F the features of all others
    pull: Matrix  # F'o, with o their offsets
    rest: float  # o'o

    @classmethod
    def of(cls, loss: Loss, features: Floats, offsets: Floats | None) -> DensePart | None:
        """None for a loss that has none."""
        if not loss.dense_weight:
            return None
        F = features.astype(np.float64, copy=False)
        o = np.zeros(len(F)) if offsets is None else offsets.astype(np.float64)
        return cls(loss.dense_weight, F.T @ F, F.T @ o, float(o @ o))

    def add_to_lines(self, lines: Matrix, before: Matrix) -> float:
        """To systems and right-hand sides; returns its value before the step."""
        size = len(self.gram)
        lines[:, :-size] += self.weight * self.gram[np.tril_indices(size)]
        return self.add_to_sides(lines[:, -size:], before)

    def add_to_sides(self, b: Matrix, before: Matrix) -> float:
        """To right-hand sides alone."""
        moved = before @ self.gram
        b -= self.weight * (moved + self.pull)
        value = np.sum(before * (moved + 2.0 * self.pull)) + len(before) * self.rest
        return 0.5 * self.weight * float(value)


def solve_lines(
    lines: Floats, penalty: Matrix, before: Matrix, *, quadratic: bool
) -> tuple[Matrix, float]:
    """The changes of rows from their sums, and for a quadratic loss what the least sum is, less the
    loss before."""
    size = penalty.shape[1]
    p, q = np.tril_indices(size)
    systems = np.empty((len(lines), size, size))
    systems[:, p, q] = systems[:, q, p] = lines[:, : p.size]
    b = lines[:, p.size :] - penalty * before
    change, least = solve_systems(systems, b, penalty, before, shortest=quadratic)
    return change, float(least.sum())


def furthest_moves(groups: Compressed, features: Floats, changes: Floats) -> AnyArray:
    """For every row the largest |d_i . f_j| of its entries; 0 without any."""
    counts = np.diff(groups.starts)
    owners = np.repeat(np.arange(counts.size), counts)
    moves = np.abs(products(changes, features.astype(changes.dtype), owners, groups.others))
    reach = np.zeros(counts.size)
    np.maximum.at(reach, owners, moves)
    return reach


def solve_systems(
    systems: Matrix, b: Matrix, penalty: Matrix, before: Matrix, *, shortest: bool
) -> tuple[Matrix, Matrix]:
    """The changes of rows, given their systems without a penalty and their right-hand sides with
    it, and what a quadratic loss and its penalty add up to then, less the loss before.

    ``shortest``: to the shortest row, unless that would raise the sum; if so, the shortest change.
    Arrays may be CuPy's, which NumPy's functions pass on.
    """
    diagonal = np.arange(penalty.shape[1])
    trace = np.trace(systems, axis1=1, axis2=2)[:, None]
    # What the penalty lacks for rounding to leave the systems regular.
    damping = np.maximum(np.maximum(DAMPING * trace, LEAST) - penalty, 0.0)
    systems[:, diagonal, diagonal] += penalty + damping
    found = np.linalg.solve(systems, np.stack([b, damping * before], axis=2))
    change, away = found[:, :, 0], found[:, :, 1]
    if not shortest:
        return change, 0.0 * b[:, 0]
    whole = change - away
    gains, safe = (
        np.sum(d * (b + damping * (d + start)), axis=1)
        for d, start in ((whole, before), (change, 0.0))
    )
    raised = gains < 0.0
    least = np.sum(penalty * np.square(before), axis=1) - np.where(raised, safe, gains)
    return np.where(raised[:, None], change, whole), 0.5 * least
