"""What the theorems bound, measured on runs of our methods: one `Bound` for each quantity.

Notation as in Li & Lin [1]_: D = Delta_f sqrt(rho)/eps^(3/2) is how many epochs' worth of decrease
there is.  Three things are not as printed.  K is floor(1/theta) throughout; "82 eps" and "242 eps"
hold for whole 1/theta only, the sharp bound of Lemma 6 for any.  The printed number of gradients
leaves out the last epoch, and follows from the proof for D >= 1.  Where the paper has an O(), the
bound is the number that its proof gives.

References
----------
.. [1] H. Li, Z. Lin, "Restarted Nonconvex Accelerated Gradient Descent: No More Polylogarithmic
   Factor in the O(eps^(-7/4)) Complexity", JMLR 24 (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from momentous.api import iterate
from momentous.certify import certify
from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import EventKind, Status
from momentous.lab.paper.results import Bound
from momentous.methods.restarted import PerturbedRAGD
from momentous.methods.restarted.adaptive_radius import AdaptiveMemory, AdaptiveRadius
from momentous.methods.restarted.fixed_radius import (
    ESCAPING_NESTEROV,
    HEAVY_BALL,
    FixedMemory,
    FixedRadius,
    Momentum,
    Parameters,
    whole_epoch,
)
from momentous.methods.restarted.perturbed import EPOCHS_FACTOR
from momentous.methods.restarted.schedule import Schedule
from momentous.testbed import Problem

MOST_ITERATIONS = 300_000
"""A run that is not over by then counts as endless."""


# --- runs and their epochs ------------------------------------------------------------------------

Numbers = Schedule | Parameters
"""What an epoch runs with: eta, theta, B, K, and in a schedule B0 and rho'."""


@dataclass(frozen=True)
class EndedEpoch:
    """An epoch that ended in a restart."""

    numbers: Numbers
    decrease: float  # of f, from the start of this epoch to the start of the next
    discarded: bool


@dataclass(frozen=True)
class EpochRun:
    """A run and its epochs; values of f that only this record needs are not counted."""

    result: Result
    start_value: float  # where the first epoch starts, which may be displaced from x0
    first: Numbers
    last: Numbers
    ended: list[EndedEpoch]

    @property
    def gradients(self) -> float:
        """One per iteration, without those that only look at the output."""
        return self._at_its_end(self.result.nit)

    @property
    def grad_norm(self) -> float:
        """At the output."""
        return self._at_its_end(self.result.grad_norm)

    def _at_its_end(self, number: float) -> float:
        """Infinite where no epoch ran through: the run was cut, or could not go on."""
        ended = self.result.status in (Status.COMPLETED, Status.PROMISE_BROKEN)
        return float(number) if ended else math.inf

    @property
    def accepted(self) -> list[EndedEpoch]:
        return [epoch for epoch in self.ended if not epoch.discarded]


def run_epochs(
    problem: Problem, method: Method, *, seed: int = 0, max_iterations: int = MOST_ITERATIONS
) -> EpochRun:
    """Run a method with fixed or adaptive radius until its own rule ends it."""
    run = iterate(
        problem.value, problem.start, jac=problem.gradient, method=method, tol=0.0,
        max_iterations=max_iterations, rng=seed, trace=False,
    )  # fmt: skip
    first = now = _numbers(run.memory)
    start_value = value = float(problem.value(run.memory.epoch.start))
    ended = []
    for step in run:
        kinds = {event.kind for event in step.events}
        if EventKind.ROLLBACK in kinds:
            ended.append(EndedEpoch(now, 0.0, discarded=True))
        elif EventKind.RESTART in kinds:
            after = float(problem.value(step.memory.epoch.start))
            ended.append(EndedEpoch(now, value - after, discarded=False))
            value = after
        now = _numbers(step.memory)
    return EpochRun(run.result, start_value, first, now, ended)


def _numbers(memory: AdaptiveMemory | FixedMemory) -> Numbers:
    return memory.schedule if isinstance(memory, AdaptiveMemory) else memory.parameters


# --- a theorem on a function ----------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A theorem applied to a function: its constants and the numbers that follow from them."""

    theorem: str
    problem: Problem
    scheme: Momentum
    eps: float

    @cached_property
    def gradient_lipschitz(self) -> float:
        assert self.problem.gradient_lipschitz is not None
        return self.problem.gradient_lipschitz

    @cached_property
    def hessian_lipschitz(self) -> float:
        assert self.problem.hessian_lipschitz is not None
        return self.problem.hessian_lipschitz

    @property
    def theta(self) -> float:
        eta = 1 / (4 * self.gradient_lipschitz)
        return self.scheme.theta(self.eps, self.hessian_lipschitz, eta)

    @property
    def radius(self) -> float:
        return self.scheme.radius(self.eps, self.hessian_lipschitz)

    @property
    def epoch_length(self) -> int:
        return int(whole_epoch(self.theta))

    @property
    def unit(self) -> float:
        """eps^(3/2)/sqrt(rho), which decreases are measured in."""
        return self.eps * math.sqrt(self.eps / self.hessian_lipschitz)

    @cached_property
    def gap(self) -> float:
        """Delta_f, or an upper bound on it where only a lower bound on f is known."""
        assert self.problem.minimum is not None
        return float(self.problem.value(self.problem.start)) - self.problem.minimum

    @property
    def required(self) -> str:
        """The decrease that the theorem requires of a restarted epoch, in words."""
        return f"{'' if self.scheme is HEAVY_BALL else '7/8 '}eps^(3/2)/sqrt(rho)"

    def row(
        self, quantity: str, formula: str, bound: float, measured: float, *,
        by_gap: bool = False, setting: str = "",
    ) -> Bound:  # fmt: skip
        """One row, with eps and K behind the formula; ``by_gap``: it rests on Delta_f."""
        setting = setting or f"1/theta = {1 / self.theta:.4g}, K = {self.epoch_length}"
        if by_gap and not self.problem.minimum_is_exact:
            setting += ", Delta_f from a lower bound on f"
        formula = f"{formula}; eps = {self.eps:.3g}, {setting}"
        name = self.problem.name
        return Bound(self.theorem, quantity, name, formula, float(bound), float(measured))

    def output(self, run: EpochRun) -> list[Bound]:
        """The gradient at the output, against the bound in eps and against the sharp one."""
        quantity, rows, end = "gradient norm at the output", [], run.last
        if abs(self.epoch_length * self.theta - 1) < 1e-6:
            factor = self.scheme.promise_factor
            formula = f"{factor:g} eps, for whole 1/theta"
            rows.append(self.row(quantity, formula, factor * self.eps, run.grad_norm))
        c = self.scheme.curvature_factor
        times = "" if c == 1 else f"{c:g} "
        formula = f"2 sqrt(2) B/(eta K^2) + 2 theta B/(eta K) + {times}rho B^2"
        sharp = self.scheme.promise(
            end.step_size, end.theta, end.radius, end.epoch_length, self.hessian_lipschitz
        )
        rows.append(self.row(quantity, formula, sharp, run.grad_norm))
        return rows

    def decrease(
        self, which: str, formula: str, factor: float, epochs: Iterable[EndedEpoch]
    ) -> list[Bound]:
        """What is required of each of these epochs, in parts of what it did: at most 1."""
        parts = [self._part(factor, epoch) for epoch in epochs]
        if not parts:
            return []
        quantity = f"decrease required of {which}, as a part of the least that was measured"
        return [self.row(quantity, f"1, required {formula}", 1.0, max(parts))]

    def _part(self, factor: float, epoch: EndedEpoch) -> float:
        rho = getattr(epoch.numbers, "hessian_lipschitz", self.hessian_lipschitz)
        required = factor * self.eps * math.sqrt(self.eps / rho)
        return required / epoch.decrease if epoch.decrease > 0 else math.inf


# --- Theorems 1 and 4 -----------------------------------------------------------------------------


def check_fixed(
    theorem: str, method: type[FixedRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Theorem 1 (RAGD) or 4 (RHB) on one function, with the L and rho that the problem declares."""
    case = Case(theorem, problem, method.scheme, eps)
    L, rho, gap = case.gradient_lipschitz, case.hessian_lipschitz, case.gap
    run = run_epochs(problem, method(L, rho, eps), **limits)
    D, K, factor, rows = gap / case.unit, case.epoch_length, case.scheme.decrease_factor, []
    most = math.floor(D / factor)
    epochs = "floor(D)" if factor == 1 else "floor(8 D/7)"
    if D >= 1:
        printed = gap * math.sqrt(L) * rho**0.25 / eps**1.75
        formula = "Delta_f L^(1/2) rho^(1/4)/eps^(7/4), as printed: without the last epoch"
        rows.append(case.row("gradients", formula, printed, run.gradients, by_gap=True))
    formula = f"({epochs} + 1) K"
    rows.append(case.row("gradients", formula, (most + 1) * K, run.gradients, by_gap=True))
    rows.append(case.row("restarts", epochs, most, run.result.restarts, by_gap=True))
    rows += case.decrease("a restarted epoch", case.required, factor, run.ended)
    return rows + case.output(run)


# --- Theorems 2 and 5, Remark 2 -------------------------------------------------------------------

GAMMA, C0, C1, C2 = 0.5, 1.5, 10.0, 2.0  # of the adaptive methods; c2 in Remark 2 only
WIDE, WIDE_GUESSED = 1e4, 1e3  # B0/B to begin with; in Remark 2
TOO_LARGE = 20.0
"""Remark 2 begins with a step so many times 1/(4L), and with rho' below rho by its square."""
LONG_ENOUGH = 32.0  # the caps allow it to shrink by that: the next power of c2 = 2


def check_adaptive(
    theorem: str, method: type[AdaptiveRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Theorem 2 (AdaRAGD) or 5 (AdaRHB) on one function."""
    case = Case(theorem, problem, method.scheme, eps)
    chosen = method(
        gradient_lipschitz=case.gradient_lipschitz, hessian_lipschitz=case.hessian_lipschitz,
        eps=eps, initial_radius=WIDE * case.radius, decrease=GAMMA, radius_shrink=C0,
        failure_shrink=C1,
    )  # fmt: skip
    run = run_epochs(problem, chosen, **limits)
    most = math.floor(case.gap / (GAMMA * case.unit))
    failures = math.ceil(math.log(WIDE) / math.log(C0 * C1))
    rows = _counts(
        case, run, (f"floor(D/gamma), gamma = {GAMMA:g}", most),
        ("N_iv = ceil(log(B0/B)/log(c0 c1))", failures),
    )  # fmt: skip
    at_radius = [
        epoch for epoch in run.ended
        if isinstance(epoch.numbers, Schedule) and epoch.numbers.at_radius
    ]  # fmt: skip
    late = sum(epoch.discarded for epoch in at_radius)
    rows.append(case.row("epochs discarded once B0 <= B", "none", 0, late))
    rows += case.decrease(
        "an epoch with B0 <= B", case.required, case.scheme.decrease_factor,
        (epoch for epoch in at_radius if not epoch.discarded),
    )  # fmt: skip
    rows += _accepted_decrease(case, run, "rho")
    return rows + case.output(run)


def check_guessed(
    theorem: str, method: type[AdaptiveRadius], problem: Problem, eps: float, **limits: int
) -> list[Bound]:
    """Remark 2, which is Theorem 6: eta and rho' begin as guesses, eta' > 1/(4L) and rho' < rho.

    The caps are matched, rho_max/rho' = (eta/eta_min)^2, as Theorem 6 requires, so that theta and K
    stay as they are.
    """
    case = Case(theorem, problem, method.scheme, eps)
    L, rho = case.gradient_lipschitz / TOO_LARGE, case.hessian_lipschitz / TOO_LARGE**2
    step_size_min, rho_max = 1 / (4 * L * LONG_ENOUGH), rho * LONG_ENOUGH**2
    chosen = method(
        gradient_lipschitz=L, hessian_lipschitz=rho, eps=eps,
        initial_radius=WIDE_GUESSED * case.scheme.radius(eps, rho), decrease=GAMMA,
        radius_shrink=C0, failure_shrink=C1, backoff=C2, step_size_min=step_size_min,
        hessian_lipschitz_max=rho_max,
    )  # fmt: skip
    run = run_epochs(problem, chosen, **limits)
    first, last = run.first, run.last
    assert isinstance(first, Schedule)
    assert isinstance(last, Schedule)
    most = math.floor(case.gap * math.sqrt(rho_max) / (GAMMA * eps**1.5))
    # (cont5) of the proof: from so many failures on B0 <= B, eta <= 1/(4L) and rho' >= rho.
    too_long = math.log(4 * case.gradient_lipschitz * first.step_size)
    too_small = math.log(case.hessian_lipschitz / first.hessian_lipschitz)
    failures = max(
        0,
        math.ceil(math.log(WIDE_GUESSED) / math.log(C0 * C1 / C2)),
        math.ceil(too_long / math.log(C2) - 1e-9),
        math.ceil(too_small / (2 * math.log(C2)) - 1e-9),
    )
    rows = _counts(
        case, run,
        (f"floor(D sqrt(rho_max/rho)/gamma), gamma = {GAMMA:g}", most),
        ("N_iv = max of ceil(log(B0/B)/log(c0 c1/c2)), ceil(log(4 L eta)/log c2), "
         "ceil(log(rho/rho')/(2 log c2)), eta and rho' as guessed", failures),
    )  # fmt: skip
    rows.append(case.row("1/eta at the end", "1/eta_min", 1 / step_size_min, 1 / last.step_size))
    rows.append(case.row("rho' at the end", "rho_max", rho_max, last.hessian_lipschitz))
    rows += _accepted_decrease(case, run, "rho'")
    in_eps = 78 * eps / (1 - case.theta) ** 2
    in_eps += 4 * case.hessian_lipschitz * eps / last.hessian_lipschitz
    formula = "78 eps/(1 - theta)^2 + 4 rho eps/rho', rho' at the end"
    rows.append(case.row("gradient norm at the output", formula, in_eps, run.grad_norm))
    return rows + case.output(run)[-1:]  # 82 eps is for rho' >= rho


def _counts(
    case: Case, run: EpochRun, accepted: tuple[str, int], failures: tuple[str, int]
) -> list[Bound]:
    """Epochs of both kinds, gradients and values; the gradients are at most K + 1 per epoch."""
    most, fail, K = accepted[1], failures[1], case.epoch_length
    discarded = len(run.ended) - len(run.accepted)
    both = "accepted and N_iv discarded epochs at most"
    return [
        case.row("accepted epochs", accepted[0], most, len(run.accepted), by_gap=True),
        case.row("discarded epochs", failures[0], fail, discarded),
        case.row(
            "gradients", f"(A + N_iv)(K + 1) + K, A {both}",
            (most + fail) * (K + 1) + K, run.gradients, by_gap=True,
        ),
        case.row(
            "values", f"A + N_iv + 2, A {both}; one at the start, one at the output",
            most + fail + 2, run.result.nfev, by_gap=True,
        ),
    ]  # fmt: skip


def _accepted_decrease(case: Case, run: EpochRun, rho: str) -> list[Bound]:
    required = f"gamma eps^(3/2)/sqrt({rho}), gamma = {GAMMA:g}"
    return case.decrease("an accepted epoch", required, GAMMA, run.accepted)


# --- Theorem 3 ------------------------------------------------------------------------------------
#
# The paper states the number of gradients as O(Delta_f L^(1/2) rho^(1/4) chi^6/eps^(7/4)).  Its
# descent argument with B = sqrt(eps/rho)/(288 chi^2) gives explicit constants: an epoch that
# restarts with a small gradient lowers f (Lemma 4) by 3/(16 chi) - 1/(64 chi^2) - 1/(4147 chi^3)
# times b^2 units of eps^(3/2)/sqrt(rho), b = 1/(288 chi^2), and the displacement that follows takes
# back at most b^2/(31 chi) of them; what is left is at least b^2/(8 chi) = 1/(663552 chi^5).
#
# That is for K = 2 chi/theta.  Here K is rounded up, to k times that, 1 <= k < 1 + theta/(2 chi):
# the first of the three terms and what is taken back are divided by k, the third is multiplied by
# it.  For every chi >= 1 the rest suffices as long as k <= 1.1; chi near 1 with theta near 1 would
# have k = 1.5.  The rows are for the chi of the method with zeta = 0.1 only, which is above 12, so
# that k < 1.05.

FAILURE_PROBABILITY = 0.1  # zeta
DECREASE = EPOCHS_FACTOR  # epochs to a unit of decrease are at most this times chi^5
CURVATURE = 1.011  # of sqrt(eps rho): Theorem 3


def second_order(problem: Problem, eps: float, seeds: int) -> list[Bound]:
    """Theorem 3 on a function, from its start, which may be a saddle, with each of the seeds.

    The start is displaced like every restart (the paper is silent on a start at a saddle), and
    Delta_f is measured from where that leads.
    """
    case = Case("Theorem 3", problem, ESCAPING_NESTEROV, eps)
    method = PerturbedRAGD(
        case.gradient_lipschitz, case.hessian_lipschitz, eps, setting="theory",
        failure_probability=FAILURE_PROBABILITY,
    )  # fmt: skip
    runs = [run_epochs(problem, method, seed=seed) for seed in range(seeds)]
    return second_order_rows(case, method, runs)


def smallest_eigenvalue(case: Case, result: Result) -> float:
    """Of the Hessian at the output: a lower bound."""
    if not math.isfinite(result.grad_norm):
        return -math.inf
    certificate = certify(
        case.problem.value, result.x, jac=case.problem.gradient,
        hessp=case.problem.hessian_product,
        eps=max(case.eps, result.grad_norm),  # the gradient has a row of its own
        curvature=CURVATURE * math.sqrt(case.eps * case.hessian_lipschitz),
    )  # fmt: skip
    return certificate.lower_bound


def second_order_rows(case: Case, method: PerturbedRAGD, runs: list[EpochRun]) -> list[Bound]:
    """What Theorem 3 bounds, over all of the runs."""
    theory = method.resolved(0.0, case.problem.dimension)
    chi = math.sqrt(case.radius / theory.radius / 288)
    assert case.problem.minimum is not None
    gap = max(run.start_value for run in runs) - case.problem.minimum
    most = math.floor(DECREASE * chi**5 * gap / case.unit)
    K, tau = theory.epoch_length, CURVATURE * math.sqrt(case.eps * case.hessian_lipschitz)
    curvatures = np.array([max(0.0, -smallest_eigenvalue(case, run.result)) for run in runs])
    gradients, norm = (max(run.gradients for run in runs), max(run.grad_norm for run in runs))
    setting = f"chi = {chi:.3g}, K = ceil(2 chi/theta) = {K}"

    def row(
        quantity: str, formula: str, bound: float, measured: float, by_gap: bool = False
    ) -> Bound:
        quantity = f"{quantity}, most of {len(runs)} seeds"
        return case.row(quantity, formula, bound, measured, by_gap=by_gap, setting=setting)

    share = f"share of {len(runs)} seeds with an eigenvalue below -1.011 sqrt(eps rho)"
    return [
        row(
            "gradients", "(floor(663552 chi^5 D) + 1) K, constants worked out from the proof",
            (most + 1) * K, gradients, by_gap=True,
        ),
        row("gradient norm at the output", "eps", case.eps, norm),
        row(
            "gradient norm at the output",
            "2 sqrt(2) B/(eta K^2) + 2 theta B/(eta K) + 4 rho B^2", theory.promise, norm,
        ),
        row(
            "negative curvature max(0, -lambda_min) at the output",
            "1.011 sqrt(eps rho), with probability 1 - zeta", tau, curvatures.max(),
        ),
        Bound(
            "Theorem 3", share, case.problem.name, f"zeta = {FAILURE_PROBABILITY:g}",
            FAILURE_PROBABILITY, float(np.mean(curvatures > tau)),
        ),
    ]  # fmt: skip
