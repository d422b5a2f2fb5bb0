"""Messages go through ``logging``, to loggers below "momentous"; ``disp``, ``verbose`` show them.

Nothing is shown unless somebody asks: by setting up ``logging``, or for one call by ``disp=True``
or ``verbose=1``, which print on the standard output what this call, in this thread, has to say.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator

NAME = "momentous"
logging.getLogger(NAME).addHandler(logging.NullHandler())  # silent where nobody has set it up

_lock = threading.Lock()
_at_work: dict[str, list[tuple[int, int]]] = {}  # by logger: the thread and the level of each call
_levels: dict[str, int] = {}  # of these loggers, before the first of them


@contextlib.contextmanager
def shown(name: str, level: int | None) -> Iterator[None]:
    """A context in which messages of a logger, of at least this level, are printed; None: none are.

    Where ``logging`` shows them anyway they are not printed twice.
    """
    if level is None or has_reader(name, level):
        yield
        return
    call, logger = (threading.get_ident(), level), logging.getLogger(name)
    with _lock:
        there = _at_work.setdefault(name, [])
        if not there:
            _levels[name] = logger.level
            logger.addFilter(_print_or_pass)
        there.append(call)
        logger.setLevel(min(logger.getEffectiveLevel(), level))
    try:
        yield
    finally:
        with _lock:
            there.remove(call)
            if not there:
                logger.removeFilter(_print_or_pass)
                logger.setLevel(_levels[name])


def _print_or_pass(record: logging.LogRecord) -> bool:
    """Print what a call in this thread has asked for and nobody else shows; let pass what
    ``logging`` is set up for, and not what is logged only because of that call."""
    calls = list(_at_work.get(record.name, ()))
    asked = any(thread == record.thread and level <= record.levelno for thread, level in calls)
    if asked and sys.stdout is not None and not _is_set_up(record.name, record.levelno):
        # To the standard output as it is now: a notebook or a test may have put it elsewhere.
        with contextlib.suppress(BrokenPipeError, ValueError):  # closed: nobody reads it
            sys.stdout.write(record.getMessage() + "\n")
            sys.stdout.flush()
    return record.levelno >= _level_set_up(record.name)


def has_reader(name: str, level: int) -> bool:
    """Are messages of that logger and level shown already: by a call around this one, or because
    somebody has set up ``logging``?"""
    here = threading.get_ident()
    if any(thread == here and own <= level for thread, own in _at_work.get(name, ())):
        return True
    return _is_set_up(name, level)


def _is_set_up(name: str, level: int) -> bool:
    """Does ``logging`` show messages of that logger and level?"""
    if not _level_set_up(name) <= level:
        return False
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        for handler in logger.handlers:
            if not isinstance(handler, logging.NullHandler) and handler.level <= level:
                return True
        logger = logger.parent if logger.propagate else None
    return False


def _level_set_up(name: str) -> int:
    """The level of a logger, without what calls under way have made of it."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        level = _levels[logger.name] if _at_work.get(logger.name) else logger.level
        if level:
            return level
        logger = logger.parent
    return logging.NOTSET


def notify(logger: logging.Logger, text: str, *, always: bool = False) -> None:
    """A message of level INFO that people at a terminal or a notebook see even so, on the standard
    error stream; ``always``: everybody does."""
    logger.info("%s", text)
    if sys.stderr is None or has_reader(logger.name, logging.INFO):
        return
    if always or sys.stderr.isatty() or "ipykernel" in sys.modules:
        print(f"momentous: {text}", file=sys.stderr, flush=True)
