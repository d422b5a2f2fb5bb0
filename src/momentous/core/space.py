"""The vector space of x: its array library, dtype, device and shape, and the one inner product.

Everything that decides something (a restart, a stop) is a sum over the entries of x, and every such
sum goes through :attr:`Space.inner`.  Replace that one function and the methods run on vectors that
are spread over ranks or shards.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

import array_api_compat
import numpy as np
from scipy.linalg.blas import ddot

from momentous.core import blocks
from momentous.core.blocks import BLOCK, ROW

Array = Any
Inner = Callable[[Array, Array], float]

_NO_CONTEXT = contextlib.nullcontext()


class Space:
    """The vector space of x0: arrays of one library, dtype, device and shape.

    Parameters
    ----------
    like : array
        A floating-point array; the space is the one it lives in.
    inner : callable, optional
        ``inner(a, b) -> float``, the sum of products of entries.  The default accumulates in
        float64 whatever the dtype.
    """

    __slots__ = (
        "_block", "_fused", "_low_precision", "_pool", "_unused_count", "counts_writes", "device",
        "dtype", "has_own_inner", "inner", "largest", "library", "plain", "rounding", "shape",
        "size", "xp",
    )  # fmt: skip

    def __init__(self, like: Array, inner: Inner | None = None):
        self.xp = array_api_compat.array_namespace(like)
        self.dtype = like.dtype
        self.device = array_api_compat.device(like)
        self.shape = tuple(like.shape)
        self.size = math.prod(self.shape)
        limits = self.xp.finfo(self.dtype)
        self.rounding = float(limits.eps) / 2  # unit roundoff u
        self.largest = float(limits.max)
        self.library = type(like)
        self._pool: list[np.ndarray] = []
        self._block: np.ndarray | None = None
        # The reference count of an array that only the pool holds.  How many references a call
        # adds depends on the Python version and on debuggers: it is measured, in a call of the
        # same form.
        self._unused_count = _references([np.empty(0)], 0)
        self.has_own_inner = inner is not None
        self._fused = _cupy_kernels(like)
        self._low_precision = self.library is np.ndarray and self.dtype.itemsize < 8
        # Short vectors of doubles: NumPy's own operators are the fastest way.
        self.plain = (
            self.library is np.ndarray
            and self.dtype == np.float64
            and len(self.shape) > 0
            and self.size <= BLOCK
        )
        # PyTorch counts the writes into a tensor (but not in inference mode).
        self.counts_writes = array_api_compat.is_torch_array(like) and not like.is_inference()
        self.inner: Inner = _default_inner(like)
        if self.plain and len(self.shape) == 1 and 0 < self.size <= ROW:
            # SciPy's call of BLAS takes a fifth of the time of NumPy's for short vectors, checks
            # no flags (so it does not warn of overflow) and gives a float of Python's.
            self.inner = ddot
        if inner is not None:
            self.inner = lambda a, b: float(inner(a, b))

    def inners(self, vectors: Sequence[Array], a: Array) -> tuple[float, ...]:
        """The inner products of all vectors with ``a``."""
        return tuple([self.inner(vector, a) for vector in vectors])

    def norm(self, a: Array) -> float:
        """Euclidean norm; not finite as soon as an entry of ``a`` is not."""
        square = self.inner(a, a)
        if 1e-290 > square >= 0.0 and self.rounding < 1e-10:
            # In double precision squares of tiny entries underflow before the entries do.
            return math.sqrt(self.inner(a * 2.0**600, a * 2.0**600)) * 2.0**-600
        return math.sqrt(square) if square >= 0.0 else math.nan

    def distance(self, a: Array, b: Array) -> float:
        """|a - b|; not finite as soon as an entry of the difference is not."""
        square = self.distance_squared(a, b)
        if 1e-290 > square >= 0.0:
            return self.norm(self.combination(a, -1.0, b))  # squares of tiny entries underflow
        return math.sqrt(square) if square >= 0.0 else math.nan

    def distance_squared(self, a: Array, b: Array) -> float:
        """|a - b|^2, without a full-length temporary where the default inner product allows it."""
        if self.plain:
            difference = a - b
            return self.inner(difference, difference)
        if self.library is np.ndarray and self.size > BLOCK and not self.has_own_inner:
            with self._ignore_overflow():
                return blocks.sum_of_squares(a, b)
        if self._fused is not None and not self.has_own_inner:
            return float(self._fused.distance_squared(a, b))
        with self._ignore_overflow():
            difference = a - b
            return self.inner(difference, difference)

    def value_noise(self, value: float) -> float:
        """What rounding may do to the difference of such objective values: 8 u |f|.

        Too little for an objective that is small by cancellation; nothing here knows its terms.
        """
        return 8.0 * self.rounding * abs(value)

    def displaced(self, x: Array, radius: float, seed: int, draw: int) -> Array:
        """x moved at random, uniformly within that radius; the n-th draw has a stream of its own,
        (seed, n), so that it can be had again."""
        random = np.random.default_rng([seed, draw])
        direction = self.from_numpy(random.standard_normal(self.shape))
        length = radius * random.random() ** (1 / self.size) / self.norm(direction)
        return self.combination(x, length, direction)

    def combination(self, x: Array, weight: float, y: Array, z: Array = None) -> Array:
        """x + weight (y - z), or x + weight y without z, as a fresh array."""
        if self.plain:
            return _combined(x, weight, y, z)
        if self.library is np.ndarray and self.size > BLOCK:
            fresh = self._fresh()
            with self._ignore_overflow():
                blocks.combine(fresh, x, weight, y, z)
            return fresh
        if self._fused is not None:
            weight = self.dtype.type(weight)
            if z is None:
                return self._fused.add(x, weight, y)
            return self._fused.add_difference(x, weight, y, z)
        with self._ignore_overflow():
            fresh = _combined(x, weight, y, z)
        # NumPy makes a number of a 0-d array.
        return np.asarray(fresh) if self.library is np.ndarray and not self.shape else fresh

    def weighted_sum(self, weights: Sequence[float], vectors: Sequence[Array]) -> Array:
        """w_1 a_1 + w_2 a_2 + ... as a fresh array, with every entry read once."""
        if self.library is np.ndarray and self.size <= ROW:
            matrix = np.array(vectors).reshape(len(vectors), -1)
            with self._ignore_overflow():
                return (np.asarray(weights, self.dtype) @ matrix).reshape(self.shape)
        if self.library is np.ndarray:
            fresh = self._fresh() if self.size > BLOCK else np.empty(self.shape, self.dtype)
            with self._ignore_overflow():
                blocks.add_up(fresh, weights, vectors)
            return fresh
        total = vectors[0] * weights[0]
        for weight, vector in zip(weights[1:], vectors[1:], strict=True):
            total = self.combination(total, weight, vector)
        return total

    def stepped(self, x: Array, weight: float, y: Array, origin: Array) -> tuple[Array, float]:
        """z = x + weight y as a fresh array, and |z - origin|^2, in one pass where possible."""
        if self.library is np.ndarray and self.size > BLOCK and not self.has_own_inner:
            fresh = self._fresh()
            with self._ignore_overflow():
                square = blocks.combine(fresh, x, weight, y, None, origin, self._scratch())
                return fresh, square
        fresh = self.combination(x, weight, y)
        return fresh, self.distance_squared(fresh, origin)

    def move_towards(self, a: Array, b: Array, weight: float) -> Array:
        """a + weight (b - a), written into ``a`` where the library allows it."""
        if self.library is np.ndarray and self.size > BLOCK:
            blocks.move(a, b, weight, self._scratch().view(self.dtype))
            return a
        change = b - a
        change *= weight
        a += change
        return a

    def _ignore_overflow(self) -> contextlib.AbstractContextManager[None]:
        """In low precision a step that overflows is an answer, and nothing to warn of.

        (In double precision the norm of the gradient overflows long before the step.)
        """
        return np.errstate(over="ignore", invalid="ignore") if self._low_precision else _NO_CONTEXT

    def _fresh(self) -> np.ndarray:
        """An array to write to: one made here before that nobody refers to any more, or a new one.

        Memory fresh from the system costs more to touch than the arithmetic done in it.
        """
        for i in range(len(self._pool)):
            if _references(self._pool, i) == self._unused_count:
                self._pool[i].flags.writeable = True
                return self._pool[i]
        fresh = np.empty(self.shape, self.dtype)
        self._pool.append(fresh)
        return fresh

    def _scratch(self) -> np.ndarray:
        """Room for a block in float64 (or longer numbers), made once."""
        if self._block is None:
            self._block = np.empty(BLOCK, np.result_type(self.dtype, np.float64))
        return self._block

    def release(self) -> None:
        """Let go of the arrays that were kept for reuse."""
        self._pool.clear()

    def copy(self, a: Array) -> Array:
        """A fresh array with the entries of ``a``."""
        if self.library is np.ndarray and self.size > BLOCK:
            fresh = self._fresh()
            np.copyto(fresh, a)
            return fresh
        if self.library is np.ndarray:
            return np.array(a, dtype=self.dtype, order="C")
        return self.xp.asarray(a, copy=True)

    def from_numpy(self, a: np.ndarray) -> Array:
        """The array of this space that has the entries of the NumPy array ``a``."""
        if self.library is np.ndarray:
            return np.asarray(a, dtype=self.dtype)
        return self.xp.asarray(a.reshape(self.shape), dtype=self.dtype, device=self.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.describe() == other.describe()

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> dict[str, Any]:
        """Shape and dtype in plain words, for messages and files."""
        return {"shape": list(self.shape), "dtype": str(self.dtype).rsplit(".", 1)[-1]}


def to_numpy(a: Array) -> np.ndarray:
    """The entries of any array as a NumPy array, without a copy where the library allows it."""
    if isinstance(a, np.ndarray):
        return a
    if array_api_compat.is_torch_array(a):
        a = a.detach().cpu()
        # NumPy has no bfloat16; float32 holds each of its values exactly.
        return np.asarray(a.float().numpy() if str(a.dtype) == "torch.bfloat16" else a.numpy())
    if array_api_compat.is_cupy_array(a):
        return np.asarray(a.get())
    host: np.ndarray = np.asarray(a)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def set_writable(a: Array, writable: bool) -> None:
    """Guard (or release) a NumPy array: user code that writes into x fails loudly, not silently."""
    if type(a) is np.ndarray:
        a.setflags(write=writable)  # less than half the time of `flags.writeable =`


def _default_inner(like: Array) -> Inner:
    if isinstance(like, np.ndarray):
        return blocks.inner
    on_host = "cpu" in str(array_api_compat.device(like)).lower()  # also TFRT_CPU_0, CPU_DEVICE
    if on_host:
        return lambda a, b: blocks.inner(to_numpy(a), to_numpy(b))
    if array_api_compat.is_jax_array(like):
        return _partial_sums_inner
    fused = _cupy_kernels(like)
    if fused is not None:
        return cast(Inner, fused.inner)
    return _device_inner


def _combined(x: Array, weight: float, y: Array, z: Array) -> Array:
    if z is None:
        # One operation in place of two, with the same bits, for the two weights that most have.
        if weight == 1.0:
            return x + y
        if weight == -1.0:
            return x - y
        fresh = y * weight
    else:
        fresh = y - z
        fresh *= weight
    fresh += x
    return fresh


def _cupy_kernels(like: Array) -> Any:
    """`momentous.core.cupy_kernels` for arrays of CuPy in single or double precision, or None."""
    if not array_api_compat.is_cupy_array(like) or like.dtype.name not in ("float32", "float64"):
        return None
    return import_module("momentous.core.cupy_kernels")


def _references(pool: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(pool[i])


def _device_inner(a: Array, b: Array) -> float:
    """Float64 accumulation on the device, in blocks large enough to keep an accelerator busy."""
    xp = array_api_compat.array_namespace(a)
    a, b, block = xp.reshape(a, (-1,)), xp.reshape(b, (-1,)), 1 << 24
    total = xp.asarray(0.0, dtype=xp.float64, device=array_api_compat.device(a))
    for i in range(0, a.shape[0], block):
        end = min(i + block, a.shape[0])
        p, q = a[i:end], b[i:end]
        total = total + xp.sum(xp.astype(p, xp.float64) * xp.astype(q, xp.float64))
    return float(total)


def _partial_sums_inner(a: Array, b: Array) -> float:
    """For JAX on an accelerator, where float64 may be switched off: the device sums rows of 1024
    products (by a tree), the host adds the rows in float64."""
    xp = array_api_compat.array_namespace(a)
    if a.dtype.itemsize < 4:
        a, b = xp.astype(a, xp.float32), xp.astype(b, xp.float32)
    products = xp.reshape(a, (-1,)) * xp.reshape(b, (-1,))
    whole = products.shape[0] // 1024 * 1024
    rows = xp.sum(xp.reshape(products[:whole], (-1, 1024)), axis=1)
    tail = products[whole:]
    return float(np.sum(to_numpy(rows), dtype=np.float64)) + float(
        np.sum(to_numpy(tail), dtype=np.float64)
    )
