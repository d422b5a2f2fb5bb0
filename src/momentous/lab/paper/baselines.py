"""Solvers beside the seven in the demonstration: SciPy's L-BFGS-B, and accelerated sweeps."""

from __future__ import annotations

from array import array

import numpy as np

from momentous.api import accelerate
from momentous.core.loop import IntermediateResult
from momentous.io.optional import require
from momentous.lab.meter import Limits, run_outside
from momentous.lab.paper.problems import PaperProblem
from momentous.lab.paper.results import RunSet
from momentous.lab.paper.runs import OUR_PROFILE, PaperRun, run_info
from momentous.lab.record import Column, Outcome, RunRecord
from momentous.lowrank import ALSSweep, MMSweep
from momentous.testbed import Problem

QUASI_NEWTON, SWEEPS = "L-BFGS-B", "accelerated sweeps"
NOTES = {
    QUASI_NEWTON: "A row of L-BFGS-B is an evaluation of value and gradient together, not an "
    "iteration.",
    SWEEPS: "A sweep counts as one value and one gradient, but costs a few times as much: compare "
    "the sweeps with the others by time.",
}


def baseline_notes(run_set: RunSet) -> str:
    """What a reader has to know of the solvers that the paper does not compare."""
    there = {run.info.method for run in run_set.runs}
    notes = [note for name, note in NOTES.items() if name in there]
    return " ".join(["Not in the paper, with parameters of ours:", *notes] if notes else [])


def run_quasi_newton(problem: PaperProblem, evaluations: int) -> PaperRun:
    """SciPy's L-BFGS-B; a row is an evaluation of value and gradient together."""
    outside = Problem(
        name=problem.name,
        start=problem.start().astype(np.float64),
        value=problem.value,
        value_and_gradient=problem.objective.value_and_gradient,
    )
    # Its vectors are too short for more threads: they would wait for each other most of the time.
    threadpoolctl = require("threadpoolctl", "app", "L-BFGS-B")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        run = run_outside("scipy:l-bfgs-b", outside, Limits(0.0, evaluations))
    used = {"method": "scipy.optimize.minimize, L-BFGS-B", "pairs": 10}
    info = run_info(problem, QUASI_NEWTON, used, iterations=len(run) - 1, profile=OUR_PROFILE)
    return RunRecord.from_columns(info, run.outcome, run.columns)


def run_sweeps(problem: PaperProblem, sweeps: int) -> PaperRun:
    """Restarted momentum around sweeps, ALS or MM; a row is a sweep.

    A sweep counts as one value and one gradient, though it costs a few times as much: look at the
    time.  What the row shows, the objective of the paper and its gradient norm at the balanced
    factors, is neither counted nor timed.
    """
    kind = MMSweep if problem.name == "one-bit" else ALSSweep
    objective = problem.objective
    sweep: ALSSweep | MMSweep = kind(problem.ratings, objective.rank, threads=objective.threads)
    sweep(sweep.start())  # compiled before the clock runs
    shown = {name: array("d") for name in ("fun", "grad_norm")}

    def look(intermediate_result: IntermediateResult) -> None:
        factors = sweep.factors(intermediate_result.x)
        fun, gradient = objective.value_and_gradient(objective.join(*factors))
        shown["fun"].append(fun)
        shown["grad_norm"].append(float(np.linalg.norm(gradient)))

    result = accelerate(
        sweep, sweep.start(), value=True, tol=0.0, max_iterations=sweeps, callback=look, secants=0
    )
    assert result.trace is not None
    columns: dict[str, Column] = {name: result.trace[name][1:] for name in ("nfev", "njev", "time")}
    events = [(nit - 1, event.kind, event.value) for nit, event in result.trace.events if nit]
    used = {"method": f"accelerate({kind.__name__})", "restart": result.method.restart}
    info = run_info(problem, SWEEPS, used, iterations=sweeps, profile=OUR_PROFILE)
    return RunRecord.from_columns(info, Outcome.from_result(result), columns | shown, events)
