"""The progress of a fit, as people see it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Protocol

from momentous.core.method import Method
from momentous.io.logs import say, shown
from momentous.io.progress import Lines, progress_bar
from momentous.lowrank.solvers.fit import ITERATIONS, SWEEPS, FitProgress, Watcher

LOGGER = logging.getLogger("momentous.fit")


class Watched(Protocol):
    """What is shown of an estimator; the message once it is fitted."""

    solver: str | Method | type[Method]
    max_iterations: int | None
    verbose: bool | int
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
