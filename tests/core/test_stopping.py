"""Every run ends with a reason, and the reason is true: criteria, statuses and the numbers."""

import math

import numpy as np
import pytest

from helpers import NEEDS_CONSTANTS, Bowl, Waves, counted
from momentous import (
    Evaluations,
    GradientNorm,
    Iterations,
    Progress,
    Stagnation,
    Status,
    StepLength,
    Target,
    ValueChange,
    WallTime,
    iterate,
    minimize,
    testbed,
)
from momentous.core.stopping import Stand
from momentous.methods.registry import REGISTRY

BOWL, WAVES = Bowl(), Waves()


def solve(problem=BOWL, x0=None, **options):
    options.setdefault("jac", problem.gradient)
    return minimize(problem.value, problem.start if x0 is None else x0, **options)


def progress(**known):
    return Progress(**{"nit": 7, "grad_norm": 0.5, "fun": 3.0, "nfev": 2, "njev": 9} | known)


# --- one criterion --------------------------------------------------------------------------------

COUNTS = {"nfev": 2, "njev": 9, "grad_norm": 0.5}
FIRES = [
    (GradientNorm(0.5), Status.CONVERGED, {"grad_norm": 0.5, "tolerance": 0.5}, "0.5"),
    (Target(3.0), Status.TARGET_REACHED, {"fun": 3.0, "target": 3.0}, "3"),
    (Iterations(7), Status.MAX_ITERATIONS, {"nit": 7, "limit": 7, "grad_norm": 0.5}, "7"),
    (WallTime(1.5), Status.MAX_TIME, {"time": 2.0, "limit": 1.5, "grad_norm": 0.5}, "1.5 s"),
    (Stagnation(4), Status.STAGNATED, {"best_grad_norm": 0.25, "best_nit": 3}, "0.25"),
    (Evaluations(9), Status.MAX_EVALUATIONS, COUNTS | {"limit": 9}, "9"),
    (ValueChange(0.25, 2), Status.SMALL_CHANGE, {"decrease": 1.0, "tolerance": 0.25}, "1, which"),
    (StepLength(0.5, 2), Status.SMALL_CHANGE, {"move": 2.0, "tolerance": 0.5}, "2, which"),
]
WINDOWS = {
    "start_norm": 1.0,
    "stands": (
        Stand(4, 9.0, np.inf, 1.0, 1.0, False),
        Stand(5, 4.0, 9.0, 1.0, 1.0, False),
        Stand(6, 4.0, 2.0, 4.0, 1.0, False),
        Stand(7, 3.0, 1.0, 4.0, 1.0, False),
    ),
}


@pytest.mark.parametrize(("criterion", "status", "numbers", "words"), FIRES, ids=str)
def test_a_criterion_fires_at_its_limit_with_its_numbers(criterion, status, numbers, words):
    ending = criterion.check(progress(time=2.0, best_grad_norm=0.25, best_nit=3, **WINDOWS))
    assert ending.status is status
    assert ending.numbers == numbers
    assert words in ending.message


@pytest.mark.parametrize(
    "criterion",
    [
        GradientNorm(0.49),
        Target(2.99),
        Iterations(8),
        Evaluations(10),
        WallTime(2.1),
        Stagnation(5),
    ],
    ids=str,
)
def test_a_criterion_is_silent_before_its_limit(criterion):
    assert criterion.check(progress(time=2.0, best_grad_norm=0.25, best_nit=3)) is None


@pytest.mark.parametrize("criterion", [GradientNorm(1e300), Target(1e300)])
def test_nan_meets_no_goal(criterion):
    assert criterion.check(progress(grad_norm=math.nan, fun=math.nan)) is None


@pytest.mark.parametrize("criterion", [Target(0.0), Target(-math.inf)])
def test_minus_infinity_meets_no_target(criterion):
    assert criterion.check(progress(fun=-math.inf)) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GradientNorm(-1.0), "tolerance=-1.0"),
        (lambda: GradientNorm(math.nan), "tolerance=nan"),
        (lambda: Target(math.nan), "target=nan"),
        (lambda: Iterations(-1), "max_iterations=-1"),
        (lambda: Evaluations(-1), "max_evaluations=-1"),
        (lambda: WallTime(-1), "max_time=-1"),
        (lambda: WallTime(math.nan), "max_time=nan"),
        (lambda: Stagnation(0), "iterations=0"),
    ],
)
def test_impossible_limits_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"tol": 1e-3}, Status.CONVERGED),
        ({"target": 1.0}, Status.TARGET_REACHED),
        ({"max_iterations": 12}, Status.MAX_ITERATIONS),
        ({"max_evaluations": 12}, Status.MAX_EVALUATIONS),
        ({"max_time": 0.0}, Status.MAX_TIME),
        ({"stop": GradientNorm(5.0)}, Status.CONVERGED),
        ({"stop": Iterations(3)}, Status.MAX_ITERATIONS),
        ({"callback": lambda intermediate_result: intermediate_result.nit == 3}, Status.STOPPED),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else str(each),
)
def test_every_reason_reaches_the_result(options, status, method):
    result = solve(WAVES, **method.plain(WAVES), **options)
    if method.name == "perturbed-ragd" and options == {"tol": 1e-3}:
        status = Status.COMPLETED  # a small gradient alone is not its goal
    assert result.status is status
    assert result.success == (status in {Status.CONVERGED, Status.TARGET_REACHED, Status.COMPLETED})
    assert result.message
    assert result.numbers


def test_a_run_ends_as_if_it_were_asked_in_every_iteration(monkeypatch):
    slope = np.arange(1.0, 5.0)
    rosenbrock = testbed.rosenbrock(4)
    functions = {
        "falls for ever": (lambda x: (float(slope @ x), slope.copy()), np.ones(4)),
        "is level": (lambda x: (1.0, 1e-3 * slope), np.ones(4)),
        "has a minimum": (rosenbrock.value_and_gradient, rosenbrock.start),
    }
    endings = (
        {"max_iterations": 45}, {"max_iterations": 32}, {"max_evaluations": 50}, {"target": 1.0},
        {"stop": Stagnation(7)}, {"stop": GradientNorm(1.0) & Iterations(20)}, {},
    )  # fmt: skip

    def endings_of_runs():
        for fun, x0 in functions.values():
            for name in ("auto", "lbfgs", "gd", "ada-rhb"):
                for given in endings:
                    options = {"max_iterations": 700} | given
                    run = minimize(fun, x0, jac=True, method=name, **options)
                    yield run.status, run.message, run.nit, run.nfev

    seen = list(endings_of_runs())
    monkeypatch.setattr("momentous.core.loop.next_look", lambda *_: (0.0, math.inf))
    assert seen == list(endings_of_runs())
    assert len({status for status, *_ in seen}) >= 6


def test_a_limit_is_kept_exactly(method):
    for limit in (1, 2, 13):
        assert solve(WAVES, max_iterations=limit, **method.plain(WAVES)).nit == limit


@pytest.mark.parametrize("how", ["fused", "separate"])
@pytest.mark.parametrize("name", ["auto", "lbfgs", "cg", "gd", "ada-ragd", "universal-hb"])
def test_a_budget_of_evaluations_is_so_many_calls(name, how):
    for limit in range(4, 24, 3):
        user = counted(WAVES)
        result = minimize(
            x0=WAVES.start, method=name, max_evaluations=limit, tol=0.0, **user.given(how)
        )
        assert result.status is Status.MAX_EVALUATIONS
        assert (user.values, user.gradients) == (result.nfev, result.njev)
        # Of two functions, one may be unknown at the point that is returned.
        assert limit <= max(user.values, user.gradients) <= limit + (how == "separate")
        assert result.fun <= WAVES.value(WAVES.start)
        assert str(limit) in result.message


def test_a_run_whose_budget_ended_in_a_line_search_goes_on_as_if_it_had_not(tmp_path):
    problem, path = testbed.rosenbrock(2), tmp_path / "run.npz"
    whole = minimize(problem.value_and_gradient, problem.start, jac=True)
    for limit in (20, 21, 22, 23):
        minimize(problem.value_and_gradient, problem.start, jac=True, max_evaluations=limit,
                 checkpoint=path)  # fmt: skip
        again = minimize(problem.value_and_gradient, problem.start, jac=True, resume=path)
        assert np.array_equal(again.x, whole.x)
        assert again.nit == whole.nit


def test_two_limits_at_once_end_a_run_by_both_only():
    stop = Evaluations(5) & Iterations(12)
    result = solve(WAVES, stop=stop, tol=0.0)
    assert result.nit == 12
    assert result.njev > 5


@pytest.mark.parametrize(
    "criterion",
    [ValueChange(0.24, 2), ValueChange(9.0, 4), StepLength(0.44, 2), StepLength(9.0, 4)],
)
def test_a_window_that_is_not_full_or_not_level_does_not_stop(criterion):
    assert criterion.check(progress(**WINDOWS)) is None


@pytest.mark.parametrize("criterion", [ValueChange(9.0, 2), StepLength(9.0, 2)], ids=str)
@pytest.mark.parametrize("changed", [{"start_norm": 0.9}, {"nit": 8}], ids=str)
def test_a_small_change_counts_at_an_accepted_point_with_no_more_gradient_than_the_first(
    criterion, changed
):
    assert criterion.check(progress(**WINDOWS)) is not None
    assert criterion.check(progress(**WINDOWS | changed)) is None


def test_a_window_of_few_points_spans_two_restarts():
    def check(*begins_epoch):
        stands = [Stand(nit, 1.0, 0.0, 1.0, 0.5, begins) for nit, begins in begins_epoch]
        return ValueChange(0.1, 5).check(progress(start_norm=1.0, stands=tuple(stands)))

    assert check((0, False), (6, True), (7, True)) is not None
    assert check((3, False), (6, True), (7, True)) is None  # too few iterations
    assert check((0, True), (7, True)) is None  # one restart
    assert check((0, False), (6, True), (7, False)) is None
    assert check(*[(nit, False) for nit in range(2, 8)]) is not None  # five points of one epoch


def test_points_are_kept_as_far_as_a_window_goes():
    kept = progress()
    for nit in range(100):
        kept.note_stand(Stand(nit, 1.0, 0.0, 1.0, 0.5, False), 3)
    assert [stand.nit for stand in kept.stands] == [96, 97, 98, 99]
    for nit in (110, 120, 130):
        kept.note_stand(Stand(nit, 1.0, 0.0, 1.0, 0.5, True), 50)
    assert [stand.nit for stand in kept.stands] == [96, 97, 98, 99, 110, 120, 130]


@pytest.mark.parametrize("name", sorted(REGISTRY))
@pytest.mark.parametrize("criterion", [ValueChange(1e-9), StepLength(1e-6)], ids=str)
def test_momentum_that_climbs_is_no_small_change(name, criterion):
    """On the way down a chain momentum climbs, and stands still, for dozens of iterations."""
    constants = {"gradient_lipschitz": 500.0, "hessian_lipschitz": 500.0, "eps": 1e-8}
    given = constants if name in NEEDS_CONSTANTS else {}
    for problem in (
        testbed.nested_chain(8, 1e-3),
        testbed.carmon_chain(10),
        testbed.saddle(3, 4, 2.0, 0.5),
        testbed.flat_saddle(3, 2),
    ):
        start = problem.start + 0.1
        result = solve(
            problem, start, method=name, tol=0, stop=criterion, max_iterations=150, **given
        )
        first = np.linalg.norm(problem.gradient(start))
        assert not result.success or result.grad_norm <= first, (problem.name, result)
        assert result.status is not Status.SMALL_CHANGE or result.fun < problem.value(start)


def test_a_climb_in_the_first_epoch_is_no_success():
    """The objective is at its lowest at x0 for twelve iterations."""
    problem = testbed.nested_chain(8, 1e-3)
    result = solve(problem, method="ada-ragd", options={"ftol": 1e-9}, max_iterations=12)
    assert (result.status, result.success) == (Status.MAX_ITERATIONS, False)


@pytest.mark.parametrize("name", ["gd", "lbfgs", "cg", "auto"])
def test_methods_that_accept_each_step_stop_after_ten_small_ones(name):
    trace = solve(WAVES, method=name, tol=0, max_iterations=400).trace["fun"]
    lows = np.minimum.accumulate(trace)
    small = lows[:-10] - lows[10:] <= 1e-4 * np.maximum(
        np.maximum(abs(lows[:-10]), abs(lows[10:])), 1
    )
    result = solve(WAVES, method=name, tol=0, stop=ValueChange(1e-4))
    assert result.status is Status.SMALL_CHANGE
    assert result.nit == np.argmax(small) + 10


@pytest.mark.parametrize("name", ["ada-ragd", "ada-rhb", "universal-hb", "parameter-free-agd"])
def test_a_method_that_restarts_stops_by_small_changes_too(name):
    result = solve(WAVES, method=name, tol=0, stop=ValueChange(1e-6))
    assert result.status is Status.SMALL_CHANGE
    assert result.grad_norm < 1e-2 * np.linalg.norm(WAVES.gradient(WAVES.start))


@pytest.mark.parametrize("criterion", [ValueChange(1e-4), StepLength(1e-3)], ids=str)
def test_small_changes_end_a_run_at_its_lowest_point(criterion):
    result = solve(WAVES, method="ada-ragd", tol=0, stop=criterion)
    assert (result.status, result.success) == (Status.SMALL_CHANGE, True)
    assert result.fun == WAVES.value(result.x) < WAVES.value(WAVES.start)
    assert result.nit < 1000


def test_a_run_with_a_window_goes_on_bit_for_bit(tmp_path):
    options = {"method": "ada-ragd", "tol": 0, "stop": ValueChange(1e-6) | StepLength(1e-9)}
    whole = solve(WAVES, **options)
    solve(WAVES, max_iterations=whole.nit - 4, checkpoint=tmp_path / "run", **options)
    again = solve(WAVES, resume=tmp_path / "run", **options)
    assert (again.nit, again.status) == (whole.nit, Status.SMALL_CHANGE)
    assert np.array_equal(again.x, whole.x)


@pytest.mark.parametrize("method", ["lbfgs", "auto", "cg"])
def test_a_run_at_the_noise_floor_ends(method):
    """Nothing but rounding is left to minimise: it went on to its last iteration."""

    def value(x):
        return 3.0 + 100 * float((x[1] - x[0] ** 2) ** 2 + (x[0] - 1) ** 2)

    def gradient(x):
        a, b = x[1] - x[0] ** 2, x[0] - 1
        return 200 * np.array([b - 2 * a * x[0], a]) + 1e-9 * np.sin(1e9 * x)

    result = minimize(value, np.array([-1.2, 1.0]), jac=gradient, method=method, tol=1e-15)
    assert result.status is Status.NO_PROGRESS
    assert result.nit < 5000
    assert result.fun == pytest.approx(3.0, rel=1e-12)


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_in_single_precision_end(jac):
    def value(x):
        return np.float32(100) * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + np.float32(1)

    start = np.array([-1.2, 1.0], dtype=np.float32)
    result = minimize(value, start, jac=jac, tol=0, max_iterations=20_000)
    assert result.status in (Status.NO_PROGRESS, Status.COMPLETED)
    assert result.nit < 5000


def test_message_numbers_and_gradient_norm_agree(method):
    """Also where the point returned is not the last one."""
    for limit in (3, 17, 40):
        result = solve(WAVES, max_iterations=limit, **method.plain(WAVES))
        assert result.numbers.get("grad_norm", result.grad_norm) == result.grad_norm
        best = result.numbers.get("best_grad_norm", result.best_grad_norm)
        assert best == result.best_grad_norm
        assert f"norm {result.grad_norm:.3g}" in result.message


def test_stagnation_counts_from_the_best_iteration():
    result = solve(WAVES, method="ada-ragd", stop=Stagnation(20), tol=0.0, max_iterations=2000)
    assert result.status is Status.STAGNATED
    norms = result.trace["grad_norm"]
    assert result.numbers["best_nit"] == np.argmin(norms)
    assert result.nit == np.argmin(norms) + 20
    assert result.best_grad_norm == norms.min()


# --- combinations ---------------------------------------------------------------------------------


def test_either_stops_with_the_first_that_holds():
    both_hold = GradientNorm(1.0) | Iterations(0)
    assert both_hold.check(progress()).status is Status.CONVERGED
    assert (Iterations(0) | GradientNorm(1.0)).check(progress()).status is Status.MAX_ITERATIONS
    assert (GradientNorm(0.1) | Iterations(0)).check(progress()).status is Status.MAX_ITERATIONS
    assert (GradientNorm(0.1) | Iterations(99)).check(progress()) is None


def test_both_must_hold_at_once():
    both = GradientNorm(1.0) & Iterations(5)
    assert both.check(progress(nit=4)) is None
    assert both.check(progress(grad_norm=2.0)) is None
    ending = both.check(progress())
    assert ending.status is Status.CONVERGED
    assert ending.numbers == {"grad_norm": 0.5, "tolerance": 1.0, "nit": 7, "limit": 5}
    assert "; and " in ending.message


def test_combinations_nest():
    nested = (GradientNorm(1.0) & Iterations(5)) | (Target(0.0) & Evaluations(1)) | Iterations(100)
    assert nested.check(progress()).status is Status.CONVERGED
    assert nested.check(progress(nit=4, fun=-1.0)).status is Status.TARGET_REACHED
    assert nested.check(progress(nit=4)) is None
    assert nested.needs_value
    assert not (GradientNorm(1.0) | Iterations(5)).needs_value


@pytest.mark.parametrize("combine", [lambda a, b: a | b, lambda a, b: a & b])
def test_criteria_combine_only_with_criteria(combine):
    with pytest.raises(TypeError):
        combine(Iterations(5), 3)


def test_combinations_work_in_a_run():
    result = solve(method="ada-ragd", stop=GradientNorm(1.0) & Iterations(150), tol=1e-12)
    assert result.status is Status.CONVERGED
    assert result.nit >= 150
    assert result.grad_norm <= 1.0
    either = solve(stop=Iterations(9) | Stagnation(1000), tol=1e-12)
    assert (either.status, either.nit) == (Status.MAX_ITERATIONS, 9)


def test_success_is_named_before_a_limit_that_is_reached_together():
    tolerance = solve().trace["grad_norm"][5]
    for limit in ({"max_iterations": 5}, {"stop": Iterations(5)}, {"max_time": 0.0}):
        result = solve(tol=1.0001 * solve().trace["grad_norm"].max(), **limit)
        assert (result.status, result.nit) == (Status.CONVERGED, 0)
    again = solve(tol=float(tolerance), max_iterations=5)
    first_below = int(np.argmax(again.trace["grad_norm"] <= tolerance))
    assert again.status is Status.CONVERGED
    assert again.nit == first_below


def test_a_target_within_a_combination_is_evaluated():
    result = solve(WAVES, method="ada-ragd", stop=Target(1.0) & Iterations(30), tol=1e-12)
    assert result.status is Status.TARGET_REACHED
    assert result.nit >= 30
    assert not np.any(np.isnan(result.trace["fun"]))


# --- limits at the start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"max_iterations": 0}, Status.MAX_ITERATIONS),
        ({"max_evaluations": 0}, Status.MAX_EVALUATIONS),
        ({"max_time": 0}, Status.MAX_TIME),
    ],
)
def test_no_budget_gives_the_start_with_value_and_gradient(method, limit, status):
    result = solve(WAVES, **limit, **method.plain(WAVES))
    assert result.status is status
    assert not result.success
    assert result.nit == 0
    assert np.array_equal(result.x, WAVES.start)
    assert result.fun == WAVES.value(WAVES.start)
    assert np.array_equal(result.jac, WAVES.gradient(WAVES.start))
    assert len(result.trace) == 1


def test_a_start_within_the_tolerance_is_returned_at_once(method):
    result = solve(BOWL, np.full(3, 1e-9), **method.plain(BOWL))
    if method.name == "perturbed-ragd":
        assert result.status is Status.COMPLETED
    else:
        assert (result.status, result.nit) == (Status.CONVERGED, 0)
        assert np.array_equal(result.x, np.full(3, 1e-9))
    assert result.success


def test_a_start_at_the_target_is_returned_at_once(method):
    result = solve(WAVES, target=1e9, **method.plain(WAVES))
    assert (result.status, result.nit) == (Status.TARGET_REACHED, 0)


def test_tolerance_zero_never_stops_by_the_gradient():
    result = solve(tol=0.0, max_iterations=5)
    assert result.status is Status.MAX_ITERATIONS
    fixed = solve(tol=0.0, method="ragd", step_size=0.0025, momentum=0.9, radius=0.1)
    assert fixed.status is Status.COMPLETED


def test_no_limit_on_iterations_at_all():
    assert solve(max_iterations=None).status is Status.CONVERGED


# --- statuses of the methods themselves -----------------------------------------------------------


def test_a_method_that_ends_by_its_own_rule_says_completed_with_its_promise(fixed):
    result = solve(WAVES, eps=1e-5, **fixed.plain(WAVES))
    assert result.status is Status.COMPLETED, result.message
    assert result.success
    assert result.grad_norm <= result.numbers["promise"]
    assert f"{result.numbers['promise']:.3g}" in result.message


def test_without_tolerance_and_promise_the_end_of_an_epoch_is_no_success():
    problem = testbed.rosenbrock(4)
    by_hand = {"step_size": 1e-3, "momentum": 0.5, "radius": 10.0}
    start = 1.0 + 0.1 * problem.start

    def run(**given):
        return solve(problem, start, method="ragd", **by_hand, **given)

    ended = run()
    assert ended.status is Status.COMPLETED
    assert not ended.success
    assert ended.grad_norm > 0.1
    assert ended.fun < problem.value(start)
    assert "give tol" in ended.message
    assert "hessian_lipschitz" in ended.message
    assert run(tol=1e-9).status is Status.ABOVE_TOLERANCE
    assert run(tol=2 * ended.grad_norm).success
    promised = run(hessian_lipschitz=1e4)  # with rho, Lemma 6 says what to expect
    assert promised.status is Status.COMPLETED
    assert promised.success
    assert promised.grad_norm <= promised.numbers["promise"]


def test_an_adaptive_method_with_constants_says_completed_with_its_promise(adaptive):
    constants = {"gradient_lipschitz": 100.0, "hessian_lipschitz": 100.0}
    result = solve(WAVES, method=adaptive.name, eps=1e-5, tol=0.0, **constants)
    assert result.status is Status.COMPLETED, result.message
    assert result.grad_norm <= result.numbers["promise"]


@pytest.mark.parametrize("name", ["ragd", "rhb"])
def test_constants_that_are_far_too_small_are_called_that(name):
    """L thirty times too small and rho a million: the epoch runs through, far from stationary."""
    constants = {"gradient_lipschitz": 3.0, "hessian_lipschitz": 1e-6, "eps": 0.1}
    result = solve(WAVES, method=name, **constants)
    assert result.status is Status.PROMISE_BROKEN
    assert not result.success
    last = result.numbers.get("last_grad_norm", result.grad_norm)
    assert last > result.numbers["promise"]
    assert result.fun <= WAVES.value(WAVES.start)
    assert "too small" in result.message


def test_an_end_above_the_tolerance_is_no_success(method):
    result = solve(WAVES, **method.eventful)
    assert result.status is Status.ABOVE_TOLERANCE
    assert not result.success
    assert result.grad_norm > 1e-6
    assert result.numbers["tolerance"] == 1e-6
    assert "1e-06" in result.message


def test_adaptive_methods_that_chose_eps_themselves_lower_it_instead():
    """|grad| = 3 |x|^2/2 flattens out: epochs complete above the tolerance until eps is lowered."""

    def both(x):
        r = np.linalg.norm(x)
        return float(r**3) / 2, 1.5 * r * x

    result = minimize(both, np.array([0.1, 0.2]), jac=True, tol=1e-8)
    assert result.status is Status.CONVERGED
    assert result.grad_norm <= 1e-8


@pytest.mark.parametrize(
    "caps",
    [{"step_size_min": 0.05}, {"step_size_min": 0.05, "hessian_lipschitz_max": 20.0}],
    ids=str,
)
def test_a_step_that_may_not_shrink_enough_ends_the_run(adaptive, caps):
    options = {"step_size": 0.1, "hessian_lipschitz": 10.0, "eps": 1e-3, **caps}
    result = solve(BOWL, method=adaptive.name, tol=1e-6, max_iterations=5000, **options)
    assert result.status is Status.NO_PROGRESS, result.message
    assert not result.success
    assert "step_size_min" in result.message
    assert result.numbers["step_size"] == 0.05
    assert result.nit < 500


def test_declared_constants_that_are_too_small_end_an_adaptive_run(adaptive):
    constants = {"gradient_lipschitz": 1.0, "hessian_lipschitz": 1.0}
    result = solve(BOWL, method=adaptive.name, max_iterations=5000, **constants)
    assert result.status is Status.NO_PROGRESS, result.message
    assert "gradient_lipschitz" in result.message
    assert result.nit < 1000


def test_rounding_ends_a_run_that_asks_for_more_than_the_dtype_holds(adaptive):
    def both(x):
        return 1e6 + BOWL.value(x - 0.3), BOWL.gradient(x - 0.3)

    result = minimize(both, BOWL.start, jac=True, tol=1e-30, method=adaptive.name)
    assert result.status in (Status.NO_PROGRESS, Status.CONVERGED), result.message
    assert result.success == (result.grad_norm <= 1e-30)
    assert result.nit < 20_000


def test_a_step_into_a_void_ends_a_fixed_method(fixed):
    def gradient(x):
        return BOWL.gradient(x) if np.linalg.norm(x) < 2 else np.full(3, np.nan)

    too_small = {"method": fixed.name, "gradient_lipschitz": 5.0, "hessian_lipschitz": 1.0}
    result = solve(BOWL, jac=gradient, **too_small)
    assert result.status is Status.NON_FINITE
    assert not result.success
    assert "step size 0.05" in result.message
    assert result.fun <= BOWL.value(BOWL.start)
    assert np.all(np.isfinite(result.jac))


def test_exactly_zero_gradient_on_the_way_is_completed_at_tolerance_zero(adaptive):
    """A step size of exactly 1/L lands on the minimum."""
    options = {"step_size": 1.0, "hessian_lipschitz": 1.0, "eps": 1e-3, "tol": 0.0}
    result = minimize(
        lambda x: 0.5 * float(x @ x), np.ones(2), jac=np.copy, method=adaptive.name,
        max_iterations=100_000, **options,
    )  # fmt: skip
    assert result.status is Status.COMPLETED
    assert result.grad_norm <= 1e-3


def test_asking_for_the_result_stops_a_run_with_a_reason():
    run = iterate(BOWL.value, BOWL.start, jac=BOWL.gradient)
    next(run)
    run.stop("the kettle boils")
    assert run.result.status is Status.STOPPED
    assert "the kettle boils in iteration 1" in run.result.message


def test_statuses_are_numbers_and_successes_are_four():
    assert [s for s in Status if s.success] == [
        Status.CONVERGED,
        Status.TARGET_REACHED,
        Status.COMPLETED,
        Status.SMALL_CHANGE,
    ]
    assert Status.CONVERGED == 0
    assert len({int(s) for s in Status}) == len(Status)
