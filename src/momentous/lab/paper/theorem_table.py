"""The theorem table: each bound of the paper's theorems beside what runs of our methods measure.

The functions have known L and rho that hold everywhere, and a known Delta_f or an upper bound on
it.  eps is chosen such that 1/theta is whole, so that the theorems apply word for word, and once
such that it is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from momentous import testbed
from momentous.lab.paper.bounds import check_adaptive, check_fixed, check_guessed, second_order
from momentous.lab.paper.results import Bound
from momentous.lab.progress import OnPart, announce_each, ignore_part
from momentous.methods.restarted import RAGD, RHB, AdaRAGD, AdaRHB
from momentous.methods.restarted.adaptive_radius import AdaptiveRadius
from momentous.methods.restarted.fixed_radius import FixedRadius
from momentous.testbed import Problem

Part = tuple[str, Callable[[], list[Bound]]]


def theorem_table(*, quick: bool = False, on_part: OnPart = ignore_part) -> list[Bound]:
    """Every quantity that Theorems 1 to 5 and Remark 2 bound, measured, in that order.

    An infinite ``measured`` is that of a run that did not end by its own rule.  ``quick``: fewer
    functions, shorter epochs (larger eps) and fewer seeds, a few seconds.  ``on_part(done, total,
    title)``: so many of the parts are done, that one comes next.
    """
    bounds: list[Bound] = []
    for measure in announce_each(on_part, _quick_parts() if quick else _full_parts()):
        bounds += measure()
    return bounds


def _quick_parts() -> list[Part]:
    chain, losses = testbed.nested_chain(2, 0.1), _losses(30)
    return [
        *_parts("Theorem 1", check_fixed, RAGD, [(chain, 8), (losses, 8), (losses, 3.5)]),
        *_parts("Theorem 2", check_adaptive, AdaRAGD, [(chain, 8), (losses, 8)]),
        *_escapes([(testbed.saddle(2, 2), 0.05)], seeds=5),
        *_parts("Theorem 4", check_fixed, RHB, [(chain, 10), (losses, 10), (losses, 12.6)]),
        *_parts("Theorem 5", check_adaptive, AdaRHB, [(chain, 10), (losses, 10)]),
        *_parts("Remark 2", check_guessed, AdaRAGD, [(chain, 8), (losses, 8)]),
    ]


def _full_parts() -> list[Part]:
    losses = _losses(100)
    functions = [
        testbed.nested_chain(4, 0.1),
        testbed.nested_chain(4, 0.01),
        losses,
        testbed.robust_regression(samples=40, dimension=10),
        _displaced(_mixed_saddle()),
    ]
    twenty: list[tuple[Problem, float]] = [(function, 20) for function in functions]
    escapes = [
        (testbed.saddle(2, 2), 0.05),
        (_mixed_saddle(), 0.05),
        (testbed.rotated(testbed.saddle(10, 10)), 0.01),
        (testbed.flat_saddle(3, 2), 0.05),
    ]
    return [
        *_parts("Theorem 1", check_fixed, RAGD, [*twenty, (losses, 12.6)]),
        *_parts("Theorem 2", check_adaptive, AdaRAGD, [*twenty, (losses, 12.6)]),
        *_escapes(escapes, seeds=20),
        *_parts("Theorem 4", check_fixed, RHB, [*twenty, (losses, 12.6)]),
        *_parts("Theorem 5", check_adaptive, AdaRHB, [*twenty, (losses, 12.6)]),
        *_parts("Remark 2", check_guessed, AdaRAGD, twenty),
    ]


def _losses(dimension: int) -> Problem:
    """A sum of Geman-McClure losses in which no coordinate is special; L and rho are exact."""
    weights = np.linspace(1.0, 0.3, dimension)
    return _displaced(testbed.rotated(testbed.separable("geman-mcclure", weights, 1.0)))


def _mixed_saddle() -> Problem:
    return testbed.saddle(5, 5, negative_curvature=(1.0, 0.5, 0.2, 0.1, 0.05))


def _displaced(problem: Problem) -> Problem:
    """A start off every stable manifold."""
    shift = np.random.default_rng(1).standard_normal(problem.dimension)
    return replace(problem, name=f"{problem.name}, displaced", start=problem.start + shift)


def _parts(
    theorem: str,
    check: Callable[..., list[Bound]],
    method: type[FixedRadius | AdaptiveRadius],
    on: list[tuple[Problem, float]],
) -> list[Part]:
    return [
        (
            f"{theorem}: {method.name} on {problem.name}",
            functools.partial(check, theorem, method, problem, eps_for(method, problem, inverse)),
        )
        for problem, inverse in on
    ]


def _escapes(on: list[tuple[Problem, float]], seeds: int) -> list[Part]:
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
