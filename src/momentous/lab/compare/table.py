"""The table of a comparison: one row per problem and solver, printed, saved and loaded."""

from __future__ import annotations

import csv
import math
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from momentous.io.archive import DAMAGED
from momentous.io.atomic import atomic_file
from momentous.io.html import table as html_table
from momentous.io.types import JsonObject
from momentous.lab.record import (
    COLUMNS,
    Ended,
    RecordError,
    RunInfo,
    RunRecord,
    from_json,
    pyarrow_with_parquet,
)
from momentous.lab.text import and_list, seconds


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a comparison says of a run beforehand: the problem's numbers and the limits."""

    problem: str
    family: str
    dimension: int
    held_back: bool
    method: str
    guarantee: str
    start_fun: float
    start_grad_norm: float
    minimum: float | None  # where it is known exactly
    tol: float
    rtol: float | None
    max_evaluations: int
    max_time: float
    separate: bool  # does the value come apart from the gradient, or from the map?
    setup: str  # versions and machine
    overhead: float | None = None  # CPU seconds per gradient outside the function
    goal: float | None = None  # on a map: the value that the plain map comes to
    plain_maps: int | None = None  # ... and in how many steps


@dataclass(frozen=True, kw_only=True)
class ComparisonInfo(Conditions, RunInfo):
    """The same with the parameters of the solver, for the record of the run."""


@dataclass(frozen=True, kw_only=True)
class Row(Conditions):
    """One solver on one problem.

    ``nfev``, ``njev``, ``time``, ``fun`` and ``grad_norm`` belong to the first row of the record
    whose gradient norm is at most ``tol``, if it was reached; otherwise the first three are what
    was spent, and the others belong to the smallest gradient seen.  None: the solver does not say.
    On a descent map T a gradient is a map, and its norm is |x - T(x)|.
    """

    status: Ended
    message: str
    reached: bool
    nfev: int
    njev: int
    nit: int | None
    time: float
    restarts: int | None
    guaranteed_turns: int | None
    fun: float
    grad_norm: float

    @classmethod
    def of(cls, record: RunRecord[ComparisonInfo]) -> Row:
        """That of a finished run."""
        info, outcome = asdict(record.info), record.outcome
        del info["parameters"]
        reached = record.reached(info["tol"], info["start_fun"], info["goal"])
        shown = record.best() if reached is None else reached
        spent: JsonObject = {"nfev": 0, "njev": 0, "time": 0.0}
        if len(record):
            last = len(record) - 1 if reached is None else reached
            spent = {name: getattr(record, name)[last].item() for name in spent}
        return cls(
            **info,
            **asdict(outcome),
            **spent,
            reached=reached is not None,
            guaranteed_turns=record.guaranteed_turns,
            fun=math.nan if shown is None else float(record.fun[shown]),
            grad_norm=math.nan if shown is None else float(record.grad_norm[shown]),
        )

    @property
    def evaluations(self) -> int:
        """Values plus gradients."""
        return self.nfev + self.njev


@dataclass(frozen=True)
class Comparison:
    """The table of `compare`: one row per problem and solver.

    ``pandas.DataFrame(comparison.rows)`` is a data frame; ``records`` has the `RunRecord` of every
    (problem, method), where they were kept.
    """

    rows: list[Row]
    records: dict[tuple[str, str], RunRecord[ComparisonInfo]] = field(
        default_factory=dict, repr=False
    )
    interrupted: bool = False  # by Ctrl-C, before all was done

    @property
    def problems(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(row.problem for row in self.rows))

    @property
    def methods(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def traces(self) -> dict[str, np.ndarray]:
        """Every row of every record as columns: problem, method, row, nfev, ..., event."""
        names = ("problem", "method", "row", *COLUMNS, "event")
        parts = [_trace_columns(*pair, record) for pair, record in self.records.items()]
        none = dict.fromkeys(names, np.zeros(0))
        return {name: np.concatenate([part[name] for part in parts or [none]]) for name in names}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as ``.csv`` or ``.parquet``, by the suffix of the path."""
        names = [column.name for column in fields(Row)]
        write_columns(path, {name: [getattr(row, name) for row in self.rows] for name in names})

    def save_traces(self, path: str | os.PathLike[str]) -> None:
        """Write `traces` as ``.csv`` or ``.parquet``."""
        write_columns(path, {name: column.tolist() for name, column in self.traces.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote; anything else is a `RecordError`."""
        return cls(_load_rows(Path(path)))

    def __str__(self) -> str:
        """One table per problem."""
        return "\n\n".join(_table(rows) for rows in self._by_problem())

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return "".join(
            f"<div><b>{escape(_title(rows))}</b>{html_table(*_columns(rows))}</div>"
            for rows in self._by_problem()
        )

    def _by_problem(self) -> list[list[Row]]:
        return [[row for row in self.rows if row.problem == name] for name in self.problems]


CELLS: dict[str, Callable[[Row], str]] = {
    "method": lambda row: row.method,
    "ended": lambda row: row.status,
    "values": lambda row: f"{row.nfev:,}" if row.evaluations else "",
    "grads": lambda row: f"{row.njev:,}" if row.evaluations else "",
    "restarts": lambda row: "" if row.restarts is None else f"{row.restarts:,}",
    "turns": lambda row: f"{row.guaranteed_turns:,}" if row.guaranteed_turns else "",
    "time": lambda row: seconds(row.time) if row.evaluations else "",
    "|grad f|": lambda row: f"{row.grad_norm:.1e}" if row.evaluations else "",
    "f": lambda row: f"{row.fun:.3g}" if row.evaluations else "",
}


# On a descent map some columns have other names.
ON_MAPS = {"grads": "maps", "|grad f|": "|x - T(x)|"}


def _title(rows: Sequence[Row]) -> str:
    """The problem of these rows."""
    first = rows[0]
    goal = f"|grad f| <= {first.tol:.2g}" if first.goal is None else f"f <= {first.goal:.6g}"
    return f"{first.problem}, {first.dimension:,} variables, to {goal}"


def _columns(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The headings and the cells of one problem, without the columns that would say nothing."""
    names = {} if rows[0].goal is None else ON_MAPS
    columns = [[names.get(title, title), *map(cell, rows)] for title, cell in CELLS.items()]
    if all(row.nfev == row.njev for row in rows):  # every gradient brought a value
        del columns[2]
    headings, *cells = zip(
        *(each for each in columns if any(map(str.strip, each[1:]))), strict=True
    )
    return headings, cells


def _table(rows: Sequence[Row]) -> str:
    """The rows of one problem as text."""
    headings, cells = _columns(rows)
    columns = list(zip(headings, *cells, strict=True))
    for i, column in enumerate(columns):
        width = max(map(len, column))
        columns[i] = tuple(each.ljust(width) if i < 2 else each.rjust(width) for each in column)
    lines = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
    return "\n".join([_title(rows), *lines])


def _trace_columns(
    problem: str, method: str, record: RunRecord[ComparisonInfo]
) -> dict[str, np.ndarray]:
    size = len(record)
    events: list[list[str]] = [[] for _ in range(size)]
    for row, kind, _ in record.events:
        events[row].append(kind.name.lower())
    return {
        "problem": np.full(size, problem, dtype=object),
        "method": np.full(size, method, dtype=object),
        "row": np.arange(size),
        **record.columns,
        "event": np.array(["; ".join(kinds) for kinds in events], dtype=object),
    }


def write_columns(path: str | os.PathLike[str], columns: Mapping[str, Sequence[object]]) -> None:
    """A table as ``.csv`` or ``.parquet``."""
    path = Path(path)
    if _suffix(path) == ".csv":
        with atomic_file(path, "w") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    else:
        arrow, parquet = pyarrow_with_parquet()
        with atomic_file(path) as file:
            parquet.write_table(arrow.table(columns), file)


def setup_note(rows: Iterable[Row]) -> str:
    """The versions and the machine of all rows, method by method where they differ."""
    methods: dict[str, dict[str, None]] = {}
    for row in rows:
        methods.setdefault(row.setup, {})[f"`{row.method}`"] = None
    if len(methods) == 1:
        return f"Made with {next(iter(methods))}."
    parts = [f"- {setup}: {and_list(list(names))}" for setup, names in methods.items()]
    return "Made with\n\n" + "\n".join(parts)


def _load_rows(path: Path) -> list[Row]:
    """A column that an older table lacks has its default."""
    as_text, kinds = _suffix(path) == ".csv", typing.get_type_hints(Row)
    defaults = {each.name: each.default for each in fields(Row) if each.default is not MISSING}
    try:
        if as_text:
            with path.open(newline="", encoding="utf-8") as file:
                lines = [
                    {name: _parse_cell(line[name], kinds[name]) for name in kinds if name in line}
                    for line in csv.DictReader(file)
                ]
        else:
            table = pyarrow_with_parquet()[1].read_table(path).to_pylist()
            lines = [{name: line[name] for name in kinds if name in line} for line in table]
        return [from_json(Row, {**defaults, **line}) for line in lines]
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no table {path}") from None
    except (*DAMAGED, csv.Error) as error:
        raise RecordError(
            f"{path} is damaged or not a table of a comparison ({type(error).__name__}: {error})"
        ) from error


def merge_rows(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The old rows with new ones in the place of those of the same runs; others at the end."""
    fresh = {(row.problem, row.method, row.separate): row for row in new}
    kept = [fresh.pop((row.problem, row.method, row.separate), row) for row in old]
    return [*kept, *fresh.values()]


def _parse_cell(text: str, kind: Any) -> Any:
    options = typing.get_args(kind)  # of ``int | None``
    if type(None) in options:
        return None if not text else options[0](text)
    return text == "True" if kind is bool else kind(text)


def _suffix(path: Path) -> str:
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path} must end in .csv or .parquet, which says how it is written")
    return path.suffix
