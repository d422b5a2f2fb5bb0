"""The backend for NVIDIA GPUs: CUDA kernels compiled at run time through CuPy.

No kernel adds floating-point numbers by atomics, so the same call on the same GPU gives the same
bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from momentous.distributed import Ranks
from momentous.io.types import AnyArray, FloatClass, Matrix
from momentous.lowrank.backends.base import Backend, PlainTerms, RowStep, Side
from momentous.lowrank.backends.conjugate import RowSlopes
from momentous.lowrank.backends.cuda import layout
from momentous.lowrank.backends.cuda.arrays import Array, cupy, sparse
from momentous.lowrank.backends.cuda.conjugate import (
    curved_rows,
    improve_rows,
    pass_products,
    pass_slopes,
)
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
    Products,
    RowKernels,
    Scores,
    UnitProducts,
    Weights,
    entry_kernels,
    plain_kernels,
    row_kernels,
    step_kernels,
)
from momentous.lowrank.backends.cuda.solve import Passed, Range, RowSolver, dense_part, ranges_of
from momentous.lowrank.backends.device import check_memory, local_gpu, require_gpu
from momentous.lowrank.backends.sums import DensePart, numbers_per_row
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.factors import truncated_svd
from momentous.lowrank.losses import Loss

# In single precision rows are solved as they are where the ridge is above this share of |f_j|^2,
# on average; below it a row of few entries may be nearly singular, and sums are in double.
SAFE_RIDGE = 1e-3
SCORES = 1 << 28  # that are held at a time, at most, where the best of many are looked for
SUMS = 256  # numbers of partners that a pass adds up, at most
PRODUCTS = 8  # that a sparse matrix makes with as many vectors in one pass


class CudaBackend(Backend):
    """Passes and row solves on the current GPU."""

    name = "cuda"
    device = "cuda"
    xp = cupy
    # All: two or three steps of conjugate gradients take a third of an exact sweep, but reach the
    # same objective later (benchmarks/gpu.py --only conjugate).
    exact_up_to = 256

    def __init__(self) -> None:
        require_gpu()
        self._pairs: weakref.WeakKeyDictionary[Ratings, tuple[Array, Array, Array]]
        self._pairs = weakref.WeakKeyDictionary()

    def use_local_device(self) -> None:
        cupy.cuda.Device(local_gpu()).use()

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

    def asarray(self, array: Array, dtype: DTypeLike) -> Array:
        return cupy.asarray(array, dtype, order="C")

    def to_host(self, array: Array) -> AnyArray:
        host: Floats = cupy.asnumpy(array)
        return host

    def gram(self, factor: Array, weights: Array | None = None) -> Array:
        return weighted_gram(factor, weights)

    def weighted_squares(self, weights: Array, factor: Array) -> float:
        return weighted_squares(weights, factor)

    def svd_start(
        self, ratings: Ratings, rank: int, values: Floats, ranks: Ranks
    ) -> tuple[Floats, Floats]:
        """The products with the matrix are made on the device, all else on the host."""
        m, n = ratings.shape
        given = ratings.by_row.starts, ratings.by_row.others, values.astype(np.float64)
        by_row = Compressed(*map(cupy.asarray, given))
        by_col = layout.transpose(by_row, n)
        rows, cols = (
            sparse.csr_matrix((one.values, one.others, one.starts.astype(np.int32)), shape=shape)
            for one, shape in ((by_row, (m, n)), (by_col, (n, m)))
        )
        times, back = (
            lambda v, matrix=matrix: cupy.asnumpy(matrix @ cupy.asarray(v))
            for matrix in (rows, cols)
        )
        return truncated_svd(times, back, (m, n), rank, ranks)

    def sum_of_errors(
        self,
        loss: Loss,
        left: Array,
        right: Array,
        ratings: Ratings,
        value_range: tuple[float, float],
    ) -> float:
        if not ratings.nnz:
            return 0.0
        pairs = self._pairs.get(ratings)
        if pairs is None:
            pairs = self._pairs[ratings] = (
                cupy.asarray(ratings.rows),
                cupy.asarray(ratings.cols),
                cupy.asarray(ratings.values, left.dtype),
            )
        module = entry_kernels(left.shape[1], left.dtype, loss.plain)
        errors = cupy.empty(ratings.nnz, np.float64)
        launch(module, "pair_errors", ratings.nnz, (
            ratings.nnz, *pairs, pack_rows(left), pack_rows(right), *map(float, value_range),
            errors,
        ))  # fmt: skip
        if ratings.weights is not None:
            errors *= cupy.asarray(ratings.weights)
        return total(errors)

    def best_columns(
        self, left: Floats, right: Floats, offsets: Floats, seen: list[Compressed], count: int
    ) -> tuple[Array, Floats]:
        dtype, rows, others = left.dtype, len(left), len(right)
        features, shifts = cupy.asarray(right), cupy.asarray(offsets, dtype)
        module = plain_kernels(dtype)
        columns, scores = np.empty((rows, count), np.int64), np.empty((rows, count), dtype)
        free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
        length = max(1, min(SCORES, free // (4 * dtype.itemsize)) // others)
        for begin in range(0, rows, length):
            part = slice(begin, min(begin + length, rows))
            block = cupy.asarray(left[part]) @ features.T
            block += shifts
            for known in seen:
                starts = known.starts[part.start : part.stop + 1]
                hidden = cupy.asarray(known.others[starts[0] : starts[-1]])
                launch(module, "hide_seen", 32 * len(block), (
                    len(block), others, cupy.asarray(starts - starts[0]), hidden, block,
                ))  # fmt: skip
            best = cupy.empty((len(block), count), np.int64)
            found = cupy.empty((len(block), count), dtype)
            launch(module, "best_columns", 256 * len(block), (others, count, block, best, found))
            columns[part], scores[part] = cupy.asnumpy(best), cupy.asnumpy(found)
        return columns, scores

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


class CudaSide(Side):
    """Entries on the device, cut into chunks that a warp or a block works on."""

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
        """Systems as they are summed up, right-hand sides from the gradient; as NumPy arrays."""
        part, size, dtype = self._part(first, last), step.features.shape[1], step.features.dtype
        current = None if step.current is None else step.current[first:last]
        found = part.row_slopes(step._replace(weights=step.weights[first:last], current=current))
        curvatures = 1.0 if found.curvatures is None else found.curvatures
        systems = part._systems(cupy.asarray(step.features, np.float64), curvatures)
        p, q = np.tril_indices(size)
        lines = np.empty((last - first, numbers_per_row(size)), dtype)
        lines[:, : p.size] = cupy.asnumpy(systems[p, q]).T
        lines[:, p.size :] = found.downwards
        return lines, found.losses

    def row_slopes(self, step: RowStep) -> RowSlopes:
        """For ranks: sums as NumPy arrays, the curvatures on the device."""
        asked = self._on_device(step)
        size, passed = asked.features.shape[1], pass_slopes(self, asked)
        rows = int(self.groups.starts.size) - 1
        own = cupy.zeros((rows, size + (asked.offsets is not None)), asked.features.dtype)
        self._add_chunks(passed, 1.0, own)
        module = step_kernels(size, own.dtype)
        curved = cupy.asnumpy(curved_rows(self, passed, module))
        curvatures = None if self.loss.unit_curvature else passed.curvatures
        downwards = -cupy.asnumpy(own)[:, :size].astype(np.float64)
        return RowSlopes(downwards, curved, curvatures, total(passed.losses))

    def row_products(
        self, features: Floats, curvatures: Floats | None, directions: Floats
    ) -> Matrix:
        far = pack_rows(cupy.asarray(features))
        own = cupy.asarray(directions, far.dtype, order="C")
        passed = pass_products(self, far, own.shape[1], curvatures, pack_rows(own))
        out = cupy.zeros_like(own)
        self._add_chunks(passed, 1.0, out)
        products: Matrix = cupy.asnumpy(out).astype(np.float64)
        return products

    def partner_sums(self, numbers: Array) -> Array:
        numbers, values = cupy.asarray(numbers), self.groups.values
        loss: Loss = UnitProducts()
        if values.ndim > 1:
            loss, values = Products(), cupy.ascontiguousarray(values[:, 1], numbers.dtype)
        rows, count = int(self.groups.starts.size) - 1, numbers.shape[1]
        found = []
        for begin in range(0, count, SUMS):  # no pass takes more of them at a time
            far = cupy.ascontiguousarray(numbers[:, begin : begin + SUMS])
            out = cupy.zeros((rows, far.shape[1]), far.dtype)
            passed = self.pass_chunks(
                pack_rows(out), pack_rows(far), far.shape[1], loss=loss, values=values
            )
            self._add_chunks(passed, 1.0, out)
            found.append(out)
        return found[0] if len(found) == 1 else cupy.hstack(found)

    def _systems(self, features: Array, curvatures: Array | float) -> Array:
        """``sum_j c_ij f_j f_j'`` of each row, in lower triangles: (r, r, rows)."""
        size, dtype = features.shape[1], features.dtype
        values = cupy.empty(self.groups.others.shape, dtype)
        values[...] = curvatures
        kernels = row_kernels(size, dtype, dtype, Weights(), False)
        packed = pack_rows(features, kernels.stride)
        step = RowStep(None, packed)  # type: ignore[arg-type]
        return RowSolver(self, kernels, step, packed, dtype).systems(values)

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
        asked = self._on_device(step)
        found = dense_part(self.loss, asked.features, asked.offsets)
        if found is None:
            return None
        return found._replace(gram=cupy.asnumpy(found.gram), pull=cupy.asnumpy(found.pull))

    def _pass(
        self, left: Array, right: Array, size: int, scale: float = 0.0, own: Array | None = None
    ) -> Array:
        """The losses of each chunk; adds to the gradient of the left side, where there is one."""
        passed = self.pass_chunks(left, right, size, own is not None)
        if own is not None:
            self._add_chunks(passed, scale, own)
        return passed.losses

    def _add_chunks(self, passed: Passed, scale: float, own: Array) -> None:
        launch(passed.module, "add_chunks", own.size, (
            own.size, self.chunks.firsts, passed.gradients, scale, own,
        ))  # fmt: skip

    def pass_chunks(
        self, left: Array, right: Array, size: int, with_gradient: bool = True, *,
        loss: Loss | None = None, values: Array | None = None, curved: bool = False,
    ) -> Passed:  # fmt: skip
        """The left side's gradient and the losses, of another loss and values where given."""
        groups, chunks = self.groups, self.chunks
        module = entry_kernels(size, left.dtype, loss or self.loss, right.dtype, curved)
        curvatures = cupy.empty(groups.others.size if curved else 0, left.dtype)
        bends = cupy.empty(chunks.total if curved else 0, np.float64)
        gradients = cupy.empty((chunks.total if with_gradient else 0, left.shape[1]), left.dtype)
        losses = cupy.empty(chunks.total, np.float64)
        launch(module, "pass_entries", 32 * chunks.total, (
            chunks.total, chunks.order, chunks.owners, chunks.bounds, groups.others,
            groups.values if values is None else values, left, right, self.parameters,
            int(with_gradient), gradients, losses, curvatures, bends,
        ), 128)  # fmt: skip
        return Passed(module, gradients, losses, curvatures, bends)

    # --- half sweeps ------------------------------------------------------------------------------

    def _on_device(self, step: RowStep) -> RowStep:
        def there(given: Floats | None) -> Array:
            return None if given is None else cupy.asarray(given, step.features.dtype, order="C")

        weights, features, offsets, current = map(there, step[:4])
        return RowStep(weights, features, offsets, current, step.with_value)

    def improve_rows(self, step: RowStep, squares: Matrix, steps: int) -> tuple[Array, float]:
        asked = self._on_device(step)
        return improve_rows(self, asked, squares, steps, self._sum_type(step.weights, asked))

    def solve_rows(self, step: RowStep) -> tuple[Array, float]:
        asked = self._on_device(step)
        size, dtype = asked.features.shape[1], asked.features.dtype
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

    @property
    def owners(self) -> Array:
        return layout.owners_of(self.groups.starts, int(self.groups.others.size))

    def predictions(self, left: Array, right: Array) -> Array:
        rows, others, size = pack_rows(left), pack_rows(right), left.shape[1]
        nothing = cupy.zeros(self.groups.others.size, np.float64)
        scores = Scores()
        return self.pass_chunks(
            rows, others, size, False, loss=scores, values=nothing, curved=True
        ).curvatures

    def product_with(self, data: Array) -> Callable[[Array], Array]:
        def times(v: Array) -> Array:
            count, size = v.shape
            wide = cupy.zeros((count, size + -size % PRODUCTS), np.float64)
            wide[:, :size] = v
            out = cupy.zeros((int(self.groups.starts.size) - 1, wide.shape[1]), np.float64)
            for begin in range(0, size, PRODUCTS):
                some = cupy.ascontiguousarray(wide[:, begin : begin + PRODUCTS])
                part = cupy.zeros((len(out), PRODUCTS), np.float64)
                passed = self.pass_chunks(part, some, PRODUCTS, loss=Products(), values=data)
                self._add_chunks(passed, 1.0, part)
                out[:, begin : begin + PRODUCTS] = part
            return out[:, :size]

        return times
