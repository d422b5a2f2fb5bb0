"""The rank that the ridge asks for: columns are added and dropped until the fit is the optimum.

A fit of few columns is swept, and `examine` says by which further columns its objective falls
(several singular vectors of the residual at once); they are appended and swept again.  Columns that
Newton's step along them would take to 0 are dropped.  When no column is left to be added, the gap
says how far the fit is from the optimum over all ranks, and sweeps go on until that is small
enough: Lee, Liang, Tang and Toh, JMLR 25 (2024), without the convex steps in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from momentous.core.result import Result
from momentous.core.status import Status
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.solvers.certificate import Certificate, Dual, Verdict, examine
from momentous.lowrank.solvers.sweeps import Sweep, automatic_steps

FIRST_RANK = 8  # columns to begin with, and the fewest that are added at a time
MAX_SWEEPS = 2000  # where no limit is given
GROWING, POLISHING = 6, 20  # sweeps between two looks at the residual
SECANTS = 5  # of the last sweeps: the gap needs more digits than predictions do
FAINT = 1e-9  # columns of a product this small beside the largest are dropped in any case


class Search(NamedTuple):
    """Where a search has got to."""

    objective: LowRankObjective  # of the rank found
    x: Floats
    certificate: Certificate
    sweeps: int
    result: Result  # of the last sweeps


def search_rank(
    objective: LowRankObjective,
    x: Floats,
    gap_tol: float = 1e-4,
    max_sweeps: int = MAX_SWEEPS,
    callback: Callable[..., Any] | None = None,
) -> Iterator[Search]:
    """Sweep, drop and add columns, look at the gap; the last one is GLOBAL, unless sweeps ended.

    The objective's rank is that of x, where the search begins.
    """
    sweeps, count = 0, GROWING
    for _ in range(max_sweeps):  # looks, where sweeps have come to an end: no more than sweeps
        x, result = Sweep(objective, steps=automatic_steps(objective)).run(
            x,
            value_tol=0.0,
            max_iterations=min(count, max_sweeps - sweeps),
            restart="either",
            secants=SECANTS,
            callback=callback,
        )
        sweeps += int(result.nit)
        before = objective.rank
        objective, x = without_surplus(objective, x)
        certificate, escape = examine(objective, x, gap_tol, seed=sweeps)
        yield Search(objective, x, certificate, sweeps, result)
        done = certificate.verdict is Verdict.GLOBAL or sweeps >= max_sweeps
        if done or result.status in (Status.INTERRUPTED, Status.STOPPED):
            return
        room = min(objective.ratings.whole.shape) - objective.rank
        added = min(escape.right.shape[1], max(objective.rank, FIRST_RANK), room)
        if not added and not result.nit:  # neither sweeps nor columns lead on
            return
        if added:
            objective, x = _with_columns(objective, x, *(one[:, :added] for one in escape))
        # Where the columns stay the same, momentum is worth more than another look.
        same = not added and objective.rank == before
        count = 2 * count if same else GROWING if added > objective.rank // 8 else POLISHING


def without_surplus(objective: LowRankObjective, x: Floats) -> tuple[LowRankObjective, Floats]:
    """Balanced factors, without columns that are to vanish; if all are, one is left, of zeros.

    Along column k of the singular value decomposition of the (weighted) product, of size s, the
    objective is least near ``s + (A11_kk - 1)/c`` with c the curvature of the losses: at 0 or below
    the column goes.
    """
    dual = Dual(objective, x)
    asarray, to_host = dual.xp.asarray, objective.backend.to_host
    roots = [to_host(one) for one in dual.roots]
    U, V = objective.balanced(to_host(dual.U) * roots[0], to_host(dual.V) * roots[1])
    sizes = np.einsum("jk,jk->k", V, V)
    if not sizes[0] > 0.0:
        return objective, x
    a, b = (asarray(side / np.sqrt(np.maximum(sizes, 1e-300))) for side in (U, V))
    slopes = dual.summed(np.einsum("ik,ik->k", a, dual.times(b))) - 1.0
    steps = slopes / dual.curvatures(a / dual.roots[0], b / dual.roots[1])
    best = sizes + to_host(steps)
    # A slope that overflows says nothing: its column stays.
    kept = ((best > 0.0) | ~np.isfinite(best)) & (sizes > FAINT * sizes[0])
    if not kept.any():
        kept[0], U, V = True, 0.0 * U, 0.0 * V
    P, Q = (
        np.hstack([side[:, kept] / root, to_host(rest)])
        for side, root, rest in zip((U, V), roots, dual.bias_columns, strict=True)
    )
    smaller = objective.with_rank(int(np.count_nonzero(kept)))
    return smaller, _point(smaller, P, Q)


def _with_columns(
    objective: LowRankObjective, x: Floats, left: Any, right: Any
) -> tuple[LowRankObjective, Floats]:
    r, (P, Q) = objective.rank, objective.factors(x)
    larger = objective.with_rank(r + right.shape[1])
    P, Q = (np.hstack([s[:, :r], new, s[:, r:]]) for s, new in ((P, left), (Q, right)))
    return larger, _point(larger, P, Q)


def _point(objective: LowRankObjective, P: Any, Q: Any) -> Floats:
    """The point with these parameters of all columns, of which this rank has its share."""
    asarray, dtype = objective.backend.asarray, objective.dtype
    return objective.join(asarray(P, dtype), asarray(Q[objective.items], dtype))
