"""The parameter-free methods of Marumo and Takeda: as published, and where rounding decides."""

import itertools
import math

import numpy as np
import pytest

from helpers import Bowl, Waves, counted, fingerprint
from momentous import EventKind, Status, iterate, minimize, testbed
from momentous.core.acceptance import within_limit
from momentous.core.machine import NUMBERS, Host
from momentous.core.oracle import Oracle, Sample
from momentous.core.rule import Goal
from momentous.core.sources import function_source
from momentous.core.space import Space
from momentous.methods.parameter_free import ParameterFreeAGD, UniversalHeavyBall
from momentous.methods.search.backtracking import (
    ACCEPTED,
    CONSTANTS,
    SEARCHING,
    Backtracking,
    Search,
)
from momentous.methods.search.rounding import Rounding
from reference import CHAIN, COSINES, FLAT_SADDLE, FUNCTIONS, NESTED, SADDLE, started
from scripted import look_at_noise

METHODS = [ParameterFreeAGD, UniversalHeavyBall]
PUBLISHED_AGD = ParameterFreeAGD(
    gradient_lipschitz=1e-3, hessian_lipschitz=1e-16, average_growth=math.inf, guards=False
)
PUBLISHED_HB = UniversalHeavyBall(
    gradient_lipschitz=1e-3,
    relaxation=0.1,
    least_relaxation=1,
    average_growth=1,
    contraction=0,
    guards=False,
)

both = pytest.mark.parametrize("cls", METHODS, ids=lambda c: c.name)


def each(problems):
    return pytest.mark.parametrize("problem", problems, ids=lambda p: p.name)


def norm(a):
    return math.sqrt(np.dot(a, a))


# --- as printed, every iterate in a list ----------------------------------------------------------


class Printed:
    """What both algorithms do between epochs, and where they evaluated."""

    def __init__(self, problem, L, alpha, beta, most=150):
        self.problem, self.L, self.most = problem, L, most
        self.points, self.ends, self.estimates, self.starts = [], [], [], []
        start = np.array(problem.start)
        self.enough = 1e-3 * norm(problem.gradient(start))
        while True:
            self.starts.append(start)
            ended = self.epoch(start)
            if ended is None:
                break
            start, successful, k = ended
            self.ends.append((EventKind.RESTART if successful else EventKind.ROLLBACK, k))
            self.L *= beta if successful else alpha

    def finished(self, g):
        """Before rounding decides anything."""
        return len(self.estimates) == self.most or norm(g) <= self.enough

    def at(self, x):
        self.points.append(x)
        return self.known(x)

    def known(self, x):
        f, g = self.problem.value_and_gradient(x)
        return float(f), g


class PrintedAGD(Printed):
    def epoch(self, x_0):
        f_0, g_0 = self.known(x_0)
        xs, gs, ys, gys, M = [x_0], [g_0], [x_0], [g_0], 1e-16
        k = 0
        while True:
            if self.finished(gs[-1]):
                return None
            k += 1
            th, L = k / (k + 1), self.L
            xs.append(ys[-1] - gys[-1] / L)
            x, before = xs[-1], xs[-2]
            S = sum(norm(a - b) ** 2 for a, b in itertools.pairwise(xs))
            f, g = self.at(x)
            if f - f_0 > -(1 - th) * L * S / 2:
                self.estimates.append((M, None))
                return before, False, k
            y = x + th * (x - before)
            fy, gy = self.at(y)
            trapezoid = fy - f - np.dot(g + gy, y - x) / 2
            jensen = norm(gy + th * gs[-1] - (1 + th) * g)
            M = max(M, 12 * trapezoid / norm(y - x) ** 3, jensen / (th * norm(x - before) ** 2))
            if (k + 1) ** 5 * M**2 * S > L**2:
                self.estimates.append((M, None))
                return x, True, k
            gs.append(g)
            ys.append(y)
            gys.append(gy)
            weights = [2 * (i + 1) / ((k + 1) * (k + 2)) for i in range(k + 1)]
            self.estimates.append((M, sum(w * z for w, z in zip(weights, ys, strict=True))))
            # The identity that says when to look at the mean of the y.
            mean_gradient = sum(w * z for w, z in zip(weights, gys, strict=True))
            v_next = y - gy / L - x
            assert np.allclose(
                mean_gradient, -2 * L * v_next / (k + 2), rtol=0, atol=1e-8 * norm(g_0)
            )


class PrintedHB(Printed):
    growth = 1.0

    def epoch(self, x_0):
        f_0, g_0 = self.known(x_0)
        xs, v, S, h, due = [x_0], 0 * x_0, 0.0, 0.0, 1
        seen, g_mean = [(f_0, x_0)], g_0
        f_old, g_old = f_0, g_0
        k = 0
        while True:
            if self.finished(g_old):
                return None
            k += 1
            L = self.L
            v = v - g_old / L
            xs.append(xs[-1] + v)
            S += norm(v) ** 2
            f, g = self.at(xs[-1])
            seen.append((f, xs[-1]))
            lowest = min(seen, key=lambda pair: pair[0])[1]
            if f - f_old > np.dot(g_old, v) + L / 2 * norm(v) ** 2:
                self.estimates.append((h, None))
                return lowest, False, k
            h = max(h, 3 / norm(v) ** 2 * (f - f_old - np.dot(g_old + g, v) / 2))
            if g_mean is not None:
                h = max(h, math.sqrt(8 / (k * S)) * (norm(g_mean) - L / k * norm(v)))
            self.estimates.append((h, None))
            if k * (k + 1) * h > 3 / 8 * L:
                return lowest, True, k
            f_old, g_old, g_mean = f, g, None
            if k == due:
                mean = sum(xs) / (k + 1)
                f_mean, g_mean = self.at(mean)
                seen.append((f_mean, mean))
                due = max(k + 1, math.ceil(self.growth * k))


class PrintedLazyHB(PrintedHB):
    growth = 1.25


LAZY_HB = UniversalHeavyBall(
    gradient_lipschitz=0.02,
    relaxation=0.5,
    least_relaxation=1,
    average_growth=1.25,
    contraction=0,
    guards=False,
)
PRINTED = [
    (PUBLISHED_AGD, PrintedAGD),
    (PUBLISHED_HB, PrintedHB),
    (LAZY_HB, PrintedLazyHB),
]


@each([COSINES, SADDLE, FLAT_SADDLE, CHAIN, NESTED])
@pytest.mark.parametrize(("method", "printed"), PRINTED, ids=["agd", "hb", "lazy hb"])
def test_every_point_restart_and_estimate_is_the_printed_one(problem, method, printed):
    right = printed(problem, method.gradient_lipschitz, method.backoff, method.relaxation)
    most = len(right.estimates)
    points = []

    def fun(x):
        points.append(np.array(x))
        return problem.value_and_gradient(x)

    run = iterate(fun, problem.start, jac=True, method=method, tol=0, max_iterations=most)
    ends, k = [], 0
    for step, (estimate, mean) in zip(run, right.estimates, strict=True):
        memory, k = step.memory, k + 1
        if step.events:
            (event,) = step.events
            assert event.value == k
            ends.append((event.kind, k))
            theirs = right.starts[len(ends)]
            assert norm(memory.x.point - theirs) <= 1e-10 * norm(theirs)
            k = 0
        else:
            mine = memory.hessian if isinstance(method, ParameterFreeAGD) else memory.variation
            assert mine == pytest.approx(estimate, rel=1e-5, abs=1e-7)
            if mean is not None:
                np.testing.assert_allclose(memory.average, mean, rtol=1e-10, atol=1e-12)
    assert ends == right.ends
    assert {kind for kind, _ in ends} == {EventKind.RESTART, EventKind.ROLLBACK}
    for mine, theirs in zip(points[1:], right.points, strict=True):
        assert norm(mine - theirs) <= 1e-10 * norm(theirs)
    assert memory.lipschitz == pytest.approx(right.L, rel=1e-12)


# --- what an iteration costs ----------------------------------------------------------------------


@pytest.mark.parametrize("method", [PUBLISHED_AGD, PUBLISHED_HB], ids=["agd", "hb"])
def test_two_evaluations_an_iteration_and_one_where_the_first_ends_it(method, how):
    """The heavy ball spares the mean wherever the epoch ends, AGD needs y to judge success."""
    calls = counted(Waves())
    run = iterate(**calls.given(how), x0=Waves().start, method=method, tol=0, max_iterations=60)
    before, kinds = (calls.values, calls.gradients), set()
    assert before == (1, 1)  # L was given: no probe
    for step in run:
        kind = step.events[0].kind if step.events else None
        single = kind is EventKind.ROLLBACK or (kind and method is PUBLISHED_HB)
        used = calls.values - before[0], calls.gradients - before[1]
        assert used == ((1, 1) if single else (2, 2))
        before, kinds = (calls.values, calls.gradients), kinds | {kind}
    assert kinds == {None, EventKind.RESTART, EventKind.ROLLBACK}


@both
def test_the_first_lipschitz_constant_costs_one_gradient(cls):
    calls = counted(Waves())
    run = iterate(**calls.given("separate"), x0=Waves().start, method=cls())
    assert (calls.values, calls.gradients) == (1, 2)
    assert 1.0 <= run.memory.lipschitz <= 100.0


def test_the_lazy_average_is_evaluated_on_its_schedule():
    problem = Bowl()  # h = 0: one epoch for ever
    method = UniversalHeavyBall(gradient_lipschitz=200.0, average_growth=1.25, contraction=0)
    run = iterate(problem.value, problem.start, jac=problem.gradient, method=method, tol=0)
    steps = itertools.islice(run, 40)
    at = [step.nit for step in steps if not math.isnan(step.memory.mean_norm)]
    assert at == [1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 24, 30, 38]


def test_the_mean_of_agd_is_looked_at_only_where_it_may_be_the_solution():
    never = ParameterFreeAGD(gradient_lipschitz=150.0, average_growth=math.inf)
    always = ParameterFreeAGD(gradient_lipschitz=150.0, average_growth=1)
    problem = Bowl()

    def run(method, tol):
        return minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=tol,
            max_iterations=300,
        )  # fmt: skip

    assert run(always, 0.0).njev == run(never, 0.0).njev
    with_mean, without = run(always, 1e-3), run(never, 1e-3)
    assert with_mean.success
    assert with_mean.grad_norm <= 1e-3
    assert with_mean.nit < without.nit  # the mean was the solution
    assert with_mean.njev <= 2 * with_mean.nit + 10


# --- what the estimates may not exceed ------------------------------------------------------------

EXACT = [*FUNCTIONS, testbed.second_order_chain(8, 0.1), testbed.nested_chain(4, 0.03)]


@each(EXACT)
def test_the_estimate_of_rho_is_never_above_it(problem):
    tol = 1e-10 * norm(problem.gradient(problem.start))
    run = iterate(
        problem.value_and_gradient, problem.start, jac=True, method=ParameterFreeAGD(), tol=tol,
        max_iterations=1000,
    )  # fmt: skip
    largest = max(step.memory.hessian for step in run)
    assert 0 < largest <= problem.hessian_lipschitz * (1 + 1e-9)


@each(EXACT)
def test_the_variation_of_the_hessian_is_never_overestimated(problem):
    """h <= rho sqrt(S) max(1/4, sqrt(k/32)): trapezoidal rule, and Jensen for the mean of x_i."""
    tol = 1e-10 * norm(problem.gradient(problem.start))
    run = iterate(
        problem.value_and_gradient, problem.start, jac=True, method=UniversalHeavyBall(), tol=tol,
        max_iterations=1000,
    )  # fmt: skip
    found = 0
    for step in run:
        s = step.memory
        bound = math.sqrt(s.travelled) * max(1 / 4, math.sqrt(s.k / 32))
        assert s.variation <= problem.hessian_lipschitz * bound * (1 + 1e-9)
        found += s.variation > 0
    assert found


@each([COSINES, CHAIN, testbed.rosenbrock(10)])
def test_the_heavy_ball_restarts_from_the_lowest_point_of_the_epoch(problem):
    values = []

    def fun(x):
        f, g = problem.value_and_gradient(x)
        values.append(float(f))
        return f, g

    run = iterate(fun, problem.start, jac=True, method=UniversalHeavyBall(), tol=1e-3)
    del values[1:]  # the probe is not part of the epoch
    restarts = 0
    for step in run:
        if step.events:
            assert step.memory.x.value == min(values)
            values[:] = [step.memory.x.value]
            restarts += 1
    assert restarts > 3


@both
@each([COSINES, CHAIN, testbed.rosenbrock(10)])
def test_epochs_never_climb(cls, problem):
    run = iterate(problem.value_and_gradient, problem.start, jac=True, method=cls(), tol=1e-4)
    starts = [run.memory.x.value]
    starts += [step.memory.x.value for step in run if step.events]
    first = abs(starts[0])
    assert all(b <= a + 1e-13 * first for a, b in itertools.pairwise(starts))


# --- rounding -------------------------------------------------------------------------------------

NONSINGULAR = [
    testbed.dixon_price(10),
    testbed.qing(20),
    testbed.separable("geman-mcclure"),
    testbed.separable("welsch"),
    testbed.second_order_chain(8, 0.1),
    testbed.nested_chain(4, 0.03),
    testbed.phase_retrieval(),
    testbed.robust_regression(),
]


@both
@pytest.mark.parametrize("shift", [0.0, 1000.0])
@each(NONSINGULAR)
def test_guarded_methods_reach_small_gradients(cls, shift, problem):
    problem = testbed.shifted(problem, shift)
    tol = 1e-8 * norm(problem.gradient(problem.start))
    result = minimize(
        problem.value_and_gradient, problem.start, jac=True, method=cls(), tol=tol, trace=False
    )
    assert result.status is Status.CONVERGED
    assert norm(problem.gradient(result.x)) <= tol
    assert result.njev < 5000


@both
def test_the_shift_leaves_the_way_as_it_is(cls):
    problem = testbed.rosenbrock(20)
    tol = 1e-8 * norm(problem.gradient(problem.start))

    def gradients(p):
        return minimize(p.value_and_gradient, p.start, jac=True, method=cls(), tol=tol).njev

    assert gradients(testbed.shifted(problem, 1000.0)) == pytest.approx(gradients(problem), rel=0.1)


@both
def test_without_guards_rounding_drives_the_lipschitz_constant_away(cls):
    problem = testbed.shifted(testbed.robust_regression(), 1000.0)
    tol = 1e-8 * norm(problem.gradient(problem.start))

    def ran(guards):
        method = cls(guards=guards)
        run = iterate(
            problem.value_and_gradient, problem.start, jac=True, method=method, tol=tol,
            max_iterations=4000,
        )  # fmt: skip
        largest = max(step.memory.lipschitz for step in run)
        return run.result, largest

    bare, runaway = ran(False)
    assert not bare.success
    assert bare.best_grad_norm > 10 * tol
    assert runaway > 1e8
    guarded, largest = ran(True)
    assert guarded.success
    assert (
        largest <= 2 * 2 * problem.gradient_lipschitz
    )  # alpha L, and once more for the lost epoch


@both
def test_a_run_ends_with_a_reason_where_nothing_more_can_be_had(cls):
    problem = testbed.shifted(testbed.separable("cosine"), 1e6)
    result = minimize(problem.value_and_gradient, problem.start, jac=True, method=cls(), tol=0.0,
                      max_iterations=20_000)  # fmt: skip
    assert result.status in (Status.NO_PROGRESS, Status.COMPLETED)
    assert result.best_grad_norm < 1e-9
    assert "gradient" in result.message


def measured(fun, start, gradient, change=1e-12, looks=1):
    """What is known of the noise after so many looks at it, of four values each."""
    x = np.array(start)
    here = Sample(x, fun(x), np.array(gradient), float(np.linalg.norm(gradient)))
    v = -1e-3 * here.gradient
    known = Rounding(0.0, math.inf), here, v, float(np.dot(v, here.gradient)), change
    rounding, values = look_at_noise(Host.of(Space(x)), fun, *known)
    assert values == 4 * looks
    return rounding


def test_a_search_measures_noise_before_it_takes_the_shortest_step_of_all():
    """Noise may shorten the step by one halving per search, so that no search is ever long."""
    start = np.array([1e-3])

    def lucky_at_the_start(x):
        return 1.0 + 0.5 * float(x @ x) + 1e-5 * bool(np.any(x != start))

    for shortest_accepted, expected in ((2.0, 1.0), (0.01, 1 / 8)):
        m, fun = Host.of(Space(start)), lucky_at_the_start
        here = Sample(start, fun(start), start, float(np.linalg.norm(start)))
        shortest = CONSTANTS.shortest_share * shortest_accepted
        search = Search(1.0, shortest, here, Rounding(0.0, 1.0, largest=1.0))
        search, line = search.begin(m, 1.0, 1.0), (here, start, float(start @ start))
        while search.verdict == SEARCHING:
            x = Backtracking().ask(m, search, *line).point
            there = Sample(x, fun(x), x, float(np.linalg.norm(x)))
            search = Backtracking().tell(m, search, *line, there)
        assert search.verdict == ACCEPTED
        assert search.t == expected
        assert search.rounding.level >= 1e-5


def test_noise_is_told_from_curvature_and_from_a_wrong_gradient():
    start = [0.3, 0.4]

    def bowl(x):
        return 50 * float(np.dot(x, x))

    def noisy(x):
        return bowl(x) + 1e-2 * math.sin(1e9 * float(np.sum(x)))

    gradient = 100 * np.array(start)
    assert 5e-3 <= measured(noisy, start, gradient, looks=2).level <= 8e-2  # so much is rare
    assert measured(bowl, start, gradient).level == 0.0
    assert measured(bowl, start, -gradient).level == 0.0
    assert measured(lambda x: bowl(x) if x[0] == 0.3 else math.nan, start, gradient).level == 0.0


def test_noise_that_is_not_there_on_a_shorter_step_is_not_believed():
    """Over a step of many waves a smooth function moves up and down as noise does."""

    def waves(x):
        return float(np.sum(10 - np.cos(x)))

    for x in np.linspace(-0.01, 0.01, 6):  # the slope is small, and hides nothing
        start, slope = np.array([x]), np.sin([x])
        m, here = Host.of(Space(start)), Sample(start, waves(start), slope, abs(slope[0]))
        # L is 1: the steps are made for one that is up to 1e5 times too small.
        for length, L in itertools.product((50.0, 300.0, 2000.0), (1e-5, 1e-2)):
            v, change = -length * np.sign(slope), L * length**2 / 2
            known = Rounding.at(m, here.value), here, v, float(np.dot(v, slope)), change
            found, _ = look_at_noise(m, waves, *known)
            assert found.level <= 1e-9
            assert found.trusted == change


def test_noise_is_not_measured_again_for_changes_of_the_same_size():
    rounding = Rounding(0.0, 1.0)
    assert not rounding.may_be_noise(0.1)
    assert rounding.may_be_noise(1e-3)
    assert not Rounding(0.0, 1e-3).may_be_noise(1e-3)
    assert not Rounding().may_be_noise(1e-300)  # before values have shown anything
    assert Rounding().trusting(NUMBERS, 0.5, 3.0).trusting(NUMBERS, 0.1, 2.0).trusted == 0.5


@both
def test_noise_of_the_values_is_measured_and_left_behind(cls):
    """Far above what their size tells: the gradients lead on, and L stays what it was."""
    waves = Waves()

    def noisy(x):
        return float(waves.value(x)) + 1e-9 * math.sin(1e12 * float(np.sum(x)))

    run = iterate(noisy, waves.start, jac=waves.gradient, method=cls(), tol=1e-9)
    largest = max(step.memory.lipschitz for step in run)
    assert run.result.status is Status.CONVERGED
    assert norm(waves.gradient(run.result.x)) <= 1e-9
    assert largest <= 2**10 * waves.gradient_lipschitz  # without guards: to infinity
    assert 1e-9 <= run.memory.rounding.level <= 1e-8


@both
def test_values_that_contradict_the_gradient_end_the_run_before_the_step_vanishes(cls):
    """No noise explains a gradient of the wrong sign: L stops at 2^20 times what values confirm."""
    waves = Waves()
    calls = itertools.count()

    def turned(x):
        return waves.gradient(x) if next(calls) < 20 else -waves.gradient(x)

    run = iterate(waves.value, waves.start, jac=turned, method=cls(), tol=0.0)
    result = run.finish()
    assert result.status is Status.NO_PROGRESS
    assert "2^20" in result.message
    assert "rounding decides" not in result.message  # f should fall by more than that
    assert 2**20 * run.memory.confirmed < run.memory.lipschitz < math.inf
    # At another point L is again what values have confirmed.
    m, there = Host.of(run.oracle.space), Sample(waves.start, 0.0, waves.gradient(waves.start), 1.0)
    moved = run.method.move(m, run.memory, there, Goal(0.0))
    assert moved.lipschitz == run.memory.confirmed


def test_a_ball_on_a_bowl_does_not_swing_for_ever():
    problem = Bowl()

    def gradients(contraction):
        method = UniversalHeavyBall(contraction=contraction)
        return minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-7,
            max_iterations=3000,
        )  # fmt: skip

    assert gradients(0.1).success
    assert gradients(0.1).njev < 1000
    assert not gradients(0.0).success


def test_flat_tails_are_followed():
    """Beyond the last bump f bends less and less: L has to fall faster than by halves."""
    chain = testbed.carmon_chain(60)

    def gradients(**given):
        result = minimize(
            chain.value_and_gradient, chain.start, jac=True, tol=1e-5, max_evaluations=4000,
            method=UniversalHeavyBall(**given),
        )  # fmt: skip
        return result.njev if result.success else math.inf

    published = gradients(**{f: getattr(PUBLISHED_HB, f) for f in PUBLISHED_HB.parameters()})
    assert gradients() <= 2.5 * published
    assert gradients(average_growth=1.0) <= 3.5 * published
    assert gradients(least_relaxation=1.0) > 5 * published


def test_beta_falls_with_successes_in_a_row():
    tail = testbed.carmon_chain(60)
    run = iterate(tail.value, tail.start, jac=tail.gradient, tol=1e-5, method=UniversalHeavyBall())
    L, row, longest = run.memory.lipschitz, 0, 0
    for step in run:
        kinds = [event.kind for event in step.events]
        if EventKind.RESTART in kinds:
            row += 1
            assert step.memory.lipschitz == pytest.approx(L * max(0.5 ** (2**row - 1), 0.01))
        elif EventKind.ROLLBACK in kinds:
            row = 0
            assert step.memory.lipschitz == 2 * L
        L, longest = step.memory.lipschitz, max(longest, row)
    assert longest >= 3


@pytest.mark.parametrize("problem", [NESTED, COSINES, testbed.rosenbrock(8)], ids=lambda p: p.name)
def test_early_ends_are_paid_for_by_successes(problem):
    """So that they cost no more than twice the bound, and the logarithm of 1/eps."""
    tol, first = 1e-9, float(norm(problem.gradient(problem.start)))
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, tol=tol, method=UniversalHeavyBall()
    )
    early, regular, before = 0, 0, run.memory
    for step in itertools.islice(run, 3000):
        memory = step.memory
        if any(event.kind is EventKind.RESTART for event in step.events):
            is_early = memory.x.grad_norm <= 0.1 * before.norm_to_contract
            early, regular = early + is_early, regular + (not is_early)
            assert memory.norm_to_contract <= (
                memory.x.grad_norm if is_early else 10 * before.norm_to_contract
            )
        else:
            assert memory.norm_to_contract <= before.norm_to_contract
        assert early <= regular + math.log10(first / tol) + 1
        before = memory
    assert early > 3


# --- bad days -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_values_beyond_a_radius_are_rejected(cls, bad, how):
    """Started with steps that lead out; the minimiser is inside."""
    waves = Waves()

    def value(x):
        return float(waves.value(x)) if norm(x) <= 2.5 else bad

    def gradient(x):
        return waves.gradient(x) if norm(x) <= 2.5 else np.full(3, math.nan)

    given = (
        {"fun": lambda x: (value(x), gradient(x)), "jac": True}
        if how == "fused"
        else {"fun": value, "jac": gradient}
    )
    run = iterate(**given, x0=waves.start, method=cls(gradient_lipschitz=1e-3), tol=1e-8)
    kinds = {event.kind for step in run for event in step.events}
    assert EventKind.NON_FINITE in kinds
    assert run.result.success
    assert norm(run.result.x) <= 2.5


@both
def test_a_function_that_is_finite_at_the_start_only_ends_the_run(cls):
    waves = Waves()

    def fun(x):
        here = np.array_equal(x, waves.start)
        return (waves.value(x) if here else math.nan), waves.gradient(x)

    result = minimize(fun, waves.start, jac=True, method=cls(gradient_lipschitz=1.0))
    assert result.status is Status.NO_PROGRESS
    np.testing.assert_array_equal(result.x, waves.start)


@both
def test_steps_that_overflow_are_rejected_unseen(cls):
    bowl = Bowl()

    def fun(x):
        assert np.all(np.isfinite(x))
        return bowl.value(x), bowl.gradient(x)

    method = cls(gradient_lipschitz=1e-140, backoff=1e30)
    with np.errstate(over="ignore", invalid="ignore"):
        result = minimize(fun, bowl.start * 1e100, jac=True, method=method, max_iterations=20)
    assert np.all(np.isfinite(result.x))


@both
def test_a_start_at_a_stationary_point_is_complete(cls):
    result = minimize(Bowl().value, np.zeros(3), jac=Bowl().gradient, method=cls(), tol=0.0)
    assert result.status is Status.COMPLETED


@both
def test_a_small_gradient_above_the_accepted_point_is_no_reason_to_stop(cls):
    waves = Waves()
    space = Space(np.zeros(3))
    oracle = Oracle(function_source(waves.value, waves.gradient, (), space))
    x0 = np.array([0.1, 0.1, 0.1])
    oracle.value(x0)
    method = cls()
    report = method.start(oracle, x0, 1e-3, 0).report
    assert within_limit(oracle, report.sample, report.limit)
    top = np.full(3, math.pi)
    report.sample = Sample(top, float(waves.value(top)), np.zeros(3), 0.0)
    assert not within_limit(oracle, report.sample, report.limit)
    report.sample = Sample(top, math.inf, np.zeros(3), math.nan)
    assert not within_limit(oracle, report.sample, report.limit)


# --- contract -------------------------------------------------------------------------------------


@both
def test_any_array_library(cls, library):
    waves = Waves()
    x0 = library.array(waves.start, "float32")
    result = minimize(waves.both, x0, jac=True, method=cls(), tol=1e-2, max_iterations=3000)
    assert result.success
    assert result.x.dtype == x0.dtype
    assert isinstance(result.x, library.array_type)


@both
def test_float32_goes_where_float64_goes(cls):
    """(dot products are float64, arrays are not)"""
    problem = testbed.rosenbrock(4)
    x0 = problem.start_in(np, np.float32)
    result = minimize(problem.value_and_gradient, x0, jac=True, method=cls(), tol=1e-3)
    assert result.success
    assert result.x.dtype == np.float32
    np.testing.assert_allclose(np.abs(result.x), 1, atol=1e-2)


@pytest.mark.slow
@both
@pytest.mark.parametrize("stop", [1, 7, 40])
def test_a_resumed_run_is_the_same_to_the_last_bit(cls, stop, how, tmp_path):
    problem = started(testbed.rosenbrock(6))
    whole, first, second = (counted(problem) for _ in range(3))
    options = {"x0": problem.start, "method": cls(), "tol": 1e-6}
    expected = minimize(**whole.given(how), **options)
    path = tmp_path / "run"
    minimize(**first.given(how), **options, checkpoint=path, max_iterations=stop)
    resumed = minimize(**second.given(how), **options, resume=path)
    assert expected.success
    assert expected.nit > stop
    assert fingerprint(resumed) == fingerprint(expected)


@both
def test_a_resumed_run_may_ask_for_more(cls, tmp_path):
    waves, path = Waves(), tmp_path / "run"
    options = {"jac": True, "method": cls()}
    minimize(waves.both, waves.start, **options, tol=1e-2, checkpoint=path)
    result = minimize(waves.both, waves.start, **options, tol=1e-7, resume=path)
    assert result.grad_norm <= 1e-7


@both
def test_the_scale_of_the_objective_does_not_matter(cls):
    waves = Waves()

    def visited(c):
        points = []

        def fun(x):
            points.append(np.array(x))
            return c * waves.value(x), c * waves.gradient(x)

        minimize(fun, waves.start, jac=True, method=cls(), tol=c * 1e-6)
        return points

    np.testing.assert_array_equal(visited(1.0), visited(2.0**40))


@both
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"gradient_lipschitz": 0.0}, "gradient_lipschitz"),
        ({"gradient_lipschitz": math.nan}, "gradient_lipschitz"),
        ({"backoff": 1.0}, "alpha"),
        ({"backoff": math.inf}, "alpha"),
        ({"relaxation": 0.0}, "beta"),
        ({"relaxation": 1.5}, "beta"),
        ({"average_growth": 0.5}, "average_growth"),
    ],
)
def test_wrong_parameters_are_named(cls, wrong, named):
    with pytest.raises(ValueError, match=named):
        cls(**wrong)


def test_wrong_parameters_of_one_method_are_named():
    with pytest.raises(ValueError, match="hessian_lipschitz"):
        ParameterFreeAGD(hessian_lipschitz=-1.0)
    with pytest.raises(ValueError, match="least_relaxation=0"):
        UniversalHeavyBall(least_relaxation=0)
    with pytest.raises(ValueError, match="contraction"):
        UniversalHeavyBall(contraction=1.0)


def test_both_are_accelerated_on_the_nested_chain():
    """A ten times smaller mu costs about sqrt(10) times as much, not ten times."""

    def gradients(cls, mu):
        problem = testbed.nested_chain(4, mu)
        return minimize(
            problem.value_and_gradient, problem.start, jac=True, method=cls(), tol=mu / 4
        ).njev

    for cls in METHODS:
        assert gradients(cls, 0.001) < 6 * gradients(cls, 0.01)
