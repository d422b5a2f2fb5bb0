"""The backend for NVIDIA GPUs: CUDA kernels compiled at run time through CuPy.

No kernel adds floating-point numbers by atomics, so the same call on the same GPU gives the same
bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from momentous.io.optional import require
from momentous.io.types import AnyArray, FloatClass
from momentous.lowrank.backends.base import Backend, PlainTerms, RowStep, Side, find_backend
from momentous.lowrank.backends.blocks import Blocks, Matrix
from momentous.lowrank.backends.cuda import layout
from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.best import best_columns
from momentous.lowrank.backends.cuda.blocks import CudaBlocks
from momentous.lowrank.backends.cuda.launch import (
    HostSums,
    grams_of,
    launch,
    mark,
    pack_rows,
    parameters_of,
    second_stream,
    total,
    weighted_gram,
    weighted_squares,
)
from momentous.lowrank.backends.cuda.modules import (
    Module,
    RowKernels,
    Weights,
    entry_kernels,
    row_kernels,
)
from momentous.lowrank.backends.cuda.solve import Range, RowSolver, ranges_of
from momentous.lowrank.backends.cuda.start import truncated_svd
from momentous.lowrank.backends.device import check_memory, local_gpu, require_gpu
from momentous.lowrank.backends.sums import DensePart, numbers_per_row
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.losses import Loss

# In single precision rows are solved as they are where the ridge is above this share of |f_j|^2,
# on average; below it a row of few entries may be nearly singular, and sums are in double.
SAFE_RIDGE = 1e-3
PAIRS = 1 << 22  # entries whose factors are held at a time where certificates predict them


class CudaBackend(Backend):
    """Passes and row solves on the current GPU."""

    name = "cuda"
    device = "cuda"
    xp = cupy
    conjugate_gradients = False

    def __init__(self) -> None:
        require_gpu()
        self._pairs: weakref.WeakKeyDictionary[Ratings, tuple[Array, Array, Array]]
        self._pairs = weakref.WeakKeyDictionary()

    def use_local_device(self) -> None:
        cupy.cuda.Device(local_gpu()).use()

    def solve_lines(
        self, lines: Floats, weights: Matrix, before: Matrix, *, quadratic: bool
    ) -> tuple[Matrix, float] | None:
        """On the CPU: each rank has few systems."""
        return find_backend().solve_lines(lines, weights, before, quadratic=quadratic)

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        check_memory(groups, 1)
        return CudaSide(groups, loss)

    def side_of(
        self, ratings: Ratings, which: int, loss: Loss, threads: int, other: Side | None
    ) -> Side:
        if other is None:
            check_memory(ratings.by_row, 2)
            other = CudaSide(ratings.by_row, loss)
            if which == 0:
                return other
        assert isinstance(other, CudaSide)
        return other.twin(ratings.shape[which])

    def factorise_blocks(self, blocks: Matrix, factor: Floats, dtype: DTypeLike) -> Blocks:
        return CudaBlocks.of(blocks, factor, dtype)

    def asarray(self, array: Array, dtype: DTypeLike) -> Array:
        return cupy.asarray(array, dtype, order="C")

    def to_host(self, array: Array) -> AnyArray:
        host: Floats = cupy.asnumpy(array)
        return host

    def gram(self, factor: Array, weights: Array | None = None) -> Array:
        return weighted_gram(factor, weights)

    def weighted_squares(self, weights: Array, factor: Array) -> float:
        return weighted_squares(weights, factor)

    def svd_start(self, ratings: Ratings, rank: int, values: Floats) -> tuple[Array, Array]:
        found = truncated_svd(ratings, rank, values)
        return super().svd_start(ratings, rank, values) if found is None else found

    def sum_of_errors(
        self,
        loss: Loss,
        left: Array,
        right: Array,
        ratings: Ratings,
        value_range: tuple[float, float],
    ) -> float:
        pairs = self._pairs.get(ratings)
        if pairs is None:
            pairs = self._pairs[ratings] = (
                cupy.asarray(ratings.rows),
                cupy.asarray(ratings.cols),
                cupy.asarray(ratings.values, left.dtype),
            )
        module = entry_kernels(left.shape[1], left.dtype, loss)
        errors = cupy.empty(ratings.nnz, np.float64)
        launch(module, "pair_errors", ratings.nnz, (
            ratings.nnz, *pairs, pack_rows(left), pack_rows(right), *map(float, value_range),
            errors,
        ))  # fmt: skip
        return total(errors)

    def best_columns(
        self, left: Floats, right: Floats, offsets: Floats, seen: list[Compressed], count: int
    ) -> tuple[Array, Floats]:
        return best_columns(left, right, offsets, seen, count)

    def release_memory(self) -> None:
        cupy.get_default_memory_pool().free_all_blocks()

    def plain_objective(
        self, side: Callable[[int], Side], x: Array, cut: int, terms: PlainTerms, gradient: Array
    ) -> float:
        size, sides = x.shape[1], (side(0), side(1))
        assert isinstance(sides[0], CudaSide)
        assert isinstance(sides[1], CudaSide)
        main, beside = cupy.cuda.get_current_stream(), second_stream()
        both = pack_rows(x)
        begun = mark(main)
        rows = both[:cut], both[cut:]
        left = sides[0].pass_chunks(*rows, size)
        with beside:  # beside the end of one long pass and the beginning of the other
            beside.wait_event(begun)
            grams = grams_of(x, cut)
            folded = mark(beside)
        right = sides[1].pass_chunks(*rows[::-1], size)
        main.wait_event(folded)
        losses, sums = left.losses, HostSums(left.losses.size)
        launch(left.module, "finish_gradient", 256 * sums.blocks + x.size, (
            cut * size, x.size, sides[0].chunks.firsts, left.gradients, sides[1].chunks.firsts,
            right.gradients, terms.scale, x, grams, terms.balance, terms.ridge, terms.dense,
            gradient, sums.blocks, losses.size, losses, sums.address,
        ))  # fmt: skip
        return terms.scale * sums.total()


class Passed(NamedTuple):
    """A pass over all entries, chunk by chunk."""

    module: Module
    gradients: Array  # of the left side
    losses: Array


class CudaSide(Side):
    """Entries on the device, cut into chunks that a warp or a block works on."""

    threads = 1

    def __init__(self, groups: Compressed, loss: Loss):
        arrays = (groups.starts, groups.others, groups.values)
        self.groups = Compressed(*(cupy.ascontiguousarray(cupy.asarray(one)) for one in arrays))
        self.loss = loss
        self.chunks = layout.cut(self.groups.starts, int(self.groups.others.size))
        self.parameters = parameters_of(loss)
        self._ranges: dict[Module, list[Range]] = {}
        self._parts: dict[tuple[int, int], CudaSide] = {}
        self._twin: CudaSide | weakref.ref[CudaSide] | None = None
        # Weights, and the type of sums for them.
        self._precision: tuple[Array, FloatClass] | None = None

    @property
    def counts(self) -> Array:
        return cupy.asnumpy(cupy.diff(self.groups.starts))

    def twin(self, others: int) -> CudaSide:
        """The same entries grouped by the other side, made once."""
        twin = self._twin() if isinstance(self._twin, weakref.ref) else self._twin
        if twin is None:
            twin = CudaSide(layout.transpose(self.groups, others), self.loss)
            twin._twin, self._twin = weakref.ref(self), twin
        return twin

    # --- value and gradient -----------------------------------------------------------------------

    def value(self, left: Array, right: Array) -> float:
        left, right = cupy.asarray(left), cupy.asarray(right)
        return total(self._pass(pack_rows(left), pack_rows(right), left.shape[1]))

    def add_gradient(
        self, left: Array, right: Array, scale: float, own: Array, far: Array
    ) -> float:
        left, right = cupy.asarray(left), cupy.asarray(right)
        rows, others = pack_rows(left), pack_rows(right)
        totals = self._pass(rows, others, left.shape[1], scale, own)
        self.twin(len(right))._pass(others, rows, left.shape[1], scale, far)
        return total(totals)

    def row_sums(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        """Systems from `blocks`, right-hand sides from the gradient; as NumPy arrays."""
        part, size, dtype = self._part(first, last), step.features.shape[1], step.features.dtype
        left, right = cupy.zeros((last - first, size), dtype), cupy.asarray(step.features)
        if step.current is not None:
            left += cupy.asarray(step.current[first:last])
        if step.offsets is not None:  # z = (p, 1) . (f, o)
            left = cupy.column_stack([left, cupy.ones(len(left), dtype)])
            right = cupy.column_stack([right, cupy.asarray(step.offsets)])
        slopes = cupy.zeros(left.shape, dtype)
        packed = pack_rows(left), pack_rows(right)
        losses = total(part._pass(*packed, left.shape[1], 1.0, slopes))
        curvatures = None
        if not self.loss.quadratic:
            z = cupy.asarray(part.predictions(left.astype(np.float64), right.astype(np.float64)))
            curvatures = self.loss.entries(z, part.groups.values.astype(np.float64))[2]
        systems = part.blocks(cupy.asarray(step.features, np.float64), curvatures)
        p, q = np.tril_indices(size)
        lines = np.empty((last - first, numbers_per_row(size)), dtype)
        lines[:, : p.size] = cupy.asnumpy(systems[p, q]).T
        lines[:, p.size :] = -cupy.asnumpy(slopes)[:, :size]
        return lines, losses

    def _part(self, first: int, last: int) -> CudaSide:
        """Some of the rows, made once."""
        if (first, last) not in self._parts:
            starts, others = self.groups.starts, self.groups.others
            begin, end = (int(starts[row]) for row in (first, last))
            groups = Compressed(
                starts[first : last + 1] - begin, others[begin:end], self.groups.values[begin:end]
            )
            self._parts[first, last] = CudaSide(groups, self.loss)
        return self._parts[first, last]

    def dense_part(self, step: RowStep) -> DensePart | None:
        offsets = None if step.offsets is None else cupy.asnumpy(step.offsets)
        return DensePart.of(self.loss, cupy.asnumpy(step.features), offsets)

    def _pass(
        self, left: Array, right: Array, size: int, scale: float = 0.0, own: Array | None = None
    ) -> Array:
        """The losses of each chunk; adds to the gradient of the left side, where there is one."""
        passed = self.pass_chunks(left, right, size, own is not None)
        if own is not None:
            launch(passed.module, "add_chunks", own.size, (
                own.size, self.chunks.firsts, passed.gradients, scale, own,
            ))  # fmt: skip
        return passed.losses

    def pass_chunks(
        self, left: Array, right: Array, size: int, with_gradient: bool = True
    ) -> Passed:
        """The left side's gradient and the losses."""
        groups, chunks = self.groups, self.chunks
        module = entry_kernels(size, left.dtype, self.loss)
        gradients = cupy.empty((chunks.total if with_gradient else 0, left.shape[1]), left.dtype)
        losses = cupy.empty(chunks.total, np.float64)
        launch(module, "pass_entries", 32 * chunks.total, (
            chunks.total, chunks.order, chunks.owners, chunks.bounds, groups.others, groups.values,
            left, right, self.parameters, int(with_gradient), gradients, losses,
        ), 128)  # fmt: skip
        return Passed(module, gradients, losses)

    # --- half sweeps ------------------------------------------------------------------------------

    def solve_rows(self, step: RowStep) -> tuple[Array, float]:
        dtype = step.features.dtype

        def there(given: Floats | None) -> Array:
            return None if given is None else cupy.asarray(given, dtype, order="C")

        asked = RowStep(
            there(step.weights), there(step.features), there(step.offsets), there(step.current),
            step.with_value,
        )  # fmt: skip
        size = asked.features.shape[1]
        sums = self._sum_type(step.weights, asked)
        kernels = row_kernels(size, dtype, sums, self.loss, asked.offsets is not None)
        features = pack_rows(asked.features, kernels.stride, kernels.offset_at, asked.offsets)
        return RowSolver(self, kernels, asked, features, sums).run()

    def ranges(self, kernels: RowKernels, itemsize: int) -> list[Range]:
        """The rows in ranges whose sums can be held."""
        found = self._ranges.get(kernels.module)
        if found is None:
            found = self._ranges[kernels.module] = ranges_of(self.chunks, kernels, itemsize)
        return found

    def _sum_type(self, key: Array, step: RowStep) -> FloatClass:
        """Double where single precision could make a near-singular system indefinite."""
        if step.features.dtype == np.float64:
            return np.float64
        if self._precision is None or self._precision[0] is not key:
            squares = float(cupy.vdot(step.features, step.features)) / len(step.features)
            safe = float(step.weights.min()) > SAFE_RIDGE * squares
            self._precision = key, np.float32 if safe else np.float64
        return self._precision[1]

    # --- certificates -----------------------------------------------------------------------------

    def predictions(self, left: Matrix, right: Matrix) -> Matrix:
        groups, out = self.groups, np.empty(int(self.groups.others.size))
        rows, (left, right) = (
            cupy.repeat(cupy.arange(len(left)), self.counts.tolist()),
            (cupy.asarray(left), cupy.asarray(right)),
        )
        for begin in range(0, out.size, PAIRS):
            part = slice(begin, begin + PAIRS)
            z = cupy.einsum("ij,ij->i", left[rows[part]], right[groups.others[part]])
            out[part] = cupy.asnumpy(z)
        return out

    def product_with(self, data: Matrix) -> Callable[[Matrix], Matrix]:
        sparse = require("cupyx.scipy.sparse", "cuda", "certificates with device='cuda'")
        groups, numbers = self.groups, cupy.asarray(data)

        def times(v: Matrix) -> Matrix:
            shape = (groups.starts.size - 1, len(v))
            matrix = sparse.csr_matrix((numbers, groups.others, groups.starts), shape=shape)
            product: Matrix = cupy.asnumpy(matrix @ cupy.asarray(v))
            return product

        return times

    def blocks(self, right: Array, curvatures: Array | None = None) -> Array:
        right = cupy.asarray(right)
        rank, dtype = right.shape[1], right.dtype
        if curvatures is None:
            curvatures = self.loss.largest_curvature(self.groups.values)
        values = cupy.empty(self.groups.values.shape, dtype)
        values[...] = curvatures
        kernels = row_kernels(rank, dtype, dtype, Weights(), False)
        features = pack_rows(right, kernels.stride)
        step = RowStep(None, features)  # type: ignore[arg-type]
        return RowSolver(self, kernels, step, features, dtype).blocks(values)
