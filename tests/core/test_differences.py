"""Gradients by differences: where rounding hides them, a run says so and ends."""

import numpy as np
import pytest
import scipy.optimize
from scipy.special import gammaln

from momentous import Status, minimize


def bowl(x):
    return 1 + (x[0] - 1) ** 2 + 10 * (x[1] + 0.5) ** 2


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize(
    ("rounded", "near"),
    [(np.float32, 1e-3), (lambda f: float(np.float32(f)), 1e-3), (lambda f: round(f, 6), 1e-3)],
    ids=["float32", "float32 as float", "six decimals"],
)
def test_values_of_low_precision_lead_to_the_minimum(rounded, near, jac):
    """In double precision all differences over its steps are 0 at x0, or of a few units."""
    result = minimize(lambda x: rounded(bowl(x)), [0.0, 0.0], jac=jac)
    assert result.success
    assert result.x == pytest.approx([1.0, -0.5], abs=near)
    assert "norm 0" not in result.message
    assert result.nfev < 250


def test_single_precision_is_learned_and_forgotten():
    """Values at some points are numbers of single precision, by chance or not; later ones not."""

    def fun(x):
        return np.float32(bowl(x)) if x[0] < 0.5 else float(bowl(x))

    result = minimize(fun, [0.0, 0.0], jac="2-point", tol=1e-6)
    assert result.grad_norm <= 1e-6
    assert result.x == pytest.approx([1.0, -0.5], abs=1e-6)
    calls = []
    minimize(lambda x: calls.append(x) or 2 + (x[0] - 1) ** 2, [1.0], jac="2-point")
    assert max(abs(x[0] - 1) for x in calls) < 1e-3  # a 2, for all digits, at the minimum


@pytest.mark.parametrize("tol", [1e-5, 0])
def test_differences_that_are_all_zero_are_no_gradient_norm_of_zero(tol):
    result = minimize(lambda x: 7.0, [1.0, 2.0], jac="2-point", tol=tol)
    assert result.message.startswith("all differences")
    assert "norm 0" not in result.message


def scale_of_residuals(rng):
    table = np.column_stack([np.ones(5000), rng.standard_normal((5000, 2))])
    y = table @ [1, 2, -1] + 0.7 * rng.standard_normal(5000)
    return lambda p: 0.5 * np.sum(((y - table @ p[:3]) / np.exp(p[3])) ** 2) + 5000 * p[3]


def dispersion_of_counts(rng):
    table = np.column_stack([np.ones(500), rng.standard_normal((500, 2))])
    mean = np.exp(table @ [1, 0.5, -0.3])
    y = rng.negative_binomial(2, 2 / (2 + mean))

    def loss(p):
        m, r = np.exp(table @ p[:3]), np.exp(p[3])
        likely = gammaln(y + r) - gammaln(r) + r * np.log(r / (r + m)) + y * np.log(m / (r + m))
        return -np.sum(likely)

    return loss


def test_a_likelihood_takes_about_as_many_values_as_in_scipy():
    """Below the noise of differences a run would take twice as many, by chance."""
    ours = theirs = 0
    for problem in (scale_of_residuals, dispersion_of_counts):
        loss = problem(np.random.default_rng(4))
        result = minimize(loss, np.zeros(4), jac="2-point")
        baseline = scipy.optimize.minimize(loss, np.zeros(4), method="L-BFGS-B")
        assert result.status is Status.CONVERGED
        assert "to which the tolerance 1e-05 was raised; a gradient of your own" in result.message
        assert result.grad_norm <= result.numbers["noise"]
        assert result.fun <= baseline.fun + 1e-6
        ours, theirs = ours + result.nfev, theirs + baseline.nfev
    assert ours <= 1.4 * theirs
