"""L-BFGS: the recursion, the line search, and the bad days."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

import momentous
from momentous import LBFGS, Status, iterate, minimize, testbed
from momentous.core.machine import NUMBERS, Host
from momentous.core.oracle import Sample
from momentous.core.space import Space
from momentous.methods.classical.lbfgs import default_memory
from momentous.methods.classical.matrix import Halves
from momentous.methods.classical.pairs import ListedRows, StackedRows
from momentous.methods.search.wolfe import Trial
from momentous.methods.search.wolfe import _between as between

PROBLEMS = [
    testbed.rosenbrock(20),
    testbed.dixon_price(10),
    testbed.qing(12),
    testbed.nested_chain(4, 0.01),
    testbed.robust_regression(),
    testbed.phase_retrieval(),
]


def naive(problem, iterations, memory, fused, c1=1e-4, c2=0.9):
    """The definition with explicit matrices, H = V' H V + s s'/(t <s, y>), rebuilt every time."""
    x, pairs, points = problem.start.astype(float), [], []
    for _ in range(iterations):
        g, d = problem.gradient(x), len(x)
        H = np.eye(d)
        if pairs:
            s, y, _ = pairs[-1]
            H *= (s @ y) / (y @ y)
        for s, y, factor in pairs[-memory:]:
            V = np.eye(d) - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (factor * (s @ y))
        direction = -H @ g
        slope, f = g @ direction, float(problem.value(x))
        low, high, t = (0.0, f, slope), None, 1.0
        if not pairs:  # a step as long as a tenth of x, from 0.1 to 1
            t = np.clip(0.1 * np.linalg.norm(x), 0.1, 1) / np.linalg.norm(g)
        too_long = 0
        while True:
            new = x + t * direction
            value, slope_there = float(problem.value(new)), problem.gradient(new) @ direction
            falls = value <= f + c1 * t * slope  # no gradient is asked for where it does not
            if not falls or value > low[1]:
                high = (t, value, slope_there if fused or falls else np.nan)
                too_long += 1
            elif slope_there < c2 * slope:
                before, low, too_long = low, (t, value, slope_there), 0
            else:
                break
            if high is None:  # where the cubic by values and slopes at both ends is least
                cubic = CubicHermiteSpline(*np.transpose([before, low]))
                roots = np.roots(cubic.derivative().c[:, 0]) + before[0]
                roots = [r.real for r in roots if r.imag == 0 and r.real > low[0]]
                least = [r for r in roots if cubic(r, 2) > 0]
                if not least and not pairs:  # after a guess: where the slope would have doubled
                    bend = abs(low[2] - before[2])
                    least = [low[0] - (low[0] - before[0]) * before[2] / bend]
                t = np.clip(*least or [np.inf], 2 * low[0], 10 * low[0])
            else:  # where a + b h + c h^p is least between them, p = 2 without the slope at high
                a, b, h = low[1], low[2], high[0] - low[0]
                near, rest = 0.2 ** max(too_long - 3, 1), high[1] - a - b * h
                if not pairs and low[0] == 0:  # the first t is a mere guess
                    near = 0.01
                p = 2 if np.isnan(high[2]) else np.clip((high[2] - b) * h / rest, 2, 10)
                least = (-b * h / (p * rest)) ** (1 / (p - 1)) if rest > 0 else 0.5
                t = low[0] + h * np.clip(least, near, 0.8)
        s, y, factor = new - x, problem.gradient(new) - g, 1.0
        theta = 6 * (f - value) + 3 * (g + problem.gradient(new)) @ s
        if abs(theta) > 12 * 32 * 2.0**-53 * max(abs(f), abs(value)):
            factor = np.clip(1 + theta / (s @ y), 0.5, 2)
        if s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
            pairs.append((s, y, factor))
        x = new
        points.append(x)
    return np.array(points)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("memory", [5, None])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_direction_is_that_of_the_matrices_of_the_definition(problem, memory, fused):
    method = LBFGS(memory=memory)
    fun = problem.value_and_gradient if fused else problem.value
    jac = True if fused else problem.gradient
    run = iterate(fun, problem.start, jac=jac, method=method, tol=0)
    seen = np.array([step.x for step, _ in zip(run, range(12), strict=False)])
    wanted = naive(problem, 12, memory or 1000, fused)
    np.testing.assert_allclose(seen, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_it_reaches_small_gradients_and_never_climbs(problem):
    result = minimize(problem.value, problem.start, jac=problem.gradient, method="lbfgs", tol=1e-6)
    assert result.status is Status.CONVERGED, result.message
    values = result.trace["fun"]
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]) + 1e-14)


def test_a_trial_is_one_value_and_one_gradient():
    problem = testbed.rosenbrock(30)
    calls = {"fun": 0, "jac": 0}

    def fun(x):
        calls["fun"] += 1
        return problem.value(x)

    def jac(x):
        calls["jac"] += 1
        return problem.gradient(x)

    result = minimize(fun, problem.start, jac=jac, method="lbfgs", tol=1e-6)
    assert (result.nfev, result.njev) == (calls["fun"], calls["jac"])
    assert result.njev <= result.nfev <= 1.4 * result.nit


def test_it_needs_about_as_many_gradients_as_scipy():
    from scipy.optimize import minimize as scipy_minimize

    for problem in (testbed.rosenbrock(100), testbed.nested_chain(8, 0.003)):
        tol = 1e-5
        ours = minimize(problem.value, problem.start, jac=problem.gradient, method="lbfgs", tol=tol)
        theirs = scipy_minimize(
            problem.value_and_gradient, problem.start, jac=True, method="L-BFGS-B",
            options={"ftol": 0, "gtol": tol / math.sqrt(problem.dimension), "maxls": 50},
        )  # fmt: skip
        assert ours.njev <= 1.5 * theirs.nfev


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_rounding_does_not_stop_it_early(shift):
    problem = testbed.shifted(testbed.rosenbrock(20), shift)
    first = float(np.linalg.norm(problem.gradient(problem.start)))
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, method="lbfgs", tol=1e-8 * first
    )
    assert result.status is Status.CONVERGED, result.message


def test_a_wall_of_nan_is_turned_away_from():
    def both(x):
        inside = np.linalg.norm(x) < 3
        return (float(x @ x) / 2 if inside else math.nan), (x if inside else x * math.nan)

    start = np.array([2.0, 1.5, -1.0])
    result = minimize(both, start, jac=True, method="lbfgs", tol=1e-8)
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(result.x) < 1e-6


@pytest.mark.parametrize("scale", [1e-100, 1e-40, 1e40])
def test_the_scale_of_the_objective_does_not_matter(scale):
    problem = testbed.rosenbrock(6)
    tol = 1e-8 * float(np.linalg.norm(problem.gradient(problem.start)))
    plain = minimize(problem.value, problem.start, jac=problem.gradient, method="lbfgs", tol=tol)
    scaled = minimize(
        lambda x: scale * problem.value(x),
        problem.start,
        jac=lambda x: scale * problem.gradient(x),
        method="lbfgs",
        tol=scale * tol,
    )
    assert scaled.status is plain.status is Status.CONVERGED
    assert abs(scaled.njev - plain.njev) <= 0.3 * plain.njev


def test_an_objective_without_a_floor_is_followed_down():
    result = minimize(
        lambda x: -float(np.sum(x)), np.zeros(3), jac=lambda x: -np.ones(3), method="lbfgs",
        max_iterations=20,
    )  # fmt: skip
    assert result.fun < -1e20


def test_what_is_said_about_a_failed_search_is_what_was_seen():
    def walled(x):
        inside = np.linalg.norm(x - 1) < 1e-30
        return (float(x @ x) if inside else math.nan), 2 * x

    result = minimize(walled, np.ones(3), jac=True, method="lbfgs", tol=1e-6)
    assert result.status is Status.NO_PROGRESS
    assert "not finite" in result.message


def test_a_gradient_of_the_wrong_sign_ends_without_success():
    result = minimize(
        lambda x: float(x @ x), np.ones(3), jac=lambda x: -2 * x, method="lbfgs", tol=1e-6
    )
    assert result.status is Status.NO_PROGRESS
    assert "gradient" in result.message


@pytest.mark.parametrize("memory", [1, 2, 10])
def test_the_memory_is_bounded(memory):
    problem = testbed.rosenbrock(10)
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method=LBFGS(memory=memory), tol=0
    )
    for step, _ in zip(run, range(15), strict=False):
        assert len(step.memory.curvature) <= memory
    assert len(step.memory.curvature) == memory


def test_the_default_memory_depends_on_the_dimension_alone():
    sizes = (129, 1000, 2000, 50_000, 50_001, 10**9)
    assert [default_memory(size) for size in sizes] == [200, 200, 100, 20, 10, 10]
    kinds = {}
    for size in (128, 129, 1 << 17, (1 << 17) + 1):
        m = Host.of(Space(np.empty(size)))
        stores = LBFGS()._no_pairs(m), LBFGS(memory=3)._no_pairs(m)
        kinds[size] = [type(getattr(store, "rows", None) or store.halves) for store in stores]
    pairs = [StackedRows, StackedRows, ListedRows]
    assert [kind for kind, _ in kinds.values()] == [Halves, *pairs]
    assert [kind for _, kind in kinds.values()] == [StackedRows, *pairs]


def test_the_default_memory_of_a_part_of_x_is_that_of_the_whole():
    # 100 entries here and 600 on other ranks
    space = Space(np.zeros(100), lambda sums: 7 * sums, dimension=700)
    curvature = LBFGS()._no_pairs(Host.of(space))
    assert type(curvature.rows) is ListedRows
    assert curvature.known.most == default_memory(700)


def test_a_first_step_of_the_wrong_scale_is_found_in_a_few_trials():
    for scale in (1e-4, 1e4):
        result = minimize(
            lambda x, scale=scale: (float(x @ x) / scale, 2 * x / scale),
            np.full(3, scale), jac=True, method="lbfgs", max_iterations=1,
        )  # fmt: skip
        assert result.nfev <= 7


@pytest.mark.parametrize("memory", [None, 4, 12])  # a matrix; rows that were moved; and not yet
def test_resuming_goes_on_bit_for_bit(memory, tmp_path):
    problem, path = testbed.rosenbrock(15), tmp_path / "run"
    options = {"jac": problem.gradient, "method": LBFGS(memory=memory), "tol": 1e-8}
    whole = minimize(problem.value, problem.start, **options)
    minimize(problem.value, problem.start, checkpoint=path, max_iterations=17, **options)
    resumed = minimize(problem.value, problem.start, resume=path, **options)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert (resumed.nit, resumed.nfev, resumed.njev) == (whole.nit, whole.nfev, whole.njev)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_any_array_in_single_precision(library):
    xp = pytest.importorskip(library)
    problem = testbed.rosenbrock(8)
    x0 = problem.start_in(xp, dtype=xp.float32)
    result = minimize(problem.value, x0, jac=problem.gradient, method="lbfgs", tol=1e-2)
    assert result.success
    assert type(result.x) is type(x0)
    assert result.x.dtype == x0.dtype


def test_bad_parameters_are_refused_by_name():
    whole = [{"memory": 0}, {"memory": 2.5}, {"max_trials": 2.5}, {"max_trials": "a"}]
    for parameters in (*whole, {"curvature": 1.0}, {"sufficient_decrease": 0.6}):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            momentous.LBFGS(**parameters)


@pytest.mark.parametrize("power", [2, 3, 4, 7])
def test_between_two_trials_powers_are_met_exactly(power):
    low, high = Trial(0.0, 0.0, -1.0), Trial(1.0, 4.0, 5.0 * power - 1.0)  # -t + 5 t^power
    least = (5 * power) ** (-1 / (power - 1))
    assert between(NUMBERS, low, high, 0.0) == pytest.approx(least, rel=1e-12)
    parabola = between(NUMBERS, low, Trial(1.0, 4.0), 0.0)  # the slope at the end is not known
    assert parabola == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("fused", [False, True])
def test_a_narrow_wall_beside_long_ways_costs_few_trials(fused):
    # The first steps learn the curvature of x[1:], and the next are far too long for x[0].
    def value(x):
        return float(1e10 * x[0] ** 4 + x[1:] @ x[1:])

    def gradient(x):
        return np.concatenate(([4e10 * x[0] ** 3], 2 * x[1:]))

    fun, jac = ((lambda x: (value(x), gradient(x))), True) if fused else (value, gradient)
    start = np.array([1e-3, 1e3, 2e3])
    result = minimize(fun, start, jac=jac, method="lbfgs", tol=1e-6)
    assert result.success
    assert result.nfev <= 55  # about 40; 75 with parabolas and a correction of y along s


def test_where_gradients_are_costly_the_memory_is_as_long_as_fits():
    def pairs(dimension, itemsize=8):
        return LBFGS().for_costly_gradients(dimension, itemsize * dimension).memory

    assert [pairs(size) for size in (128, 129, 12_737, 300_000)] == [None, 200, 100, 100]
    assert pairs(10**6) == 67  # 1 GiB
    assert pairs(10**6, itemsize=4) == 100
    assert pairs(10**9) == default_memory(10**9)
    assert LBFGS(memory=7).for_costly_gradients(1000, 8000) == LBFGS(memory=7)
    found = momentous.Safeguarded().for_costly_gradients(1000, 8000)
    assert found == momentous.Safeguarded(fast=LBFGS(memory=200))  # no matrix is wanted
    assert momentous.AdaRHB().for_costly_gradients(1000, 8000) == momentous.AdaRHB()


@pytest.mark.parametrize(("memory", "corrects"), [(None, True), (40, True), (41, False)])
def test_a_long_memory_is_not_corrected_by_values(memory, corrects):
    problem = testbed.rosenbrock(200)
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method=LBFGS(memory=memory), tol=0
    )
    pairs = [step.memory.curvature for step, _ in zip(run, range(12), strict=False)][-1]
    stored = pairs.packed()
    inverse = np.reshape(stored.inverse, (len(pairs), len(pairs)))  # 1/<s, y> on its diagonal
    same = np.isclose(stored.diagonal, 1 / np.diag(inverse), rtol=1e-9)
    assert same.all() != corrects


def test_pairs_in_float32_are_stacked_and_resumed_bit_for_bit(tmp_path):
    problem, file = testbed.rosenbrock(200), tmp_path / "run.npz"
    start = problem.start.astype(np.float32)

    def both(x):
        return problem.value(x), problem.gradient(x).astype(np.float32)

    options = {"jac": True, "method": LBFGS(memory=6), "tol": 0.0}
    run = iterate(both, start, **options)
    pairs = [step.memory.curvature for step, _ in zip(run, range(9), strict=False)][-1]
    assert isinstance(pairs.rows, StackedRows)
    g = np.linspace(-1, 1, 200, dtype=np.float32)
    listed = pairs.packed().unpacked(None)
    space = Space(start)
    here = Sample(start, 0.0, g, 1.0)
    m = Host.of(space)
    directions = [kind.at(m, here).descent(m, g) for kind in (pairs, listed)]
    assert all(each.dtype == np.float32 for each in directions)
    np.testing.assert_allclose(*directions, rtol=1e-4, atol=1e-6)
    whole = minimize(both, start, max_iterations=20, **options)
    minimize(both, start, max_iterations=11, checkpoint=file, **options)
    resumed = minimize(both, start, max_iterations=20, resume=file, **options)
    assert whole.x.tobytes() == resumed.x.tobytes()


@pytest.mark.parametrize("method", ["lbfgs", "auto"])
@pytest.mark.parametrize(("curvature", "height"), [(1e8, 1e4), (1e8, 1e8)])
def test_a_first_step_that_is_far_too_long_is_shortened_below_the_digits_of_f(
    method, curvature, height
):
    """A start beside the minimum of a steep valley: the change of f is below its last digit."""
    k, minimum = np.logspace(0, np.log10(curvature), 10), np.linspace(0.3, 1, 10)

    def both(x):
        return height + 0.5 * float(k @ (x - minimum) ** 2), k * (x - minimum)

    result = minimize(both, minimum + 1e-2 / k, jac=True, method=method, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.nfev < 300


@pytest.mark.parametrize("method", ["lbfgs", "auto"])
def test_a_step_of_f_above_its_rounding_is_not_climbed_for_a_smaller_gradient(method):
    def both(x):
        z = float(x[0])
        rise = 1.0 / (1.0 + math.exp(-20.0 * (z + 9.5)))
        slope = 0.03 * rise * (1.0 - rise) - 1e-8 + 1e-10 * (z + 10.0)
        return np.float32(1.0 + 1.5e-3 * rise - 1e-8 * z), np.array([slope], np.float32)

    start = np.array([-10.0], np.float32)
    result = minimize(both, start, jac=True, method=method, tol=9.95e-9, max_evaluations=200)
    assert result.fun < 1.0 + 1e-5  # the step is 1.5e-3 high
