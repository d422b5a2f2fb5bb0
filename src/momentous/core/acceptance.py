"""May a run end at a point, or begin there?  This is the one place that decides it.

A small gradient is not enough: momentum may have carried x up a hill, onto a plateau, or to where f
is not finite.  Methods supply the numbers (`RiseLimit`) in the report of a
step, the verdict is made here from these alone.
"""

from __future__ import annotations

import math

import numpy as np

from momentous.core.machine import Host, Machine
from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, Space, to_numpy
from momentous.core.status import Ending, Status
from momentous.core.step import Report, RiseLimit

# A rise by this fraction of the values is no success where nothing but two values is known.
RELATIVE_RISE = 1e-8


def within_limit(oracle: Oracle, sample: Sample, limit: RiseLimit | None) -> bool:
    """Is f at the sample, which is learned there, no more above the reference than allowed?

    Without a limit anything is, and nothing is evaluated.
    """
    if limit is None:
        return True
    oracle.learn(sample)
    return not rises(Host.of(oracle.space), sample, limit)


def rises(m: Machine, sample: Sample, limit: RiseLimit) -> bool:
    """Is f at the sample, where it is known, more above the reference than allowed?"""
    reference = limit.reference
    before, after = reference.value, sample.value
    rise = after - before
    allowed = m.maximum(limit.allowance, limit.relative * m.maximum(abs(after), abs(before)))
    falls = after <= before + allowed

    def by_gradients() -> tuple[float, bool]:
        change = m.combination(sample.point, -1.0, reference.point)
        change_by_slopes = mean_slope(m, reference, sample, change)
        return change_by_slopes, change_by_slopes <= allowed

    if reference.gradient is not None and sample.gradient is not None:
        level = (limit.level > 0.0) & (abs(rise) <= limit.level)
        rise, falls = m.case((rise, falls), (level, by_gradients))
    # A convex function cannot have risen by more than that.
    falls = m.case(
        falls,
        (
            limit.convex & m.no(falls),
            lambda: rise <= sample.grad_norm * m.distance(sample.point, reference.point),
        ),
    )
    return m.no(falls & m.isfinite(after))


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
    m = Host.of(space)
    if not rises(m, last, final_limit(m, accepted, start_value, report.noise)):
        return ending
    message = (
        f"{ending.message}, but the objective has risen from {accepted.value:.6g} to "
        f"{last.value:.6g}: jac is not the gradient of fun, or the step size is too large"
    )
    return Ending(Status.OBJECTIVE_ROSE, message, numbers)


def final_limit(m: Machine, accepted: Sample, start_value: float, noise: float) -> RiseLimit:
    """How far above the last accepted point the end of a run may be, whatever the method says."""
    small = math.sqrt(m.rounding)
    allowance = m.maximum(small * abs(start_value), noise)
    return RiseLimit(accepted, allowance, relative=small, convex=True)


def lowest_first(samples: list[Sample], space: Space) -> list[Sample]:
    """Those of the samples whose value is finite, by value; the first of the samples, which has
    the smallest gradient, comes before all that are lower by no more than rounding."""
    usable = [sample for sample in samples if math.isfinite(sample.value)]
    usable.sort(key=lambda sample: sample.value)
    first = samples[0]
    if math.isfinite(first.value):
        lowest = usable[0].value
        if first.value <= lowest + space.value_noise(lowest):
            usable.sort(key=lambda sample: sample is not first)
    return usable


def has_risen(value: float, start_value: float) -> bool:
    """Is f above f(x0) by more than rounding explains, or not finite?

    For those who know two values and nothing else of a run, such as that of an outside solver.
    """
    allowed = RELATIVE_RISE * max(abs(value), abs(start_value))
    return not value <= start_value + allowed < math.inf


def mean_slope(m: Machine, a: Sample, b: Sample, direction: Array) -> float:
    """``<grad f(a) + grad f(b), direction>/2``: for b - a, the change of f by the trapezoidal
    rule."""
    return (m.inner(a.gradient, direction) + m.inner(b.gradient, direction)) / 2


def start_problem(oracle: Oracle, value: float, sample: Sample) -> str | None:
    """Why no run can begin at a sample, if value or gradient is not finite there."""
    if not math.isfinite(value):
        return f"fun(x0) is {value}; start where the objective is finite"
    if sample.has_finite_gradient:
        return None
    entries, noun = to_numpy(oracle.arrays_at(sample)["jac"]), oracle.noun
    bad = np.argwhere(~np.isfinite(entries))
    if not len(bad):
        return _norm_problem(oracle.space, sample, noun)
    first = tuple(int(i) for i in bad[0])
    return (
        f"the {noun} at x0 has {len(bad)} non-finite of {entries.size} entries, the first "
        f"at index {first} ({entries[tuple(bad[0])]}); start where the {noun} is finite"
    )


def _norm_problem(space: Space, sample: Sample, noun: str) -> str:
    """Why the norm is not finite where all entries of the gradient are."""
    point, gradient = sample.point, sample.gradient
    if space.penalty is not None:
        end = space.penalty.prox(space, space.combination(point, -1.0, gradient), 1.0)
        if not np.all(np.isfinite(to_numpy(end))):
            return (
                f"prox(x0 - g, 1) of penalty={space.penalty.given!r}, g the gradient at x0, is not "
                "finite; correct its prox"
            )
    return f"the norm of the {noun} at x0 overflows; rescale the objective"
