"""What is run on ranks, case by case; every case gives something that JSON can hold."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from problem import Regression

import momentous.core.checkpoint as module
from momentous import (
    L1,
    Ball,
    Checkpoint,
    Criterion,
    ElasticNet,
    Ending,
    GroupL2,
    NonNegative,
    Simplex,
    Status,
    accelerate,
    certify,
    iterate,
    minimize,
)
from momentous.distributed import Alone, Data, Ranks, Variables
from momentous.methods.registry import REGISTRY

PROBLEM = Regression()
LAYOUTS = {"data": Data, "variables": Variables}
STEPS = 25
BOUNDS = (-1.0, 1.0)
# Parameters with which the methods that need constants draw and restart in a few steps; all others
# run as they do on the scoreboard, with nothing given.
OPTIONS: dict[str, dict[str, Any]] = {
    "perturbed-ragd": {"step_size": 0.05, "momentum": 0.9, "radius": 2.0, "epoch_length": 60,
                       "perturbation": 1e-2},
    "jin-agd": {"eps": 10.0, "momentum": 0.9, "step_size": 0.05, "perturbation": 0.1, "wait": 8,
                "drop": 1e-3},
    "ragd": {"step_size": 0.05, "momentum": 0.9, "radius": 2.0, "epoch_length": 60},
    "rhb": {"step_size": 0.05, "momentum": 0.9, "radius": 2.0, "epoch_length": 60},
}  # fmt: skip


def options_of(name: str) -> dict[str, Any]:
    needed = {"gradient_lipschitz", "hessian_lipschitz"} & set(REGISTRY[name].requires)
    return {name: getattr(PROBLEM, name) for name in needed} | OPTIONS.get(name, {})


def run(ranks: Ranks, layout: str, fun: Callable | None = None, **options: Any):
    """A run on these ranks, by default of 25 steps of the regression."""
    options = {"jac": True, "max_iterations": STEPS, "tol": 1e-9} | options
    start = options.pop("x0", None)
    if ranks.size == 1:
        return minimize(fun or PROBLEM.whole, PROBLEM.start if start is None else start, **options)
    start = PROBLEM.start_on(ranks, layout) if start is None else start
    return minimize(
        fun or PROBLEM.on(ranks, layout), start, ranks=LAYOUTS[layout](ranks), **options
    )


def summary(result, ranks: Ranks, layout: str) -> dict[str, Any]:
    x = result.x
    if layout == "variables":
        x = ranks.all_gather(np.asarray(x))
    return {
        "fun": result.fun,
        "nit": result.nit,
        "nfev": result.nfev,
        "njev": result.njev,
        "restarts": result.restarts,
        "status": result.status.name,
        "message": result.message,
        "x": [float(v) for v in x[:5]] + [float(np.linalg.norm(x))],
        "events": sorted({str(event.kind) for _, event in result.trace.events}),
    }


def takes(name: str, layout: str) -> bool:
    """Does the method run where x is laid out so?  A dense matrix is not spread over ranks."""
    return (name, layout) != ("ssbroyden", "variables")


def method_runs(ranks: Ranks) -> dict[str, Any]:
    """Every method in both layouts, and those that take bounds with bounds."""
    found = {}
    for name in REGISTRY:
        for layout in LAYOUTS:
            if not takes(name, layout):
                continue
            result = run(ranks, layout, method=name, **options_of(name))
            found[f"{name} {layout}"] = summary(result, ranks, layout)
            if REGISTRY[name].takes_bounds:
                result = run(ranks, layout, method=name, bounds=BOUNDS)
                found[f"{name} {layout} bounds"] = summary(result, ranks, layout) | {
                    "inside": bool((abs(result.x) <= BOUNDS[1]).all()),
                    "active": float(result.trace["active"][-1]),
                }
    return found


def term_runs(ranks: Ranks) -> dict[str, Any]:
    """Simple terms in both layouts, with weights and groups of each rank's part of x."""
    found, size = {}, len(PROBLEM.start)
    for layout in LAYOUTS:
        part = PROBLEM.columns(ranks) if layout == "variables" else slice(None)
        terms = {
            "L1": L1(np.linspace(0.0, 0.4, size)[part]),
            "ElasticNet": ElasticNet(0.1, 0.3),
            "GroupL2": GroupL2(0.2, np.arange(size)[part] // 5),
            "Ball": Ball(3.0),
            "Own": Own(),
        }
        for name, term in terms.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # x0 lies outside of the ball
                result = run(ranks, layout, penalty=term)
            found[f"{name} {layout}"] = summary(result, ranks, layout) | {
                "penalty": result.penalty, "optimality": result.optimality,
            }  # fmt: skip
    if ranks.size > 1:
        for term in (Simplex(), GroupL2()):
            refused = ended(lambda term=term: run(ranks, "variables", penalty=term))
            found[type(term).__name__] = refused["message"]
    return found


class Own:
    """A term of a user's own that says that it is a sum over parts of x."""

    separable = True
    value, prox = L1(0.2).value, L1(0.2).prox


class EmptyPart(Regression):
    """Three columns on every rank but the last of three, which has none."""

    def __init__(self):
        super().__init__(20, 6)

    def columns(self, ranks: Ranks) -> slice:
        return slice(3 * ranks.rank, 3 * ranks.rank + 3 if ranks.size > 1 else None)


def runs_with_an_empty_part(ranks: Ranks) -> dict[str, Any]:
    """Terms and bounds of each part of x, entry by entry and in rows."""
    problem = EmptyPart()
    start = problem.start_on(ranks, "variables")
    on_entries = problem.on(ranks, "variables")

    def fun(x):
        value, gradient = on_entries(x.reshape(-1))
        return value, gradient.reshape(x.shape)

    rows, size = start.reshape(-1, 3), len(start)
    calls = {
        "labels": {"x0": start, "penalty": GroupL2(0.1, np.arange(size) // 3)},
        "rows": {"x0": rows, "penalty": GroupL2(0.1)},
        "Simplex": {"x0": np.full(rows.shape, 1 / 3), "penalty": Simplex()},
        "pairs": {"x0": np.zeros(size), "bounds": [(-0.2, 0.3)] * size},
    }
    return {name: run(ranks, "variables", fun, **given).fun for name, given in calls.items()}


def map_runs(ranks: Ranks) -> dict[str, Any]:
    """`accelerate` in both layouts: steepest descent as a map."""
    found, eta = {}, 1 / PROBLEM.gradient_lipschitz
    for layout in LAYOUTS:
        fun = PROBLEM.whole if ranks.size == 1 else PROBLEM.on(ranks, layout)
        part = {} if ranks.size == 1 else {"ranks": LAYOUTS[layout](ranks)}

        def step(x, fun=fun, layout=layout):
            gradient = fun(x)[1]
            return x - eta * (ranks.all_reduce(gradient) if layout == "data" else gradient)

        def value(x, fun=fun):
            return fun(x)[0]

        start = PROBLEM.start_on(ranks, layout)
        for kind, objective in (("values", value), ("none", None)):
            result = accelerate(step, start, objective, max_iterations=15, **part)
            found[f"{layout} {kind}"] = summary(result, ranks, layout)
    return found


def certificates(ranks: Ranks) -> dict[str, Any]:
    """`certify` in both layouts, by the whole matrix and by Lanczos."""
    found = {}
    for columns, products in ((9, None), (150, 34)):
        problem = Regression(60, columns)
        for layout in LAYOUTS:
            fun = problem.whole if ranks.size == 1 else problem.on(ranks, layout)
            part = {} if ranks.size == 1 else {"ranks": LAYOUTS[layout](ranks)}
            start = problem.start_on(ranks, layout)
            seen = certify(fun, start, jac=True, eps=1e3, max_products=products, **part)
            found[f"{columns} {layout}"] = [
                seen.verdict.value, seen.smallest_eigenvalue, seen.grad_norm, seen.products,
            ]  # fmt: skip
        fun = problem.whole if ranks.size == 1 else problem.on(ranks, "data")
        part = {} if ranks.size == 1 else {"ranks": Data(ranks)}
        seen = certify(
            fun, problem.start, jac=True, eps=1e3, max_products=products, penalty=L1(0.1), **part
        )
        found[f"{columns} L1"] = [
            seen.verdict.value, seen.smallest_eigenvalue, seen.grad_norm, seen.products,
        ]  # fmt: skip
    return found


def traffic(ranks: Ranks) -> dict[str, Any]:
    """Numbers and calls per iteration, and per evaluation, without those of the user's own: with
    value and gradient in one function, in two, and with a time limit."""
    found = {}
    fixed = {"step_size": 0.05, "momentum": 0.9, "radius": 1e6, "epoch_length": 10**6}
    problem = Regression(60, 1500)
    for layout in LAYOUTS:
        fun, start = problem.on(ranks, layout), problem.start_on(ranks, layout)
        for kind in ("fused", "separate", "timed"):
            calls, sent = 0, []

            def counted(x, fun=fun):
                nonlocal calls
                calls += 1
                return fun(x)

            options = {"method": "ragd", **fixed, "x0": start}
            if kind == "timed":
                options["max_time"] = 1e6
            call = counted
            if kind == "separate":
                options["jac"] = lambda x, both=counted: both(x)[1]
                call = lambda x, both=counted: both(x)[0]  # noqa: E731
            for steps in (32, 64):
                calls, before = 0, dataclasses.replace(ranks.traffic)
                result = run(ranks, layout, call, max_iterations=steps, **options)
                users = calls if layout == "variables" else 0
                sent.append((ranks.traffic.bytes - before.bytes - 8 * 60 * users,
                             ranks.traffic.calls - before.calls - users, result.njev))  # fmt: skip
            names = ("bytes", "calls", "evaluations")
            pairs = zip(names, *sent, strict=True)
            found[f"{layout} {kind}"] = {name: (b - a) / 32 for name, a, b in pairs}
    return found


def examples() -> list[float]:
    """The programs of the pages on ranks: what they find."""
    found = []
    docs = Path(__file__).parents[2] / "docs"
    for name in ("cluster.md", "how-to/spread-variables.md", "how-to/ratings-on-ranks.md"):
        for program in re.findall(r"```python\n(.*?)```", (docs / name).read_text(), re.DOTALL):
            names: dict[str, Any] = {}
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(program, name, "exec"), names)
            found += [names["result"].fun] if "result" in names else []
    return found


# --- faults ---------------------------------------------------------------------------------------


def ended(work: Callable[[], Any]) -> dict[str, Any]:
    """How a run has ended."""
    try:
        result = work()
        return {"status": result.status.name, "message": result.message, "nit": result.nit}
    except (Exception, KeyboardInterrupt) as error:
        return {"status": type(error).__name__, "message": str(error)}


def disturbed(ranks: Ranks, layout: str, what: Callable[[], Any], when: int = 12) -> Callable:
    """The regression, with something that happens on rank 1 in one of its calls."""
    fun, calls = PROBLEM.on(ranks, layout), 0

    def disturbed_fun(x):
        nonlocal calls
        calls += 1
        if ranks.rank == 1 and calls == when and what() == "nan":
            return float("nan"), fun(x)[1]
        return fun(x)

    return disturbed_fun


def fail() -> None:
    raise ZeroDivisionError("no such number")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)  # for the signal to arrive


def interruption(ranks: Ranks, layout: str) -> dict[str, Any]:
    return ended(
        lambda: run(ranks, layout, disturbed(ranks, layout, interrupt), interrupts="return")
    )


def not_a_number(ranks: Ranks, layout: str) -> dict[str, Any]:
    method = {"method": "ragd", **OPTIONS["ragd"]}
    fun = disturbed(ranks, layout, lambda: "nan")
    found = ended(lambda: run(ranks, layout, fun, **method))
    again = disturbed(ranks, layout, lambda: "nan", when=1)
    return {"later": found, "at x0": ended(lambda: run(ranks, layout, again))}


def time_limit(ranks: Ranks, layout: str) -> dict[str, Any]:
    """Of one rank, which is slow as well."""
    fun = PROBLEM.on(ranks, layout)

    def slow(x):
        time.sleep(0.01 if ranks.rank == 1 else 0.0)
        return fun(x)

    limit = {"max_time": 0.1} if ranks.rank == 1 else {}
    return ended(lambda: run(ranks, layout, slow, max_iterations=10**6, tol=0, **limit))


def failure(ranks: Ranks, layout: str) -> dict[str, Any]:
    return ended(lambda: run(ranks, layout, disturbed(ranks, layout, fail)))


def hanging(ranks: Ranks, layout: str) -> dict[str, Any]:
    """One rank does not come back from its function before the others have waited long enough."""
    return ended(lambda: run(ranks, layout, disturbed(ranks, layout, lambda: time.sleep(3.0))))


def wishes(ranks: Ranks, layout: str) -> dict[str, Any]:
    """Callbacks and criteria that stop on one rank only."""

    def stop_at_5(intermediate_result):
        return ranks.rank == 1 and intermediate_result.nit == 5

    only_there = {"callback": stop_at_5} if ranks.rank == 1 else {}
    return {
        "callback": ended(lambda: run(ranks, layout, callback=stop_at_5)),
        "one callback": ended(lambda: run(ranks, layout, **only_there)),
        "criterion": ended(lambda: run(ranks, layout, stop=OnRank(ranks, 1, 6))),
    }


@dataclasses.dataclass(frozen=True)
class OnRank(Criterion):
    """After so many iterations, but on one rank only."""

    ranks: Ranks
    rank: int
    limit: int

    def check(self, progress):
        if self.ranks.rank != self.rank or progress.nit < self.limit:
            return None
        return Ending(Status.STOPPED, "enough", {})


def different_arguments(ranks: Ranks, layout: str) -> dict[str, Any]:
    tol = 1e-3 if ranks.rank == 1 else 1e-4
    x0 = np.ones(4, np.float32 if ranks.rank == 1 else np.float64)
    return {
        "tol": ended(lambda: run(ranks, layout, tol=tol)),
        "x0": ended(lambda: run(ranks, layout, x0=x0)),
        "refused by all": ended(lambda: run(ranks, layout, nonsense=1)),
        "after that": ended(lambda: run(ranks, layout)),
    }


def _terms(layout: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What rank 0 is called with, and what rank 1 is called with."""
    weights = np.linspace(0.1, 0.4, len(PROBLEM.start))
    one_changed = weights + 1e-9 * (np.arange(len(weights)) == 70)
    terms: dict[str, tuple[object, object]] = {
        "none": (None, L1(0.5)),
        "radius": (Ball(3.0), Ball(5.0)),
        "ridge": (ElasticNet(0.1, 0.1), ElasticNet(0.1, 0.3)),
        "kind": (Ball(3.0), L1(0.5)),
        "box": (L1(0.5), NonNegative()),
    }
    if layout == "data":
        terms |= {
            "weight": (L1(0.1), L1(0.5)),
            "weights": (L1(weights), L1(one_changed)),
            "own": (Own(), L1(0.2)),
        }
    found = {name: ({"penalty": a}, {"penalty": b}) for name, (a, b) in terms.items()}
    if layout == "data":
        found["bounds"] = {"bounds": (-0.1, 1.0)}, {"bounds": (-0.5, 1.0)}
    return found | {"bounds on one": ({"bounds": None}, {"bounds": (-0.1, 1.0)})}


def different_terms(ranks: Ranks, layout: str) -> dict[str, Any]:
    found = {}
    fun, start, part = PROBLEM.on(ranks, layout), PROBLEM.start_on(ranks, layout), LAYOUTS[layout]
    for name, calls in _terms(layout).items():
        given = calls[ranks.rank == 1]
        found[name] = ended(lambda given=given: run(ranks, layout, **given))
        found[f"certify {name}"] = ended(
            lambda given=given: certify(fun, start, jac=True, ranks=part(ranks), **given)
        )
    return found


def wrong_gradient(ranks: Ranks, layout: str) -> dict[str, Any]:
    """One coordinate, on the last rank."""
    fun = PROBLEM.on(ranks, layout)

    def wrong(x):
        value, gradient = fun(x)
        if ranks.rank == ranks.size - 1:
            gradient = gradient.copy()
            gradient[3] += 1.0
        return value, gradient

    return ended(lambda: run(ranks, layout, wrong, check_gradient=True))


def steps(ranks: Ranks, layout: str) -> dict[str, Any]:
    """`iterate`, step by step; with value and gradient apart, and by differences."""
    fun, start, part = PROBLEM.on(ranks, layout), PROBLEM.start_on(ranks, layout), LAYOUTS[layout]
    run_ = iterate(lambda x: fun(x)[0], start, jac=lambda x: fun(x)[1], ranks=part(ranks))
    norms = [step.grad_norm for step, _ in zip(run_, range(5), strict=False)]
    run_.stop()
    found = {"norms": norms, "result": summary(run_.result, ranks, layout)}
    if layout == "data":
        few = Regression(8, 4)
        by_rows = few.by_rows(ranks)
        result = minimize(lambda x: by_rows(x)[0], few.start, jac="2-point", ranks=part(ranks))
        found["differences"] = result.fun
    return found


def nothing_to_do(ranks: Ranks, layout: str) -> dict[str, Any]:
    """The end at x0, which came from another rank."""
    return ended(lambda: run(ranks, layout, max_iterations=0))


FAULTS = (
    nothing_to_do, interruption, not_a_number, time_limit, wishes, different_arguments,
    different_terms, wrong_gradient,
)  # fmt: skip


# --- checkpoints ----------------------------------------------------------------------------------


def checkpoints(ranks: Ranks, fewer: Ranks | None, folder: Path, layout: str) -> dict[str, Any]:
    """Saved on all ranks, and resumed on all, on fewer and on one."""
    path, found = folder / f"{layout}.ckpt", {}
    options = {"method": "lbfgs", "tol": 0.0}
    found["undisturbed"] = summary(run(ranks, layout, **options), ranks, layout)
    first = run(ranks, layout, checkpoint=Checkpoint(path, None, 4), **options, max_iterations=10)
    found["first"] = summary(first, ranks, layout)
    found["files"] = sorted(file.name for file in folder.glob(f"{layout}.ckpt*"))
    found["resumed"] = summary(run(ranks, layout, resume=path), ranks, layout)
    for when in range(3, 6):  # in the middle of an iteration, too
        cut = folder / f"cut-{layout}-{when}.ckpt"
        fun = disturbed(ranks, layout, interrupt, when)
        run(ranks, layout, fun, checkpoint=cut, interrupts="return", **options)
        ranks.all_reduce(np.ones(1))  # it is written
        found[f"cut {when}"] = summary(run(ranks, layout, resume=cut), ranks, layout)
    if fewer is not None:
        result = run(fewer, layout, resume=path)
        found["on fewer"] = summary(result, fewer, layout)
    alone = Alone()
    if ranks.rank == 0:
        found["on one"] = summary(run(alone, layout, resume=path), alone, layout)
        run(alone, layout, checkpoint=folder / f"{layout}-one.ckpt", **options, max_iterations=10)
    ranks.all_reduce(np.ones(1))
    result = run(ranks, layout, resume=folder / f"{layout}-one.ckpt")
    found["from one"] = summary(result, ranks, layout)
    if ranks.rank == 0:
        run(alone, layout, resume=path, checkpoint=Checkpoint(path, None, 4))
        found["files at last"] = sorted(file.name for file in folder.glob(f"{layout}.ckpt*"))
    ranks.all_reduce(np.ones(1))
    return found


def full_disk(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """One rank cannot write its shard: the checkpoint before it stays, and the run goes on."""
    path, every = folder / "full.ckpt", 8
    write, calls = module.write_archive, 0

    def write_until_full(*given: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if ranks.rank == 1 and calls > 1:
            raise OSError(28, "No space left on device")
        write(*given, **options)

    module.write_archive = write_until_full
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = run(ranks, "variables", checkpoint=Checkpoint(path, None, every))
    finally:
        module.write_archive = write
    resumed = run(ranks, "variables", resume=path, max_iterations=every)
    return {
        "nit": result.nit,
        "warnings": [str(each.message) for each in seen],
        "resumed at": resumed.nit,
        "files": sorted(file.name for file in folder.glob("full.ckpt*")),
    }
