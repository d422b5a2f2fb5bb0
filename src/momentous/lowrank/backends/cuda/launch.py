"""How kernels are called: threads, padded rows, and Gram matrices."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from momentous.lowrank.backends.cuda.modules import plain_kernels
from momentous.lowrank.losses import Loss

GRAM_BLOCKS = 264


def launch(
    module: Any, name: str, threads: int, arguments: tuple[Any, ...], block: int = 256
) -> None:
    """Run a kernel with at least so many threads."""
    if threads:
        module.get_function(name)((-(-threads // block),), (block,), arguments)


def parameters_of(loss: Loss) -> Any:
    """The loss's parameters on the device; at least one number."""
    return cupy.asarray(loss.parameters or (0.0,), np.float64)


def total(numbers: Any) -> float:
    """The sum of an array of doubles."""
    out = cupy.empty(1, np.float64)
    launch(plain_kernels(numbers.dtype), "add_up", 1024, (
        numbers.size, numbers, 0, 0, 0, 0.0, 0.0, 0.0, out,
    ), 1024)  # fmt: skip
    return float(out.item())


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
    rows, rank = factor.shape
    if factor.strides[1] != factor.dtype.itemsize:
        factor = cupy.ascontiguousarray(factor)
    if weights is not None and weights.strides[0] != factor.strides[0]:
        factor = cupy.ascontiguousarray(factor)
        weights = cupy.ascontiguousarray(cupy.broadcast_to(weights[:, None], factor.shape))
    blocks, pairs = max(1, min(GRAM_BLOCKS, rows // 64)), rank * (rank + 1) // 2
    partial = cupy.empty((blocks, pairs), np.float64)
    module, out = plain_kernels(factor.dtype), cupy.empty((rank, rank), np.float64)
    stride = factor.strides[0] // factor.dtype.itemsize
    launch(module, "weighted_gram", 256 * blocks, (
        rows, rank, stride, factor, 0 if weights is None else weights, partial,
    ))  # fmt: skip
    launch(module, "fold_gram", rank * rank, (blocks, rank, partial, out))
    return out
