"""The kernels as CUDA source, compiled by NVRTC once per size, number type and loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from momentous.lowrank.backends.base import FULL_STEP
from momentous.lowrank.backends.cuda.arrays import cupy
from momentous.lowrank.backends.sums import DAMPING, LEAST
from momentous.lowrank.losses import Loss
from momentous.lowrank.losses.base import Numbers, Triple
from momentous.lowrank.losses.formula import Formula

Entry = Callable[[Numbers, Numbers, tuple[float, ...]], Triple]
FOLDER = Path(__file__).with_name("kernels")
TILE = 8
LARGEST_SIZE = 258  # rank 256, a bias and a constant
WARP_SIZE = 64  # parameters up to which a warp solves a row
SOLVE_RESIDENT = 4  # blocks of such warps per processor
# Registers that hold the sums of a row: beyond these the tiles take over.
SUMS_IN_REGISTERS = 190
# Registers of a block that solves one row: a processor has 65536, and a thread needs some 40 beside
# its tile.
TILE_REGISTERS = 65_000

# Of the pass over all entries: rounds of entries at once, and blocks per processor, at least.
PASS_STEPS, PASS_RESIDENT = 4, 8


def _pass_for(name: str, entry: Entry) -> type[Loss]:
    """A loss of which a pass over the entries is wanted for its slopes or curvatures."""
    return type(name, (Loss,), {"name": name, "entry": staticmethod(entry)})


# Sums of products of features: with the values as curvatures, and where all of these are 1.
Weights = _pass_for("weights", lambda z, x, _: (0.0, x * z, x))
UnitWeights = _pass_for("unit weights", lambda z, x, _: (0.0, z, 1.0))
# Products with a sparse matrix, whose numbers are the values: the gradient is one.
Products = _pass_for("products", lambda z, x, _: (0.0, x, 0.0))
# The same for a matrix of ones.
UnitProducts = _pass_for("unit products", lambda z, x, _: (0.0, 1.0, 0.0))
# Predictions: the curvatures.
Scores = _pass_for("scores", lambda z, x, _: (0.0, 0.0, z))


class Module:
    """A compiled module whose kernels are looked up once."""

    def __init__(self, code: str):
        self._raw = cupy.RawModule(code=code, options=("--std=c++17",))
        self._found: dict[str, cupy.RawKernel] = {}

    def get_function(self, name: str) -> cupy.RawKernel:
        """The kernel of that name."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._raw.get_function(name)
        return found


class RowKernels(NamedTuple):
    """The kernels of half a sweep, and what they ask of the arrays."""

    module: Module
    size: int
    stride: int  # numbers in a row of the features
    offset_at: int  # where the offset is among them
    partial: int  # sums per chunk
    tiled: bool
    solves: bool  # False: a row's system is too large for one block
    splits: int  # blocks per chunk
    threads: int  # of a block of "gram"
    solvers: int  # of a block of "solve"
    solved: int  # rows of such a block


def entry_source(loss: Loss) -> str:
    """What `Loss.entry` and `Loss.error` do, in CUDA."""

    def error(z: Numbers, x: Numbers, low: Numbers, high: Numbers) -> Numbers:
        return loss.plain.error(z, x, (low, high))

    names = {"x": "given.value", "w": "given.weight"} if loss.weighted else {"x": "given"}
    names |= {f"p{k}": f"parameters[{k}]" for k in range(len(loss.parameters))}
    named = "".join(f"const A {name} = A({one}); " for name, one in names.items())
    observed = (
        "struct alignas(2 * sizeof(T)) X { T value, weight; }" if loss.weighted else "typedef T X"
    )
    return (
        f"{observed};\n"
        "__device__ inline Entry entry(A z, X given, const double* parameters) {\n    "
        f"{named}{loss.formula().in_c('A')}\n}}\n"
        "__device__ inline double error_of(double z, double x, double low, double high) {\n    "
        f"{Formula.of(error, 'z', 'x', 'low', 'high').in_c('double')}\n}}\n"
    )


def check_size(size: int) -> None:
    """Raise where a row has more numbers than the kernels are made for."""
    if size > LARGEST_SIZE:
        raise ValueError(
            f"device='cuda' is for ranks up to 256, and a row has {size} numbers here; take "
            "device='cpu'"
        )


def entry_kernels(
    size: int, dtype: DTypeLike, loss: Loss, stored: DTypeLike | None = None, curved: bool = False
) -> Module:
    """The module with the pass over all entries; ``stored`` is the type of the other factor."""
    check_size(size)
    return _compiled(_device(), ("sums.cu", "entries.cu"), (
        ("T", _c_type(dtype)), ("A", _c_type(dtype)), ("SIZE", str(size)),
        ("F", _c_type(stored or dtype)), ("CURVED", str(int(curved))),
        ("PASS_STEPS", str(PASS_STEPS)), ("PASS_RESIDENT", str(PASS_RESIDENT)),
    ), entry_source(loss))  # fmt: skip


def step_kernels(size: int, dtype: DTypeLike) -> Module:
    """The module of conjugate gradients; rows are packed in whole pieces of 16 bytes."""
    stride = -(-size * np.dtype(dtype).itemsize // 16) * 16 // np.dtype(dtype).itemsize
    return _compiled(_device(), ("rows.cu", "conjugate.cu"), (
        ("T", _c_type(dtype)), ("A", _c_type(dtype)), ("SIZE", str(size)),
        ("STRIDE", str(stride)), ("FULL_STEP", repr(FULL_STEP)),
    ), "")  # fmt: skip


def row_kernels(
    size: int, dtype: DTypeLike, sums: DTypeLike, loss: Loss, offset: bool
) -> RowKernels:
    """The kernels of half a sweep, with sums of a given type."""
    names = np.dtype(dtype).name, np.dtype(sums).name
    return _row_kernels(_device(), size, *names, loss, offset)


@cache
def _row_kernels(
    device: int, size: int, dtype: str, sums: str, loss: Loss, offset: bool
) -> RowKernels:
    check_size(size)
    per_vector, width = 16 // np.dtype(dtype).itemsize, np.dtype(sums).itemsize
    in_registers = (size * (size + 3) // 2 + 1) * width // 4
    tiled = size > 16 or in_registers > SUMS_IN_REGISTERS
    across = -(-size // TILE)
    tiles, padded = across * (across + 1) // 2, across * TILE
    if tiled:
        stride, offset_at = padded + per_vector * offset, padded
        partial = tiles * TILE**2 + (size + 5) // 4 * 4
    else:
        stride, offset_at = -(-(size + offset) // per_vector) * per_vector, size
        partial = (size * (size + 3) // 2 + 5) // 4 * 4
    by_warps = tiled and size <= WARP_SIZE and width == 4
    solves = not tiled or tiles * (TILE**2 * width // 4 + 40) <= TILE_REGISTERS
    splits = -(-tiles // 256) if tiled else 1
    per_block = -(-tiles // splits)
    shared = next(g for g in (32, 16, 8, 4, 2, 1) if g == 1 or per_block * g <= 192)
    defines = (
        ("T", _c_type(dtype)), ("A", _c_type(sums)), ("SIZE", str(size)),
        ("STRIDE", str(stride)), ("OFFSET", str(int(offset))),
        ("UNIT", str(int(loss.unit_curvature))), ("CUT", str(int(loss.self_concordant))),
        ("QUADRATIC", str(int(loss.quadratic))), ("DENSE", repr(float(loss.dense_weight))),
        ("DAMPING", repr(DAMPING)), ("LEAST", repr(LEAST)), ("FULL_STEP", repr(FULL_STEP)),
        ("SOLVE_RESIDENT", str(SOLVE_RESIDENT)),
    )  # fmt: skip
    files = ["async.cu", "rows.cu", "tiled_rows.cu" if tiled else "small_rows.cu", "chunks.cu"]
    if tiled and solves:
        files.append("warp_solve.cu" if by_warps else "tiled_solve.cu")
    solvers, solved = (128, 4) if by_warps else (-(-max(tiles, padded) // 32) * 32, 1)
    return RowKernels(
        _compiled(device, tuple(files), defines, entry_source(loss)),
        size,
        stride,
        offset_at,
        partial,
        tiled,
        solves,
        splits,
        -(-per_block * shared // 32) * 32 if tiled else 128,
        *((solvers, solved) if tiled else (64, 64)),
    )


def plain_kernels(dtype: DTypeLike) -> Module:
    """The module of what has no size and no loss: packing rows, solving blocks."""
    return _compiled(_device(), ("sums.cu", "plain.cu"), (
        ("T", _c_type(dtype)), ("A", _c_type(dtype)), ("SIZE", "1"),
    ), "")  # fmt: skip


@cache
def _compiled(
    device: int, files: tuple[str, ...], defines: tuple[tuple[str, str], ...], loss: str
) -> Module:
    parts = [(FOLDER / name).read_text() for name in files]
    common = (FOLDER / "common.cu").read_text()
    named = "".join(f"#define {name} {value}\n" for name, value in defines)
    return Module(named + common + loss + "".join(parts))


def _device() -> int:
    return int(cupy.cuda.Device().id)


def _c_type(dtype: DTypeLike) -> str:
    return {2: "unsigned short", 4: "float", 8: "double"}[np.dtype(dtype).itemsize]
