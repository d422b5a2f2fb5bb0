"""Who competes on what: any way to name a method or a problem becomes one that can be run."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from momentous.api import minimize
from momentous.comparison.history import History, Limits, NotApplicableError, Ran, risen
from momentous.comparison.rivals import RIVALS, run_rival
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.status import Status
from momentous.core.trace import Trace
from momentous.methods import REGISTRY, method_class, requirements
from momentous.testbed import Problem
from momentous.testbed.suite import Entry


@dataclass(frozen=True)
class Contestant:
    """A method under its name in the table.

    ``signature`` changes whenever another method, or other parameters, stand behind the name.
    """

    label: str
    guarantee: str
    signature: str
    run: Callable[[Problem, Limits, bool, int], Ran]  # problem, limits, separate, seed


def contestants(methods: Any) -> list[Contestant]:
    """The methods of a comparison: names, classes, instances, rivals' names, or a dict of them."""
    if isinstance(methods, Mapping):
        made = [_contestant(method, label) for label, method in methods.items()]
    elif isinstance(methods, str | Method | type):
        made = [_contestant(methods)]
    else:
        made = [_contestant(method) for method in methods]
    _require_distinct("method", [each.label for each in made])
    return made


def _contestant(method: Any, label: str | None = None) -> Contestant:
    if isinstance(method, str):
        key = method.lower().replace("_", "-")
        if ":" in key:
            return _rival(key, label)
        cls = method_class(key)
        label = label or ("auto" if key == "auto" else cls.name)
        return _ours(cls, label, _signature(cls))
    if isinstance(method, type) and issubclass(method, Method):
        return _ours(method, label or method.name, _signature(method))
    if isinstance(method, Method):
        return _ours(method, label or _described(method), repr(method))
    raise TypeError(
        f"method={method!r} must be a name, a Method class, an instance, or an outside solver: "
        f"auto, {', '.join([*REGISTRY, *RIVALS])}"
    )


def _signature(cls: type[Method]) -> str:
    """The class and its defaults."""
    defaults = ", ".join(f"{field.name}={field.default!r}" for field in fields(cls))
    return f"{cls.__module__}.{cls.__qualname__}({defaults})"


def _described(method: Method) -> str:
    """The name of an instance, with the parameters that are not the defaults."""
    told = [
        f"{field.name}={getattr(method, field.name)!r}"
        for field in fields(method)
        if getattr(method, field.name) != field.default
    ]
    return f"{method.name}({', '.join(told)})" if told else method.name


def _rival(name: str, label: str | None) -> Contestant:
    if name not in RIVALS:
        close = difflib.get_close_matches(name, RIVALS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"no outside solver is called {name!r}{hint} There are: {', '.join(RIVALS)}"
        )

    def run(problem: Problem, limits: Limits, separate: bool, seed: int) -> Ran:
        return run_rival(name, problem, limits, separate=separate)

    return Contestant(label or name, "none", name, run)


def _ours(method: Method | type[Method], label: str, signature: str) -> Contestant:
    def run(problem: Problem, limits: Limits, separate: bool, seed: int) -> Ran:
        made = method if isinstance(method, Method) else _outfitted(method, problem)
        return _run_ours(made, problem, limits, separate, seed)

    return Contestant(label, method.guarantee, signature, run)


def _outfitted(cls: type[Method], problem: Problem) -> Method:
    """The method with its defaults; where it needs L and rho, with those of the problem."""
    if not cls.requires:
        return cls()
    constants = {
        "gradient_lipschitz": problem.gradient_lipschitz,
        "hessian_lipschitz": problem.hessian_lipschitz,
    }
    if None in constants.values() or math.isfinite(problem.constants_radius):
        raise NotApplicableError(
            f"{cls.name} needs {requirements(cls)}, and {problem.name} has none that hold "
            "everywhere"
        )
    return cls(**constants)


def _run_ours(method: Method, problem: Problem, limits: Limits, separate: bool, seed: int) -> Ran:
    def at_the_goal(step: IntermediateResult) -> bool:
        # Methods that look for more than a small gradient would go on.
        if step.grad_norm > limits.tol:
            return False
        return not risen(step.peek() if math.isnan(step.fun) else step.fun, limits.start_fun)

    fun, jac = (problem.value, problem.gradient) if separate else (problem.value_and_gradient, True)
    result = minimize(
        fun,
        problem.start,
        jac=jac,
        method=method,
        tol=limits.tol,
        max_iterations=None,
        max_evaluations=limits.max_evaluations,
        max_time=limits.max_time,
        callback=at_the_goal,
        rng=seed,
        trace=Trace(values=separate),  # with a fused function every gradient brings its value
    )
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    assert result.trace is not None
    status, message = result.status.name.lower().replace("_", " "), result.message
    if result.status is Status.STOPPED:
        status, message = "converged", f"the gradient norm {result.best_grad_norm:.3g} is small"
    return Ran(History.of(result.trace), status, message, result.nit, result.restarts)


# --- problems -------------------------------------------------------------------------------------


def entries(problems: Any) -> list[Entry]:
    """The problems of a comparison: a Problem, an Entry, (name, fun, x0), or a list of them."""
    many = [problems] if _is_one(problems) else list(problems)
    made = [_entry(problem) for problem in many]
    _require_distinct("problem", [entry.name for entry in made])
    return made


@dataclass(frozen=True)
class Given:
    """Makes a problem that is there already."""

    problem: Problem

    def __call__(self) -> Problem:
        return self.problem

    @property
    def start(self) -> list[float]:
        """What tells it from another of the same name."""
        value, gradient = self.problem.value_and_gradient(self.problem.start)
        return [self.problem.dimension, float(value), float(np.linalg.norm(gradient))]


def _is_one(problems: Any) -> bool:
    return isinstance(problems, Problem | Entry) or (
        isinstance(problems, tuple) and len(problems) == 3 and isinstance(problems[0], str)
    )


def _entry(problem: Any) -> Entry:
    if isinstance(problem, Entry):
        return problem
    if not _is_one(problem):
        raise TypeError(
            f"{problem!r} is not a problem; give a Problem, an Entry of the suite, or a tuple "
            "(name, function that returns value and gradient, x0)"
        )
    made = problem if isinstance(problem, Problem) else _plain(*problem)
    return Entry(made.name, made.name, made.dimension, Given(made), False)


def _plain(name: str, fun: Callable[[Any], tuple[Any, Any]], x0: Any) -> Problem:
    """A user's function, of which nothing is known."""
    return Problem(
        name=name,
        description="given as a function",
        start=np.asarray(x0, dtype=np.float64),
        value=lambda x: fun(x)[0],
        value_and_gradient=fun,
    )


def _require_distinct(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"two of the {kind}s are called {name!r}; give every {kind} a name of its own"
            )
        seen.add(name)
