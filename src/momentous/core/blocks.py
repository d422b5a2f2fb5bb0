"""Blocked NumPy kernels: large vectors are handled one block at a time.

A block stays in the cache, and neither the float64 copy of a float32 vector nor the difference of
two vectors ever exists in full.  Sums do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from momentous.core.passes import Pass, names, trace

BLOCK = 1 << 17
# Sums are made of dot products of this length.  BLAS libraries keep to one thread for them, so a
# sum does not depend on how many threads there are.
ROW = 1 << 13
UFUNCS = {"+": np.add, "-": np.subtract, "*": np.multiply}


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b>, accumulated in float64."""
    if a.dtype == np.float64 and a.size <= ROW:
        return float(np.vdot(a, b))
    p, q, total = a.reshape(-1), b.reshape(-1), 0.0
    if a.dtype == np.float64:
        return dot_by_rows(p, q)
    for i in range(0, a.size, BLOCK):
        block = p[i : i + BLOCK].astype(np.float64)
        total += dot_by_rows(block, block if a is b else q[i : i + BLOCK].astype(np.float64))
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


class Program(NamedTuple):
    """A pass as operations in place on a list: its vectors, numbers, new vectors, then scratch."""

    operations: list[tuple[np.ufunc, int, int, int]]  # what, of which two, into which
    products: list[tuple[int, int]]
    scratch: int  # how many blocks of it


@cache
def program(work: Pass, vectors: int, numbers: int) -> Program:
    """The operations of a pass.

    A new vector holds what it is made of before it is complete, and scratch is used again as soon
    as nothing needs it: what stays in the cache decides how long a pass takes.
    """
    given, weights, _ = names(work, vectors, numbers)
    lines, made, products = trace(work, given, weights)
    place = {name: i for i, name in enumerate((*given, *weights, *made))}
    first, kept = len(place), {*made, *itertools.chain(*products)}
    last = {part: i for i, (_, *parts, _) in enumerate(lines) for part in parts}

    def dies(part: str, i: int) -> bool:
        return part.startswith("t") and part not in kept and last[part] == i

    for i, (name, *parts, _) in reversed([*enumerate(lines)]):
        ending = next((part for part in parts if dies(part, i) and part not in place), None)
        if name in place and ending is not None:
            place[ending] = place[name]
    operations: list[tuple[np.ufunc, int, int, int]] = []
    free, count = list[int](), first
    for i, (name, left, right, sign) in enumerate(lines):
        free += [place[part] for part in {left, right} if dies(part, i) and place[part] >= first]
        if name not in place:
            place[name] = free.pop() if free else count
            count = max(count, place[name] + 1)
        operations.append((UFUNCS[sign], place[left], place[right], place[name]))
    return Program(operations, [(place[a], place[b]) for a, b in products], count - first)


def run(
    work: Pass,
    fresh: Sequence[np.ndarray],
    vectors: Sequence[np.ndarray],
    numbers: Sequence[float],
    skip: int,
    scratch: list[np.ndarray],
) -> list[float]:
    """A pass, block by block: its new vectors into ``fresh``; returns its sums, but for the first
    ones.  ``scratch`` is a list of blocks, which grows where it is too short."""
    operations, products, needed = program(work, len(vectors), len(numbers))
    flat, out = [a.reshape(-1) for a in vectors], [a.reshape(-1) for a in fresh]
    weights, size, sums = [float(number) for number in numbers], flat[0].size, []
    missing = range(needed - len(scratch))
    scratch += [np.empty(min(BLOCK, size), flat[0].dtype) for _ in missing]
    for i in range(0, size, BLOCK):
        part = slice(i, i + BLOCK)
        at: list[Any] = [*[a[part] for a in flat], *weights, *[a[part] for a in out]]
        at += [a[: at[0].size] for a in scratch[:needed]]
        for operation, left, right, into in operations:
            operation(at[left], at[right], out=at[into])
        sums.append([inner(at[a], at[b]) for a, b in products[skip:]])
    return [sum(of_blocks) for of_blocks in zip(*sums, strict=True)]
