"""The vector space of x: its array library, dtype, device and shape, and the one inner product.

Everything that decides something (a restart, a stop) is a sum over the entries of x, and every such
sum, alone or with others at once, goes through ``total``.  Replace it and the methods run on
vectors that are spread over ranks or shards.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import array_api_compat
import numpy as np
from scipy.linalg.blas import ddot

from momentous.core import blocks, passes
from momentous.core.blocks import BLOCK, ROW
from momentous.core.passes import MOST, Pass, padded

Array = Any
Inner = Callable[[Array, Array], float]
Total = Callable[[np.ndarray], np.ndarray]

# Of this square, or a smaller one, tiny entries may be missing: their squares underflow.
TINY_SQUARE = 1e-290
DRAWN = 1 << 16  # numbers that are drawn from one stream
_NO_CONTEXT = contextlib.nullcontext()


class Space:
    """The vector space of x0: arrays of one library, dtype, device and shape.

    Parameters
    ----------
    like : array
        A floating-point array; the space is the one it lives in.
    total : callable, optional
        ``total(sums) -> sums`` for vectors that are spread over ranks: it adds up, over ranks, the
        sums of products that one operation has made, in a short array of float64.
    offset, dimension : int, optional
        Where this part of the vector begins, and how many entries there are on all ranks.
    """

    __slots__ = (
        "_blocked", "_low_precision", "_passes", "_passes_in_blocks", "_pool", "_scratch",
        "_total", "_unused_count", "agree", "box", "counts_writes", "device", "dimension",
        "dtype", "flat", "fuses", "inner", "is_part", "largest", "library", "machine", "offset",
        "penalty", "plain", "rounding", "shape", "size", "xp",
    )  # fmt: skip

    def __init__(
        self,
        like: Array,
        total: Total | None = None,
        *,
        offset: int = 0,
        dimension: int | None = None,
    ):
        self.xp = array_api_compat.array_namespace(like)
        self.dtype = like.dtype
        self.device = array_api_compat.device(like)
        self.shape = tuple(like.shape)
        self.size = math.prod(self.shape)
        self.dimension = self.size if dimension is None else dimension
        self.offset, self.is_part = offset, total is not None
        limits = self.xp.finfo(self.dtype)
        self.rounding = float(limits.eps) / 2  # unit roundoff u
        self.largest = float(limits.max)
        self.library = type(like)
        self.machine: Any = None  # of rules, made where the first one runs
        self.box: Any = None  # `core.box.Box`, where x has bounds
        self.penalty: Any = None  # `core.penalties.Penalty`, where f has a simple term beside it
        self.agree: Any = None  # on ranks, what raises where their penalty or bounds differ
        self._pool: list[np.ndarray] = []
        self._scratch: list[np.ndarray] = []  # blocks for what a pass makes on its way
        # The reference count of an array that only the pool holds.  How many references a call
        # adds depends on the Python version and on debuggers: it is measured, in a call of the
        # same form.
        self._unused_count = _references([np.empty(0)], 0)
        self._total = total
        self._passes = None if self.library is np.ndarray else passes.device_passes(like)
        # Is `compute` better than its parts one by one?
        self.fuses = self._passes is not None or self._total is not None
        # Long vectors in the memory of the host are handled block by block.
        self._blocked = self.size > BLOCK and (self.library is np.ndarray or _is_host_tensor(like))
        self._low_precision = self.library is np.ndarray and self.dtype.itemsize < 8
        # Short vectors of doubles: NumPy's own operators are the fastest way.
        self.plain = (
            self.library is np.ndarray
            and self.dtype == np.float64
            and len(self.shape) > 0
            and self.size <= BLOCK
        )
        self.flat = self.plain and len(self.shape) == 1
        self._passes_in_blocks = self._blocked or (self.plain and self.size > ROW)
        # PyTorch counts the writes into a tensor (but not in inference mode).
        self.counts_writes = array_api_compat.is_torch_array(like) and not like.is_inference()
        self.inner: Inner = _local_inner(like)  # in float64 whatever the dtype
        if self.flat and 0 < self.size <= ROW:
            # SciPy's call of BLAS takes a fifth of the time of NumPy's for short vectors, checks
            # no flags (so it does not warn of overflow) and gives a float of Python's.
            self.inner = ddot
        if self._passes is not None:
            self.inner = lambda a, b: self.compute(passes.INNER, (a, b))[1][0]
        elif self._total is not None:
            local = self.inner
            self.inner = lambda a, b: self._totalled([local(a, b)])[0]

    def compute(
        self,
        work: Pass,
        vectors: Sequence[Array],
        numbers: Sequence[float] = (),
        value: Any = None,
        skip: int = 0,
    ) -> tuple[tuple[Array, ...], tuple[float, ...], Any]:
        """The new vectors and the sums of a pass; every entry is read once where possible.

        A ``value`` that it `brings` comes to the host in one transfer with the sums; otherwise it
        is to be a float already.  The first ``skip`` sums are not wanted.
        """
        if self.plain and self._total is None and not self._passes_in_blocks:
            made, products = work.formula(*vectors, *numbers)
            return made, tuple([self.inner(a, b) for a, b in products[skip:]]), value
        if self._passes is not None:
            brought = None if isinstance(value, float) else value
            made, answer = self._passes.start(work, vectors, numbers, brought)
            sums, found = answer()
            return made, self._totalled(sums[skip:]), value if brought is None else found
        made, sums = self._compute_here(work, vectors, numbers, skip)
        return made, self._totalled(sums), value

    def _compute_here(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[float], skip: int = 0
    ) -> tuple[tuple[Array, ...], list[float]]:
        """`compute` without the sum over ranks, on the host or by single operations."""
        with self._ignore_overflow():
            if self._passes_in_blocks:
                given = [self._on_host(a) for a in vectors]
                fresh = [self._fresh() for _ in range(work.made)]
                sums = blocks.run(work, fresh, given, numbers, skip, self._scratch)
                return tuple(map(self._from_host, fresh)), sums
            made, products = work.formula(*vectors, *numbers)
            if self.library is np.ndarray and not self.shape:  # NumPy makes numbers of 0-d arrays
                made = tuple([np.asarray(a) for a in made])
            inner = _local_inner(vectors[0])
            return made, [inner(a, b) for a, b in products[skip:]]

    def start(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[float] = ()
    ) -> tuple[tuple[Array, ...], Callable[[], tuple[float, ...]]]:
        """`compute` without the wait: the new vectors, and what gives the sums."""
        if self._passes is None:
            made, sums, _ = self.compute(work, vectors, numbers)
            return made, lambda: sums
        made, answer = self._passes.start(work, vectors, numbers, None)
        return made, lambda: self._totalled(answer()[0])

    def brings(self, value: object) -> bool:
        """Can `compute` bring this value to the host along with its sums?"""
        return self._passes is not None and self._passes.brings(value)

    def _totalled(self, sums: Sequence[float] | np.ndarray) -> tuple[float, ...]:
        """Local sums, added up over ranks: the one place where that is done."""
        if self._total is not None and len(sums):
            sums = self._total(np.asarray(sums, np.float64))
        return tuple(sums.tolist() if isinstance(sums, np.ndarray) else sums)

    def inners(self, vectors: Sequence[Array], a: Array) -> tuple[float, ...]:
        """The inner products of all vectors with ``a``."""
        if not self.fuses or not vectors:
            return tuple([self.inner(vector, a) for vector in vectors])
        if self._passes is None:
            return self._totalled(
                self._compute_here(passes.inners(len(vectors)), (a, *vectors), ())[1]
            )
        groups = [tuple(vectors[i : i + MOST]) for i in range(0, len(vectors), MOST)]
        full = [(a, *padded(group)) for group in groups]
        start = self._passes.start
        started = [start(passes.inners(len(each) - 1), each, (), None)[1] for each in full]
        sums: list[float] = []
        for group, answer in zip(groups, started, strict=True):
            # As many on every rank, however long its part of x is.
            sums += answer()[0][: len(group)]
        return self._totalled(sums)

    def totals(self, sums: Sequence[float]) -> tuple[float, ...]:
        """Sums over this part of x, added up over ranks."""
        return self._totalled([float(each) for each in sums])

    def each(self, formula: Callable[..., Array], *vectors: Array) -> Array:
        """What ``formula(xp, *vectors)`` makes, entry by entry, in the library of x."""
        if self.library is np.ndarray:
            if self.size > ROW:
                return blocks.each(formula, vectors)
            if not self.shape:  # NumPy makes numbers of 0-d arrays
                return np.asarray(formula(np, *vectors))
            return formula(np, *vectors)
        return formula(self.xp, *vectors)

    def dot(self, formula: Callable[..., tuple[Array, Array]], *vectors: Array) -> float:
        """The inner product of the two vectors that the formula makes, entry by entry."""
        long = self.library is np.ndarray and self.size > ROW
        if long and self.dtype == np.float64:
            return self._totalled([blocks.dot(formula, vectors)])[0]
        return self.inner(*formula(self.xp, *vectors))

    def norm(self, a: Array) -> float:
        """Euclidean norm; not finite as soon as an entry of ``a`` is not."""
        square = self.inner(a, a)
        return math.sqrt(square) if square >= TINY_SQUARE else self.norm_from(square, a)

    def norm_from(self, square: float, a: Array) -> float:
        """The norm of ``a``, given its square."""
        if TINY_SQUARE > square >= 0.0 and self.rounding < 1e-10:
            # In double precision such squares underflow before the entries do.
            return math.sqrt(self.inner(a * 2.0**600, a * 2.0**600)) * 2.0**-600
        return math.sqrt(square) if square >= 0.0 else math.nan

    def distance(self, a: Array, b: Array) -> float:
        """|a - b|; not finite as soon as an entry of the difference is not."""
        square = self.distance_squared(a, b)
        if TINY_SQUARE > square >= 0.0:
            return self.norm(self.combination(a, -1.0, b))  # squares of tiny entries underflow
        return math.sqrt(square) if square >= 0.0 else math.nan

    def distance_squared(self, a: Array, b: Array) -> float:
        """|a - b|^2, without a full-length temporary where the default inner product allows it."""
        if self.plain:
            difference = a - b
            return self.inner(difference, difference)
        return self.compute(passes.DISTANCE, (a, b))[1][0]

    def value_noise(self, value: float) -> float:
        """What rounding may do to the difference of such objective values: 8 u |f|.

        Too little for an objective that is small by cancellation; nothing here knows its terms.
        """
        return 8.0 * self.rounding * abs(value)

    def displaced(self, x: Array, radius: float, seed: int, draw: int) -> Array:
        """x moved at random, uniformly within that radius; the n-th draw has a stream of its own,
        (seed, n), so that it can be had again."""
        random = np.random.default_rng([seed, draw])
        random.standard_normal(min(DRAWN, self.dimension))  # the first block of the direction
        direction = self.normal(seed, draw)
        length = radius * random.random() ** (1 / self.dimension) / self.norm(direction)
        return self.combination(x, length, direction)

    def normal(self, *key: int) -> Array:
        """Independent normal numbers, the same whatever the number of ranks: this rank's part of
        a vector that is drawn block by block, each block from a stream (key, block)."""
        drawn, end = np.empty(self.size), self.offset + self.size
        for start in range(self.offset // DRAWN * DRAWN, end, DRAWN):
            random = np.random.default_rng([*key, start // DRAWN])
            block = random.standard_normal(min(DRAWN, self.dimension - start))
            first, last = max(start, self.offset), min(start + DRAWN, end)
            drawn[first - self.offset : last - self.offset] = block[first - start : last - start]
        return self.from_numpy(drawn.reshape(self.shape))

    def combination(self, x: Array, weight: float, y: Array, z: Array = None) -> Array:
        """x + weight (y - z), or x + weight y without z, as a fresh array."""
        if self.plain:
            return _combined(x, weight, y, z)
        if z is None:
            return self.compute(passes.ADD, (x, y), (weight,))[0][0]
        return self.compute(passes.ADD_DIFFERENCE, (x, y, z), (weight,))[0][0]

    def weighted_sum(self, weights: Sequence[float], vectors: Sequence[Array]) -> Array:
        """w_1 a_1 + w_2 a_2 + ... as a fresh array, with every entry read once."""
        if self.library is np.ndarray and self.size <= ROW:
            matrix = np.array(vectors).reshape(len(vectors), -1)
            with self._ignore_overflow():
                return (np.asarray(weights, self.dtype) @ matrix).reshape(self.shape)
        given, left = list(weights), list(vectors)
        while self._passes is not None and len(left) > MOST:
            total = self.compute(passes.weighted_sum(MOST), left[:MOST], given[:MOST])[0][0]
            given, left = [1.0, *given[MOST:]], [total, *left[MOST:]]
        group = left if self._passes is None else padded(left)
        given += [0.0] * (len(group) - len(left))
        return self.compute(passes.weighted_sum(len(group)), group, given)[0][0]

    def direction(
        self, x: Array, weights: Sequence[float], vectors: Sequence[Array]
    ) -> tuple[Array, Array, Callable[[], tuple[float, ...]]]:
        """z = x + w_1 a_1 + w_2 a_2 + ...: d = z - x, z, and what gives <a_1, d> and |d|^2."""
        first, rows, given = vectors[0], tuple(vectors[1:]), [*weights]
        if len(rows) > MOST:
            rest = self.weighted_sum(given[MOST:], rows[MOST - 1 :])
            rows, given = (*rows[: MOST - 1], rest), [*given[:MOST], 1.0]
        rows = padded(rows)
        given += [0.0] * (1 + len(rows) - len(given))
        (d, z), along = self.start(passes.direction(1 + len(rows)), (x, first, *rows), given)
        return d, z, along

    def stepped(self, x: Array, weight: float, y: Array, origin: Array) -> tuple[Array, float]:
        """z = x + weight y as a fresh array, and |z - origin|^2, in one pass where possible."""
        (made,), (square,), _ = self.compute(passes.STEPPED, (x, y, origin), (weight,))
        return made, square

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
        name = self.describe()["dtype"]
        fresh = np.empty(self.shape, self.dtype if self.library is np.ndarray else name)
        self._pool.append(fresh)
        return fresh

    def _on_host(self, a: Array) -> np.ndarray:
        """The memory of an array of NumPy, or of PyTorch on the host."""
        return np.asarray(a if self.library is np.ndarray else a.numpy())

    def _from_host(self, a: np.ndarray) -> Array:
        """The array of this space that has the memory of ``a``."""
        return a if self.library is np.ndarray else import_module("torch").from_numpy(a)

    def release(self) -> None:
        """Let go of the arrays that were kept for reuse."""
        self._pool.clear()
        self._scratch.clear()

    def whole(self, a: Array) -> np.ndarray:
        """The entries of ``a`` on all ranks as one flat array of NumPy: for short vectors."""
        part = to_numpy(a).reshape(-1)
        if not self.is_part:
            return part
        entries = np.zeros(self.dimension)
        entries[self.offset : self.offset + self.size] = part
        return np.array(self._totalled(entries))

    def part(self, entries: np.ndarray) -> Array:
        """The array of this space with its part of the entries of a whole vector."""
        mine = entries.reshape(-1)[self.offset : self.offset + self.size]
        return self.from_numpy(mine.reshape(self.shape))

    def copy(self, a: Array) -> Array:
        """A fresh array with the entries of ``a``."""
        if self._blocked:
            fresh = self._fresh()
            np.copyto(fresh, self._on_host(a))
            return self._from_host(fresh)
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
        """Shape and dtype in plain words, for messages and files.

        A vector that is spread over ranks is one flat one.
        """
        shape = [self.dimension] if self.is_part else list(self.shape)
        return {"shape": shape, "dtype": str(self.dtype).rsplit(".", 1)[-1]}


def host_memory() -> float:
    """All that the host has, in bytes; without end where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


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


def _local_inner(like: Array) -> Inner:
    if isinstance(like, np.ndarray):
        return blocks.inner
    on_host = "cpu" in str(array_api_compat.device(like)).lower()  # also TFRT_CPU_0, CPU_DEVICE
    if on_host:
        return lambda a, b: blocks.inner(to_numpy(a), to_numpy(b))
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


def _is_host_tensor(like: Array) -> bool:
    """Is this a tensor of PyTorch whose memory NumPy can work on?"""
    return (
        array_api_compat.is_torch_array(like)
        and like.device.type == "cpu"
        and str(like.dtype) in ("torch.float32", "torch.float64")
    )


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
