"""The result of a run: SciPy's names, and what SciPy does not tell."""

from __future__ import annotations

from typing import Any

from momentous.core.space import Array
from momentous.core.status import Status
from momentous.core.trace import Trace


class Result(dict[str, Any]):
    """A dictionary whose entries are attributes too, like SciPy's ``OptimizeResult``.

    Attributes
    ----------
    x : array
        The solution: the type, shape, dtype and device of x0.
    fun : float
        f(x).
    jac : array
        The gradient at x; of `accelerate` the residual x - T(x).
    image : array
        Of `accelerate` only: T(x), where the objective is no higher than at x.
    grad_norm : float
        Its Euclidean norm.
    success : bool
        Was what the user asked for, or what the method promises, reached?
    status : Status
        Why the run ended.
    message : str
        The same in words, with the numbers.
    numbers : dict
        Those numbers by name.
    nit, nfev, njev : int
        Iterations, values and gradients.
    restarts : int
        Restarts of the momentum, accepted or rolled back.
    time : float
        Seconds inside the method and the user's functions.
    trace : Trace or None
        Every iteration and every event.
    best_x : array
        The evaluated point with the smallest gradient norm.
    best_grad_norm : float
        That norm.
    method : Method
        The method that ran, with its hyper-parameters.
    """

    x: Array
    fun: float
    jac: Array
    image: Array
    grad_norm: float
    success: bool
    status: Status
    message: str
    numbers: dict[str, Any]
    nit: int
    nfev: int
    njev: int
    restarts: int
    time: float
    trace: Trace | None
    best_x: Array
    best_grad_norm: float
    method: Any

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
        width = max((len(name) for name in self), default=0)
        lines = []
        for name, value in self.items():
            text = getattr(value, "name", value) if isinstance(value, Status) else value
            text = str(text).replace("\n", "\n" + " " * (width + 2))
            lines.append(f"{name:>{width}}: {text}")
        return "\n".join(lines)
