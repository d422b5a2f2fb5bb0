"""Small pieces of HTML for notebooks: a table of facts and a curve.  All text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

WIDTH, HEIGHT, MARGIN = 340, 110, 6
MOST_POINTS = 300  # of a curve: a screen has no more columns to show
_TABLE = "border-collapse: collapse; font-size: 90%"
_CELL = "padding: 1px 10px 1px 0; text-align: left; vertical-align: top"


def format_value(value: object) -> str:
    """A number with six digits, or any other thing, as text."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if type(value) is int else str(value)


def _cell(tag: str, value: object) -> str:
    return f'<{tag} style="{_CELL}">{html.escape(format_value(value))}</{tag}>'


def facts_table(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """A title, a sentence, and names with values."""
    rows = "".join(f"<tr>{_cell('th', name)}{_cell('td', facts[name])}</tr>" for name in facts)
    sentence = f"<div>{html.escape(note)}</div>" if note else ""
    return f'<div><b>{html.escape(title)}</b>{sentence}<table style="{_TABLE}">{rows}</table></div>'


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows under headings."""
    head = "".join(_cell("th", each) for each in headings)
    body = "".join(f"<tr>{''.join(_cell('td', each) for each in row)}</tr>" for row in rows)
    return f'<table style="{_TABLE}"><tr>{head}</tr>{body}</table>'


def beside(*parts: str) -> str:
    """Pieces next to each other, one below the other where there is no room."""
    inner = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div style="display: flex; flex-wrap: wrap; gap: 2em">{inner}</div>'


def curve(values: Sequence[float], label: str) -> str:
    """A line through these numbers in their order, as SVG; on a logarithmic scale where they are
    positive and range over more than a factor of 100.  Nothing where there are not two of them."""
    known = [(k, float(y)) for k, y in enumerate(values) if math.isfinite(y)]
    if len(known) < 2:
        return ""
    low, high = min(y for _, y in known), max(y for _, y in known)
    logarithmic = low > 0 and high > 100 * low
    scale = math.log if logarithmic else float
    bottom, top = scale(low), scale(high)
    every = -(-len(known) // MOST_POINTS)
    kept = known[::every] if known[-1] in known[::every] else [*known[::every], known[-1]]
    first, last = known[0][0], known[-1][0]
    points = " ".join(
        f"{MARGIN + (WIDTH - 2 * MARGIN) * (k - first) / (last - first):.1f},"
        f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * _share(scale(y), bottom, top):.1f}"
        for k, y in kept
    )
    note = f"{label} from {format_value(known[0][1])} to {format_value(known[-1][1])}"
    note += ", logarithmic scale" if logarithmic else ""
    return (
        f'<figure style="margin: 0"><svg role="img" aria-label="{html.escape(note)}" '
        f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
        f'<path d="M {MARGIN} {MARGIN} V {HEIGHT - MARGIN} H {WIDTH - MARGIN}" fill="none" '
        f'stroke="currentColor" opacity="0.4"/></svg>'
        f'<figcaption style="font-size: 80%">{html.escape(note)}</figcaption></figure>'
    )


def _share(y: float, bottom: float, top: float) -> float:
    return (y - bottom) / (top - bottom) if top > bottom else 0.5
