"""Blocked NumPy kernels: large vectors are handled one block at a time.

A block stays in the cache, and neither the float64 copy of a float32 vector nor the difference of
two vectors ever exists in full.  Sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from momentous.core import passes
from momentous.core.passes import Pass

BLOCK = 1 << 17
# Sums are made of dot products of this length.  BLAS libraries keep to one thread for them, so a
# sum does not depend on how many threads there are.
ROW = 1 << 13


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b>, accumulated in float64."""
    if a.dtype == np.float64:
        if a.size <= ROW:
            return float(np.vdot(a, b))
        return dot_by_rows(a.reshape(-1), b.reshape(-1))
    if a is b:
        return sum_of_squares(a)
    return sum(dot_by_rows(p.astype(np.float64), q.astype(np.float64)) for p, q in blocks(a, b))


def sum_of_squares(a: np.ndarray, b: np.ndarray | None = None) -> float:
    """|a|^2 or |a - b|^2, one float64 block at a time."""
    buffer = np.empty(min(BLOCK, a.size))
    total = 0.0
    for p, q in blocks(a, a if b is None else b):
        block = buffer[: p.size]
        if b is None:
            np.copyto(block, p)
        else:
            np.subtract(p, q, out=block, dtype=np.float64)
        total += dot_by_rows(block, block)
    return total


def each(formula: Callable[..., np.ndarray], vectors: Sequence[np.ndarray]) -> np.ndarray:
    """What ``formula(np, *vectors)`` makes, entry by entry."""
    fresh, flat = np.empty_like(vectors[0]), [a.reshape(-1) for a in vectors]
    made = fresh.reshape(-1)
    for i in range(0, made.size, ROW):
        part = slice(i, i + ROW)
        made[part] = formula(np, *[a[part] for a in flat])
    return fresh


def dot(formula: Callable[..., Sequence[np.ndarray]], vectors: Sequence[np.ndarray]) -> float:
    """The inner product of the two vectors, of doubles, that the formula makes entry by entry."""
    flat, sums = [a.reshape(-1) for a in vectors], []
    for i in range(0, flat[0].size, ROW):
        a, b = formula(np, *[each[i : i + ROW] for each in flat])
        sums.append(np.vdot(a, b))
    return float(np.sum(sums))


def dot_by_rows(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b> of flat float64 vectors: dot products of rows of fixed length, then their sum."""
    whole = a.size // ROW * ROW
    rows_a, rows_b = a[:whole].reshape(-1, ROW), b[:whole].reshape(-1, ROW)
    return float(np.vecdot(rows_a, rows_b).sum()) + float(np.dot(a[whole:], b[whole:]))


def combine(
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
            total += dot_by_rows(moved, moved)
    return total


def add_up(fresh: np.ndarray, weights: Sequence[float], vectors: Sequence[np.ndarray]) -> None:
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


def blocks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The blocks of two vectors side by side."""
    a, b = a.reshape(-1), b.reshape(-1)
    for i in range(0, a.size, BLOCK):
        yield a[i : i + BLOCK], b[i : i + BLOCK]


def run(
    work: Pass,
    fresh: Sequence[np.ndarray],
    vectors: Sequence[np.ndarray],
    numbers: Sequence[float],
    skip: int = 0,
) -> np.ndarray:
    """A pass, block by block: its new vectors into ``fresh``; returns its sums, but for the first
    ones."""
    flat, out = [a.reshape(-1) for a in vectors], [a.reshape(-1) for a in fresh]
    total, length = np.zeros(0), BLOCK // 8
    for i in range(0, flat[0].size, length):
        made, products = work.formula(*(a[i : i + length] for a in flat), *numbers)
        for a, b in zip(out, made, strict=True):
            a[i : i + length] = b
        sums = np.array([inner(a, b) for a, b in products[skip:]])
        total = sums + total if i else sums
    return total


# --- steps with momentum --------------------------------------------------------------------------

Block = Sequence[np.ndarray]


def _momentum(made: Block, given: Block, moved: np.ndarray, w: float, m: float) -> None:
    z, ahead = made
    g, e, x = given
    np.multiply(g, w, out=z)
    z += e
    np.subtract(z, x, out=moved, dtype=np.float64)
    np.multiply(moved if z.dtype == np.float64 else z - x, m, out=ahead)
    ahead += z


def _free_nesterov(
    made: Block, given: Block, moved: np.ndarray, w: float, m: float, share: float
) -> None:
    z, ahead, total = made
    g, _, y, x, points = given
    _momentum((z, ahead), (g, y, x), moved, w, m)
    np.multiply(y, share, out=total)
    total += points


def _free_heavy_ball(
    made: Block, given: Block, moved: np.ndarray, w: float, m: float, share: float
) -> None:
    z, total = made
    g, _, x, x_prev, points = given
    np.subtract(x, x_prev, out=total)
    total *= m
    total += x
    np.multiply(g, w, out=z)
    z += total
    np.subtract(z, x, out=moved, dtype=np.float64)
    np.multiply(x, share, out=total)
    total += points


# These passes end with the sum |x' - x|^2.  How many sums come before it, and how a block is made
# in place, with x' - x in float64 besides: the formula makes arrays on its way, and takes longer.
_STEPS: dict[Pass, tuple[int, Callable[..., None]]] = {
    passes.MOMENTUM: (1, _momentum),
    passes.FREE_NESTEROV: (2, _free_nesterov),
    passes.FREE_HEAVY_BALL: (2, _free_heavy_ball),
}


def is_step(work: Pass, skip: int) -> bool:
    """Does `step` make this pass, of whose sums the first ones are not wanted?"""
    return work in _STEPS and _STEPS[work][0] == skip


def step(
    work: Pass, fresh: Block, vectors: Block, numbers: Sequence[float], scratch: np.ndarray
) -> float:
    """A pass with momentum, block by block; ``scratch`` is room for a block in float64."""
    flat, out = [a.reshape(-1) for a in vectors], [a.reshape(-1) for a in fresh]
    total = 0.0
    for i in range(0, flat[0].size, BLOCK):
        made, given = ([a[i : i + BLOCK] for a in arrays] for arrays in (out, flat))
        moved = scratch[: given[0].size]
        _STEPS[work][1](made, given, moved, *numbers)
        total += dot_by_rows(moved, moved)
    return total
