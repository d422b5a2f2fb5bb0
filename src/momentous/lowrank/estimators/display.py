"""What people see of a fit: its progress, and a summary in a notebook."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import Protocol

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.io import html
from momentous.io.logs import say, shown
from momentous.io.progress import Lines, progress_bar
from momentous.lowrank.model import LowRankModel
from momentous.lowrank.solvers.fit import ITERATIONS, SWEEPS, FitProgress, Watcher

LOGGER = logging.getLogger("momentous.fit")


class Watched(Protocol):
    """What is shown of an estimator; the last five once it is fitted."""

    solver: str | Method | type[Method]
    max_iterations: int | None
    verbose: bool | int
    model_: LowRankModel
    result_: Result | None
    objective_: float
    n_iter_: int
    validation_errors_: list[float]
    message_: str


@contextlib.contextmanager
def watching(estimator: Watched) -> Iterator[Watcher | None]:
    """What watches a fit, as ``verbose`` asks for: a bar where people look on, a line per iteration
    and the ending where they do not; all of it goes to the logger "momentous.fit", too."""
    bar = progress_bar(bool(estimator.verbose))
    lines = isinstance(bar, Lines)
    default = SWEEPS if estimator.solver in ("auto", "sweep") else ITERATIONS
    limit = estimator.max_iterations or default
    level = logging.DEBUG if lines else None
    with shown(LOGGER.name, level), contextlib.nullcontext() if lines else bar:
        if not (estimator.verbose or LOGGER.isEnabledFor(logging.DEBUG)):
            yield None
            return

        def watch(step: FitProgress) -> None:
            say(LOGGER, logging.DEBUG, str(step))
            if not lines:
                bar(str(step), step.nit / limit)

        yield watch
        if not lines and hasattr(estimator, "message_"):
            bar.end(estimator.message_)


def summary(estimator: Watched) -> str:
    """What was fitted, and how that went, as HTML; nothing before the fit.

    The objective of the model need not be where its curve ends, which is of the points that the
    solver evaluated: the model is one sweep further, or the one with the smallest held-out error,
    and its objective is without the balance term.
    """
    model = getattr(estimator, "model_", None)
    if model is None:
        return ""
    result = estimator.result_
    facts: dict[str, object] = {
        "ratings": model.seen.nnz,
        "users, items": f"{len(model.rows):,}, {len(model.cols):,}",
        "rank": model.rank,
        "loss": str(model.loss),
        "objective of the model": float(estimator.objective_),
        "iterations": estimator.n_iter_,
    }
    if result is not None:
        facts["restarts"] = result.restarts
        facts["seconds"] = float(f"{result.time:.3g}")
    errors = [one for one in estimator.validation_errors_ if not math.isnan(one)]
    if errors:
        facts["held-out error"] = min(errors)
    trace = None if result is None else result.get("trace")
    curves = (
        [] if trace is None else [html.curve(trace["fun"].tolist(), "objective during the fit")]
    )
    curves.append(html.curve(errors, "held-out error"))
    title = f"{type(estimator).__name__}, fitted"
    return html.beside(html.facts_table(title, facts, estimator.message_), "".join(curves))
