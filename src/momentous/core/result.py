"""The result of a run: SciPy's names, and what SciPy does not tell."""

from __future__ import annotations

import sys
from collections.abc import Callable, ItemsView, Iterator, ValuesView
from typing import Any

import numpy as np

from momentous.core.space import Array, to_numpy
from momentous.core.status import Status
from momentous.core.trace import Trace
from momentous.io import html


class LikeScipys:
    """To ``isinstance`` this is SciPy's ``OptimizeResult``, once ``scipy.optimize`` is loaded."""

    @property
    def __class__(self) -> Any:  # what isinstance asks for where the type does not fit
        scipys = getattr(sys.modules.get("scipy.optimize"), "OptimizeResult", None)
        return type(self) if scipys is None else scipys

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError(f"a result cannot become a {kind.__name__}")


class Later:
    """An entry of a result that is made when somebody first asks for it."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]):
        self.make = make


class Result(LikeScipys, dict[str, Any]):
    """A dictionary whose entries are attributes too, like SciPy's ``OptimizeResult``."""

    x: Array  # the solution: the type, shape, dtype and device of x0
    fun: float  # f(x)
    jac: Array  # the gradient at x; of `accelerate` the residual x - T(x)
    image: Array  # of `accelerate` only: T(x), where the objective is no higher than at x
    grad_norm: float  # the Euclidean norm of jac; with bounds, of x - P(x - jac)
    # Of a run with bounds: where they hold x (-1 at the lower, 1 at the upper, 0 between), ...
    active: Array
    multipliers: Array  # ... jac there, 0 elsewhere, ...
    optimality: float  # ... and the largest entry of |x - P(x - jac)|
    success: bool  # was what the user asked for, or what the method promises, reached?
    status: Status  # why the run ended
    message: str  # the same in words, with the numbers
    numbers: dict[str, Any]  # those numbers by name
    nit: int  # iterations
    nfev: int  # values
    njev: int  # gradients
    nhev: int  # Hessians: none, for those who ask
    restarts: int  # of the momentum, accepted or rolled back
    time: float  # seconds inside the method and the user's functions
    trace: Trace | None  # every iteration and every event
    best_x: Array  # the evaluated point with the smallest gradient norm
    best_grad_norm: float  # that norm
    method: Any  # the method that ran, with its hyper-parameters
    # Where the method has learned it (L-BFGS, also within auto) and x is on the host: a linear
    # operator like the inverse of the Hessian, on flat vectors.  It is made when it is asked for.
    # With bounds it is that of the free variables alone, and 0 for those at bounds.
    hess_inv: Any

    def __reduce__(self) -> tuple[Any, ...]:  # with the type that it has, not with the other one
        return Result, (dict(self),)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Later):
            value = self[name] = value.make()
        return value

    def __iter__(self) -> Iterator[str]:  # of our own: then dict(result) asks `__getitem__`, too
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """The entry, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def pop(self, name: str, *default: Any) -> Any:
        """Take the entry out."""
        value = super().pop(name, *default)
        return value.make() if isinstance(value, Later) else value

    def popitem(self) -> tuple[str, Any]:
        """Take the last entry out."""
        name = next(reversed(self), "")
        return name, self.pop(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The entry; where there is none, the default becomes it."""
        super().setdefault(name, default)
        return self[name]

    def copy(self) -> Result:
        """The same entries."""
        return self | {}

    def __or__(self, other: dict[str, Any]) -> Result:  # type: ignore[override]
        # Entry by entry: dict's own way asks `__getitem__`, which makes what is left for later.
        return Result({name: dict.__getitem__(self, name) for name in self} | other)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """All entries."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """All names and entries."""
        return ItemsView(self)

    def __getattr__(self, name: str) -> Any:
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
        width = max(map(len, names), default=0)
        return "\n".join(f"{name:>{width}}: {_line(dict.get(self, name))}" for name in names)

    def _repr_html_(self) -> str:
        """For notebooks: the ending, the numbers, and how the gradient norm has fallen."""
        names = ("fun", "grad_norm", "nit", "nfev", "njev", "restarts", "time")
        facts = {name: self[name] for name in names if name in self}
        if "x" in self:
            shape = getattr(self.x, "shape", None)
            facts["x"] = type(self.x).__name__
            facts["x"] += "" if shape is None else f" of shape {tuple(shape)}"
        if "method" in self:
            facts["method"] = getattr(self.method, "name", self.method)
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
_DETAILS = ("numbers", "nhev", "trace", "best_x", "best_grad_norm", "hess_inv", "allvecs")


def _line(value: Any) -> str:
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


def interrupt_with(result: Result) -> KeyboardInterrupt:
    """Ctrl-C, to be raised once a run is over, with what it has found."""
    error = KeyboardInterrupt(f"{result.message}; this exception has the result as .result")
    error.result = result  # type: ignore[attr-defined]
    return error
