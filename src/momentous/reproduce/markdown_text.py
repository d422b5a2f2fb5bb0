"""Paragraphs, tables and numbers in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from momentous.comparison.words import markdown

WIDTH = 110  # of lines of prose


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
    """A table whose cells may hold anything."""
    return markdown(
        [_escaped(cell) for cell in headings],
        ([_escaped(cell) for cell in line] for line in lines),
    )


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
