"""The problems of a comparison: by name, family or pattern from the suite, or given as they are."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from momentous.testbed import Problem
from momentous.testbed.suite import Entry


def select(patterns: Iterable[str], entries: Sequence[Entry]) -> list[Entry]:
    """The entries that the patterns name, in the order of the suite, each once.

    Parameters
    ----------
    patterns : iterable of str
        Names of problems, names of families, or patterns such as ``rosenbrock-*``.
    entries : sequence of Entry
        Where to choose from.

    Raises
    ------
    ValueError
        For a pattern that nothing matches; it says the nearest names.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        found = {
            entry.name
            for entry in entries
            if entry.family == pattern or fnmatchcase(entry.name, pattern)
        }
        if not found:
            raise ValueError(_unknown(pattern, entries))
        chosen |= found
    return [entry for entry in entries if entry.name in chosen]


def _unknown(pattern: str, entries: Sequence[Entry]) -> str:
    names = list(dict.fromkeys([*(e.family for e in entries), *(e.name for e in entries)]))
    close = difflib.get_close_matches(pattern, names, n=4, cutoff=0.4)
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    return f"no problem, family or pattern matches {pattern!r}{hint} (--list shows all names)"


def as_entries(problems: Any) -> list[Entry]:
    """The problems of a comparison: a Problem, an Entry, (name, fun, x0), or a list of them."""
    many = [problems] if _is_one(problems) else list(problems)
    entries = [_as_entry(problem) for problem in many]
    require_distinct("problem", [entry.name for entry in entries])
    return entries


@dataclass(frozen=True)
class GivenProblem:
    """The ``make`` of an entry whose problem is there already."""

    problem: Problem

    def __call__(self) -> Problem:
        return self.problem

    @property
    def fingerprint(self) -> list[float]:
        """What tells it from another of the same name: size, and f and |grad f| at the start."""
        value, gradient = self.problem.value_and_gradient(self.problem.start)
        return [self.problem.dimension, float(value), float(np.linalg.norm(gradient))]


def _is_one(problems: Any) -> bool:
    return isinstance(problems, Problem | Entry) or (
        isinstance(problems, tuple) and len(problems) == 3 and isinstance(problems[0], str)
    )


def _as_entry(problem: Any) -> Entry:
    if isinstance(problem, Entry):
        return problem
    if not _is_one(problem):
        raise TypeError(
            f"{problem!r} is not a problem; give a Problem, an Entry of the suite, or a tuple "
            "(name, function that returns value and gradient, x0)"
        )
    made = problem if isinstance(problem, Problem) else _from_function(*problem)
    return Entry(made.name, made.name, made.dimension, GivenProblem(made), False)


def _from_function(name: str, fun: Callable[[Any], tuple[Any, Any]], x0: Any) -> Problem:
    """A user's function, of which nothing is known."""
    return Problem(
        name=name,
        description="given as a function",
        start=np.asarray(x0, dtype=np.float64),
        value=lambda x: fun(x)[0],
        value_and_gradient=fun,
    )


def require_distinct(kind: str, names: Iterable[str]) -> None:
    """Refuse two problems, or two solvers, of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"two of the {kind}s are called {name!r}; give every {kind} a name of its own"
            )
        seen.add(name)
