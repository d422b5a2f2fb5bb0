"""Certificates at bounds: multipliers, and the curvature of the free variables."""

import numpy as np
import pytest
from tests.bounds.boxes import random_box

from momentous import Verdict, certify, minimize


def saddle(x):
    """A minimum along the first variable, a maximum along the second; the third pushes down."""
    value = x[0] ** 2 - x[1] ** 2 + 0.25 * x[1] ** 4 + x[2]
    return float(value), np.array([2 * x[0], x[1] ** 3 - 2 * x[1], 1.0])


def test_a_minimum_at_a_bound_without_a_multiplier_is_not_called_second_order():
    inside = []

    def f(x):
        inside.append((x >= 0.0).all() and (x <= 2.0).all())
        return saddle(x)

    box = [(0, 2), (0, 2), (0, 2)]
    x = np.array([0.0, np.sqrt(2.0), 0.0])
    found = certify(f, x, jac=True, eps=1e-6, bounds=box)
    assert found.verdict is Verdict.FIRST_ORDER
    assert found.smallest_eigenvalue == pytest.approx(4.0, rel=1e-6)
    assert found.active.tolist() == [-1, 0, -1]
    assert found.multipliers.tolist() == [0.0, 0.0, 1.0]
    assert found.weakly_active == (0,)
    assert "flat indices 0 have multipliers" in found.message
    assert all(inside)


def test_a_saddle_of_the_free_variables_can_be_left_within_the_box():
    box = [(-1, 1), (-0.5, 0.5), (0, 1)]
    found = certify(saddle, np.zeros(3), jac=True, eps=1e-6, bounds=box)
    assert found.verdict is Verdict.SADDLE
    assert found.smallest_eigenvalue == pytest.approx(-2.0, rel=1e-6)
    assert found.direction[2] == 0.0
    assert found.weakly_active == ()
    assert "strict complementarity" in found.message
    left = found.escape(saddle, np.zeros(3), jac=True)
    assert abs(left[1]) <= 0.5
    assert saddle(left)[0] < 0.0
    held = certify(saddle, np.zeros(3), jac=True, eps=1e-6, bounds=[(-1, 1), (0, 0), (0, 1)])
    assert held.verdict is Verdict.SECOND_ORDER


def test_no_point_that_a_saddle_is_left_for_is_outside_by_rounding():
    for seed in range(180, 190):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(3)
        lower, upper = x - rng.uniform(0.01, 0.9, 3), x + rng.uniform(0.01, 0.9, 3)
        Q = rng.standard_normal((3, 3))
        Q = Q + Q.T - 4.0 * np.eye(3)
        q = lambda z, x=x, Q=Q: (float((z - x) @ Q @ (z - x) / 2), Q @ (z - x))  # noqa: E731
        found = certify(q, x, jac=True, eps=1e-6, bounds=list(zip(lower, upper, strict=True)))
        for rho in (None, 1e-3):
            left = found.escape(q, x, jac=True, rho=rho)
            assert ((lower <= left) & (left <= upper)).all()


def test_difference_steps_stay_within_a_narrow_box_of_many_variables():
    d, inside = 100_000, []

    def q(z):
        inside.append(np.abs(z).max() < 1e-7)
        return float(z @ z / 2), z.copy()

    found = certify(q, np.zeros(d), jac=True, bounds=(-1e-7, 1e-7), max_products=60)
    assert found.verdict is Verdict.SECOND_ORDER
    assert all(inside)


def test_the_first_order_is_that_of_the_box():
    x = np.array([0.0, 0.0, 0.5])
    found = certify(saddle, x, jac=True, eps=1e-6, bounds=[(-1, 1)] * 3)
    assert found.verdict is Verdict.NOT_STATIONARY
    assert "|x - P(x - grad f(x))| = 1" in found.message
    with pytest.raises(ValueError, match=r"outside of the bounds, by 0\.5"):
        certify(saddle, x, jac=True, eps=1e-6, bounds=[(-1, 1), (-1, 1), (1, 2)])


def test_a_variable_that_the_gradient_moves_to_a_bound_is_weakly_held_too():
    f = lambda x: (float(1e-7 * x[0] - x[0] ** 2), 1e-7 - 2 * x)  # noqa: E731  # falls from 1e-7 on
    found = certify(f, np.array([1e-9]), jac=True, eps=1e-6, curvature=1e-3, bounds=(0, 1))
    assert found.verdict is Verdict.FIRST_ORDER
    assert found.weakly_active == (0,)
    assert "strict complementarity" not in found.message


def test_no_bound_is_met():
    found = certify(lambda x: (x @ x, 2 * x), np.zeros(2), jac=True, eps=1e-6, bounds=(-1, 1))
    assert "no variable is at a bound" in found.message


def test_a_vertex_has_no_free_variable():
    found = certify(lambda x: (float(x.sum()), np.ones(2)), np.zeros(2), jac=True, eps=1e-6,
                    bounds=(0, 1))  # fmt: skip
    assert found.verdict is Verdict.SECOND_ORDER
    assert "no variable is free" in found.message


def test_what_minimize_finds_is_certified(library):
    if "float64" not in library.dtypes:
        pytest.skip(f"{library} has no double precision in these tests")
    problem = random_box(21)
    x0 = library.array(problem.start, "float64")
    found = minimize(problem.both, x0, jac=True, bounds=problem.bounds, tol=1e-9)
    certificate = certify(problem.both, found.x, jac=True, eps=1e-8, bounds=problem.bounds)
    assert certificate.verdict is Verdict.SECOND_ORDER, certificate.message
    assert problem.outside == 0
    free = library.numpy(certificate.active) == 0
    x = library.numpy(found.x)
    hessian = problem.Q - np.diag(problem.waves * np.cos(x))
    exact = np.linalg.eigvalsh(hessian[np.ix_(free, free)])[0]
    assert certificate.smallest_eigenvalue == pytest.approx(exact, rel=1e-5)


def test_products_of_the_user_are_taken():
    def product(x, v):
        return np.array([2 * v[0], (3 * x[1] ** 2 - 2) * v[1], 0.0])

    x = np.array([0.0, np.sqrt(2.0), 0.0])
    found = certify(saddle, x, jac=True, hessp=product, eps=1e-6, bounds=(0, 2))
    assert found.smallest_eigenvalue == pytest.approx(4.0)
