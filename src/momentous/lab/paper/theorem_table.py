"""The theorem table: each bound of the paper's theorems beside what runs of our methods measure.

The functions have known L and rho that hold everywhere, and a known Delta_f or an upper bound on
it.  eps is chosen such that 1/theta is whole, so that the theorems apply word for word, and once
such that it is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from momentous import testbed
from momentous.core.method import Method
from momentous.lab.paper.bounds import (
    Case,
    Rules,
    adaptive_radius,
    fixed_radius,
    guessed_constants,
)
from momentous.lab.paper.epochs import run_epochs
from momentous.lab.paper.progress import OnPart, announced
from momentous.lab.paper.results import Bound
from momentous.lab.paper.second_order import second_order
from momentous.methods.restarted import RAGD, RHB, AdaRAGD, AdaRHB
from momentous.methods.restarted.adaptive_radius import AdaptiveRadius
from momentous.methods.restarted.fixed_radius import FixedRadius
from momentous.testbed import Problem

Part = tuple[str, Callable[[], list[Bound]]]

TOO_LARGE = 20.0
"""Remark 2 begins with a step so many times 1/(4L), and with rho' below rho by its square."""
LONG_ENOUGH = 32.0  # the caps allow it to shrink by that: the next power of c2 = 2


def theorem_table(*, quick: bool = False, on_part: OnPart | None = None) -> list[Bound]:
    """Every quantity that Theorems 1 to 5 and Remark 2 bound, measured.

    Parameters
    ----------
    quick : bool
        Fewer functions, shorter epochs (larger eps) and fewer seeds: a few seconds.
    on_part : callable, optional
        ``on_part(done, total, title)``: so many of the parts are done, that one comes next.

    Returns
    -------
    list of Bound
        In the order of the theorems.  An infinite ``measured`` is that of a run that did not end by
        its own rule.
    """
    bounds: list[Bound] = []
    for measure in announced(on_part, _quick_parts() if quick else _full_parts()):
        bounds += measure()
    return bounds


# --- what is run ----------------------------------------------------------------------------------


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
    functions = [
        testbed.nested_chain(4, 0.1),
        testbed.nested_chain(4, 0.01),
        _losses(100),
        testbed.robust_regression(samples=40, dimension=10),
        _displaced(_mixed_saddle()),
    ]
    losses = functions[2]
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


# --- how it is run --------------------------------------------------------------------------------


def check_fixed(
    theorem: str, method: type[FixedRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Theorem 1 or 4 on one function, with the L and rho that the problem declares."""
    case = Case(theorem, problem, method.scheme, eps)
    return fixed_radius(
        case,
        run_epochs(problem, method(case.gradient_lipschitz, case.hessian_lipschitz, eps), **limits),
    )


def check_adaptive(
    theorem: str, method: type[AdaptiveRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Theorem 2 or 5 on one function."""
    case, rules = Case(theorem, problem, method.scheme, eps), Rules()
    chosen = _adaptive(
        method,
        rules,
        eps,
        case.gradient_lipschitz,
        case.hessian_lipschitz,
        rules.wide * case.radius,
    )
    return adaptive_radius(case, run_epochs(problem, chosen, **limits), rules)


def check_guessed(
    theorem: str, method: type[AdaptiveRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Remark 2 on one function, from constants that are far too small.

    The caps are matched, rho_max/rho' = (eta/eta_min)^2, as Theorem 6 requires, so that theta and K
    stay as they are.
    """
    case, rules = Case(theorem, problem, method.scheme, eps), Rules(wide=1e3)
    L, rho = case.gradient_lipschitz / TOO_LARGE, case.hessian_lipschitz / TOO_LARGE**2
    step_size_min, rho_max = 1 / (4 * L * LONG_ENOUGH), rho * LONG_ENOUGH**2
    chosen = _adaptive(
        method, rules, eps, L, rho, rules.wide * case.scheme.radius(eps, rho),
        backoff=rules.c2, step_size_min=step_size_min, hessian_lipschitz_max=rho_max,
    )  # fmt: skip
    return guessed_constants(
        case, run_epochs(problem, chosen, **limits), rules, step_size_min, rho_max
    )


def _adaptive(
    method: type[AdaptiveRadius],
    rules: Rules,
    eps: float,
    L: float,
    rho: float,
    initial_radius: float,
    **options: Any,
) -> Method:
    return method(
        gradient_lipschitz=L,
        hessian_lipschitz=rho,
        eps=eps,
        initial_radius=initial_radius,
        decrease=rules.gamma,
        radius_shrink=rules.c0,
        failure_shrink=rules.c1,
        **options,
    )
