"""Whatever the fast method does, `Safeguarded` gets there: methods that do their worst."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from momentous import Safeguarded, Status, UniversalHeavyBall, iterate, minimize, testbed
from momentous.core.method import Method
from momentous.core.oracle import Sample
from momentous.core.status import Ending
from momentous.core.step import Report, Step

GUARD = UniversalHeavyBall(average_growth=1.0)
SHARE = 1e-6  # of the first gradient norm: the tolerance
LONGEST_STEP = 30  # evaluations, a start of the guard and a measurement of noise included


@dataclasses.dataclass(frozen=True)
class Adversary(Method):
    """A fast method that does what a function says, given where it began, where it is and how many
    steps it has taken."""

    name = "adversary"
    act: Callable[..., Report] = None
    stays: bool = False  # does it ignore where it is told to go on?

    def start(self, oracle, x0, tol, seed):
        sample = oracle.gradient(x0)
        return Step((sample, sample, 0), Report(sample, 0.0))

    def step(self, oracle, memory):
        origin, here, count = memory
        with np.errstate(all="ignore"):
            report = self.act(oracle, origin, here, count)
        return Step((origin, report.sample, count + 1), report)

    def moved_to(self, oracle, memory, sample, tol, seed):
        if not self.stays:
            return super().moved_to(oracle, memory, sample, tol, seed)
        return Step(memory, Report(memory[1], 0.0))


def look(oracle, point, ending=None, **more):
    """The report of a step to a point."""
    oracle.value(point)
    sample = oracle.gradient(point)
    oracle.value(point)
    return Report(sample, 0.0, ending=ending, **more)


def unit(here):
    """Along the gradient, one long."""
    return here.gradient / (here.grad_norm or 1.0)


LOW = 77.0  # where functions are made to be low


def gives_up(oracle, origin, here, count):
    return Report(here, 0.0, ending=Ending(Status.NO_PROGRESS, "nothing can be done", {}))


def sleeps(oracle, origin, here, count):
    """Evaluates nothing."""
    return Report(here, 0.0)


def runs_away(oracle, origin, here, count):
    return look(oracle, 1e8 * here.point + 1.0)


def runs_away_unseen(oracle, origin, here, count):
    """The values on the way are unknown, and the point accepted is above the start."""
    if count == 0:
        return look(oracle, origin.point + unit(origin))
    high = Sample(origin.point + unit(origin))
    return Report(oracle.gradient(1e8 * here.point + 1.0), 0.0, accepted=high)


def returns(oracle, origin, here, count):
    """A little down, and back."""
    down = origin.point - 1e-3 * unit(origin)
    return look(oracle, oracle.space.copy(origin.point) if count % 2 else down)


def strays_and_returns(oracle, origin, here, count):
    """Down for a while, then back: what it had found is lost to it."""
    if count % 5 == 4:
        return look(oracle, oracle.space.copy(origin.point))
    return look(oracle, here.point - 1e-2 * unit(here))


def returns_and_gives_up(oracle, origin, here, count):
    ending = Ending(Status.NO_PROGRESS, "back at the start", {})
    return look(oracle, oracle.space.copy(origin.point), ending)


def alternates(oracle, origin, here, count):
    """Up and down, and every fourth step is said to be the last."""
    ending = Ending(Status.NO_PROGRESS, "to and fro", {}) if count % 4 == 3 else None
    return look(oracle, here.point + (0.1 if count % 2 else -0.101) * unit(here), ending)


def gains_a_little(oracle, origin, here, count):
    ending = Ending(Status.NON_FINITE, "enough", {}) if count % 3 == 2 else None
    return look(oracle, here.point - 1e-9 * here.gradient, ending)


def claims_success(oracle, origin, here, count):
    ending = Ending(Status.CONVERGED, "done", {"grad_norm": 0.0})
    return look(oracle, here.point + 1e-3, ending)


def claims_the_worst(oracle, origin, here, count):
    ending = Ending(Status.UNBOUNDED, "there is no end to it", {})
    return look(oracle, 1.1 * here.point, ending)


def claims_noise(oracle, origin, here, count):
    return look(oracle, origin.point + 0.1 * math.cos(count), noise=1e9)


def visits_a_plateau(oracle, origin, here, count):
    """Far out the gradient may be small; nothing is said against an end there."""
    return look(oracle, origin.point + 1e6, accepted=origin)


def finds_a_hole(oracle, origin, here, count):
    return look(oracle, np.full_like(origin.point, LOW))


def finds_a_hole_and_gives_up(oracle, origin, here, count):
    ending = Ending(Status.NO_PROGRESS, "in a hole", {})
    return look(oracle, np.full_like(origin.point, LOW), ending)


def accepts_a_hole_by_its_value(oracle, origin, here, count):
    hole = np.full_like(origin.point, LOW)
    accepted = Sample(hole, oracle.value(hole))
    return look(oracle, origin.point + unit(origin), accepted=accepted)


ADVERSARIES = [
    Adversary(gives_up),
    Adversary(sleeps),
    Adversary(runs_away),
    Adversary(runs_away_unseen),
    Adversary(returns, stays=True),
    Adversary(strays_and_returns),
    Adversary(returns_and_gives_up, stays=True),
    Adversary(alternates),
    Adversary(gains_a_little),
    Adversary(claims_success),
    Adversary(claims_the_worst),
    Adversary(claims_noise),
    Adversary(visits_a_plateau),
]
HOLES = [
    Adversary(finds_a_hole),
    Adversary(finds_a_hole_and_gives_up),
    Adversary(accepts_a_hole_by_its_value),
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
    lowest = -math.inf if fast is HOLES[0] else -1e6

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

    def claims(oracle, origin, here, count):
        ending = Ending(status, "done", {"grad_norm": 0.0})
        return look(oracle, here.point - 1e-3 * unit(here), ending)

    fun, start = PROBLEMS["rosenbrock"]
    method = Safeguarded(Adversary(claims))
    result = minimize(fun, start, jac=True, method=method, tol=0, max_iterations=5000)
    assert np.linalg.norm(fun(result.x)[1]) <= (0.0 if result.success else 1e-6)


def test_long_steps_over_ripples_are_not_taken_for_noise():
    """As high as the ripples it would be, and what is lower by less would be given up."""
    starts = [(91.2003, -58.4632), (36.5, 2.5), (38.75, 25.0), (45.5, 0.25), (53.75, 29.5)]
    for start in map(np.array, starts):
        value, gradient = ripples(start)
        options = {"jac": True, "tol": SHARE * float(np.linalg.norm(gradient))}
        for method in (GUARD, UniversalHeavyBall(), Safeguarded(Adversary(strays_and_returns))):
            run = iterate(ripples, start, method=method, max_evaluations=50_000, **options)
            assert max(step.report.noise for step in run) <= 1e-9 * value
            assert run.result.status is Status.CONVERGED, run.result.message


def test_rises_by_less_than_the_noise_do_not_add_up():
    """The fast method climbs by half of the noise per step, to smaller gradients."""
    height = 1e14
    noise = 8 * 2.0**-53 * height

    def hills(x):
        return height + float(np.sum(np.cos(x))), -np.sin(x)

    def climbs(oracle, origin, here, count):
        step = noise / 2 / max(here.grad_norm, 0.1)
        return look(oracle, here.point + step * unit(here))

    start = np.full(20, 0.8)
    method = Safeguarded(Adversary(climbs), shortest_round=200)
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

    for fast in (Adversary(gives_up), Adversary(sleeps), Adversary(returns, stays=True)):
        result = minimize(ridge, np.ones(3), jac=True, method=Safeguarded(fast), tol=1e-6)
        assert result.status is Status.UNBOUNDED, result.message


def test_a_guard_that_completes_above_the_lowest_point_goes_on_from_there():
    """A success of the guard's is none where the fast method has been lower."""

    def wells(x):  # at -1 and 1.05, the first is lower
        return float(x[0] ** 4 / 4 - x[0] ** 2 / 2 + 0.05 * x[0]), x**3 - x + 0.05

    def crosses(oracle, origin, here, count):
        """To the lower well, once the guard is on its way down the higher one."""
        return look(oracle, np.array([0.8 if count < 30 else -0.9]))

    @dataclasses.dataclass(frozen=True)
    class Completes(Method):
        """Goes down in short steps, and ends at a gradient of 1e-3."""

        name = "completes"

        def start(self, oracle, x0, tol, seed):
            sample = oracle.gradient(x0)
            return Step(sample, Report(sample, 0.0, accepted=sample))

        def step(self, oracle, memory):
            report = look(oracle, memory.point - 0.05 * memory.gradient)
            sample = report.accepted = report.sample
            if sample.grad_norm <= 1e-3:
                numbers = {"grad_norm": sample.grad_norm, "promise": 1e-3}
                report.ending = Ending(Status.COMPLETED, "the gradient is small", numbers)
            return Step(sample, report)

    method = Safeguarded(Adversary(crosses, stays=True), Completes(), shortest_round=4)
    result = minimize(wells, np.array([0.5]), jac=True, method=method, tol=1e-5)
    assert result.success, result.message
    assert result.x[0] == pytest.approx(-1.02, abs=0.01)
