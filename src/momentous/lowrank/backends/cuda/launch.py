"""How kernels are called: threads, padded rows, and Gram matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from momentous.lowrank.backends.cuda.arrays import cupy
from momentous.lowrank.backends.cuda.modules import plain_kernels
from momentous.lowrank.losses import Loss

GRAM_BLOCKS, SUM_BLOCKS = 264, 256


def launch(
    module: Any, name: str, threads: int, arguments: tuple[Any, ...], block: int = 256
) -> None:
    """Run a kernel with at least so many threads."""
    if threads:
        module.get_function(name)((-(-threads // block),), (block,), arguments)


def parameters_of(loss: Loss) -> Any:
    """The loss's parameters on the device; at least one number."""
    return cupy.asarray(loss.parameters or (0.0,), np.float64)


def total(numbers: Any, grams: Any = None, weights: tuple[float, ...] = (0.0, 0.0, 0.0)) -> float:
    """The sum of an array of doubles, and of the terms of an objective that Gram matrices give."""
    rank, given = (0, 0) if grams is None else (grams.shape[1], grams)
    return _sum_of_blocks("add_up", numbers, (rank, given, *weights))


def weighted_squares(weights: Any, factor: Any) -> float:
    """The sum of all ``w p^2``, in double precision."""
    factor = cupy.ascontiguousarray(factor)
    return _sum_of_blocks("weighted_squares", weights, (factor,))


def _sum_of_blocks(name: str, numbers: Any, arguments: tuple[Any, ...]) -> float:
    """One sum per block comes back, and they are added here: one small transfer."""
    blocks = max(1, min(SUM_BLOCKS, -(-numbers.size // 1024)))
    out = cupy.empty(blocks, np.float64)
    kernel = plain_kernels(numbers.dtype).get_function(name)
    kernel((blocks,), (256,), (numbers.size, numbers, *arguments, out))
    return float(out.get().sum())


def packed(factor: Any, stride: int = 0, offset_at: int = -1, offsets: Any = None) -> Any:
    """Rows of whole pieces of 16 bytes, beginning at such a piece, as the kernels read them."""
    rows, width = factor.shape
    per_vector = 16 // factor.dtype.itemsize
    stride = stride or -(-width // per_vector) * per_vector
    if stride == width and factor.flags.c_contiguous and factor.data.ptr % 16 == 0:
        return factor
    factor, to = cupy.ascontiguousarray(factor), cupy.empty((rows, stride), factor.dtype)
    launch(plain_kernels(factor.dtype), "pack", to.size, (
        rows, width, stride, offset_at, factor, 0 if offsets is None else offsets, to,
    ))  # fmt: skip
    return to


def weighted_gram(factor: Any, weights: Any = None) -> Any:
    """``sum_i w_i u_i u_i'`` in double precision; the factor may be columns of a larger array."""
    if factor.strides[1] != factor.dtype.itemsize:
        factor = cupy.ascontiguousarray(factor)
    if weights is not None and weights.strides[0] != factor.strides[0]:
        factor = cupy.ascontiguousarray(factor)
        weights = cupy.ascontiguousarray(cupy.broadcast_to(weights[:, None], factor.shape))
    return grams_of(factor, len(factor), weights)[0]


def grams_of(factor: Any, cut: int, weights: Any = None) -> Any:
    """The same for the rows before the cut, and for those after it."""
    rows, rank = factor.shape
    first = max(1, min(GRAM_BLOCKS, cut // 64))
    blocks = first + (max(1, min(GRAM_BLOCKS, (rows - cut) // 64)) if cut < rows else 0)
    pairs, parts = rank * (rank + 1) // 2, 1 + (cut < rows)
    partial = cupy.empty((blocks, pairs), np.float64)
    module, out = plain_kernels(factor.dtype), cupy.empty((parts, rank, rank), np.float64)
    stride = factor.strides[0] // factor.dtype.itemsize
    launch(module, "weighted_gram", 256 * blocks, (
        cut, rows, first, rank, stride, factor, 0 if weights is None else weights, partial,
    ))  # fmt: skip
    launch(module, "fold_gram", 32 * parts * pairs, (first, blocks, rank, partial, out))
    return out
