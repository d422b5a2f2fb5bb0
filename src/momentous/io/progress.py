"""A bar that shows how far work has got: in a notebook, on a terminal, or as plain lines."""

from __future__ import annotations

import html
import sys
from importlib.util import find_spec
from time import monotonic
from types import TracebackType
from typing import Self

from momentous.io.optional import require

PER_SECOND = 4  # the display shares the machine with what it shows
EVERY = 10  # plain lines: the first ten calls have one each, later ones every tenth


class Bar:
    """A context; inside, it is called with a text and, if it is known, the share that is done.

    This one shows nothing.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, text: str, share: float | None = None) -> None:
        """Show where the work stands."""

    def end(self, text: str) -> None:
        """Show how it ended."""


class Lines(Bar):
    """For files and pipes: lines on the standard error stream, fewer and fewer of them."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, text: str, share: float | None = None) -> None:
        self._calls += 1
        if self._calls <= EVERY or self._calls % EVERY == 0:
            self.end(text)

    def end(self, text: str) -> None:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


class OnTerminal(Bar):
    """One line of `rich` that changes, gone at the end."""

    def __init__(self) -> None:
        console = require("rich.console", "app", "a progress bar").Console
        rich = require("rich.progress", "app", "a progress bar")
        self._bar = rich.Progress(
            rich.BarColumn(bar_width=24),
            rich.TextColumn("{task.description}", markup=False),
            console=console(stderr=True, markup=False, highlight=False, emoji=False),
            refresh_per_second=PER_SECOND,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.stop()

    def __call__(self, text: str, share: float | None = None) -> None:
        total = None if share is None else 1.0
        self._bar.update(self._task, description=text, completed=share or 0.0, total=total)


class InNotebook(Bar):
    """An output of a notebook's cell that is replaced, a few times per second."""

    def __init__(self) -> None:
        display = require("IPython.display", "app", "a progress bar")
        self._html, self._shown_at = display.HTML, monotonic()
        self._handle = display.display(self._html(bar_as_html("", None)), display_id=True)
        self._last: tuple[str, float | None] = "", None

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is not None:  # a bar without a share would go on moving
            text, share = self._last
            stopped = ", ".join(filter(None, (text, f"stopped by {kind.__name__}")))
            self._handle.update(self._html(bar_as_html(stopped, share or 0.0)))

    def __call__(self, text: str, share: float | None = None) -> None:
        self._last = text, share
        if monotonic() - self._shown_at >= 1.0 / PER_SECOND:
            self._handle.update(self._html(bar_as_html(text, share)))
            self._shown_at = monotonic()

    def end(self, text: str) -> None:
        self._handle.update(self._html(bar_as_html(text, 1.0)))


def bar_as_html(text: str, share: float | None) -> str:
    """A bar of HTML with a text; without a share one that says only that work is under way."""
    value = "" if share is None else f' value="{min(max(share, 0.0), 1.0):.3f}"'
    style = "font-variant-numeric: tabular-nums"
    return f'<div style="{style}"><progress{value} max="1"></progress> {html.escape(text)}</div>'


def is_notebook() -> bool:
    """Does this run in the kernel of a notebook?"""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def progress_bar(wanted: bool = True) -> Bar:
    """The bar that people can see where this runs; none where it is not wanted."""
    if not wanted:
        return Bar()
    if is_notebook():
        return InNotebook()
    if sys.stderr is not None and sys.stderr.isatty() and find_spec("rich") is not None:
        return OnTerminal()
    return Lines()
