"""A limit of evaluations is kept, and what was evaluated is not lost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from momentous import iterate, minimize
from momentous.core.status import Status

START = np.array([-1.2, 1.0, 0.5])
METHODS = ["auto", "lbfgs", "ada-ragd", "ada-rhb", "universal-hb", "parameter-free-agd", "cg", "gd"]


class Counted:
    """Rosenbrock's function, or another, with the values that were seen."""

    def __init__(self, fun=rosen, jac=rosen_der):
        self.fun, self.jac, self.seen = fun, jac, []

    def __call__(self, x):
        self.seen.append(self.fun(x))
        return self.seen[-1], self.jac(x)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 20, 31])
def test_no_more_calls_than_the_limit_and_the_lowest_point_of_them(method, limit):
    fun = Counted()
    result = minimize(fun, START, jac=True, method=method, max_evaluations=limit, tol=0)
    assert len(fun.seen) == result.nfev == result.njev == limit
    assert result.status is Status.MAX_EVALUATIONS
    assert result.fun == min(fun.seen)
    assert len(result.trace) >= 1


def test_a_limit_in_a_long_search_returns_what_the_search_has_seen():
    fun = Counted(lambda x: np.sum(x - 1e-9 * np.log(x)), lambda x: 1 - 1e-9 / x)

    def inside(x):
        return fun(x) if np.all(x > 0) else (np.inf, np.zeros_like(x))

    result = minimize(inside, np.ones(5), jac=True, max_evaluations=35, tol=1e-12)
    assert result.fun == min(fun.seen) < 1.0


@pytest.mark.parametrize("limit", [3, 9, 40])
def test_a_method_without_values_returns_the_lowest_point_that_it_knows(limit):
    """Its gradients are spent, but not its values: these tell which point is the lowest."""
    options = {"jac": rosen_der, "method": "gd", "step_size": 1e-3, "tol": 0}
    result = minimize(rosen, START, max_evaluations=limit, **options)
    points = [step.x for step in iterate(rosen, START, max_iterations=limit - 1, **options)]
    assert result.njev == limit
    assert result.fun == min(map(rosen, points)) < rosen(START)


@pytest.mark.parametrize("limit", [1, 2, 4, 9])
def test_a_plain_method_that_a_limit_has_ended_takes_its_step_again(tmp_path, limit):
    options = {"jac": True, "method": "cg", "tol": 1e-4}
    expected = minimize(Counted(), START, **options)
    path = tmp_path / "run.npz"
    minimize(Counted(), START, max_evaluations=limit, checkpoint=path, **options)
    result = minimize(Counted(), START, resume=path, max_evaluations=5000, **options)
    np.testing.assert_array_equal(result.x, expected.x)


@pytest.mark.parametrize("method", ["jin-agd", "guilty"])
@pytest.mark.parametrize("limit", [2, 3, 5, 8, 11])
def test_a_step_that_is_taken_again_is_counted_once(tmp_path, method, limit):
    options = {"jac": rosen_der, "method": method, "tol": 1e-4, "max_iterations": 20}
    options |= {"gradient_lipschitz": 3000.0, "hessian_lipschitz": 5000.0}
    expected = minimize(rosen, START, **options)
    path = tmp_path / "run.npz"
    minimize(rosen, START, max_evaluations=limit, checkpoint=path, **options)
    result = minimize(rosen, START, resume=path, **options)
    assert (result.nfev, result.njev, result.nit) == (expected.nfev, expected.njev, expected.nit)


@pytest.mark.parametrize("method", ["auto", "lbfgs", "ada-ragd", "universal-hb"])
@pytest.mark.parametrize("limit", [1, 2, 7, 12])
def test_a_run_that_a_limit_has_ended_goes_on_where_it_was(tmp_path, method, limit):
    whole, first, rest = Counted(), Counted(), Counted()
    options = {"jac": True, "method": method, "tol": 1e-4}
    expected = minimize(whole, START, **options)
    minimize(first, START, max_evaluations=limit, checkpoint=tmp_path / "run.npz", **options)
    result = minimize(rest, START, resume=tmp_path / "run.npz", max_evaluations=5000, **options)
    np.testing.assert_array_equal(result.x, expected.x)
    assert result.nfev == expected.nfev
    # The checkpoint is checked by one call, which is not counted, and another for the best point.
    assert len(first.seen) + len(rest.seen) <= expected.nfev + 2
