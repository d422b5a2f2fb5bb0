"""How the work grows with difficulty: gradients against 1/mu on the nested chain, and a power law.

The nested chain has Delta_f, rho and a gradient to reach that are all of the order mu, while L
tends to 4.  So gradient descent, Delta_f L/eps^2, needs of the order of (1/mu)^1 gradients, and the
paper's methods, Delta_f L^(1/2) rho^(1/4)/eps^(7/4), of the order of (1/mu)^(1/2), which is the
order of what every method needs on this family whose iterates stay in the span of the gradients
that it has seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from momentous import methods
from momentous.api import minimize
from momentous.core.method import Method
from momentous.lab.paper.results import Growth
from momentous.testbed import Problem, nested_chain

MUS = (0.0025, 0.0013, 0.0007, 0.00036, 0.0002, 0.0001)
"""For larger mu, L = 4 + 181 mu would change along with mu, and from 0.0028 on the heavy ball by
theory would need a theta above the 1/10 that Theorem 4 allows, whatever the tolerance.
"""

MOST_ITERATIONS = 1_000_000


Run = tuple[str, Method, Problem, float]
"""The name of a method, the method, a chain and its mu."""


def growth_parts(length: int = 3, mus: Sequence[float] = MUS) -> list[tuple[str, Run]]:
    """All methods on chains with so many potentials, each with its title."""
    chains = [nested_chain(length, mu) for mu in mus]
    return [
        (f"{name} at mu = {mu:g}", (name, method, problem, mu))
        for mu, problem in zip(mus, chains, strict=True)
        for name, method in growth_methods(problem).items()
    ]


def growth_with_difficulty(runs: Iterable[Run]) -> list[Growth]:
    """Gradients until the gradient norm is mu/4 on nested chains, with the exponent fitted to them.

    Theory gives the exponent 1 for gradient descent and 1/2 for RAGD, RHB, AdaRAGD and AdaRHB with
    L and rho (Theorems 1, 2, 4, 5), for ParameterFreeAGD and for UniversalHeavyBall.  Without
    constants the paper's AdaRAGD and AdaRHB keep theta at 0.01, for which no better exponent than 1
    is proven.
    All these belong to upper bounds: counts far below theirs on easy chains may rise more steeply.
    There is one `Growth` for each method; NaN stands for a run that did not get there.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, method, problem, mu in runs:
        inverse, gradients = found.setdefault(name, ([], []))
        inverse.append(1 / mu)
        gradients.append(gradients_to(problem, method, mu / 4))
    return [Growth(name, *counted, fitted_exponent(*counted)) for name, counted in found.items()]


def growth_methods(problem: Problem) -> dict[str, Method]:
    """The methods: those by theory take eps from the tolerance, the others need nothing."""
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    return {
        "GD, step 1/L": methods.GradientDescent(gradient_lipschitz=L),
        "GD, backtracking": methods.GradientDescent(),
        "RAGD": methods.RAGD(L, rho),
        "RHB": methods.RHB(L, rho),
        "AdaRAGD, L and rho given": methods.AdaRAGD(gradient_lipschitz=L, hessian_lipschitz=rho),
        "AdaRHB, L and rho given": methods.AdaRHB(gradient_lipschitz=L, hessian_lipschitz=rho),
        "AdaRAGD": methods.AdaRAGD.paper(),
        "AdaRHB": methods.AdaRHB.paper(),
        "ParameterFreeAGD": methods.ParameterFreeAGD(),
        "UniversalHeavyBall": methods.UniversalHeavyBall(),
    }


def gradients_to(problem: Problem, method: Method, tol: float) -> float:
    """How many gradients a method takes to the tolerance; NaN if it does not get there."""
    result = minimize(
        problem.value_and_gradient, problem.start, jac=True, method=method, tol=tol,
        max_iterations=MOST_ITERATIONS, trace=False,
    )  # fmt: skip
    return float(result.njev) if result.grad_norm <= tol else math.nan


def fitted_exponent(inverse_mu: Sequence[float], gradients: Sequence[float]) -> float:
    """p in gradients ~ (1/mu)^p, by least squares in logarithms; NaN for fewer than two points."""
    x, y = np.log(inverse_mu), np.log(gradients)
    known = np.isfinite(y)
    if np.count_nonzero(known) < 2:
        return math.nan
    return float(np.polyfit(x[known], y[known], 1)[0])
