"""Problems of the suite by name, family or pattern; a misspelt one gets the nearest names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

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
        For a pattern that nothing matches; it tells the nearest names.
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
