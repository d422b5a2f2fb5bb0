"""Bad input: NaN, infinity, overflow, wrong gradients, noise; the ending is true."""

import math
import warnings

import numpy as np
import pytest

from helpers import ADAPTIVE, Bowl, Waves, counted
from momentous import (
    L1,
    Ball,
    Box,
    Checkpoint,
    ElasticNet,
    GroupL2,
    Simplex,
    Status,
    accelerate,
    certify,
    iterate,
    minimize,
    minimize_many,
)

BOWL, WAVES = Bowl(), Waves()
VOIDS = [math.nan, math.inf, -math.inf]


def run(method, value, gradient, x0=BOWL.start, problem=BOWL, how="separate", **options):
    """Minimise with the method, given either way."""
    if how == "fused":
        given = {"fun": lambda x: (value(x), gradient(x)), "jac": True}
    else:
        given = {"fun": value, "jac": gradient}
    return minimize(x0=x0, **given, **(method.plain(problem) | options))


def assert_true_ending(result, value, gradient, tol=1e-5):
    """What the result says is so, and success means finite and stationary."""
    assert np.all(np.isfinite(result.x))
    at_x = value(result.x)
    assert result.fun == at_x or (math.isnan(result.fun) and math.isnan(at_x))
    assert np.array_equal(result.jac, gradient(result.x), equal_nan=True)
    if result.success:
        assert math.isfinite(result.fun)
        assert result.grad_norm <= tol
    assert result.message


def assert_not_begun(result, words):
    """As SciPy has it: a result, with what was seen at x0, and no success."""
    assert (result.success, result.status, result.nit) == (False, Status.NON_FINITE, 0)
    assert (result.nfev, result.njev) == (1, 1)
    assert words in result.message
    assert repr(result)


# --- at the start ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", VOIDS)
def test_a_value_that_is_not_finite_at_the_start_is_named(method, how, bad):
    result = run(method, lambda x: bad, BOWL.gradient, how=how)
    assert_not_begun(result, f"fun(x0) is {bad}")
    assert np.array_equal(result.fun, bad, equal_nan=True)


@pytest.mark.parametrize("bad", VOIDS)
def test_a_gradient_that_is_not_finite_at_the_start_is_named_with_its_place(method, how, bad):
    result = run(method, BOWL.value, lambda x: np.array([1.0, bad, 1.0]), how=how)
    words = f"gradient at x0 has 1 non-finite of 3 entries, the first at index (1,) ({bad})"
    assert_not_begun(result, words)


def test_a_gradient_that_is_not_finite_at_the_start_is_named_in_every_library(library):
    x0 = library.array([[1.0, 2.0]])
    gradient = library.array([[1.0, math.nan]])
    result = minimize(lambda x: 1.0, x0, jac=lambda x: gradient)
    assert_not_begun(result, "1 non-finite of 2 entries, the first at index (0, 1)")


def test_a_start_that_is_not_finite_is_refused():
    for bad in (math.nan, math.inf):
        x0 = np.array([1.0, bad, 1.0])
        assert_not_begun(minimize(BOWL.value, x0, jac=BOWL.gradient), "x0")
        with pytest.raises(ValueError, match="x0"):  # there is no result yet
            iterate(BOWL.value, x0, jac=BOWL.gradient)


def test_a_gradient_too_large_for_its_norm_is_called_that():
    result = minimize(lambda x: 1.0, np.ones(3), jac=lambda x: np.full(3, 1e200))
    assert_not_begun(result, "norm of the gradient at x0 overflows; rescale")


# --- in the middle --------------------------------------------------------------------------------


def walled(inside, outside):
    """inside where |x| < 2, outside elsewhere."""
    return lambda x: inside(x) if np.linalg.norm(x) < 2 else outside(x)


WALLS = {
    "both nan": (lambda x: math.nan, lambda x: np.full(3, math.nan)),
    "both inf": (lambda x: math.inf, lambda x: np.full(3, math.inf)),
    "gradient nan, value finite": (BOWL.value, lambda x: np.full(3, math.nan)),
    "one entry of the gradient nan": (BOWL.value, lambda x: np.array([math.nan, x[1], x[2]])),
    "gradient mixed infinities": (BOWL.value, lambda x: np.array([math.inf, -math.inf, 1.0])),
    "value nan, gradient finite": (lambda x: math.nan, BOWL.gradient),
    "value inf, gradient finite": (lambda x: math.inf, BOWL.gradient),
    "value and gradient huge": (lambda x: 1e300, lambda x: np.full(3, 1e300)),
}


@pytest.mark.parametrize("wall", WALLS)
def test_adaptive_methods_turn_back_at_a_wall_and_converge(adaptive, how, wall):
    """The first step is far too long and ends behind the wall; the minimum is inside."""
    value, gradient = (
        walled(BOWL.value, WALLS[wall][0]),
        walled(BOWL.gradient, WALLS[wall][1]),
    )
    too_long = {"step_size": 1.0, "hessian_lipschitz": 1.0, "eps": 1e-4, "tol": 1e-4}
    result = run(adaptive, value, gradient, how=how, **too_long)
    assert result.trace.when("rollback")
    assert result.status in (Status.CONVERGED, Status.COMPLETED), result.message
    assert np.linalg.norm(result.x) < 1e-3
    assert_true_ending(result, value, gradient, 1e-3)


@pytest.mark.parametrize("wall", WALLS)
def test_fixed_methods_say_so_when_they_meet_a_wall(fixed, how, wall):
    value, gradient = (
        walled(BOWL.value, WALLS[wall][0]),
        walled(BOWL.gradient, WALLS[wall][1]),
    )
    too_small = {"gradient_lipschitz": 10.0, "tol": 1e-4, "max_iterations": 5000}
    result = run(fixed, value, gradient, how=how, **too_small)
    assert_true_ending(result, value, gradient, 1e-4)
    assert math.isfinite(result.fun), "the best point seen is one with a finite value"
    if result.status is Status.NON_FINITE:
        assert result.trace.when("non-finite")


@pytest.mark.parametrize("bad", VOIDS)
@pytest.mark.parametrize("radius", [0.5, 1e-7])
def test_a_minimum_in_a_void_is_never_called_a_success(method, how, bad, radius):
    """Around the minimum the value is not finite, though the gradient is, and is small."""

    def value(x):
        return BOWL.value(x) if np.linalg.norm(x) > radius else bad

    result = run(method, value, BOWL.gradient, how=how, tol=1e-5, max_iterations=4000)
    assert not (result.success and not math.isfinite(result.fun)), result.message
    if radius == 0.5:
        assert not result.success


@pytest.mark.parametrize("bad", VOIDS)
def test_the_point_returned_has_a_finite_value_if_any_point_seen_had_one(method, how, bad):
    def value(x):
        return BOWL.value(x) if np.linalg.norm(x) > 0.5 else bad

    result = run(method, value, BOWL.gradient, how=how, max_iterations=1500)
    assert math.isfinite(result.fun), f"{result.status.name}: {result.message}"
    assert result.fun <= BOWL.value(BOWL.start)


def with_a_void(x):
    return BOWL.value(x) if np.linalg.norm(x) > 0.5 else math.nan


def test_what_the_user_does_to_x0_later_does_not_come_back(fixed):
    """With nothing better to return the start is returned: the start, not the user's array."""
    x0 = BOWL.start.copy()
    options = fixed.plain(BOWL) | {"jac": BOWL.gradient, "max_iterations": 3000}
    steps = iterate(with_a_void, x0, **options)
    x0[:] = 7.0
    for _ in steps:
        pass
    assert steps.result.fun <= BOWL.value(BOWL.start)


def test_the_x0_given_when_resuming_is_only_a_shape(fixed, tmp_path):
    options = fixed.plain(BOWL) | {"jac": BOWL.gradient}
    path = tmp_path / "run"
    minimize(with_a_void, BOWL.start, max_iterations=3, checkpoint=path, **options)
    far = np.full(3, 9.0)
    result = minimize(with_a_void, far, max_iterations=3000, resume=path, **options)
    assert result.fun <= BOWL.value(BOWL.start)


def test_minus_infinity_is_no_decrease(adaptive, how):
    """Behind a wall the value is -inf: the method must not be lured there."""
    value = walled(BOWL.value, lambda x: -math.inf)
    too_long = {"step_size": 1.0, "hessian_lipschitz": 1.0, "eps": 1e-4, "tol": 1e-4}
    result = run(adaptive, value, BOWL.gradient, how=how, **too_long)
    assert math.isfinite(result.fun)
    assert np.linalg.norm(result.x) < 2


def test_minus_infinity_reaches_no_target(method, how):
    def value(x):
        return BOWL.value(x) if np.linalg.norm(x) > 0.5 else -math.inf

    result = run(method, value, BOWL.gradient, how=how, target=-1.0, max_iterations=2000)
    assert result.status is not Status.TARGET_REACHED
    assert not (result.success and not math.isfinite(result.fun))


def test_a_gradient_that_turns_nan_for_good_ends_the_run(method, how):
    """From the twelfth call on nothing works any more."""

    def breaks(number, x):
        if number == 12:
            user.gradient_of = lambda x: np.full(3, math.nan)

    user = counted(BOWL, breaks)
    options = method.plain(BOWL) | {"max_iterations": 20_000}
    result = minimize(x0=BOWL.start, **user.given(how), **options)
    assert not result.success
    assert result.status in (Status.NON_FINITE, Status.NO_PROGRESS), result.message
    assert np.all(np.isfinite(result.x))


@pytest.mark.parametrize("radius", [0.5, 0.01])
def test_a_hole_in_the_gradient_ends_the_run_without_success(method, how, radius):
    """Where the value is lowest the gradient is not defined, as that of |x| at 0."""

    def gradient(x):
        return BOWL.gradient(x) if np.linalg.norm(x) > radius else np.full(3, math.nan)

    result = run(method, BOWL.value, gradient, how=how, max_iterations=20_000)
    assert not result.success
    assert result.status in (Status.NON_FINITE, Status.NO_PROGRESS), result.message
    assert result.nit < 20_000
    assert np.all(np.isfinite(result.jac))
    assert result.fun <= BOWL.value(BOWL.start)


def test_a_barrier_is_respected(adaptive):
    """sum of x - log x: the logarithm is not defined where long steps end."""

    def value(x):
        return float(np.sum(x - np.log(x))) if np.all(x > 0) else math.nan

    def gradient(x):
        return 1 - 1 / x if np.all(x > 0) else np.full(x.shape, math.nan)

    result = run(adaptive, value, gradient, x0=np.array([1e-2, 3.0, 20.0]))
    assert result.status is Status.CONVERGED
    assert np.allclose(result.x, 1.0, atol=1e-4)


# --- huge and tiny --------------------------------------------------------------------------------

SCALES = [1e-150, 1e-100, 1e-30, 1e30, 1e100, 1e140]


@pytest.mark.parametrize("scale", SCALES)
def test_the_scale_of_the_objective_does_not_matter(adaptive, scale):
    result = run(
        adaptive,
        lambda x: scale * BOWL.value(x),
        lambda x: scale * BOWL.gradient(x),
        tol=1e-5 * scale,
    )
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(result.x) < 1e-4


@pytest.mark.parametrize("scale", [*SCALES, 1e150])
def test_the_scale_of_x_does_not_matter(adaptive, scale):
    result = run(adaptive, BOWL.value, BOWL.gradient, scale * BOWL.start, tol=1e-5 * scale)
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(result.x) < 1e-4 * scale


@pytest.mark.parametrize(("curvature", "scale"), [(1e170, 1e-40), (1e-170, 1e40), (1e-200, 1e60)])
def test_extreme_curvature_is_no_crash(adaptive, curvature, scale):
    """Squares of step sizes over- and underflow before anything else does."""
    result = run(
        adaptive,
        lambda x: 0.5 * curvature * float(x @ x),
        lambda x: curvature * x,
        np.full(3, scale),
        tol=1e-5 * curvature * scale,
    )
    assert result.status is Status.CONVERGED


def test_a_tiny_gradient_is_not_called_zero():
    """Entries of 1e-170 have squares that underflow, but a norm that does not."""
    result = minimize(lambda x: 0.0, np.ones(3), jac=lambda x: np.full(3, 1e-170), max_iterations=0)
    assert result.grad_norm == pytest.approx(math.sqrt(3) * 1e-170, rel=1e-12, abs=0)


def test_overflow_on_the_way_is_rejected(adaptive):
    """A quartic from far away: the first steps overflow."""

    def value(x):
        with np.errstate(over="ignore"):
            return float(np.sum(x**4))

    def gradient(x):
        with np.errstate(over="ignore"):
            return 4 * x**3

    start = np.array([10.0, -20.0, 5.0])
    options = {"step_size": 1.0, "hessian_lipschitz": 1.0, "eps": 1e-3, "tol": 1e-3}
    result = run(adaptive, value, gradient, start, **options)
    assert result.success, result.message
    assert result.trace.when("rollback")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_library_itself_never_warns_of_overflow(method, dtype):
    """Steps that overflow are an answer, not an accident: no RuntimeWarning, no exception."""
    big = np.finfo(dtype).max / 10

    def gradient(x):
        return np.full(x.shape, big, dtype)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if dtype is np.float64:
            assert_not_begun(run(method, lambda x: 1.0, gradient, np.ones(3, dtype)), "overflows")
        else:
            options = {"max_iterations": 300}
            if method.needs_constants:
                options |= {"gradient_lipschitz": 0.01}
            result = run(method, lambda x: 1.0, gradient, np.ones(3, dtype), **options)
            assert not result.success


# --- wrong gradients ------------------------------------------------------------------------------


def waves_value(x):
    return float(WAVES.value(x))


WRONG = {
    "sign flipped, unbounded": (BOWL.value, lambda x: -BOWL.gradient(x)),
    "sign flipped, bounded": (waves_value, lambda x: -WAVES.gradient(x)),
    "of another function": (BOWL.value, lambda x: BOWL.gradient(x - 2.0)),
    "of a rotation": (BOWL.value, lambda x: np.array([-x[1], x[0], 0.0])),
    "of a linear function": (BOWL.value, lambda x: np.array([-1.0, -1.0, -1.0])),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_gradient_ends_without_success(method, how, wrong):
    value, gradient = WRONG[wrong]
    x0 = np.array([1.0, 1.2, 0.8])
    result = run(method, value, gradient, x0, how=how, tol=1e-3, max_iterations=3000)
    assert not result.success, f"f went from {value(x0)} to {result.fun}; {result.message}"


@pytest.mark.parametrize("wrong", WRONG)
def test_adaptive_methods_notice_that_a_wrong_gradient_leads_nowhere(adaptive, wrong):
    """No step that rounding allows lowers f: that is a reason to stop long before the limit."""
    value, gradient = WRONG[wrong]
    result = run(adaptive, value, gradient, np.array([1.0, 1.2, 0.8]), tol=1e-3)
    assert result.status is Status.NO_PROGRESS, result.message
    assert result.nit < 20_000


def test_a_right_gradient_never_ends_above_the_last_accepted_point(adaptive):
    """Far out, sum of log(1 + x^2) is flat: a small gradient there is no reason to stay."""

    def both(x):
        return float(np.sum(np.log1p(x * x))), 2 * x / (1 + x * x)

    for tol in (0.1, 0.03, 0.01, 0.003):
        for start in ((0.5, 0.5, 3.0), (2.0, 1.0), (0.3, 5.0), (1.0, 1.0, 1.0)):
            x0 = np.array(start)
            result = minimize(both, x0, jac=True, tol=tol, method=adaptive.name)
            assert result.success, (tol, start, result.message)
            assert result.fun <= both(x0)[0]


def test_a_step_of_exactly_two_over_l_does_not_swing_for_ever(adaptive):
    """x -> -x leaves value and gradient norm as they are; halving 4/L leads there."""
    options = {"step_size": 4.0, "hessian_lipschitz": 1.0, "eps": 1e-3, "tol": 1e-3}
    options |= {"initial_radius": 1e-3, "radius": 1e-3, "max_iterations": 5000}
    result = minimize(
        lambda x: 0.5 * float(x @ x), np.ones(2), jac=np.copy, method=adaptive.name, **options
    )
    assert result.success, result.message


# --- nothing to be found --------------------------------------------------------------------------


def test_a_constant_function_is_stationary(method, how):
    result = run(method, lambda x: 3.0, lambda x: np.zeros(3), how=how, tol=1e-3)
    assert result.success
    assert result.fun == 3.0
    assert np.allclose(result.x, BOWL.start, atol=1e-3)


def test_a_linear_function_is_never_solved(method, how):
    def value(x):
        return float(np.sum(x))

    result = run(method, value, lambda x: np.ones(3), how=how, max_iterations=3000)
    assert not result.success
    known = (Status.MAX_ITERATIONS, Status.NON_FINITE, Status.NO_PROGRESS, Status.UNBOUNDED)
    assert result.status in known
    assert result.fun < value(BOWL.start)
    assert result.grad_norm == pytest.approx(math.sqrt(3))


def test_falling_for_ever_ends_at_the_end_of_the_numbers(adaptive):
    """Growing steps on an unbounded function: f passes -1e308 and the run must end truthfully."""

    def value(x):
        with np.errstate(over="ignore"):
            return float(np.sum(x))

    options = {"growth": 1.9, "epoch_length": 2, "momentum": 0.5, "max_iterations": 20_000}
    result = run(adaptive, value, lambda x: np.ones(3), **options)
    assert not result.success
    assert math.isfinite(result.fun)
    assert np.all(np.isfinite(result.x))


def test_one_dimension(method, how):
    class Parabola:
        gradient_lipschitz, hessian_lipschitz = 2.0, 1.0

    def value(x):
        return float((x[0] - 1) ** 2)

    result = run(method, value, lambda x: 2 * (x - 1), [3.0], Parabola, how=how, tol=1e-4)
    assert result.success
    assert result.x == pytest.approx([1.0], abs=1e-4)


def test_a_gradient_of_exactly_zero_at_the_start(method, how):
    result = run(method, BOWL.value, BOWL.gradient, np.zeros(3), how=how, tol=1e-3)
    assert result.success
    assert result.grad_norm <= 1e-3


def test_a_saddle_at_the_start_is_stationary_for_all_but_the_perturbed(method):
    def value(x):
        return 0.5 * float(x[0] ** 2 - x[1] ** 2) + 0.25 * float(x[1] ** 4)

    def gradient(x):
        return np.array([x[0], -x[1] + x[1] ** 3])

    class Saddle:
        gradient_lipschitz, hessian_lipschitz = 12.0, 12.0

    result = run(method, value, gradient, np.zeros(2), Saddle, tol=1e-2)
    assert result.success
    if method.name == "perturbed-ragd":
        assert abs(result.x[1]) == pytest.approx(1.0, abs=0.05)
    else:
        assert result.nit == 0


# --- noise and rounding ---------------------------------------------------------------------------


def noisy(function, level, seed):
    rng = np.random.default_rng(seed)
    return lambda x: function(x) + level * rng.standard_normal(np.shape(function(x)))


def test_noise_of_1e_10_does_not_hinder(method, how):
    value, gradient = noisy(BOWL.value, 1e-10, 0), noisy(BOWL.gradient, 1e-10, 1)
    result = run(method, value, gradient, how=how, tol=1e-4)
    assert result.success, result.message
    assert np.linalg.norm(result.x) < 1e-3


def test_noise_above_the_tolerance_ends_truthfully(adaptive, how):
    value, gradient = noisy(BOWL.value, 1e-4, 0), noisy(BOWL.gradient, 1e-4, 1)
    result = run(adaptive, value, gradient, how=how, tol=1e-9, max_iterations=5000)
    assert not result.success
    assert np.linalg.norm(result.x) < 1e-2


def rounded(dtype, offset):
    a = BOWL.curvatures.astype(dtype)
    c = np.array([0.3, -1.7, 0.1], dtype)

    def value(x):
        return dtype(offset) + dtype(0.5) * np.sum(a * (x - c) ** 2)

    return value, lambda x: a * (x - c)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_a_tolerance_below_single_precision_ends_early_and_truthfully(case, offset):
    value, gradient = rounded(np.float32, offset)
    result = run(case, value, gradient, np.array([3, 2, 5], np.float32), tol=1e-9)
    assert result.success == (result.grad_norm <= 1e-9)
    assert result.grad_norm < 1e-3
    assert result.nit < 10_000
    if not result.success:
        assert result.status is Status.NO_PROGRESS
        assert "rounding" in result.message


def test_fixed_methods_in_single_precision_do_not_blame_right_constants(fixed):
    """The promise is broken by rounding: L and rho are as they should be."""
    value, gradient = rounded(np.float32, 0.0)
    start = np.array([3, 2, 5], np.float32)
    result = run(fixed, value, gradient, start, tol=1e-9, max_iterations=20_000)
    assert result.success == (result.grad_norm <= 1e-9)
    assert "too small for this function" not in result.message or "rounding" in result.message


# --- what user code returns, and arguments of the wrong kind --------------------------------------


class OwnTerm:
    """A penalty of the user's own, with a mistake in it."""

    def __init__(self, value=0.0, factor=1.0):
        self._value, self._factor = value, factor

    def value(self, x):
        return self._value

    def prox(self, x, step):
        return self._factor * x


def hidden(array):
    return np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 0)


MASKED = [
    lambda x0: minimize(lambda x: (float(x @ x), hidden(2 * x)), x0, jac=True),
    lambda x0: minimize(lambda x: float(x @ x), x0, jac=lambda x: hidden(2 * x)),
    lambda x0: minimize(lambda x: (np.ma.masked, 2 * x), x0, jac=True),
    lambda x0: minimize(lambda x: np.ma.masked, x0, jac=lambda x: 2 * x),
    lambda x0: accelerate(lambda x: hidden(x / 2), x0),
    lambda x0: minimize_many(lambda X: (hidden((X * X).sum(1)), 2 * X), x0[None], jac=True),
    lambda x0: minimize_many(lambda X: ((X * X).sum(1), hidden(2 * X)), x0[None], jac=True),
    lambda x0: minimize_many(
        lambda x: (float(x @ x), hidden(2 * x)), x0[None], jac=True, vectorized=False
    ),
]


@pytest.mark.parametrize("call", MASKED)
def test_masked_entries_of_values_and_gradients_are_refused(call):
    with pytest.raises(ValueError, match="masked entries; fill them"):
        call(np.ones(3))


def test_a_masked_array_that_hides_nothing_is_an_array():
    result = minimize(BOWL.value, BOWL.start, jac=lambda x: np.ma.array(BOWL.gradient(x)))
    assert result.success
    assert type(result.jac) is np.ndarray


def test_what_makes_the_norm_at_the_start_not_finite_is_named():
    def begin(**options):
        return minimize(BOWL.value, BOWL.start, jac=BOWL.gradient, **options)

    assert_not_begun(begin(penalty=OwnTerm(factor=math.nan)), "correct its prox")


WRONG_KINDS = [
    ({"penalty": lambda: L1("a")}, "L1: weight='a' must be finite"),
    ({"penalty": lambda: L1(["a", "b", "c"])}, "must be finite and >= 0: one number"),
    ({"penalty": lambda: L1(1j)}, "L1: weight=1j must be finite"),
    ({"penalty": lambda: L1(None)}, "L1: weight=None must be finite"),
    ({"penalty": lambda: L1([[1], [2, 3]])}, r"L1: weight=\[\[1\], \[2, 3\]\] must be finite"),
    ({"penalty": lambda: ElasticNet(1.0, [1, 2])}, r"ElasticNet: ridge=.* must be .* one number$"),
    ({"penalty": lambda: Simplex(np.ones(3))}, "Simplex: total=.* must be .* one number$"),
    ({"penalty": lambda: Ball({})}, r"Ball: radius=\{\} must be .* one number$"),
    ({"penalty": lambda: GroupL2(groups=[None, None])}, "GroupL2: groups=.* that can be sorted"),
    ({"penalty": lambda: Box("a", 1.0)}, "Box: lower= has 'a', which is no real number"),
    ({"bounds": lambda: [("0", 1), (0, 1)]}, "bounds= has '0', which is no real number; give"),
    ({"bounds": lambda: (0, 1j)}, "bounds= has 1j, which is no real number; give"),
    ({"penalty": lambda: OwnTerm("text")}, "value.* of the penalty returned 'text'"),
    ({"penalty": lambda: OwnTerm(np.ones(3))}, "value.* of the penalty returned an array"),
    ({"checkpoint": lambda: 3}, "checkpoint=3 must be the path of a file"),
    ({"checkpoint": lambda: ""}, "checkpoint='' must be the path of a file"),
    ({"resume": lambda: 3}, "resume=3 must be the path of a file"),
    ({"resume": lambda: ""}, "resume='' must be the path of a file"),
    ({"checkpoint": lambda: Checkpoint("run", every_seconds="1")}, "every_seconds='1' must be"),
]


@pytest.mark.parametrize(("given", "words"), WRONG_KINDS)
def test_arguments_of_the_wrong_kind_are_named_with_the_remedy(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        minimize(
            BOWL.value,
            BOWL.start,
            jac=BOWL.gradient,
            **{name: make() for name, make in given.items()},
        )


class ProxThatChanges:
    """0, whose prox makes something else of x from the fourth call on."""

    def __init__(self, change):
        self.change, self.calls = change, 0

    def value(self, x):
        return 0.0

    def prox(self, x, step):
        self.calls += 1
        return x if self.calls < 4 else self.change(x)


@pytest.mark.parametrize(
    "change", [lambda x: x[:1], lambda x: x.astype(np.float32), lambda x: None]
)
@pytest.mark.parametrize("method", ["auto", "gd"])
def test_a_prox_that_makes_something_else_later_is_named(change, method):
    with pytest.raises((TypeError, ValueError), match=r"the prox of penalty=.*ProxThatChanges"):
        minimize(
            BOWL.value, BOWL.start, jac=BOWL.gradient, penalty=ProxThatChanges(change),
            method=method,
        )  # fmt: skip


def test_seeds_and_sets_of_the_wrong_kind_are_named():
    rows = np.ones((2, 2))
    for rng in ("a", 1.5, -1):
        words = rf"rng={rng!r} must be a whole number >= 0"
        with pytest.raises(ValueError, match=words):
            minimize_many(lambda x: x @ x, rows, vectorized=False, jac="2-point", rng=rng)
        with pytest.raises(ValueError, match=words):
            certify(lambda x: (x @ x, 2 * x), np.zeros(2), jac=True, rng=rng)
    with pytest.raises(ValueError, match="rho='a' must be a positive number"):
        certify(lambda x: (x @ x, 2 * x), np.zeros(2), jac=True, rho="a")
    with pytest.raises(TypeError, match="resume=3 must be the path of a file"):
        minimize_many(lambda x: x @ x, rows, vectorized=False, jac="2-point", resume=3)
    with pytest.raises(TypeError, match="feasible=Box is a class; pass a set"):
        accelerate(lambda x: x / 2, rows, feasible=Box)
    with pytest.raises(ValueError, match=r"DescentMap: secants=1\.5 must be a whole number"):
        accelerate(lambda x: x / 2, rows, secants=1.5)
