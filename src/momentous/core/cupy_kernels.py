"""Vector operations for CuPy in one kernel each: entries are read once, no temporary is written.

It is imported only where there are arrays of CuPy.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from momentous.io.optional import LazyModule

cupy: Any = LazyModule("cupy", "cuda", "an array of CuPy")
BLOCKS, THREADS = 1024, 256

SUMS = r"""
__device__ void write_block_sum(double sum, double* out) {
    __shared__ double room[8];
    for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0.0;
        for (int k = 0; k < 8; k++) sum += room[k];
        out[blockIdx.x] = sum;
    }
}

extern "C" __global__ void inner(long long size, const T* a, const T* b, double* out) {
    double sum = 0.0;
    for (long long k = blockIdx.x * 256ll + threadIdx.x; k < size; k += 256ll * gridDim.x)
        sum += double(a[k]) * double(b[k]);
    write_block_sum(sum, out);
}

extern "C" __global__ void distance_squared(long long size, const T* a, const T* b, double* out) {
    double sum = 0.0;
    for (long long k = blockIdx.x * 256ll + threadIdx.x; k < size; k += 256ll * gridDim.x) {
        T difference = a[k] - b[k];
        sum += double(difference) * double(difference);
    }
    write_block_sum(sum, out);
}
"""


@cache
def _elementwise(formula: str, *names: str) -> Any:
    given = ", ".join(f"T {name}" for name in names)
    return cupy.ElementwiseKernel(given, "T out", f"out = {formula}", "combination")


def add(x: Any, weight: Any, y: Any) -> Any:
    """x + weight y."""
    return _elementwise("x + w * y", "x", "w", "y")(x, weight, y)


def add_difference(x: Any, weight: Any, y: Any, z: Any) -> Any:
    """x + weight (y - z)."""
    return _elementwise("x + w * (y - z)", "x", "w", "y", "z")(x, weight, y, z)


@cache
def _kernel(name: str, dtype: str, device: int) -> Any:
    number = {"float32": "float", "float64": "double"}[dtype]
    return cupy.RawModule(code=f"typedef {number} T;" + SUMS).get_function(name)


def _sum(name: str, a: Any, b: Any) -> float:
    """One number per block comes back, and they are added here: one small transfer."""
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    blocks = max(1, min(BLOCKS, a.size // (4 * THREADS)))
    out = cupy.empty(blocks, np.float64)
    kernel = _kernel(name, a.dtype.name, cupy.cuda.Device().id)
    kernel((blocks,), (THREADS,), (a.size, a, b, out))
    return float(out.get().sum())


def inner(a: Any, b: Any) -> float:
    """The sum of products, in double precision."""
    return _sum("inner", a, b)


def distance_squared(a: Any, b: Any) -> float:
    """|a - b|^2, summed in double precision."""
    return _sum("distance_squared", a, b)
