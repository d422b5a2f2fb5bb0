"""What the pages of functions and of maps have in common: lists and tables over all problems."""

from collections.abc import Callable, Mapping, Sequence

from momentous.lab.compare.table import Row
from momentous.lab.compare.verdicts import methods_of, summaries
from momentous.lab.text import and_list, count_of, table_of

Line = dict[str, Row]
"""The rows of one problem, by method."""


def extent(rows: Sequence[Row], noun: str = "problem") -> str:
    """How many problems there are, and of which sizes."""
    sizes = {row.problem: row.dimension for row in rows}
    smallest, largest = min(sizes.values()), max(sizes.values())
    return f"{count_of(len(sizes), noun)} with {smallest:,} to {largest:,} variables"


def grid(
    rows: Sequence[Row],
    noun: str,
    held_back: str,
    cell: Callable[[Row], str],
    more: Mapping[str, Callable[[Line], str]],
) -> str:
    """A table with a line per problem, which may be marked as held back, and a column per method.

    ``more`` are columns behind those; before them stands how many plain maps set the goal of a map.
    """
    marks = {row.problem: held_back if row.held_back else "" for row in reversed(rows)}
    lines: dict[str, Line] = {}
    for row in rows:
        lines.setdefault(row.problem + marks[row.problem], {})[row.method] = row

    def column(method: str) -> Callable[[Line], str]:
        return lambda line: cell(line[method]) if method in line else ""

    columns: dict[str, Callable[[Line], str]] = {
        "variables": lambda line: f"{_first(line).dimension:,}"
    }
    if rows[0].goal is not None:
        columns["goal"] = lambda line: f"{_first(line).plain_maps:,}"
    columns |= {f"`{method}`": column(method) for method in methods_of(rows)}
    return table_of(noun, lines, columns | dict(more))


def _first(line: Line) -> Row:
    return next(iter(line.values()))


def fewest(rows: Sequence[Row]) -> str:
    """Who needs the fewest gradients, or maps, and on which problems: a list."""
    ranked = sorted(summaries(rows), key=lambda it: -len(it.best_gradients))
    return "\n".join(
        f"- `{it.method}`, {len(it.best_gradients)}: {and_list(it.best_gradients)}."
        for it in ranked
        if it.best_gradients
    )
