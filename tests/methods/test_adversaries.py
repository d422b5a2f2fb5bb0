"""Whatever the fast method does, `Safeguarded` gets there: methods that do their worst."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from momentous import Safeguarded, Status, UniversalHeavyBall, iterate, minimize, testbed
from momentous.core.oracle import Sample
from momentous.core.rule import GRADIENT, RUNNING
from scripted import Move, Scripted

GUARD = UniversalHeavyBall(average_growth=1.0)
SHARE = 1e-6  # of the first gradient norm: the tolerance
LONGEST_STEP = 30  # evaluations, a start of the guard and a measurement of noise included


def unit(here):
    """Along the gradient, one long."""
    return here.gradient / (here.grad_norm or 1.0)


LOW, DEEP = 77.0, -1e6  # where functions are made to be low, and how low


def gives_up(origin, here, count):
    return Move(here.point, Status.NO_PROGRESS)


def sleeps(origin, here, count):
    """Evaluates nothing."""
    return Move(here.point)


def runs_away(origin, here, count):
    return Move(1e8 * here.point + 1.0)


def runs_away_unseen(origin, here, count):
    """The values on the way are unknown, and the point accepted is above the start."""
    if count == 0:
        return Move(origin.point + unit(origin))
    high = Sample(origin.point + unit(origin))
    return Move(1e8 * here.point + 1.0, accepted=high, need=GRADIENT)


def returns(origin, here, count):
    """A little down, and back."""
    down = origin.point - 1e-3 * unit(origin)
    return Move(origin.point.copy() if count % 2 else down)


def strays_and_returns(origin, here, count):
    """Down for a while, then back: what it had found is lost to it."""
    if count % 5 == 4:
        return Move(origin.point.copy())
    return Move(here.point - 1e-2 * unit(here))


def returns_and_gives_up(origin, here, count):
    return Move(origin.point.copy(), Status.NO_PROGRESS)


def alternates(origin, here, count):
    """Up and down, and every fourth step is said to be the last."""
    status = Status.NO_PROGRESS if count % 4 == 3 else RUNNING
    return Move(here.point + (0.1 if count % 2 else -0.101) * unit(here), status)


def gains_a_little(origin, here, count):
    status = Status.NON_FINITE if count % 3 == 2 else RUNNING
    return Move(here.point - 1e-9 * here.gradient, status)


def claims_success(origin, here, count):
    return Move(here.point + 1e-3, Status.CONVERGED)


def claims_the_worst(origin, here, count):
    return Move(1.1 * here.point, Status.UNBOUNDED)


def claims_noise(origin, here, count):
    return Move(origin.point + 0.1 * math.cos(count), noise=1e9)


def visits_a_plateau(origin, here, count):
    """Far out the gradient may be small; nothing is said against an end there."""
    return Move(origin.point + 1e6, accepted=origin)


def finds_a_hole(origin, here, count):
    return Move(np.full_like(origin.point, LOW))


def finds_a_hole_and_gives_up(origin, here, count):
    return Move(np.full_like(origin.point, LOW), Status.NO_PROGRESS)


def accepts_a_hole_by_its_value(origin, here, count):
    hole = Sample(np.full_like(origin.point, LOW), DEEP)
    return Move(origin.point + unit(origin), accepted=hole)


ADVERSARIES = [
    Scripted(gives_up),
    Scripted(sleeps),
    Scripted(runs_away),
    Scripted(runs_away_unseen),
    Scripted(returns, stays=True),
    Scripted(strays_and_returns),
    Scripted(returns_and_gives_up, stays=True),
    Scripted(alternates),
    Scripted(gains_a_little),
    Scripted(claims_success),
    Scripted(claims_the_worst),
    Scripted(claims_noise),
    Scripted(visits_a_plateau),
]
HOLES = [
    Scripted(finds_a_hole),
    Scripted(finds_a_hole_and_gives_up),
    Scripted(accepts_a_hole_by_its_value),
]


def ripples(x):
    """Rastrigin's function."""
    value = float(np.sum(x * x + 10 - 10 * np.cos(2 * np.pi * x)))
    return value, 2 * x + 20 * np.pi * np.sin(2 * np.pi * x)


def bowl(x):
    return float(x @ x), 2 * x


def valley(x):
    curvatures = np.logspace(0.0, -2.0, len(x))
    return 0.5 * float(x @ (curvatures * x)), curvatures * x


def posed(problem):
    return problem.value_and_gradient, problem.start


PROBLEMS = {
    "bowl": (bowl, np.array([1.0, -2.0, 3.0])),
    "valley": (valley, np.ones(10)),
    "ripples": (ripples, np.array([-4.1, 2.3, 0.4, 3.7])),
    "rosenbrock": posed(testbed.rosenbrock(2)),
    "chain": posed(testbed.nested_chain(3, 0.03)),
    "plateaus": posed(testbed.separable("welsch")),
}


def tolerance(name):
    fun, start = PROBLEMS[name]
    return SHARE * float(np.linalg.norm(fun(start)[1]))


@functools.cache
def evaluations_of_the_guard(name):
    fun, start = PROBLEMS[name]
    alone = minimize(fun, start, jac=True, method=GUARD, tol=tolerance(name))
    assert alone.success
    return alone.nfev + alone.njev


def named(adversary):
    return adversary.act.__name__


@pytest.mark.parametrize("fast", ADVERSARIES + HOLES, ids=named)
@pytest.mark.parametrize("name", PROBLEMS)
def test_whatever_the_fast_method_does_the_tolerance_is_met_at_the_cost_stated(name, fast):
    fun, start = PROBLEMS[name]
    tol, alone = tolerance(name), evaluations_of_the_guard(name)
    lowest = -math.inf if fast is HOLES[0] else DEEP

    def value(x):
        hole = fast in HOLES and np.all(x == LOW)
        with np.errstate(all="ignore"):
            return lowest if hole else fun(x)[0]

    def gradient(x):
        hole = fast in HOLES and np.all(x == LOW)
        with np.errstate(all="ignore"):
            return np.full_like(x, math.nan) if hole else fun(x)[1]

    limit = {"tol": tol, "max_evaluations": 200_000}
    result = minimize(value, start, jac=gradient, method=Safeguarded(fast), **limit)
    assert result.status is Status.CONVERGED, result.message
    assert np.linalg.norm(gradient(result.x)) <= tol
    assert result.fun <= value(start)
    K = max(40.0, 2 * SHARE**-0.25)
    assert result.nfev + result.njev <= 17 * max(alone, K) + K + LONGEST_STEP


@pytest.mark.parametrize("status", [Status.CONVERGED, Status.COMPLETED, Status.SMALL_CHANGE])
def test_a_success_of_the_fast_method_is_none_without_a_tolerance_either(status):
    """With tol=0 only a gradient of zero is within the tolerance."""

    def claims(origin, here, count):
        return Move(here.point - 1e-3 * unit(here), status)

    fun, start = PROBLEMS["rosenbrock"]
    method = Safeguarded(Scripted(claims))
    result = minimize(fun, start, jac=True, method=method, tol=0, max_iterations=5000)
    assert np.linalg.norm(fun(result.x)[1]) <= (0.0 if result.success else 1e-6)


def test_long_steps_over_ripples_are_not_taken_for_noise():
    """As high as the ripples it would be, and what is lower by less would be given up."""
    starts = [(91.2003, -58.4632), (36.5, 2.5), (38.75, 25.0), (45.5, 0.25), (53.75, 29.5)]
    for start in map(np.array, starts):
        value, gradient = ripples(start)
        options = {"jac": True, "tol": SHARE * float(np.linalg.norm(gradient))}
        for method in (GUARD, UniversalHeavyBall(), Safeguarded(Scripted(strays_and_returns))):
            run = iterate(ripples, start, method=method, max_evaluations=50_000, **options)
            assert max(step.report.noise for step in run) <= 1e-9 * value
            assert run.result.status is Status.CONVERGED, run.result.message


def test_rises_by_less_than_the_noise_do_not_add_up():
    """The fast method climbs by half of the noise per step, to smaller gradients."""
    height = 1e14
    noise = 8 * 2.0**-53 * height

    def hills(x):
        return height + float(np.sum(np.cos(x))), -np.sin(x)

    def climbs(origin, here, count):
        step = noise / 2 / max(here.grad_norm, 0.1)
        return Move(here.point + step * unit(here))

    start = np.full(20, 0.8)
    method = Safeguarded(Scripted(climbs), shortest_round=200)
    run = iterate(hills, start, jac=True, method=method, tol=1e-6)
    low, highest = math.inf, -math.inf
    for step in run:
        low, best = min(low, step.fun), step.memory.best.value
        highest = max(highest, step.fun)
        assert best <= low + noise
    assert highest > hills(start)[0] + 10 * noise
    assert run.result.fun <= hills(start)[0] + noise


def test_a_function_that_is_unbounded_is_still_called_that():
    def ridge(x):
        return -float(x @ x), -2 * x

    for fast in (Scripted(gives_up), Scripted(sleeps), Scripted(returns, stays=True)):
        result = minimize(ridge, np.ones(3), jac=True, method=Safeguarded(fast), tol=1e-6)
        assert result.status is Status.UNBOUNDED, result.message


def test_a_guard_that_completes_above_the_lowest_point_goes_on_from_there():
    """A success of the guard's is none where the fast method has been lower."""

    def wells(x):  # at -1 and 1.05, the first is lower
        return float(x[0] ** 4 / 4 - x[0] ** 2 / 2 + 0.05 * x[0]), x**3 - x + 0.05

    def crosses(origin, here, count):
        """To the lower well, once the guard is on its way down the higher one."""
        return Move(np.array([0.8 if count < 30 else -0.9]))

    class Completes(Scripted):
        """Goes down in short steps, and ends at a gradient of 1e-3."""

        def status(self, move, there):
            return Status.COMPLETED if there.grad_norm <= 1e-3 else RUNNING

    def descend(origin, here, count):
        return Move(here.point - 0.05 * here.gradient, accepts=True)

    method = Safeguarded(Scripted(crosses, stays=True), Completes(descend), shortest_round=4)
    result = minimize(wells, np.array([0.5]), jac=True, method=method, tol=1e-5)
    assert result.success, result.message
    assert result.x[0] == pytest.approx(-1.02, abs=0.01)
