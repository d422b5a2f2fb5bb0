"""Identities that docs/explanation states, on the iterations as they run."""

import numpy as np

from momentous import accelerate, iterate, testbed


def test_the_weighted_mean_residual_of_an_epoch_is_four_steps_over_its_length():
    rates, points = np.array([0.3, 0.03, 0.003]), []

    def step(y):
        points.append(y.copy())
        return y - rates * np.tanh(y)

    accelerate(
        step, np.array([1.0, -2.0, 3.0]), lambda y: float(rates @ np.log(np.cosh(y))),
        restart="distance", initial_radius=1e9, max_iterations=12, tol=0,
    )  # fmt: skip
    y = np.array(points)
    residuals, m = rates * np.tanh(y), np.arange(1, len(y) + 1)
    images, weights = y - residuals, m * (m + 1) * (m + 2)
    assert len(y) > 10
    mean = (weights[:, None] * residuals).sum(0) / weights.sum()
    last = images[-1] - images[-2]
    np.testing.assert_allclose(np.linalg.norm(mean), 4 * np.linalg.norm(last) / (len(y) + 3))


def test_the_mean_gradient_of_an_epoch_is_what_the_momentum_leaves_of_it():
    problem, theta, eta = testbed.rosenbrock(4), 0.1, 1e-4
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method="ragd", step_size=eta,
        momentum=1 - theta, radius=1e6, epoch_length=50, tol=0, max_iterations=8,
    )  # fmt: skip
    y = np.array([step.x for step in run])
    gradients = np.array([problem.gradient(point) for point in y])
    x = np.vstack([problem.start, y - eta * gradients])
    left = (x[-1] - x[-2]) + theta * (x[-2] - x[0])
    np.testing.assert_allclose(gradients.mean(0), -left / (eta * len(y)), rtol=1e-9)
