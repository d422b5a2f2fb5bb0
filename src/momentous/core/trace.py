"""The trace: one row per iteration and one entry per event, compact enough to be always on."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable

import numpy as np

from momentous.core.status import Event, EventKind
from momentous.core.stopping import Progress

COLUMNS = ("nit", "nfev", "njev", "time", "fun", "grad_norm", "step_size")

_row = struct.Struct(f"{len(COLUMNS)}d").pack  # one call per iteration, where columns take seven


class Trace:
    """What happened, iteration by iteration.

    ``trace["grad_norm"]`` is a column (a NumPy array); the columns are ``nit`` (iteration; row 0 is
    the start), ``nfev`` and ``njev`` (evaluations so far), ``time`` (seconds so far), ``fun`` (at
    the point that the iteration evaluated, NaN where the method needed no value), ``grad_norm``
    (at the same point) and ``step_size``.  Of a run with bounds ``trace["active"]`` is how many
    variables were at one.

    Parameters
    ----------
    values : bool
        Evaluate the objective at every iteration for the ``fun`` column.  Such values are neither
        counted nor timed.
    """

    def __init__(self, *, values: bool = False):
        self.values = values
        self._rows = array("d")  # one after the other
        self.events: list[tuple[int, Event]] = []

    def add(self, progress: Progress, fun: float, step_size: float) -> None:
        """Append the row of one iteration."""
        nit, nfev, njev, time = progress.nit, progress.nfev, progress.njev, progress.time
        self._rows.frombytes(_row(nit, nfev, njev, time, fun, progress.grad_norm, step_size))

    def __len__(self) -> int:
        return len(self._rows) // len(COLUMNS)

    def __getitem__(self, name: str) -> np.ndarray:
        if name == "active":
            return self._face()
        if name not in COLUMNS:
            raise KeyError(f"the trace has no column {name!r}; it has {', '.join(COLUMNS)}")
        column = self._table()[:, COLUMNS.index(name)]
        return column.astype(np.int64 if name in ("nit", "nfev", "njev") else np.float64)

    def _face(self) -> np.ndarray:
        """The variables at bounds: known where their number changed."""
        changes = [(nit, event.value) for nit, event in self.events if event.kind is EventKind.FACE]
        if not changes:
            return np.zeros(len(self), np.int64)
        nits, counts = np.array(changes).T
        last = np.searchsorted(nits, self["nit"], side="right") - 1
        return np.where(last < 0, 0, counts[last]).astype(np.int64)

    def _table(self) -> np.ndarray:
        """A copy: an array that is looked at cannot grow."""
        return np.array(self._rows).reshape(-1, len(COLUMNS))

    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name, ready for a data frame."""
        return {name: self[name] for name in COLUMNS}

    def when(self, kind: EventKind | str) -> list[int]:
        """The iterations in which events of this kind happened."""
        return [nit for nit, event in self.events if event.kind == kind]

    def pack(self) -> tuple[np.ndarray, tuple[tuple[int, str, float], ...]]:
        """The trace as one array and plain events, for a checkpoint."""
        events = tuple((nit, str(event.kind), event.value) for nit, event in self.events)
        return np.ascontiguousarray(self._table().T), events

    def unpack(self, rows: np.ndarray, events: Iterable[tuple[int, str, float]]) -> None:
        """Take over what :meth:`pack` gave."""
        self._rows = array("d", rows.T.tobytes())
        self.events = [(nit, Event(EventKind(kind), value)) for nit, kind, value in events]

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} rows and {len(self.events)} events>"
