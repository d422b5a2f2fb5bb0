"""Made-up runs and small data sets for the tests of the paper's experiments."""

import dataclasses
from functools import partial
from math import inf

import numpy as np

from momentous.core.status import EventKind
from momentous.lab.paper.methods import ADAPTIVE, FIXED
from momentous.lab.paper.results import RunSet
from momentous.lab.paper.runs import PaperRun, PaperRunInfo
from momentous.lab.record import Ended, Outcome, RunRecord

LONG = 100_000  # iterations of section 5.3
GRADIENT, VALUE = 1e-3, 5e-4  # seconds
# The rate at which the error falls with evaluations; values and gradients per iteration.
SHORT = {
    "Ada-RAGD-NC": (0.010, 0, 1),
    "Ada-RHB-NC": (0.011, 0, 1),
    "heuristic RAGD": (0.008, 1, 1),
    "CG": (0.007, 2, 1),
    "Jin's AGD": (0.006, 2, 1),
    "convex until guilty": (0.005, 3, 2),
    "GD": (0.003, 0, 1),
    "RAGD-NC": (0.003, 0, 1),
    "RHB-NC": (0.003, 0, 1),
}


# --- files ---


def write_ratings(path, *, seed=0, users=24, items=16, each=10):
    """A file of ratings, 1 to 5."""
    rng = np.random.default_rng(seed)
    lines = [
        f"{user},{item},{rng.integers(1, 6)}"
        for user in range(users)
        for item in rng.choice(items, each, replace=False)
    ]
    path.write_text("\n".join(["user,item,rating", *lines, ""]))
    return path


def same_rows(run, other, rows=None):
    """Bit for bit, but for the clock."""
    for name in ("nfev", "njev", "fun", "grad_norm", "step_size"):
        mine, others = (getattr(it, name)[:rows] for it in (run, other))
        assert mine.tobytes() == others.tobytes(), name
    last = inf if rows is None else rows
    events = [[e for e in it.events if e[0] < last] for it in (run, other)]
    assert events[0] == events[1]


def calls(owner, monkeypatch, names=("value", "gradient")) -> list[str]:
    """What is asked of a problem, or an objective, from now on."""
    asked: list[str] = []
    for name in names:

        def counting(name, original, x):
            asked.append(name)
            return original(x)

        monkeypatch.setattr(owner, name, partial(counting, name, getattr(owner, name)))
    return asked


# --- made-up runs ---


def an_info(method="GD", problem="completion", iterations=100, **changed) -> PaperRunInfo:
    fields = {
        "problem": problem, "method": method, "parameters": {}, "setup": "here", "data": "ml-10m",
        "twin": True, "profile": "paper", "step_size": 1.0, "step_from": "tuned",
        "iterations": iterations, "shape": (20, 10), "entries": 100, "rank": 2, "fingerprint": "",
        "device": "CPU", "threads": 1,
    }  # fmt: skip
    return PaperRunInfo(**fields | changed)


def a_record(info, columns, events=(), status="max iterations") -> PaperRun:
    return RunRecord.from_columns(info, Outcome(Ended(status), ""), columns, sorted(events))


def with_info(run, **changed):
    """The same run, of which something else is said."""
    return dataclasses.replace(run, info=dataclasses.replace(run.info, **changed))


def with_outcome(run, status, message=""):
    return dataclasses.replace(run, outcome=Outcome(Ended(status), message))


def made_up(method, error, norm, nfev, njev, events=(), problem="completion") -> PaperRun:
    columns = {
        "nfev": nfev, "njev": njev, "time": GRADIENT * njev + VALUE * nfev, "fun": 1.0 + error,
        "grad_norm": norm, "step_size": np.ones(len(error)),
    }  # fmt: skip
    return a_record(an_info(method, problem, len(error) - 1), columns, events)


def short_run(method, rate, values, gradients, n=1000, restart=100) -> PaperRun:
    k, restart = np.arange(n + 1), 1 if method in FIXED else restart
    events = [(int(row), EventKind.RESTART, float(restart)) for row in k[restart::restart]]
    nfev, njev = 1 + values * k, 1 + gradients * k
    if method in ADAPTIVE:
        nfev = nfev + k // restart
    error = np.exp(-rate * (nfev + njev))
    norm = 0.1 * np.sqrt(error) * (np.where(k % 2, 3.0, 1.0) if method == "CG" else 1.0)
    return made_up(method, error, norm, nfev, njev, events if method in (*ADAPTIVE, *FIXED) else ())


def short_set(n=1000, figure="fig1", **changed) -> RunSet:
    """Runs that show all that the paper says; `changed` holds other rates and counts."""
    settings = SHORT | {name.replace("_", " "): how for name, how in changed.items()}
    runs = [short_run(name, *how, n=n) for name, how in settings.items()]
    return RunSet(figure, runs, 1000)


def long_run(method, problem, period, n=LONG, reached=5000, discarded=(812,)) -> PaperRun:
    """Epochs of 200 iterations, one of them discarded, and of `period` once B0 <= B."""
    k = np.arange(n + 1)
    error, norm = np.exp(-k / n), 0.1 * np.exp(-k / n)
    rows = [*range(200, min(reached, n + 1), 200), *range(reached, n + 1, period)]
    events = [(row, EventKind.RESTART, 200.0) for row in rows]
    for row in discarded:
        events.append((row, EventKind.ROLLBACK, 10.0))
        error[row - 3 : row + 1] *= 50
        norm[row - 3 : row + 1] *= 40
    if reached <= n:
        events.append((reached, EventKind.RADIUS_REACHED, 0.01))
    nfev = 1 + np.searchsorted(sorted(row for row, *_ in events), k, side="right")
    return made_up(method, error, norm, nfev, 1 + k, events, problem)


def long_set(problem="completion", periods=(16, 10), **how) -> RunSet:
    pairs = zip(ADAPTIVE, periods, strict=True)
    return RunSet("fig3", [long_run(name, problem, p, **how) for name, p in pairs], LONG)


def without(run_set: RunSet, *methods: str) -> RunSet:
    kept = [run for run in run_set.runs if run.info.method not in methods]
    return dataclasses.replace(run_set, runs=kept)
