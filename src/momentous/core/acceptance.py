"""May a run end at a point?  The one place that decides it, from the report of a step alone.

A small gradient is not enough: momentum may have carried x up a hill, onto a plateau, or to where f
is not finite.  Methods supply the numbers (`RiseLimit`), the verdict is made here.
"""

from __future__ import annotations

import math

from momentous.core.checkpoint import CheckpointError, RunState
from momentous.core.oracle import CachedOracle, Oracle, Sample
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Status
from momentous.core.step import Report, RiseLimit
from momentous.core.stopping import Progress

# A rise by this fraction of the values is no success where nothing but two values is known.
RELATIVE_RISE = 1e-8


def within_limit(oracle: Oracle, sample: Sample, limit: RiseLimit | None) -> bool:
    """Is f at the sample, which is learned there, no more above the reference than allowed?

    Without a limit anything is, and nothing is evaluated.
    """
    if limit is None:
        return True
    oracle.learn_value(sample)
    return not _rises(oracle.space, sample, limit)


def _rises(space: Space, sample: Sample, limit: RiseLimit) -> bool:
    reference = limit.reference
    before, after = reference.value, sample.value
    if not math.isfinite(after):
        return True
    rise = after - before
    allowed = max(limit.allowance, limit.relative * max(abs(after), abs(before)))
    if limit.level > 0.0 and abs(rise) <= limit.level and reference.evaluated:
        change = space.combination(sample.point, -1.0, reference.point)
        rise = mean_slope(space, reference, sample, change)
        falls = rise <= allowed
    else:
        falls = after <= before + allowed
    if falls or not limit.convex:
        return not falls
    # A convex function cannot have risen by more than that.
    square = space.distance_squared(sample.point, reference.point)
    return not rise <= sample.grad_norm * math.sqrt(square)


def verify_success(
    ending: Ending, report: Report, chosen: Sample, space: Space, start_value: float
) -> Ending:
    """The ending of a run that seems to have succeeded, once the value at its end is known.

    It is no success where f is not finite, or has risen above the last accepted point without
    reason.
    """
    last, accepted = report.sample, report.accepted
    numbers = ending.numbers | {"fun": last.value}
    if chosen.point is not last.point or not math.isfinite(last.value):
        message = f"{ending.message}, but the objective there is {last.value}"
        return Ending(Status.NON_FINITE, message, numbers)
    if accepted is None or math.isnan(accepted.value):
        return ending
    small = math.sqrt(space.rounding)
    allowance = max(small * abs(start_value), report.noise)
    if not _rises(space, last, RiseLimit(accepted, allowance, relative=small, convex=True)):
        return ending
    message = (
        f"{ending.message}, but the objective has risen from {accepted.value:.6g} to "
        f"{last.value:.6g}: jac is not the gradient of fun, or the step size is too large"
    )
    return Ending(Status.OBJECTIVE_ROSE, message, numbers)


def require_same_function(oracle: CachedOracle, saved: RunState) -> None:
    """Is the function of a run to resume the one of its checkpoint?

    One gradient, and one value where one is known, at the last point decides: neither counted nor
    timed.  They may differ by what another machine's rounding does, not by more.
    """
    space, progress = oracle.space, saved.progress
    known = saved.report.sample
    if not known.evaluated and saved.last is not None:
        known = saved.last
    if not known.evaluated or not known.finite:
        known = Sample(saved.best_point, grad_norm=progress.best_grad_norm)
    has_value = math.isfinite(known.value)
    now = oracle.look(known.point, value=has_value)
    small = math.sqrt(space.rounding)
    if has_value:
        scale = max(abs(known.value), abs(now.value), abs(progress.start_fun))
        _require_same("fun", known.value, now.value, small * scale + saved.report.noise)
    scale = 1e-3 * max(known.grad_norm, now.grad_norm)
    scale += 1e4 * space.rounding * progress.start_norm
    if known.image is not None:
        scale += 64 * space.rounding * space.norm(now.image)
    _require_same(f"the norm of the {oracle.noun}", known.grad_norm, now.grad_norm, scale)
    if known.evaluated:
        pair = (known.gradient, now.gradient) if known.image is None else (known.image, now.image)
        what = f"the distance to the stored {oracle.noun}"
        _require_same(what, 0.0, space.distance(*pair), scale)


def _require_same(what: str, stored: float, now: float, allowed: float) -> None:
    if not abs(stored - now) <= allowed:
        raise CheckpointError(
            f"the checkpoint belongs to another function: at its last point {what} is {now:.6g}, "
            f"not {stored:.6g}; resume with the function that it was written with, or start anew "
            "from its point (a random function must give the same answer at the same x)"
        )


def unbounded(space: Space, report: Report, progress: Progress, target: float) -> Ending | None:
    """The end of a run that goes down for ever: f is 1e20 times lower than f(x0) and the target are
    large (or 1), or x so large that its square overflows (looked at in every 16th iteration, as it
    costs a pass).
    """
    known = [s.value for s in (report.sample, report.accepted) if s and math.isfinite(s.value)]
    lowest = min(known, default=math.inf)
    numbers, what = {"fun": lowest}, f"the objective has fallen to {lowest:.3g}"
    if not lowest < -1e20 * max(1.0, abs(progress.start_fun), target):
        point = report.sample.point
        if progress.nit % 16 or point is None:
            return None
        size = math.sqrt(max(0.0, space.inner(point, point)))
        if not math.sqrt(float(space.xp.finfo(space.dtype).max)) <= size:
            return None
        numbers, what = {"size": size}, f"x has grown to a norm of {size:.3g}"
    message = f"{what} after {progress.nit} iterations: it seems to be unbounded below"
    return Ending(
        Status.UNBOUNDED, f"{message}; add a penalty, or pass target= or max_iterations=", numbers
    )


def has_risen(value: float, start_value: float) -> bool:
    """Is f above f(x0) by more than rounding explains, or not finite?

    For those who know two values and nothing else of a run, such as that of an outside solver.
    """
    allowed = RELATIVE_RISE * max(abs(value), abs(start_value))
    return not value <= start_value + allowed < math.inf


def mean_slope(space: Space, a: Sample, b: Sample, direction: Array) -> float:
    """``<grad f(a) + grad f(b), direction>/2``: for b - a, the change of f by the trapezoidal
    rule."""
    return (space.inner(a.gradient, direction) + space.inner(b.gradient, direction)) / 2
