"""An epoch: the momentum iterations between two restarts, and how a run ends with one."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Status
from momentous.core.step import M, Step
from momentous.methods.endings import by_own_rule


@record
class Average:
    """The mean of y^0..y^{K0}, K0 = argmin of |x^{k+1} - x^k| over floor(K/2) <= k <= K-1.

    (Algorithm 1, lines 10-11; for the heavy ball the y^k are the x^k.)  The first minimiser wins.
    While every step is shorter than the one before, mean and snapshot are one array; it is copied
    only when the mean has to move on without the snapshot.

    This is the one part of a memory that is updated in place, to save a vector; ``count`` makes an
    update that is repeated after an exception harmless.
    """

    mean: Array = None  # of the points y^0..y^{count-1}
    count: int = 0
    snapshot: Array = None  # the mean at the shortest step so far
    shortest: float = math.inf  # |x^{k+1} - x^k|^2 there

    def add(self, k: int, point: Array, moved: float, length: int, space: Space) -> None:
        """Take in y^k and |x^{k+1} - x^k|^2 = ``moved`` in an epoch of K = ``length``."""
        if self.count != k:
            return
        is_shortest = k >= length // 2 and moved < self.shortest
        if self.snapshot is not None and self.snapshot is self.mean and not is_shortest:
            self.snapshot = space.copy(self.mean)
        if k == 0:
            self.mean = point
        elif k == 1:
            self.mean = space.combination(self.mean, 0.5, point, self.mean)  # an array of our own
        else:
            self.mean = space.move_towards(self.mean, point, 1 / (k + 1))
        self.count = k + 1
        if is_shortest:
            self.shortest, self.snapshot = moved, self.mean


@record
class Epoch:
    """Where an epoch stands after k of its iterations."""

    start: Array  # x^0
    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    average: Average | None  # None where the epoch cannot be the last one
    k: int = 0
    travelled: float = 0.0  # S = sum of |x^{t+1} - x^t|^2, t < k

    @staticmethod
    def at(x: Array, *, averaged: bool) -> Epoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return Epoch(start=x, x=x, x_prev=x, average=Average() if averaged else None)

    def advanced(self, x_next: Array, moved: float) -> Epoch:
        """The same after one more iteration, of squared length ``moved``."""
        travelled = self.travelled + moved
        return Epoch(self.start, x_next, self.x, self.average, self.k + 1, travelled)


def completed(sample: Sample, promise: float, tol: float, length: int) -> Ending:
    """The ending of a method whose last epoch ran through, judged by the gradient at its output."""
    norm = sample.grad_norm
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
    ending = completed(report.sample, numbers["promise"], tol, numbers["length"])
    return Step(step.memory, dataclasses.replace(report, ending=ending))
