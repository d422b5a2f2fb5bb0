"""The demonstration: the paper's five methods and L-BFGS-B on a worst-case function, looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.trace import Trace
from momentous.front import minimize
from momentous.methods import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD
from momentous.testbed import Problem, nested_chain

# Told apart by colour-blind readers too (Okabe and Ito); one a method, in the order of the table.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#4D4D4D")

Show = Callable[[float], None]


@dataclass
class Outcome:
    """One method's run, as the table and the picture need it."""

    label: str
    ending: str
    nfev: int
    njev: int
    restarts: int | None
    fun: float
    grad_norm: float
    seconds: float
    evaluations: np.ndarray  # values plus gradients so far, one entry a row
    values: np.ndarray
    norms: np.ndarray
    restart_rows: list[int]


def run_demo(out: Path, mu: float = 1e-3) -> list[Outcome]:
    """Run, print the table, save the picture."""
    console = Console()
    problem, tol = nested_chain(8, mu), mu / 4
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    assert L is not None
    assert rho is not None
    methods = [RAGD(L, rho), RHB(L, rho), PerturbedRAGD(L, rho, eps=tol), AdaRAGD(), AdaRHB()]
    console.print(
        f"[bold]{problem.name}[/bold], {problem.dimension} variables: a function on which no "
        f"first-order method can be fast.  Goal: gradient norm {tol:.3g}."
    )
    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description:16}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    outcomes = []
    with Progress(*columns, console=console, refresh_per_second=8) as display:
        norm0 = float(np.linalg.norm(problem.gradient(problem.start)))
        runs = [partial(_run_ours, problem, tol, method) for method in methods]
        labels = [type(method).__name__ for method in methods] + ["L-BFGS-B"]
        tasks = [display.add_task(name, total=1.0, state="waiting", start=False) for name in labels]
        for task, run in zip(tasks, [*runs, partial(_run_scipy, problem, tol)], strict=True):
            outcome = run(_shower(display, task, norm0, tol))
            outcomes.append(outcome)
            text = f"gradient norm {outcome.grad_norm:8.2e}"
            display.update(task, completed=1.0, state=text)
    console.print(_table(outcomes, tol, problem.minimum or 0.0))
    picture = out / "convergence.png"
    out.mkdir(parents=True, exist_ok=True)
    _draw(outcomes, problem, tol, picture)
    spent = {outcome.label: f"{outcome.nfev + outcome.njev:,}" for outcome in outcomes}
    console.print(
        f"The picture is [bold]{picture}[/bold].  Look at the two adaptive methods: they were told "
        "nothing, find their own step size and restart where the circles are.  Values + gradients: "
        f"AdaRAGD {spent['AdaRAGD']}, AdaRHB {spent['AdaRHB']}, with theory's fixed radius RAGD "
        f"{spent['RAGD']}; L-BFGS-B, which has no guarantee on nonconvex functions, "
        f"{spent['L-BFGS-B']}."
    )
    return outcomes


def _shower(display: Progress, task: Any, norm0: float, tol: float) -> Show:
    """A function that moves a bar by how many of the digits to the goal are there."""
    display.start_task(task)
    state = {"best": norm0, "shown": 0.0}

    def show(norm: float) -> None:
        state["best"] = min(state["best"], norm)
        if time.monotonic() - state["shown"] < 0.1:
            return
        state["shown"] = time.monotonic()
        share = math.log(norm0 / state["best"]) / math.log(norm0 / tol)
        text = f"gradient norm {state['best']:8.2e}"
        display.update(task, completed=min(max(share, 0.0), 1.0), state=text)

    return show


def _run_ours(problem: Problem, tol: float, method: Method, show: Show) -> Outcome:
    def callback(step: IntermediateResult) -> None:
        show(step.grad_norm)

    result = minimize(
        problem.value,
        problem.start,
        jac=problem.gradient,
        method=method,
        tol=tol,
        max_iterations=1_000_000,
        callback=callback,
        trace=Trace(values=True),
    )
    trace = result.trace
    assert trace is not None
    return Outcome(
        label=type(method).__name__,
        ending=result.status.name.lower().replace("_", " "),
        nfev=result.nfev,
        njev=result.njev,
        restarts=result.restarts,
        fun=result.fun,
        grad_norm=result.grad_norm,
        seconds=result.time,
        evaluations=trace["nfev"] + trace["njev"],
        values=trace["fun"],
        norms=trace["grad_norm"],
        restart_rows=[*trace.when("restart"), *trace.when("rollback")],
    )


def _run_scipy(problem: Problem, tol: float, show: Show) -> Outcome:
    """SciPy's L-BFGS-B, stopped by the same Euclidean norm and counted in the same way."""
    from scipy.optimize import minimize as scipy_minimize

    values: list[float] = []
    norms: list[float] = []
    seconds = 0.0

    class GoalReachedError(Exception):
        pass

    def fused(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = problem.value_and_gradient(x)
        values.append(float(value))
        norms.append(float(np.linalg.norm(gradient)))
        nonlocal seconds
        paused = time.perf_counter()
        show(norms[-1])
        seconds -= time.perf_counter() - paused
        if norms[-1] <= tol:
            raise GoalReachedError
        return value, gradient

    started = time.perf_counter()
    ending = "converged"
    try:
        options = {"ftol": 0, "gtol": 0, "maxiter": 100_000, "maxfun": 1_000_000, "maxls": 50}
        answer = scipy_minimize(fused, problem.start, jac=True, method="L-BFGS-B", options=options)
        ending = str(answer.message).lower()
    except GoalReachedError:
        pass
    seconds += time.perf_counter() - started
    return Outcome(
        label="L-BFGS-B",
        ending=ending,
        nfev=len(values),
        njev=len(values),
        restarts=None,
        fun=values[-1],
        grad_norm=norms[-1],
        seconds=seconds,
        evaluations=2 * np.arange(1, len(values) + 1),
        values=np.array(values),
        norms=np.array(norms),
        restart_rows=[],
    )


def _table(outcomes: list[Outcome], tol: float, lowest: float) -> Table:
    table = Table(
        title=f"to a gradient norm of {tol:.3g}",
        box=SIMPLE_HEAD,
        padding=(0, 0),
        collapse_padding=True,
    )
    for heading in ("method", "ended"):
        table.add_column(heading)
    for heading in ("values", "gradients", "restarts", "|grad f|", "f - min f", "seconds"):
        table.add_column(heading, justify="right")
    for o in outcomes:
        table.add_row(
            o.label,
            o.ending,
            f"{o.nfev:,}",
            f"{o.njev:,}",
            "" if o.restarts is None else f"{o.restarts:,}",
            f"{o.grad_norm:.2e}",
            f"{o.fun - lowest:.2e}",
            f"{o.seconds:.2f}",
        )
    return table


def _draw(outcomes: list[Outcome], problem: Problem, tol: float, picture: Path) -> None:
    """Objective and gradient norm against evaluations; circles where the momentum restarted."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    lowest = problem.minimum or 0.0
    for outcome, colour in zip(outcomes, COLOURS, strict=True):
        at = np.maximum(outcome.evaluations, 1)
        best = np.minimum.accumulate(outcome.norms)
        error = np.minimum.accumulate(np.maximum(outcome.values - lowest, 1e-16))
        dashed = "--" if outcome.restarts is None else "-"
        left.plot(at, error, color=colour, lw=1.6, ls=dashed, label=outcome.label)
        right.plot(at, best, color=colour, lw=1.6, ls=dashed, label=outcome.label)
        rows = outcome.restart_rows
        if 0 < len(rows) <= 200:  # where there are thousands they would hide the line
            marks = {"ls": "", "marker": "o", "ms": 4.5, "mfc": "white", "mec": colour}
            left.plot(at[rows], error[rows], **marks)
            right.plot(at[rows], best[rows], **marks)
    # The last digits of the one method that goes further than asked would flatten all the rest.
    left.set_ylim(1e-7 * outcomes[0].values[0], 3 * outcomes[0].values[0])
    right.set_ylim(tol / 30, 3 * outcomes[0].norms[0])
    right.axhline(tol, color="#999999", lw=1, ls=":")
    right.annotate(
        "goal", (0.01, tol), xycoords=("axes fraction", "data"), va="bottom", color="#666666"
    )
    left.set_ylabel("smallest objective so far, above the minimum")
    right.set_ylabel("smallest gradient norm so far")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("values + gradients")
        axes.grid(True, which="major", color="#E5E5E5", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=9, loc="lower left")
    title = f"{problem.name}, {problem.dimension} variables (circles: restarts)"
    figure.suptitle(title, fontsize=11)
    figure.savefig(picture, dpi=130)
