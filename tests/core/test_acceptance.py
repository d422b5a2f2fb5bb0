"""Whether a run may end at a point is decided in one place, from numbers alone."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from helpers import Counted
from momentous import Ending, Method, Report, RiseLimit, Sample, Status, Step, minimize
from momentous.core.acceptance import has_risen, lowest_first, verify_success, within_limit
from momentous.core.oracle import Oracle
from momentous.core.sources import function_source
from momentous.core.space import Space

SPACE = Space(np.zeros(2))
SMALL = math.sqrt(SPACE.rounding)


def sample(value: float, x: float = 0.0, norm: float = 0.0, slope: float | None = None) -> Sample:
    """A point (x, 0) with that value; with a slope its gradient (slope, 0) is known."""
    gradient = None if slope is None else np.array([slope, 0.0])
    return Sample(np.array([x, 0.0]), value, gradient, norm)


def oracle_of(value: float) -> tuple[Any, Oracle]:
    user = Counted(lambda x: value, lambda x: np.zeros(2))
    return user, Oracle(function_source(user.fun, user.jac, (), SPACE))


def may_end(at: Sample, **limit: Any) -> bool:
    return within_limit(oracle_of(math.nan)[1], at, RiseLimit(**limit))


def test_without_a_limit_any_small_gradient_will_do_and_no_value_is_asked_for():
    user, oracle = oracle_of(1e9)
    assert within_limit(oracle, Sample(np.zeros(2)), None)
    assert user.values == 0


def test_with_a_limit_the_value_is_learned_and_counted_once():
    user, oracle = oracle_of(3.0)
    here, limit = Sample(np.zeros(2)), RiseLimit(sample(2.0), allowance=0.5)
    assert not within_limit(oracle, here, limit)
    assert not within_limit(oracle, here, limit)
    assert here.value == 3.0
    assert user.values == oracle.nfev == 1


@pytest.mark.parametrize(("value", "expected"), [(1.0, True), (1.1, True), (1.2, False)])
def test_an_absolute_allowance(value, expected):
    assert may_end(sample(value), reference=sample(1.0), allowance=0.11) is expected


@pytest.mark.parametrize(("value", "expected"), [(-100.0, True), (-99.5, True), (-98.0, False)])
def test_a_relative_allowance_is_of_the_larger_value(value, expected):
    assert may_end(sample(value), reference=sample(-100.0), relative=0.01) is expected


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_nothing_excuses_a_value_that_is_not_finite(value):
    limit = {"reference": sample(1.0), "allowance": math.inf, "convex": True}
    assert not may_end(sample(value, norm=math.inf), **limit)


def test_convexity_excuses_a_rise_by_gradient_times_distance():
    reference = sample(1.0)
    assert may_end(sample(1.5, x=2.0, norm=0.26), reference=reference, convex=True)
    assert not may_end(sample(1.5, x=2.0, norm=0.24), reference=reference, convex=True)
    assert not may_end(sample(1.5, x=2.0, norm=0.26), reference=reference)


def test_within_the_level_the_gradients_decide():
    """The trapezoidal rule, where values cannot tell; a convex function may still rise by it."""
    limit = {"level": 1e-3, "convex": False}
    falling, rising = sample(1.0, slope=-0.1, norm=0.1), sample(1.0, slope=0.3, norm=0.3)
    end = sample(1.0 + 1e-4, x=1.0, slope=-0.1, norm=0.1)
    assert may_end(end, reference=falling, **limit)
    assert not may_end(end, reference=rising, **limit)
    assert not may_end(end, reference=sample(1.0), **limit)  # no gradient there: values decide
    assert may_end(end, reference=rising, level=1e-3, convex=True)  # 0.1 <= 0.1 * 1


def verified(at: Sample, chosen: Sample | None = None, **numbers: Any) -> Ending:
    ending = Ending(Status.CONVERGED, "the gradient is small", {"grad_norm": at.grad_norm})
    return verify_success(ending, Report(at, 1.0, **numbers), chosen or at, SPACE, 1.0)


def test_a_success_below_the_last_accepted_point_stays_one():
    assert verified(sample(0.5), accepted=sample(1.0)).status is Status.CONVERGED
    assert verified(sample(0.5)).status is Status.CONVERGED
    assert verified(sample(0.5), accepted=sample(math.nan)).status is Status.CONVERGED


def test_a_success_above_it_is_none():
    ending = verified(sample(2.0), accepted=sample(1.0))
    assert ending.status is Status.OBJECTIVE_ROSE
    assert "risen from 1 to 2" in ending.message
    assert ending.numbers["fun"] == 2.0


@pytest.mark.parametrize(
    "excuse",
    [
        {"at": sample(1.0 + SMALL / 2), "accepted": sample(1.0)},
        {"at": sample(2.0), "accepted": sample(1.0), "noise": 1.5},
        {"at": sample(2.0, x=3.0, norm=0.5), "accepted": sample(1.0)},
    ],
    ids=["rounding", "measured noise", "convexity"],
)
def test_what_excuses_a_rise_at_the_end(excuse):
    assert verified(**excuse).status is Status.CONVERGED


def test_a_success_where_the_objective_is_not_finite_is_none():
    assert verified(sample(math.inf)).status is Status.NON_FINITE
    assert verified(sample(1.0), chosen=sample(1.0, x=1.0)).status is Status.NON_FINITE


@pytest.mark.parametrize(
    ("value", "start", "expected"),
    [
        (1.0, 1.0, False),
        (1.0 + 1e-9, 1.0, False),
        (1.0 + 1e-7, 1.0, True),
        (-1.0, 5.0, False),
        (math.nan, 1.0, True),
        (math.inf, 1.0, True),
        (1.0, math.inf, True),
    ],
)
def test_has_risen_knows_two_values_only(value, start, expected):
    assert has_risen(value, start) is expected


@dataclasses.dataclass(frozen=True)
class Walk(Method):
    """Steps of pi/4 to the right, which must not end more than 0.5 above -1."""

    name = "walk"

    def start(self, oracle, x0, tol, seed):
        here = oracle.gradient(x0)
        return Step(here, Report(here, 1.0))

    def step(self, oracle, memory):
        at = oracle.gradient(memory.point + math.pi / 4)
        return Step(at, Report(at, 1.0, limit=RiseLimit(Sample(None, -1.0), allowance=0.5)))


def walked(**options: Any) -> Any:
    """From a point behind the hill of the cosine at 0; its minima are at -pi and pi."""
    x0 = np.array([-3 * math.pi / 4])
    return minimize(
        lambda x: float(np.cos(x[0])), x0, jac=lambda x: -np.sin(x), method=Walk(), tol=1e-8,
        **options,
    )  # fmt: skip


def test_a_small_gradient_on_top_of_a_hill_does_not_end_a_run():
    result = walked(max_iterations=20)
    assert result.status is Status.CONVERGED
    assert result.nit == 7
    assert result.x[0] == pytest.approx(math.pi)


def test_criteria_see_the_true_norm_there():
    result = walked(max_iterations=3)
    assert result.status is Status.MAX_ITERATIONS
    assert result.numbers["grad_norm"] < 1e-8
    assert "where the objective has risen" in result.message


def test_a_run_that_is_resumed_there_does_not_end_either(tmp_path):
    walked(max_iterations=3, checkpoint=tmp_path / "run.npz")
    result = walked(max_iterations=20, resume=tmp_path / "run.npz")
    assert (result.status, result.nit) == (Status.CONVERGED, 7)


def test_of_points_that_are_level_the_first_comes_first_and_those_not_finite_never():
    first, level = sample(1.0), sample(1.0 - SPACE.rounding)
    low, bad = sample(0.5), sample(math.nan)
    assert lowest_first([first, level, bad], SPACE) == [first, level]
    assert lowest_first([first, level, low], SPACE)[0] is low
    assert lowest_first([bad, first, low], SPACE) == [low, first]
    assert lowest_first([bad], SPACE) == []
