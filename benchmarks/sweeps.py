"""What momentum saves a sweep: alternating least squares, and Newton's steps for one bit.

On a synthetic twin of MovieLens-1M (6,040 x 3,706, 1,000,209 ratings) at rank 10: the time of one
sweep, compiled and in NumPy; then the objective that 60 plain sweeps reach, and how many sweeps and
seconds the accelerated ones take to it under each restart rule (as shares of the plain ones).
Seconds are those inside the map and the method.  Last, for one bit, what sweeps with bounds of the
curvature that hold everywhere would take to the objective of 60 plain ones with the first of them:
on the twin of MovieLens-100K, because these are in NumPy only.

With ``--steps`` something else: fits whose half sweeps are exact, or so many steps of conjugate
gradients per row, under momentum, on one thread.  "per sweep" is the CPU time of a sweep over that
of an exact one: they take turns, and the least of each counts.  Below are the sweeps until the
objective is within a share of the lowest that any of them reached, and what these cost over what
exact ones do.  ``--ridge`` and ``--weighting`` take the place of the estimators' own penalty.

    OPENBLAS_NUM_THREADS=1 python benchmarks/sweeps.py [twin] [--steps RANK ...] [--ridge R ...]
        [--weighting W] [--loss NAME ...] [--sweeps N]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import expit

from momentous.api import accelerate
from momentous.core.result import Result
from momentous.lowrank import ALSSweep, LowRankObjective, MMSweep, Ratings, Sweep
from momentous.lowrank.solvers.fit import FitConfig

RANK, SWEEPS = 10, 60
RULES = ("either", "function", "gradient", "distance")
# Curvatures at the prediction z with which a parabola that touches the logistic loss there lies
# above it: Boehning & Lindsay (1988); Jaakkola & Jordan (2000).
BOUNDS: dict[str, Callable[[Any], Any]] = {
    "1/4": lambda z: np.full_like(z, 0.25),
    "tanh(z/2)/(2z)": lambda z: (
        np.tanh(np.maximum(abs(z), 1e-4) / 2) / np.maximum(2 * abs(z), 2e-4)
    ),
}


def seconds(sweep: Any, repetitions: int = 7) -> float:
    """The shortest time of a sweep, after one that compiles."""
    state, times = sweep.start(), []
    for _ in range(repetitions + 1):
        started = time.perf_counter()
        sweep(state)
        times.append(time.perf_counter() - started)
    return min(times[1:])


def print_times(ratings: Ratings) -> None:
    print(f"\n{'one sweep, milliseconds':34}{'float64':>10}{'float32':>10}")
    for kind, data in ((ALSSweep, ratings), (MMSweep, ratings.signs())):
        for how in ({"threads": 1}, {"threads": 2}, {"backend": "numpy"}):
            name = f"{kind.__name__}, {'NumPy' if 'backend' in how else how['threads']}"
            name += {1: " thread", 2: " threads"}.get(how.get("threads", 0), "")
            row = (
                1e3 * seconds(kind(data, RANK, dtype=dtype, **how), 1 if "backend" in how else 7)
                for dtype in (np.float64, np.float32)
            )
            print(f"{name:34}" + "".join(f"{ms:>10.1f}" for ms in row), flush=True)


def run(sweep: Any, rule: Any, **options: Any) -> Result:
    return accelerate(
        sweep, sweep.start(), True, restart=rule, tol=0.0, max_iterations=SWEEPS, **options
    )


def print_savings(name: str, sweep: Any) -> None:
    sweep(sweep.start())  # compile
    plain = run(sweep, "always")
    line = f"{name:34}{plain.fun:>10.6f}"
    for rule in RULES:
        fast = run(sweep, rule, target=plain.fun)
        reached = fast.fun <= plain.fun
        sweeps, took = fast.njev / plain.njev, fast.time / plain.time
        line += f"{sweeps:>9.2f} {took:>6.2f}" if reached else f"{'-':>9} {'-':>6}"
    print(line, flush=True)


class BoundedSweep(MMSweep):
    """The sweep with one of the `BOUNDS` in place of the curvature at z."""

    bound = "1/4"

    def __call__(self, x: Any) -> tuple[Any, float]:
        U, V = self.objective.split(x)
        ratings, value = self.objective.ratings, self.objective.value(x)
        U = self._bounded(ratings.by_row, U, V)
        return self.objective.join(U, self._bounded(ratings.by_col, V, U)), value

    def _bounded(self, groups: Any, own: Any, other: Any) -> Any:
        rank, ridge = self.objective.rank, self.objective.ridge
        owners = np.repeat(np.arange(len(own)), np.diff(groups.starts))
        z = np.sum(own[owners] * other[groups.others], axis=1)
        entries = scipy.sparse.csr_array(
            (BOUNDS[self.bound](z), groups.others, groups.starts), shape=(len(own), len(other))
        )
        squares = (other[:, :, None] * other[:, None, :]).reshape(-1, rank * rank)
        systems = (entries @ squares).reshape(-1, rank, rank)
        damping = ridge or 1e-10 * np.trace(systems, axis1=1, axis2=2)[:, None, None] + 1e-300
        entries.data = groups.values * expit(-groups.values * z)
        sides = (entries @ other - ridge * own)[:, :, None]
        return own + np.linalg.solve(systems + damping * np.eye(rank), sides)[:, :, 0]


def print_bounds(ratings: Ratings) -> None:
    print(f"\naccelerated sweeps for one bit, on {ratings}")
    for ridge in (0.0, 5.0):
        sweep = BoundedSweep(ratings.signs(), RANK, ridge)
        goal = run(sweep, "always").fun
        for sweep.bound in BOUNDS:
            print(f"ridge {ridge:g}, {sweep.bound}: {run(sweep, 'either', target=goal).njev}")
        newton = run(MMSweep(ratings.signs(), RANK, ridge), "either", target=goal)
        print(f"ridge {ridge:g}, MMSweep: {newton.njev}", flush=True)


LOSSES = ("squared", "logistic", "implicit")
STEPS = (None, 1, 2, 3)  # of conjugate gradients; None: rows are solved exactly


def sweep_costs(objective: LowRankObjective, x: Any) -> list[float]:
    """CPU seconds of a sweep with each of `STEPS`: the least of several, taken in turns."""
    sweeps = [Sweep(objective, steps=k) for k in STEPS]
    states = [sweep.begin(x) for sweep in sweeps]
    costs = []
    for _ in range(8):
        turn = []
        for i, sweep in enumerate(sweeps):
            began = time.process_time()
            states[i], _ = sweep(states[i])
            turn.append(time.process_time() - began)
        costs.append(turn)
    return np.min(costs[1:], axis=0).tolist()  # the first compiles


def fit_curve(objective: LowRankObjective, x: Any, steps: int | None, sweeps: int) -> Any:
    """The objective after each sweep."""
    sweep = Sweep(objective, steps=steps)
    values: list[float] = []

    def watch(intermediate_result: Any) -> None:
        values.append(intermediate_result.fun)

    accelerate(
        sweep, sweep.begin(x), True, tol=0.0, max_iterations=sweeps, callback=watch, secants=0
    )
    return np.array(values)


def print_steps(ratings: Ratings, given: argparse.Namespace) -> None:
    names = ["exact", *(f"{k} step{'s' * (k > 1)}" for k in STEPS if k)]
    for loss, rank, ridge in itertools.product(given.loss, given.steps, given.ridge):
        data = (ratings.signs() if loss == "logistic" else ratings).astype(np.float32)
        config = FitConfig(rank=rank, loss=loss, ridge=ridge, weighting=given.weighting, threads=1)
        objective = config.objective(data)
        x = config.start(objective)
        costs = sweep_costs(objective, x)
        curves = [fit_curve(objective, x, k, given.sweeps) for k in STEPS]
        lowest = min(float(curve.min()) for curve in curves)
        penalty = objective.penalty
        print(
            f"\n{loss}, rank {rank}, ridge {penalty.ridge:.3g}, weighting {penalty.weighting:g}, "
            f"lowest objective {lowest:.6f}\n{'within':>10}"
            + "".join(f"{name:>14}" for name in names)
        )
        print(f"{'per sweep':>10}" + "".join(f"{cost / costs[0]:>14.2f}" for cost in costs))
        for share in (1e-2, 1e-3, 1e-4):
            there = [np.flatnonzero(curve <= (1 + share) * lowest) for curve in curves]
            sweeps = [int(rows[0]) + 1 if rows.size else None for rows in there]
            line = f"{share:>10g}"
            for count, cost in zip(sweeps, costs, strict=True):
                cell = "-" if count is None else f"{count}"
                if count and sweeps[0]:
                    cell += f", {count * cost / (sweeps[0] * costs[0]):.2f}"
                line += f"{cell:>14}"
            print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twin", nargs="?", default="ml-1m")
    parser.add_argument("--steps", type=int, nargs="+", metavar="RANK")
    parser.add_argument("--ridge", type=float, nargs="+", default=[None], metavar="R")
    parser.add_argument("--weighting", type=float, metavar="W")
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--sweeps", type=int, default=60, metavar="N")
    given = parser.parse_args()
    ratings = Ratings.twin(given.twin)
    if given.steps:
        print(f"{given.twin}: {ratings}")
        print_steps(ratings, given)
    else:
        print_all(given.twin, ratings)


def print_all(twin: str, ratings: Ratings) -> None:
    print(f"{twin}: {ratings}, rank {RANK}")
    print_times(ratings)
    print(f"\nsweeps and seconds to the objective of {SWEEPS} plain sweeps, as shares of the plain")
    print(f"{'':34}{'objective':>10}" + "".join(f"{rule:>16}" for rule in RULES))
    for ridge in (0.0, 5.0):
        for state in ("U", "V"):
            sweep: Any = ALSSweep(ratings, RANK, ridge, state=state)  # type: ignore[arg-type]
            mark = " (default)" if state == ALSSweep(ratings, RANK).state else ""
            print_savings(f"ALS, ridge {ridge:g}, momentum in {state}{mark}", sweep)
        print_savings(f"MM, ridge {ridge:g}", MMSweep(ratings.signs(), RANK, ridge))
    print_bounds(Ratings.twin("ml-100k"))


if __name__ == "__main__":
    main()
