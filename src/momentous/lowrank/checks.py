"""Checks of numbers that users give, with messages that name the parameter."""

from __future__ import annotations

import math
import numbers
import operator
import os
from typing import SupportsIndex


def check_number(
    name: str, value: object, low: float, high: float = math.inf, *, whole: bool = False
) -> None:
    """Raise an error that names the parameter unless it is finite, >= low and, if given, < high.

    With a high, low itself is refused as well: the number lies between them.
    """
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name}={value!r} must be a {'whole ' if whole else ''}number")
    inside = low <= float(value) if high == math.inf else low < float(value) < high
    if not (math.isfinite(value) and inside):
        what = f">= {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name}={value!r} must be a finite number {what}")


def thread_count(threads: SupportsIndex | None) -> int:
    """A number of threads; None stands for as many as this process may use."""
    if threads is None:
        allowed = getattr(os, "sched_getaffinity", None)
        return len(allowed(0)) if allowed else os.cpu_count() or 1
    try:
        count = operator.index(threads)
    except TypeError:
        raise TypeError(f"threads must be a whole number, not {threads!r}") from None
    if count < 1:
        raise ValueError(f"threads must be 1 or more, not {count}")
    return count
