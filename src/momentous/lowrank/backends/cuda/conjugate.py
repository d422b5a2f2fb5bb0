"""Half a sweep by conjugate gradients on the device: a pass over the entries per step, and one
kernel over the rows' own vectors."""

from __future__ import annotations

import math

import numpy as np

from momentous.io.types import FloatClass, Matrix
from momentous.lowrank.backends.base import RowStep
from momentous.lowrank.backends.conjugate import least_curvature
from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.launch import launch, pack_rows, total
from momentous.lowrank.backends.cuda.modules import Module, UnitWeights, Weights, step_kernels
from momentous.lowrank.backends.cuda.solve import (
    EntriesOnDevice,
    Passed,
    dense_part,
    shorten_steps,
)


def pass_slopes(side: EntriesOnDevice, step: RowStep) -> Passed:
    """Slopes, losses, and curvatures unless all are 1, where the rows are."""
    left, right = step.current, step.features
    if left is None:
        left = cupy.zeros_like(step.weights)
    if step.offsets is not None:  # z = (p, 1) . (f, o)
        left = cupy.column_stack([left, cupy.ones(len(left), left.dtype)])
        right = cupy.column_stack([right, step.offsets])
    curved = not side.loss.unit_curvature
    return side.pass_chunks(pack_rows(left), pack_rows(right), left.shape[1], curved=curved)


def pass_products(
    side: EntriesOnDevice, features: Array, size: int, curvatures: Array | None, directions: Array
) -> Passed:
    """``sum_j c_ij (d_i . f_j) f_j`` of each chunk; features and directions are packed."""
    loss = UnitWeights() if curvatures is None else Weights()
    return side.pass_chunks(directions, features, size, loss=loss, values=curvatures)


def curved_rows(side: EntriesOnDevice, passed: Passed, module: Module) -> Array:
    """The sum of the curvatures of each row."""
    if side.loss.unit_curvature:
        return cupy.diff(side.groups.starts).astype(np.float64)
    out = cupy.empty(side.groups.starts.size - 1, np.float64)
    launch(module, "add_bends", out.size, (out.size, side.chunks.firsts, passed.bends, out))
    return out


def improve_rows(
    side: EntriesOnDevice, step: RowStep, squares: Matrix, steps: int, sums: FloatClass
) -> tuple[Array, float]:
    """`Side.improve_rows`, for arrays on the device.

    Where the ridge is such that ``sums`` are in single precision, products are made of features in
    half precision: half the bytes to read.  That is a system of other features, each off by 2^-11
    of its size at most, and the right-hand side is not touched: so steps lead to the same point,
    and lower the same parabola as long as the ridge is above some 1e-6 of the trace.
    """
    loss, dtype, (rows, size) = side.loss, step.features.dtype, step.weights.shape
    features = pack_rows(step.features)
    stride = features.shape[1]
    module, firsts = step_kernels(size, dtype), side.chunks.firsts
    slopes = pass_slopes(side, step)
    value, curved = total(slopes.losses), curved_rows(side, slopes, module)
    curvatures = None if loss.unit_curvature else slopes.curvatures
    there, dense_squares = cupy.asarray(squares), cupy.zeros(size, np.float64)
    current = 0 if step.current is None else step.current
    dense, added, dense_gram = dense_part(loss, step.features, step.offsets), 0, None
    if dense is not None:
        before = cupy.zeros((rows, size), np.float64)
        if step.current is not None:
            before += step.current
        pulls = cupy.zeros_like(before)
        value += dense.add_to_sides(pulls, before)
        added = pack_rows(pulls.astype(dtype))
        dense_gram = cupy.zeros((stride, stride), dtype)
        dense_gram[:size, :size] = dense.weight * dense.gram
        dense_squares = dense.weight * dense.gram.diagonal()

    rest, direction = (cupy.empty((rows, stride), dtype) for _ in range(2))
    changes, solutions = (cupy.empty((rows, size), dtype) for _ in range(2))
    sizes = cupy.empty((rows, 2), np.float64)
    system = curved, step.weights, there, dense_squares
    launch(module, "begin_steps", 32 * rows, (
        rows, slopes.gradients.shape[1], firsts, slopes.gradients, *system, added, current, rest,
        direction, sizes,
    ))  # fmt: skip
    scale, read = 1.0, features
    if dtype == np.float32 and sums is np.float32:
        # The largest feature of N entries is at most sqrt(N) of the root mean square.
        largest = float(np.max(squares, initial=0.0))
        scale = 2.0 ** round(math.log2(largest) / 2) if 0.0 < largest < math.inf else 1.0
        read = (features / dtype.type(scale)).astype(np.float16)
    for k in range(steps):
        products = pass_products(side, read, size, curvatures, direction)
        if dense_gram is not None:
            added = direction @ dense_gram
        launch(module, "take_step", 32 * rows, (
            rows, firsts, products.gradients, scale * scale, *system, added, current,
            least_curvature(dtype), int(k == 0), int(k + 1 == steps), rest, direction, changes,
            sizes, solutions,
        ))  # fmt: skip
    if loss.self_concordant:
        shorten_steps(side, module, features, changes, current, cupy.zeros(rows, dtype), solutions)
    return solutions, value
