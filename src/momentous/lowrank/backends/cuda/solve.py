"""Half a sweep on the device: sums of each chunk, sums of each row, and the rows' systems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike

from momentous.lowrank.backends.base import RowStep
from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.launch import launch, total, weighted_gram
from momentous.lowrank.backends.cuda.layout import Chunks
from momentous.lowrank.backends.cuda.modules import Module, RowKernels
from momentous.lowrank.backends.sums import DensePart, solve_systems
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.losses import Loss

HELD = 1 << 31  # bytes of sums that are held at a time
REGISTERS, SHARED = 65536, 96 << 10  # of a processor; of its shared memory, what caches can spare
PROCESSORS = 16  # the attribute of a device: how many it has


class Range(NamedTuple):
    """Rows whose sums are held at a time, and how the kernels are launched for them."""

    first: int
    rows: int
    first_chunk: int
    chunks: int
    blocks: tuple[int, ...]  # of "gram"
    several: Array  # int32, on the device: the rows that have more than one chunk


def ranges_of(chunks: Chunks, kernels: RowKernels, itemsize: int) -> list[Range]:
    """All rows, in ranges; made once for a side, as asking the device takes its time."""
    firsts = chunks.on_host
    rows, first, found = firsts.size - 1, 0, []
    # Half of what is free where that is less: the sums of few rows at a time will do as well.
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    held = max(1, min(HELD, free // 2) // (kernels.partial * itemsize))
    while first < rows:
        begin, last = int(firsts[first]), rows
        if kernels.tiled:
            last = int(np.searchsorted(firsts, begin + held, side="right")) - 1
            last = min(max(last, first + 1), rows)
        count = int(firsts[last]) - begin
        blocks = (count, kernels.splits) if kernels.tiled else (_resident_blocks(kernels, count),)
        several = chunks.several[slice(*np.searchsorted(chunks.several_on_host, (first, last)))]
        found.append(Range(first, last - first, begin, count, blocks, several))
        first = last
    return found


def _resident_blocks(kernels: RowKernels, chunks: int) -> int:
    """As many blocks as run at a time, a pair of chunks per warp at least."""
    kernel, threads = kernels.module.get_function("gram"), kernels.threads
    processors = cupy.cuda.runtime.deviceGetAttribute(PROCESSORS, cupy.cuda.runtime.getDevice())
    registers = -(-kernel.num_regs // 8) * 8 * threads
    fitting = min(REGISTERS // registers, SHARED // max(1, kernel.shared_size_bytes), 16)
    return int(min(processors * max(1, fitting), -(-chunks * 16 // threads)))


class Passed(NamedTuple):
    """A pass over all entries, chunk by chunk."""

    module: Module
    gradients: Array  # of the left side
    losses: Array
    curvatures: Array  # of each entry, where they were asked for
    bends: Array  # their sums


class EntriesOnDevice(Protocol):
    """A `CudaSide`, for those whom it calls."""

    groups: Compressed
    loss: Loss
    chunks: Chunks
    parameters: Array

    def ranges(self, kernels: RowKernels, itemsize: int) -> list[Range]: ...

    def pass_chunks(
        self, left: Array, right: Array, size: int, with_gradient: bool = True, *,
        loss: Loss | None = None, values: Array | None = None, curved: bool = False,
    ) -> Passed: ...  # fmt: skip


def dense_part(loss: Loss, features: Array, offsets: Array | None) -> DensePart | None:
    """What a loss with a dense part adds to all rows' systems, as arrays on the device."""
    if not loss.dense_weight:
        return None
    gram = weighted_gram(features)
    if offsets is None:
        return DensePart(loss.dense_weight, gram, cupy.zeros(len(gram), np.float64), 0.0)
    far = offsets.astype(np.float64)
    return DensePart(loss.dense_weight, gram, far @ features.astype(np.float64), float(far @ far))


def shorten_steps(
    side: EntriesOnDevice, module: Module, features: Array, changes: Array, current: Array | int,
    reach: Array, solutions: Array,
) -> None:  # fmt: skip
    """Cut Newton's steps short where they go too far; rows with a negative reach are left out."""
    chunks, rows = side.chunks, len(solutions)
    launch(module, "furthest_moves", 32 * chunks.total, (
        chunks.total, chunks.owners, chunks.begins, side.groups.others, features, changes, reach,
    ), 128)  # fmt: skip
    launch(module, "shorten_steps", rows, (rows, reach, changes, current, solutions))


class RowSolver:
    """One call of `Side.solve_rows`, by ranges of rows where the sums of all would not fit."""

    def __init__(
        self,
        side: EntriesOnDevice,
        kernels: RowKernels,
        step: RowStep,
        features: Array,
        sums: DTypeLike,
    ):
        self.side, self.kernels, self.step = side, kernels, step
        self.features, self.sums = features, np.dtype(sums)
        self.rows = int(side.groups.starts.size) - 1

    def run(self) -> tuple[Array, float]:
        """The new rows, and what they say about the objective."""
        side, step, kernels = self.side, self.step, self.kernels
        loss, size = side.loss, kernels.size
        solutions = cupy.empty((self.rows, size), step.features.dtype)
        row_values = cupy.empty(self.rows, np.float64)
        cut = loss.self_concordant
        changes: Array | int = cupy.empty((self.rows, size), self.sums) if cut else 0
        reach: Array | int = cupy.empty(self.rows, self.sums) if cut else 0
        current = 0 if step.current is None else step.current
        dense = dense_part(loss, step.features, step.offsets)
        gram, pull, rest = (0, 0, 0.0) if dense is None else dense[1:]
        for first, count, first_chunk, partial in self._sum_ranges(side.groups.values, current):
            if kernels.solves:
                kernels.module.get_function("solve")(
                    (-(-count // kernels.solved),), (kernels.solvers,),
                    (first, count, first_chunk, side.chunks.firsts, partial, step.weights, current,
                     gram, pull, rest, solutions, changes, reach, row_values),
                )  # fmt: skip
            else:
                rows = slice(first, first + count)
                self._solve_large(
                    rows, first_chunk, partial, dense, solutions, row_values, changes, reach
                )
        if cut:
            shorten_steps(side, kernels.module, self.features, changes, current, reach, solutions)
        return solutions, total(row_values) if step.with_value else 0.0

    def systems(self, values: Array) -> Array:
        """The sums of products alone, weighted with these values: (size, size, rows)."""
        size = self.kernels.size
        out = cupy.zeros((size, size, self.rows), np.float64)
        for first, count, first_chunk, partial in self._sum_ranges(values, 0):
            part = cupy.zeros((size, size, count), np.float64)
            self._unpack(first, count, first_chunk, partial, part)
            out[:, :, first : first + count] = part
        return out

    def _sum_ranges(
        self, values: Array, current: Array | int
    ) -> Iterator[tuple[int, int, int, Array]]:
        """Ranges of rows and their sums: first row, number of rows, first chunk, sums."""
        side, kernels, module = self.side, self.kernels, self.kernels.module
        groups, chunks = side.groups, side.chunks
        for part in side.ranges(kernels, self.sums.itemsize):
            partial = cupy.empty((part.chunks, kernels.partial), self.sums)
            common = groups.others, values, self.features, current, side.parameters, partial
            own: tuple[Array, ...] = chunks.begins, chunks.owners
            if not kernels.tiled:
                own = chunks.order, chunks.bounds, chunks.owners
            if part.chunks:
                module.get_function("gram")(
                    part.blocks, (kernels.threads,),
                    (part.first_chunk, part.chunks, *own, *common),
                )  # fmt: skip
            if part.several.size:
                module.get_function("add_chunks")(
                    (part.several.size, min(64, -(-kernels.partial // 256))), (256,),
                    (part.first_chunk, part.several, chunks.firsts, partial),
                )  # fmt: skip
            yield part.first, part.rows, part.first_chunk, partial

    def _unpack(self, first: int, count: int, first_chunk: int, partial: Array, out: Array) -> None:
        size = self.kernels.size
        launch(self.kernels.module, "unpack", count * size * (size + 1) // 2, (
            first, count, first_chunk, self.side.chunks.firsts, partial, out,
        ))  # fmt: skip

    def _solve_large(
        self, rows: slice[int, int], first_chunk: int, partial: Array, dense: DensePart | None,
        solutions: Array, row_values: Array, changes: Array, reach: Array,
    ) -> None:  # fmt: skip
        """The same as the kernel does, by CuPy's batched solver: for systems beyond a block."""
        step, loss, size = self.step, self.side.loss, self.kernels.size
        count = rows.stop - rows.start
        lower = cupy.zeros((size, size, count), np.float64)
        self._unpack(rows.start, count, first_chunk, partial, lower)
        lower = lower.transpose(2, 0, 1)
        systems = lower + cupy.tril(lower, -1).transpose(0, 2, 1)
        firsts = self.side.chunks.firsts[rows.start : rows.stop + 1]
        some = firsts[:-1] < firsts[1:]
        tails = cupy.zeros((count, size + 2), np.float64)
        begin = partial.shape[1] - (size + 5) // 4 * 4
        tails[some] = partial[firsts[:-1][some] - first_chunk, begin : begin + size + 2]
        b, losses, most = tails[:, :size], tails[:, size], tails[:, size + 1]
        before = cupy.zeros((count, size), np.float64)
        if step.current is not None:
            before += step.current[rows]
        if dense is None:
            before *= some[:, None]
        else:  # all rows' part of the value is in the first one
            systems += dense.weight * dense.gram
            losses[0] += dense.add_to_sides(b, before)
        weights = step.weights[rows].astype(np.float64)
        change, least = solve_systems(
            systems, b - weights * before, weights, before, shortest=loss.quadratic
        )
        row_values[rows] = losses + least
        if loss.self_concordant:
            far = cupy.sum(change * change, axis=1) * most > 3.0
            reach[rows] = cupy.where(far, 0.0, -1.0)
            changes[rows] = change
        solutions[rows] = before + change
