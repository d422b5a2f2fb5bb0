"""The problems of a comparison: by name, family or pattern from the suite, or given as they are."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from momentous.testbed import Problem
from momentous.testbed.problem import MapProblem, Vector
from momentous.testbed.suite import Entry

AnyProblem = Problem | MapProblem
AnyEntry = Entry[Problem] | Entry[MapProblem]
UserFunction = tuple[str, Callable[[Vector], tuple[float, Vector]], ArrayLike]
"""Name, function that returns value and gradient, x0."""
OneProblem = AnyProblem | AnyEntry | UserFunction
P = TypeVar("P", Problem, MapProblem)
PLAIN_MAPS = 1000  # that set the goal on a map that is given as it is


def select(patterns: Iterable[str], entries: Sequence[Entry[Problem]]) -> list[Entry[Problem]]:
    """The entries that names, families or patterns (``rosenbrock-*``) stand for, in their order.

    A pattern that nothing matches is a ValueError, which says the nearest names.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        found = {e.name for e in entries if e.family == pattern or fnmatchcase(e.name, pattern)}
        if not found:
            names = dict.fromkeys([*(e.family for e in entries), *(e.name for e in entries)])
            close = difflib.get_close_matches(pattern, names, n=4, cutoff=0.4)
            hint = f"; the nearest are {', '.join(close)}" if close else ""
            raise ValueError(f"no problem, family or pattern matches {pattern!r}{hint}")
        chosen |= found
    return [entry for entry in entries if entry.name in chosen]


def as_entries(problems: Any) -> list[AnyEntry]:
    """The problems of a comparison: problems, entries, (name, fun, x0), or a list of them."""
    entries = [_as_entry(it) for it in ([problems] if _is_one(problems) else problems)]
    require_distinct("problem", [entry.name for entry in entries])
    return entries


@dataclass(frozen=True)
class Given(Generic[P]):
    """The ``make`` of an entry whose problem is there already."""

    problem: P

    def __call__(self) -> P:
        return self.problem

    @property
    def fingerprint(self) -> list[float]:
        """What tells it from another of the same name: size, f and |grad f| or |x - T(x)| there."""
        problem, start = self.problem, self.problem.start
        if isinstance(problem, MapProblem):
            value, change = problem.value(start), start - problem.step(start)
        else:
            value, change = problem.value_and_gradient(start)
        return [problem.dimension, float(value), float(np.linalg.norm(change))]


def _is_one(problems: object) -> bool:
    return isinstance(problems, AnyProblem | Entry) or (
        isinstance(problems, tuple) and len(problems) == 3 and isinstance(problems[0], str)
    )


def _as_entry(problem: Any) -> AnyEntry:
    if isinstance(problem, Entry):
        return problem
    if not _is_one(problem):
        raise TypeError(
            f"{problem!r} is not a problem; give a Problem, a MapProblem, an entry of a suite, or "
            "a tuple (name, function that returns value and gradient, x0)"
        )
    if isinstance(problem, tuple):  # a user's function, of which nothing is known
        name, fun, x0 = problem
        problem = Problem(name=name, description="", start=x0, value_and_gradient=fun)
    name, size = problem.name, problem.dimension
    if isinstance(problem, MapProblem):
        return Entry(name, name, size, Given(problem), False, PLAIN_MAPS)
    return Entry(name, name, size, Given(problem), False)


def require_distinct(kind: str, names: Iterable[str]) -> None:
    """Refuse two problems, or two solvers, of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(
                f"two of the {kind}s are called {name!r}; give every {kind} a name of its own"
            )
