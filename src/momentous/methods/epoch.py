"""An epoch: the momentum iterations between two restarts, and the parameters it runs with."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.arrays import Array
from momentous.core.method import State
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.status import Ending, Status
from momentous.methods.averaging import Average
from momentous.methods.momentum import Momentum


@record
class Epoch:
    """Where an epoch stands after k of its iterations."""

    start: Array  # x^0
    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    k: int
    travelled: float  # S = sum of |x^{t+1} - x^t|^2, t < k
    average: Average | None  # None where the epoch cannot be the last one

    @staticmethod
    def at(x: Array, *, averaged: bool) -> Epoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return Epoch(x, x, x, 0, 0.0, Average() if averaged else None)


@record
class Parameters:
    """The numbers that an epoch runs with."""

    step_size: float  # eta
    theta: float  # 1 - momentum
    radius: float  # B
    epoch_length: int  # K
    promise: float  # bound on the averaged gradient of a completed epoch, NaN if none is known
    eps: float  # of the theorem, NaN if everything was given by hand


def whole_epoch(theta: float) -> int:
    """K = floor(1/theta), as the adaptive theorems have it.

    Theorem 1 lets K = 1/theta be fractional; rounding it up would break the descent argument.  The
    small term keeps 1/theta = 20 from becoming 19.
    """
    return max(1, math.floor(1 / theta + 1e-9))


def theory_parameters(
    scheme: Momentum,
    *,
    owner: str,
    tol: float,
    gradient_lipschitz: float | None,
    hessian_lipschitz: float | None,
    eps: float | None,
    step_size: float | None = None,
    momentum: float | None = None,
    radius: float | None = None,
    epoch_length: int | None = None,
) -> Parameters:
    """Parameters by hand where given and by the theorem where not."""
    L, rho = gradient_lipschitz, hessian_lipschitz
    if step_size is None:
        step_size = 1 / (4 * _needed(owner, "gradient_lipschitz", L, "step_size"))
    if momentum is None or radius is None:
        rho = _needed(owner, "hessian_lipschitz", rho, "momentum and radius")
        largest = scheme.largest_eps(rho, step_size)
        if eps is None:
            # The output satisfies promise_factor * eps, not eps, and that only if 1/theta is whole:
            # take the next smaller eps for which it is, within the admissible range.
            eps = min(_needed(owner, "eps", tol or None, "tol") / scheme.promise_factor, largest)
            if momentum is None and epoch_length is None:
                K = math.ceil(1 / scheme.theta(eps, rho, step_size) - 1e-9)
                eps = min(eps, scheme.eps_for(1 / K, rho, step_size))
        elif momentum is None and eps > largest * (1 + 1e-12):
            raise ValueError(
                f"eps={eps:.3g} is above {largest:.3g}, the largest for which {owner} has "
                f"theta <= {scheme.largest_theta:g} with these constants; choose a smaller eps, or "
                "give momentum and radius by hand"
            )
    theta = (
        1 - momentum if momentum is not None else scheme.theta(eps or 0.0, rho or 0.0, step_size)
    )
    theta = min(theta, scheme.largest_theta) if momentum is None else theta
    if radius is None:
        assert eps is not None
        assert rho is not None
        radius = scheme.radius(eps, rho)
    length = epoch_length if epoch_length is not None else whole_epoch(theta)
    promise = math.nan
    if rho is not None and math.isfinite(radius):
        promise = scheme.promise(step_size, theta, radius, length, rho)
    return Parameters(step_size, theta, radius, length, promise, math.nan if eps is None else eps)


def completed(sample: Sample, promise: float, tol: float, length: int) -> Ending:
    """The ending of a method whose last epoch ran through, judged by the gradient at its output."""
    norm = sample.grad_norm
    told = f"an epoch of {length} iterations ran without restart; the gradient norm is {norm:.3g}"
    numbers = {"grad_norm": norm, "promise": promise, "tolerance": tol, "length": length}
    if norm > promise:
        told += (
            f", above the {promise:.3g} that the theorem promises: gradient_lipschitz or "
            "hessian_lipschitz is too small for this function, or the promise is below what "
            "rounding allows"
        )
        return Ending(Status.PROMISE_BROKEN, told, numbers)
    if not math.isnan(promise):
        told += f", the theorem promises {promise:.3g}"
    if tol and not norm <= tol:
        return Ending(
            Status.ABOVE_TOLERANCE, f"{told}, the tolerance is {tol:.3g}: lower eps", numbers
        )
    return Ending(Status.COMPLETED, told, numbers)


def judged_anew(state: State, tol: float | None) -> State:
    """The same state under another tolerance, an epoch that has completed included."""
    if tol is None:
        return state
    changes: dict[str, Any] = {"tol": tol}
    if state.ending is not None and "promise" in state.ending.numbers:
        numbers = state.ending.numbers
        changes["ending"] = completed(state.sample, numbers["promise"], tol, numbers["length"])
    return dataclasses.replace(state, **changes)


def _needed(owner: str, name: str, value: float | None, instead: str) -> float:
    if value is None:
        raise ValueError(
            f"{owner} needs {name}= (or {instead} by hand); AdaRAGD and AdaRHB need neither"
        )
    return value


def check_positive(owner: str, **values: float | None) -> None:
    """Each value that is given must be positive (infinity included)."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{owner}: {name}={value!r} must be positive")


def check_common(owner: str, momentum: float | None, epoch_length: int | None) -> None:
    """What holds for momentum and epoch length in every method."""
    if momentum is not None and not 0 <= momentum < 1:
        raise ValueError(f"{owner}: momentum={momentum!r} (1 - theta) must be in [0, 1)")
    if epoch_length is not None and (epoch_length < 1 or epoch_length != int(epoch_length)):
        raise ValueError(f"{owner}: epoch_length={epoch_length!r} (K) must be a whole number >= 1")
