"""The methods go exactly where the printed algorithms go.

Every point at which a value or a gradient is asked for, every restart, every number that changes at
one, and the output are compared with an implementation that stores all iterates.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

import momentous
from momentous import RAGD, RHB, AdaRAGD, AdaRHB, EventKind
from reference import (
    CHAIN,
    COSINES,
    FLAT_SADDLE,
    FUNCTIONS,
    NESTED,
    SADDLE,
    History,
    Theory,
    adaptively_restarted,
    restarted,
    watched_run,
)

HEAVY_BALLS = (RHB, AdaRHB)
REMARK_2 = {"c2": "backoff", "eta_min": "step_size_min", "rho_max": "hessian_lipschitz_max"}
NAMES = {"gamma": "decrease", "c0": "radius_shrink", "c1": "failure_shrink", **REMARK_2}


@dataclass
class Case:
    """A run, what the paper makes of it, and what has to happen in it for it to show something."""

    label: str
    problem: object
    method: object
    parameters: dict  # of the reference
    shows: set = field(default_factory=set)
    most: int = 4000

    @property
    def heavy_ball(self):
        return isinstance(self.method, HEAVY_BALLS)

    def reference(self) -> History:
        options = {**self.parameters, "heavy_ball": self.heavy_ball, "most": self.most}
        p = self.problem
        if isinstance(self.method, RAGD | RHB):
            return restarted(p.gradient, p.start, **options)
        return adaptively_restarted(p.value, p.gradient, p.start, **options)


def fixed(method, problem, K):
    theory = Theory.with_integer_length(problem, K, method is RHB)
    return Case(
        f"{method.name}-{K}-{problem.name}",
        problem,
        method(theory.L, theory.rho, theory.eps),
        {"eta": theory.eta, "theta": theory.theta, "B": theory.B},
        {"restart"},
        most=1500,
    )


def adaptive(label, method, problem, theory, wide, shows, **rule):
    """By theory, with B0 = ``wide`` B; ``rule`` holds the c0, c1, ... of the paper."""
    chosen = method(
        gradient_lipschitz=theory.L,
        hessian_lipschitz=theory.rho,
        eps=theory.eps,
        initial_radius=wide * theory.B,
        **{NAMES[name]: value for name, value in rule.items()},
    )
    numbers = {"eta": theory.eta, "theta": theory.theta, "B": theory.B, "B0": wide * theory.B}
    numbers |= {"eps": theory.eps, "rho": theory.rho, **rule}
    return Case(f"{method.name}-{label}-{problem.name}", problem, chosen, numbers, shows)


def algorithm_2(method, problem, K, wide, shows, **rule):
    theory = Theory.with_integer_length(problem, K, method is AdaRHB)
    return adaptive(f"{K}", method, problem, theory, wide, shows, **rule)


def remark_2(label, method, problem, K, shows, eta_min=0.0, rho_max=math.inf, factor=10, **rule):
    """L and rho guessed too small; the caps are given relative to these guesses."""
    true = Theory.with_integer_length(problem, K, method is AdaRHB)
    guess = Theory(true.L / factor, true.rho / factor**2, true.eps, true.heavy_ball)
    rule |= {"c0": 1.2, "c1": 4.0, "c2": 2.0, "gamma": 0.5}
    rule |= {"eta_min": eta_min * guess.eta, "rho_max": rho_max * guess.rho}
    return adaptive(label, method, problem, guess, 1000.0, {"rollback", *shows}, **rule)


def by_hand(method, problem):
    """The parameters of the paper's experiments, not those of its theorems; 1/theta = 30.3."""
    numbers = {"eta": 0.3, "B": 1e-3, "B0": 3.0, "eps": 1e-4, "rho": 2.0, "c2": 1.5, "c1": 7.0}
    chosen = method(
        step_size=0.3,
        momentum=0.967,
        radius=1e-3,
        initial_radius=3.0,
        eps=1e-4,
        hessian_lipschitz=2.0,
        backoff=1.5,
        failure_shrink=7.0,
    )
    label = f"{method.name}-by-hand-{problem.name}"
    return Case(label, problem, chosen, {**numbers, "theta": 1 - 0.967}, {"restart"}, most=1500)


# What a run can show, as a test on the reference's epochs.
SIGHTS = {
    "restart": lambda e: e.end == "restart",
    "rollback": lambda e: e.end == "rollback",
    "restart at K": lambda e: e.end == "restart" and e.k == e.K > 1,
    "K + 1": lambda e: e.k == e.K + 1,
    "rollback at K + 1": lambda e: e.k == e.K + 1 and e.end == "rollback",
    "restart at the radius": lambda e: e.end == "restart" and e.B0 <= e.B,
    "complete": lambda e: e.end == "complete",
}

CASES = [
    *(fixed(RAGD, problem, K) for problem in FUNCTIONS for K in (1, 3, 8)),
    *(fixed(RHB, problem, 10) for problem in FUNCTIONS),
    *(fixed(RAGD, problem, K) for problem in (SADDLE, CHAIN) for K in (2, 20)),
    fixed(RHB, CHAIN, 20),
    algorithm_2(AdaRAGD, COSINES, 1, 1e3, {"rollback", "K + 1", "complete"}, gamma=0.8),
    algorithm_2(AdaRAGD, SADDLE, 3, 1e3, {"restart at K", "complete"}, c0=1.3),
    algorithm_2(AdaRAGD, NESTED, 8, 1e4, {"restart at K", "K + 1", "complete"}, c0=1.3, gamma=0.5),
    algorithm_2(AdaRAGD, CHAIN, 8, 1e4, {"rollback at K + 1", "complete"}, c0=1.05, c1=100.0),
    algorithm_2(AdaRAGD, COSINES, 20, 1e3, {"rollback", "complete"}, gamma=0.5),
    algorithm_2(AdaRHB, SADDLE, 10, 1e3, {"restart at the radius", "complete"}, c0=1.3),
    algorithm_2(AdaRHB, CHAIN, 10, 1e3, {"rollback", "K + 1", "complete"}, gamma=0.5),
    algorithm_2(AdaRHB, COSINES, 12, 1e4, {"rollback", "complete"}, c0=1.05, c1=100.0, gamma=0.8),
    *(remark_2("guesses", AdaRAGD, problem, 8, ()) for problem in (COSINES, SADDLE, CHAIN)),
    *(remark_2("guesses", AdaRHB, problem, 10, ()) for problem in (FLAT_SADDLE, CHAIN)),
    remark_2("bad-guesses", AdaRAGD, SADDLE, 8, {"restart at the radius", "complete"}, factor=30),
    remark_2("bad-guesses", AdaRHB, SADDLE, 10, {"restart at the radius", "complete"}, factor=30),
    remark_2("caps-together", AdaRAGD, CHAIN, 8, {"complete"}, eta_min=1 / 16, rho_max=256),
    remark_2("eta-capped", AdaRAGD, CHAIN, 8, {"complete"}, eta_min=1 / 3),
    remark_2("rho-capped", AdaRAGD, CHAIN, 8, {"complete"}, rho_max=5),
    remark_2("rho-capped", AdaRHB, CHAIN, 10, {"complete"}, rho_max=5),
    by_hand(AdaRAGD, COSINES),
    by_hand(AdaRHB, SADDLE),
]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@each_case
def test_the_run_is_the_printed_one(case):
    history = case.reference()
    for sight in case.shows:
        assert any(SIGHTS[sight](epoch) for epoch in history.epochs), f"no {sight} to be seen"
    epochs, result, seen = watched_run(
        case.problem, case.problem.start, case.method, max_iterations=case.most
    )

    assert [(e.end, e.k) for e in epochs] == [(e.end, e.k) for e in history.epochs]
    for name in ("eta", "theta", "B", "K", "B0", "rho"):
        found = [getattr(epoch, name) for epoch in epochs]
        expected = [getattr(epoch, name) for epoch in history.epochs]
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)
    for epoch, expected in zip(epochs, history.epochs, strict=True):
        same(epoch.x, expected.x)
        if epoch.end in ("restart", "rollback"):
            same(epoch.next_start, expected.next_start)
        if epoch.end == "rollback":  # not only close to the last accepted point: that point
            np.testing.assert_array_equal(epoch.next_start, epoch.x[0])
    same(seen.gradients[: len(history.points)], history.points)
    assert result.nit == len(history.points)

    trace = result.trace
    assert trace.when(EventKind.RESTART) == history.ended("restart")
    assert trace.when(EventKind.ROLLBACK) == history.ended("rollback")
    assert result.restarts == len(history.epochs) - 1

    extra_values = [case.problem.start, result.x] if not history.values else [result.x]
    if history.output is None:  # cut off
        assert epochs[-1].end == ""
        same(seen.values[: len(history.values)], history.values)
        return
    same(result.x, history.output)
    same(seen.values, [*history.values, *extra_values])
    assert result.nfev == len(seen.values)
    last = history.epochs[-1]
    closing = [] if last.K == 1 else [last.average()]  # K = 1: the average is the last point
    closing += [last.x[-1]] if history.values else []
    same(seen.gradients, [*history.points, *closing])
    assert result.njev == len(seen.gradients)


@pytest.mark.parametrize("method", [RAGD, RHB, AdaRAGD, AdaRHB])
def test_between_them_the_cases_show_everything(method):
    runs = [case.reference() for case in CASES if isinstance(case.method, method)]
    epochs = [epoch for history in runs for epoch in history.epochs]
    is_adaptive = method in (AdaRAGD, AdaRHB)
    for sight in SIGHTS if is_adaptive else ("restart", "restart at K", "complete"):
        assert any(map(SIGHTS[sight], epochs)), sight
    if is_adaptive:
        lengths = [{epoch.K for epoch in history.epochs} for history in runs]
        assert any(len(some) > 1 for some in lengths), "no run with unmatched caps changes K"
        steps = [{epoch.eta for epoch in history.epochs} for history in runs]
        assert any(len(some) > 2 for some in steps), "Remark 2 is hardly at work"
        last = [history for history in runs if history.output is not None]
        averaged = [history.output is not history.epochs[-1].x[-1] for history in last]
        assert any(averaged), "the average is never the output"
        assert not all(averaged), "the last iterate is never the output"


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_the_iteration_in_which_the_wide_radius_falls_to_the_narrow_one_is_marked(method):
    case = next(c for c in CASES if isinstance(c.method, method) and "complete" in c.shows)
    history = case.reference()
    ends = np.cumsum([epoch.k for epoch in history.epochs])
    first = next(i for i, epoch in enumerate(history.epochs) if epoch.B0 <= epoch.B)
    p = case.problem
    result = momentous.minimize(p.value, p.start, jac=p.gradient, method=case.method, tol=0)
    assert result.trace.when(EventKind.RADIUS_REACHED) == [ends[first - 1]]


# --- cases that can be worked out by hand ---------------------------------------------------------
# On f(x) = x without momentum and with step 1, x^k = x^0 - k and k * sum |x^{t+1} - x^t|^2 = k^2.


def epochs_on_a_line(method, iterations, *, value=lambda x: float(x[0]), **options):
    """(length, end) of the epochs on f(x) = x with gradient 1, started at 0."""
    line = momentous.testbed.Problem(
        name="line",
        description="f(x) = x",
        start=np.zeros(1),
        value=value,
        value_and_gradient=lambda x: (value(x), np.ones(1)),
    )
    epochs, result, _ = watched_run(line, line.start, method, max_iterations=iterations, **options)
    return [(epoch.k, epoch.end) for epoch in epochs if epoch.k], epochs, result


@pytest.mark.parametrize("method", [RAGD, RHB])
@pytest.mark.parametrize("radius", [1, 2, 3])
def test_a_restart_needs_more_than_the_radius(method, radius):
    """k^2 > B^2 for the first time at k = B + 1; at k = B there is equality and no restart."""
    chosen = method(step_size=1.0, momentum=0.0, radius=radius, epoch_length=10)
    ends, _, _ = epochs_on_a_line(chosen, 4 * (radius + 1))
    assert ends == [(radius + 1, "restart")] * 4
    narrower = method(
        step_size=1.0, momentum=0.0, radius=math.nextafter(radius, 0), epoch_length=10
    )
    ends, _, _ = epochs_on_a_line(narrower, 4 * radius)
    assert ends == [(radius, "restart")] * 4


@pytest.mark.parametrize("method", [RAGD, RHB])
def test_a_restart_in_the_last_iteration_wins_over_completion(method):
    chosen = method(step_size=1.0, momentum=0.0, radius=2.0, epoch_length=3)
    ends, _, _ = epochs_on_a_line(chosen, 12)
    assert ends == [(3, "restart")] * 4
    chosen = method(step_size=1.0, momentum=0.0, radius=2.0, epoch_length=2)
    ends, _, _ = epochs_on_a_line(chosen, 12)
    assert ends == [(2, "complete")]


@pytest.mark.parametrize("method", [RAGD, RHB])
@pytest.mark.parametrize("K", range(1, 8))
def test_of_equally_short_steps_the_first_one_counts(method, K):
    """All steps have length 1, so K0 = floor(K/2), and the average of 0, -1, .., -K0 is -K0/2."""
    chosen = method(step_size=1.0, momentum=0.0, radius=math.inf, epoch_length=K)
    _, epochs, result = epochs_on_a_line(chosen, 100)
    assert epochs[-1].k == K
    assert result.x == -(K // 2) / 2


ON_A_LINE = {"step_size": 1.0, "momentum": 0.0, "hessian_lipschitz": 1.0, "eps": 1e-4}


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_while_the_radius_is_wide_epochs_may_take_one_iteration_more(method):
    """B0 = 100, 50, .., 0.78 restarts at k = min(floor(B0), K) + 1; then B = 0.5 does at k = 1."""
    chosen = method(**ON_A_LINE, radius=0.5, epoch_length=3, initial_radius=100.0, radius_shrink=2)
    ends, epochs, _ = epochs_on_a_line(chosen, 6 * 4 + 2 + 1 + 3)
    assert [epoch.B0 for epoch in epochs[:9]] == [100 / 2**t for t in range(9)]
    assert ends == [(k, "restart") for k in (4, 4, 4, 4, 4, 4, 2, 1, 1, 1, 1)]


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_once_the_radius_is_narrow_epochs_complete_in_time(method):
    chosen = method(**ON_A_LINE, radius=3.0, epoch_length=3, initial_radius=10.0, radius_shrink=2)
    ends, _, _ = epochs_on_a_line(chosen, 100)
    assert ends == [(4, "restart"), (4, "restart"), (3, "complete")]  # B0 = 10, 5, 2.5


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_equality_is_enough_decrease(method):
    """One step lowers f by 1, and gamma eps^(3/2)/sqrt(rho) is 1/2 * 8/4 = 1, or a little more."""
    line = {**ON_A_LINE, "eps": 4.0, "decrease": 0.5, "radius": 0.5, "initial_radius": 0.5}
    enough = method(**{**line, "hessian_lipschitz": 16.0})
    ends, _, _ = epochs_on_a_line(enough, 3)
    assert ends == [(1, "restart")] * 3
    too_little = method(**{**line, "hessian_lipschitz": math.nextafter(16.0, 0) * (1 - 1e-15)})
    ends, _, _ = epochs_on_a_line(too_little, 1)
    assert ends == [(1, "rollback")]


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_every_discarded_epoch_divides_by_what_remark_2_says(method):
    """The gradient points the wrong way: all epochs are discarded, from the same point."""
    chosen = method(
        **ON_A_LINE,
        radius=0.5,
        epoch_length=3,
        initial_radius=100.0,
        radius_shrink=1.25,
        failure_shrink=8.0,
        backoff=2.0,
    )
    ends, epochs, _ = epochs_on_a_line(chosen, 12, value=lambda x: -float(x[0]))
    assert all(end == "rollback" for _, end in ends)
    for t, epoch in enumerate(epochs[:4]):
        assert epoch.x[0] == 0.0
        numbers = (epoch.B0, epoch.eta, epoch.rho, epoch.B)
        assert numbers == pytest.approx((100 / 10**t, 1 / 2**t, 4**t, 0.5 / 2**t), rel=1e-14)
        assert (epoch.theta, epoch.K) == (1.0, 3)


@pytest.mark.parametrize("method", [AdaRAGD, AdaRHB])
def test_the_radius_shrinks_faster_from_restart_to_restart_unless_told_otherwise(method):
    chosen = method(**ON_A_LINE, radius=0.5, epoch_length=3, initial_radius=100.0)
    _, epochs, _ = epochs_on_a_line(chosen, 40)
    ratios = [before.B0 / after.B0 for before, after in pairwise(epochs)]
    assert ratios == pytest.approx([1 + 0.001 * t for t in range(1, len(epochs))], rel=1e-14)


def test_the_heavy_ball_restarts_behind_its_last_iterate():
    """theta = 1/4 gives a = 3/8: after steps of 1 and 7/4, and after a single one."""
    a = (1 - 2 * 0.25) * (1 - 0.25)
    chosen = RHB(step_size=1.0, momentum=0.75, radius=2.0, epoch_length=9)
    ends, epochs, _ = epochs_on_a_line(chosen, 2)
    assert ends == [(2, "restart")]
    assert [float(x[0]) for x in epochs[0].x] == [0.0, -1.0, -2.75]
    assert epochs[0].next_start == pytest.approx((-2.75 + a * -1.0) / (1 + a), rel=1e-15)
    chosen = RHB(step_size=1.0, momentum=0.75, radius=0.5, epoch_length=9)
    _, epochs, _ = epochs_on_a_line(chosen, 1)
    assert epochs[0].next_start == pytest.approx(-1 / (1 + a), rel=1e-15)  # not a whole step
