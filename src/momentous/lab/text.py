"""Numbers, counts and lists as text, for the terminal and for pages."""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
WIDTH = 110  # of lines of prose
NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( (ms|s|min|h))?$|-?$|-?inf$|nan$")


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


def number(value: object) -> str:
    """A number as people write it, a dash where there is none."""
    if isinstance(value, float) and not (value.is_integer() and abs(value) < 1e9):
        return f"{value:,.4g}"
    if isinstance(value, int | float):
        return f"{value:,.0f}"
    return "-" if value is None else str(value)


def ratio(value: float | None) -> str:
    """A ratio of costs, or a dash where there is nothing to compare."""
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent, or a dash where there is no whole."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def and_list(items: Sequence[str], none: str = "none") -> str:
    """a, b and c."""
    if len(items) <= 1:
        return items[0] if items else none
    return f"{', '.join(items[:-1])} and {items[-1]}"


def count_of(number: int, thing: str) -> str:
    """1 problem, 2 problems."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


# --- Markdown -------------------------------------------------------------------------------------


def prose(text: str, bullet: str = "") -> str:
    """A paragraph, or an item of a list, in lines that are not too long."""
    wrapper = textwrap.TextWrapper(WIDTH, bullet, " " * len(bullet))
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.fill(" ".join(text.split()))


def details(title: str, text: str) -> Iterator[str]:
    """Paragraphs of Markdown that are shown when a reader clicks on the title."""
    yield f"<details><summary>{title}</summary>"
    yield text
    yield "</details>"


def markdown_table(
    headings: Sequence[str], lines: Iterable[Sequence[str]], *, left: int | None = None
) -> str:
    """A table whose cells may hold anything.

    The first ``left`` columns are aligned to the left and the others to the right; by default
    columns of numbers are to the right.
    """
    rows = [[_cell(cell) for cell in line] for line in lines]
    columns = zip(*rows, strict=True) if rows else ((),) * len(headings)
    rule = [
        "---:" if (all(map(NUMBER.match, column)) if left is None else i >= left) else "---"
        for i, column in enumerate(columns)
    ]
    cells = [[_cell(cell) for cell in headings], rule, *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def table_of(kind: str, items: Mapping[str, T], columns: Mapping[str, Callable[[T], str]]) -> str:
    """A table with a line per item: its name under ``kind``, then what each column says of it."""
    lines = [[name, *(cell(item) for cell in columns.values())] for name, item in items.items()]
    return markdown_table([kind, *columns], lines, left=1)


def _cell(text: str) -> str:
    """A cell of a table: a bar would end it, a new line the table."""
    return " ".join(text.split()).replace("|", "\\|")
