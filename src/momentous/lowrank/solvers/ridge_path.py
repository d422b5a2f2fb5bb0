"""A path over the ridge, from the largest one down, each fit begun where the last one ended.

At the largest ridge the optimum has no factors; each smaller one has a few more columns.  The
error on entries that were held out chooses one, and with it the rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from momentous.core.status import Status
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.solvers.certificate import certify
from momentous.lowrank.solvers.rank_search import Search, search_rank
from momentous.lowrank.solvers.sweeps import Sweep

STEP = 0.7  # from one ridge to the next
SMALLEST = 1e-3  # of the largest ridge, where a path ends that no error has ended before
PATIENCE = 2  # ridges without a better error
GAP = 1e-3  # relative, along the path: held-out errors need no more
BIAS_SWEEPS = 30
NOTHING = 1e-12  # of the norm of all entries: a residual of rounding alone


class PathPoint(NamedTuple):
    """A ridge of the path, and what was found for it."""

    nit: int  # its number, from 1
    ridge: float
    rank: int
    held_out: float  # error on the entries held out
    relative_gap: float
    sweeps: int  # that its fit took, from the end of the one before

    def __str__(self) -> str:
        return (
            f"{self.nit:3d}  ridge {self.ridge:.5g}  rank {self.rank}  held out "
            f"{self.held_out:.5f}  gap {self.relative_gap:.1e}  sweeps {self.sweeps}"
        )


def largest_ridge(objective: LowRankObjective) -> float:
    """The ridge from which on the best factors are 0, up to the bound of `certify`."""
    sweep = Sweep(objective, rescale=False)
    x = sweep.begin(objective.backend.xp.zeros(objective.dimension, objective.dtype))
    for _ in range(BIAS_SWEEPS if objective.penalty.biases else 1):
        x, _ = sweep(x)
    return certify(objective, sweep.point(x)).sigma_max


def follow_path(
    objective: LowRankObjective,
    x: Any,
    held_out: Ratings,
    watch: Callable[[Any], Any] | None = None,
) -> tuple[Search, list[PathPoint]]:
    """The fit with the least error on the entries held out, and all ridges that were tried."""
    limits = objective.ratings.whole.value_range
    ridge = first = STEP * largest_ridge(objective)
    # Where mean and biases fit all entries but for rounding, factors have nothing to add at any
    # ridge, and the objective's own is as good as another.
    size = max(map(abs, limits)) * math.sqrt(objective.weight)
    nothing = not first > NOTHING * size
    if nothing:
        ridge = first = objective.ridge
    path: list[PathPoint] = []
    best: Search | None = None
    while ridge >= SMALLEST * first:
        *_, found = search_rank(objective.with_ridge(ridge), x, GAP)
        objective, x = found.objective, found.x
        error = objective.error(x, held_out, limits)
        rank = objective.rank if np.any(objective.factors(x)[1][:, : objective.rank]) else 0
        gap = found.certificate.relative_gap
        path.append(PathPoint(len(path) + 1, ridge, rank, error, gap, found.sweeps))
        if best is None or error <= min(point.held_out for point in path):
            best = found
        since = len(path) - 1 - int(np.argmin([point.held_out for point in path]))
        stop = watch is not None and watch(path[-1])
        if nothing or stop or since >= PATIENCE or found.result.status is Status.INTERRUPTED:
            break
        ridge *= STEP
    assert best is not None
    return best, path
