"""check_gradient=True finds the usual mistakes before the run, and does not accuse the honest."""

import numpy as np
import pytest
import scipy.optimize

from momentous import Status, iterate, minimize
from momentous.core.box import HostBox
from momentous.core.gradient_check import find_kink
from momentous.core.oracle import Oracle
from momentous.core.sources import function_source
from momentous.core.space import Space


def rosenbrock(x):
    a, b = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] += -400 * a * (b - a * a) - 2 * (1 - a)
    gradient[1:] += 200 * (b - a * a)
    return float(np.sum(100 * (b - a * a) ** 2 + (1 - a) ** 2)), gradient


def cosines(x):
    return float(np.sum(1 - np.cos(x) + 0.05 * x**2)), np.sin(x) + 0.1 * x


def logarithms(x):
    """Not defined everywhere near x0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.sum(x - np.log(x))), 1 - 1 / x


PROBLEMS = {
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0, -0.5, 0.8, 1.4, 0.3])),
    "cosines": (cosines, np.linspace(-7, 7, 6)),
    "logarithms": (logarithms, np.array([0.5, 2.0, 0.01, 3.0, 1.5, 0.7])),
}
MISTAKES = {
    "one coordinate": lambda g, x, call: g * np.where(np.arange(6) == 1, 0.5, 1.0),
    "sign of one": lambda g, x, call: g * np.where(np.arange(6) == 1, -1.0, 1.0),
    "one missing": lambda g, x, call: g * (np.arange(6) != 1),
    "scaled": lambda g, x, call: 2 * g,
    "scaled per coordinate": lambda g, x, call: g * np.linspace(0.3, 3, 6),
    "zero now and then": lambda g, x, call: g * (call % 4 != 0),
    "noise": lambda g, x, call: g * (1 + 0.1 * np.sin(call * np.arange(1.0, 7.0))),
    "swapped": lambda g, x, call: np.roll(g, 3),
    "constant": lambda g, x, call: g + 0.05,
    "of another function": lambda g, x, call: g + 0.1 * np.sin(x),
    "off by one": lambda g, x, call: np.roll(g, -1),
}
HONEST = {
    "exact": lambda g, x, call: g,
    "float32": lambda g, x, call: g.astype(np.float32).astype(np.float64),
}


def wrong(fun, mistake):
    calls = []

    def both(x):
        calls.append(x)
        value, gradient = fun(x)
        return value, mistake(gradient, x, len(calls))

    return both, calls


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_usual_mistakes_are_found(mistake, problem):
    fun, x0 = PROBLEMS[problem]
    both, calls = wrong(fun, MISTAKES[mistake])
    with pytest.raises(ValueError, match=r"what fun returns .*(jac='autodiff'|draw the)"):
        minimize(both, x0, jac=True, check_gradient=True)
    assert len(calls) < 40


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e-4, 1e3, 1e6])
def test_the_scale_of_x_does_not_matter(scale):
    """Where x lives at 1e-6 steps as for x = 1 leap over all that there is."""
    for fun, x0 in PROBLEMS.values():

        def scaled(x, fun=fun):
            value, gradient = fun(x / scale)
            return value, gradient / scale

        for shift in np.linspace(0.9, 1.1, 5):
            with np.errstate(over="ignore", invalid="ignore"):
                iterate(scaled, shift * scale * x0, jac=True, check_gradient=True)
        for name, mistake in MISTAKES.items():
            if name == "zero now and then":  # found by luck, and calls are others than at scale 1
                continue

            def at_scale_1(g, x, call, mistake=mistake):
                return mistake(scale * g, x / scale, call) / scale

            both, calls = wrong(scaled, at_scale_1)
            with pytest.raises(ValueError, match="what fun returns"):
                iterate(both, scale * x0, jac=True, check_gradient=True)
            assert len(calls) < 60


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_gradient_of_the_call_before_is_found(problem):
    fun, x0 = PROBLEMS[problem]
    before = []

    def stale(x):
        value, gradient = fun(x)
        before.append(gradient)
        return value, before[-2] if len(before) > 1 else gradient

    with pytest.raises(ValueError, match="two answers at one x"):
        iterate(stale, x0, jac=True, check_gradient=True)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kind", HONEST)
def test_honest_gradients_pass_in_twelve_uncounted_calls(kind, problem):
    fun, x0 = PROBLEMS[problem]
    both, calls = wrong(fun, HONEST[kind])
    run = iterate(both, x0, jac=True, check_gradient=True, tol=1e-4)
    assert len(calls) - run.progress.nfev <= 12 + (problem == "logarithms")
    plain = minimize(both, x0, jac=True, tol=1e-4)
    found = run.finish()
    assert (found.nfev, found.njev, found.nit) == (plain.nfev, plain.njev, plain.nit)
    assert np.array_equal(found.x, plain.x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_low_precision_and_values_that_are_rounded_are_not_accused(dtype):
    def value(x):
        return float(np.float32(cosines(x)[0]))

    x0 = np.linspace(-7, 7, 6, dtype=dtype)
    minimize(value, x0, jac=lambda x: cosines(x)[1], check_gradient=True, max_iterations=1)


def test_steps_that_leap_over_waves_accuse_nobody_in_single_precision():
    def fun(x):
        z = x.astype(float) * 1e3
        return np.float32(np.sin(3 * z).sum()), (3e3 * np.cos(3 * z)).astype(np.float32)

    draw = np.random.default_rng(0)
    for _ in range(20):
        x0 = (1e-3 * (0.3 + draw.random(3))).astype(np.float32)
        minimize(fun, x0, jac=True, check_gradient=True, max_iterations=0)


def test_the_error_names_the_coordinate_and_the_numbers():
    def both(x):
        return float(np.sum(x**2)), 2 * x * np.where(np.arange(6).reshape(2, 3) == 4, 3.0, 1.0)

    with pytest.raises(ValueError, match=r"at x0 its entry \(1, 1\) is 6, .* say 2;"):
        minimize(both, np.ones((2, 3)), jac=True, check_gradient=True)
    with pytest.raises(ValueError, match="all of it seems to be -1 times the gradient"):
        minimize(lambda x: (float(x @ x), -2 * x), np.ones(4), jac=True, check_gradient=True)


def test_other_libraries_are_checked_too(library):
    x0, xp = library.array(np.linspace(1.0, 2.0, 4)), library.xp
    minimize(lambda x: xp.sum(x * x), x0, jac=lambda x: 2 * x, check_gradient=True, tol=1e-3)
    with pytest.raises(ValueError, match="3 times the gradient"):
        minimize(lambda x: xp.sum(x * x), x0, jac=lambda x: 6 * x, check_gradient=True)


def test_differences_are_no_gradient_to_check():
    with pytest.raises(ValueError, match="gives differences"):
        minimize(lambda x: float(x @ x), np.ones(2), jac="2-point", check_gradient=True)


def test_runs_without_progress_say_how_to_check():
    fun, x0 = PROBLEMS["cosines"]
    result = minimize(lambda x: fun(x)[0], x0, jac=lambda x: -fun(x)[1])
    assert result.status is Status.NO_PROGRESS
    assert result.message.endswith("pass check_gradient=True to test the gradient")
    by_differences = {"jac": "2-point", "options": {"eps": 1e-2}}
    result = minimize(scipy.optimize.rosen, np.array([-1.2, 1.0]), **by_differences)
    assert result.status is Status.NO_PROGRESS
    assert "check_gradient" not in result.message  # there is none to check
    assert "differences" in result.message


def minibatches(size, seed=0):
    """Logistic regression on a new random batch in every call."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((400, 20))
    signs = np.sign(table @ rng.standard_normal(20) + 0.5 * rng.standard_normal(400))
    calls = []

    def loss(x):
        calls.append(1)
        rows = rng.choice(400, size, replace=False)
        margins = signs[rows] * (table[rows] @ x)
        slopes = -signs[rows] / (1 + np.exp(margins))
        value = np.logaddexp(0, -margins).mean() + 0.005 * x @ x
        return float(value), table[rows].T @ slopes / size + 0.01 * x

    return loss, calls


@pytest.mark.parametrize("method", ["auto", "lbfgs", "universal-hb"])
@pytest.mark.parametrize("size", [8, 32, 128, 300])
def test_a_random_function_is_noticed_once_in_the_first_iterations(method, size):
    loss, calls = minibatches(size)
    words = r"two answers at one point.*draw the batch.*torch.optim"
    run = iterate(loss, np.zeros(20), jac=True, method=method, max_iterations=60)
    with pytest.warns(RuntimeWarning, match=words) as warned:
        noticed = [step.nfev for step in run if warned.list]
    assert noticed[0] <= 120
    assert len(warned.list) == 1
    assert run.result.nfev == len(calls)  # the second look is counted


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", ["auto", "universal-hb"])
def test_of_a_smooth_function_no_point_is_evaluated_twice(method, problem):
    fun, x0 = PROBLEMS[problem]
    points = []

    def seen(x):
        points.append(x.tobytes())
        return fun(x)

    assert minimize(seen, x0, jac=True, method=method).success
    assert len(set(points)) == len(points)


def lasso(seed):
    """Typed with `abs`: 50 x 20, weight 5."""
    rng = np.random.default_rng(seed)
    table, weights = rng.standard_normal((50, 20)), np.repeat([3.0, 0.0], [5, 15])
    targets = table @ (weights * rng.standard_normal(20)) + 0.5 * rng.standard_normal(50)

    def both(x):
        r = table @ x - targets
        return 0.5 * float(r @ r) + 5 * np.abs(x).sum(), table.T @ r + 5 * np.sign(x)

    return both


@pytest.mark.parametrize("method", ["auto", "lbfgs"])
@pytest.mark.parametrize("seed", range(3))
def test_a_kink_ends_the_run_and_names_the_way_out(method, seed):
    calls = []

    def counted(x):
        calls.append(1)
        return lasso(seed)(x)

    result = minimize(counted, np.ones(20), jac=True, method=method)
    assert result.status is Status.NO_PROGRESS
    assert "not smooth" in result.message
    assert "penalty=L1(...)" in result.message
    assert "check_gradient" not in result.message
    assert result.nfev == len(calls) < 5000  # the bisection is counted


def steep(x):
    """Of curvature 1e8 far from zero, so that rounding of x moves gradients by their size."""
    z = x - 1e4
    scale = np.array([1e8, 1e4, 1.0])
    return 0.5 * float(z @ (scale * z)), scale * z


def test_rounding_beside_a_large_multiplier_is_no_kink():
    """Half of the projected gradient, which is small, is less than what moves the other entry."""

    def fun(x):
        return 1e16 * x[0] + x[1] ** 2 / 2, np.array([1e16 + 4 * np.sign(x[1] - 1.0), x[1]])

    space = Space(np.array([0.0, 1.0]))
    space.box = HostBox(np.array([0.0, -9.0]), np.array([9.0, 9.0]))
    oracle = Oracle(function_source(fun, True, (), space))
    ends = [oracle.evaluate_anew(np.array([0.0, 1.0 + side])) for side in (-1e-12, 1e-12)]
    assert find_kink(oracle, *ends) is None


def test_a_steep_gradient_is_no_kink():
    """Over a distance of rounding it changes by its size, too, and by half of that over half."""
    a = np.array([1e4 + 1e-9, 1e4, 1e4])
    b = a - [2e-9, 0.0, 0.0]
    space = Space(a)
    oracle = Oracle(function_source(steep, True, (), space))
    ends = [oracle.evaluate_anew(x) for x in (a, b)]
    assert find_kink(oracle, *ends) is None
    assert 1 <= oracle.njev <= 3

    def with_kink(x):
        return 0.0, np.sign(x - 1e4) + 1e-3

    oracle = Oracle(function_source(with_kink, True, (), space))
    ends = [oracle.evaluate_anew(x) for x in (a, b)]
    assert "not smooth" in find_kink(oracle, *ends).message
