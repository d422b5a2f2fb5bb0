"""Paragraphs, tables and numbers in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 110  # of lines of prose
NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( (ms|s|min|h))?$|-?$|-?inf$|nan$")


def prose(text: str, bullet: str = "") -> str:
    """A paragraph, or an item of a list, in lines that are not too long."""
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose cells may hold anything; columns of numbers are aligned to the right."""
    rows = [[_escaped(cell) for cell in line] for line in lines]
    columns = zip(*rows, strict=True) if rows else ((),) * len(headings)
    rule = ["---:" if all(map(NUMBER.match, column)) else "---" for column in columns]
    cells = [[_escaped(cell) for cell in headings], rule, *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def _escaped(cell: str) -> str:
    """A cell of a table: a bar would end it, a new line the table."""
    return " ".join(cell.split()).replace("|", "\\|")


def number(value: object) -> str:
    """A number as people write it, a dash where there is none."""
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e9):
        return f"{value:,.4g}"
    if isinstance(value, int | float):
        return f"{value:,.0f}"
    return "-" if value is None else str(value)
