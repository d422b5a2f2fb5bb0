"""Time to objective: accelerated sweeps against plain ones, and against SciPy's L-BFGS-B.

All minimise the same F (`LowRankObjective`, balance 1) from the same start, the truncated SVD.  The
goals are what 60 plain sweeps reach, and what L-BFGS-B has reached after 1000 evaluations with the
same compiled gradient.  A solver is done when the balanced factors are in hand whose F is no higher
than the goal; F is evaluated there afresh, off the clock, and a run that misses its goal is marked.
(Sweeps know no balance: for balanced factors that term is 0, and the ridge is the least of all that
give the same product.)  The SVD is not counted, for anybody.

    OPENBLAS_NUM_THREADS=1 python benchmarks/solver.py [ml-1m] [ml-10m] [--data FILE]

Ratios are of wall time and of CPU time, which depends less on what else a shared machine does.  For
plain and accelerated sweeps, which take turns, the shortest of the repetitions counts; L-BFGS-B
runs once, so that its wall time is the one that a busy machine can make too long.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from momentous import accelerate
from momentous.lowrank import ALSSweep, LowRankObjective, MMSweep, Ratings

PLAIN_SWEEPS, EVALUATIONS, LIMIT = 60, 1000, 600
LOSSES = {"squared": ALSSweep, "logistic": MMSweep}


class Run(NamedTuple):
    """What a solver found, and what it took."""

    wall: float
    cpu: float
    work: int  # sweeps or evaluations
    value: float  # F at the balanced factors


class Contest:
    """One objective, and the solvers on it."""

    def __init__(self, ratings: Ratings, loss: str, rank: int, ridge: float, threads: int):
        data = ratings if loss == "squared" else ratings.signs()
        self.problem: Any = LowRankObjective(
            data,
            rank,
            loss,
            1.0,
            ridge,
            threads=threads,  # type: ignore[arg-type]
        )
        self.sweep: Any = LOSSES[loss](data, rank, ridge, threads)
        self.start = self.problem.start()
        # Compile everything, and let the SVD be known to the sweep, too.
        self.problem.value_and_gradient(self.start)
        self.sweep.factors(self.sweep(self.sweep.start())[0])

    def _timed(self, solve: Callable[[], tuple[Any, int]]) -> Run:
        wall, cpu = perf_counter(), process_time()
        factors, work = solve()
        wall, cpu = perf_counter() - wall, process_time() - cpu
        return Run(wall, cpu, work, self.problem.value(self.problem.join(*factors)))

    def plain(self) -> Run:
        """Sweep after sweep, with nothing around them."""

        def solve() -> tuple[Any, int]:
            state = self.sweep.start()
            for _ in range(PLAIN_SWEEPS):
                state, _ = self.sweep(state)
            return self.sweep.factors(state), PLAIN_SWEEPS

        return self._timed(solve)

    def accelerated(self, goal: float, rule: Any) -> Run:
        def solve() -> tuple[Any, int]:
            found = accelerate(
                self.sweep, self.sweep.start(), True, restart=rule, tol=0.0, target=goal,
                max_iterations=LIMIT,
            )  # fmt: skip
            return self.sweep.factors(found.x), found.njev

        return self._timed(solve)

    def lbfgs(self, evaluations: int) -> Run:
        """SciPy's; the lowest value counts, whether or not a step ended there."""
        lowest, count = np.inf, 0
        best = self.start

        def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal lowest, count, best
            if count == evaluations:
                raise StopIteration
            count += 1
            value, gradient = self.problem.value_and_gradient(x)
            if value < lowest:
                lowest, best = value, x.copy()
            return value, gradient

        def solve() -> tuple[Any, int]:
            limits = {"maxfun": 10**9, "maxiter": 10**9, "ftol": 0.0, "gtol": 0.0}
            with suppress(StopIteration):
                scipy.optimize.minimize(
                    fun, self.start, jac=True, method="L-BFGS-B", options=limits
                )
            return self.problem.split(best), count

        return self._timed(solve)


def fastest(runs: list[Run]) -> Run:
    """Least wall and least CPU time (work and value are the same in all)."""
    return Run(min(r.wall for r in runs), min(r.cpu for r in runs), *runs[0][2:])


def verdict(fast: Run, slow: Run) -> str:
    reached = "" if fast.value <= slow.value else "   GOAL MISSED"
    return (
        f"{slow.value:>10.6f}{slow.work:>7d}{slow.wall:>9.2f}{fast.work:>7d}{fast.wall:>8.2f}"
        f"{slow.wall / fast.wall:>9.2f}{slow.cpu / fast.cpu:>9.2f}{reached}"
    )


def compare(name: str, contest: Contest, rule: str, repeats: int, evaluations: int) -> None:
    plain, fast = [contest.plain()], []
    for _ in range(repeats):
        fast.append(contest.accelerated(plain[0].value, rule))
        plain.append(contest.plain())
    print(f"{name}{'plain':>8}" + verdict(fastest(fast), fastest(plain)), flush=True)
    if not evaluations:
        return
    slow = contest.lbfgs(evaluations)
    fast = [contest.accelerated(slow.value, rule) for _ in range(repeats)]
    print(f"{name}{'L-BFGS':>8}" + verdict(fastest(fast), slow), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twins", nargs="*", help="by default ml-1m and ml-10m")
    parser.add_argument("--data", action="append", default=[], help="a file of ratings")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ridges", type=float, nargs="+", default=[0.0, 5.0])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--restart", default="either", help="the rule; the default of accelerate")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, help="0: no L-BFGS-B")
    chosen = parser.parse_args()
    twins = chosen.twins or ([] if chosen.data else ["ml-1m", "ml-10m"])
    sources = [(name, Ratings.twin) for name in twins] + [
        (path, Ratings.read) for path in chosen.data
    ]
    for name, get in sources:
        ratings = get(name)
        print(f"\n{name}: {ratings}\nrank {chosen.rank}, {chosen.threads} threads")
        print(f"{'':24}{'':8}{'':10}{'baseline':>16}{'accelerated':>15}{'times sooner':>18}")
        print(
            f"{'loss':10}{'ridge':>6}{'':8}{'baseline':>8}{'goal':>10}{'work':>7}{'s':>9}{'sweeps':>7}"
            f"{'s':>8}{'wall':>9}{'CPU':>9}"
        )
        for loss in chosen.losses:
            for ridge in chosen.ridges:
                contest = Contest(ratings, loss, chosen.rank, ridge, chosen.threads)
                label = f"{loss:10}{ridge:>6g}{'':8}"
                compare(label, contest, chosen.restart, chosen.repeats, chosen.evaluations)


if __name__ == "__main__":
    main()
