"""The point returned is never above the start, and what falls for ever is called that."""

import math

import numpy as np
import pytest

from helpers import NEEDS_CONSTANTS
from momentous import Status, accelerate, iterate, minimize, testbed
from momentous.methods.registry import REGISTRY


def options(name, eps=1e-5):
    if name not in NEEDS_CONSTANTS:
        return {"method": name}
    return {"method": name, "gradient_lipschitz": 100.0, "hessian_lipschitz": 100.0, "eps": eps}


# --- never above the start ------------------------------------------------------------------------


def hills(seed):
    """Hills and valleys over which momentum carries x."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    w, a, c = rng.uniform(0.5, 6, n), rng.uniform(0.1, 5, n), rng.uniform(0.001, 0.2)

    def waves(x):
        return float(np.sum(a * (1 - np.cos(w * x)) + c * x**2)), a * w * np.sin(w * x) + 2 * c * x

    def wells(x):
        return float(np.sum(a * (x**2 - 1) ** 2)), 4 * a * (x**2 - 1) * x

    return (waves, wells)[seed % 2], rng.uniform(-6, 6, n)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_run_out_of_budget_is_not_above_the_start(name):
    above = {}
    for seed in range(24):
        both, x0 = hills(seed)
        for budget in (3, 6, 9, 13, 19, 28, 40, 70):
            result = minimize(
                both, x0, jac=True, tol=1e-10, max_evaluations=budget, **options(name)
            )
            start = both(x0)[0]
            if not result.fun <= start + 1e-12 * max(1.0, abs(start)):
                above[seed, budget] = (result.fun, start, result.status.name)
    assert not above


@pytest.mark.parametrize("name", ["ragd", "rhb"])
def test_an_end_with_wrong_constants_is_not_above_the_start(name):
    """Constants far too small: the method ends by its own rule, up a hill."""

    def both(x):
        return float(np.sum(5 * (1 - np.cos(3 * x)) + 0.01 * x**2)), 15 * np.sin(3 * x) + 0.02 * x

    wrong = {"gradient_lipschitz": 3.0, "hessian_lipschitz": 1e-6, "eps": 0.1}
    ends = set()
    for start in np.linspace(0.05, 1.0, 12):
        x0 = np.full(3, start)
        result = minimize(both, x0, jac=True, method=name, max_iterations=3000, **wrong)
        ends.add(result.status)
        if not result.success:
            assert result.fun <= both(x0)[0]
    assert ends & {Status.PROMISE_BROKEN, Status.ABOVE_TOLERANCE}


# --- unbounded ------------------------------------------------------------------------------------


def without_warnings(both):
    """The same function, silent where it overflows: a run may look as far as numbers go."""

    def silent(x):
        with np.errstate(all="ignore"):
            return both(x)

    return silent


ENDLESS = {
    "linear": (lambda x: (float(x.sum()), np.ones_like(x)), np.ones(5)),
    "square": (lambda x: (-float(x @ x), -2 * x), np.ones(5)),
    "cubic": (lambda x: (float(np.sum(x**3)), 3 * x**2), -np.ones(5)),
    "exp": (lambda x: (-float(np.exp(np.minimum(x, 700)).sum()), -np.exp(np.minimum(x, 700))),
            np.ones(5)),
    "saddle": (lambda x: (0.5 * float(x[1] ** 2 - x[0] ** 2), np.array([-x[0], x[1]])),
               np.full(2, 1e-3)),
}  # fmt: skip
ENDLESS = {kind: (without_warnings(both), x0) for kind, (both, x0) in ENDLESS.items()}
GROWING = ["safeguarded", "lbfgs", "cg", "gd", "heuristic-agd", "ada-ragd", "ada-rhb"]


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("kind", ENDLESS)
def test_an_unbounded_function_ends_soon_and_is_called_that(kind, name):
    both, x0 = ENDLESS[kind]
    result = minimize(both, x0, jac=True, method=name, max_evaluations=4000)
    assert result.status is Status.UNBOUNDED, result.message
    assert not result.success
    assert result.fun < -1e10  # the last accepted point; the run has seen lower ones
    assert "unbounded below" in result.message


def seen_as(both, height, length, lift=0.0):
    """The function ``height f(x/length) + lift``."""

    def other(x):
        value, gradient = both(x / length)
        return height * value + lift, height / length * gradient

    return without_warnings(other)


SCALES = [(1e-12, 1e-12), (1e12, 1e-12), (1e12, 1e12), (1e-12, 1e12)]


@pytest.mark.parametrize("name", ["lbfgs", "cg", "gd", "ada-ragd"])
@pytest.mark.parametrize("kind", ["linear", "square", "cubic", "saddle"])
def test_an_unbounded_function_ends_as_soon_at_any_scale(kind, name):
    both, x0 = ENDLESS[kind]
    for height, length in SCALES:
        other = seen_as(both, height, length)
        given = {"method": name, "max_evaluations": 4000, "tol": 0.0}
        result = minimize(other, x0 * length, jac=True, **given)
        assert result.status is Status.UNBOUNDED, (height, length, result.message)
    lifted = minimize(seen_as(both, 1.0, 1.0, 1e10), x0, jac=True, **given)
    assert lifted.status is Status.UNBOUNDED, lifted.message


@pytest.mark.parametrize("name", ["parameter-free-agd", "universal-hb"])
@pytest.mark.parametrize("kind", ["square", "cubic", "exp", "saddle"])
def test_without_a_line_search_curvature_tells_it_too(kind, name):
    both, x0 = ENDLESS[kind]
    result = minimize(both, x0, jac=True, method=name, max_evaluations=400)
    assert result.status is Status.UNBOUNDED, result.message


@pytest.mark.parametrize("name", ["parameter-free-agd", "universal-hb"])
def test_steps_that_do_not_grow_end_by_the_other_limits_on_a_linear_function(name):
    both, x0 = ENDLESS["linear"]
    result = minimize(both, x0, jac=True, method=name, max_evaluations=400)
    assert result.status is Status.MAX_EVALUATIONS
    assert result.fun < both(x0)[0]


BOUNDED = {
    "rosenbrock": testbed.rosenbrock(10), "chain": testbed.carmon_chain(10),
    "saddle": testbed.saddle(10), "qing": testbed.qing(10),
}  # fmt: skip


@pytest.mark.parametrize("name", [*GROWING, "parameter-free-agd", "universal-hb"])
@pytest.mark.parametrize("kind", BOUNDED)
def test_no_bounded_function_is_called_unbounded_at_any_scale(kind, name):
    problem = BOUNDED[kind]
    start, zero = problem.start, float(problem.value(problem.start))
    views = [(height, length, 0.0) for height, length in SCALES]
    views += [(1.0, 1.0, 1e10), (1.0, 1.0, -1e10), (1e30, 1e12, -1e30 * zero)]
    for height, length, lift in views:
        other = seen_as(problem.value_and_gradient, height, length, lift)
        given = {"method": name, "max_evaluations": 150, "tol": 0.0}
        result = minimize(other, start * length, jac=True, **given)
        assert result.status is not Status.UNBOUNDED, (height, length, lift, result.message)
    moved = minimize(
        lambda x: problem.value_and_gradient(x - 1e10), start + 1e10, jac=True, **given
    )
    assert moved.status is not Status.UNBOUNDED, moved.message


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("length", [1e12, 1e25])
def test_a_huge_objective_over_a_huge_x_is_not_called_unbounded(length, name):
    """From x0 = 0 and f = 0 down to -1e40: nothing at the start says how large f and x are."""

    def bowl(x):
        return 1e40 * float(x @ x / 2 / length - x.sum()) / length, 1e40 * (x / length - 1) / length

    result = minimize(bowl, np.zeros(5), jac=True, method=name, tol=1e34 / length)
    assert result.status is Status.CONVERGED, result.message


@pytest.mark.parametrize("name", GROWING)
def test_a_long_straight_descent_is_not_called_unbounded(name):
    """A slope that stays the same to the last digit for 1e9 times the length of the first step."""

    def hinge(x):
        root = np.sqrt(1 + (x - 1e12) ** 2)
        return float(root.sum()), (x - 1e12) / root

    result = minimize(hinge, np.zeros(2), jac=True, method=name, max_evaluations=2000)
    assert result.status is not Status.UNBOUNDED, result.message


def test_x_that_grows_without_bounds_is_noticed_without_values():
    """Separate functions: a fixed step needs no value, and only x can tell."""
    fixed = {"method": "gd", "step_size": 1e153}
    result = minimize(lambda x: float(x.sum()), np.ones(2), jac=np.ones_like, **fixed)
    assert result.status is Status.UNBOUNDED, result.message
    assert "norm" in result.message
    assert result.nit == 32


def test_a_target_below_goes_first_and_a_deep_minimum_is_none():
    both, x0 = ENDLESS["square"]
    assert minimize(both, x0, jac=True, target=-1e60).status is Status.TARGET_REACHED

    def deep(x):
        return 1e24 * (float(x @ x) - 1.0), 2e24 * x

    assert minimize(deep, np.ones(2), jac=True, tol=1e18).status is Status.CONVERGED


@pytest.mark.parametrize("name", ["auto", "lbfgs", "gd"])
def test_a_bounded_function_of_a_huge_scale_is_not_called_unbounded(name):
    def huge(x):
        return 1e22 * float(x @ x - 2 * x.sum()), 2e22 * (x - 1)

    result = minimize(huge, np.zeros(5), jac=True, method=name, tol=1e12)
    assert result.status is Status.CONVERGED, result.message
    assert result.fun == pytest.approx(-5e22)


def test_a_map_that_lowers_a_huge_objective_is_not_called_unbounded():
    result = accelerate(
        lambda x: (x + 1) / 2, np.zeros(5), lambda x: 1e22 * float(x @ x - 2 * x.sum())
    )
    assert result.success, result.message


def test_a_limit_that_holds_goes_before_unbounded():
    both, x0 = ENDLESS["cubic"]
    end = minimize(both, x0, jac=True, method="lbfgs")
    assert end.status is Status.UNBOUNDED
    assert f"in iteration {end.nit}:" in end.message
    limited = minimize(both, x0, jac=True, method="lbfgs", max_iterations=end.nit)
    assert limited.status is Status.MAX_ITERATIONS


def test_a_run_within_a_function_that_cannot_begin_is_not_the_run_of_the_caller():
    def inner(x):
        return math.nan, x

    def outer(x):
        iterate(inner, np.ones(5), jac=True)
        return float(x @ x), 2 * x

    with pytest.raises(ValueError, match="fun"):
        minimize(outer, np.ones(2), jac=True)


def test_a_start_that_is_not_finite_gives_a_whole_result():
    result = minimize(lambda x: (math.inf, x), np.ones(2), jac=True, bounds=[(0, 3), (0, 1)])
    assert (result.status, result.success, result.nit) == (Status.NON_FINITE, False, 0)
    assert result.active.shape == (2,)
    result.x[0] = 3.0
