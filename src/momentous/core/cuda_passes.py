"""Passes for arrays of CuPy: one CUDA kernel per pass.

Each block of threads adds up its share of the sums in double precision, and the host adds the
shares: one kernel and one transfer per pass, and the same bits every time on the same GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import Pass, add_shares, names, trace
from momentous.io.optional import LazyModule

cupy: Any = LazyModule("cupy", "cuda", "an array of CuPy")
NUMBERS = {"float32": "float", "float64": "double"}
THREADS = 256
BLOCKS = 8  # per multiprocessor, at most
KERNEL = r"""
typedef @T@ T;

extern "C" __global__ void __launch_bounds__(256) pass(
    long long size, @PARAMETERS@
    const void* value, long long value_bytes, double* shares
) {
    @NUMBERS@
    double sums[@S@ + 1];
    #pragma unroll
    for (int i = 0; i < @S@; i++) sums[i] = 0.0;
    #pragma unroll 4
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < size; i += 256ll * gridDim.x) {
        const long long k = @PLACE@;
        @TAKE@
        @LINES@
        @GIVE@
    }
#if @S@
    __shared__ double of_warps[@S@][8];
    #pragma unroll
    for (int i = 0; i < @S@; i++) {
        double sum = sums[i];
        for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
        if (threadIdx.x % 32 == 0) of_warps[i][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < @S@; i += 256) {
        double sum = 0.0;
        for (int k = 0; k < 8; k++) sum += of_warps[i][k];
        shares[i * gridDim.x + blockIdx.x] = sum;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (value_bytes == 4) shares[@S@ * gridDim.x] = *(const float*)value;
        if (value_bytes == 8) shares[@S@ * gridDim.x] = *(const double*)value;
    }
#endif
}
"""


@cache
def source(work: Pass, vectors: int, numbers: int, dtype: str) -> tuple[str, int]:
    """The kernel of a pass in CUDA, and how many sums it makes."""
    given, weights, out = names(work, vectors, numbers)
    lines, made, products = trace(work, given, weights)
    body = [f"const T {line};" for line in lines]
    body += [f"sums[{i}] += double({a}) * double({b});" for i, (a, b) in enumerate(products)]
    parameters = [f"const T* __restrict__ {name}_" for name in given]
    parameters += [f"T* __restrict__ {name}_" for name in out]
    parameters += [f"double {name}_" for name in weights]
    parts = {
        "T": NUMBERS[dtype],
        "S": str(len(products)),
        "PLACE": "size - 1 - i" if work.backwards else "i",
        "PARAMETERS": "".join(f"{parameter}, " for parameter in parameters),
        "NUMBERS": " ".join(f"const T {name} = T({name}_);" for name in weights),
        "TAKE": " ".join(f"const T {name} = {name}_[k];" for name in given),
        "LINES": "\n".join(body),
        "GIVE": " ".join(f"{name}_[k] = {a};" for name, a in zip(out, made, strict=True)),
    }
    text = KERNEL
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text, len(products)


@cache
def _kernel(work: Pass, vectors: int, numbers: int, dtype: str) -> tuple[Any, int]:
    text, sums = source(work, vectors, numbers, dtype)
    return cupy.RawModule(code=text, options=("-std=c++14",)).get_function("pass"), sums


class CudaPasses:
    """Runs passes on arrays of CuPy that are like a given one."""

    def __init__(self, like: Any):
        self._shape, self._dtype, self._size = like.shape, like.dtype, like.size
        self._device = like.device
        most = BLOCKS * self._device.attributes["MultiProcessorCount"]
        self._blocks = max(1, min(most, -(-self._size // THREADS)))

    def brings(self, value: Any) -> bool:
        """Is this a scalar on the GPU that a kernel can read?"""
        return (
            isinstance(value, cupy.ndarray)
            and value.size == 1
            and value.dtype.char in "fd"
            and value.device.id == self._device.id
        )

    def start(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[list[float], float]]]:
        """The new vectors, and a function that waits for the sums and the value."""
        vectors = [a if a.flags.c_contiguous else cupy.ascontiguousarray(a) for a in vectors]
        with self._device:
            kernel, sums = _kernel(work, len(vectors), len(numbers), self._dtype.name)
            made = tuple([cupy.ndarray(self._shape, self._dtype) for _ in range(work.made)])
            shares = cupy.empty(sums * self._blocks + 1, np.float64)
            bytes_of_value = 0 if value is None else value.dtype.itemsize
            given = self._size, *vectors, *made, *map(float, numbers), value, bytes_of_value
            kernel((self._blocks,), (THREADS,), (*given, shares))
        return made, lambda: add_shares(shares.get(), sums) if sums else ([], np.nan)
