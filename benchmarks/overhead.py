"""What an iteration costs outside the user's functions.

Two ratios, each taken within one run: at d = 1,000,000 against one ``x + y`` on such vectors, at
d = 10 against an iteration of SciPy's L-BFGS-B outside the user's function.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import os

# One thread each: on a busy machine a threaded BLAS makes L-BFGS-B at d = 10 slower than it is.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import scipy.optimize

import momentous


class Timed:
    """A user's function that knows how long it took."""

    def __init__(self, fun: Callable[[np.ndarray], Any]):
        self.fun, self.seconds = fun, 0.0

    def __call__(self, x: np.ndarray) -> Any:
        started = perf_counter()
        answer = self.fun(x)
        self.seconds += perf_counter() - started
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
            fun, jac = Timed(value), Timed(gradient)
            result = momentous.minimize(
                fun, x0, jac=jac, method=method, tol=0, max_iterations=iterations
            )
            outside = result.time - fun.seconds - jac.seconds
            ratios.append(outside / result.nit / unit)
        rows.append((name, median(ratios)))
    return rows


def small(d: int = 10) -> tuple[float, float]:
    """Microseconds an iteration outside the user's function: ours, SciPy's L-BFGS-B."""
    problem = momentous.testbed.rosenbrock(d)
    ours, theirs = [], []
    for _ in range(15):
        fun, jac = Timed(problem.value), Timed(problem.gradient)
        started = perf_counter()
        result = momentous.minimize(fun, problem.start, jac=jac, method="ada-ragd", tol=1e-8)
        wall = perf_counter() - started
        ours.append((wall - fun.seconds - jac.seconds) / result.nit)
        both = Timed(problem.value_and_gradient)
        started = perf_counter()
        answer = scipy.optimize.minimize(
            both, problem.start, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-10}
        )
        wall = perf_counter() - started
        theirs.append((wall - both.seconds) / answer.nit)
    return 1e6 * median(ours), 1e6 * median(theirs)


def main() -> None:
    print("d = 1,000,000, float64: an iteration outside the user's functions, in units of x + y")
    for name, ratio in large():
        print(f"  {name:36s}{ratio:6.1f}")
    ours, theirs = small()
    print("d = 10: an iteration outside the user's functions")
    print(f"  AdaRAGD {ours:.1f} us, SciPy L-BFGS-B {theirs:.1f} us, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
