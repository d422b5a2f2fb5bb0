"""The solvers under comparison: our methods and outside solvers, run and counted alike.

An outside solver gets the function through a `Meter`, which counts, keeps one row per evaluation,
and stops the solver from inside when the Euclidean norm of the gradient is at most the tolerance or
the budget is spent; the solver's own tolerances and limits are set so that they never act.
"""

import difflib
import json
import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from momentous.api import minimize
from momentous.core.acceptance import has_risen
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.status import Status
from momentous.core.trace import Trace
from momentous.io.optional import require
from momentous.lab.compare.problems import require_distinct
from momentous.lab.record import COLUMNS, Outcome, RunInfo, RunRecord, setup
from momentous.methods import REGISTRY, method_class, requirements
from momentous.testbed import Problem

NEVER = 10**9  # iterations or evaluations: a limit that is never met


@dataclass(frozen=True)
class Limits:
    """When a run is over: a gradient norm, values plus gradients, seconds."""

    tol: float
    max_evaluations: int
    max_time: float
    start_fun: float = math.inf  # a small gradient where f is above this is no success


@dataclass(frozen=True)
class TimedInfo(RunInfo):
    """What was run, and what it took outside the function."""

    overhead: float | None = None  # CPU seconds per gradient


class NotApplicableError(Exception):
    """A solver cannot be run on this problem, or not in this installation."""


@dataclass(frozen=True)
class Solver:
    """A solver under its name in the table.

    ``parameters`` change whenever another solver, or other parameters, stand behind the name.
    """

    name: str
    guarantee: str
    parameters: dict[str, Any]
    run: Callable[[Problem, Limits, bool, int], RunRecord[TimedInfo]]  # ..., separate, seed


def as_solvers(methods: Any) -> list[Solver]:
    """The solvers of a comparison: names, Method classes, instances, or a dict of them."""
    if isinstance(methods, Mapping):
        made = [_as_solver(method, name) for name, method in methods.items()]
    else:
        one = isinstance(methods, str | Method | type)
        made = [_as_solver(method) for method in ([methods] if one else methods)]
    require_distinct("method", [solver.name for solver in made])
    return made


def _as_solver(method: Any, name: str | None = None) -> Solver:
    if isinstance(method, str):
        key = method.lower().replace("_", "-")
        if ":" in key:
            return _outside(key, name)
        cls = method_class(key)
        return _ours(cls, name or ("auto" if key == "auto" else cls.name))
    if isinstance(method, Method):
        return _ours(method, name or _name_of(method))
    if isinstance(method, type) and issubclass(method, Method):
        return _ours(method, name or method.name)
    raise TypeError(
        f"method={method!r} must be a name, a Method class, an instance, or an outside solver: "
        f"auto, {', '.join([*REGISTRY, *OUTSIDE_SOLVERS])}"
    )


def describe_error(error: Exception) -> str:
    """An exception as the message of an outcome, on one line."""
    return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"


# --- ours -----------------------------------------------------------------------------------------


def _ours(method: Method | type[Method], name: str) -> Solver:
    cls = method if isinstance(method, type) else type(method)
    parameters: dict[str, Any] = {"class": f"{cls.__module__}.{cls.__qualname__}"}
    for field in fields(cls):  # a class has its defaults
        parameters[field.name] = _plain(getattr(method, field.name, field.default))
    return Solver(name, method.guarantee, parameters, partial(_run_ours, method))


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value


def _name_of(method: Method) -> str:
    """The name of an instance, with the parameters that are not the defaults."""
    values = [(field, getattr(method, field.name)) for field in fields(method)]
    changed = [f"{field.name}={v!r}" for field, v in values if v != field.default]
    return f"{method.name}({', '.join(changed)})" if changed else method.name


def _with_constants(cls: type[Method], problem: Problem) -> Method:
    """The method with its defaults; where it needs L and rho, with those of the problem."""
    constants = {name: getattr(problem, name, None) for name in cls.requires}
    if constants and (None in constants.values() or math.isfinite(problem.constants_radius)):
        raise NotApplicableError(
            f"{cls.name} needs {requirements(cls)}, and {problem.name} has none that hold "
            "everywhere"
        )
    return cls(**constants)


class CpuClock:
    """CPU time, divided into that inside the user's function and the rest."""

    def __init__(self) -> None:
        self.inside = 0.0
        self.restart()

    def restart(self) -> None:
        """Time counts from here."""
        self._started = process_time()

    def around(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same function, whose time is inside."""

        def timed(x: Any) -> Any:
            begun = process_time()
            try:
                return function(x)
            finally:
                self.inside += process_time() - begun

        return timed

    def outside_per(self, calls: int) -> float | None:
        """Seconds outside the function, over so many calls."""
        outside = process_time() - self._started - self.inside
        return outside / calls if calls else None


def _run_ours(
    method: Method | type[Method], problem: Problem, limits: Limits, separate: bool, seed: int
) -> RunRecord[TimedInfo]:
    made = method if isinstance(method, Method) else _with_constants(method, problem)

    def at_the_goal(intermediate_result: IntermediateResult) -> bool:
        step = intermediate_result
        # Methods that look for more than a small gradient would go on.
        if step.grad_norm > limits.tol:
            return False
        return not has_risen(step.peek() if math.isnan(step.fun) else step.fun, limits.start_fun)

    cpu = CpuClock()
    result = minimize(
        cpu.around(problem.value if separate else problem.value_and_gradient),
        problem.start,
        jac=cpu.around(problem.gradient) if separate else True,
        method=made,
        tol=limits.tol,
        max_iterations=None,
        max_evaluations=limits.max_evaluations,
        max_time=limits.max_time,
        callback=at_the_goal,
        rng=seed,
        trace=Trace(values=separate),  # with a fused function every gradient brings its value
    )
    overhead = cpu.outside_per(result.njev)
    assert result.trace is not None
    outcome = Outcome.from_result(result)
    if result.status is Status.STOPPED:
        message = f"the gradient norm {result.best_grad_norm:.3g} is small"
        outcome = Outcome("converged", message, outcome.nit, outcome.restarts)
    info = TimedInfo(problem.name, made.name, made.parameters(), setup(), overhead)
    return RunRecord.from_trace(info, outcome, result.trace)


# --- outside --------------------------------------------------------------------------------------


class StopError(Exception):
    """The meter's way out of a solver that knows nothing of our limits."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


class Meter:
    """The function as an outside solver sees it: counted, timed, kept, and stopped.

    The clocks stand still while the meter does its own work (norms, rows).
    """

    def __init__(self, problem: Problem, limits: Limits):
        self.shape = problem.start.shape
        self.nfev = self.njev = 0
        self._limits = limits
        self._columns = {name: array("d") for name in COLUMNS if name != "step_size"}
        self.cpu = CpuClock()
        self._both = self.cpu.around(problem.value_and_gradient)
        self._value = self.cpu.around(problem.value)
        self.start_clock()

    def start_clock(self) -> None:
        """Time counts from here."""
        self._started = perf_counter()
        self.cpu.restart()

    def both(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient: one of each."""
        value, gradient = self._both(x.reshape(self.shape))
        return self._note(value, gradient, 1, 1)

    def value(self, x: np.ndarray) -> float:
        """A value."""
        return self._note(self._value(x.reshape(self.shape)), None, 1, 0)[0]

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """A gradient; the value that comes along is for the record only."""
        value, gradient = self._both(x.reshape(self.shape))
        return self._note(value, gradient, 0, 1)[1]

    def columns(self) -> dict[str, np.ndarray]:
        """One row per evaluation."""
        return {name: np.array(column) for name, column in self._columns.items()}

    def _note(
        self, value: Any, gradient: np.ndarray | None, values: int, gradients: int
    ) -> tuple[float, np.ndarray]:
        paused, own = perf_counter(), process_time()
        elapsed = paused - self._started
        fun = float(value)
        flat = np.empty(0) if gradient is None else np.ravel(gradient)
        norm = math.nan if gradient is None else float(np.linalg.norm(flat))
        self.nfev += values
        self.njev += gradients
        row = (self.nfev, self.njev, elapsed, fun, norm)
        for column, entry in zip(self._columns.values(), row, strict=True):
            column.append(entry)
        self._stop_if_over(elapsed, fun, norm)
        self.cpu.inside += process_time() - own
        self._started += perf_counter() - paused
        return fun, flat

    def _stop_if_over(self, elapsed: float, fun: float, norm: float) -> None:
        limits = self._limits
        if norm <= limits.tol and not has_risen(fun, self._columns["fun"][0]):
            words = f"the gradient norm {norm:.3g} is within the tolerance {limits.tol:.3g}"
            raise StopError("converged", words)
        if self.nfev + self.njev >= limits.max_evaluations:
            words = f"{self.nfev} values and {self.njev} gradients"
            raise StopError("max evaluations", f"{words}, {limits.max_evaluations} allowed")
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
        torch = require("torch", "torch", "torch:lbfgs")
    except ModuleNotFoundError as error:
        raise NotApplicableError(str(error)) from None
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


OUTSIDE_SOLVERS: dict[str, Solve] = {
    "scipy:l-bfgs-b": _scipy("L-BFGS-B", ftol=0.0, gtol=0.0, maxls=50, maxiter=NEVER, maxfun=NEVER),
    "scipy:cg": _scipy("CG", gtol=0.0, maxiter=NEVER),
    "torch:lbfgs": _torch_lbfgs,
}
"""The outside solvers by name."""


def _outside(key: str, name: str | None) -> Solver:
    if key not in OUTSIDE_SOLVERS:
        close = difflib.get_close_matches(key, OUTSIDE_SOLVERS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        known = ", ".join(OUTSIDE_SOLVERS)
        raise ValueError(f"no outside solver is called {key!r}{hint} There are: {known}")

    def run(problem: Problem, limits: Limits, separate: bool, seed: int) -> RunRecord[TimedInfo]:
        return run_outside(key, problem, limits, separate=separate)

    return Solver(name or key, "none", {"solver": key}, run)


def run_outside(
    name: str, problem: Problem, limits: Limits, *, separate: bool = False
) -> RunRecord[TimedInfo]:
    """Run one of `OUTSIDE_SOLVERS` from the start of the problem.

    With ``separate`` it gets value and gradient as two functions, where it can make use of that.
    The status is "converged", "max evaluations" or "max time" where the meter stopped it; "gave up"
    where it ended by itself above the tolerance (the message is its own, such as SciPy's
    "ABNORMAL: "); "failed" where it raised.
    """
    meter = Meter(problem, limits)
    start = np.array(problem.start, dtype=np.float64).ravel()
    try:
        outcome = Outcome("gave up", OUTSIDE_SOLVERS[name](meter, start, separate))
    except StopError as stop:
        outcome = Outcome(stop.status, str(stop))
    except NotApplicableError:
        raise
    except Exception as error:
        outcome = Outcome("failed", describe_error(error))
    overhead = meter.cpu.outside_per(meter.njev)
    info = TimedInfo(problem.name, name, {"solver": name}, setup(), overhead)
    return RunRecord.from_columns(info, outcome, meter.columns())
