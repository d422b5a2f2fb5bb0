"""What a run leaves: its result, by SciPy's names and more, and its trace, a row per iteration."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

import numpy as np

from momentous.core.space import Array, to_numpy
from momentous.core.status import Event, EventKind, Status
from momentous.core.stopping import Progress
from momentous.io import html
from momentous.io.types import AnyArray, Options, Unchecked

COLUMNS = ("nit", "nfev", "njev", "time", "fun", "grad_norm", "step_size")

_row = struct.Struct(f"{len(COLUMNS)}d").pack  # one call per iteration, where columns take seven


class Trace:
    """Counts, values, norms and events of a run, iteration by iteration.

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

    def __getitem__(self, name: str) -> AnyArray:
        if name == "active":
            return self._face()
        if name not in COLUMNS:
            raise KeyError(f"the trace has no column {name!r}; it has {', '.join(COLUMNS)}")
        column = self._table()[:, COLUMNS.index(name)]
        return column.astype(np.int64 if name in ("nit", "nfev", "njev") else np.float64)

    def _face(self) -> AnyArray:
        """The variables at bounds: known where their number changed."""
        changes = [(nit, event.value) for nit, event in self.events if event.kind is EventKind.FACE]
        if not changes:
            return np.zeros(len(self), np.int64)
        nits, counts = np.array(changes).T
        last = np.searchsorted(nits, self["nit"], side="right") - 1
        return np.where(last < 0, 0, counts[last]).astype(np.int64)

    def _table(self) -> AnyArray:
        """A copy: an array that is looked at cannot grow."""
        return np.array(self._rows).reshape(-1, len(COLUMNS))

    def columns(self) -> dict[str, AnyArray]:
        """All columns by name, ready for a data frame."""
        return {name: self[name] for name in COLUMNS}

    def when(self, kind: EventKind | str) -> list[int]:
        """The iterations in which events of this kind happened."""
        return [nit for nit, event in self.events if event.kind == kind]

    def pack(self) -> tuple[AnyArray, tuple[tuple[int, str, float], ...]]:
        """The trace as one array and plain events, for a checkpoint."""
        events = tuple((nit, str(event.kind), event.value) for nit, event in self.events)
        return np.ascontiguousarray(self._table().T), events

    def unpack(self, rows: AnyArray, events: Iterable[tuple[int, str, float]]) -> None:
        """Take over what :meth:`pack` gave."""
        self._rows = array("d", rows.T.tobytes())
        self.events = [(nit, Event(EventKind(kind), value)) for nit, kind, value in events]

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} rows and {len(self.events)} events>"


class OptimizeResultCompatible:
    """To ``isinstance`` this is SciPy's ``OptimizeResult``, once ``scipy.optimize`` is loaded."""

    @property
    def __class__(self) -> type:  # what isinstance asks for where the type does not fit
        scipys = getattr(sys.modules.get("scipy.optimize"), "OptimizeResult", None)
        return type(self) if scipys is None else scipys

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError(f"a result cannot become a {kind.__name__}")


class Result(OptimizeResultCompatible, Options):
    """A dictionary whose entries are attributes too, like SciPy's ``OptimizeResult``."""

    x: Array  # the solution: the type, shape, dtype and device of x0
    fun: float  # f(x)
    jac: Array  # the gradient at x; of `accelerate` the residual x - T(x)
    image: Array  # of `accelerate` only: T(x), where the objective is no higher than at x
    # The Euclidean norm of jac; with bounds, of x - P(x - jac); with a penalty, of
    # x - prox(x - jac, 1).
    grad_norm: float
    # Of a run with bounds: where they hold x (-1 at the lower, 1 at the upper, 0 between), ...
    active: Array
    multipliers: Array  # ... jac there, 0 elsewhere, ...
    optimality: float  # ... and the largest entry of |x - P(x - jac)|; with a penalty, grad_norm
    penalty: float  # of a run with a simple term: its value; ``fun`` has it, ``jac`` has not
    success: bool  # was what the user asked for, or what the method promises, reached?
    status: Status  # why the run ended
    message: str  # the same in words, with the numbers
    numbers: dict[str, float]  # those numbers by name
    nit: int  # iterations
    nfev: int  # values
    njev: int  # gradients
    nhev: int  # Hessians: none, for those who ask
    restarts: int  # of the momentum, accepted or rolled back
    time: float  # seconds inside the method and the user's functions
    trace: Trace | None  # every iteration and every event
    best_x: Array  # the evaluated point with the smallest gradient norm
    best_grad_norm: float  # that norm
    method: Unchecked  # the method that ran, with its hyper-parameters
    method_name: str  # its name: "auto" of the default, unless that was asked for as "safeguarded"
    # Where the method has learned it (L-BFGS, also within auto) and x is on the host: a linear
    # operator like the inverse of the Hessian, on flat vectors.  With bounds it is that of the free
    # variables alone, and 0 for those at bounds.
    hess_inv: Unchecked

    def __reduce__(self) -> tuple[object, ...]:  # with the type that it has, not with the other one
        return Result, (dict(self),)

    def copy(self) -> Result:
        """The same entries."""
        return self | {}

    def __or__(self, other: Options) -> Result:  # type: ignore[override]
        return Result(super().__or__(other))

    def __getattr__(self, name: str) -> Unchecked:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__

    def __dir__(self) -> list[str]:
        return sorted(self)

    def __repr__(self) -> str:
        """SciPy's order first, a line for each entry; arrays are cut short, details left out."""
        names = [name for name in _FIRST if name in self]
        names += [name for name in self if name not in (*_FIRST, *_DETAILS)]
        shown = {name: self[name] for name in names}
        return in_lines(shown | ({"method": self._named_method()} if "method" in shown else {}))

    def _named_method(self) -> Unchecked:
        return self.get("method_name", getattr(self.method, "name", self.method))

    def _repr_html_(self) -> str:
        """For notebooks: the ending, the numbers, and how the gradient norm has fallen."""
        names = ("fun", "grad_norm", "nit", "nfev", "njev", "restarts", "time")
        facts = {name: self[name] for name in names if name in self}
        if "x" in self:
            shape = getattr(self.x, "shape", None)
            facts["x"] = type(self.x).__name__
            facts["x"] += "" if shape is None else f" of shape {tuple(shape)}"
        if "method" in self:
            facts["method"] = self._named_method()
        status = getattr(self.get("status"), "name", self.get("status"))
        title = f"{'success' if self.get('success') else 'no success'}: {status}"
        table = html.facts_table(title, facts, str(self.get("message", "")))
        trace = self.get("trace")
        noun = "residual norm" if "image" in self else "gradient norm"
        fallen = "" if trace is None else html.curve(trace["grad_norm"].tolist(), noun)
        return html.beside(table, fallen)


# How a result is printed: these first, and without those.
_FIRST = (
    "message", "success", "status", "fun", "x", "nit", "jac", "nfev", "njev", "grad_norm",
    "restarts", "time", "method",
)  # fmt: skip
MOST_LETTERS = 300  # of a line
_DETAILS = (
    "numbers", "nhev", "trace", "best_x", "best_grad_norm", "method_name", "hess_inv", "allvecs",
)  # fmt: skip


def in_lines(entries: Options) -> str:
    """A line for each entry."""
    width = max(map(len, entries), default=0)
    return "\n".join(f"{name:>{width}}: {_line(value)}" for name, value in entries.items())


def _line(value: Unchecked) -> str:
    """An entry of a result in one line."""
    if isinstance(value, dict):
        parts = [f"{name}: {_line(part)}" for name, part in value.items()]
        return "{" + ", ".join(parts if len(parts) < 7 else [*parts[:6], "..."]) + "}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if len(value.shape) > 1:
            return f"{type(value).__name__} of shape {tuple(value.shape)}"
        value = np.array2string(to_numpy(value), precision=4, threshold=8, edgeitems=3)
    if isinstance(value, float):
        return f"{value:.10g}"
    text = " ".join(str(getattr(value, "name", value)).split())
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


class StartError(ValueError):
    """No run can begin at x0; with the result that `minimize` returns for it, as SciPy does."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.result = result


def interrupt_with(result: Result) -> KeyboardInterrupt:
    """Ctrl-C, to be raised once a run is over, with what it has found."""
    error = KeyboardInterrupt(f"{result.message}; this exception has the result as .result")
    error.result = result  # type: ignore[attr-defined]
    return error
