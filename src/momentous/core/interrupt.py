"""Ctrl-C: let through while user code runs, held back while a step is being put together."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class InterruptFlag:
    """A context manager around user code; :meth:`held_back` makes it matter.

    Held back, an interrupt that arrives outside of user code waits for the next piece of user code
    or for :meth:`raise_pending`; a second one does not wait.
    """

    def __init__(self) -> None:
        self.pending = False
        self.error: BaseException | None = None  # the last that came out of user code
        self.depth = 0  # of user code: a callback may call the oracle

    def __enter__(self) -> None:
        self.raise_pending()
        self.depth += 1

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self.depth -= 1
        if error is not None:
            self.error = error

    def raise_pending(self) -> None:
        """Raise the interrupt that was held back, if there is one."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Hold interrupts back.  Handlers that are not Python's own are left alone."""
        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if not ours:
            yield
            return
        signal.signal(signal.SIGINT, self._arrived)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _arrived(self, signal_number: int, frame: FrameType | None) -> None:
        if self.depth or self.pending:
            self.pending = False
            raise KeyboardInterrupt
        self.pending = True
