"""Problems with bounds: "auto" beside SciPy's L-BFGS-B, TNC and trust-constr.

The bound-constrained problems of S2MPJ (the extra ``cutest``), at their own sizes or at the largest
of their sizes up to ``--largest``, each from its own start and, with ``--random``, from a random
one.  All solvers are stopped by the same test, outside of them: |x - P(x - g)| at most 1e-6 of what
it is at the start, at any point that they evaluate; and counted by the calls of one function that
gives value and gradient, with a limit on CPU time.  Two halves, by a hash of the name; a choice may
be made on the first.

    python benchmarks/bounds.py [--half 2] [--largest 200] [--random] [--seconds 3]
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import warnings
import zlib
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy import optimize

import momentous
from momentous.testbed.cutest import _DENSE_LIMIT, _DenseRows, _home, _problem_class

GRADIENTS = 3000
REDUCTION = 1e-6
BASELINES = {
    "L-BFGS-B": {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxfun": 10**6, "maxiter": 10**6},
    "L-BFGS-B m=40": {"maxcor": 40, "ftol": 0.0, "gtol": 0.0, "maxfun": 10**6, "maxiter": 10**6},
    "TNC": {"ftol": 0.0, "gtol": 0.0, "xtol": 0.0, "maxfun": 10**6},
    "trust-constr": {"gtol": 0.0, "xtol": 0.0, "maxiter": 10**6},
}


class StopError(Exception):
    """The goal, or the end of what is allowed."""


class Metered:
    """A function in a box, which counts and says when the goal is reached."""

    def __init__(self, source: Any, start: np.ndarray):
        self.source = source
        self.lower, self.upper = (
            np.asarray(a, float).reshape(-1) for a in (source.xlower, source.xupper)
        )
        self.lower = np.where(self.lower < -1e20, -np.inf, self.lower)
        self.upper = np.where(self.upper > 1e20, np.inf, self.upper)
        self.start = np.clip(start, self.lower, self.upper)
        self.begin()

    def begin(self) -> None:
        self.count, self.outside, self.goal, self.solved = 0, 0, np.nan, False
        self.value = np.nan
        self.known: tuple[bytes, Any] = b"", None

    def gap(self, x: np.ndarray, g: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(np.clip(g, x - self.upper, x - self.lower)))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        x = np.array(x, float)
        if self.known[0] == x.tobytes():  # trust-constr asks for value and gradient apart
            return self.known[1]
        if self.count >= GRADIENTS:
            raise StopError
        self.count += 1
        self.outside += bool((x < self.lower).any() or (x > self.upper).any())
        try:
            with np.errstate(all="ignore"):
                f, g = self.source.fgx(x)
        except ArithmeticError:
            f, g = np.nan, np.full(x.size, np.nan)
        f, g = float(np.asarray(f).item()), np.asarray(g, float).reshape(-1)
        size = self.gap(x, g)
        if self.count == 1:
            self.goal = REDUCTION * size
        if np.isfinite(f) and size <= self.goal:
            self.solved, self.value = True, f
            raise StopError
        self.known = x.tobytes(), (f, g)
        return f, g


def run(problem: Metered, solver: str, seconds: float) -> tuple[int | None, float, int]:
    """Gradients to the goal (None: not reached), the value there, and points outside."""
    problem.begin()
    bounds = optimize.Bounds(problem.lower, problem.upper)

    def late(*_: Any) -> None:
        raise StopError

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if solver == "auto":
                momentous.minimize(problem, problem.start, jac=True, bounds=bounds, tol=0.0)
            else:
                optimize.minimize(
                    problem, problem.start, jac=True, bounds=bounds, method=solver.split(" ")[0],
                    options=BASELINES[solver],
                )  # fmt: skip
    except StopError:
        pass
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        pass  # a solver that breaks down has not solved it
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return (problem.count if problem.solved else None), problem.value, problem.outside


def names_and_sizes(largest: int | None) -> list[tuple[str, tuple[float, ...]]]:
    """The bound-constrained problems, with the arguments that give the size wanted."""
    table = Path(_home()).parent / "probinfo_python.csv"
    found = []
    with open(table, newline="") as file:
        for row in csv.DictReader(file):
            if row["ptype"] != "b":
                continue
            if largest is None:
                found.append((row["problem_name"], ()))
                continue
            sizes = [float(d) for d in row["dims"].split() if float(d) <= largest]
            arguments = row["argins"].split()
            if sizes and max(sizes) > float(row["dim"]):
                i = row["dims"].split().index(f"{max(sizes):.0f}")
                if "{" not in row["argins"]:
                    found.append((row["problem_name"], (float(arguments[i]),)))
    return found


def random_start(problem: Metered, name: str) -> np.ndarray:
    """Uniform in the box where that is narrower than 100, else the start moved by 30 %."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    width = problem.upper - problem.lower
    inside = problem.lower + np.where(width < 100, width, 0.0) * rng.random(width.size)
    moved = problem.start + 0.3 * (1 + abs(problem.start)) * rng.standard_normal(width.size)
    return np.where(width < 100, inside, moved)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", type=int, choices=(1, 2))
    parser.add_argument("--largest", type=int)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--solvers", nargs="*", default=list(BASELINES))
    given = parser.parse_args()
    counts: dict[str, dict[str, Any]] = {}
    outside = 0
    for name, arguments in names_and_sizes(given.largest):
        half = 1 + zlib.crc32(name.encode()) % 2
        if given.half not in (None, half):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source = _problem_class(name)(*arguments)
            if hasattr(source, "A") and np.prod(source.A.shape) <= _DENSE_LIMIT:
                source.A = source.A.toarray().view(_DenseRows)
        except Exception as error:
            print(f"{name}: cannot be loaded ({type(error).__name__})")
            continue
        problem = Metered(source, np.asarray(source.x0, float).reshape(-1))
        if given.random:
            problem.start = np.clip(random_start(problem, name), problem.lower, problem.upper)
        try:
            f, g = problem(problem.start)
        except StopError:
            continue  # it begins at a solution
        if not np.isfinite(f) or not np.isfinite(g).all():
            continue
        row = {solver: run(problem, solver, given.seconds) for solver in ["auto", *given.solvers]}
        outside += row["auto"][2]
        counts[name] = row
        shown = "  ".join(f"{each[0] or '-':>5}" for each in row.values())
        print(f"{half} {name:12} {problem.start.size:5} {shown}", flush=True)
    report(counts, given.solvers, outside)


def report(counts: dict[str, dict[str, Any]], solvers: list[str], outside: int) -> None:
    print(f"\n{len(counts)} problems; points of auto outside of the box: {outside}")
    solved = {
        solver: sum(row[solver][0] is not None for row in counts.values())
        for solver in ["auto", *solvers]
    }
    print("solved:", ", ".join(f"{solver} {number}" for solver, number in solved.items()))
    for solver in solvers:
        both = {n: row for n, row in counts.items() if row["auto"][0] and row[solver][0]}
        if not both:
            continue
        ratios = {n: row["auto"][0] / row[solver][0] for n, row in both.items()}
        values = np.array(list(ratios.values()))
        same = [
            ratios[n] for n, row in both.items()
            if abs(row["auto"][1] - row[solver][1]) <= 1e-4 * max(1e-8, abs(row[solver][1]))
        ]  # fmt: skip
        worst = sorted(ratios, key=ratios.__getitem__)[-4:]
        print(
            f"to {solver}: median {np.median(values):.3f}, geometric mean "
            f"{np.exp(np.log(values).mean()):.3f}, 90 % {np.quantile(values, 0.9):.2f}, worst "
            f"{values.max():.2f}; with equal values ({len(same)}): mean "
            f"{np.exp(np.log(same).mean()):.3f}, worst {max(same):.2f}; "
            + ", ".join(f"{n} {ratios[n]:.2f}" for n in worst)
        )
        lost = [n for n, row in counts.items() if row[solver][0] and not row["auto"][0]]
        print(f"  {solver} alone solves: {', '.join(lost) or 'none'}")


if __name__ == "__main__":
    main()
