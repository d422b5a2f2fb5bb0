"""The backend compiled by numba: entries in parallel, rows as SIMD vectors.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType

import numpy as np

from momentous.io.optional import require
from momentous.io.types import AnyArray
from momentous.lowrank.backends.base import Backend, RowStep, Side
from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.conjugate import RowSlopes
from momentous.lowrank.backends.sums import DensePart, numbers_per_row
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss

require("numba", "app", "backend='numba'")

from momentous.lowrank.backends.numba.announce import announce_compilations  # noqa: E402
from momentous.lowrank.backends.numba.compiler import kernels_for, thread_pool  # noqa: E402
from momentous.lowrank.backends.numba.lanes import lanes_of  # noqa: E402
from momentous.lowrank.backends.numba.line_kernels import solve_lines  # noqa: E402
from momentous.lowrank.backends.numba.row_kernels import (  # noqa: E402
    block_rows,
    read_only,
    share_rows,
    system_in_strips,
)
from momentous.lowrank.backends.numba.row_passes import (  # noqa: E402
    aligned_zeros,
    in_whole_registers,
)
from momentous.lowrank.backends.numba.sparse_kernels import (  # noqa: E402
    multiply_entries,
    predict_entries,
)

announce_compilations()
NO_DENSE_PART = DensePart(0.0, np.empty((0, 0)), np.empty(0), 0.0)
FEWEST = 10_000  # entries that a second thread is worth


class NumbaBackend(Backend):
    """Compiled passes and row solves."""

    name = "numba"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return NumbaSide(groups, loss, threads)

    def solve_lines(
        self, lines: Floats, weights: Matrix, before: Matrix, *, quadratic: bool
    ) -> tuple[Matrix, float]:
        changes, values = np.zeros(before.shape), np.zeros(len(before))
        a, w, u = (read_only(each.astype(np.float64)) for each in (lines, weights, before))
        solve_lines(quadratic, a, w, u, 0, len(before), changes, values)
        return changes, float(values.sum())


def _offsets_and_current(step: RowStep, rows: int) -> tuple[AnyArray, AnyArray]:
    """As kernels take them: where there are none an empty array, and zeros."""
    shape, dtype = (rows, step.features.shape[1]), step.features.dtype
    offsets = np.empty(0, dtype) if step.offsets is None else step.offsets
    current = np.zeros(shape, dtype) if step.current is None else step.current
    return read_only(offsets), read_only(current)


class NumbaSide(Side):
    """Entries that threads share.

    Kernels are compiled once per loss and precision, and kept on disk.  One is not for all ranks:
    the pass over all entries has a version of its own for every width up to 16, which is up to 1.5
    times as fast as the one for all.

    In a pass each thread has a range of groups, of about equally many entries, and a gradient of
    the right factor of its own; these are added up in a fixed order.  So the same ratings and the
    same number of threads give the same bits every time; another number of threads gives other
    roundings.  Row solves give the same bits for any number.
    """

    def __init__(self, groups: Compressed, loss: Loss, threads: int):
        count = groups.others.size
        # To numba an array that can be written to is another type, and one is enough.
        self.groups = Compressed(
            read_only(groups.starts), read_only(groups.others), read_only(groups.values)
        )
        self.loss = loss
        self.threads = max(1, min(threads, count // FEWEST))
        shares = np.arange(1, self.threads) * (count / self.threads)
        cuts = [0, *np.searchsorted(groups.starts, shares), groups.starts.size - 1]
        self.ranges = [(int(a), int(b)) for a, b in pairwise(cuts)]

    def value(self, left: Floats, right: Floats) -> float:
        none = np.empty((0, left.shape[1]), left.dtype)
        return self._run(left, right, 0.0, none, [none] * self.threads)

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        # Fresh buffers, so that several callers may evaluate at the same time.
        others = [np.zeros_like(far) for _ in range(self.threads - 1)]
        total = self._run(left, right, scale, own, [far, *others])
        for part in others:
            far += part
        return total

    def _run(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: list[Floats]
    ) -> float:
        kernels, groups, parameters = (
            kernels_for(type(self.loss)),
            self.groups,
            self.loss.parameters,
        )
        lanes, left, right = lanes_of(left.shape[1]), read_only(left), read_only(right)

        def work(thread: int) -> float:
            first, last = self.ranges[thread]
            total: float = kernels.add_groups(
                lanes, left, right, groups.starts, groups.others, groups.values, first, last,
                scale, own, far[thread], parameters,
            )  # fmt: skip
            return total

        waiting = [thread_pool(self.threads).submit(work, k) for k in range(1, self.threads)]
        return sum((part.result() for part in waiting), work(0))

    def solve_rows(self, step: RowStep) -> tuple[Floats, float]:
        kernels, groups, loss = kernels_for(type(self.loss)), self.groups, self.loss
        rows, size = step.weights.shape
        dtype = step.features.dtype
        solutions, row_values = np.zeros((rows, size), dtype), np.zeros(rows)
        features = read_only(step.features)
        lengths = self._lengths(features)
        offsets, before = _offsets_and_current(step, rows)
        dense = DensePart.of(loss, features, step.offsets) or NO_DENSE_PART
        gram = system_in_strips(dense.gram) if loss.dense_weight else np.empty((0, 0, 0))
        weights, from_zero = read_only(step.weights), step.current is None

        def work(first: int, last: int) -> None:
            kernels.solve_rows(
                from_zero, step.with_value, groups.starts, groups.others, groups.values, features,
                lengths, offsets, gram, dense.pull, dense.rest, before, weights, first, last,
                loss.parameters, solutions, row_values,
            )  # fmt: skip

        share_rows(work, groups.starts, size, self.threads)
        return solutions, float(row_values.sum())

    def _lengths(self, features: Floats) -> Floats:
        """``|f_j|^2``, which bounds how far a step of a given length can move a prediction."""
        if not self.loss.self_concordant:
            return np.empty(0)
        lengths: Floats = np.einsum("jq,jq->j", features, features, dtype=np.float64)
        return lengths

    def improve_rows(self, step: RowStep, squares: Matrix, steps: int) -> tuple[Floats, float]:
        kernels, groups, loss = self._conjugate, self.groups, self.loss
        rows, size = step.weights.shape
        dtype = step.features.dtype
        solutions, row_values = np.zeros((rows, size), dtype), np.zeros(rows)
        features = read_only(in_whole_registers(step.features))
        width = features.shape[1]
        lengths = self._lengths(features)
        offsets, current = _offsets_and_current(step, rows)
        dense = DensePart.of(loss, features[:-1], step.offsets) or NO_DENSE_PART
        weights = read_only(step.weights)

        def work(first: int, last: int) -> None:
            kernels.improve_rows(
                steps, squares, aligned_zeros(2, width, dtype), step.with_value, groups.starts,
                groups.others, groups.values, features, lengths, offsets, dense.gram, dense.pull,
                dense.rest, current, weights, first, last, loss.parameters, solutions, row_values,
            )  # fmt: skip

        share_rows(work, groups.starts, steps, self.threads)
        return solutions, float(row_values.sum())

    def row_slopes(self, step: RowStep) -> RowSlopes:
        groups, unit = self.groups, self.loss.unit_curvature
        rows, size, dtype = groups.starts.size - 1, step.features.shape[1], step.features.dtype
        features = read_only(in_whole_registers(step.features))
        width = features.shape[1]
        downwards, curved, losses = np.zeros((rows, size)), np.zeros(rows), np.zeros(rows)
        curvatures = np.empty(1 if unit else groups.others.size, dtype)
        offsets, current = _offsets_and_current(step, rows)

        def work(first: int, last: int) -> None:
            self._conjugate.slope_rows(
                groups.starts, groups.others, groups.values, features, offsets,
                current, first, last, aligned_zeros(2, width, dtype),
                self.loss.parameters, curvatures, downwards, curved, losses,
            )  # fmt: skip

        share_rows(work, groups.starts, 1, self.threads)
        return RowSlopes(downwards, curved, None if unit else curvatures, float(losses.sum()))

    def row_products(
        self, features: Floats, curvatures: Floats | None, directions: Floats
    ) -> Matrix:
        groups, dtype = self.groups, features.dtype
        products = np.zeros(directions.shape)
        features = read_only(in_whole_registers(features))
        width = features.shape[1]
        curved = np.empty(1, dtype) if curvatures is None else curvatures
        given = read_only(directions.astype(dtype, copy=False))

        def work(first: int, last: int) -> None:
            self._conjugate.multiply_rows(
                groups.starts, groups.others, features, curved, given, first, last,
                aligned_zeros(2, width, dtype), products,
            )  # fmt: skip

        share_rows(work, groups.starts, 1, self.threads)
        return products

    @property
    def _conjugate(self) -> ModuleType:
        return kernels_for(type(self.loss), "conjugate_kernels")

    def row_sums(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        kernels, groups, size = kernels_for(type(self.loss)), self.groups, step.features.shape[1]
        dtype = step.features.dtype
        lines = np.zeros((last - first, numbers_per_row(size)), dtype)
        losses = np.zeros(last - first)
        features = read_only(step.features)
        offsets = read_only(np.empty(0, dtype) if step.offsets is None else step.offsets)
        from_zero = step.current is None
        current = np.empty((0, size), dtype) if step.current is None else step.current
        weights = read_only(step.weights)

        def work(begin: int, end: int) -> None:
            kernels.sum_rows(
                from_zero, groups.starts, groups.others, groups.values, features, offsets,
                read_only(current), weights, first, begin + first, end + first,
                self.loss.parameters, lines, losses,
            )  # fmt: skip

        starts = groups.starts[first : last + 1]
        share_rows(work, starts - starts[0], size, self.threads)
        return lines, float(losses.sum())

    def predictions(self, left: Matrix, right: Matrix) -> Matrix:
        groups, out = self.groups, np.empty(self.groups.others.size)
        given = read_only(np.ascontiguousarray(left)), read_only(np.ascontiguousarray(right))

        def work(first: int, last: int) -> None:
            predict_entries(groups.starts, groups.others, *given, first, last, out)

        share_rows(work, groups.starts, 1, self.threads)
        return out

    def product_with(self, data: Matrix) -> Callable[[Matrix], Matrix]:
        groups, data = self.groups, read_only(data)

        def times(v: Matrix) -> Matrix:
            out, v = np.zeros((groups.starts.size - 1, v.shape[1])), np.ascontiguousarray(v)

            def work(first: int, last: int) -> None:
                multiply_entries(groups.starts, groups.others, data, read_only(v), first, last, out)

            share_rows(work, groups.starts, 1, self.threads)
            return out

        return times

    def blocks(self, right: Floats) -> Matrix:
        groups, rank = self.groups, right.shape[1]
        blocks = np.zeros((rank, rank, groups.starts.size - 1))
        curvatures = np.asarray(self.loss.largest_curvature(groups.values))
        fixed, weighted = read_only(right), curvatures.ndim > 0
        weights = read_only(curvatures.astype(fixed.dtype)) if weighted else groups.values

        def work(first: int, last: int) -> None:
            block_rows(
                groups.starts, groups.others, weights, fixed, weighted, first, last,
                blocks,
            )  # fmt: skip

        share_rows(work, groups.starts, rank, self.threads)
        if not weighted:
            blocks *= curvatures
        return blocks
