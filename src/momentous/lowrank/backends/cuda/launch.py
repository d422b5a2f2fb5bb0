"""How kernels are called: threads, padded rows, and Gram matrices."""

from __future__ import annotations

import threading

import numpy as np

from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.modules import Module, plain_kernels
from momentous.lowrank.losses import Loss

Arguments = tuple[Array | float, ...]
GRAM_BLOCKS, SUM_BLOCKS = 264, 256
_own = threading.local()


def launch(module: Module, name: str, threads: int, arguments: Arguments, block: int = 256) -> None:
    """Run a kernel with at least so many threads."""
    if threads:
        module.get_function(name)((-(-threads // block),), (block,), arguments)


def second_stream() -> cupy.cuda.Stream:
    """A stream beside the current one, of this thread alone."""
    device = int(cupy.cuda.Device().id)
    streams: dict[int, cupy.cuda.Stream] = _own.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = cupy.cuda.Stream(non_blocking=True)
    return streams[device]


def mark(stream: cupy.cuda.Stream) -> cupy.cuda.Event:
    """An event that is reached when all that was launched on the stream so far has ended."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


def parameters_of(loss: Loss) -> Array:
    """The loss's parameters on the device; at least one number."""
    return cupy.asarray(loss.parameters or (0.0,), np.float64)


def total(numbers: Array) -> float:
    """The sum of an array of doubles."""
    return _sum_of_blocks("add_up", numbers, ())


def weighted_squares(weights: Array, factor: Array) -> float:
    """The sum of all ``w p^2``, in double precision."""
    factor = cupy.ascontiguousarray(factor)
    return _sum_of_blocks("weighted_squares", weights, (factor,))


def _sum_of_blocks(name: str, numbers: Array, arguments: Arguments) -> float:
    """One sum per block, written to the host's memory by the device, and added here."""
    sums = HostSums(numbers.size)
    kernel = plain_kernels(numbers.dtype).get_function(name)
    kernel((sums.blocks,), (256,), (numbers.size, numbers, *arguments, sums.address))
    return sums.total()


class HostSums:
    """One sum per block over so many numbers, in memory of the host that kernels write to."""

    def __init__(self, numbers: int):
        self.blocks = max(1, min(SUM_BLOCKS, -(-numbers // 1024)))
        self._memory = cupy.cuda.alloc_pinned_memory(8 * self.blocks)
        self.address = self._memory.ptr

    def total(self) -> float:
        """Their sum, when all that was launched before has ended."""
        cupy.cuda.get_current_stream().synchronize()
        return float(np.frombuffer(self._memory, np.float64, self.blocks).sum())


def pack_rows(
    factor: Array, stride: int = 0, offset_at: int = -1, offsets: Array | None = None
) -> Array:
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


def weighted_gram(factor: Array, weights: Array | None = None) -> Array:
    """``sum_i w_i u_i u_i'`` in double precision; the factor may be columns of a larger array."""
    if factor.strides[1] != factor.dtype.itemsize:
        factor = cupy.ascontiguousarray(factor)
    if weights is not None and weights.strides[0] != factor.strides[0]:
        factor = cupy.ascontiguousarray(factor)
        weights = cupy.ascontiguousarray(cupy.broadcast_to(weights[:, None], factor.shape))
    return grams_of(factor, len(factor), weights)[0]


def grams_of(factor: Array, cut: int, weights: Array | None = None) -> Array:
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
