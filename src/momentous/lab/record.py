"""The record of a run: what was run, how it ended, one row per iteration, and every event.

The same record serves our methods (a row is an iteration) and outside solvers (a row is an
evaluation).  On disk it is one Parquet file whose metadata hold the rest as JSON.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import json
import math
import os
import platform
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import numpy as np

from momentous.core.acceptance import has_risen
from momentous.core.result import Result, Trace
from momentous.core.status import RESTARTS, EventKind
from momentous.io.archive import DAMAGED
from momentous.io.atomic import PathLike, atomic_file
from momentous.io.optional import require
from momentous.io.types import JsonObject
from momentous.version import __version__

if typing.TYPE_CHECKING:
    from pyarrow import Table

COLUMNS = ("nfev", "njev", "time", "fun", "grad_norm", "step_size")
COUNTS = ("nfev", "njev")  # whole numbers
KIND, VERSION = "run", 1
METADATA_KEY = b"momentous"

Column = Sequence[float] | np.ndarray
Json = JsonObject
"""What a file of JSON holds."""
Event = tuple[int, EventKind, float]
"""Row, kind, and its number."""


class RecordError(ValueError):
    """A file that is no record of a run, is damaged, or is of another version."""


@dataclass(frozen=True)
class RunInfo:
    """What was run, on what and where; a subclass may say more, in fields that JSON can hold."""

    problem: str
    method: str  # its name in tables
    parameters: Json
    setup: str  # versions and machine


class Ended(enum.StrEnum):
    """How a run ended: with a `momentous.Status`, or as only a comparison can say."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max iterations"
    NO_PROGRESS = "no progress"
    NON_FINITE = "non finite"
    TARGET_REACHED = "target reached"
    COMPLETED = "completed"
    MAX_EVALUATIONS = "max evaluations"
    MAX_TIME = "max time"
    STAGNATED = "stagnated"
    ABOVE_TOLERANCE = "above tolerance"
    PROMISE_BROKEN = "promise broken"
    INTERRUPTED = "interrupted"
    OBJECTIVE_ROSE = "objective rose"
    UNBOUNDED = "unbounded"
    SMALL_CHANGE = "small change"
    STOPPED = "stopped"
    GAVE_UP = "gave up"  # an outside solver ended by itself, above the tolerance
    FAILED = "failed"  # it raised
    NOT_APPLICABLE = "not applicable"  # to this problem, or not installed
    REACHED = "reached"  # on a map: the value that the plain map comes to
    ELSEWHERE = "elsewhere"  # a fixed point above that value
    MAX_MAPS = "max maps"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Ended
    message: str
    nit: int | None = None  # None: the solver does not say
    restarts: int | None = None

    @classmethod
    def from_result(cls, result: Result) -> Outcome:
        """That of one of our methods."""
        status = Ended[result.status.name]
        return cls(status, result.message, int(result.nit), int(result.restarts))

    @classmethod
    def from_error(cls, error: Exception) -> Outcome:
        """That of a run that raised; the message is one line."""
        words = " ".join(str(error).split())
        return cls(Ended.FAILED, f"failed: {type(error).__name__}: {words}")


Info = TypeVar("Info", bound=RunInfo)


@dataclass(frozen=True, eq=False)
class RunRecord(Generic[Info]):
    """A run: one entry of each column per row, and the events of all rows."""

    info: Info
    outcome: Outcome
    nfev: np.ndarray  # values, gradients and seconds so far
    njev: np.ndarray
    time: np.ndarray
    fun: np.ndarray  # at the point that was evaluated; NaN where it was not
    grad_norm: np.ndarray
    step_size: np.ndarray  # eta; NaN where there is none
    events: list[Event]
    path: Path | None = None  # the file that it was read from or written to

    @classmethod
    def from_columns(
        cls,
        info: Info,
        outcome: Outcome,
        columns: Mapping[str, Column] | None = None,
        events: Iterable[Event] = (),
    ) -> RunRecord[Info]:
        """From columns by name; without any, a run that evaluated nothing.

        A missing ``step_size`` is NaN in every row; columns of other names are left out.
        """
        given = dict[str, Column](dict.fromkeys(COLUMNS, ()) if columns is None else columns)
        size = len(given["nfev"])
        given.setdefault("step_size", np.full(size, np.nan))
        arrays: JsonObject = {
            name: np.asarray(given[name], dtype=np.int64 if name in COUNTS else np.float64)
            for name in COLUMNS
        }
        if any(array.shape != (size,) for array in arrays.values()):
            raise ValueError(f"the columns {', '.join(COLUMNS)} differ in length")
        return cls(info, outcome, **arrays, events=list(events))

    @classmethod
    def from_trace(cls, info: Info, outcome: Outcome, trace: Trace) -> RunRecord[Info]:
        """From the trace of one of our methods."""
        events = [(nit, event.kind, event.value) for nit, event in trace.events]
        return cls.from_columns(info, outcome, trace.columns(), events)

    def __len__(self) -> int:
        return len(self.nfev)

    @property
    def status(self) -> Ended:
        """Why the run ended."""
        return self.outcome.status

    @property
    def message(self) -> str:
        """The same in words, with the numbers."""
        return self.outcome.message

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def evaluations(self) -> np.ndarray:
        """Values plus gradients so far."""
        return np.asarray(self.nfev + self.njev)

    @property
    def guaranteed_turns(self) -> int | None:
        """How often a safeguarded method gave its guaranteed part a turn."""
        if self.outcome.restarts is None:
            return None
        return sum(kind is EventKind.TURN and value == 1 for _, kind, value in self.events)

    def rows_with(self, *kinds: EventKind) -> list[int]:
        """The rows with an event of such a kind, ascending."""
        return sorted({row for row, kind, _ in self.events if kind in kinds})

    def restart_rows(self) -> list[int]:
        """The rows in which the momentum was dropped."""
        return self.rows_with(*RESTARTS)

    def reached(self, tol: float, start_fun: float, goal: float | None = None) -> int | None:
        """The first row with a gradient norm of at most ``tol``, or a value of at most ``goal``.

        Where the objective has risen above that of the start, a small gradient is a plateau that
        the solver was thrown onto, and does not count.
        """
        rows = np.flatnonzero((self.grad_norm <= tol) | (goal is not None and self.fun <= goal))
        return next((int(row) for row in rows if not has_risen(self.fun[row], start_fun)), None)

    def best(self) -> int | None:
        """The row with the smallest gradient norm; None where no gradient was ever finite."""
        known = np.where(np.isfinite(self.grad_norm), self.grad_norm, math.inf)
        return int(known.argmin()) if len(known) and math.isfinite(known.min()) else None

    def first_rows(self, count: int) -> RunRecord[Info]:
        """The same run, cut after so many rows."""
        columns = {name: column[:count] for name, column in self.columns.items()}
        events = [event for event in self.events if event[0] < count]
        return RunRecord.from_columns(self.info, self.outcome, columns, events)

    def save(self, path: PathLike) -> RunRecord[Info]:
        """Write the file, all of it or nothing; returns the record with its path."""
        arrow, parquet = pyarrow_with_parquet()
        parts = {"info": asdict(self.info), "outcome": asdict(self.outcome)}
        content = {"kind": KIND, "version": VERSION, **parts}
        table = arrow.table({**self.columns, "event": _event_cells(self.events, len(self))})
        table = table.replace_schema_metadata({METADATA_KEY: json.dumps(content)})
        with atomic_file(path) as file:
            parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
        return replace(self, path=Path(path))

    @classmethod
    def load(cls, path: PathLike, info_type: type[Info]) -> RunRecord[Info]:
        """Read what `save` wrote; every field and column is checked.

        A file that is damaged, of another version, or no record of a run is a `RecordError`.
        """
        _, parquet = pyarrow_with_parquet()
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no file {path}")
        try:
            table = parquet.read_table(path, page_checksum_verification=True)
            content = _read_metadata(table)
            info = from_json(info_type, content["info"])
            outcome = from_json(Outcome, content["outcome"])
            columns = {name: _numbers(table, name) for name in COLUMNS}
            events = _events(table["event"].to_pylist())
        except DAMAGED as error:
            raise RecordError(
                f"{path} is damaged or not a record of a run ({type(error).__name__}: {error})"
            ) from error
        record = RunRecord.from_columns(info, outcome, columns, events)
        return replace(record, path=Path(path))


def as_file_name(name: str) -> str:
    """A name without what file systems refuse."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", name)


def path_of_run(folder: Path, name: str, settings: Sequence[object]) -> Path:
    """Where a run is, or will be: another file for all that makes it another run."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"{as_file_name(name)[:120]}--{digest}.parquet"


def finished_run(path: Path, info_type: type[Info]) -> RunRecord[Info] | None:
    """None if there is no such run, or none that can be read: it is run again."""
    try:
        return RunRecord.load(path, info_type)
    except (OSError, RecordError):
        return None


def pyarrow_with_parquet() -> tuple[ModuleType, ...]:
    """The two modules that read and write Parquet files."""
    return tuple(require(name, "app", "A Parquet file") for name in ("pyarrow", "pyarrow.parquet"))


@functools.cache
def setup() -> str:
    """Versions and machine, as far as they bear on the numbers."""
    parts = [f"momentous {__version__}", f"Python {platform.python_version()}"]
    for package in ("numpy", "scipy", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            parts.append(f"{package} {metadata.version(package)}")
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    limited = f", OPENBLAS_NUM_THREADS={threads}" if threads else ""
    return f"{', '.join(parts)}; {platform.machine()}, {os.cpu_count()} cores{limited}"


def _event_cells(events: Iterable[Event], size: int) -> list[str]:
    """The events of each row as ``RESTART=16.0; RADIUS_REACHED=0.01``."""
    cells = [""] * size
    for row, kind, value in events:
        cells[row] += f"{'; ' if cells[row] else ''}{kind.name}={float(value)!r}"
    return cells


def _events(cells: list[str]) -> list[Event]:
    events = []
    for row, text in enumerate(cells):
        for part in text.split("; ") if text else ():
            kind, value = part.split("=")
            events.append((row, EventKind[kind], float(value)))
    return events


def _read_metadata(table: Table) -> Json:
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    content = None if text is None else json.loads(text)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ValueError("this is a Parquet file of another kind")
    if content.get("version") != VERSION:
        raise ValueError(
            f"the record has version {content.get('version')!r}, this release of momentous reads "
            f"version {VERSION}"
        )
    return content


def _numbers(table: Table, name: str) -> np.ndarray:
    column = table[name]
    array: np.ndarray = column.to_numpy()
    if column.null_count or array.dtype.kind not in ("i" if name in COUNTS else "f"):
        raise ValueError(f"the column {name} holds {column.type}, or has gaps")
    return array


T = TypeVar("T")


def from_json(kind: type[T], content: object) -> T:
    """A dataclass from JSON, with the type of every field checked."""
    hints = typing.get_type_hints(kind)
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(content, dict) or set(content) != set(names):
        raise ValueError(f"the fields of {kind.__name__} must be {', '.join(names)}")
    return kind(**{name: _check_type(name, content[name], hints[name]) for name in names})


def _check_type(name: str, value: Any, kind: Any) -> Any:
    """A value of JSON as the type that a field has: ``X | None``, lists, tuples and dicts too.

    Strict JSON has "inf" and "nan" where a number is not finite.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None and type(None) in inner else _check_type(name, value, inner[0])
    fits = isinstance(value, list) and (origin is list or len(value) == len(inner))
    if origin in (list, tuple) and fits:
        return origin(_check_type(name, each, inner[0]) for each in value)
    if origin is dict and type(value) is dict:
        return {key: _check_type(name, each, inner[1]) for key, each in value.items()}
    if kind is float and (type(value) is int or value in ("inf", "-inf", "nan")):
        return float(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is Any or type(value) is kind:
        return value
    raise ValueError(f"{name} is {value!r}, which is not of the type {kind}")
