"""What Theorem 3 bounds, over many seeds: gradients, the gradient and the curvature at the output.

The paper states the number of gradients as O(Delta_f L^(1/2) rho^(1/4) chi^6/eps^(7/4)).  Its
descent argument with B = sqrt(eps/rho)/(288 chi^2) gives explicit constants: an epoch that restarts
with a small gradient lowers f (Lemma 4) by 3/(16 chi) - 1/(64 chi^2) - 1/(4147 chi^3) times b^2
units of eps^(3/2)/sqrt(rho), b = 1/(288 chi^2), and the displacement that follows takes back at
most b^2/(31 chi) of them; what is left is at least b^2/(8 chi) = 1/(663552 chi^5).

That is for K = 2 chi/theta.  Here K is rounded up, to k times that, 1 <= k < 1 + theta/(2 chi):
the first of the three terms and what is taken back are divided by k, the third is multiplied by
it.  For every chi >= 1 the rest suffices as long as k <= 1.1; chi near 1 with theta near 1 would
have k = 1.5.  The rows are for the chi of the method with zeta = 0.1 only, which is above 12, so
that k < 1.05.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from momentous.certify import certify
from momentous.lab.paper.bounds import Case
from momentous.lab.paper.epochs import EpochRun, run_epochs
from momentous.lab.paper.results import Bound
from momentous.methods.restarted import PerturbedRAGD
from momentous.methods.restarted.momentum import ESCAPING_NESTEROV
from momentous.testbed import Problem

FAILURE_PROBABILITY = 0.1  # zeta
DECREASE = 663_552  # epochs to a unit of decrease are at most this times chi^5
CURVATURE = 1.011  # of sqrt(eps rho): Theorem 3


@dataclass(frozen=True)
class Found:
    """A run, and the smallest eigenvalue of the Hessian at its output."""

    run: EpochRun
    eigenvalue: float


def second_order(problem: Problem, eps: float, seeds: int) -> list[Bound]:
    """Theorem 3 on a function, from its start, which may be a saddle, with each of the seeds.

    The start is displaced like every restart (the paper is silent on a start at a saddle), and
    Delta_f is measured from where that leads.
    """
    case = Case("Theorem 3", problem, ESCAPING_NESTEROV, eps)
    method = PerturbedRAGD(
        case.gradient_lipschitz,
        case.hessian_lipschitz,
        eps,
        setting="theory",
        failure_probability=FAILURE_PROBABILITY,
    )
    found = [
        found_at_the_output(case, run_epochs(problem, method, seed=seed)) for seed in range(seeds)
    ]
    return rows_of(case, method, found)


def found_at_the_output(case: Case, run: EpochRun) -> Found:
    norm = run.result.grad_norm
    if not math.isfinite(norm):
        return Found(run, -math.inf)
    certificate = certify(
        case.problem.value,
        run.result.x,
        jac=case.problem.gradient,
        hessp=case.problem.hessian_product,
        eps=max(case.eps, norm),  # the gradient has a row of its own: here only curvature counts
        curvature=CURVATURE * math.sqrt(case.eps * case.hessian_lipschitz),
    )
    return Found(run, certificate.lower_bound)


def rows_of(case: Case, method: PerturbedRAGD, found: list[Found]) -> list[Bound]:
    theory = method.resolved(0.0, case.problem.dimension)
    chi = math.sqrt(case.radius / theory.radius / 288)
    assert case.problem.minimum is not None
    gap = max(each.run.start_value for each in found) - case.problem.minimum
    most = math.floor(DECREASE * chi**5 * gap / case.unit)
    K, tau = theory.epoch_length, CURVATURE * math.sqrt(case.eps * case.hessian_lipschitz)
    curvatures = np.array([max(0.0, -each.eigenvalue) for each in found])

    def row(
        quantity: str, formula: str, bound: float, measured: float, *, by_gap: bool = False
    ) -> Bound:
        setting = f"eps = {case.eps:.3g}, chi = {chi:.3g}, K = ceil(2 chi/theta) = {K}"
        setting += case.gap_note if by_gap else ""
        largest = f"{quantity}, most of {len(found)} seeds"
        name = case.problem.name
        return Bound("Theorem 3", largest, name, f"{formula}; {setting}", bound, float(measured))

    share = Bound(
        "Theorem 3",
        f"share of {len(found)} seeds with an eigenvalue below -1.011 sqrt(eps rho)",
        case.problem.name,
        f"zeta = {FAILURE_PROBABILITY:g}",
        FAILURE_PROBABILITY,
        float(np.mean(curvatures > tau)),
    )
    return [
        row(
            "gradients", "(floor(663552 chi^5 D) + 1) K, constants worked out from the proof",
            float((most + 1) * K), max(each.run.gradients for each in found), by_gap=True,
        ),
        row("gradient norm at the output", "eps", case.eps, _largest_gradient(found)),
        row(
            "gradient norm at the output",
            "2 sqrt(2) B/(eta K^2) + 2 theta B/(eta K) + 4 rho B^2",
            theory.promise, _largest_gradient(found),
        ),
        row(
            "negative curvature max(0, -lambda_min) at the output",
            "1.011 sqrt(eps rho), with probability 1 - zeta", tau, curvatures.max(),
        ),
        share,
    ]  # fmt: skip


def _largest_gradient(found: list[Found]) -> float:
    return max(each.run.grad_norm for each in found)
