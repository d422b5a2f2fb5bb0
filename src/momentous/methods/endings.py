"""Endings that several methods share."""

from __future__ import annotations

from momentous.core.oracle import Sample
from momentous.core.status import Ending, Event, Status

Events = tuple[Event, ...]

_REMEDY = (
    "a larger tol, a higher precision or subtracting a constant from the objective helps, and so "
    "does checking the gradient"
)


def zero_gradient(step_size: float) -> Ending:
    """There is nothing to do."""
    numbers = {"grad_norm": 0.0, "step_size": step_size}
    return Ending(Status.COMPLETED, "the gradient is exactly zero", numbers)


def no_progress(what: str, **numbers: float) -> Ending:
    """Rounding is reached, or the gradient is wrong."""
    return Ending(Status.NO_PROGRESS, f"{what}; {_REMEDY}", numbers)


def contradiction(grad_norm: float) -> str:
    """What is to be said where f should still change by more than its rounding, and does not."""
    return (
        f"at gradient norm {grad_norm:.3g} f should still fall by more than its rounding, and does "
        "not: its values are noisier than that, the gradient jumps, or it is not that of f"
    )


def stuck(grad_norm: float, step_size: float, hidden: bool = True) -> Ending:
    """The step is too small to change x; ``hidden``: because rounding hides the change of f."""
    if grad_norm == 0.0:
        return zero_gradient(step_size)
    reached = f"rounding is reached, at gradient norm {grad_norm:.3g}"
    return no_progress(
        f"the step shrank to {step_size:.3g}, too small to change x: "
        f"{reached if hidden else contradiction(grad_norm)}",
        grad_norm=grad_norm,
        step_size=step_size,
    )


def by_own_rule(message: str, numbers: dict[str, float], advice: str) -> Ending:
    """A method has ended by its own rule; was that above the tolerance, if there is one?"""
    tol = numbers["tolerance"]
    if tol and not numbers["grad_norm"] <= tol:
        return Ending(Status.ABOVE_TOLERANCE, f"{message}{advice}", numbers)
    ending = Ending(Status.COMPLETED, message, numbers)
    if not ending.success:
        ending.message += (
            ", but nothing is promised for parameters set by hand: give tol to say what is small "
            "enough, or gradient_lipschitz and hessian_lipschitz"
        )
    return ending


def start_not_finite(norm: float, step_size: float) -> Ending:
    """The value at the start of an epoch was accepted, and then its gradient turned out so."""
    return Ending(
        Status.NON_FINITE,
        "the objective was lower at the last accepted point, but its gradient there is not "
        "finite; no smaller step helps: check jac at result.best_x and around it",
        {"grad_norm": norm, "step_size": step_size},
    )


def left_the_domain(
    sample: Sample, step_size: float, remedy: str = "pass backtracking=True"
) -> Ending:
    """The ending of a method that may not shrink its step."""
    return Ending(
        Status.NON_FINITE,
        "the objective or its gradient is not finite at the point that the method reached, and the "
        f"step size {step_size:.3g} is fixed; give a smaller one (a larger gradient_lipschitz), or "
        f"{remedy}",
        {"grad_norm": sample.grad_norm, "step_size": step_size},
    )
