"""The pass over all entries, compiled: groups in parallel, three short steps a block of entries.

For a block of one group: all inner products into a buffer, the loss and its slopes on the buffer
(a loop that the compiler vectorises, exp and log included), the slopes into both gradients. The
rows of the right factor are still in the cache when they are read for the second time.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.lanes import (
    ROUNDER,
    polynomial,
    power_of_two,
    row_products,
    spread_slopes,
)
from momentous.lowrank.losses import EntryLoss

Function = TypeVar("Function", bound=Callable[..., Any])

BLOCK = 512  # entries in the buffer: these and their rows of the right factor fit the fast caches
FEWEST = 10_000  # entries that a second thread is worth

# exp(r) for |r| <= log(2)/2 by its series up to r^13, and atanh(s)/s for s <= 1/3 by its series in
# s^2 up to s^30: the next terms are below half a unit in the last place.
EXP = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
ATANH = tuple(1.0 / (2 * k + 1) for k in range(15, -1, -1))
LOG2_E = 1.0 / math.log(2.0)
# log(2) in two parts (Cody & Waite): whole multiples of the first up to 2^11 are exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
LEAST_EXPONENT = -708.0  # exp of it is still a normal number; what is less counts as this


def compiled_kernel(*freedoms: str) -> Callable[[Function], Function]:
    """Compile without the interpreter's lock; `freedoms` are what rounding may do."""
    njit: Callable[..., Callable[[Function], Function]] = import_module("numba").njit
    return njit(nogil=True, cache=True, error_model="numpy", fastmath=set(freedoms))


@compiled_kernel("contract", "reassoc")
def squared(z: Floats, x: Floats, count: int, scale: Any) -> float:
    """Replace predictions by `scale` times the slopes; return the sum of the losses."""
    total = 0.0
    for k in range(count):
        slope = z[k] - x[k]
        z[k] = scale * slope
        total += float(slope) * float(slope)
    return 0.5 * total


@compiled_kernel("contract")  # the order of operations matters in it
def _exp_of_minus(size: float) -> float:
    """``exp(-size)`` for size >= 0, in (0, 1]."""
    exponent = -size
    exponent = LEAST_EXPONENT if exponent < LEAST_EXPONENT else exponent
    rounded = exponent * LOG2_E + ROUNDER
    whole = rounded - ROUNDER
    rest = (exponent - whole * LN2_HIGH) - whole * LN2_LOW
    result: float = polynomial(rest, EXP) * power_of_two(rounded)
    return result


@compiled_kernel("contract")
def logistic(z: Floats, x: Floats, count: int, scale: Any, losses: NDArray[np.float64]) -> None:
    """Replace predictions by `scale` times the slopes; write the losses ``log(1 + exp(-x z))``."""
    for k in range(count):
        margin = float(x[k]) * float(z[k])
        e = _exp_of_minus(abs(margin))
        s = e / (2.0 + e)  # log(1 + e) = 2 atanh(s)
        linear = -margin if margin < 0.0 else 0.0
        losses[k] = linear + 2.0 * s * polynomial(s * s, ATANH)
        z[k] = -scale * x[k] * (e if margin > 0.0 else 1.0) / (1.0 + e)


@compiled_kernel("contract")
def logistic_slopes(z: Floats, x: Floats, count: int, scale: Any) -> None:
    """The same without the losses, which take most of the time of it."""
    for k in range(count):
        margin = float(x[k]) * float(z[k])
        e = _exp_of_minus(abs(margin))
        z[k] = -scale * x[k] * (e if margin > 0.0 else 1.0) / (1.0 + e)


@compiled_kernel("reassoc")
def _sum(numbers: NDArray[np.float64], count: int) -> float:
    total = 0.0
    for k in range(count):
        total += numbers[k]
    return total


@compiled_kernel()
def _groups(
    lanes: tuple[int, ...],
    code: int,
    left: Floats,
    right: Floats,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    scale: float,
    left_gradient: Floats,
    right_gradient: Floats,
) -> float:
    """Sum of the losses of the groups first to last - 1; scale 0 means that no gradient is made."""
    z = np.empty(BLOCK, left.dtype)
    losses = np.empty(BLOCK, np.float64)
    factor = left.dtype.type(scale)
    total = 0.0
    for i in range(first, last):
        for begin in range(starts[i], starts[i + 1], BLOCK):
            end = min(begin + BLOCK, starts[i + 1])
            count = end - begin
            row_products(lanes, left, i, right, others, begin, end, z)
            if code == 0:
                total += squared(z, values[begin:end], count, factor)
            else:
                logistic(z, values[begin:end], count, factor, losses)
                total += _sum(losses, count)
            if scale != 0.0:
                spread_slopes(
                    lanes, left, i, right, others, begin, end, z, left_gradient, right_gradient
                )
    return total


class CompiledPass:
    """Sum of the losses over all entries, and its gradient; see `PlainPass` for the methods.

    Each thread has a range of groups, of about equally many entries, and a gradient of the right
    factor of its own; these are added up in a fixed order. So the same ratings and the same number
    of threads give the same bits every time; another number of threads gives other roundings.

    Parameters
    ----------
    groups : Compressed
        The entries, grouped by the index of the left factor.
    loss : EntryLoss
    threads : int
        At most so many are used; few entries get fewer.
    """

    def __init__(self, groups: Compressed, loss: EntryLoss, threads: int):
        count = groups.others.size
        self.groups, self.loss = groups, loss
        self.threads = max(1, min(threads, count // FEWEST))
        shares = np.arange(1, self.threads) * (count / self.threads)
        cuts = [0, *np.searchsorted(groups.starts, shares), groups.starts.size - 1]
        self.ranges = [(int(a), int(b)) for a, b in pairwise(cuts)]

    def value(self, left: Floats, right: Floats) -> float:
        """Sum of the losses."""
        none = np.empty((0, left.shape[1]), left.dtype)
        return self._run(left, right, 0.0, none, [none] * self.threads)

    def add_gradient(
        self,
        left: Floats,
        right: Floats,
        scale: float,
        left_gradient: Floats,
        right_gradient: Floats,
    ) -> float:
        """Add `scale` times the gradient to what is there already; return the sum of the losses."""
        # Fresh buffers, so that several callers may evaluate at the same time.
        others = [np.zeros_like(right_gradient) for _ in range(self.threads - 1)]
        total = self._run(left, right, scale, left_gradient, [right_gradient, *others])
        for part in others:
            right_gradient += part
        return total

    def _run(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: list[Floats]
    ) -> float:
        groups, lanes = self.groups, (0,) * left.shape[1]

        def work(thread: int) -> float:
            first, last = self.ranges[thread]
            return _groups(
                lanes, self.loss.code, left, right, groups.starts, groups.others, groups.values,
                first, last, scale, own, far[thread],
            )  # fmt: skip

        waiting = [thread_pool(self.threads).submit(work, k) for k in range(1, self.threads)]
        return sum((part.result() for part in waiting), work(0))


@cache
def thread_pool(threads: int) -> ThreadPoolExecutor:
    """One pool for all objectives: its threads sleep when there is nothing to do."""
    return ThreadPoolExecutor(threads, thread_name_prefix="momentous-lowrank")


if hasattr(os, "register_at_fork"):  # the threads of a pool do not live on in a forked process
    os.register_at_fork(after_in_child=thread_pool.cache_clear)
