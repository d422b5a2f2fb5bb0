"""Checks of numbers that users give, with messages that name the parameter."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
import os
from collections.abc import Callable, Sequence
from typing import ParamSpec, SupportsIndex, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# By a parameter's name here, what it is called in scikit-learn, implicit, Surprise and pandas.  One
# of their names may stand for several here, of which a function has one.
_CALLED_ELSEWHERE = {
    "rank": "n_components n_factors factors k",
    "max_iterations": "max_iter n_iter n_epochs epochs iterations",
    "ridge": "alpha reg reg_all regularization lambda_ l2",
    "threads": "n_jobs num_threads n_threads",
    "random_state": "seed rng",
    "validation_share": "early_stopping validation_fraction",
    "patience": "n_iter_no_change",
    "solver": "algorithm method",
    "n": "k N top_n top_k n_items",
    "k": "n N top_n top_k at",
    "exclude_seen": "filter_already_liked_items exclude_known",
    "forbidden": "filter_items",
    "user": "userid user_id uid",
    "users": "userid user_ids",
    "item": "itemid item_id iid",
    "sample_weight": "weights weight",
    "share": "test_size test_fraction validation_share",
    "rng": "random_state seed",
    "delimiter": "sep",
    "columns": "usecols names",
}


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


def unknown_name(function: str, name: str, known: Sequence[str]) -> TypeError:
    """The error for a parameter that a function does not have, with the one that is meant."""
    import difflib

    ours = [one for one in known if name in _CALLED_ELSEWHERE.get(one, "").split()]
    found = [*ours, *difflib.get_close_matches(name, known, n=1)][:1]
    hint = f"is called {found[0]} here" if found else f"has {', '.join(known)}"
    return TypeError(f"{function}() has no parameter {name!r}; it {hint}")


def corrects_names(function: Callable[P, T]) -> Callable[P, T]:
    """A function that answers a parameter that it does not have with the one that is meant."""
    parameters = inspect.signature(function).parameters
    known = [name for name in parameters if name not in ("self", "cls")]

    @functools.wraps(function)
    def checked(*values: P.args, **named: P.kwargs) -> T:
        for name in named:
            if name not in parameters:
                raise unknown_name(function.__name__, name, known)
        return function(*values, **named)

    return checked
