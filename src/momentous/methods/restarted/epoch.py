"""An epoch: the momentum iterations between two restarts, and how a run ends with one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.machine import Machine
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import M, Step
from momentous.methods.endings import by_own_rule


@record
class Average:
    """The mean of y^0..y^{K0}, K0 = argmin of |x^{k+1} - x^k| over floor(K/2) <= k <= K-1.

    (Algorithm 1, lines 10-11; for the heavy ball the y^k are the x^k.)  The first minimiser wins.
    """

    mean: Array  # of the points y^0..y^{k-1}
    snapshot: Array  # the mean at the shortest step so far
    shortest: float = math.inf  # |x^{k+1} - x^k|^2 there

    @staticmethod
    def at(x: Array) -> Average:
        return Average(x, x)

    def add(self, m: Machine, k: Any, point: Array, moved: Any, length: Any) -> Average:
        """With y^k and |x^{k+1} - x^k|^2 = ``moved`` in an epoch of K = ``length``."""
        weight = 1 / (k + 1)
        mean = m.case(point, (k > 0, lambda: m.combination(self.mean, weight, point, self.mean)))
        shorter = (k >= length // 2) & (moved < self.shortest)
        return Average(
            mean, m.choose(shorter, mean, self.snapshot), m.where(shorter, moved, self.shortest)
        )


@record
class Epoch:
    """Where an epoch stands after k of its iterations."""

    start: Array  # x^0
    x: Array  # x^k
    ahead: Array  # x^k + (1 - theta)(x^k - x^{k-1})
    average: Average
    k: int = 0
    travelled: float = 0.0  # S = sum of |x^{t+1} - x^t|^2, t < k
    again: bool = False  # was x the last point to be evaluated?

    @staticmethod
    def at(x: Array, again: Any = False) -> Epoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return Epoch(x, x, x, Average.at(x), again=again)


def judge(m: Machine, norm: Any, promise: Any, tol: Any) -> Any:
    """The status of a method whose last epoch ran through, by the gradient at its output."""
    above = (tol > 0.0) & m.no(norm <= tol)
    status = m.where(above, int(Status.ABOVE_TOLERANCE), int(Status.COMPLETED))
    return m.where(norm > promise, int(Status.PROMISE_BROKEN), status)


def completed(norm: float, promise: float, tol: float, length: int) -> Ending:
    """The same in words."""
    message = (
        f"an epoch of {length} iterations ran without restart; the gradient norm is {norm:.3g}"
    )
    numbers = {"grad_norm": norm, "promise": promise, "tolerance": tol, "length": length}
    if norm > promise:
        message += (
            f", above the {promise:.3g} that the theorem promises: gradient_lipschitz or "
            "hessian_lipschitz is too small for this function, or the promise is below what "
            "rounding allows"
        )
        return Ending(Status.PROMISE_BROKEN, message, numbers)
    if not math.isnan(promise):
        message += f", the theorem promises {promise:.3g}"
    return by_own_rule(message, numbers, f", the tolerance is {tol:.3g}: lower eps")


def judged_by(step: Step[M], tol: float | None) -> Step[M]:
    """The same step; the ending of a completed epoch is judged by another tolerance."""
    report = step.report
    if tol is None or report.ending is None or "promise" not in report.ending.numbers:
        return step
    numbers = report.ending.numbers
    ending = completed(report.sample.grad_norm, numbers["promise"], tol, numbers["length"])
    return Step(step.memory, dataclasses.replace(report, ending=ending))
