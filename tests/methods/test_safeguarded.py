"""A fast method under guard: who has the turn, what it costs, and what it saves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import momentous
from momentous import (
    LBFGS,
    RAGD,
    RHB,
    ConjugateGradient,
    GradientDescent,
    HeuristicAGD,
    JinAGD,
    Safeguarded,
    Status,
    UniversalHeavyBall,
    iterate,
    minimize,
    testbed,
)
from momentous.core.status import EventKind
from momentous.methods.registry import method_class
from scripted import Move, Scripted, stay, stop

GUARD = UniversalHeavyBall(average_growth=1.0)
FAST, GUARANTEED = 0.0, 1.0


def relative(problem, share):
    """A gradient norm as a share of the first."""
    return share * float(np.linalg.norm(problem.gradient(problem.start)))


def solve(problem, method, share=1e-6, **options):
    return minimize(
        problem.value_and_gradient,
        problem.start,
        jac=True,
        method=method,
        tol=relative(problem, share),
        **options,
    )


def turns(result):
    """Whose turn began after which iteration."""
    return [(nit, event.value) for nit, event in result.trace.events if event.kind == "turn"]


def stand(rule, memory, shown, origin):
    """Where a method stands: at what it has accepted by value, or where it was last."""
    accepted = rule.accepted(memory)
    return shown if accepted.point is origin.point else accepted


def idle(gives_up=True):
    """A fast method that never gets anywhere: it gives up at once, or only when it is cut off."""
    return Scripted(stop if gives_up else stay)


@pytest.mark.parametrize(
    "problem",
    [testbed.rosenbrock(30), testbed.qing(20), testbed.phase_retrieval(), testbed.robust_pca()],
    ids=lambda problem: problem.name,
)
@pytest.mark.parametrize("fast", [LBFGS(), ConjugateGradient()], ids=lambda method: method.name)
def test_a_fast_method_that_earns_its_turns_is_not_disturbed(problem, fast):
    guarded, bare = solve(problem, Safeguarded(fast)), solve(problem, fast)
    assert turns(guarded) == []
    assert guarded.x.tobytes() == bare.x.tobytes()
    assert (guarded.nit, guarded.nfev, guarded.njev) == (bare.nit, bare.nfev, bare.njev)


def test_without_any_help_it_is_the_guard_alone():
    problem = testbed.rosenbrock(6)
    tol = relative(problem, 1e-5)
    options = {"jac": problem.gradient, "tol": tol}
    alone = [
        (step.x.tobytes(), step.step_size)
        for step in iterate(problem.value, problem.start, method=GUARD, **options)
    ]
    guarding, both = False, []
    for step in iterate(problem.value, problem.start, method=Safeguarded(idle()), **options):
        if guarding:
            both.append((step.x.tobytes(), step.step_size))
        guarding = step.memory.turn.guarding
    assert both == alone


def test_the_guard_has_longer_turns_the_more_often_the_fast_method_breaks_down():
    result = solve(testbed.rosenbrock(20), Safeguarded(idle()), 1e-6)
    assert result.success
    began = [nit for nit, who in turns(result) if who == GUARANTEED]
    epochs = result.trace.when(EventKind.RESTART)
    counts = [sum(a < nit <= b for nit in epochs) for a, b in itertools.pairwise(began)]
    assert counts == [2**i for i in range(len(counts))]
    assert len(counts) >= 3


SLOW = GradientDescent(backtracking=True)


@pytest.mark.parametrize("fast", [SLOW, idle(gives_up=False)], ids=["gd", "idle"])
@pytest.mark.parametrize(
    "problem", [testbed.rosenbrock(8), testbed.nested_chain(4, 0.01)], ids=lambda p: p.name
)
def test_turns_pass_exactly_as_the_rule_says(problem, fast):
    """The rule, applied from outside to what the steps show."""
    share, shortest = 1e-5, 30
    method = Safeguarded(fast, GUARD, shortest_round=shortest)
    rules = method._rules
    run = iterate(
        problem.value_and_gradient,
        problem.start,
        jac=True,
        method=method,
        tol=relative(problem, share),
        max_evaluations=40_000,
    )
    K = max(shortest, 2 * (1 / share) ** 0.25)
    low, mark = float(problem.value(problem.start)), relative(problem, 1.0)
    smallest, price, pace, guarding, guaranteed_spent, started = mark, 0.0, 0.0, False, 0, 0
    began, began_low, origin, owed, until = run.memory.turn.began, low, None, 0.0, 0.0
    passed, priced = {True: 0, False: 0}, 0
    for step in run:
        memory, turn, total = step.memory, step.memory.turn, step.nfev + step.njev
        if run.ended:
            break
        low = min(low, memory.best.value)
        expected, spent = guarding, total - began
        if guarding:
            over = any(event.kind is EventKind.RESTART for event in step.events)
            if over:
                price = turn.min_decrease_rate
                if memory.guard.origin is origin:
                    guard = memory.guard
                    fallen = (
                        origin.value
                        - stand(rules[1], guard.memory, guard.shown, guard.origin).value
                    )
                    clock = guaranteed_spent + spent if turn.guarding else turn.guaranteed_spent
                    rate = fallen / (clock - started)
                    assert price == (rate if rate > pace else 0.0)
                    priced += 1
            expected = not (total >= owed if over else total >= until)
            if memory.guard.origin is not origin:  # from the lowest point, after an epoch
                assert over
                assert memory.guard.origin.value == low
                origin, started, pace = memory.guard.origin, guaranteed_spent + spent, 0.0
        else:
            here = stand(rules[0], memory.fast, memory.shown, turn.origin)
            smallest = min(smallest, here.grad_norm)
            if turn.began > began:  # the round is over; a start of the guard is not part of it
                spent = turn.began - began
                assert spent >= K
                gain = began_low - low
                pace = max(pace, gain / spent)
                earned = gain > 8 * 2.0**-53 * abs(began_low) and gain >= price * spent
                if smallest <= mark / 2 and not memory.best_is_guards:
                    mark, earned = smallest, True
                due = (turn.began - guaranteed_spent) / 16
                expected = not earned or due >= max(guaranteed_spent, K)
                owed = turn.began + due - guaranteed_spent
                until = owed if earned else max(owed, turn.began + K)
                if not expected:
                    began, began_low = total, low
            else:
                assert spent < K
        assert turn.min_decrease_rate == price
        seen = [event.value for event in step.events if event.kind is EventKind.TURN]
        assert seen == ([] if expected == guarding else [float(expected)])
        if seen:
            guarding, passed[expected] = expected, passed[expected] + 1
            if guarding and memory.guard.origin is not origin:
                origin, started, pace = memory.guard.origin, guaranteed_spent, gain / spent
            elif not guarding:  # a start of the fast method, two evaluations, is not the guard's
                assert 0 <= guaranteed_spent + spent - turn.guaranteed_spent <= 2
                guaranteed_spent = turn.guaranteed_spent
            began, began_low = turn.began, low
    assert run.result.success, run.result.message
    assert min(passed.values()) >= 2
    assert priced >= 1


def spendings(run):
    """What either has spent after each step, and the longest step."""
    spent, before, guarding, longest = {False: 0, True: 0}, 2, False, 0
    for step in run:
        now = step.nfev + step.njev
        spent[guarding] += now - before
        longest = max(longest, now - before)
        before, guarding = now, step.memory.turn.guarding
        yield step, spent[False], spent[True], longest


SLOWEST = [GradientDescent(step_size=10.0**-n, backtracking=True, growth=1.0) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("fast", SLOWEST, ids=lambda method: f"{method.step_size:g}")
def test_a_slow_method_costs_at_most_17_times_the_guard_alone(fast):
    """However slow it is, the guard has had a 16th of what it has spent."""
    problem = testbed.nested_chain(4, 0.01)
    alone = solve(problem, GUARD, 1e-3)
    run = iterate(
        problem.value_and_gradient, problem.start, jac=True, method=Safeguarded(fast),
        tol=relative(problem, 1e-3),
    )  # fmt: skip
    for step, of_fast, of_guard, longest in spendings(run):
        K = step.memory.turn.allowance
        assert of_fast <= 16 * max(of_guard, K) + K + longest
    assert run.result.success
    assert run.result.njev <= 4 * alone.njev  # 17 times would be allowed


def test_an_epoch_that_is_cut_short_is_carried_over():
    """Beside a method that does nothing, the guard's steps are those that it takes alone."""
    problem = testbed.nested_chain(3, 3e-5)
    method, tol = Safeguarded(idle(gives_up=False)), relative(problem, 1e-2)
    options = {"jac": problem.gradient, "tol": tol, "max_iterations": 800}
    alone = [
        step.x.tobytes() for step in iterate(problem.value, problem.start, method=GUARD, **options)
    ]
    run = iterate(problem.value, problem.start, method=method, **options)
    guarding, both, midway = False, [], 0
    for step in run:
        if guarding:
            both.append(step.x.tobytes())
            midway += step.memory.turn.epoch_unfinished and not step.memory.turn.guarding
        guarding = step.memory.turn.guarding
    assert midway >= 3
    assert both == alone[: len(both)]
    assert len(both) >= 100


CHAIN = testbed.nested_chain(4, 0.01)
FIXED = [
    GradientDescent(step_size=0.2),
    HeuristicAGD(step_size=0.2, restart="gradient"),
    RAGD(step_size=0.1, momentum=0.9, radius=0.5, epoch_length=10**6),
    RHB(step_size=0.1, momentum=0.9, radius=0.5, epoch_length=10**6),
]


@pytest.mark.parametrize("fast", FIXED, ids=lambda method: method.name)
def test_methods_that_accept_nothing_by_value_lose_no_round(fast):
    """The lowest point is that of all that they have evaluated, in every round."""
    method = Safeguarded(fast, shortest_round=10)
    run = iterate(CHAIN.value, CHAIN.start, jac=CHAIN.gradient, method=method, tol=1e-5)
    low, rounds, starts = float(CHAIN.value(CHAIN.start)), set(), set()
    for step in itertools.islice(run, 600):
        memory = step.memory
        if not memory.turn.guarding:
            low = min(low, step.peek())
            assert memory.best.value <= low + 1e-12 * abs(low)
            rounds.add(memory.turn.began)
            starts.add(memory.turn.origin.point.tobytes())
    assert len(rounds) >= 5
    assert len(starts) >= 2


def test_a_guard_that_brings_nothing_leaves_the_price_as_it_was():
    """Otherwise every round would be earned for nothing from then on."""

    def rest(origin, here, count):
        """Epochs of one step that stay where they are."""
        return Move(here.point.copy(), accepts=True, restarts=True)

    problem = testbed.rosenbrock(6)
    options = {"jac": problem.gradient, "tol": relative(problem, 1e-9), "max_iterations": 3000}
    run = iterate(problem.value, problem.start, method=Safeguarded(SLOW, Scripted(rest)), **options)
    for step, of_fast, of_guard, longest in spendings(run):
        K = step.memory.turn.allowance
        assert of_fast <= 16 * max(of_guard, K) + K + longest
        assert step.memory.turn.min_decrease_rate == 0.0
    assert of_guard > 1.5 * K


def test_the_guard_alone_converges_near_a_minimum():
    """The fast method has broken down for good, and the function is a strongly convex quadratic."""
    curvatures = np.logspace(0.0, -2.0, 30)

    def both(x):
        return 0.5 * float(x @ (curvatures * x)), curvatures * x

    result = minimize(both, np.ones(30), jac=True, method=Safeguarded(idle()), tol=1e-10)
    assert result.status is Status.CONVERGED, result.message
    assert result.njev <= 2000
    bare = minimize(both, np.ones(30), jac=True, method=GUARD, tol=1e-10)
    assert result.njev <= 1.5 * bare.njev


@pytest.mark.parametrize("fast", [SLOW, LBFGS(), HeuristicAGD(restart="gradient")])
def test_the_objective_never_rises(fast):
    for problem in (testbed.rosenbrock(10), testbed.dixon_price(8), testbed.carmon_chain(6)):
        run = iterate(
            problem.value_and_gradient,
            problem.start,
            jac=True,
            method=Safeguarded(fast),
            tol=relative(problem, 1e-6),
            max_iterations=3000,
        )
        best = np.array([step.memory.best.value for step in run])
        assert np.all(np.diff(best) <= 1e-14 * np.abs(best[:-1]) + 1e-15)
        accepted = run.result
        assert accepted.fun <= float(problem.value(problem.start))


def test_the_guard_takes_at_most_half_of_the_evaluations_beside_a_working_method():
    problem = testbed.nested_chain(4, 0.01)
    run = iterate(
        problem.value_and_gradient,
        problem.start,
        jac=True,
        method=Safeguarded(idle(gives_up=False)),
        tol=relative(problem, 1e-5),
    )
    for step, of_fast, of_guard, _ in spendings(run):
        longest = step.memory.turn.allowance + 4  # a turn ends with the step that reaches its limit
        assert of_guard <= of_fast + longest
    assert run.result.success
    assert of_guard > 0


def test_a_guard_with_known_constants_ends_the_run_by_its_theorem():
    problem = testbed.nested_chain(4, 0.03)
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    guard = RAGD(L, rho, eps=relative(problem, 1e-2))
    result = minimize(
        problem.value_and_gradient, problem.start, jac=True, method=Safeguarded(idle(), guard),
        tol=1e-12,
    )  # fmt: skip
    assert result.status in (Status.COMPLETED, Status.ABOVE_TOLERANCE)
    assert result.grad_norm <= 82 * guard.eps


def test_foreign_points_are_taken_up_with_what_was_learned():
    problem = testbed.nested_chain(8, 1e-3)
    method = Safeguarded(LBFGS(memory=4), shortest_round=4)
    options = {"jac": problem.gradient, "method": method, "tol": 1e-5}
    seen, before = [], problem.start
    for step in iterate(problem.value, problem.start, **options):
        if step.memory.turn.origin.point is not before:
            before, fast = step.memory.turn.origin.point, step.memory
            known, here = fast.fast.curvature, fast.fast.current
            assert here.point is step.memory.best.point
            seen.append(len(known))
            wanted = [known.rows.row(i) @ here.gradient for i in range(2 * 4)]
            np.testing.assert_allclose(known.products.ravel(), wanted, rtol=1e-7, atol=1e-12)
    assert max(seen, default=0) > 0


def test_a_fast_method_that_earns_its_rounds_goes_on_as_if_alone():
    """The guard's share leaves its path as it is, whatever the guard finds."""
    problem = testbed.nested_chain(8, 1e-3)
    fast, tol = LBFGS(), relative(problem, 1e-2)
    options = {"jac": problem.gradient, "tol": tol}
    alone = iterate(problem.value, problem.start, method=fast, **options)
    bare = [step.x.tobytes() for step in alone]
    run = iterate(problem.value, problem.start, method=Safeguarded(fast), **options)
    path, guarding, ahead = [], False, 0
    for step in run:
        if not guarding:
            path.append(step.x.tobytes())
        guarding = step.memory.turn.guarding
        ahead += step.memory.best_is_guards
        if step.memory.turn.round_failed:
            break
    assert path == bare[: len(path)]
    assert len(path) > 250
    assert ahead > 0


def test_a_run_does_not_end_above_what_the_other_method_has_found():
    """The fast one settles in the higher of two wells; the guard has found the lower one."""

    def both(x):  # wells at -1 and 1.05, the first is lower
        return float(x[0] ** 4 / 4 - x[0] ** 2 / 2 + 0.05 * x[0]), x**3 - x + 0.05

    def jump(origin, here, count):
        """A guard that knows where the other well is, and takes its time there."""
        return Move(np.array([-0.8 - 0.1 * np.exp(here.point[0])]), accepts=True)

    slow = GradientDescent(step_size=0.02)
    method = Safeguarded(slow, Scripted(jump), shortest_round=2)
    result = minimize(both, np.array([0.2]), jac=True, method=method, tol=1e-6)
    assert minimize(both, np.array([0.2]), jac=True, method=slow, tol=1e-6).x[0] > 0.9
    assert result.success, result.message
    assert result.x[0] == pytest.approx(-1.02, abs=0.01)


def test_a_tighter_tolerance_on_resuming_reaches_both_methods(tmp_path):
    problem, path = testbed.separable("cosine"), tmp_path / "run.npz"
    constants = {
        "gradient_lipschitz": problem.gradient_lipschitz,
        "hessian_lipschitz": problem.hessian_lipschitz,
    }
    first, second = relative(problem, 1e-1), relative(problem, 1e-5)
    for guard in (RAGD(**constants), momentous.AdaRAGD(**constants), GUARD):
        method = Safeguarded(idle(), guard)
        begun = minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=first,
            checkpoint=path, max_iterations=10,
        )  # fmt: skip
        assert begun.nit > 0
        resumed = minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, tol=second,
            resume=path, max_iterations=20_000,
        )  # fmt: skip
        assert resumed.success == (resumed.grad_norm <= second), (guard.name, resumed.message)


def test_the_lowest_point_is_not_given_up_for_noise_that_is_long_gone():
    """From f(x0) = 1e16 rounding would explain differences of 1: they are real further down."""

    def both(x):
        value = float(np.sum(x**4) + 50 * np.sum(np.cos(3 * x)))
        return value, 4 * x**3 - 150 * np.sin(3 * x)

    for trial in range(12):
        start = 1e4 * np.random.default_rng(trial).uniform(-1, 1, 4)
        run = iterate(both, start, jac=True, method="auto", tol=1e-6, max_iterations=2000)
        best = np.array([step.memory.best.value for step in run])
        assert np.all(np.diff(best) <= 1e-13 * np.abs(best[:-1]))


def test_a_verdict_of_the_guard_is_forgotten_when_the_fast_method_has_moved_on():
    def give_up(origin, here, count):
        """At once, wherever it is."""
        return Move(here.point, Status.NO_PROGRESS)

    problem = testbed.rosenbrock(6)
    method = Safeguarded(LBFGS(max_trials=1), Scripted(give_up), shortest_round=6)
    result = minimize(problem.value, problem.start, jac=problem.gradient, method=method, tol=1e-9)
    if not result.success:
        assert result.numbers["grad_norm"] == pytest.approx(result.grad_norm)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize(
    ("fast", "problem"),
    [(SLOW, testbed.rosenbrock(8)), (LBFGS(memory=4), testbed.nested_chain(8, 1e-3))],
    ids=["gd", "lbfgs"],
)
def test_resuming_in_the_middle_of_a_turn_goes_on_bit_for_bit(tmp_path, fast, problem, fused):
    method = Safeguarded(fast, GUARD, shortest_round=4 if fast is not SLOW else 20)
    fun, jac = (problem.value_and_gradient, True) if fused else (problem.value, problem.gradient)
    options = {"jac": jac, "tol": relative(problem, 1e-5)}
    whole = minimize(fun, problem.start, method=method, **options)
    in_turn = next(nit for nit, who in turns(whole) if who == GUARANTEED)
    for cut in (in_turn - 1, in_turn, in_turn + 3):
        path = tmp_path / f"run-{cut}.npz"
        minimize(fun, problem.start, method=method, checkpoint=path, max_iterations=cut, **options)
        # The method is read from the checkpoint, with both methods in it.
        resumed = minimize(fun, problem.start, jac=jac, resume=path)
        assert resumed.method == method
        assert resumed.x.tobytes() == whole.x.tobytes()
        assert (resumed.nit, resumed.nfev, resumed.njev) == (whole.nit, whole.nfev, whole.njev)
        assert turns(resumed) == turns(whole)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_any_array_in_single_precision(library):
    xp = pytest.importorskip(library)
    problem = testbed.rosenbrock(8)
    x0 = problem.start_in(xp, dtype=xp.float32)
    result = minimize(problem.value, x0, jac=problem.gradient, tol=relative(problem, 1e-4))
    assert result.success
    assert type(result.x) is type(x0)
    assert result.x.dtype == x0.dtype


def test_walls_of_nan_and_a_broken_line_search_do_not_end_it():
    def both(x):
        inside = np.all(np.abs(x) < 2.5)
        value = float(np.sum(x**4 / 4 - x**2 / 2 + 0.1 * x))
        return (value, x**3 - x + 0.1) if inside else (math.nan, x * math.nan)

    start = np.array([2.4, -2.4, 0.01, 1.9])
    for fast in (LBFGS(max_trials=2), LBFGS(), ConjugateGradient(max_halvings=1)):
        result = minimize(both, start, jac=True, method=Safeguarded(fast), tol=1e-8)
        assert result.status is Status.CONVERGED, result.message
        assert np.all(np.isfinite(result.x))


def with_noise(problem, level, phase):
    """The same with values that have lost digits, as those of a simulation; gradients are exact."""

    def both(x):
        value, gradient = problem.value_and_gradient(x)
        return value + level * math.sin(5e8 * float(np.sum(x)) + phase), gradient

    return both


@pytest.mark.slow
def test_it_solves_what_breaks_the_line_search_of_the_bare_method():
    """Of 24 noises a bare line search breaks down under about 6, other ones on every machine."""
    problem = testbed.robust_regression()
    tol, missed, cases = (
        relative(problem, 1e-6),
        [],
        list(itertools.product([1e-9, 1e-8], range(12))),
    )
    for level, phase in cases:
        fun = with_noise(problem, level, phase)
        bare = minimize(fun, problem.start, jac=True, method="lbfgs", tol=tol, max_iterations=1000)
        guarded = minimize(fun, problem.start, jac=True, tol=tol)
        if not bare.success:
            assert any(who == GUARANTEED for _, who in turns(guarded))
        if not guarded.success:
            missed.append((level, phase, guarded.message))
    assert len(missed) <= len(cases) / 6, missed


def test_two_methods_that_cannot_go_on_end_the_run_with_a_reason():
    result = minimize(
        lambda x: float(x @ x), np.ones(3), jac=lambda x: -2 * x, method="safeguarded", tol=1e-6
    )
    assert result.status is Status.NO_PROGRESS
    assert "gradient" in result.message


def test_where_the_guard_cannot_go_on_the_fast_method_does():
    """It rests for some rounds before it gets on: the guard's end is not that of the run."""

    def rest_then_walk(origin, here, count):
        return Move(here.point.copy() if count < 200 else 0.5 * here.point)

    method = Safeguarded(Scripted(rest_then_walk), Scripted(stop), shortest_round=6)
    result = minimize(lambda x: (float(x @ x), 2 * x), np.ones(3), jac=True, method=method)
    assert result.status is Status.CONVERGED, result.message


def test_a_fast_method_that_rests_where_the_guard_cannot_go_on_ends_the_run():
    """Its values scatter, so that they are not level, and none is lower."""

    def scatter(origin, here, count):
        return Move((1.5 + 0.1 * math.cos(count)) * origin.point)

    method = Safeguarded(Scripted(scatter), Scripted(stop), shortest_round=6)
    result = minimize(lambda x: (float(x @ x), 2 * x), np.ones(3), jac=True, method=method)
    assert result.status is Status.NO_PROGRESS
    assert "500 steps of scripted have brought nothing" in result.message
    assert 500 <= result.nit < 600


@pytest.mark.slow
def test_a_narrow_valley_of_a_network_is_walked_to_its_end():
    """A network of tanh with terms of 1e4 that cancel: values and gradients are noisy, gradient
    steps are too short to move x, and L-BFGS goes on."""
    rng = np.random.default_rng(77)
    for shape in ((300, 40), 40, 300, (12, 12), 36):
        rng.standard_normal(shape)
    inputs = rng.standard_normal((200, 8))
    targets, start = np.sin(inputs @ rng.standard_normal(8)), 0.5 * rng.standard_normal(100)

    def fun(x):
        a, c, e = x[:80].reshape(8, 10), x[80:90], x[90:]
        h = np.tanh(inputs @ a + c)
        r = h @ e - targets
        slopes = np.outer(r, e) * (1 - h * h) / 200
        gradient = np.concatenate([(inputs.T @ slopes).ravel(), slopes.sum(axis=0), h.T @ r / 200])
        return r @ r / 400, gradient

    result = minimize(fun, start, jac=True, tol=1e-5 * float(np.linalg.norm(fun(start)[1])))
    assert result.success, result.message


def test_bad_parameters_are_refused_by_name():
    with pytest.raises(TypeError, match=r"fast='lbfgs' must be a Rule, such as LBFGS\(\)"):
        Safeguarded("lbfgs")
    with pytest.raises(TypeError, match="jin-agd calls its function itself: run it alone"):
        Safeguarded(JinAGD(1.0, 1.0))
    with pytest.raises(TypeError, match="guaranteed="):
        Safeguarded(guaranteed=LBFGS)
    for wrong in (0, 2.5, "a"):
        with pytest.raises(ValueError, match=f"shortest_round={wrong!r} must be a whole number"):
            Safeguarded(shortest_round=wrong)


def test_it_is_the_default():
    problem = testbed.rosenbrock(5)
    result = minimize(problem.value, problem.start, jac=problem.gradient)
    assert result.method == Safeguarded()
    assert method_class("auto") is Safeguarded


@pytest.mark.parametrize("fast", [ConjugateGradient(), GradientDescent()], ids=["cg", "gd"])
def test_a_method_whose_start_takes_several_evaluations(fast):
    """A linear function: the probe for its step size finds no curvature."""
    slopes = np.array([1.0, -2.0, 0.5])
    result = minimize(
        lambda x: (float(slopes @ x), slopes), np.ones(3), jac=True, method=Safeguarded(fast),
        max_evaluations=400,
    )  # fmt: skip
    assert result.status in (Status.UNBOUNDED, Status.MAX_EVALUATIONS)
    assert result.fun < -100


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_points_that_are_not_finite_do_not_keep_a_step_for_ever():
    result = minimize(
        lambda x: (float(x @ x), 2 * x), np.array([1e5, 2e5]), jac=True,
        method=Safeguarded(GradientDescent(step_size=1e308)), tol=1e-3, max_evaluations=300,
    )  # fmt: skip
    assert result.nfev <= 310


def test_one_within_another_shows_the_samples_of_the_method():
    problem = testbed.rosenbrock(8)
    inner = Safeguarded(HeuristicAGD(step_size=1e-4), shortest_round=10**6)
    options = {"jac": True, "tol": relative(problem, 1e-3), "max_iterations": 30}

    def shown(method):
        steps = iterate(problem.value_and_gradient, problem.start, method=method, **options)
        return [step.x.tobytes() for step in steps]

    outer = Safeguarded(inner, shortest_round=10**6)
    assert shown(outer) == shown(inner) == shown(inner.fast)
