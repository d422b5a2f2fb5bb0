"""The theorem table: each bound of the paper's theorems beside what runs of our methods measure.

The functions have known L and rho that hold everywhere, and a known Delta_f or an upper bound on
it.  eps is chosen such that 1/theta is whole, so that the theorems apply word for word, and once
such that it is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from momentous import testbed
from momentous.lab.paper.bounds import check_adaptive, check_fixed, check_guessed, second_order
from momentous.lab.paper.results import Bound
from momentous.methods.restarted import RAGD, RHB, AdaRAGD, AdaRHB
from momentous.methods.restarted.adaptive_radius import AdaptiveRadius
from momentous.methods.restarted.fixed_radius import FixedRadius
from momentous.testbed import Problem

Measure = Callable[[], list[Bound]]
Part = tuple[str, Measure]
"""A title, and what measures."""


def theorem_table(measures: Iterable[Measure]) -> list[Bound]:
    """Every quantity that the parts measure, in their order.

    An infinite ``measured`` is that of a run that did not end by its own rule.
    """
    return [bound for measure in measures for bound in measure()]


def all_parts() -> list[Part]:
    """Theorems 1 to 5 and Remark 2, on functions that differ in what makes them hard."""
    losses = sum_of_losses(100)
    functions = [
        testbed.nested_chain(4, 0.1),
        testbed.nested_chain(4, 0.01),
        losses,
        testbed.robust_regression(samples=40, dimension=10),
        _displaced(_mixed_saddle()),
    ]
    twenty: list[tuple[Problem, float]] = [(function, 20) for function in functions]
    saddles = [
        (testbed.saddle(2, 2), 0.05),
        (_mixed_saddle(), 0.05),
        (testbed.rotated(testbed.saddle(10, 10)), 0.01),
        (testbed.flat_saddle(3, 2), 0.05),
    ]
    return [
        *parts_of("Theorem 1", check_fixed, RAGD, [*twenty, (losses, 12.6)]),
        *parts_of("Theorem 2", check_adaptive, AdaRAGD, [*twenty, (losses, 12.6)]),
        *escapes(saddles, seeds=20),
        *parts_of("Theorem 4", check_fixed, RHB, [*twenty, (losses, 12.6)]),
        *parts_of("Theorem 5", check_adaptive, AdaRHB, [*twenty, (losses, 12.6)]),
        *parts_of("Remark 2", check_guessed, AdaRAGD, twenty),
    ]


def sum_of_losses(dimension: int) -> Problem:
    """A sum of Geman-McClure losses in which no coordinate is special; L and rho are exact."""
    weights = np.linspace(1.0, 0.3, dimension)
    return _displaced(testbed.rotated(testbed.separable("geman-mcclure", weights, 1.0)))


def _mixed_saddle() -> Problem:
    return testbed.saddle(5, 5, negative_curvature=(1.0, 0.5, 0.2, 0.1, 0.05))


def _displaced(problem: Problem) -> Problem:
    """A start off every stable manifold."""
    shift = np.random.default_rng(1).standard_normal(problem.dimension)
    return replace(problem, name=f"{problem.name}, displaced", start=problem.start + shift)


def parts_of(
    theorem: str,
    check: Callable[..., list[Bound]],
    method: type[FixedRadius | AdaptiveRadius],
    on: list[tuple[Problem, float]],
) -> list[Part]:
    """A theorem on functions, each with the 1/theta that eps is chosen for."""
    return [
        (
            f"{theorem}: {method.name} on {problem.name}",
            functools.partial(check, theorem, method, problem, eps_for(method, problem, inverse)),
        )
        for problem, inverse in on
    ]


def escapes(on: list[tuple[Problem, float]], seeds: int) -> list[Part]:
    """Theorem 3 on functions, each with its eps."""
    return [
        (
            f"Theorem 3: perturbed-ragd on {problem.name}, {seeds} seeds",
            functools.partial(second_order, problem, eps, seeds),
        )
        for problem, eps in on
    ]


def eps_for(
    method: type[FixedRadius | AdaptiveRadius], problem: Problem, inverse_theta: float
) -> float:
    """The eps for which the theorem of the method has this 1/theta."""
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    assert L is not None
    assert rho is not None
    return method.scheme.eps_for(1 / inverse_theta, rho, 1 / (4 * L))
