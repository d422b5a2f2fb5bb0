"""Whose array is x: its library, dtype, device and shape, and the one inner product.

Everything that decides something (a restart, a stop) is a sum over the entries of x, and every such
sum goes through :attr:`Space.inner`.  Replace that one function and the methods run on vectors that
are spread over ranks or shards.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import array_api_compat
import numpy as np

Array = Any
Inner = Callable[[Array, Array], float]

# Large NumPy vectors are handled a block at a time: it stays in the cache, and neither the float64
# copy of a float32 vector nor the difference of two vectors ever exists in full.
BLOCK = 1 << 17
# Sums are made of dot products of this length.  BLAS libraries keep to one thread for them, so a
# sum does not depend on how many threads there are.
ROW = 1 << 13


_NOTHING = contextlib.nullcontext()


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
        "_block",
        "_fresh_count",
        "_immutable",
        "_library",
        "_loud",
        "_pool",
        "_replaced",
        "_unused_count",
        "counts_writes",
        "device",
        "dtype",
        "inner",
        "rounding",
        "shape",
        "size",
        "xp",
    )

    def __init__(self, like: Array, inner: Inner | None = None):
        self.xp = array_api_compat.array_namespace(like)
        self.dtype = like.dtype
        self.device = array_api_compat.device(like)
        self.shape = tuple(like.shape)
        self.size = math.prod(self.shape)
        self.rounding = float(self.xp.finfo(self.dtype).eps) / 2  # unit roundoff u
        self._library = type(like)
        self._pool: list[np.ndarray] = []
        self._block: np.ndarray | None = None
        # The reference counts of an array that only the pool holds, and of one just returned to
        # admit().  How many references a call adds depends on the Python version and on debuggers,
        # so they are measured, in calls of the same form.
        self._unused_count = _references([np.empty(0)], 0)
        self._fresh_count = _Admission().admit(np.empty(0), "")
        self._replaced = inner is not None
        self._loud = self._library is np.ndarray and self.dtype.itemsize < 8
        self._immutable = array_api_compat.is_jax_array(like)
        # PyTorch counts the writes into a tensor (but not in inference mode).
        self.counts_writes = array_api_compat.is_torch_array(like) and not like.is_inference()
        self.inner: Inner = _default_inner(like)
        if inner is not None:
            self.inner = lambda a, b: float(inner(a, b))

    def inners(self, vectors: Sequence[Array], a: Array) -> tuple[float, ...]:
        """The inner products of all vectors with ``a``."""
        if self.size <= ROW and self.inner is _numpy_inner and self.dtype == np.float64:
            return tuple([float(np.vdot(vector, a)) for vector in vectors])  # the same, but faster
        return tuple([self.inner(vector, a) for vector in vectors])

    def norm(self, a: Array) -> float:
        """Euclidean norm; not finite as soon as an entry of ``a`` is not."""
        square = self.inner(a, a)
        if 1e-290 > square >= 0.0 and self.rounding < 1e-10:
            # In double precision squares of tiny entries underflow before the entries do.
            return math.sqrt(self.inner(a * 2.0**400, a * 2.0**400)) * 2.0**-400
        return math.sqrt(square) if square >= 0.0 else math.nan

    def distance_squared(self, a: Array, b: Array) -> float:
        """|a - b|^2, without a full-length temporary where the default inner product allows it."""
        if self._library is np.ndarray and self.size > BLOCK and not self._replaced:
            with self._quietly():
                return _sum_of_squares(a, b)
        with self._quietly():
            difference = a - b
            return self.inner(difference, difference)

    def value_noise(self, *values: float) -> float:
        """What rounding may do to the difference of such objective values: 8 u |f|.

        Too little for an objective that is small by cancellation; nothing here knows its terms.
        """
        return 8.0 * self.rounding * max(abs(value) for value in values)

    def displaced(self, x: Array, radius: float, seed: int, draw: int) -> Array:
        """x moved at random, uniformly within that radius; the n-th draw has a stream of its own,
        (seed, n), so that it can be had again."""
        random = np.random.default_rng([seed, draw])
        direction = self.from_numpy(random.standard_normal(self.shape))
        length = radius * random.random() ** (1 / self.size) / self.norm(direction)
        return self.combination(x, length, direction)

    def combination(self, x: Array, weight: float, y: Array, z: Array = None) -> Array:
        """x + weight (y - z), or x + weight y without z, as a fresh array."""
        if self._library is np.ndarray and self.size > BLOCK:
            fresh = self._fresh()
            with self._quietly():
                _combine_blocks(fresh, x, weight, y, z)
            return fresh
        with self._quietly():
            if z is None:
                fresh = y * weight
            else:
                fresh = y - z
                fresh *= weight
            fresh += x
        # NumPy makes a number of a 0-d array.
        return np.asarray(fresh) if self._library is np.ndarray and not self.shape else fresh

    def weighted_sum(self, weights: Sequence[float], vectors: Sequence[Array]) -> Array:
        """w_1 a_1 + w_2 a_2 + ... as a fresh array, with every entry read once."""
        if self._library is np.ndarray and self.size <= ROW:
            matrix = np.array(vectors).reshape(len(vectors), -1)
            with self._quietly():
                return (np.asarray(weights, self.dtype) @ matrix).reshape(self.shape)
        if self._library is np.ndarray:
            fresh = self._fresh() if self.size > BLOCK else np.empty(self.shape, self.dtype)
            with self._quietly():
                _add_up_blocks(fresh, weights, vectors)
            return fresh
        total = vectors[0] * weights[0]
        for weight, vector in zip(weights[1:], vectors[1:], strict=True):
            total = self.combination(total, weight, vector)
        return total

    def stepped(self, x: Array, weight: float, y: Array, origin: Array) -> tuple[Array, float]:
        """z = x + weight y as a fresh array, and |z - origin|^2, in one pass where possible."""
        if self._library is np.ndarray and self.size > BLOCK and not self._replaced:
            fresh = self._fresh()
            with self._quietly():
                square = _combine_blocks(fresh, x, weight, y, None, origin, self._scratch())
                return fresh, square
        fresh = self.combination(x, weight, y)
        return fresh, self.distance_squared(fresh, origin)

    def move_towards(self, a: Array, b: Array, weight: float) -> Array:
        """a + weight (b - a), written into ``a`` where the library allows it."""
        if self._library is np.ndarray and self.size > BLOCK:
            scratch = self._scratch().view(self.dtype)
            for p, q in _blocks(a, b):
                change = scratch[: p.size]
                np.subtract(q, p, out=change)
                change *= weight
                p += change
            return a
        change = b - a
        change *= weight
        a += change
        return a

    def _quietly(self) -> contextlib.AbstractContextManager[None]:
        """In low precision a step that overflows is an answer, not an accident to warn of.

        (In double precision the norm of the gradient overflows long before the step.)
        """
        return np.errstate(over="ignore", invalid="ignore") if self._loud else _NOTHING

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
        if self._library is np.ndarray and self.size > BLOCK:
            fresh = self._fresh()
            np.copyto(fresh, a)
            return fresh
        if self._library is np.ndarray:
            return np.array(a, dtype=self.dtype, order="C")
        return self.xp.asarray(a, copy=True)

    def from_numpy(self, a: np.ndarray) -> Array:
        """The array of this space that has the entries of the NumPy array ``a``."""
        if self._library is np.ndarray:
            return np.asarray(a, dtype=self.dtype)
        return self.xp.asarray(a.reshape(self.shape), dtype=self.dtype, device=self.device)

    def admit(self, raw: Any, source: str) -> Array:
        """An array that user code returned, checked, as one that only we hold.

        User code may write all its answers into one buffer, or return x itself.  Where nobody but
        us refers to a NumPy array it is taken as it is; otherwise it is copied.
        """
        if (
            type(raw) is self._library is np.ndarray
            and raw.dtype == self.dtype
            and raw.shape == self.shape
        ):
            alone = raw.base is None and sys.getrefcount(raw) == self._fresh_count
            mine = alone and raw.flags.owndata and raw.flags.c_contiguous
            return raw if mine else self.copy(raw)
        raw = self._checked(raw, source)
        if self._immutable:
            return raw
        return self.copy(raw.detach() if getattr(raw, "requires_grad", False) else raw)

    def _checked(self, raw: Any, source: str) -> Array:
        if raw is None:
            raise TypeError(f"{source} returned None, not an array of shape {self.shape}")
        if self._library is np.ndarray and (
            not array_api_compat.is_array_api_obj(raw) or isinstance(raw, np.generic)
        ):
            # Lists, tuples and plain numbers carry no dtype of their own: take them as SciPy does.
            try:
                raw = np.asarray(raw)
            except ValueError:
                raise TypeError(
                    f"{source} returned a {type(raw).__name__} that is not an array of numbers"
                ) from None
            if raw.dtype.kind in "iufb":
                raw = raw.astype(self.dtype)
        if not array_api_compat.is_array_api_obj(raw) or not self._same_library(raw):
            raise TypeError(
                f"{source} returned {_kind(type(raw))}, but x0 is {_kind(self._library)}; "
                "return the library of x0, or pass x0 in the library of the answer"
            )
        if tuple(raw.shape) != self.shape:
            raise ValueError(
                f"{source} returned shape {tuple(raw.shape)}, but x has shape {self.shape}; "
                "it must have one entry for every entry of x"
            )
        if raw.dtype != self.dtype:
            raise TypeError(
                f"{source} returned dtype {raw.dtype}, but x0 has dtype {self.dtype}; "
                "cast one of them: momentous keeps the dtype of x0 throughout"
            )
        if array_api_compat.device(raw) != self.device:
            raise ValueError(
                f"{source} returned an array on {array_api_compat.device(raw)}, "
                f"but x0 is on {self.device}"
            )
        return raw

    def _same_library(self, raw: Any) -> bool:
        # JAX hands out several classes for its arrays, NumPy allows subclasses: compare namespaces.
        return array_api_compat.array_namespace(raw) is self.xp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.describe() == other.describe()

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> dict[str, Any]:
        """Shape and dtype in plain words, for messages and files."""
        return {"shape": list(self.shape), "dtype": str(self.dtype).rsplit(".", 1)[-1]}


def starting_point(x0: Any) -> Array:
    """x0 as a private floating-point array: a copy, so that the user's own is never written to.

    Numbers and lists become NumPy arrays of at least one dimension, integers become floats, as in
    SciPy; what cannot be minimised over (complex numbers, text, objects) is refused.
    """
    if array_api_compat.is_array_api_obj(x0):
        if getattr(x0, "requires_grad", False):
            x0 = x0.detach()
        if isinstance(x0, np.ndarray | np.generic):
            x0 = np.array(np.ma.getdata(x0), subok=False)
    else:
        try:
            x0 = np.atleast_1d(np.asarray(x0))
        except ValueError as error:
            raise ValueError(f"x0 is not an array of numbers: {error}") from None
    xp = array_api_compat.array_namespace(x0)
    if isinstance(x0, np.ndarray) and x0.dtype.kind not in "biuf":
        raise TypeError(f"x0 has dtype {x0.dtype}; momentous minimises over real numbers only")
    if xp.isdtype(x0.dtype, "complex floating"):
        raise TypeError(
            f"x0 has dtype {x0.dtype}; split it into real and imaginary parts, "
            "momentous minimises over real numbers only"
        )
    if not xp.isdtype(x0.dtype, "real floating"):
        x0 = xp.astype(x0, xp.asarray(0.0).dtype)
    if isinstance(x0, np.ndarray):
        return np.array(x0, dtype=x0.dtype.newbyteorder("="), order="C", copy=True)
    return xp.asarray(x0, copy=True)


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
        a.flags.writeable = writable


def _default_inner(like: Array) -> Inner:
    if isinstance(like, np.ndarray):
        return _numpy_inner
    on_host = "cpu" in str(array_api_compat.device(like)).lower()  # also TFRT_CPU_0, CPU_DEVICE
    if on_host:
        return lambda a, b: _numpy_inner(to_numpy(a), to_numpy(b))
    if array_api_compat.is_jax_array(like):
        return _partial_sums_inner
    return _device_inner


def _numpy_inner(a: np.ndarray, b: np.ndarray) -> float:
    if a.dtype == np.float64:
        if a.size <= ROW:
            return float(np.vdot(a, b))
        return _dot_by_rows(a.reshape(-1), b.reshape(-1))
    if a is b:
        return _sum_of_squares(a)
    return sum(_dot_by_rows(p.astype(np.float64), q.astype(np.float64)) for p, q in _blocks(a, b))


def _sum_of_squares(a: np.ndarray, b: np.ndarray | None = None) -> float:
    """|a|^2 or |a - b|^2, one float64 block at a time."""
    buffer = np.empty(min(BLOCK, a.size))
    total = 0.0
    for p, q in _blocks(a, a if b is None else b):
        block = buffer[: p.size]
        if b is None:
            np.copyto(block, p)
        else:
            np.subtract(p, q, out=block, dtype=np.float64)
        total += _dot_by_rows(block, block)
    return total


def _dot_by_rows(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b> of flat float64 vectors: dot products of rows of fixed length, then their sum."""
    whole = a.size // ROW * ROW
    rows_a, rows_b = a[:whole].reshape(-1, ROW), b[:whole].reshape(-1, ROW)
    return float(np.vecdot(rows_a, rows_b).sum()) + float(np.dot(a[whole:], b[whole:]))


def _combine_blocks(
    fresh: np.ndarray,
    x: np.ndarray,
    weight: float,
    y: np.ndarray,
    z: np.ndarray | None,
    origin: np.ndarray | None = None,
    scratch: np.ndarray | None = None,
) -> float:
    """fresh = x + weight (y - z), each entry read and written once; returns |fresh - origin|^2."""
    fresh, x, y = fresh.reshape(-1), x.reshape(-1), y.reshape(-1)
    z = None if z is None else z.reshape(-1)
    total = 0.0
    origin = None if origin is None else origin.reshape(-1)
    for i in range(0, fresh.size, BLOCK):
        block = slice(i, i + BLOCK)
        out = fresh[block]
        if z is None:
            np.multiply(y[block], weight, out=out)
        else:
            np.subtract(y[block], z[block], out=out)
            out *= weight
        out += x[block]
        if origin is not None and scratch is not None:
            moved = scratch[: out.size]
            np.subtract(out, origin[block], out=moved, dtype=np.float64)
            total += _dot_by_rows(moved, moved)
    return total


def _add_up_blocks(
    fresh: np.ndarray, weights: Sequence[float], vectors: Sequence[np.ndarray]
) -> None:
    """fresh = sum of weights times vectors; the block that is added to stays in the cache."""
    fresh, vectors = fresh.reshape(-1), [vector.reshape(-1) for vector in vectors]
    length = BLOCK // 8
    scratch = np.empty(min(length, fresh.size), fresh.dtype)
    for i in range(0, fresh.size, length):
        block = slice(i, i + length)
        out = fresh[block]
        term = scratch[: out.size]
        np.multiply(vectors[0][block], weights[0], out=out)
        for weight, vector in zip(weights[1:], vectors[1:], strict=True):
            np.multiply(vector[block], weight, out=term)
            out += term


def _blocks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    a, b = a.reshape(-1), b.reshape(-1)
    for i in range(0, a.size, BLOCK):
        yield a[i : i + BLOCK], b[i : i + BLOCK]


def _references(pool: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(pool[i])


class _Admission:
    def admit(self, raw: np.ndarray, source: str) -> int:
        return sys.getrefcount(raw)


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


def _kind(library: type) -> str:
    return f"a {library.__module__.split('.')[0]} {library.__name__}"
