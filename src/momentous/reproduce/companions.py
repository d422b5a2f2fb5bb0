"""Who runs beside the seven in the demonstration: SciPy's L-BFGS-B, and the accelerated sweeps."""

from __future__ import annotations

import contextlib
from array import array
from typing import Any

import numpy as np

from momentous.api import accelerate
from momentous.comparison.history import History, Limits
from momentous.comparison.rivals import run_rival
from momentous.core.loop import IntermediateResult
from momentous.lowrank.sweeps import ALSSweep, MMSweep
from momentous.reproduce.problem import PaperProblem
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.recording import description
from momentous.reproduce.study import Group
from momentous.testbed import Problem

QUASI_NEWTON, SWEEPS = "L-BFGS-B", "accelerated sweeps"
NOTES = {
    QUASI_NEWTON: "A row of L-BFGS-B is an evaluation of value and gradient together, not an "
    "iteration.",
    SWEEPS: "A sweep counts as one value and one gradient, but costs a few times as much: compare "
    "the sweeps with the others by time.",
}


def note_on_companions(group: Group) -> str:
    """What has to be said beside the curves of those that the paper does not compare."""
    there = {run.about.method for run in group.runs}
    told = [note for name, note in NOTES.items() if name in there]
    return " ".join(["Not in the paper, with parameters of ours:", *told] if told else [])


def run_quasi_newton(problem: PaperProblem, evaluations: int) -> Recorded:
    """SciPy's L-BFGS-B; a row is an evaluation of value and gradient together."""
    outside = Problem(
        name=problem.name,
        description=problem.data.name,
        start=problem.start().astype(np.float64),
        value=problem.value,
        value_and_gradient=problem.value_and_gradient,
    )
    with _one_blas_thread():
        ran = run_rival("scipy:l-bfgs-b", outside, Limits(0.0, evaluations, np.inf))
    about = description(
        problem,
        QUASI_NEWTON,
        {"method": "scipy.optimize.minimize, L-BFGS-B", "pairs": 10},
        status=ran.status,
        message=ran.message,
        iterations=len(ran.history) - 1,
        profile="ours",
    )
    return Recorded(about, ran.history, np.full(len(ran.history), np.nan))


def _one_blas_thread() -> contextlib.AbstractContextManager[Any]:
    """Its vectors are too short for more: threads would wait for each other most of the time."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


def run_sweeps(problem: PaperProblem, sweeps: int) -> Recorded:
    """Restarted momentum around sweeps, ALS or MM; a row is a sweep.

    A sweep counts as one value and one gradient, though it costs a few times as much: look at the
    time.  What the row shows, the objective of the paper and its gradient norm at the balanced
    factors, is neither counted nor timed.
    """
    kind = MMSweep if problem.name == "one-bit" else ALSSweep
    objective = problem.objective
    sweep: Any = kind(problem.ratings, objective.rank, threads=objective.threads)
    sweep(sweep.start())  # compiled before the clock runs
    shown = {name: array("d") for name in ("fun", "grad_norm")}

    def look(step: IntermediateResult) -> None:
        fun, gradient = objective.value_and_gradient(objective.join(*sweep.factors(step.x)))
        shown["fun"].append(fun)
        shown["grad_norm"].append(float(np.linalg.norm(gradient)))

    result = accelerate(
        sweep, sweep.start(), value=True, tol=0.0, max_iterations=sweeps, callback=look
    )
    assert result.trace is not None
    columns = {name: column[1:] for name, column in result.trace.columns().items()}
    columns |= {name: np.array(column) for name, column in shown.items()}
    events = [(nit - 1, event.kind.name, event.value) for nit, event in result.trace.events if nit]
    about = description(
        problem,
        SWEEPS,
        {"method": f"accelerate({kind.__name__})", "restart": result.method.restart},
        status=result.status.name.lower().replace("_", " "),
        message=result.message,
        iterations=sweeps,
        profile="ours",
    )
    history = History.from_columns(columns, events)
    return Recorded(about, history, np.full(len(history), np.nan))
