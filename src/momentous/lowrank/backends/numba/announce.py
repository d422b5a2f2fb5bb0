"""Messages when a compilation begins and ends: the first fit takes seconds longer than the next.

It goes to the logger "momentous.lowrank" (level INFO), and to standard error where somebody looks
on: at a terminal or in a notebook.  This file needs numba, so is itself imported only where it is
used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from importlib import import_module
from threading import local
from time import thread_time
from types import FunctionType
from typing import TYPE_CHECKING, Protocol

from momentous.io.logs import notify
from momentous.lowrank.backends.numba.simd import STRIP

if TYPE_CHECKING:
    from numba import types
    from numba.core import event
else:
    event, types = import_module("numba.core.event"), import_module("numba.types")

LOGGER = logging.getLogger("momentous.lowrank")


class Dispatcher(Protocol):
    """A function of numba's, as far as it is used here."""

    py_func: FunctionType
    _cache: object


class Announcer(event.Listener):  # type: ignore[misc]  # numba has no types
    """Says once what is compiled, and then how long it took; not a word about what that calls."""

    def __init__(self) -> None:
        self.depth, self.said = local(), set[str]()
        self.begun = local()  # when, in CPU seconds of the thread; None: nothing was said

    def on_start(self, started: event.Event) -> None:
        dispatcher = started.data["dispatcher"]
        if not is_ours(dispatcher):
            return
        depth = getattr(self.depth, "now", 0)
        self.depth.now = depth + 1
        text = describe(dispatcher, started.data["args"])
        if depth > 0:
            return
        self.begun.at = None
        if text not in self.said:
            self.said.add(text)
            notify(LOGGER, text)
            self.begun.at = thread_time()

    def on_end(self, ended: event.Event) -> None:
        if not is_ours(ended.data["dispatcher"]):
            return
        self.depth.now -= 1
        if self.depth.now == 0 and self.begun.at is not None:
            notify(LOGGER, f"compiled in {thread_time() - self.begun.at:.1f} CPU seconds")


def is_ours(dispatcher: Dispatcher) -> bool:
    """Is it a kernel of this package?  Code run from a string has no module."""
    return str(dispatcher.py_func.__module__).startswith(__package__)


def describe(dispatcher: Dispatcher, arguments: tuple[types.Type, ...]) -> str:
    """What is compiled, for which loss, precision and rank, and whether it is kept."""
    loss = dispatcher.py_func.__globals__.get("LOSS")
    numbers = [one.dtype for one in _arrays(arguments) if isinstance(one.dtype, types.Float)]
    parts = [f"the {loss.name} loss"] if loss else []
    parts += map(str, numbers[:1])
    parts += [
        f"rank {one.count}"
        for one in arguments[:1]
        if isinstance(one, types.UniTuple) and one.count < STRIP
    ]
    kept = type(dispatcher._cache).__name__ != "NullCache"
    after = "kept for the next time" if kept else "again in every process"
    return f"compiling kernels for {', '.join(parts) or 'sweeps'}: some seconds, {after}"


def _arrays(arguments: Iterable[types.Type]) -> Iterator[types.Array]:
    for one in arguments:
        if isinstance(one, types.BaseTuple):
            yield from _arrays(one.types)
        elif isinstance(one, types.Array):
            yield one


def announce_compilations() -> None:
    """Begin to; once per process."""
    event.register("numba:compile", Announcer())
