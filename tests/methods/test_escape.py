"""Second order: PerturbedRAGD leaves saddles that first-order methods stay at."""

from __future__ import annotations

import math

import numpy as np
import pytest

from momentous import RAGD, PerturbedRAGD, certify, iterate, minimize, testbed

SADDLES = {
    "one way down": testbed.saddle(3, 1),
    "mixed curvature": testbed.saddle(2, 3, curvature=2.0, negative_curvature=(1.0, 0.5, 0.25)),
    "rotated": testbed.rotated(testbed.saddle(5, 5), rng=1),
}
EPS = 1e-2


def method_for(problem: testbed.Problem, cls: type = PerturbedRAGD, **parameters: object):
    return cls(problem.gradient_lipschitz, problem.hessian_lipschitz, EPS, **parameters)


def escape(problem: testbed.Problem, seed: int, start: np.ndarray | None = None):
    return minimize(
        problem.value,
        problem.start if start is None else start,
        jac=problem.gradient,
        method=method_for(problem),
        rng=seed,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", SADDLES)
def test_from_the_exact_saddle_it_reaches_a_certified_minimum(name: str, seed: int) -> None:
    problem = SADDLES[name]
    result = escape(problem, seed)
    assert result.success, result.message
    assert result.grad_norm <= EPS
    assert problem.minimum is not None
    assert result.fun == pytest.approx(problem.minimum, abs=1e-6)
    rho = problem.hessian_lipschitz
    here = certify(problem.value, problem.start, jac=problem.gradient, eps=EPS, rho=rho)
    assert here.verdict == "saddle"
    there = certify(problem.value, result.x, jac=problem.gradient, eps=EPS, rho=rho)
    assert there.verdict == "second-order"


@pytest.mark.parametrize("name", SADDLES)
def test_without_perturbation_the_saddle_is_returned(name: str) -> None:
    problem = SADDLES[name]
    result = minimize(
        problem.value, problem.start, jac=problem.gradient, method=method_for(problem, RAGD)
    )
    assert result.success
    np.testing.assert_array_equal(result.x, problem.start)


@pytest.mark.parametrize("seed", range(5))
def test_it_leaves_the_stable_manifold(seed: int) -> None:
    problem = testbed.saddle(4, 2)
    start = np.concatenate([np.random.default_rng(seed).standard_normal(4), np.zeros(2)])
    result = escape(problem, seed, start)
    assert result.success
    assert result.fun == pytest.approx(0.0, abs=1e-6)


def test_the_theory_setting_has_the_theorem_s_parameters_and_escapes_too() -> None:
    problem, chi = testbed.saddle(2, 2), 3.0
    method = method_for(problem, setting="theory", log_factor=chi)
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    p = method.resolved(0.0, problem.dimension)
    theta = 0.5 * (EPS * rho / L**2) ** 0.25
    assert p.step_size == pytest.approx(1 / (4 * L))
    assert p.theta == pytest.approx(theta)
    assert p.radius == pytest.approx(math.sqrt(EPS / rho) / (288 * chi**2))
    assert p.epoch_length == math.ceil(2 * chi / theta)
    assert p.promise <= 0.01 * EPS
    # r is the middle one of three bounds; with K = 2 chi/theta it is theta^2 B/(40 chi).
    assert method.displacement(p) == pytest.approx(theta**2 * p.radius / (40 * chi), rel=0.05)
    result = minimize(problem.value, problem.start, jac=problem.gradient, method=method, rng=1)
    assert result.success
    assert result.fun == pytest.approx(0.0, abs=1e-9)


def test_the_theory_setting_says_how_probable_a_failure_is() -> None:
    """zeta per perturbed epoch: each of them may be the one that does not leave a saddle."""
    problem, zeta = testbed.saddle(2, 2), 1e-4
    options = {"jac": problem.gradient, "rng": 1}
    method = method_for(problem, setting="theory", failure_probability=zeta)
    result = minimize(problem.value, problem.start, method=method, **options)
    assert result.success, result.message
    epochs = len(result.trace.when("perturbed"))
    assert epochs > 3
    assert result.numbers["failure_probability"] == pytest.approx(epochs * zeta)
    assert f"{epochs} perturbed epochs" in result.message
    assert "per perturbed epoch" in PerturbedRAGD.guarantee
    practical = minimize(problem.value, problem.start, method=method_for(problem), **options)
    assert "failure_probability" not in practical.numbers


def test_a_promise_that_fails_with_probability_1_is_said_to_be_none() -> None:
    problem = testbed.saddle(2, 2)
    method = method_for(problem, setting="theory", failure_probability=0.5)
    result = minimize(problem.value, problem.start, jac=problem.gradient, method=method, rng=1)
    assert result.numbers["failure_probability"] == 1.0
    assert "of the curvature nothing is promised" in result.message
    assert "second-order" not in result.message


@pytest.mark.parametrize("gap", [None, 1e3])
def test_by_default_the_whole_run_fails_with_a_probability_of_a_hundredth_at_most(gap) -> None:
    """With so many epochs as the proof allows; without a gap it is taken as L^3/rho^2."""
    problem = testbed.saddle(2, 2)
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    method = method_for(problem, setting="theory", gap=gap)
    result = minimize(problem.value, problem.start, jac=problem.gradient, method=method, rng=1)
    p, epochs = method.resolved(0.0, 4), len(result.trace.when("perturbed"))
    chi = p.epoch_length * p.theta / 2
    most = 663552 * chi**5 * math.sqrt(rho) * (gap or L**3 / rho**2) / EPS**1.5
    zeta = result.numbers["failure_probability"] / epochs
    assert zeta * most == pytest.approx(0.01, rel=0.1)
    # Enough for a displacement to grow, by 2^chi per epoch, to B.
    assert 2**chi >= 2 * 40 * chi / p.theta**3 / zeta


def test_the_practical_setting_still_promises_eps() -> None:
    for problem in SADDLES.values():
        for eps in (1e-1, 1e-2, 1e-4):
            method = PerturbedRAGD(problem.gradient_lipschitz, problem.hessian_lipschitz, eps)
            assert method.resolved(0.0, problem.dimension).promise <= eps


def test_displacements_are_drawn_only_where_the_gradient_is_small_and_lie_in_the_ball() -> None:
    problem = testbed.saddle(3, 2)
    method = method_for(problem)
    p = method.resolved(0.0, problem.dimension)
    start = np.full(5, 1.0)  # a large gradient: no displacement at first
    result = minimize(problem.value, start, jac=problem.gradient, method=method, rng=3)
    norms = dict(zip(result.trace["nit"], result.trace["grad_norm"], strict=True))
    perturbed = result.trace.when("perturbed")
    restarted = result.trace.when("restart")
    assert 0 not in perturbed
    assert 0 < len(perturbed) < len(restarted)
    for nit in restarted:
        assert (norms[nit] <= p.radius / p.step_size) == (nit in perturbed)


def test_the_displacement_is_uniform_in_the_ball() -> None:
    """Radii of a uniform draw in d dimensions: P(|xi| <= t r) = t^d, and the mean is zero."""
    problem = testbed.saddle(2, 1)
    method = method_for(problem)
    r = method.displacement(method.resolved(0.0, 3))
    drawn = []
    for seed in range(400):
        run = iterate(problem.value, problem.start, jac=problem.gradient, method=method, rng=seed)
        drawn.append(run.memory.epoch.start)
    radii = np.linalg.norm(drawn, axis=1) / r
    assert radii.max() <= 1.0
    shares = [np.mean(radii <= t) for t in (0.5, 0.8, 0.9)]
    np.testing.assert_allclose(shares, [0.5**3, 0.8**3, 0.9**3], atol=0.07)
    np.testing.assert_allclose(np.mean(drawn, axis=0) / r, 0, atol=0.1)


def test_the_same_seed_repeats_and_another_one_differs() -> None:
    problem = testbed.saddle(2, 2)
    first, again, other = escape(problem, 5), escape(problem, 5), escape(problem, 6)
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.trace["grad_norm"], other.trace["grad_norm"])
