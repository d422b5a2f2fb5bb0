"""Numbers and rows as text: for the terminal, for print() and for the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from momentous.comparison.table import Row

HEADINGS = ("problem", "method", "ended", "values", "grads", "restarts", "turns", "time",
            "|grad f|", "f")  # fmt: skip


def table_of(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Headings and cells, one line a row, without the columns that would tell nothing.

    Those are turns where there were none, and values where every gradient brought one.
    """
    idle = set()
    if all(row.nfev == row.njev for row in rows):
        idle.add("values")
    if not any(row.guaranteed_turns for row in rows):
        idle.add("turns")
    kept = [i for i, heading in enumerate(HEADINGS) if heading not in idle]
    return [tuple(line[i] for i in kept) for line in (HEADINGS, *(_cells(row) for row in rows))]


def _cells(row: Row) -> tuple[str, ...]:
    ran = row.nfev + row.njev > 0
    return (
        row.problem,
        row.method,
        row.status,
        f"{row.nfev:,}" if ran else "",
        f"{row.njev:,}" if ran else "",
        "" if row.restarts is None else f"{row.restarts:,}",
        f"{row.guaranteed_turns:,}" if row.guaranteed_turns else "",
        seconds(row.time) if ran else "",
        f"{row.grad_norm:.1e}" if ran else "",
        f"{row.fun:.3g}" if ran else "",
    )


def seconds(time: float) -> str:
    """Three digits where they mean something, minutes from 1000 s on, hours from 100 min on.

    No false precision under a millisecond.
    """
    if time < 0.01:
        return f"{1000 * time:.1f} ms"
    if time < 1:
        return f"{1000 * time:.0f} ms"
    if time < 999.5:
        return f"{time:.3g} s"
    if time < 6000:
        return f"{time / 60:.3g} min"
    hours = time / 3600
    return f"{hours:.3g} h" if hours < 999.5 else f"{hours:,.0f} h"


def ratio(value: float | None) -> str:
    """A ratio of costs, or a dash where there is nothing to compare."""
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def listed(items: Sequence[str], none: str = "none") -> str:
    """a, b and c."""
    if len(items) <= 1:
        return items[0] if items else none
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(number: int, thing: str) -> str:
    """1 problem, 2 problems."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: text to the left in the first column, numbers to the right."""
    rule = "|---" + "|---:" * (len(headings) - 1) + "|"
    rows = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join(["| " + " | ".join(headings) + " |", rule, *rows])
