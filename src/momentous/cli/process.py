"""The process of a command: its streams, its signals, and its exit status after Ctrl-C."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The exit status of what Ctrl-C has ended, as in shells."""


def prepare_streams() -> None:
    """Closed streams become empty ones; characters that a terminal cannot show are escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def end_like_ctrl_c() -> None:
    """The signals of schedulers and closed terminals do what Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # What somebody has ignored on purpose (nohup) stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):  # it may hold the interrupt back until a step is done
        handler(signal.SIGINT, frame)
    else:  # a job in the background, which ignores Ctrl-C only
        raise KeyboardInterrupt
