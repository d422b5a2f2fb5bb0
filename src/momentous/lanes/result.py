"""The results of many runs: arrays over the problems, and each as a single result."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.stopping import GradientNorm, Progress

NUMBERS = ("fun", "grad_norm", "best_grad_norm", "nit", "nfev", "njev", "restarts", "time")


class ManyResult:
    """What `minimize_many` returns: entry i of every array is of problem i, and ``result[i]`` is
    what `minimize` would have returned for it."""

    x: Array  # (m, ...), of the library of X0
    jac: Array  # the gradients there
    best_x: Array  # the evaluated points with the smallest gradients
    fun: np.ndarray
    grad_norm: np.ndarray
    best_grad_norm: np.ndarray
    success: np.ndarray
    status: np.ndarray  # of `Status`, as whole numbers
    nit: np.ndarray
    nfev: np.ndarray
    njev: np.ndarray
    restarts: np.ndarray
    time: np.ndarray  # seconds from the start to the end of each
    # With bounds also ``active``, ``multipliers`` and ``optimality``, as of `minimize`; with a
    # penalty ``penalty`` and ``optimality``.
    active: Array
    multipliers: Array
    optimality: np.ndarray
    penalty: np.ndarray
    method_name: str | None = None  # as single results show it; None: that of its class

    def __init__(
        self, columns: dict[str, Any], endings: dict[int, Ending], method: Method,
        tolerance: float, noun: str, rounding: float, grad_noise: float,
    ):  # fmt: skip
        self.__dict__.update(columns)
        self._endings, self.method = endings, method
        self._tolerance, self._noun, self._rounding = tolerance, noun, rounding
        self._grad_noise = grad_noise if noun == "gradient" else 0.0
        self.success = self.status == int(Status.CONVERGED)
        for i, ending in endings.items():
            self.success[i] = ending.success

    def __len__(self) -> int:
        return len(self.status)

    def __iter__(self) -> Iterator[Result]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Result:
        try:
            i = operator.index(i)
        except TypeError:
            raise TypeError(
                f"result[i] is the result of problem i, a whole number, not {type(i).__name__}; "
                "the arrays result.x, result.fun ... can be cut"
            ) from None
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} problems, and none has the number {i}")
        i, ending = i % len(self), self._ending(i % len(self))
        own = [name for name in ("optimality", "penalty") if name in self.__dict__]
        numbers = {name: getattr(self, name)[i].item() for name in (*NUMBERS, *own)}
        if "active" in self.__dict__:
            numbers |= {
                "active": self.active[i, ...],
                "multipliers": self.multipliers[i, ...],
            }
        return Result(
            x=self.x[i, ...],
            jac=self.jac[i, ...],
            success=bool(self.success[i]),
            status=ending.status,
            message=ending.message,
            numbers=ending.numbers,
            **numbers,
            nhev=0,
            trace=None,
            best_x=self.best_x[i, ...],
            method=self.method,
            method_name=self.method_name or self.method.name,
        )

    def _ending(self, i: int) -> Ending:
        ending = self._endings.get(i)
        if ending is None:
            ending = GradientNorm(self._tolerance).check(
                Progress(
                    grad_norm=float(self.grad_norm[i]),
                    grad_noise=self._grad_noise,
                    noun=self._noun,
                )
            )
            assert ending is not None
        return ending

    @property
    def message(self) -> list[str]:
        """Why each has ended, in words."""
        return [self._ending(i).message for i in range(len(self))]

    @property
    def best(self) -> Result:
        """The lowest of the successful runs (of all, where none is), with its number as ``index``
        and as ``reached`` how many of the successful ones are level with it: f is within sqrt(u)
        max(1, |f|), u the unit roundoff of X0."""
        values = np.where(np.isfinite(self.fun), self.fun, math.inf)
        usable = self.success if self.success.any() else np.ones(len(self), bool)
        i = int(np.argmin(np.where(usable, values, math.inf)))
        level = math.sqrt(self._rounding) * max(1.0, abs(values[i]))
        reached = int(np.sum(self.success & (values <= values[i] + level)))
        return self[i] | {"index": i, "reached": reached}

    def __repr__(self) -> str:
        ends = Counter(Status(status).name for status in self.status.tolist())
        shape, done = tuple(self.x.shape[1:]), int(self.success.sum())
        lines = [f"{len(self)} problems of {shape}, {done} successful"]
        lines += [f"{count:>8} {name}" for name, count in ends.most_common()]
        for name in ("nit", "nfev", "fun", "grad_norm"):
            numbers = getattr(self, name).astype(float)
            if (finite := numbers[np.isfinite(numbers)]).size:
                low, middle, high = np.quantile(finite, [0, 0.5, 1])
                lines.append(f"{name:>10}: {middle:.6g} ({low:.6g} to {high:.6g})")
        return "\n".join(lines)
