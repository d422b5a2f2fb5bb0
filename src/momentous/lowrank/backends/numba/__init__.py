"""The backend compiled by numba: entries in parallel, rows as SIMD vectors.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import ModuleType

import numpy as np

from momentous.io.optional import require
from momentous.io.types import AnyArray, Matrix
from momentous.lowrank.backends.base import Backend, RowStep, Side
from momentous.lowrank.backends.conjugate import RowSlopes
from momentous.lowrank.backends.sums import DensePart, numbers_per_row
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss

require("numba", "app", "backend='numba'")

from momentous.lowrank.backends.numba.announce import announce_compilations  # noqa: E402
from momentous.lowrank.backends.numba.compiler import kernels_for, thread_pool  # noqa: E402
from momentous.lowrank.backends.numba.passes import (  # noqa: E402
    Entries,
    StepArrays,
    in_whole_registers,
    multiply_entries,
    sum_partners,
)
from momentous.lowrank.backends.numba.simd import strip_length  # noqa: E402

announce_compilations()
NO_DENSE_PART = DensePart(0.0, np.empty((0, 0)), np.empty(0), 0.0)
ENTRIES_PER_THREAD = 10_000  # at least: fewer are not worth a second one
RANGES_PER_THREAD = 4  # of rows, so that none waits long for the others
PRODUCTS = 8  # that a sparse matrix makes with as many vectors in one pass


def read_only(array: AnyArray) -> AnyArray:
    """A view that cannot be written to: to numba that is a type of its own, and one is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def in_strips(factor: Floats) -> Floats:
    """A factor whose rows are whole strips."""
    size = factor.shape[1]
    more = -size % strip_length(size)
    return np.pad(factor, ((0, 0), (0, more))) if more else factor


class NumbaBackend(Backend):
    """Compiled passes and row solves."""

    name = "numba"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return NumbaSide(groups, loss, threads)


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
        super().__init__(groups, loss)
        self.entries = Entries(
            read_only(groups.starts), read_only(groups.others), read_only(groups.values)
        )
        self.threads = max(1, min(threads, count // ENTRIES_PER_THREAD))
        shares = np.arange(1, self.threads) * (count / self.threads)
        cuts = [0, *np.searchsorted(groups.starts, shares), groups.starts.size - 1]
        self.ranges = [(int(a), int(b)) for a, b in pairwise(cuts)]

    @property
    def _kernels(self) -> ModuleType:
        return kernels_for(type(self.loss))  # type: ignore[arg-type]  # a class has a hash

    # --- value and gradient -----------------------------------------------------------------------

    def value(self, left: Floats, right: Floats) -> float:
        left, right = in_strips(left), in_strips(right)
        none = np.empty((0, left.shape[1]), left.dtype)
        return self._run(left, right, 0.0, none, [none] * self.threads)

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        size = left.shape[1]
        left, right = in_strips(left), in_strips(right)
        # Fresh buffers, so that several callers may evaluate at the same time.
        copied = left.shape[1] > size
        mine = np.zeros_like(left) if copied else own
        others = [np.zeros_like(right) for _ in range(self.threads - (not copied))]
        total = self._run(left, right, scale, mine, others if copied else [far, *others])
        if copied:
            own += mine[:, :size]
        for part in others:
            far += part[:, :size]
        return total

    def _run(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: list[Floats]
    ) -> float:
        lanes, left, right = (0,) * strip_length(left.shape[1]), read_only(left), read_only(right)

        def work(thread: int) -> float:
            total: float = self._kernels.add_groups(
                lanes, left, right, self.entries, *self.ranges[thread], scale, own, far[thread],
                self.loss.parameters,
            )  # fmt: skip
            return total

        waiting = [thread_pool(self.threads).submit(work, k) for k in range(1, self.threads)]
        return sum((part.result() for part in waiting), work(0))

    # --- half sweeps ------------------------------------------------------------------------------

    def _share_rows(
        self, work: Callable[[int, int], None], row_cost: int, first: int = 0,
        last: int | None = None,
    ) -> None:  # fmt: skip
        """Call ``work(first, last)`` for ranges of rows that take about equally long; a row costs
        so many entries beside its own."""
        starts = self.groups.starts[first : None if last is None else last + 1]
        if self.threads == 1:
            return work(first, first + starts.size - 1)
        cost = starts - starts[0] + row_cost * np.arange(starts.size)
        shares = np.linspace(0, cost[-1], RANGES_PER_THREAD * self.threads + 1)
        cuts = (first + np.searchsorted(cost, shares)).tolist()
        list(thread_pool(self.threads).map(work, cuts[:-1], cuts[1:]))
        return None

    def _arrays_of(self, step: RowStep, features: Floats) -> StepArrays:
        shape, dtype = step.weights.shape, features.dtype
        offsets = np.empty(0, dtype) if step.offsets is None else step.offsets
        current = np.zeros(shape, dtype) if step.current is None else step.current
        return StepArrays(
            read_only(step.weights), read_only(features), read_only(offsets), read_only(current),
            step.with_value,
        )  # fmt: skip

    def _lengths(self, features: Floats) -> Matrix:
        """``|f_j|^2``, which bounds how far a step of a given length can move a prediction."""
        if not self.loss.self_concordant:
            return np.empty(0)
        lengths: Matrix = np.einsum("jq,jq->j", features, features, dtype=np.float64)
        return lengths

    def _sum_rows(
        self, step: RowStep, solving: bool, first: int, last: int, out: Floats
    ) -> tuple[Floats, float]:
        row_values, given = np.zeros(len(out)), self._arrays_of(step, step.features)
        dense = solving and DensePart.of(self.loss, step.features, step.offsets)
        lengths = self._lengths(step.features)

        def work(begin: int, end: int) -> None:
            self._kernels.sum_rows(
                self.entries, given, step.current is None, dense or NO_DENSE_PART, lengths,
                solving, first, begin, end, self.loss.parameters, out, row_values,
            )  # fmt: skip

        # To solve a system takes about as long as to take in so many entries as it has rows.
        self._share_rows(work, step.features.shape[1], first, last)
        return out, float(row_values.sum())

    def solve_rows(self, step: RowStep) -> tuple[Floats, float]:
        rows = len(step.weights)
        return self._sum_rows(step, True, 0, rows, np.zeros_like(step.weights, step.features.dtype))

    def row_sums(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        dtype, size = step.features.dtype, step.features.shape[1]
        lines = np.zeros((last - first, numbers_per_row(size)), dtype)
        return self._sum_rows(step, False, first, last, lines)

    def improve_rows(self, step: RowStep, squares: Matrix, steps: int) -> tuple[Floats, float]:
        solutions = np.zeros_like(step.weights, step.features.dtype)
        row_values, features = np.zeros(len(solutions)), in_whole_registers(step.features)
        given, lengths = self._arrays_of(step, features), self._lengths(features)
        dense = DensePart.of(self.loss, features[:-1], step.offsets) or NO_DENSE_PART

        def work(first: int, last: int) -> None:
            self._kernels.improve_rows(
                self.entries, given, steps, squares, dense, lengths, first, last,
                self.loss.parameters, solutions, row_values,
            )  # fmt: skip

        self._share_rows(work, steps)
        return solutions, float(row_values.sum())

    def row_slopes(self, step: RowStep) -> RowSlopes:
        unit, dtype = self.loss.unit_curvature, step.features.dtype
        given = self._arrays_of(step._replace(with_value=True), in_whole_registers(step.features))
        downwards = np.zeros((self.groups.starts.size - 1, step.features.shape[1]))
        curved, losses = np.zeros(len(downwards)), np.zeros(len(downwards))
        curvatures = np.empty(1 if unit else self.groups.others.size, dtype)

        def work(first: int, last: int) -> None:
            self._kernels.slope_rows(
                self.entries, given, first, last, self.loss.parameters, curvatures, downwards,
                curved, losses,
            )  # fmt: skip

        self._share_rows(work, 1)
        return RowSlopes(downwards, curved, None if unit else curvatures, float(losses.sum()))

    def row_products(
        self, features: Floats, curvatures: Floats | None, directions: Floats
    ) -> Matrix:
        products, dtype = np.zeros(directions.shape), features.dtype
        curved = np.empty(1, dtype) if curvatures is None else curvatures
        given = read_only(in_whole_registers(features)), read_only(curved)
        turned = read_only(directions.astype(dtype, copy=False))

        def work(first: int, last: int) -> None:
            self._kernels.multiply_rows(self.entries, *given, turned, first, last, products)

        self._share_rows(work, 1)
        return products

    def partner_sums(self, numbers: Floats) -> Matrix:
        out = np.zeros((self.groups.starts.size - 1, numbers.shape[1]))
        values, given = self.groups.values, read_only(in_whole_registers(numbers))
        weights = read_only(values[:0] if values.ndim == 1 else values[:, 1])
        starts, others, _ = self.entries

        def work(first: int, last: int) -> None:
            sum_partners(starts, others, weights, given, first, last, out)

        self._share_rows(work, 1)
        return out

    # --- certificates -----------------------------------------------------------------

    def downward_slopes(self, left: Matrix, right: Matrix) -> tuple[Matrix, Matrix, float]:
        given, losses = (read_only(left), read_only(right)), np.zeros(len(left))
        z, slopes = np.empty(self.groups.others.size), np.empty(self.groups.others.size)

        def work(first: int, last: int) -> None:
            self._kernels.slope_entries(
                self.entries, *given, first, last, self.loss.parameters, z, slopes, losses
            )

        self._share_rows(work, 1)
        return z, slopes, float(losses.sum())

    def product_with(self, data: Matrix) -> Callable[[Matrix], Matrix]:
        data, lanes = read_only(data), (0,) * PRODUCTS

        def times(v: Matrix) -> Matrix:
            size = v.shape[1]
            given = read_only(np.pad(v, ((0, 0), (0, -size % PRODUCTS))))
            out = np.zeros((self.groups.starts.size - 1, given.shape[1]))

            def work(first: int, last: int) -> None:
                multiply_entries(lanes, self.entries, data, given, first, last, out)

            self._share_rows(work, 1)
            return out[:, :size]

        return times
