"""Messages go through ``logging``, to loggers below "momentous"; ``disp`` and ``verbose`` show them.

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
_shown: list[OfOneCall] = []  # those at work, in all threads
_level_before = logging.NOTSET  # of the logger, before the first of them


class OfOneCall(logging.Handler):
    """Prints what one thread has to say."""

    def __init__(self, level: int):
        super().__init__(level)
        self.thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message alone: to the standard output as it is now, which a notebook or a test
        may have put elsewhere."""
        if record.thread != self.thread or sys.stdout is None:
            return
        with contextlib.suppress(BrokenPipeError, ValueError):  # closed: nobody reads it
            sys.stdout.write(self.format(record) + "\n")
            sys.stdout.flush()


@contextlib.contextmanager
def shown(level: int | None) -> Iterator[None]:
    """A context in which messages of at least this level are printed; None: none are.

    Where ``logging`` shows them anyway they are not printed twice.
    """
    if level is None or _has_reader(level):
        yield
        return
    handler, logger = OfOneCall(level), logging.getLogger(NAME)
    global _level_before
    with _lock:
        if not _shown:
            _level_before = logger.level
        _shown.append(handler)
        logger.addHandler(handler)
        logger.setLevel(min(logger.level or level, level))
    try:
        yield
    finally:
        with _lock:
            _shown.remove(handler)
            logger.removeHandler(handler)
            if not _shown:
                logger.setLevel(_level_before)


def _has_reader(level: int) -> bool:
    """Does a call around this one, or somebody's set-up, show messages of that level already?"""
    here = threading.get_ident()
    if any(each.thread == here and each.level <= level for each in _shown):
        return True
    logger: logging.Logger | None = logging.getLogger(NAME)
    assert logger is not None
    effective = _level_before if _shown else logger.level
    if not (effective or logging.root.level) <= level:
        return False
    while logger is not None:
        for handler in logger.handlers:
            if not isinstance(handler, logging.NullHandler | OfOneCall) and handler.level <= level:
                return True
        logger = logger.parent if logger.propagate else None
    return False


def notify(logger: logging.Logger, text: str, *, always: bool = False) -> None:
    """A message of level INFO that people at a terminal or a notebook see even so, on the standard
    error stream; ``always``: everybody does."""
    logger.info("%s", text)
    looks_on = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if (always or looks_on) and sys.stderr is not None and not _has_reader(logging.INFO):
        print(f"momentous: {text}", file=sys.stderr, flush=True)
