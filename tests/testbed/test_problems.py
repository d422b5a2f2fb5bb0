"""The testbed keeps its word: derivatives, constants, minima, chains, array libraries."""

import importlib
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from momentous import testbed
from momentous.testbed import LOSSES, Problem

# Height of the potential of the second-order chain at 0.
UPSILON_AT_ZERO = 60.0 * (1.0 + math.log(2.0)) - 30.0 * math.pi
PROBLEMS = testbed.problems()
CHAINS = [
    testbed.carmon_chain(7),
    testbed.second_order_chain(6, 0.2),
    testbed.nested_chain(3, 0.04),
    testbed.nested_chain(3, 1.0 / 3.0),
]
DIAGONAL = [  # exact constants, and a Hessian that shows them coordinate by coordinate
    p
    for p in PROBLEMS
    if p.name.startswith(("separable", "saddle", "flat-saddle")) and "rotated" not in p.name
]


def each(problems):
    return pytest.mark.parametrize("problem", problems, ids=lambda p: p.name)


def points(problem: Problem, count: int = 6, seed: int = 1):
    """Random points around the start, near and far, within the ball where constants hold."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        x = problem.start + (0.1, 1.0, 3.0)[k % 3] * rng.standard_normal(problem.dimension)
        yield x * min(1.0, 0.9 * problem.constants_radius / np.linalg.norm(x))


def direction(problem: Problem, seed: int = 2):
    v = np.random.default_rng(seed).standard_normal(problem.dimension)
    return v / np.linalg.norm(v)


def central_difference(function, h: float):
    """Fourth-order derivative at 0 of a function of one variable."""
    near, far = function(h) - function(-h), function(2 * h) - function(-2 * h)
    return (8.0 * near - far) / (12.0 * h)


# --- the contract -------------------------------------------------------------------------------


def test_names_are_distinct_and_bounds_respected():
    names = [p.name for p in PROBLEMS]
    assert len(set(names)) == len(names)
    assert {p.dimension for p in testbed.problems(max_dimension=5)} <= set(range(6))
    assert 0 < len(testbed.with_constants(5)) < len(testbed.with_constants()) < len(PROBLEMS)


def test_public_names_exist():
    assert all(hasattr(testbed, name) for name in testbed.__all__)


def test_with_constants_leaves_out_constants_of_a_ball():
    names = {p.name for p in testbed.with_constants()}
    assert "factorisation-8-2" not in names
    assert not any(name.startswith("rosenbrock") for name in names)
    assert "carmon-chain-6" in names


@each(PROBLEMS)
def test_start_is_protected_and_copied(problem):
    with pytest.raises(ValueError, match="read-only"):
        problem.start[0] = 1.0
    fresh = problem.start_in()
    fresh += 1.0
    assert not np.array_equal(fresh, problem.start)


@each(PROBLEMS)
def test_fused_call_agrees_with_the_separate_ones(problem):
    for x in points(problem):
        f, g = problem.value_and_gradient(x)
        assert f == pytest.approx(float(problem.value(x)), rel=1e-14, abs=1e-14)
        np.testing.assert_array_equal(g, problem.gradient(x))
        assert g.shape == x.shape
        assert np.ndim(f) == 0


# --- derivatives --------------------------------------------------------------------------------


@each(PROBLEMS)
def test_gradient_matches_finite_differences(problem):
    for x in points(problem):
        f, g = problem.value_and_gradient(x)
        for v in [
            direction(problem),
            *np.eye(problem.dimension)[:: max(1, problem.dimension // 5)],
        ]:
            slope = central_difference(lambda h, x=x, v=v: problem.value(x + h * v), 1e-3)
            noise = 1e-12 * (1.0 + abs(f)) / 1e-3
            assert g @ v == pytest.approx(slope, rel=1e-6, abs=noise + 1e-7)


@each([p for p in PROBLEMS if p.hessian_product is not None])
def test_hessian_product_matches_finite_differences(problem):
    for x in points(problem):
        v = direction(problem)
        bend = central_difference(lambda h, x=x, v=v: problem.gradient(x + h * v), 1e-3)
        noise = 1e-12 * (1.0 + np.linalg.norm(problem.gradient(x))) / 1e-3
        np.testing.assert_allclose(
            problem.hessian_product(x, v), bend, rtol=1e-5, atol=noise + 2e-6
        )


@each(PROBLEMS)
def test_finite_and_silent_far_away(problem):
    for size in (1e-300, 1e-3, 1e3, 1e6):
        for sign in (1.0, -1.0):
            x = np.full(problem.dimension, sign * size)
            x[::2] *= -0.5
            f, g = problem.value_and_gradient(x)  # warnings are errors
            assert np.isfinite(f)
            assert np.all(np.isfinite(g))
            if problem.hessian_product is not None:
                assert np.all(np.isfinite(problem.hessian_product(x, g / np.linalg.norm(g + 1.0))))


# --- constants ----------------------------------------------------------------------------------


@each([p for p in PROBLEMS if p.gradient_lipschitz is not None] + CHAINS)
def test_declared_constants_hold(problem):
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    rng = np.random.default_rng(3)
    for x in points(problem, count=60):
        for distance in (1e-3, 0.1, 1.0, 10.0):
            y = x + distance * direction(problem, int(rng.integers(2**31)))
            if np.linalg.norm(y) > problem.constants_radius:
                continue
            v = direction(problem, int(rng.integers(2**31)))
            change = np.linalg.norm(problem.gradient(x) - problem.gradient(y))
            bend = problem.hessian_product(x, v) - problem.hessian_product(y, v)
            assert change <= L * distance * (1 + 1e-6)
            assert np.linalg.norm(bend) <= rho * distance * (1 + 1e-6)


@each(DIAGONAL)
def test_exact_constants_are_attained(problem):
    ones, h = np.ones(problem.dimension), 4e-3
    diagonals = np.stack([problem.hessian_product(t * ones, ones) for t in np.arange(-8.0, 8.0, h)])
    assert np.abs(diagonals).max() >= 0.999 * problem.gradient_lipschitz
    assert np.abs(np.diff(diagonals, axis=0)).max() / h >= 0.99 * problem.hessian_lipschitz


@each(CHAINS[1:])
def test_exact_hessian_constant_of_the_springs_is_attained(problem):
    e = np.eye(problem.dimension)[0]
    change = problem.hessian_product(-0.1984 * e, e) - problem.hessian_product(-0.1994 * e, e)
    assert np.linalg.norm(change) / 1e-3 >= 0.999 * problem.hessian_lipschitz


def test_hessian_constant_of_the_bumps_is_within_a_factor_of_two():
    problem = testbed.carmon_chain(2)
    e = np.eye(2)[0]
    near, far = (problem.hessian_product(np.array([t, 10.0]), e) for t in (0.7011, 0.7021))
    assert np.linalg.norm(near - far) / 1e-3 >= 0.49 * problem.hessian_lipschitz


@each([p for p in PROBLEMS if p.minimum is not None])
def test_nothing_lies_below_the_minimum(problem):
    for x in points(problem, count=12):
        assert problem.value(x) >= problem.minimum - 1e-12 * (1.0 + abs(problem.minimum))


@each([p for p in PROBLEMS if p.minimiser is not None])
def test_minimiser_attains_the_minimum(problem):
    f, g = problem.value_and_gradient(np.array(problem.minimiser))
    assert problem.minimum_is_exact
    assert f == pytest.approx(problem.minimum, abs=1e-12)
    np.testing.assert_allclose(g, 0.0, atol=1e-11)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=lambda loss: loss.name)
def test_loss_table_is_rederived_on_a_grid(loss):
    h = 1e-3
    t = np.arange(-20.0, 20.0, h)
    curvature = loss.curvature(t)
    third = np.gradient(curvature, h, edge_order=2)
    fourth = (curvature[2:] - 2.0 * curvature[1:-1] + curvature[:-2]) / h**2
    close = {"rel": 2e-5, "abs": 1e-7}
    assert curvature.max() == pytest.approx(loss.greatest_curvature, **close)
    assert curvature.min() == pytest.approx(loss.least_curvature, **close)
    assert np.abs(third).max() == pytest.approx(loss.third_bound, **close)
    assert np.abs(fourth).max() == pytest.approx(loss.fourth_bound, rel=1e-4)
    np.testing.assert_allclose(np.gradient(loss.value(t), h), loss.slope(t), atol=2e-3)
    np.testing.assert_allclose(np.gradient(loss.slope(t), h), curvature, atol=2e-2)
    assert loss.value(t).min() >= loss.infimum
    if loss.minimiser is not None:
        assert loss.value(np.array([loss.minimiser]))[0] == pytest.approx(loss.infimum, abs=1e-15)
    else:
        assert loss.value(np.array([60.0]))[0] == pytest.approx(loss.infimum, abs=1e-15)


# --- chains -------------------------------------------------------------------------------------


@each(CHAINS)
def test_one_gradient_discovers_one_coordinate(problem):
    x = np.zeros(problem.dimension)
    # Long enough a step to push each bump past 1/2; the springs need a stable one.
    step = 1.0 if problem.name.startswith("carmon") else 1.0 / problem.gradient_lipschitz
    for n in range(1, problem.dimension + 1):
        x = x - step * problem.gradient(x)
        assert x[n - 1] != 0.0
        assert not np.any(x[n:])


@each(CHAINS)
def test_unseen_coordinates_have_exactly_zero_gradient(problem):
    rng = np.random.default_rng(4)
    for seen in range(problem.dimension - 1):
        x = np.zeros(problem.dimension)
        x[:seen] = 3.0 * rng.standard_normal(seen)
        assert not np.any(problem.gradient(x)[seen + 1 :])
        assert not np.any(problem.gradient(x.astype(np.float32))[seen + 1 :])


def test_bumps_hide_their_successors_below_one_half():
    problem = testbed.carmon_chain(4)
    for t in (0.5, -0.5, math.nextafter(0.5, 1.0), 0.51, -0.3):
        g = problem.gradient(np.array([2.0, t, 0.0, 0.0]))
        assert g[2] == 0.0
        assert g[3] == 0.0
    assert problem.gradient(np.array([2.0, 0.6, 0.0, 0.0]))[2] < 0.0


def least_gradient(problem: Problem, fixed: dict[int, float], starts: int, spread: float):
    """Smallest gradient norm found with some coordinates held, by local search."""
    rng = np.random.default_rng(5)
    free = np.setdiff1d(np.arange(problem.dimension), list(fixed))
    x = np.zeros(problem.dimension)
    x[list(fixed)] = list(fixed.values())

    def squared_norm(y):
        z = x.copy()
        z[free] = y
        g = problem.gradient(z)
        return g @ g, 2.0 * problem.hessian_product(z, g)[free]

    searches = (
        minimize(squared_norm, spread * rng.standard_normal(free.size), jac=True, method="BFGS")
        for _ in range(starts)
    )
    return math.sqrt(min(search.fun for search in searches))


@pytest.mark.parametrize("held", [0.999, 0.9, 0.0, -0.7])
def test_bumps_have_large_gradients_until_the_end_is_reached(held):
    for index in range(4):
        assert least_gradient(testbed.carmon_chain(4), {index: held}, starts=5, spread=2.0) > 1.0


def test_springs_have_large_gradients_until_the_end_is_reached():
    for mu in (1.0, 0.1, 0.01):
        problem = testbed.second_order_chain(5, mu)
        assert least_gradient(problem, {4: 0.0, 5: 0.0}, starts=5, spread=1.0) > mu**0.75 / 4


def test_bridges_have_large_gradients_until_the_end_is_reached():
    for mu in (1.0 / 3.0, 0.1, 0.02):
        problem = testbed.nested_chain(4, mu)
        period = (problem.dimension - 1) // 4
        held = {3 * period: 0.0, 4 * period: 0.0}
        assert least_gradient(problem, held, starts=5, spread=1.0) > 0.75 * mu


def test_value_gaps_of_the_chains():
    for T in (1, 4, 9):
        bumps = testbed.carmon_chain(T)
        assert bumps.value(bumps.start) - bumps.minimum <= 12 * T
        assert bumps.value(np.full(T, 1e3)) == pytest.approx(bumps.minimum, rel=1e-5)
        springs = testbed.second_order_chain(T, 0.3)
        gap = math.sqrt(0.3) / 2 + 0.3 * T * UPSILON_AT_ZERO
        assert springs.value(springs.start) == pytest.approx(gap, rel=1e-13)
        bridges = testbed.nested_chain(T, 0.03)
        gap = 0.03 / 2 + 0.03 * T * UPSILON_AT_ZERO
        assert bridges.value(bridges.start) == pytest.approx(gap, rel=1e-13)
    assert pytest.approx(7.3411, abs=1e-4) == UPSILON_AT_ZERO


def test_bridges_at_rest_are_a_second_order_chain():
    """Minimising over the bridges leaves mu times the chain with weight 1."""
    T, mu = 3, 0.03
    nested, plain = testbed.nested_chain(T, mu), testbed.second_order_chain(T, 1.0)
    period = (nested.dimension - 1) // T
    outer = np.arange(0, nested.dimension, period)
    inner = np.setdiff1d(np.arange(nested.dimension), outer)
    x = np.zeros(nested.dimension)
    x[outer] = o = np.array([1.2, 0.3, -0.5, 0.7])
    H = np.stack([nested.hessian_product(x, e) for e in np.eye(nested.dimension)])
    x[inner] = np.linalg.solve(H[np.ix_(inner, inner)], -nested.gradient(x)[inner])
    f, g = nested.value_and_gradient(x)
    assert period == math.floor(1.0 / math.sqrt(3.0 * mu)) + 1
    assert f == pytest.approx(mu * plain.value(o), rel=1e-12)
    np.testing.assert_allclose(g[outer], mu * plain.gradient(o), atol=1e-12)


def test_chains_refuse_weights_outside_their_theory():
    for mu in (0.0, -1.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="mu"):
            testbed.second_order_chain(3, mu)
    with pytest.raises(ValueError, match="mu"):
        testbed.nested_chain(3, 0.5)


# --- saddles ------------------------------------------------------------------------------------


def hessian(problem: Problem, x):
    return np.stack([problem.hessian_product(x, e) for e in np.eye(problem.dimension)])


def test_saddle_has_the_declared_spectrum():
    problem = testbed.saddle(2, 3, curvature=2.0, negative_curvature=(1.0, 0.1, 0.01))
    spectrum = np.linalg.eigvalsh(hessian(problem, problem.start))
    np.testing.assert_allclose(spectrum, [-1.0, -0.1, -0.01, 2.0, 2.0])
    assert not np.any(problem.gradient(problem.start))
    assert problem.gradient_lipschitz == 2.0
    assert problem.hessian_lipschitz == 1.0


def test_flat_saddle_is_second_order_stationary_but_no_minimum():
    problem = testbed.flat_saddle(2, 2)
    spectrum = np.linalg.eigvalsh(hessian(problem, problem.start))
    np.testing.assert_allclose(spectrum, [0.0, 0.0, 1.0, 1.0])
    assert not np.any(problem.gradient(problem.start))
    assert problem.value(np.array([0.0, 0.0, 0.1, 0.0])) < problem.value(problem.start)
    assert np.linalg.eigvalsh(hessian(problem, problem.minimiser))[0] > 0.9


def test_zero_is_a_strict_saddle_of_factorisation():
    problem = testbed.factorisation(8, 2)
    assert not np.any(problem.gradient(np.zeros(16)))
    spectrum = np.linalg.eigvalsh(hessian(problem, np.zeros(16)))
    assert spectrum[0] == pytest.approx(-4.0)


# --- transforms ---------------------------------------------------------------------------------


@each([testbed.robust_regression(samples=12, dimension=4), *CHAINS[:2], testbed.phase_retrieval()])
def test_scaling_transforms_constants(problem):
    c, s = 3.0, 0.25
    other = testbed.scaled(problem, c, s)
    assert other.value(other.start) == pytest.approx(c * problem.value(problem.start))
    assert other.minimum == c * problem.minimum
    if problem.gradient_lipschitz is None:
        assert other.gradient_lipschitz is None
        assert other.hessian_lipschitz is None
    else:
        assert other.gradient_lipschitz == pytest.approx(c / s**2 * problem.gradient_lipschitz)
        assert other.hessian_lipschitz == pytest.approx(c / s**3 * problem.hessian_lipschitz)


def test_scaling_transforms_the_ball():
    problem = testbed.factorisation()
    assert testbed.scaled(problem, 2.0, 3.0).constants_radius == 3.0 * problem.constants_radius


def test_rotation_keeps_constants_and_spreads_the_gradient():
    problem = testbed.second_order_chain(5, 0.2)
    other = testbed.rotated(problem, 7)
    assert other.gradient_lipschitz == problem.gradient_lipschitz
    assert other.hessian_lipschitz == problem.hessian_lipschitz
    assert other.value(other.minimiser) == pytest.approx(0.0, abs=1e-12)
    assert np.count_nonzero(problem.gradient(problem.start)) == 1
    assert np.all(other.gradient(other.start) != 0.0)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(hessian(other, other.start)),
        np.linalg.eigvalsh(hessian(problem, problem.start)),
        atol=1e-12,
    )


def test_shift_moves_the_values_only():
    problem = testbed.rosenbrock(4)
    other = testbed.shifted(problem, 1000.0)
    assert other.value(other.start) == problem.value(problem.start) + 1000.0
    assert other.minimum == 1000.0
    np.testing.assert_array_equal(other.gradient(other.start), problem.gradient(other.start))


# --- array libraries ----------------------------------------------------------------------------


def same_in(problem: Problem, module: str, dtype_name: str, tolerance: float, wrap=lambda f: f):
    """Compare with NumPy in double precision, at a point where no loss is flat."""
    xp = importlib.import_module(module)
    dtype = getattr(xp, dtype_name)
    x64 = next(points(problem, seed=6))
    v64 = direction(problem)
    x, v = (xp.asarray(np.array(a), dtype=dtype) for a in (x64, v64))
    f, g = wrap(problem.value_and_gradient)(x)
    start = problem.start_in(xp, dtype)
    assert type(g) is type(start) is type(x)
    assert f.dtype == g.dtype == start.dtype == dtype
    assert g.shape == start.shape == x.shape
    expected_f, expected_g = problem.value_and_gradient(x64)
    size = 1.0 + np.abs(expected_g).max()
    assert float(f) == pytest.approx(float(expected_f), rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(np.asarray(g), expected_g, atol=tolerance * size)
    if problem.hessian_product is not None:
        bend = wrap(problem.hessian_product)(x, v)
        expected = problem.hessian_product(x64, v64)
        assert bend.dtype == dtype
        size = 1.0 + np.abs(expected).max()
        np.testing.assert_allclose(np.asarray(bend), expected, atol=tolerance * size)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 3e-5)])
@pytest.mark.parametrize("module", ["numpy", "torch", "array_api_strict"])
@each(PROBLEMS)
def test_same_in_every_library(problem, module, dtype, tolerance):
    pytest.importorskip(module)
    same_in(problem, module, dtype, tolerance)


@each(PROBLEMS)
def test_device_is_kept(problem):
    """array-api-strict pretends to have several devices and refuses to mix them."""
    strict = pytest.importorskip("array_api_strict")
    x = problem.start_in(strict, device=strict.Device("device1"))
    f, g = problem.value_and_gradient(x)
    assert x.device == f.device == g.device == strict.Device("device1")
    assert problem.value(x).device == x.device
    if problem.hessian_product is not None:
        assert problem.hessian_product(x, x).device == x.device


@pytest.mark.slow
@each(PROBLEMS)
def test_same_in_compiled_jax(problem):
    jax = pytest.importorskip("jax")
    same_in(problem, "jax.numpy", "float32", 3e-5, wrap=jax.jit)


def test_constants_survive_a_trace():
    """What is converted inside a JAX trace must not be used after it."""
    jax = pytest.importorskip("jax")
    problem = testbed.separable()
    x = problem.start_in(jax.numpy)
    traced = jax.jit(problem.value)(x)
    assert float(problem.value(x)) == pytest.approx(float(traced), rel=1e-6)
    slope = jax.grad(problem.value)(x)
    np.testing.assert_allclose(slope, problem.gradient(x), rtol=1e-5, atol=1e-6)


def test_integer_points_are_refused_where_data_would_be_truncated():
    with pytest.raises(TypeError, match="floating-point"):
        testbed.qing(3).value(np.array([1, 2, 3]))


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["rosenbrock", "dixon_price", "powell", "qing"])
def test_a_million_variables_are_no_obstacle(factory):
    problem = getattr(testbed, factory)(1_000_000)
    value, gradient = problem.value_and_gradient(problem.start)
    assert np.isfinite(value)
    assert gradient.shape == (1_000_000,)
    assert np.all(np.isfinite(gradient))
