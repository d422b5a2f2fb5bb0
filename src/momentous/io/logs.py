"""Messages go through ``logging``, to loggers below "momentous"; ``disp``, ``verbose`` show them.

Nothing is shown unless somebody asks: by setting up ``logging``, or for one call by ``disp=True``
or ``verbose=1``, which print on the standard output what this call, in this thread, has to say.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType

NAME = "momentous"
logging.getLogger(NAME).addHandler(logging.NullHandler())  # silent where nobody has set it up

# By logger, the level that calls under way in this thread have asked for.
_asked: ContextVar[Mapping[str, int]] = ContextVar("_asked", default=MappingProxyType({}))


@contextlib.contextmanager
def shown(name: str, level: int | None) -> Iterator[None]:
    """A context in which what is said to a logger, at least at this level, is printed; None: only
    what contexts around this one ask for."""
    asked = _asked.get()
    if level is None or asked.get(name, math.inf) <= level:
        yield
        return
    token = _asked.set({**asked, name: level})
    try:
        yield
    finally:
        _asked.reset(token)


def is_heard(logger: logging.Logger, level: int) -> bool:
    """Does anybody want what is said to this logger at this level?"""
    return logger.isEnabledFor(level) or _is_asked(logger.name, level)


def say(logger: logging.Logger, level: int, text: str) -> None:
    """Log a message, and print it where a call in this thread has asked for it; where ``logging``
    shows it anyway it is not printed twice."""
    logger.log(level, "%s", text)
    if _is_asked(logger.name, level) and sys.stdout is not None and not _is_set_up(logger, level):
        # To the standard output as it is now: a notebook or a test may have put it elsewhere.
        with contextlib.suppress(BrokenPipeError, ValueError):  # closed: nobody reads it
            print(text, flush=True)


def has_reader(name: str, level: int) -> bool:
    """Are messages of that logger and level shown: as a call around this one has asked, or because
    somebody has set up ``logging``?"""
    return _is_asked(name, level) or _is_set_up(logging.getLogger(name), level)


def _is_asked(name: str, level: int) -> bool:
    return _asked.get().get(name, math.inf) <= level


def _is_set_up(logger: logging.Logger, level: int) -> bool:
    """Does ``logging`` show messages of that logger and level?"""
    if not logger.isEnabledFor(level):
        return False
    place: logging.Logger | None = logger
    while place is not None:
        for handler in place.handlers:
            if not isinstance(handler, logging.NullHandler) and handler.level <= level:
                return True
        place = place.parent if place.propagate else None
    return False


def notify(logger: logging.Logger, text: str, *, always: bool = False) -> None:
    """A message of level INFO that people at a terminal or a notebook see even so, on the standard
    error stream; ``always``: everybody does."""
    say(logger, logging.INFO, text)
    if sys.stderr is None or has_reader(logger.name, logging.INFO):
        return
    if always or sys.stderr.isatty() or "ipykernel" in sys.modules:
        print(f"momentous: {text}", file=sys.stderr, flush=True)
