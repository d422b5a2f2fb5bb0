"""Passes on GPUs for ranks: points, and what travels between ranks, are in the memory of the host.

Entries stay on the GPU.  Factors go there before a pass and what it has found comes back: numbers
as many as the parameters, where the pass itself takes in all entries.  Each rank of a machine has a
GPU of its own, or shares one.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from momentous.io.optional import require
from momentous.lowrank.backends import Backend, RowStep, Side, find_backend
from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.sums import numbers_per_row
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.losses import Loss

if TYPE_CHECKING:
    from momentous.lowrank.backends.cuda import CudaSide

LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def on_host(backend: Backend) -> Backend:
    """A backend for NumPy arrays: that one, or its GPU behind them."""
    return backend if backend.xp is np else HostBackend(backend)


class HostBackend(Backend):
    """The passes of a backend for GPUs, from NumPy arrays to NumPy arrays."""

    name = "cuda"
    conjugate_gradients = False

    def __init__(self, inner: Backend):
        self.inner = inner
        cupy = require("cupy", "cuda", "device='cuda'")
        local = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
        cupy.cuda.Device(int(local) % cupy.cuda.runtime.getDeviceCount()).use()

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return HostSide(self.inner, self.inner.side(groups, loss, threads), loss, groups)

    def side_of(
        self, ratings: Ratings, which: int, loss: Loss, threads: int, other: Side | None
    ) -> Side:
        there = other.there if isinstance(other, HostSide) else None
        side = self.inner.side_of(ratings, which, loss, threads, there)
        return HostSide(self.inner, side, loss, ratings.by_col if which else ratings.by_row)

    def solve_lines(
        self, lines: Floats, weights: Matrix, before: Matrix, *, quadratic: bool
    ) -> tuple[Matrix, float] | None:
        return self._solver.solve_lines(lines, weights, before, quadratic=quadratic)

    @cached_property
    def _solver(self) -> Backend:
        """On the CPU: each rank has few systems."""
        return find_backend()


class HostSide(Side):
    """Entries on the GPU, in ``there``, and on the host."""

    threads = 1

    def __init__(self, backend: Backend, there: Side, loss: Loss, groups: Compressed):
        self.backend, self.there, self.loss, self.groups = backend, there, loss, groups
        self._parts: dict[tuple[int, int], CudaSide] = {}

    def value(self, left: Floats, right: Floats) -> float:
        return float(self.there.value(left, right))

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        xp, to_host = self.backend.xp, self.backend.to_host
        found = xp.zeros(own.shape, own.dtype), xp.zeros(far.shape, far.dtype)
        losses = self.there.add_gradient(xp.asarray(left), xp.asarray(right), scale, *found)
        own += to_host(found[0])
        far += to_host(found[1])
        return float(losses)

    def solve_rows(self, step: RowStep) -> tuple[Floats, float]:
        rows, value = self.there.solve_rows(step)
        return self.backend.to_host(rows), value

    def blocks(self, right: Floats) -> Matrix:
        blocks: Matrix = self.backend.to_host(self.there.blocks(right))
        return blocks.astype(np.float64, copy=False)

    def row_sums(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        """On the GPU for quadratic losses, whose curvatures do not depend on where the rows are."""
        if not self.loss.quadratic:
            return super().row_sums(step, first, last)
        part, size, dtype = self._rows(first, last), step.features.shape[1], step.features.dtype
        xp, features = self.backend.xp, step.features
        left = np.zeros((last - first, size), dtype)
        if step.current is not None:
            left += step.current[first:last]
        if step.offsets is not None:  # z = (p, 1) . (f, o)
            left = np.column_stack([left, np.ones(len(left), dtype)])
            features = np.column_stack([features, step.offsets])
        slopes = xp.zeros(left.shape, dtype)
        losses = part.add_own_gradient(left, features, 1.0, slopes)
        p, q = np.tril_indices(size)
        lines = np.empty((last - first, numbers_per_row(size)), dtype)
        systems = part.blocks(step.features.astype(np.float64))
        lines[:, : p.size] = self.backend.to_host(systems[p, q]).T
        lines[:, p.size :] = -self.backend.to_host(slopes)[:, :size]
        return lines, float(losses)

    def _rows(self, first: int, last: int) -> CudaSide:
        """Some of the rows on the GPU, made once."""
        if (first, last) not in self._parts:
            from momentous.lowrank.backends.cuda import CudaSide

            starts = self.groups.starts[first : last + 1]
            entries = slice(int(starts[0]), int(starts[-1]))
            groups = Compressed(
                starts - starts[0], self.groups.others[entries], self.groups.values[entries]
            )
            self._parts[first, last] = CudaSide(groups, self.loss)
        return self._parts[first, last]
