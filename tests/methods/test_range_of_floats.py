"""At the ends of what floats hold: functions without a lower bound, and very small ones."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import NEEDS_CONSTANTS
from momentous import ConvexUntilGuilty, Stagnation, minimize
from momentous.methods.registry import REGISTRY


def linear(x):
    return float(x.sum()), np.ones_like(x)


def parabola_down(x):
    with np.errstate(all="ignore"):
        return -float(x @ x), -2 * x


def saddle(x):
    with np.errstate(all="ignore"):
        return float(x[1:] @ x[1:] - x[0] * x[0]) / 2, np.concatenate([-x[:1], x[1:]])


@pytest.mark.parametrize("fun", [linear, parabola_down, saddle])
@pytest.mark.parametrize(
    ("method", "dtype", "target", "most"),
    [
        ("lbfgs", np.float64, -1e100, 60),
        ("lbfgs", np.float32, -1e18, 60),
        ("auto", np.float64, -1e100, 60),
        ("cg", np.float64, -1e100, 400),
        ("gd", np.float64, -1e60, 1500),
    ],
)
def test_a_function_without_a_lower_bound_falls_fast_at_finite_points(
    fun, method, dtype, target, most
):
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        assert np.isfinite(x).all()
        return fun(x)

    x0 = np.full(5, 1e-3, dtype)
    result = minimize(
        counted, x0, jac=True, method=method, target=target, tol=1e-30, max_evaluations=most
    )
    assert result.fun <= target
    assert calls <= most


def scaled_cosines(scale):
    return lambda x: (scale * float(np.sum(1 - np.cos(x))), scale * np.sin(x))


SCALES = [1e-250, 1e-200, 1e-150, 1.0, 1e150]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("by", ["eps", "tol"])
@pytest.mark.parametrize("name", NEEDS_CONSTANTS)
def test_constants_scale_with_the_function(name, by, scale):
    """L and rho of an extremely small or large function: neither an error nor another run."""
    result, right = (
        minimize(
            scaled_cosines(s),
            np.array([0.5, -0.7]),
            jac=True,
            method=name,
            max_iterations=30,
            gradient_lipschitz=s,
            hessian_lipschitz=s,
            **{by: 1e-8 * s},
        )
        for s in (scale, 1.0)
    )
    assert result.nit == right.nit
    np.testing.assert_allclose(result.x, right.x, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_constants_of_the_third_order_scale_with_the_function(scale):
    method = ConvexUntilGuilty(gradient_lipschitz=scale, third_lipschitz=scale, order=3)
    p, right = (
        method.resolved(1e-6 * scale),
        ConvexUntilGuilty(gradient_lipschitz=1.0, third_lipschitz=1.0, order=3).resolved(1e-6),
    )
    assert p.curvature / scale == pytest.approx(right.curvature)
    assert p.exploration == pytest.approx(right.exploration)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in NEEDS_CONSTANTS])
def test_methods_without_constants_run_at_any_scale(name, scale):
    fun, x0 = scaled_cosines(scale), np.array([0.5, -0.7])
    result = minimize(fun, x0, jac=True, method=name, stop=Stagnation(20), max_iterations=60)
    assert np.isfinite(result.x).all()
    assert result.fun <= fun(x0)[0]


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e-280, 1e-300, 1e-306])
@pytest.mark.parametrize("name", [name for name in REGISTRY if name not in NEEDS_CONSTANTS])
def test_a_success_is_true_where_squares_of_gradients_underflow(name, scale):
    fun, x0 = scaled_cosines(scale), np.array([0.5, -0.7])
    result = minimize(fun, x0, jac=True, method=name, tol=1e-2 * scale, max_iterations=60)
    assert result.grad_norm == pytest.approx(scale * np.linalg.norm(np.sin(result.x)))
    assert result.success == (result.grad_norm <= 1e-2 * scale)
