"""The numbers that an epoch runs with: by hand where given, by the theorem where not."""

from __future__ import annotations

import math
from typing import Any

from momentous.core.machine import NUMBERS, Arithmetic
from momentous.core.method import Method
from momentous.core.record import record
from momentous.methods.checks import check_momentum, check_positive, check_whole, needed
from momentous.methods.restarted.momentum import Momentum

GIVEN = (
    "gradient_lipschitz", "hessian_lipschitz", "eps", "step_size", "momentum", "radius",
    "epoch_length",
)  # fmt: skip


@record
class Parameters:
    """The numbers of Algorithms 1 and 3."""

    step_size: float  # eta
    theta: float  # 1 - momentum
    radius: float  # B
    epoch_length: int  # K
    promise: float  # bound on the averaged gradient of a completed epoch, NaN if none is known
    eps: float  # of the theorem, NaN if everything was given by hand


def whole_epoch(theta: Any, m: Arithmetic = NUMBERS) -> Any:
    """K = floor(1/theta), as the adaptive theorems have it.

    Theorem 1 lets K = 1/theta be fractional; rounding it up would break the descent argument.  The
    small term keeps 1/theta = 20 from becoming 19.
    """
    return m.maximum(1, m.floor(1 / theta + 1e-9))


def check_given(method: Method) -> None:
    """Is what a restarted method was given possible?"""
    check_momentum(method, getattr(method, "momentum", None))
    check_whole(method, "epoch_length", "(K)")
    check_positive(method, *(name for name in GIVEN if name != "momentum"))


def theory_parameters(method: Method, scheme: Momentum, tol: float) -> Parameters:
    """Parameters by hand where given to the method, and by the theorem where not."""
    owner, given = type(method).__name__, (getattr(method, name) for name in GIVEN)
    _, rho, eps, step_size, momentum, radius, epoch_length = given
    if step_size is None:
        step_size = 1 / (4 * needed(method, "gradient_lipschitz", "step_size"))
    if momentum is None or radius is None:
        rho = needed(method, "hessian_lipschitz", "momentum and radius")
        largest = scheme.largest_eps(rho, step_size)
        if eps is None:
            # The output satisfies promise_factor * eps, not eps, and that only if 1/theta is whole:
            # take the next smaller eps for which it is, within the admissible range.
            if not tol:
                raise ValueError(
                    f"{owner} takes eps from tol, and tol={tol:g} is none; give eps=, or a tol "
                    "above 0"
                )
            eps = min(tol / scheme.promise_factor, largest)
            if momentum is None and epoch_length is None:
                K = math.ceil(1 / scheme.theta(eps, rho, step_size) - 1e-9)
                eps = min(eps, scheme.eps_for(1 / K, rho, step_size))
        elif momentum is None and eps > largest * (1 + 1e-12):
            raise ValueError(
                f"eps={eps:.3g} is above {largest:.3g}, the largest for which {owner} has "
                f"theta <= {scheme.largest_theta:g} with these constants; choose a smaller eps, or "
                "give momentum and radius by hand"
            )
    if momentum is not None:
        theta = 1 - momentum
    else:
        theta = min(scheme.theta(eps, rho, step_size), scheme.largest_theta)
    if radius is None:
        radius = scheme.radius(eps, rho)
    length = epoch_length if epoch_length is not None else whole_epoch(theta)
    promise = math.nan
    if rho is not None and math.isfinite(radius):
        promise = scheme.promise(step_size, theta, radius, length, rho)
    return Parameters(
        step_size, theta, radius, length, promise=promise, eps=math.nan if eps is None else eps
    )
