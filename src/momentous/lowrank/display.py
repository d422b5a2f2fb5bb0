"""How far a fit is: one living line on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from momentous.lowrank.solvers.fit import Step, Watcher

EVERY = 10  # of the first iterations each has a line, of later ones every tenth


@contextlib.contextmanager
def shown_fit(quiet: bool) -> Iterator[Watcher]:
    """A watcher for `fit_model`, which writes to the standard error stream."""
    if quiet:
        yield lambda step: None
        return
    if not sys.stderr.isatty():
        yield _print
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("fitting") as status:
        yield lambda step: status.update(str(step))


def _print(step: Step) -> None:
    if step.nit <= EVERY or step.nit % EVERY == 0:
        print(step, file=sys.stderr, flush=True)
