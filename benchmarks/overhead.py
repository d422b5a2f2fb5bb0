"""What an iteration costs outside the user's functions.

Two kinds of ratios, each taken within one run: at d = 1,000,000 against one ``x + y`` on such
vectors; and for ``auto``, ``lbfgs`` and AdaRAGD, from d = 10 to 1,000,000, against an iteration of
SciPy's L-BFGS-B outside the user's function, by the CPU time of whole runs on the Rosenbrock
function, the start included.  Short runs are made five times in a row: a run of a millisecond pays
more for what the one before it has displaced from the caches than for its iterations.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import os

# One thread each: on a busy machine a threaded BLAS makes L-BFGS-B at d = 10 slower than it is.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy.optimize

import momentous


class Timed:
    """A user's function that knows how long it took, by a given clock."""

    def __init__(self, fun: Callable[[np.ndarray], Any], clock: Callable[[], float]):
        self.fun, self.clock, self.seconds = fun, clock, 0.0

    def __call__(self, x: np.ndarray) -> Any:
        started = self.clock()
        answer = self.fun(x)
        self.seconds += self.clock() - started
        return answer


def vector_sum_seconds(d: int, repeats: int = 51) -> float:
    x, y = np.random.default_rng(0).standard_normal((2, d))
    times = []
    for _ in range(repeats):
        started = perf_counter()
        x + y
        times.append(perf_counter() - started)
    return median(times)


def quadratic(d: int) -> tuple[Callable[..., float], Callable[..., np.ndarray]]:
    weights = np.linspace(1e-3, 1, d)
    return lambda x: float(0.5 * np.dot(weights * x, x)), lambda x: weights * x


def large(d: int = 1_000_000, iterations: int = 100) -> list[tuple[str, float]]:
    """Iteration time outside fun and jac, in units of x + y, for each phase of each method."""
    value, gradient = quadratic(d)
    x0 = np.ones(d)
    cases = {
        "AdaRAGD": momentous.AdaRAGD(),
        "AdaRAGD, wide radius": momentous.AdaRAGD.paper(),
        "AdaRAGD, at the radius (averaging)": momentous.AdaRAGD(initial_radius=1e-9, radius=1e9),
        "AdaRHB, wide radius": momentous.AdaRHB.paper(),
        "RAGD (averaging)": momentous.RAGD(
            step_size=0.25, momentum=0.99, radius=1e9, epoch_length=1000
        ),
    }
    rows = []
    for name, method in cases.items():
        ratios = []
        for _ in range(5):
            unit = vector_sum_seconds(d)
            fun, jac = Timed(value, perf_counter), Timed(gradient, perf_counter)
            result = momentous.minimize(
                fun, x0, jac=jac, method=method, tol=0, max_iterations=iterations
            )
            outside = result.time - fun.seconds - jac.seconds
            ratios.append(outside / result.nit / unit)
        rows.append((name, median(ratios)))
    return rows


METHODS = ("auto", "lbfgs", "ada-ragd")
SCIPY = "L-BFGS-B of SciPy"


def outside(name: str, d: int, iterations: int, runs: int = 1) -> float:
    """CPU seconds per iteration outside the user's function, in so many runs in a row."""
    problem = momentous.testbed.rosenbrock(d)
    both = Timed(problem.value_and_gradient, process_time)
    limits = {"ftol": 0, "gtol": 1e-10, "maxiter": iterations}
    started, nit = process_time(), 0
    for _ in range(runs):
        if name == SCIPY:
            nit += scipy.optimize.minimize(
                both, problem.start, jac=True, method="L-BFGS-B", options=limits
            ).nit
        else:
            nit += momentous.minimize(
                both, problem.start, jac=True, method=name, tol=1e-8, max_iterations=iterations
            ).nit
    return (process_time() - started - both.seconds) / nit


def against_scipy() -> list[tuple[int, dict[str, float]]]:
    """For each dimension the median CPU time per iteration of each method."""
    rows = []
    for d in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        repeats, iterations = (15, 200) if d <= 10_000 else (5, 60) if d <= 100_000 else (3, 40)
        runs = 5 if d <= 100 else 1
        times: dict[str, list[float]] = {name: [] for name in (*METHODS, SCIPY)}
        for name in times:  # what is imported at a first run is not part of an iteration
            outside(name, 10, 3)
        for _ in range(repeats):  # in turn, so that all see the machine as busy as it is
            for name, seen in times.items():
                seen.append(outside(name, d, iterations, runs))
        rows.append((d, {name: median(seen) for name, seen in times.items()}))
    return rows


def main() -> None:
    print("An iteration outside the user's function, CPU time, and its ratio to that of SciPy's")
    print(f"{'d':>10}{SCIPY:>20}" + "".join(f"{name:>20}" for name in METHODS))
    for d, times in against_scipy():
        unit = times[SCIPY]
        cells = [f"{1e6 * times[name]:.1f} us ({times[name] / unit:.2f})" for name in METHODS]
        first = f"{1e6 * unit:.1f} us"
        print(f"{d:>10,}{first:>20}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    print("d = 1,000,000, float64: an iteration outside the user's functions, in units of x + y")
    for name, ratio in large():
        print(f"  {name:36s}{ratio:6.1f}")


if __name__ == "__main__":
    main()
