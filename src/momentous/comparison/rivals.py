"""Outside solvers, run through counters like ours and stopped at the same tolerance.

Each gets the function through a `Meter`, which counts, keeps a row an evaluation, and stops the
solver from inside when the Euclidean norm of the gradient is at most the tolerance or the budget is
spent; the solvers' own tolerances and limits are set so that they never bite.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from momentous.comparison.history import (
    COLUMNS,
    History,
    Limits,
    NotApplicableError,
    Ran,
    describe_error,
    risen,
)
from momentous.testbed import Problem

NEVER = 10**9  # iterations or evaluations: a limit that is not one


class StopError(Exception):
    """The meter's way out of a solver that knows nothing of our limits."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


class Meter:
    """The function as an outside solver sees it: counted, timed, kept, and stopped.

    The clock stands still while the meter does its own work (norms, rows).
    """

    def __init__(self, problem: Problem, limits: Limits):
        self.shape = problem.start.shape
        self.nfev = self.njev = 0
        self._problem, self._limits = problem, limits
        self._columns = {name: array("d") for name in COLUMNS}
        self._start_fun = float("inf")
        self.start_clock()

    def start_clock(self) -> None:
        self._started = perf_counter()

    def both(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient: one of each."""
        value, gradient = self._problem.value_and_gradient(x.reshape(self.shape))
        return self._note(value, gradient, 1, 1)

    def value(self, x: np.ndarray) -> float:
        """A value."""
        return self._note(self._problem.value(x.reshape(self.shape)), None, 1, 0)[0]

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """A gradient; the value that comes along is for the record only."""
        value, gradient = self._problem.value_and_gradient(x.reshape(self.shape))
        return self._note(value, gradient, 0, 1)[1]

    def history(self) -> History:
        columns = {name: np.array(column) for name, column in self._columns.items()}
        for name in ("nfev", "njev"):
            columns[name] = columns[name].astype(np.int64)
        return History.from_columns(columns, [])

    def _note(
        self, value: Any, gradient: np.ndarray | None, values: int, gradients: int
    ) -> tuple[float, np.ndarray]:
        paused = perf_counter()
        elapsed = paused - self._started
        fun = float(value)
        flat = np.empty(0) if gradient is None else np.ravel(gradient)
        norm = float(np.linalg.norm(flat)) if gradient is not None else float("nan")
        self.nfev += values
        self.njev += gradients
        row = (self.nfev, self.njev, elapsed, fun, norm)
        for column, entry in zip(self._columns.values(), row, strict=True):
            column.append(entry)
        if len(self._columns["fun"]) == 1:
            self._start_fun = fun
        self._stop_if_over(elapsed, fun, norm)
        self._started += perf_counter() - paused
        return fun, flat

    def _stop_if_over(self, elapsed: float, fun: float, norm: float) -> None:
        limits = self._limits
        if norm <= limits.tol and not risen(fun, self._start_fun):
            raise StopError(
                "converged",
                f"the gradient norm {norm:.3g} is within the tolerance {limits.tol:.3g}",
            )
        if self.nfev + self.njev >= limits.max_evaluations:
            raise StopError(
                "max evaluations",
                f"{self.nfev} values and {self.njev} gradients, {limits.max_evaluations} allowed",
            )
        if elapsed >= limits.max_time:
            raise StopError("max time", f"{elapsed:.3g} s, {limits.max_time:.3g} s allowed")


Solve = Callable[[Meter, np.ndarray, bool], str]
"""(meter, flat start, separate) -> why the solver ended by itself."""


def _scipy(method: str, **options: Any) -> Solve:
    def solve(meter: Meter, x0: np.ndarray, separate: bool) -> str:
        from scipy.optimize import minimize

        fun, jac = (meter.value, meter.gradient) if separate else (meter.both, True)
        meter.start_clock()
        answer = minimize(fun, x0, jac=jac, method=method, options=options)
        return str(answer.message)

    return solve


def _torch_lbfgs(meter: Meter, x0: np.ndarray, separate: bool) -> str:
    """As many pairs of vectors as SciPy keeps; its closure always wants value and gradient."""
    try:
        import torch
    except ModuleNotFoundError:
        raise NotApplicableError(
            "torch:lbfgs needs PyTorch, which is not installed; install it with: "
            'pip install "momentous[torch]"'
        ) from None
    leaf = torch.from_numpy(x0.copy()).requires_grad_()
    point = leaf.detach().numpy()  # the same memory: the solver moves it
    optimiser = torch.optim.LBFGS(
        [leaf],
        lr=1.0,
        max_iter=NEVER,
        max_eval=NEVER,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        value, gradient = meter.both(point)
        # The solver copies it; PyTorch warns of what it could not write into.
        leaf.grad = torch.from_numpy(gradient if gradient.flags.writeable else gradient.copy())
        return value

    meter.start_clock()
    optimiser.step(closure)
    return "torch.optim.LBFGS ended by itself: its direction or its step vanished"


RIVALS: dict[str, Solve] = {
    "scipy:l-bfgs-b": _scipy("L-BFGS-B", ftol=0.0, gtol=0.0, maxls=50, maxiter=NEVER, maxfun=NEVER),
    "scipy:cg": _scipy("CG", gtol=0.0, maxiter=NEVER),
    "torch:lbfgs": _torch_lbfgs,
}
"""The outside solvers by name."""


def run_rival(name: str, problem: Problem, limits: Limits, *, separate: bool = False) -> Ran:
    """Run an outside solver from the start of the problem.

    Parameters
    ----------
    name : str
        One of `RIVALS`.
    problem : Problem
        Where to start and what to minimise.
    limits : Limits
        When it is stopped.
    separate : bool
        Give value and gradient as two functions, where the solver can make use of that.

    Returns
    -------
    Ran
        Status "converged", "max evaluations" or "max time" where the meter stopped it; "gave up"
        where it ended by itself above the tolerance (the message is its own, such as SciPy's
        "ABNORMAL: "); "failed" where it raised.
    """
    meter = Meter(problem, limits)
    try:
        message = RIVALS[name](meter, np.array(problem.start, dtype=np.float64).ravel(), separate)
        status = "gave up"
    except StopError as stop:
        status, message = stop.status, str(stop)
    except NotApplicableError:
        raise
    except Exception as error:
        status, message = "failed", describe_error(error)
    return Ran(meter.history(), status, message)
