"""The solvers under comparison: our methods, outside solvers and accelerations of maps, alike."""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TypeVar

from momentous.api import minimize
from momentous.core.acceptance import has_risen
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.result import Trace
from momentous.core.status import Status
from momentous.core.stopping import Evaluations, Progress
from momentous.lab.compare.accelerations import ACCELERATIONS
from momentous.lab.compare.problems import AnyProblem, require_distinct
from momentous.lab.meter import (
    CpuClock,
    Limits,
    MapMeter,
    NotApplicableError,
    TimedInfo,
    run_metered,
)
from momentous.lab.outside import OUTSIDE_SOLVERS, run_outside
from momentous.lab.record import Ended, Json, Outcome, RunRecord, setup
from momentous.methods.registry import REGISTRY, method_class, requirements
from momentous.testbed import Problem
from momentous.testbed.problem import MapProblem

OneMethod = str | Method | type[Method]
Methods = OneMethod | Iterable[OneMethod] | Mapping[str, OneMethod]
Run = Callable[[AnyProblem, Limits, bool, int], RunRecord[TimedInfo]]
"""(problem, limits, separate, seed) -> its record."""


@dataclass(frozen=True)
class Solver:
    """A solver under its name in the table.

    ``parameters`` change whenever another solver, or other parameters, stand behind the name.
    """

    name: str
    guarantee: str
    parameters: Json
    run: Run


def as_solvers(methods: Methods) -> list[Solver]:
    """The solvers of a comparison: names, Method classes, instances, or a dict of them."""
    if isinstance(methods, Mapping):
        made = [_as_solver(method, name) for name, method in methods.items()]
    elif isinstance(methods, str | Method | type):
        made = [_as_solver(methods)]
    else:
        made = [_as_solver(method) for method in methods]
    require_distinct("method", [solver.name for solver in made])
    return made


def _as_solver(method: OneMethod, name: str | None = None) -> Solver:
    if isinstance(method, str):
        key = method.lower().replace("_", "-")
        if ":" in key or key in ACCELERATIONS:
            return Solver(name or key, "none", {"solver": key}, _metered(key))
        cls = method_class(key)
        return _ours(cls, name or ("auto" if key == "auto" else cls.name))
    if isinstance(method, Method):
        return _ours(method, name or _name_of(method))
    if isinstance(method, type) and issubclass(method, Method):
        return _ours(method, name or method.name)
    raise TypeError(
        f"method={method!r} must be a name, a Method class, an instance, or an outside solver: "
        f"auto, {', '.join([*REGISTRY, *OUTSIDE_SOLVERS])}; of maps: {', '.join(ACCELERATIONS)}"
    )


P = TypeVar("P", Problem, MapProblem)


def _require(kind: type[P], problem: AnyProblem, name: str) -> P:
    """A problem of the kind that a solver is for."""
    if isinstance(problem, kind):
        return problem
    kinds = ("functions", "a map") if kind is Problem else ("maps", "a function")
    raise NotApplicableError(f"{name} is for {kinds[0]}, and {problem.name} is {kinds[1]}")


def _metered(key: str) -> Run:
    """How a solver that is not ours is run."""
    if key in ACCELERATIONS:
        return lambda problem, limits, separate, seed: run_metered(
            key, ACCELERATIONS[key], MapMeter(_require(MapProblem, problem, key), limits)
        )
    if key not in OUTSIDE_SOLVERS:
        close = difflib.get_close_matches(key, OUTSIDE_SOLVERS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        known = ", ".join(OUTSIDE_SOLVERS)
        raise ValueError(f"no outside solver is called {key!r}{hint} There are: {known}")
    return lambda problem, limits, separate, seed: run_outside(
        key, _require(Problem, problem, key), limits, separate=separate
    )


# --- ours -----------------------------------------------------------------------------------------


def _ours(method: Method | type[Method], name: str) -> Solver:
    cls = method if isinstance(method, type) else type(method)
    parameters: Json = {"class": f"{cls.__module__}.{cls.__qualname__}"}
    for field in fields(cls):  # a class has its defaults
        parameters[field.name] = _plain(getattr(method, field.name, field.default))
    return Solver(name, method.guarantee, parameters, partial(_run_ours, method))


def _plain(value: object) -> object:
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


class _ValuesPlusGradients(Evaluations):
    """The budget of comparisons, in which a method that needs no values has more gradients."""

    def spent(self, progress: Progress) -> int:
        return progress.nfev + progress.njev


def _run_ours(
    method: Method | type[Method], given: AnyProblem, limits: Limits, separate: bool, seed: int
) -> RunRecord[TimedInfo]:
    problem = _require(Problem, given, method.name)
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
        stop=_ValuesPlusGradients(limits.max_evaluations),
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
        outcome = Outcome(Ended.CONVERGED, message, outcome.nit, outcome.restarts)
    info = TimedInfo(problem.name, made.name, made.parameters(), setup(), overhead)
    return RunRecord.from_trace(info, outcome, result.trace)
