"""Gradient descent, heuristically restarted AGD and conjugate gradients do what they say.

Every point at which a value or a gradient is asked for is compared with that of a plain
implementation that stores everything; then come the promises that hold on the way, and bad days.
"""

import dataclasses
import importlib.util
import math
from itertools import pairwise

import numpy as np
import pytest

from helpers import LIBRARIES, Waves, counted, fingerprint
from momentous import EventKind, Status, iterate, minimize, testbed
from momentous.core.acceptance import within_limit
from momentous.core.machine import Host
from momentous.methods.classical.conjugate_gradient import ConjugateGradient
from momentous.methods.classical.gradient_descent import GradientDescent
from momentous.methods.classical.heuristic_agd import HeuristicAGD


class Swell(Waves):
    """The waves, written so that the value is as exact as it is small."""

    def value(self, x):
        xp, a = self._terms(x)
        return xp.sum(2.0 * a * xp.sin(0.5 * x) ** 2)


WAVES = Swell()
ROSENBROCK = testbed.rosenbrock(10)
COSINES = testbed.rotated(testbed.separable("cosine", weights=np.linspace(1, 0.3, 12), scales=1.0))
REGRESSION = testbed.robust_regression()
FUNCTION, GRADIENT = {"restart": "function"}, {"restart": "gradient"}

SCALE_FREE = {
    "gd": GradientDescent(),
    "agd-function": HeuristicAGD(**FUNCTION),
    "agd-gradient": HeuristicAGD(**GRADIENT),
    "cg": ConjugateGradient(),
}
FORMS = SCALE_FREE | {
    "gd-fixed": GradientDescent(step_size=0.008),
    "agd-function-fixed": HeuristicAGD(step_size=0.008, **FUNCTION),
    "agd-gradient-fixed": HeuristicAGD(step_size=0.008, **GRADIENT),
    "agd-fallback-fixed": HeuristicAGD(step_size=0.008, fall_back=True, **GRADIENT),
    "cg-paper": ConjugateGradient(step_size=0.008, guarded=False),
}
scale_free = pytest.mark.parametrize("method", SCALE_FREE.values(), ids=SCALE_FREE)
every_form = pytest.mark.parametrize("method", FORMS.values(), ids=FORMS)
FIXED = {name: FORMS[name] for name in FORMS if name.endswith("fixed")}
every_fixed = pytest.mark.parametrize("method", FIXED.values(), ids=FIXED)


def bowl(x):
    """|x|^2/2 with its gradient."""
    return 0.5 * float(np.dot(x, x)), 1.0 * x


# --- the methods, written down plainly ------------------------------------------------------------


class Diary:
    """A problem that writes down where it was evaluated, and what was restarted."""

    def __init__(self, problem):
        self.problem, self.values, self.gradients, self.restarts = problem, [], [], 0

    def f(self, x):
        self.values.append(np.array(x))
        return float(self.problem.value(x))

    def g(self, x):
        self.gradients.append(np.array(x))
        return np.array(self.problem.gradient(x))


def plain_gd(seen, x, n, *, eta):
    seen.f(x), seen.g(x)
    for _ in range(n):
        x = x - eta * seen.problem.gradient(x)
        seen.g(x)


def plain_backtracking_gd(seen, x, n, *, L):
    fx, gx = seen.f(x), seen.g(x)
    for _ in range(n):
        while True:
            y = x - gx / L
            fy = seen.f(y)
            if fy <= fx - gx @ gx / (2 * L):
                break
            L = 2 * L
        x, fx, gx = y, fy, seen.g(y)
        L = 0.9 * L


def plain_heuristic(seen, x0, n, *, eta, restart):
    """Section 5.1 of Li & Lin, and the same with the gradient test."""
    seen.f(x0)
    xs, y, m = [x0], x0, 1
    for _ in range(n):
        gy = seen.g(y)
        xs.append(y - eta * gy)
        if restart == "function":
            fine = seen.f(xs[-1]) <= seen.problem.value(xs[-2])
        else:
            fine = gy @ (xs[-1] - xs[-2]) <= 0
        m = m + 1 if fine else 1
        seen.restarts += not fine
        y = xs[-1] + (m - 1) / (m + 2) * (xs[-1] - xs[-2])


def plain_backtracking_heuristic(seen, x, n, *, L, restart):
    """As Marumo & Takeda have it: a restart goes back."""
    known = {x.tobytes()}  # where f has been asked for already

    def value(z):
        if z.tobytes() in known:
            return float(seen.problem.value(z))
        known.add(z.tobytes())
        return seen.f(z)

    seen.f(x)
    y, theta = x, 1.0
    for _ in range(n):
        gy, fy = seen.g(y), value(y)
        while True:
            new = y - gy / L
            if value(new) <= fy - gy @ gy / (2 * L):
                break
            L = 2 * L
        up = gy @ (new - x) if restart == "gradient" else value(new) - value(x)
        if up > 0:
            y, theta = x, 1.0
            seen.restarts += 1
        else:
            after = theta * (math.sqrt(theta**2 + 4) - theta) / 2
            beta = theta * (1 - theta) / (theta**2 + after)
            theta, y = after, new + beta * (new - x) if beta else new
            x = new
        L = 0.9 * L


def plain_cg(seen, x, n, *, t, guarded):
    fx, gx = seen.f(x), seen.g(x)
    delta = -gx
    for _ in range(n):
        t = 2 * t
        for _ in range(11):
            y = x + t * delta
            fy = seen.f(y)
            if fy <= fx + t * (delta @ gx) / 2:
                break
            t_taken, t = t, t / 2
        else:
            assert not guarded, "the reference has no answer to that"
            t = t_taken
        gy = seen.g(y)
        delta = -gy + max(gy @ (gy - gx) / (gx @ gx), 0) * delta
        if guarded and delta @ gy > -1e-10 * math.sqrt((delta @ delta) * (gy @ gy)):
            delta = -gy
            seen.restarts += 1
        x, fx, gx = y, fy, gy


def agrees(problem, method, reference, n, *, restarts=None, **parameters):
    """All evaluations of n iterations, one by one."""
    ours, theirs = Diary(problem), Diary(problem)
    run = iterate(ours.f, problem.start, jac=ours.g, method=method, tol=0.0, max_iterations=n)
    happened = sum(
        event.kind in (EventKind.RESTART, EventKind.ROLLBACK)
        for step in run
        for event in step.events
    )
    reference(theirs, np.array(problem.start), n, **parameters)
    for mine, plain in ((ours.values, theirs.values), (ours.gradients, theirs.gradients)):
        assert len(mine) == len(plain)
        scale = max(np.abs(x).max() for x in plain)
        np.testing.assert_allclose(mine, plain, rtol=1e-10, atol=1e-10 * scale)
    assert happened == theirs.restarts
    if restarts is not None:
        assert theirs.restarts >= restarts, "the case shows too little"


def far(problem):
    offset = np.random.default_rng(3).standard_normal(problem.dimension)
    return dataclasses.replace(problem, start=problem.start + 0.5 * offset)


def steps(problem):
    """As long as the values are well above their rounding: the plain versions do not know it."""
    return 20 if "cosine" in problem.name else 40


PROBLEMS = [ROSENBROCK, far(COSINES), REGRESSION, testbed.qing(10), testbed.phase_retrieval()]
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
each_test = pytest.mark.parametrize("restart", ["function", "gradient"])


@each_problem
def test_gradient_descent_with_a_fixed_step_goes_where_the_formula_goes(problem):
    agrees(problem, GradientDescent(step_size=2e-4), plain_gd, 60, eta=2e-4)


@each_problem
def test_gradient_descent_with_backtracking_tries_what_the_formula_tries(problem):
    method = GradientDescent(gradient_lipschitz=1e-3, backtracking=True)
    agrees(problem, method, plain_backtracking_gd, steps(problem), L=1e-3)


@each_test
@each_problem
def test_heuristic_agd_with_a_fixed_step_is_the_iteration_of_the_paper(problem, restart):
    # Backtracking gradient descent knows a step size that is not much too long.
    eta = 0.25 * minimize(
        problem.value, problem.start, jac=problem.gradient, method=GradientDescent(),
        tol=0.0, max_iterations=40,
    ).trace["step_size"].min()  # fmt: skip
    method = HeuristicAGD(step_size=eta, restart=restart)

    def reference(seen, x, n, **parameters):
        plain_heuristic(seen, x, n, **parameters)
        assert len(seen.gradients) == n

    agrees(problem, method, reference, 120, eta=eta, restart=restart)


@each_test
def test_heuristic_agd_restarts_where_the_paper_does(restart):
    method = HeuristicAGD(step_size=0.5, restart=restart)
    agrees(far(COSINES), method, plain_heuristic, 80, restarts=2, eta=0.5, restart=restart)


@each_test
@each_problem
def test_heuristic_agd_with_backtracking_tries_what_the_formula_tries(problem, restart):
    method = HeuristicAGD(
        gradient_lipschitz=1e-3, backtracking=True, restart=restart, fall_back=False
    )
    agrees(problem, method, plain_backtracking_heuristic, steps(problem), L=1e-3, restart=restart)


@each_test
def test_heuristic_agd_with_backtracking_restarts_where_the_formula_does(restart):
    method = HeuristicAGD(
        gradient_lipschitz=1.0, backtracking=True, restart=restart, fall_back=False
    )
    agrees(WAVES, method, plain_backtracking_heuristic, 80, restarts=2, L=1.0, restart=restart)


@each_problem
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "paper"])
def test_conjugate_gradients_try_what_the_formula_tries(problem, guarded):
    method = ConjugateGradient(step_size=1e-3, guarded=guarded)
    agrees(problem, method, plain_cg, steps(problem), t=1e-3, guarded=guarded)


def test_conjugate_gradients_take_the_last_trial_in_the_paper():
    """f(x) = |x|^2/2 from 1 with t = 2^20: after ten halvings x is -2047, and is taken."""
    step = next(iterate(bowl, [1.0], jac=True, method=ConjugateGradient(2.0**20, guarded=False)))
    assert step.x[0] == -2047.0
    assert step.nfev == 1 + 11
    guarded = iterate(bowl, [1.0], jac=True, method=ConjugateGradient(2.0**20))
    assert next(guarded).x[0] == 1.0  # rejected
    result = guarded.finish()
    assert result.success
    assert abs(result.x[0]) <= 1e-5


def test_iterates_that_can_be_computed_by_hand():
    fixed = iterate(bowl, [1.0], jac=True, method=HeuristicAGD(step_size=0.5), tol=0)
    steps = [next(fixed) for _ in range(6)]
    ys = [1.0, 0.375, 0.0625, -0.046875, -0.0546875, -0.02734375]
    np.testing.assert_allclose([step.x[0] for step in steps], ys, rtol=1e-14)
    # x^5 = -0.02734375 is higher than x^4 = -0.0234375: it is kept, and y^5 = x^5.
    assert [bool(step.events) for step in steps] == [False] * 4 + [True, False]
    descent = iterate(bowl, [1.0], jac=True, method=GradientDescent(8.0, backtracking=True))
    step = next(descent)  # 8, 4 and 2 are too long, 1 leads to the minimum
    assert (step.x[0], step.step_size, step.nfev) == (0.0, 1.0, 1 + 4)


# --- what it costs --------------------------------------------------------------------------------

COSTS = {  # values per iteration, apart from trials; does it search?
    "gd-fixed": (0, False),
    "agd-function-fixed": (1, False),
    "agd-gradient-fixed": (0, False),
    "agd-fallback-fixed": (1, False),
    "gd": (0, True),
    "cg": (0, True),
    "cg-paper": (0, True),
}


@pytest.mark.parametrize("name", COSTS)
def test_an_iteration_costs_what_the_docstring_says(name):
    values, searches = COSTS[name]
    problem = counted(WAVES)
    run = iterate(problem.fun, WAVES.start, jac=problem.jac, method=FORMS[name], tol=0)
    before = (problem.values, problem.gradients)
    assert before[0] == 1
    assert before[1] == (2 if name in SCALE_FREE else 1)  # the probe
    n, trial = 15, run.memory.search.first
    for _ in range(n):
        step = next(run)
        if searches:
            values += 1 + round(math.log2(trial / step.step_size))
        trial = step.memory.search.first
    at_x0 = name.startswith("agd")  # their first gradient is the one at x0
    assert problem.gradients - before[1] == n - at_x0
    assert problem.values - before[0] == values * (1 if searches else n)
    assert (run.progress.nfev, run.progress.njev) == (problem.values, problem.gradients)


def test_fused_calls_are_not_made_twice():
    for method in FORMS.values():
        problem = counted(WAVES)
        result = minimize(problem.both, WAVES.start, jac=True, method=method, tol=1e-3)
        assert result.success
        assert (result.nfev, result.njev) == (problem.values, problem.gradients)
    # A point that a restart goes back to has its gradient.
    points = []

    def both(x):
        points.append(x.tobytes())
        return COSINES.value_and_gradient(x)

    method = HeuristicAGD(gradient_lipschitz=1.0, backtracking=True, restart="function")
    result = minimize(both, far(COSINES).start, jac=True, method=method, tol=1e-8)
    assert result.restarts >= 1
    assert len(points) == len(set(points))


def test_backtracking_takes_few_trials():
    L, first = 100.0, 1e-3
    result = minimize(
        WAVES.value, WAVES.start, jac=WAVES.gradient, tol=1e-8,
        method=GradientDescent(gradient_lipschitz=first, backtracking=True),
    )  # fmt: skip
    N = result.nit
    assert result.nfev - 1 <= N + N * math.log2(1 / 0.9) + math.log2(2 * L / first) + 1
    assert result.trace["step_size"][1:].min() >= 1 / (2 * L)


# --- what holds on the way ------------------------------------------------------------------------


@pytest.mark.parametrize("problem", testbed.with_constants(40), ids=lambda p: p.name)
def test_gradient_descent_is_as_fast_as_its_bound(problem):
    L, eps = problem.gradient_lipschitz, 0.05
    gap = float(problem.value(problem.start)) - problem.minimum
    for method, factor in (
        (GradientDescent(gradient_lipschitz=L), 2),
        (GradientDescent(gradient_lipschitz=L / 8, backtracking=True), 4),
    ):
        result = minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=eps,
            max_iterations=20_000,
        )  # fmt: skip
        assert result.grad_norm <= eps
        assert result.nit <= math.ceil(factor * L * gap / eps**2)


@each_problem
@pytest.mark.parametrize("name", ["gd", "cg"])
def test_every_accepted_step_lowers_the_objective(problem, name):
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method=FORMS[name], tol=1e-4,
        max_iterations=300,
    )  # fmt: skip
    steps = [(run.memory, math.nan), *((step.memory, step.step_size) for step in run)]
    for (before, _), (after, step_size) in pairwise(steps):
        x, new = before.current, after.current
        if new is x:
            continue
        direction = before.p if name == "cg" else x.gradient
        slope = float(np.dot(direction, x.gradient))
        assert slope > 0
        assert new.value <= x.value - step_size * slope / 2 + 1e-14 * abs(x.value)


@each_problem
def test_the_function_test_with_backtracking_never_rises(problem):
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method=SCALE_FREE["agd-function"],
        tol=1e-4,
    )  # fmt: skip
    values = [step.memory.current.value for step in run]
    noise = 8 * 2.0**-53 * max(map(abs, values))
    assert all(after <= before + noise for before, after in pairwise(values))


def test_falling_back_starts_from_the_lowest_point():
    """On rough ground the gradient test lets f rise; the guard then goes back."""

    def wavy(x):
        value = 0.05 * float(np.dot(x, x)) - float(np.sum(np.cos(3 * x)))
        return value, 0.1 * x + 3 * np.sin(3 * x)

    start = np.random.default_rng(0).uniform(-9, 9, 6)
    seen = set()
    for fall_back in (True, False):
        method = HeuristicAGD(step_size=0.03, restart="gradient", fall_back=fall_back)
        run = iterate(wavy, start, jac=True, method=method, tol=1e-9, max_iterations=3000)
        for step in run:
            kinds = {event.kind for event in step.events}
            seen |= {(fall_back, kind) for kind in kinds}
            if fall_back and kinds:
                assert wavy(step.memory.start.point)[0] <= step.memory.best.value + 1e-14
                assert step.memory.y is step.memory.current.point
    assert (True, EventKind.ROLLBACK) in seen
    assert (False, EventKind.ROLLBACK) not in seen


def test_falling_back_ends_where_a_fixed_step_only_leads_uphill():
    method = HeuristicAGD(step_size=3.0, fall_back=True)
    result = minimize(bowl, [1.0, 2.0], jac=True, method=method)
    assert result.status is Status.NO_PROGRESS
    assert result.nit == 1
    assert "step size 3" in result.message
    np.testing.assert_array_equal(result.x, [1.0, 2.0])


def test_a_direction_that_does_not_descend_is_replaced():
    run = iterate(
        REGRESSION.value, REGRESSION.start, jac=REGRESSION.gradient, method=ConjugateGradient(),
        tol=1e-8,
    )  # fmt: skip
    resets = 0
    for step in run:
        memory = step.memory
        norms = np.linalg.norm(memory.p) * np.linalg.norm(memory.current.gradient)
        assert np.dot(memory.p, memory.current.gradient) >= 1e-10 * norms
        for event in step.events:
            assert event.kind is EventKind.RESTART
            assert memory.steepest
            resets += 1
    assert run.result.success
    assert run.result.restarts == resets >= 1


def test_a_direction_along_which_no_trial_is_accepted_is_replaced():
    method = ConjugateGradient()
    run = iterate(ROSENBROCK.value, ROSENBROCK.start, jac=ROSENBROCK.gradient, method=method)
    memory = next(step.memory for step in run if not step.memory.steepest)
    search = memory.search.begin(Host.of(run.oracle.space), 1e6, 1.0)
    after = method.step(run.oracle, dataclasses.replace(memory, search=search))
    assert after.memory.current is memory.current
    assert after.memory.steepest
    assert [event.kind for event in after.report.events] == [EventKind.RESTART]
    again = method.step(run.oracle, after.memory)  # as long a step, now along the gradient
    assert again.memory.current is memory.current
    assert again.memory.search.first == 1e6 / 2**11
    assert again.report.ending is None


def test_a_small_gradient_up_on_a_hill_is_not_the_end():
    """At pi the waves have a maximum; a method that would go back does not stay there."""
    for name in ("agd-function", "agd-gradient", "agd-fallback-fixed", "agd-function-fixed"):
        method = FORMS[name]
        run = iterate(WAVES.value, WAVES.start, jac=WAVES.gradient, method=method)
        report = next(run).report
        assert within_limit(run.oracle, report.sample, report.limit)
        top = run.oracle.gradient(np.full(3, math.pi))
        known = run.oracle.last
        on_top = dataclasses.replace(report, sample=top)
        assert within_limit(run.oracle, on_top.sample, on_top.limit) == (
            name == "agd-function-fixed"
        )
        assert run.oracle.last is known


def test_the_function_test_sees_a_restart_that_rounding_hides():
    """Where values are equal within rounding it is as good as the gradient test."""
    problem = testbed.shifted(testbed.dixon_price(6), 1e4)
    used = {
        restart: minimize(
            problem.value, problem.start, jac=problem.gradient,
            method=HeuristicAGD(restart=restart), tol=1e-8,
        ).njev
        for restart in ("function", "gradient")
    }  # fmt: skip
    assert used["function"] <= 1.3 * used["gradient"]


# --- convergence ----------------------------------------------------------------------------------

SMALL = testbed.problems(60)


@scale_free
@pytest.mark.parametrize("problem", SMALL, ids=lambda p: p.name)
def test_nothing_needs_to_be_given(problem, method):
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-3,
        max_iterations=20_000,
    )  # fmt: skip
    assert result.success, result.message
    assert result.grad_norm <= 1e-3
    assert result.fun <= float(problem.value(problem.start))
    np.testing.assert_allclose(np.linalg.norm(problem.gradient(result.x)), result.grad_norm)


def test_momentum_and_conjugacy_pay():
    used = {
        name: minimize(
            ROSENBROCK.value, ROSENBROCK.start, jac=ROSENBROCK.gradient, method=method, tol=1e-4
        ).njev
        for name, method in SCALE_FREE.items()
    }
    assert 4 * max(used["agd-function"], used["agd-gradient"], used["cg"]) < used["gd"]


@scale_free
def test_the_scale_of_the_objective_does_not_matter(method):
    plain = minimize(
        REGRESSION.value, REGRESSION.start, jac=REGRESSION.gradient, method=method, tol=1e-2
    )
    for scale in (2.0**-60, 2.0**60):
        scaled = minimize(
            lambda x, s=scale: s * REGRESSION.value(x), REGRESSION.start,
            jac=lambda x, s=scale: s * REGRESSION.gradient(x), method=method, tol=1e-2 * scale,
        )  # fmt: skip
        assert (scaled.nit, scaled.nfev, scaled.njev) == (plain.nit, plain.nfev, plain.njev)
        np.testing.assert_array_equal(scaled.x, plain.x)


@pytest.mark.parametrize("name", [name for name in SCALE_FREE if name != "gd"])
def test_rounding_does_not_stop_the_way(name):
    """With 1000 added to f, values say nothing below a gradient of about 1e-5."""
    problem = testbed.shifted(testbed.rosenbrock(20), 1000.0)
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, method=SCALE_FREE[name], tol=1e-9,
        max_iterations=5000,
    )  # fmt: skip
    assert result.success, result.message


def test_rounding_does_not_stop_gradient_descent():
    problem = testbed.shifted(testbed.qing(10), 1000.0)
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, method=GradientDescent(), tol=1e-9
    )
    assert result.success, result.message
    assert result.nit < 300


# --- bad days -------------------------------------------------------------------------------------


def with_a_wall(outside, gradient_outside):
    """The waves within |x_i| <= 2.1; elsewhere something else."""

    def fun(x):
        if np.max(np.abs(x)) > 2.1:
            return outside
        return WAVES.value(x)

    def jac(x):
        if np.max(np.abs(x)) > 2.1:
            return np.full_like(x, gradient_outside)
        return WAVES.gradient(x)

    return fun, jac


WALLS = {
    "nan": (math.nan, math.nan),
    "inf": (math.inf, 1.0),
    "minus-inf": (-math.inf, 0.0),
    "gradient": (-1e6, math.nan),
    "value": (math.nan, 0.0),
}


@pytest.mark.parametrize("wall", WALLS)
@pytest.mark.parametrize("how", ["separate", "fused"])
@scale_free
def test_what_is_not_finite_is_no_progress(method, how, wall):
    """A first step that is far too long meets the wall, and nobody stays there."""
    method = dataclasses.replace(method, step_size=1.0)
    if not isinstance(method, ConjugateGradient):
        method = dataclasses.replace(method, backtracking=True)
    fun, jac = with_a_wall(*WALLS[wall])
    given = {"jac": jac, "fun": fun}
    if how == "fused":
        given = {"jac": True, "fun": lambda x: (fun(x), jac(x))}
    if wall == "gradient" and how == "separate" and isinstance(method, HeuristicAGD):
        # Its x is accepted by its value alone: it goes back when the gradient turns out to be bad.
        result = minimize(x0=WAVES.start, method=method, tol=1e-6, **given)
        assert math.isfinite(result.grad_norm)
        assert result.trace.when(EventKind.NON_FINITE)
        return
    result = minimize(x0=WAVES.start, method=method, tol=1e-6, **given)
    assert result.success, result.message
    assert np.max(np.abs(result.x)) <= 2.1
    assert result.trace.when(EventKind.NON_FINITE)


@pytest.mark.parametrize("name", [name for name in FORMS if name.startswith("agd")])
def test_momentum_that_leads_out_of_the_domain_is_dropped(name):
    """|x|^2/2, known down to x = -0.001 only."""

    def fun(x):
        return bowl(x) if x[0] >= -1e-3 else (math.nan, np.full(1, math.nan))

    method = FORMS[name]
    if name.endswith("fixed"):
        method = dataclasses.replace(method, step_size=0.1)
    else:
        method = dataclasses.replace(method, step_size=0.1, backtracking=True, growth=1.0)
    result = minimize(fun, [1.0], jac=True, method=method, tol=1e-8)
    assert result.success, result.message
    bad = result.trace.when(EventKind.NON_FINITE)
    assert bad
    assert set(bad) <= set(result.trace.when(EventKind.RESTART))


@every_fixed
def test_a_fixed_step_that_leaves_the_domain_ends_with_a_remedy(method):
    fun, jac = with_a_wall(math.nan, math.nan)
    result = minimize(fun, WAVES.start, jac=jac, method=dataclasses.replace(method, step_size=1.0))
    assert result.status is Status.NON_FINITE
    assert "smaller" in result.message
    assert math.isfinite(result.fun)
    assert math.isfinite(result.grad_norm)


def test_the_paper_takes_a_bad_trial_and_says_so():
    fun, jac = with_a_wall(math.nan, math.nan)
    method = ConjugateGradient(step_size=1e6, guarded=False)
    result = minimize(fun, WAVES.start, jac=jac, method=method)
    assert result.status is Status.NON_FINITE
    assert "guarded" in result.message
    assert math.isfinite(result.fun)


@scale_free
def test_a_gradient_with_the_wrong_sign_is_noticed(method):
    result = minimize(
        WAVES.value, WAVES.start, jac=lambda x: -WAVES.gradient(x), method=method,
        max_iterations=500,
    )  # fmt: skip
    assert result.status is Status.NO_PROGRESS
    assert "gradient" in result.message
    assert result.nit < 20


@scale_free
def test_a_function_without_a_lower_bound_does_no_harm(method):
    for dtype in (np.float32, np.float64):
        result = minimize(
            lambda x: (x.sum(), np.ones_like(x)), np.zeros(3, dtype), jac=True, method=method,
            max_iterations=3500,
        )  # fmt: skip
        assert not result.success
        assert np.isfinite(result.x).all()
        assert result.fun < -1e10


@every_form
def test_a_stationary_start_is_the_end(method):
    result = minimize(bowl, np.zeros(3), jac=True, method=method, tol=0)
    assert result.status is Status.COMPLETED
    assert result.nit <= 1


@pytest.mark.parametrize(
    ("cls", "parameters", "message"),
    [
        (GradientDescent, {"step_size": 0.0}, "positive"),
        (GradientDescent, {"step_size": math.inf}, "finite"),
        (GradientDescent, {"gradient_lipschitz": -1.0}, "positive"),
        (GradientDescent, {"step_size": 1.0, "gradient_lipschitz": 1.0}, "one of them"),
        (GradientDescent, {"backtracking": False}, "step_size"),
        (GradientDescent, {"backoff": 1.0}, "above 1"),
        (HeuristicAGD, {"growth": 0.9}, "at least 1"),
        (HeuristicAGD, {"restart": "never"}, "'gradient'"),
        (ConjugateGradient, {"max_halvings": 0}, "whole number"),
        (ConjugateGradient, {"step_size": math.nan}, "positive"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(cls, parameters, message):
    with pytest.raises(ValueError, match=message):
        cls(**parameters)


# --- any array, any day ---------------------------------------------------------------------------


@every_form
def test_single_precision_stays(method):
    x0 = WAVES.start.astype(np.float32)
    result = minimize(WAVES.both, x0, jac=True, method=method, tol=1e-3, max_iterations=3000)
    assert result.success, result.message
    assert result.x.dtype == np.float32
    assert np.abs(np.sin(result.x)).max() < 1e-2


OTHER_LIBRARIES = [
    pytest.param(lib, dtype, id=f"{lib}-{dtype}")
    for lib in LIBRARIES
    for dtype in ("float32", "float64")
    if lib.name != "numpy" and dtype in lib.dtypes
]


@pytest.mark.parametrize(("library", "dtype"), OTHER_LIBRARIES)
@every_form
def test_any_library(method, library, dtype):
    if importlib.util.find_spec(library.module.split(".")[0]) is None:
        pytest.skip(f"{library.module} is not installed")
    x0 = library.array(WAVES.start, dtype)
    result = minimize(WAVES.both, x0, jac=True, method=method, tol=1.0, max_iterations=25)
    numbers = np.asarray(WAVES.start, dtype)
    plain = minimize(WAVES.both, numbers, jac=True, method=method, tol=1.0, max_iterations=25)
    assert isinstance(result.x, library.array_type)
    assert result.x.dtype == x0.dtype
    tolerance = 1e-2 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(library.numpy(result.x), plain.x, rtol=tolerance, atol=tolerance)


@every_form
def test_matrices_are_vectors(method):
    x0 = WAVES.start.reshape(3, 1)
    flat = minimize(WAVES.both, WAVES.start, jac=True, method=method, tol=1e-6)
    result = minimize(WAVES.both, x0, jac=True, method=method, tol=1e-6)
    np.testing.assert_array_equal(result.x, flat.x.reshape(3, 1))


@pytest.mark.parametrize("how", ["separate", "fused"])
@every_form
def test_a_run_that_was_cut_goes_on_bit_for_bit(method, how, tmp_path):
    def run(**options):
        given = counted(WAVES).given(how)
        return minimize(x0=WAVES.start, method=method, tol=1e-7, **given, **options)

    whole, path = run(max_iterations=60), tmp_path / "run.npz"
    for cut in (1, 2, 3, 7, 20):
        run(max_iterations=cut, checkpoint=path)
        assert fingerprint(run(resume=path, max_iterations=60)) == fingerprint(whole)


@every_form
def test_large_vectors_are_handled_in_blocks_and_nothing_is_written_twice(method):
    """Beyond one block arrays are used again: a mistake in who holds what would show here."""
    copies = 50_000  # so that the norms of the gradient, and with them tol, scale
    big, small = Swell(3 * copies), Swell(3)
    options = {"jac": True, "method": method, "max_iterations": 12, "tol": 0.0}
    wide = minimize(big.both, big.start, **options)
    narrow = minimize(small.both, small.start, **options)
    np.testing.assert_allclose(
        wide.x.reshape(copies, 3), np.tile(narrow.x, (copies, 1)), rtol=1e-6, atol=1e-9
    )
