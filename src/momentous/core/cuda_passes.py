"""Passes for arrays of CuPy: one CUDA kernel per pass.

Sums are in double precision.  Each block of threads adds up its share, and the block that ends last
adds the shares in their order: one kernel and one transfer per pass, and the same bits every time
on the same GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import MOST, Pass, names, trace
from momentous.io.optional import LazyModule

cupy: Any = LazyModule("cupy", "cuda", "an array of CuPy")
NUMBERS = {"float32": "float", "float64": "double"}
THREADS = 256
BLOCKS = 8  # per multiprocessor, at most
SUMS = 2 * MOST  # room for sums

KERNEL = r"""
typedef @T@ T;
struct alignas(@W@ * sizeof(T)) Pack { T at[@W@]; };

__device__ double warp_sum(double sum) {
    for (int half = 16; half; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) pass(
    long long size, @PARAMETERS@
    const void* value, long long value_bytes, double* shares, unsigned* ended, double* answer
) {
    @NUMBERS@
    double sums[@S@ + 1];
    #pragma unroll
    for (int i = 0; i < @S@; i++) sums[i] = 0.0;
    const long long first = blockIdx.x * 256ll + threadIdx.x, packs = size / @W@;
    for (long long i = first; i < packs; i += 256ll * gridDim.x) {
        const long long k = @PLACE@;
        @LOAD@
        #pragma unroll
        for (int j = 0; j < @W@; j++) {
            @TAKE@
            @LINES@
            @GIVE@
        }
        @STORE@
    }
    if (first < size - packs * @W@) {  // the entries behind the last pack
        const long long k = packs * @W@ + first;
        @TAKE_ONE@
        @LINES@
        @GIVE_ONE@
    }
#if @S@
    __shared__ double room[@S@][8];
    __shared__ bool last;
    #pragma unroll
    for (int i = 0; i < @S@; i++) {
        const double sum = warp_sum(sums[i]);
        if (threadIdx.x % 32 == 0) room[i][threadIdx.x / 32] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < @S@; i += 256) {
        double sum = 0.0;
        for (int k = 0; k < 8; k++) sum += room[i][k];
        shares[i * gridDim.x + blockIdx.x] = sum;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ended, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    const int lane = threadIdx.x % 32;  // @P@ warps per sum
    for (int warp = threadIdx.x / 32; warp < @S@ * @P@; warp += 8) {
        const int i = warp / @P@, part = warp % @P@;
        double sum = 0.0;
        #pragma unroll 8
        for (int k = part * 32 + lane; k < gridDim.x; k += 32 * @P@)
            sum += __ldcg(shares + i * gridDim.x + k);
        sum = warp_sum(sum);
        if (lane == 0) room[i][part] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < @S@; i += 256) {
        double sum = 0.0;
        for (int k = 0; k < @P@; k++) sum += room[i][k];
        answer[i] = sum;
    }
    if (threadIdx.x == 0) {
        *ended = 0u;
        if (value_bytes == 4) answer[@S@] = *(const float*)value;
        if (value_bytes == 8) answer[@S@] = *(const double*)value;
    }
#endif
}
"""


@cache
def source(work: Pass, vectors: int, numbers: int, dtype: str, width: int) -> tuple[str, int]:
    """The kernel of a pass in CUDA, ``width`` entries at a time; and how many sums it makes."""
    given, weights, out = names(work, vectors, numbers)
    lines, made, products = trace(work, given, weights)
    body = [f"const T {line};" for line in lines]
    body += [f"sums[{i}] += double({a}) * double({b});" for i, (a, b) in enumerate(products)]
    parameters = [f"const T* {name}_" for name in given] + [f"T* {name}_" for name in out]
    parameters += [f"double {name}_" for name in weights]
    parts = {
        "T": NUMBERS[dtype],
        "W": str(width),
        "S": str(len(products)),
        "P": "8421"[min(3, max(0, len(products) - 1).bit_length())],
        "PLACE": "packs - 1 - i" if work.backwards else "i",
        "PARAMETERS": "".join(f"{parameter}, " for parameter in parameters),
        "NUMBERS": " ".join(f"const T {name} = T({name}_);" for name in weights),
        "LOAD": " ".join(f"const Pack p_{name} = ((const Pack*){name}_)[k];" for name in given)
        + " ".join(f" Pack p_{name};" for name in out),
        "TAKE": " ".join(f"const T {name} = p_{name}.at[j];" for name in given),
        "LINES": "\n".join(body),
        "GIVE": " ".join(
            f"p_{name}.at[j] = {a};" for name, a in zip(out, made, strict=True)
        ),
        "STORE": " ".join(f"((Pack*){name}_)[k] = p_{name};" for name in out),
        "TAKE_ONE": " ".join(f"const T {name} = {name}_[k];" for name in given),
        "GIVE_ONE": " ".join(f"{name}_[k] = {a};" for name, a in zip(out, made, strict=True)),
    }  # fmt: skip
    text = KERNEL
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text, len(products)


@cache
def _kernel(work: Pass, vectors: int, numbers: int, dtype: str, width: int) -> tuple[Any, int]:
    text, sums = source(work, vectors, numbers, dtype, width)
    return cupy.RawModule(code=text, options=("-std=c++14",)).get_function("pass"), sums


class CudaPasses:
    """Runs passes on arrays of CuPy that are like a given one."""

    def __init__(self, like: Any):
        self._shape, self._dtype, self._size = like.shape, like.dtype, like.size
        self._device = like.device
        # A kernel, its number of sums and of blocks, by the pass and the entries read at a time.
        self._plans: dict[tuple[str, int], tuple[Any, int, int]] = {}
        with self._device:
            self._processors = self._device.attributes["MultiProcessorCount"]
            self._shares = cupy.empty(SUMS * BLOCKS * self._processors, np.float64)
            self._ended = cupy.zeros(1, np.uint32)

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
        aligned = all(a.data.ptr % 16 == 0 for a in vectors)
        width = 16 // self._dtype.itemsize if aligned else 1  # entries that are read at a time
        with self._device:
            plan = self._plans.get((work.name, width))
            kernel, sums, blocks = plan or self._plan(work, len(vectors), len(numbers), width)
            made = tuple([cupy.ndarray(self._shape, self._dtype) for _ in range(work.made)])
            answer = cupy.empty(sums + 1, np.float64)
            bytes_of_value = 0 if value is None else value.dtype.itemsize
            given = self._size, *vectors, *made, *map(float, numbers), value, bytes_of_value
            kernel((blocks,), (THREADS,), (*given, self._shares, self._ended, answer))

        def read() -> tuple[list[float], float]:
            found = answer.get().tolist() if sums else [np.nan]
            return found[:sums], found[-1]

        return made, read

    def _plan(self, work: Pass, vectors: int, numbers: int, width: int) -> tuple[Any, int, int]:
        kernel, sums = _kernel(work, vectors, numbers, self._dtype.name, width)
        # As many blocks as run at once.
        fit = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            kernel.kernel.ptr, THREADS, 0
        )
        most = max(1, min(fit, BLOCKS)) * self._processors
        blocks = max(1, min(most, -(-self._size // (width * THREADS))))
        plan = self._plans[work.name, width] = kernel, sums, blocks
        return plan
