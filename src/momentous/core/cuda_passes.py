"""Passes on an NVIDIA GPU: one CUDA kernel per pass, for arrays of CuPy and of PyTorch.

CuPy compiles and starts the kernels, also those for tensors of PyTorch.  Sums are in double
precision.  Each block of threads adds up its share, the block that ends last adds the shares in
their order and writes the sums to memory of the host: one kernel and one wait per pass, and the
same bits every time on the same GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import MOST, Pass
from momentous.io.optional import LazyModule

cupy: Any = LazyModule("cupy", "cuda", "an array of CuPy")
NUMBERS = {"float32": "float", "float64": "double"}
THREADS = 256
BLOCKS = 8  # per multiprocessor
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
    for (long long k = first; k < packs; k += 256ll * gridDim.x) {
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
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = warp; i < @S@; i += 8) {
        double sum = 0.0;
        for (int k = lane; k < gridDim.x; k += 32)
            sum += ((volatile double*)shares)[i * gridDim.x + k];
        sum = warp_sum(sum);
        if (lane == 0) answer[i] = sum;
    }
    if (threadIdx.x == 0) {
        *ended = 0u;
        if (value_bytes == 4) answer[@S@] = *(const float*)value;
        if (value_bytes == 8) answer[@S@] = *(const double*)value;
    }
#endif
}
"""


class _Symbol:
    """What stands for a vector or a number when a formula is written out: each operation makes a
    line of CUDA."""

    def __init__(self, text: str, lines: list[str]):
        self.text, self.lines = text, lines

    def _line(self, sign: str, other: _Symbol) -> _Symbol:
        name = f"t{len(self.lines)}"
        self.lines.append(f"const T {name} = {self.text} {sign} {other.text};")
        return _Symbol(name, self.lines)

    def __add__(self, other: _Symbol) -> _Symbol:
        return self._line("+", other)

    def __sub__(self, other: _Symbol) -> _Symbol:
        return self._line("-", other)

    def __mul__(self, other: _Symbol) -> _Symbol:
        return self._line("*", other)


@cache
def source(work: Pass, vectors: int, numbers: int, dtype: str, width: int) -> tuple[str, int]:
    """The kernel of a pass in CUDA, ``width`` entries at a time; and how many sums it makes."""
    lines: list[str] = []
    given = [f"a{i}" for i in range(vectors)]
    weights = [f"w{i}" for i in range(numbers)]
    made, products = work.formula(*(_Symbol(name, lines) for name in (*given, *weights)))
    out = [f"z{i}" for i in range(len(made))]
    added = [
        f"sums[{i}] += double({a.text}) * double({b.text});" for i, (a, b) in enumerate(products)
    ]
    parameters = [f"const T* {name}_" for name in given] + [f"T* {name}_" for name in out]
    parameters += [f"double {name}_" for name in weights]
    parts = {
        "T": NUMBERS[dtype],
        "W": str(width),
        "S": str(len(products)),
        "PARAMETERS": "".join(f"{parameter}, " for parameter in parameters),
        "NUMBERS": " ".join(f"const T {name} = T({name}_);" for name in weights),
        "LOAD": " ".join(f"const Pack p_{name} = ((const Pack*){name}_)[k];" for name in given)
        + " ".join(f" Pack p_{name};" for name in out),
        "TAKE": " ".join(f"const T {name} = p_{name}.at[j];" for name in given),
        "LINES": "\n".join((*lines, *added)),
        "GIVE": " ".join(
            f"p_{name}.at[j] = {a.text};" for name, a in zip(out, made, strict=True)
        ),
        "STORE": " ".join(f"((Pack*){name}_)[k] = p_{name};" for name in out),
        "TAKE_ONE": " ".join(f"const T {name} = {name}_[k];" for name in given),
        "GIVE_ONE": " ".join(f"{name}_[k] = {a.text};" for name, a in zip(out, made, strict=True)),
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
    """Runs passes on arrays that are like a given one."""

    def __init__(self, like: Any):
        self._arrays = _Torch(like) if hasattr(like, "data_ptr") else _Cupy(like)
        self._dtype, self._size = str(like.dtype).rsplit(".", 1)[-1], int(np.prod(like.shape))
        self._device = cupy.cuda.Device(self._arrays.device_id)
        with self._device:
            self._blocks = BLOCKS * self._device.attributes["MultiProcessorCount"]
            self._shares, self._ended = self._arrays.room(SUMS * self._blocks)
            self._answer, self._answer_at = self._arrays.host_room(SUMS + 1)

    def brings(self, value: Any) -> bool:
        """Is this a scalar on the GPU that a kernel can read?"""
        return self._arrays.brings(value)

    def __call__(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], np.ndarray, float]:
        """The new vectors; and once they are there, the sums and the value."""
        arrays = self._arrays
        with self._device:
            vectors = [arrays.contiguous(a) for a in vectors]
            pointers = [arrays.pointer(a) for a in vectors]
            aligned = all(pointer % 16 == 0 for pointer in pointers)
            width = (4 if self._dtype == "float32" else 2) if aligned else 1
            kernel, sums = _kernel(work, len(vectors), len(numbers), self._dtype, width)
            made = tuple([arrays.empty() for _ in range(work.made)])
            size = 0 if value is None else value.dtype.itemsize
            stream = arrays.stream()
            blocks = max(1, min(self._blocks, -(-self._size // (width * THREADS))))
            kernel.kernel(
                (blocks,),
                (THREADS,),
                (
                    self._size, *pointers, *[arrays.pointer(a) for a in made],
                    *[float(number) for number in numbers],
                    arrays.pointer(value) if size else 0, size,
                    self._shares, self._ended, self._answer_at,
                ),
                stream=stream,
            )  # fmt: skip
            if sums:
                stream.synchronize()
        return made, self._answer[:sums].copy(), float(self._answer[sums])


class _Cupy:
    """Arrays of CuPy: pointers, room, streams."""

    def __init__(self, like: Any):
        self.device_id = like.device.id
        self._shape, self._dtype = like.shape, like.dtype
        self._kept: list[Any] = []

    def room(self, size: int) -> tuple[int, int]:
        """Room for numbers, and a counter that is 0."""
        shares, ended = cupy.empty(size, np.float64), cupy.zeros(1, np.uint32)
        self._kept += [shares, ended]
        return shares.data.ptr, ended.data.ptr

    def host_room(self, size: int) -> tuple[np.ndarray, int]:
        """Memory of the host that the GPU can write to."""
        memory = cupy.cuda.alloc_pinned_memory(8 * size)
        self._kept.append(memory)
        return np.frombuffer(memory, np.float64, size), memory.ptr

    def contiguous(self, a: Any) -> Any:
        return cupy.ascontiguousarray(a)

    def pointer(self, a: Any) -> int:
        return int(a.data.ptr)

    def empty(self) -> Any:
        return cupy.empty(self._shape, self._dtype)

    def brings(self, value: Any) -> bool:
        return (
            isinstance(value, cupy.ndarray)
            and value.size == 1
            and value.dtype.name in NUMBERS
            and value.device.id == self.device_id
        )

    def stream(self) -> Any:
        return cupy.cuda.get_current_stream()


class _Torch:
    """Tensors of PyTorch: pointers, room, streams."""

    def __init__(self, like: Any):
        import torch

        self._torch, self._shape = torch, tuple(like.shape)
        self._place = {"dtype": like.dtype, "device": like.device}
        self._device, self.device_id = like.device, like.device.index
        self._kept: list[Any] = []
        self._streams: dict[int, Any] = {}

    def room(self, size: int) -> tuple[int, int]:
        torch, device = self._torch, self._device
        shares = torch.empty(size, dtype=torch.float64, device=device)
        ended = torch.zeros(1, dtype=torch.int32, device=device)
        self._kept += [shares, ended]
        return shares.data_ptr(), ended.data_ptr()

    def host_room(self, size: int) -> tuple[np.ndarray, int]:
        memory = self._torch.empty(size, dtype=self._torch.float64, pin_memory=True)
        self._kept.append(memory)
        return memory.numpy(), memory.data_ptr()

    def contiguous(self, a: Any) -> Any:
        return a.contiguous()

    def pointer(self, a: Any) -> int:
        return int(a.data_ptr())

    def empty(self) -> Any:
        return self._torch.empty(self._shape, **self._place)

    def brings(self, value: Any) -> bool:
        torch = self._torch
        return (
            isinstance(value, torch.Tensor)
            and value.numel() == 1
            and value.dtype in (torch.float32, torch.float64)
            and value.device == self._device
        )

    def stream(self) -> Any:
        pointer = self._torch.cuda.current_stream(self._device).cuda_stream
        if pointer not in self._streams:
            self._streams[pointer] = cupy.cuda.ExternalStream(pointer, self.device_id)
        return self._streams[pointer]
