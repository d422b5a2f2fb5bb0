"""Numbers, counts, lists, tables and documents as text, for the terminal and for pages."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from momentous.io.optional import require

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")
NOTHING = "-"


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
    return NOTHING if value is None else str(value)


def ratio(value: float | None) -> str:
    """A ratio of costs, or a dash where there is nothing to compare."""
    return NOTHING if value is None or math.isnan(value) else f"{value:.3g}"


def and_list(items: Sequence[str], none: str = "none") -> str:
    """a, b and c."""
    if len(items) <= 1:
        return items[0] if items else none
    return f"{', '.join(items[:-1])} and {items[-1]}"


def count_of(number: int, thing: str) -> str:
    """1 problem, 2 problems."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Table:
    """Headings, and lines of as many cells; the first cell names the line."""

    title: str
    headings: list[str]
    lines: list[list[str]]
    words: tuple[str, ...] = ()  # headings of the columns that hold words

    @classmethod
    def of(
        cls, title: str, headings: list[str], lines: list[list[str]], words: Sequence[str] = ()
    ) -> Table:
        """A table without the columns that would hold nothing but dashes, equal lines once."""
        unique = [list(line) for line in dict.fromkeys(map(tuple, lines))]
        kept = [h for i, h in enumerate(headings) if any(line[i] != NOTHING for line in unique)]
        return cls(title, headings, unique, (headings[0], *words)).only(*kept)

    @classmethod
    def of_items(
        cls, kind: str, items: Mapping[str, T], columns: Mapping[str, Callable[[T], str]]
    ) -> Table:
        """A line per item: its name under ``kind``, then what each column says of it."""
        lines = [[name, *(cell(item) for cell in columns.values())] for name, item in items.items()]
        return cls.of(kind, [kind, *columns], lines)

    def only(self, *headings: str) -> Table:
        """Only these columns, as far as they are there."""
        kept = [i for i, heading in enumerate(self.headings) if heading in headings]
        lines = [[line[i] for i in kept] for line in self.lines]
        return replace(self, headings=[self.headings[i] for i in kept], lines=lines)

    @property
    def markdown(self) -> str:
        """The table in Markdown; cells may hold anything."""
        rule = ["---" if heading in self.words else "---:" for heading in self.headings]
        # A bar would end a cell, a new line the table.
        lines = [[" ".join(cell.split()).replace("|", "\\|") for cell in line]
                 for line in (self.headings, rule, *self.lines)]  # fmt: skip
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render(template: str, **context: object) -> str:
    """A document from one of our templates; in HTML every value is escaped."""
    return _environment().get_template(template).render(context)


@functools.cache
def _environment() -> Environment:
    jinja2 = require("jinja2", "app", "A page")
    environment: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment
