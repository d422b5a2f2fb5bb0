"""The table of a comparison: one row a problem and method, saved and loaded as it stands."""

from __future__ import annotations

import csv
import importlib
import os
import typing
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from momentous.comparison.history import COLUMNS, History


@dataclass(frozen=True)
class Row:
    """One method on one problem.

    ``nfev``, ``njev``, ``time``, ``fun`` and ``grad_norm`` belong to the first row of the history
    whose gradient norm is at most ``tol``, if it was reached; otherwise the first three are what
    was spent, and the others belong to the smallest gradient seen.  None: the solver does not tell.
    """

    problem: str
    family: str
    dimension: int
    held_back: bool
    method: str
    guarantee: str
    status: str
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
    start_fun: float
    start_grad_norm: float
    minimum: float | None
    tol: float
    rtol: float | None
    max_evaluations: int
    max_time: float
    separate: bool
    setup: str  # versions and machine

    @property
    def evaluations(self) -> int:
        """Values plus gradients."""
        return self.nfev + self.njev


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    rows : list of Row
        One a problem and method; ``pandas.DataFrame(comparison.rows)`` is a data frame.
    histories : dict
        The `History` of every (problem, method) that was kept.
    interrupted : bool
        Whether Ctrl-C ended it before all was done.
    """

    rows: list[Row]
    histories: dict[tuple[str, str], History] = field(default_factory=dict, repr=False)
    interrupted: bool = False

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
        """Every row of every history as columns: problem, method, row, nfev, ..., event."""
        parts = [_tidy(*pair, history) for pair, history in self.histories.items()]
        names = ("problem", "method", "row", *COLUMNS, "event")
        return {
            name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0)
            for name in names
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as ``.csv`` or ``.parquet``, by the suffix of the path."""
        names = [column.name for column in fields(Row)]
        table = [asdict(row) for row in self.rows]
        write_columns(path, {name: [row[name] for row in table] for name in names})

    def save_traces(self, path: str | os.PathLike[str]) -> None:
        """Write `traces` as ``.csv`` or ``.parquet``."""
        write_columns(path, {name: column.tolist() for name, column in self.traces.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Read what `save` wrote."""
        return cls(list(_read_rows(Path(path))))

    def __str__(self) -> str:
        from momentous.comparison.words import table_of

        lines = table_of(self.rows)
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _tidy(problem: str, method: str, history: History) -> dict[str, np.ndarray]:
    size = len(history)
    told = [""] * size
    for row, kind, _ in history.events:
        told[row] = f"{told[row]}; {kind.lower()}" if told[row] else kind.lower()
    names = {"problem": problem, "method": method}
    return {
        **{name: np.full(size, text, dtype=object) for name, text in names.items()},
        "row": np.arange(size),
        **history.columns(),
        "event": np.array(told, dtype=object),
    }


def write_columns(path: str | os.PathLike[str], columns: dict[str, list[Any]]) -> None:
    """A table as ``.csv`` or ``.parquet``."""
    path = Path(path)
    if _suffix(path) == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    else:
        arrow, parquet = pyarrow_modules()
        parquet.write_table(arrow.table(columns), path)


def _read_rows(path: Path) -> Iterator[Row]:
    kinds = typing.get_type_hints(Row)
    lines: Iterable[dict[str, Any]]
    if _suffix(path) == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        for line in lines:
            yield Row(**{name: _parsed(line[name], kind) for name, kind in kinds.items()})
    else:
        lines = pyarrow_modules()[1].read_table(path).to_pylist()
        for line in lines:
            yield Row(**{name: line[name] for name in kinds})


def _parsed(text: str, kind: Any) -> Any:
    options = typing.get_args(kind)  # of ``int | None``
    if type(None) in options:
        return None if not text else options[0](text)
    return text == "True" if kind is bool else kind(text)


def _suffix(path: Path) -> str:
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path} must end in .csv or .parquet, which says how it is written")
    return path.suffix


def pyarrow_modules() -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.parquet``, or an error that says how to get them."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Parquet files need pyarrow, which is not installed; install it with: "
            'pip install "momentous[app]"'
        ) from None
