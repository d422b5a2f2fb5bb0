"""accelerate keeps its promises: the fixed points of the map, in fewer maps, and never uphill."""

import itertools
import math

import array_api_compat
import numpy as np
import pytest

from helpers import Waves, fingerprint
from momentous import CheckpointError, HeuristicAGD, Iterations, Stagnation, Status, minimize
from momentous.api import accelerate
from momentous.core import loop
from momentous.core.space import Space
from momentous.methods.descent_map import CONSTANTS

SOME = {"secants": 10}
RULES = ("either", "function", "gradient", "distance")
WAVES = Waves(6)
STEP_SIZE = 1 / WAVES.gradient_lipschitz


def downhill(x):
    """A gradient step on the waves: the descent map whose acceleration is well known."""
    return x - STEP_SIZE * WAVES.gradient(x)


def downhill_with_value(x):
    return downhill(x), WAVES.value(x)


class Mixture:
    """EM for a mixture of normal distributions: log weights, means, log variances."""

    def __init__(self):
        random = np.random.default_rng(0)
        parts = [(-1.0, 1.0, 150), (1.0, 1.0, 150), (2.5, 0.7, 100)]
        self.points = np.concatenate([random.normal(m, s, n) for m, s, n in parts])
        self.start = np.array([[0.0, 0.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

    def _logs(self, x):
        weights = np.exp(x[0]) / np.sum(np.exp(x[0]))
        away = (self.points[:, None] - x[1]) ** 2 / np.exp(x[2])
        each = np.log(weights) - (np.log(2 * np.pi) + x[2] + away) / 2
        return each, np.logaddexp.reduce(each, axis=1)

    def value(self, x):
        return -float(np.sum(self._logs(x)[1]))

    def step(self, x):
        each, total = self._logs(x)
        shares = np.exp(each - total[:, None])
        sizes = shares.sum(0)
        means = shares.T @ self.points / sizes
        variances = np.sum(shares * (self.points[:, None] - means) ** 2, axis=0) / sizes
        return np.array([np.log(sizes / sizes.sum()), means, np.log(variances)])


class Nonnegative:
    """The multiplicative updates of Lee and Seung; W over H in one matrix."""

    def __init__(self):
        random = np.random.default_rng(2)
        self.matrix = random.random((20, 3)) @ random.random((3, 15)) + 0.1 * random.random(
            (20, 15)
        )
        self.start = random.random((35, 3))

    def _factors(self, x):
        x = np.abs(x)  # momentum may lead below zero
        return x[:20], x[20:]

    def value(self, x):
        W, H = self._factors(x)
        return float(np.sum((self.matrix - W @ H.T) ** 2))

    def step(self, x):
        W, H = self._factors(x)
        H = H * (self.matrix.T @ W) / (H @ (W.T @ W))
        return np.vstack([W * (self.matrix @ H) / (W @ (H.T @ H)), H])


MIXTURE, NONNEGATIVE = Mixture(), Nonnegative()


def points_of(solve):
    """Every point that the map was applied to, in the order of the iterations."""
    seen = []
    result = solve(lambda x: seen.append(x))
    return np.array(seen), result


# --- the iteration ------------------------------------------------------------------------------


def test_around_a_gradient_step_it_is_accelerated_gradient_descent():
    ours, result = points_of(
        lambda note: accelerate(downhill, WAVES.start, tol=0, max_iterations=150, callback=note)
    )
    theirs, reference = points_of(
        lambda note: minimize(
            WAVES.value, WAVES.start, jac=WAVES.gradient, tol=0, max_iterations=150, callback=note,
            method=HeuristicAGD(step_size=STEP_SIZE, restart="gradient"),
        )
    )  # fmt: skip
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)
    assert result.trace.when("restart") == reference.trace.when("restart") != []


def combined(points, maps):
    """(Anderson's combination, the share of the residual that it promises), by least squares."""
    residuals = [T - y for y, T in zip(points, maps, strict=True)]
    changes = np.diff(residuals, axis=0).T
    weights = np.linalg.lstsq(changes, residuals[-1], rcond=1e-6)[0]
    rest = residuals[-1] - changes @ weights
    share = np.linalg.norm(rest) / np.linalg.norm(residuals[-1])
    return maps[-1] - np.diff(maps, axis=0).T @ weights, share


def naive(rule, steps, first_radius=math.inf, secants=0, f=WAVES.value, T=downhill, x=WAVES.start):
    """The four rules, written down once more as plainly as possible."""
    inner = np.dot
    y = base = x
    m, travelled, radius, epoch, points = 1, 0.0, first_radius, 1, []
    instead, wait, pause = None, 0, 1
    for _ in range(steps):
        judged = rule in ("either", "function") or m == 1
        if instead is not None and f(y) > f(base):
            y, instead, pause = instead, None, 2 * pause
            wait = pause
        elif instead is not None:
            instead, pause, m = None, max(1, pause // 2), max(1, m // 2)
        if judged and f(y) > f(base):
            y = x = T(base)
            m, travelled, radius, epoch = 1, 0.0, radius / (1 + 0.001 * epoch) / 10, epoch + 1
            judged = True
        points.append(y)
        if judged:
            base = y
        x_next = T(y)
        travelled += inner(x_next - x, x_next - x)
        if (rule in ("either", "gradient") and inner(y - x_next, x_next - x) > 0) or (
            rule == "distance" and m * travelled > radius**2
        ):
            x = y = x_next
            m = max(1, m // 2) if rule == "either" else 1
            travelled, radius, epoch = 0.0, radius / (1 + 0.001 * epoch), epoch + 1
        else:
            y, x, m = x_next + m / (m + 3) * (x_next - x), x_next, m + 1
        wait = max(0, wait - 1)
        if secants and len(points) > 3 and not wait:
            last = points[-secants - 1 :]
            point, share = combined(last, [T(z) for z in last])
            if share <= 0.2:
                y, instead = point, y
    return np.array(points)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_trajectories_equal_those_of_a_naive_implementation(rule, fused):
    radius = 1.0
    how = (downhill_with_value, True) if fused else (downhill, WAVES.value)
    ours, result = points_of(
        lambda note: accelerate(
            how[0], WAVES.start, how[1], restart=rule, tol=0, max_iterations=60, callback=note,
            initial_radius=radius, secants=0,
        )
    )  # fmt: skip
    assert np.allclose(ours, naive(rule, 60, radius), rtol=0, atol=1e-12)
    assert result.restarts > 0


@pytest.mark.parametrize(("secants", "outcomes"), [(3, {0.0, 1.0}), (10, {0.0})])
def test_with_secants_it_is_a_naive_implementation_of_them_too(secants, outcomes):
    ours, result = points_of(
        lambda note: accelerate(
            MIXTURE.step, MIXTURE.start, MIXTURE.value, tol=0, max_iterations=60, callback=note,
            secants=secants,
        )
    )  # fmt: skip
    theirs = naive(
        "either", 60, secants=secants, x=MIXTURE.start.ravel(),
        f=lambda x: MIXTURE.value(x.reshape(3, 3)),
        T=lambda x: MIXTURE.step(x.reshape(3, 3)).ravel(),
    )  # fmt: skip
    assert np.allclose(ours.reshape(60, 9), theirs, rtol=0, atol=1e-5)
    tried = [event.value for _, event in result.trace.events if event.kind == "secant"]
    assert set(tried) == outcomes


def test_on_a_linear_map_the_combination_ends_the_run():
    """Four variables: once four differences are known nothing is left to be found."""
    rates = np.array([0.999, 0.9, 0.5, 0.1])
    result = accelerate(
        lambda x: rates * x, np.ones(4), lambda x: float(np.sum(x**2 / 2)), tol=1e-10
    )
    assert result.status is Status.CONVERGED
    assert result.njev <= 10
    assert accelerate(
        lambda x: rates * x, np.ones(4), lambda x: float(np.sum(x**2 / 2)), tol=1e-10, secants=0
    ).njev > 100  # fmt: skip


LONGEST = CONSTANTS.most_entries


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (LONGEST, {}),
        (LONGEST + 1, {}),
        (LONGEST + 1, SOME),
    ],
)
def test_on_long_vectors_there_are_combinations_only_if_asked_for(size, options):
    rates = np.linspace(0.0, 0.999, 4)[np.arange(size) % 4]
    result = accelerate(
        lambda x: rates * x, np.ones(size), lambda x: float(x @ x), tol=1e-6, max_iterations=15,
        **options,
    )  # fmt: skip
    tried = any(event.kind == "secant" for _, event in result.trace.events)
    assert tried == (size <= CONSTANTS.most_entries or bool(options))


def test_a_combination_that_rises_costs_one_value_and_has_a_pause():
    """The objective is infinite where combinations lead: each is tried once, and refused."""
    rates = np.array([0.99, 0.95, 0.9, 0.5])
    user = Counting()

    def step(x):
        user.maps += 1
        return rates * x

    def near(x):
        user.values += 1
        return float(x @ x) if x[0] > 0.2 else math.inf

    result = accelerate(step, np.ones(4), near, tol=0, max_iterations=40)
    tried = [(nit, event.value) for nit, event in result.trace.events if event.kind == "secant"]
    refused = [nit for nit, taken in tried if not taken]
    assert refused
    assert result.x[0] > 0.2
    assert user.values == result.nfev <= result.njev + len(tried) + result.restarts
    assert np.all(np.diff(refused)[1:] >= 2)


def test_always_is_the_plain_iteration():
    ours, result = points_of(
        lambda note: accelerate(
            downhill, WAVES.start, WAVES.value, restart="always", tol=0, max_iterations=5,
            callback=note,
        )
    )  # fmt: skip
    x = WAVES.start
    for point in ours:
        assert np.allclose(point, x, rtol=0, atol=1e-14)
        x = downhill(x)
    assert result.restarts == 0


def test_the_default_radius_is_in_units_of_the_first_residual():
    first = np.linalg.norm(WAVES.start - downhill(WAVES.start))
    options = {"restart": "distance", "tol": 0, "max_iterations": 80}
    default = accelerate(downhill, WAVES.start, WAVES.value, **options)
    given = accelerate(
        downhill, WAVES.start, WAVES.value, initial_radius=CONSTANTS.first_radius * first, **options
    )
    assert np.array_equal(default.trace["grad_norm"], given.trace["grad_norm"])


# --- what it is for -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", [MIXTURE, NONNEGATIVE], ids=["em", "nmf"])
def test_it_reaches_what_the_plain_iteration_does_in_at_most_half_the_maps(model, rule):
    plain = accelerate(
        model.step, model.start, model.value, restart="always", tol=0, max_iterations=400
    )
    fast = accelerate(
        model.step, model.start, model.value, restart=rule, tol=0, max_iterations=400,
        target=plain.fun,
    )  # fmt: skip
    assert fast.status is Status.TARGET_REACHED
    assert fast.njev <= 200


@pytest.mark.parametrize("rule", RULES)
def test_it_ends_at_a_fixed_point_of_the_map(rule):
    result = accelerate(MIXTURE.step, MIXTURE.start, MIXTURE.value, restart=rule, tol=1e-8)
    assert result.status is Status.CONVERGED
    first = np.linalg.norm(MIXTURE.start - MIXTURE.step(MIXTURE.start))
    residual = result.x - MIXTURE.step(result.x)
    assert np.linalg.norm(residual) <= 1e-8 * first
    assert np.allclose(result.jac, residual, rtol=0, atol=1e-14)
    assert result.fun == MIXTURE.value(result.x)


# --- counts -------------------------------------------------------------------------------------


class Counting:
    """The gradient step on the waves, and how often it was asked for."""

    def __init__(self):
        self.maps = self.values = 0

    def step(self, x):
        self.maps += 1
        return downhill(x)

    def value(self, x):
        self.values += 1
        return WAVES.value(x)

    def both(self, x):
        return self.step(x), self.value(x)


@pytest.mark.parametrize("rule", [*RULES, "always"])
def test_counts_are_those_of_the_user(rule):
    user = Counting()
    result = accelerate(user.step, WAVES.start, user.value, restart=rule, max_iterations=100)
    assert (result.njev, result.nfev) == (user.maps, user.values)
    user = Counting()
    result = accelerate(user.both, WAVES.start, True, restart=rule, max_iterations=100)
    assert result.njev == result.nfev == user.maps


def test_a_map_is_applied_once_per_iteration_even_where_a_point_is_discarded():
    user = Counting()
    result = accelerate(user.step, WAVES.start, user.value, restart="function", tol=1e-9)
    assert result.trace.when("rollback")
    assert user.maps == result.nit
    assert user.values == result.nit + len(result.trace.when("rollback"))


@pytest.mark.parametrize("rule", ["gradient", "distance"])
def test_values_are_asked_for_only_at_restarts(rule):
    user = Counting()
    result = accelerate(
        user.step, WAVES.start, user.value, restart=rule, tol=1e-9, initial_radius=1.0
    )
    assert result.restarts > 1
    assert user.values <= 2 + 2 * result.restarts


# --- never up -----------------------------------------------------------------------------------


def shuffled(seed):
    """No descent map at all: first a gradient step, then sometimes that, sometimes anything."""
    random = np.random.default_rng(seed)
    kinds = itertools.chain([3], iter(lambda: random.integers(5), None))

    def step(x):
        kind = next(kinds)
        if kind == 0:
            return x + random.standard_normal(x.shape)
        if kind == 1:
            return x * math.nan
        return x - (2.5 if kind == 2 else 1.0) * STEP_SIZE * WAVES.gradient(x)

    return step


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(20))
def test_the_end_is_never_above_an_accepted_point_whatever_the_map_does(rule, fused, seed):
    step, accepted = shuffled(seed), []
    result = accelerate(
        (lambda x: (step(x), WAVES.value(x))) if fused else step,
        WAVES.start,
        True if fused else WAVES.value,
        restart=rule,
        max_iterations=50,
        callback=lambda intermediate_result: accepted.append(
            intermediate_result.report.accepted.value
        ),
    )
    noise = 1e-12 * WAVES.value(WAVES.start)
    assert result.fun <= min(accepted) + noise
    assert result.fun == WAVES.value(result.x)
    assert np.all(np.diff(accepted) <= noise)


@pytest.mark.parametrize("rule", [*RULES, "always"])
def test_a_map_that_rises_is_reported_and_the_start_returned(rule):
    result = accelerate(lambda x: 1.5 * x, np.ones(3), lambda x: float(x @ x), restart=rule)
    assert result.status is Status.OBJECTIVE_ROSE
    assert not result.success
    assert result.fun == 3.0
    assert "no descent map" in result.message
    assert result.numbers["image_fun"] > result.numbers["fun"]


def test_what_only_momentum_leads_to_is_discarded_where_it_is_not_finite():
    """The objective is infinite below zero, where momentum leads and the map alone does not."""

    def value(x):
        return float(x @ x) if x[0] >= 0 else math.inf

    result = accelerate(lambda x: 0.95 * x, np.ones(2), value, tol=1e-6, secants=0)
    assert result.status is Status.CONVERGED
    assert result.trace.when("non-finite")
    assert result.x[0] >= 0


@pytest.mark.parametrize("rule", RULES)
def test_a_map_that_leaves_the_finite_numbers_ends_the_run_at_a_finite_point(rule):
    def step(x):
        return x * (0.9 if x[0] > 0.5 else math.nan)

    result = accelerate(step, np.ones(2), lambda x: float(x @ x), restart=rule)
    assert result.status is Status.NON_FINITE
    assert math.isfinite(result.fun)
    assert result.fun < 2.0
    assert "check step and value" in result.message


# --- without values -----------------------------------------------------------------------------


def test_without_values_the_gradient_rule_is_the_rule():
    result = accelerate(downhill, WAVES.start)
    assert result.status is Status.CONVERGED
    assert result.method.restart == "gradient"
    assert result.fun == result.grad_norm


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restart": "function"}, "compares values"),
        ({"restart": "distance"}, "compares values"),
        ({"value_tol": 1e-3}, "looks at values"),
        ({"target": 1.0}, "a value of the objective"),
    ],
)
def test_what_needs_values_is_refused_without_them(options, message):
    with pytest.raises(ValueError, match=message):
        accelerate(downhill, WAVES.start, **options)


# --- when it stops ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_tolerance_is_relative_to_the_first_residual(scale):
    result = accelerate(
        lambda x: scale * downhill(x / scale), scale * WAVES.start, lambda x: WAVES.value(x / scale)
    )
    assert result.status is Status.CONVERGED
    assert result.numbers["tolerance"] == 1e-5
    assert result.grad_norm <= 1e-5 * result.trace["grad_norm"][0]
    assert result.nit == accelerate(downhill, WAVES.start, WAVES.value).nit


@pytest.mark.parametrize("rule", RULES)
def test_value_tol_stops_where_the_objective_hardly_falls(rule):
    result = accelerate(
        MIXTURE.step, MIXTURE.start, MIXTURE.value, restart=rule, tol=0, value_tol=1e-6
    )
    assert result.status is Status.CONVERGED
    assert abs(result.numbers["decrease"]) <= 1e-6 * abs(result.fun)
    assert "within the tolerance, 1e-06 of it" in result.message
    lower = accelerate(MIXTURE.step, MIXTURE.start, MIXTURE.value, tol=1e-8)
    assert lower.fun <= result.fun <= lower.fun + 1e-3 * abs(lower.fun)
    assert result.nit >= CONSTANTS.least_values - 1


def test_a_fixed_point_ends_the_run():
    result = accelerate(downhill, np.zeros(6), WAVES.value, tol=0)
    assert result.status is Status.COMPLETED
    assert result.nit == 0
    assert (result.x == 0).all()


def test_limits_and_the_callback_stop_it_and_speak_of_residuals():
    result = accelerate(downhill, WAVES.start, WAVES.value, tol=0, max_iterations=7)
    assert result.status is Status.MAX_ITERATIONS
    assert "residual norm" in result.message
    assert "gradient" not in result.message
    result = accelerate(
        downhill,
        WAVES.start,
        WAVES.value,
        callback=lambda intermediate_result: intermediate_result.nit == 3,
    )
    assert (result.status, result.nit) == (Status.STOPPED, 3)
    stop = Stagnation(3) | Iterations(1000)
    result = accelerate(downhill, WAVES.start, WAVES.value, tol=0, stop=stop)
    assert result.status is Status.STAGNATED


# --- on another day -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(rule, tmp_path):
    options = {"restart": rule, "tol": 1e-7, "initial_radius": 1.0}
    whole = accelerate(downhill, WAVES.start, WAVES.value, **options)
    assert whole.success
    for cut in (1, 2, 11, whole.nit // 2, whole.nit - 1):
        file = tmp_path / f"{cut}.npz"
        accelerate(
            downhill, WAVES.start, WAVES.value, max_iterations=cut, checkpoint=file, **options
        )
        again = accelerate(downhill, WAVES.start, WAVES.value, resume=file)
        assert fingerprint(again) == fingerprint(whole)


def test_a_finished_run_goes_on_to_a_smaller_tolerance(tmp_path):
    file = tmp_path / "run.npz"
    coarse = accelerate(downhill, WAVES.start, WAVES.value, tol=1e-3, checkpoint=file)
    fine = accelerate(downhill, WAVES.start, WAVES.value, tol=1e-6, resume=file)
    straight = accelerate(downhill, WAVES.start, WAVES.value, tol=1e-6)
    assert coarse.nit < fine.nit == straight.nit
    assert np.array_equal(fine.x, straight.x)
    assert accelerate(downhill, WAVES.start, WAVES.value, resume=file).nit == coarse.nit


def test_checkpoints_of_minimize_are_refused(tmp_path):
    file = tmp_path / "run.npz"
    minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, max_iterations=3, checkpoint=file)
    with pytest.raises(CheckpointError, match="written by minimize"):
        accelerate(downhill, WAVES.start, WAVES.value, resume=file)
    file.unlink()
    accelerate(downhill, WAVES.start, WAVES.value, max_iterations=3, checkpoint=file)
    with pytest.raises(CheckpointError, match=r"written by accelerate.*resume it there"):
        minimize(WAVES.value, WAVES.start, jac=WAVES.gradient, resume=file)


@pytest.mark.parametrize("name", ["method", "seed", "rng"])
def test_an_option_of_minimize_is_not_recommended(name):
    with pytest.raises(TypeError, match=rf"has no option '{name}', and descent-map has no such"):
        accelerate(downhill, WAVES.start, WAVES.value, **{name: 1})


# --- arrays -------------------------------------------------------------------------------------


def test_it_runs_on_any_array_library(library):
    start = library.array(WAVES.start.reshape(2, 3))
    result = accelerate(downhill, start, WAVES.value, tol=1e-4)
    assert result.success
    assert isinstance(result.x, library.array_type)
    assert result.x.shape == (2, 3)
    assert result.x.dtype == start.dtype
    assert array_api_compat.device(result.x) == array_api_compat.device(start)
    assert np.allclose(np.cos(library.numpy(result.x)), 1.0, atol=1e-5)


def test_one_buffer_for_all_images_is_no_harm():
    buffer = np.empty(6)

    def step(x):
        buffer[:] = downhill(x)
        return buffer

    ours = accelerate(step, WAVES.start, WAVES.value)
    assert np.array_equal(ours.x, accelerate(downhill, WAVES.start, WAVES.value).x)


def test_arguments_reach_step_and_value():
    result = accelerate(
        lambda x, c, rate: x - rate * (x - c),
        np.zeros(2),
        lambda x, c, rate: float(np.sum((x - c) ** 2)),
        args=(3.0, 0.1),
        tol=1e-8,
    )
    assert np.allclose(result.x, 3.0)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "value", "error", "message"),
    [
        (None, None, TypeError, "step must be callable"),
        (downhill, 3.0, TypeError, "value=3.0 must be callable"),
        (downhill, True, TypeError, r"must return \(x_next, value at x\)"),
        (lambda x: x[:2], None, ValueError, r"step returned shape \(2,\)"),
        (lambda x: None, None, TypeError, "step returned None"),
        (lambda x: x.astype(np.float32), None, TypeError, "step returned dtype float32"),
    ],
)
def test_wrong_functions_are_refused_by_name(step, value, error, message):
    with pytest.raises(error, match=message):
        accelerate(step, WAVES.start, value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"restart": "never"}, ValueError, "restart='never' must be one of either"),
        ({"maxiter": 3}, TypeError, "max_iterations"),
        ({"initial_radios": 3}, TypeError, "did you mean 'initial_radius'"),
        ({"value_tol": -1.0}, ValueError, "value_tol=-1.0"),
        ({"initial_radius": 0.0}, ValueError, "initial_radius=0.0 must be positive"),
        ({"radius_shrink": 1.0}, ValueError, "radius_shrink=1.0"),
        ({"failure_shrink": 0.5}, ValueError, "failure_shrink=0.5"),
        ({"secants": -1}, ValueError, "secants=-1"),
        ({"tol": -1.0}, ValueError, "tol=-1.0"),
    ],
)
def test_wrong_options_are_refused_by_name(options, error, message):
    with pytest.raises(error, match=message):
        accelerate(downhill, WAVES.start, WAVES.value, **options)


# --- what a result holds --------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_the_image_is_what_the_map_returned_and_jac_the_residual(fused):
    step, value = (downhill_with_value, True) if fused else (downhill, WAVES.value)
    result = accelerate(step, WAVES.start, value, max_iterations=7)
    assert np.array_equal(result.image, downhill(result.x))  # to the last bit: nothing is undone
    assert np.array_equal(result.jac, result.x - result.image)
    assert result.grad_norm == pytest.approx(np.linalg.norm(result.jac), rel=1e-14)


def test_a_callback_sees_the_residual_too():
    seen = []
    accelerate(
        downhill, WAVES.start, WAVES.value, max_iterations=3,
        callback=lambda intermediate_result: seen.append(intermediate_result),
    )  # fmt: skip
    for step in seen:
        assert np.array_equal(step.jac, step.x - downhill(step.x))
        assert step.grad_norm == pytest.approx(np.linalg.norm(step.jac), rel=1e-14)
        assert "residual norm" in repr(step)
    assert len(seen) == 3


def test_the_sum_over_ranks_makes_every_norm(monkeypatch):
    """Twice the sum of products: norms are larger by the root of two, decisions are the same."""
    plain = accelerate(downhill, WAVES.start, WAVES.value, secants=0)
    monkeypatch.setattr(loop, "Space", lambda x: Space(x, lambda sums: 2 * sums))
    doubled = accelerate(downhill, WAVES.start, WAVES.value, secants=0)
    assert np.allclose(
        doubled.trace["grad_norm"], math.sqrt(2) * plain.trace["grad_norm"], rtol=1e-12
    )
    assert (doubled.nit, doubled.restarts) == (plain.nit, plain.restarts)


def test_a_residual_that_is_not_finite_at_the_start_is_called_one():
    result = accelerate(lambda x: x * math.nan, np.ones(3), lambda x: float(x @ x))
    assert (result.status, result.success) == (Status.NON_FINITE, False)
    assert "the residual at x0 has 3 non-finite of 3 entries" in result.message
