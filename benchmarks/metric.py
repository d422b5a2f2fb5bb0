"""What the Gauss-Newton metric saves: evaluations against L-BFGS, seconds against sweeps.

On synthetic twins of MovieLens, with the balance term, for both losses: milliseconds of a gradient,
of the way to the coordinates and back, of a metric, and of a sweep; the lowest objective after so
many evaluations (a fused value and gradient is one); and after so many seconds, also for the
accelerated sweeps.  Sweeps know no balance term, but it is 0 for their balanced factors.  Seconds
are those inside functions, methods and maps.

    OPENBLAS_NUM_THREADS=1 python benchmarks/metric.py [twin] [rank] [seconds] [damping]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from momentous import LBFGS, ParameterFreeAGD, UniversalHeavyBall, accelerate, minimize
from momentous.lowrank import (
    ALSSweep,
    LowRankObjective,
    Metric,
    MMSweep,
    Ratings,
    minimize_in_metric,
)
from momentous.lowrank.solvers.metric import DAMPING

EVALUATIONS = (50, 100, 300, 1000)
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)  # of the seconds


def milliseconds(work: Callable[[], Any], repetitions: int = 5) -> float:
    """The shortest time, after a first one that compiles."""
    times = []
    for _ in range(repetitions + 1):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times[1:])


class Course:
    """The lowest objective so far, by evaluations and by seconds."""

    def __init__(self, start: float) -> None:
        self.points = [(0, 0.0, start)]

    def __call__(self, intermediate_result: Any) -> None:
        step, lowest = intermediate_result, self.points[-1][2]
        if step.fun < lowest:  # not where it is NaN
            lowest = step.fun
        self.points.append((step.njev, step.time, lowest))

    def after(self, column: int, limit: float) -> str:
        """The lowest objective up to the limit; nothing where the run did not get so far."""
        if self.points[-1][column] < 0.9 * limit:
            return "-"
        within = [point[2] for point in self.points if point[column] <= limit]
        return f"{within[-1]:.5f}"


def print_course(
    name: str, start: float, seconds: float, run: Callable[..., Any], counted: bool = True
) -> None:
    course = Course(start)
    result = run(callback=course, max_time=seconds, tol=0.0)
    line = f"{name:22}"
    line += "".join(f"{course.after(0, n) if counted else '':>9}" for n in EVALUATIONS)
    line += "".join(f"{course.after(1, share * seconds):>9}" for share in SHARES)
    if "refreshes" in result.numbers:
        line += f"{result.best_grad_norm:>9.0e}{result.numbers['refreshes']:>6}"
        line += f"{100 * result.numbers['refresh_seconds'] / result.time:>5.0f} %"
    elif counted:
        line += f"{result.best_grad_norm:>9.0e}"
    print(line, flush=True)


def print_problem(problem: LowRankObjective, sweep: Any, seconds: float, damping: float) -> None:
    x0 = problem.start()
    start = problem.value(x0)
    metric, state = Metric(problem, x0, damping), sweep.start()
    print(f"\n{problem.loss}, rank {problem.rank}, damping {damping:g}; milliseconds:")
    for name, work in (
        ("gradient", lambda: problem.value_and_gradient(x0)),
        ("there and back", lambda: metric.pulled(metric.point(x0))),
        ("metric", lambda: Metric(problem, x0, damping)),
        ("sweep", lambda: sweep(state)),
    ):
        print(f"  {name} {milliseconds(work):.1f}", end="")
    evaluations = "".join(f"{n:>9}" for n in EVALUATIONS)
    clock = "".join(f"{f'{share * seconds:g} s':>9}" for share in SHARES)
    print(f"\n{'objective after':22}{evaluations}{clock}{'gradient':>9}{'metrics':>8}", flush=True)

    def in_metric(method: Any) -> Callable[..., Any]:
        method = method(gradient_lipschitz=1.0)
        return lambda **limits: minimize_in_metric(
            problem, method=method, damping=damping, **limits
        )

    print_course(
        "L-BFGS",
        start,
        seconds,
        lambda **limits: minimize(
            problem.value_and_gradient, x0, jac=True, method=LBFGS(), **limits
        ),
    )
    print_course("heavy ball in metric", start, seconds, in_metric(UniversalHeavyBall))
    print_course("AGD in metric", start, seconds, in_metric(ParameterFreeAGD))
    print_course(
        "accelerated sweeps",
        start,
        seconds,
        lambda **limits: accelerate(sweep, state, True, **limits),
        counted=False,
    )


def main(twin: str = "ml-1m", rank: str = "10", seconds: str = "8", damping: str = "") -> None:
    ratings = Ratings.twin(twin)
    print(f"{twin}: {ratings}")
    share = float(damping) if damping else DAMPING
    for loss, kind in (("squared", ALSSweep), ("logistic", MMSweep)):
        data = ratings.signs() if loss == "logistic" else ratings
        problem = LowRankObjective(data, int(rank), loss)  # type: ignore[arg-type]
        print_problem(problem, kind(data, int(rank)), float(seconds), share)


if __name__ == "__main__":
    main(*sys.argv[1:])
