"""What Theorems 1, 2, 4, 5 and Remark 2 bound, measured on a run: one `Bound` for each quantity.

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

from momentous.lab.paper.epochs import EndedEpoch, EpochRun
from momentous.lab.paper.results import Bound
from momentous.methods.restarted.momentum import HEAVY_BALL, Momentum
from momentous.methods.restarted.parameters import whole_epoch
from momentous.testbed import Problem


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
    def eta(self) -> float:
        return 1 / (4 * self.gradient_lipschitz)

    @property
    def theta(self) -> float:
        return self.scheme.theta(self.eps, self.hessian_lipschitz, self.eta)

    @property
    def radius(self) -> float:
        return self.scheme.radius(self.eps, self.hessian_lipschitz)

    @property
    def epoch_length(self) -> int:
        return whole_epoch(self.theta)

    @property
    def is_whole(self) -> bool:
        """Is 1/theta a whole number, up to rounding?"""
        return abs(self.epoch_length * self.theta - 1) < 1e-6

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

    @property
    def gap_note(self) -> str:
        """What a bound that rests on Delta_f has to say where that is an upper bound."""
        return "" if self.problem.minimum_is_exact else ", Delta_f from a lower bound on f"

    def row(
        self, quantity: str, formula: str, bound: float, measured: float, *, by_gap: bool = False
    ) -> Bound:
        """One row, with eps and K behind the formula; ``by_gap``: it rests on Delta_f."""
        setting = f"eps = {self.eps:.3g}, 1/theta = {1 / self.theta:.4g}, K = {self.epoch_length}"
        if by_gap:
            setting += self.gap_note
        return Bound(
            self.theorem,
            quantity,
            self.problem.name,
            f"{formula}; {setting}",
            float(bound),
            float(measured),
        )

    def output(self, run: EpochRun) -> list[Bound]:
        """The gradient at the output, against the bound in eps and against the sharp one."""
        quantity, rows, end = "gradient norm at the output", [], run.last
        if self.is_whole:
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
        epochs = list(epochs)
        if not epochs:
            return []
        worst = max(self._share(factor, epoch) for epoch in epochs)
        quantity = f"decrease required of {which}, as a part of the least that was measured"
        return [self.row(quantity, f"1, required {formula}", 1.0, worst)]

    def _share(self, factor: float, epoch: EndedEpoch) -> float:
        guess = epoch.numbers.hessian_lipschitz
        rho = self.hessian_lipschitz if math.isnan(guess) else guess
        required = factor * self.eps * math.sqrt(self.eps / rho)
        return required / epoch.decrease if epoch.decrease > 0 else math.inf


def fixed_radius(case: Case, run: EpochRun) -> list[Bound]:
    """Theorem 1 (RAGD), Theorem 4 (RHB)."""
    D, K, factor, rows = case.gap / case.unit, case.epoch_length, case.scheme.decrease_factor, []
    most = math.floor(D / factor)
    epochs = "floor(D)" if factor == 1 else "floor(8 D/7)"
    if D >= 1:
        printed = (
            case.gap
            * math.sqrt(case.gradient_lipschitz)
            * case.hessian_lipschitz**0.25
            / case.eps**1.75
        )
        formula = "Delta_f L^(1/2) rho^(1/4)/eps^(7/4), as printed: without the last epoch"
        rows.append(case.row("gradients", formula, printed, run.gradients, by_gap=True))
    rows.append(
        case.row("gradients", f"({epochs} + 1) K", (most + 1) * K, run.gradients, by_gap=True)
    )
    rows.append(case.row("restarts", epochs, most, run.result.restarts, by_gap=True))
    rows += case.decrease("a restarted epoch", case.required, factor, run.ended)
    return rows + case.output(run)


@dataclass(frozen=True)
class Rules:
    """How an adaptive method goes about B0, and about constants that are guesses."""

    gamma: float = 0.5
    c0: float = 1.5
    c1: float = 10.0
    c2: float = 2.0  # Remark 2 only
    wide: float = 1e4  # B0/B to begin with


def adaptive_radius(case: Case, run: EpochRun, rules: Rules) -> list[Bound]:
    """Theorem 2 (AdaRAGD), Theorem 5 (AdaRHB)."""
    most = math.floor(case.gap / (rules.gamma * case.unit))
    failures = max(0, math.ceil(math.log(rules.wide) / math.log(rules.c0 * rules.c1)))
    rows = _counts(
        case, run, (f"floor(D/gamma), gamma = {rules.gamma:g}", most),
        ("N_iv = ceil(log(B0/B)/log(c0 c1))", failures),
    )  # fmt: skip
    at_radius = [epoch for epoch in run.ended if epoch.numbers.at_radius]
    late = sum(epoch.discarded for epoch in at_radius)
    rows.append(case.row("epochs discarded once B0 <= B", "none", 0, late))
    rows += case.decrease(
        "an epoch with B0 <= B", case.required, case.scheme.decrease_factor,
        (epoch for epoch in at_radius if not epoch.discarded),
    )  # fmt: skip
    rows += _accepted_decrease(case, run, rules, "rho")
    return rows + case.output(run)


def guessed_constants(
    case: Case, run: EpochRun, rules: Rules, step_size_min: float, hessian_lipschitz_max: float
) -> list[Bound]:
    """Remark 2, which is Theorem 6: eta and rho' begin as guesses, eta' > 1/(4L) and rho' < rho."""
    first, last = run.first, run.last
    most = math.floor(case.gap * math.sqrt(hessian_lipschitz_max) / (rules.gamma * case.eps**1.5))
    # (cont5) of the proof: from so many failures on B0 <= B, eta <= 1/(4L) and rho' >= rho.
    failures = max(
        0,
        math.ceil(math.log(rules.wide) / math.log(rules.c0 * rules.c1 / rules.c2)),
        math.ceil(
            math.log(4 * case.gradient_lipschitz * first.step_size) / math.log(rules.c2) - 1e-9
        ),
        math.ceil(
            math.log(case.hessian_lipschitz / first.hessian_lipschitz) / (2 * math.log(rules.c2))
            - 1e-9
        ),
    )
    rows = _counts(
        case, run,
        (f"floor(D sqrt(rho_max/rho)/gamma), gamma = {rules.gamma:g}", most),
        ("N_iv = max of ceil(log(B0/B)/log(c0 c1/c2)), ceil(log(4 L eta)/log c2), "
         "ceil(log(rho/rho')/(2 log c2)), eta and rho' as guessed", failures),
    )  # fmt: skip
    rows.append(case.row("1/eta at the end", "1/eta_min", 1 / step_size_min, 1 / last.step_size))
    rows.append(
        case.row("rho' at the end", "rho_max", hessian_lipschitz_max, last.hessian_lipschitz)
    )
    rows += _accepted_decrease(case, run, rules, "rho'")
    in_eps = (
        78 * case.eps / (1 - case.theta) ** 2
        + 4 * case.hessian_lipschitz * case.eps / last.hessian_lipschitz
    )
    formula = "78 eps/(1 - theta)^2 + 4 rho eps/rho', rho' at the end"
    rows.append(case.row("gradient norm at the output", formula, in_eps, run.grad_norm))
    return rows + case.output(run)[-1:]  # 82 eps is for rho' >= rho


def _counts(
    case: Case, run: EpochRun, accepted: tuple[str, int], failures: tuple[str, int]
) -> list[Bound]:
    """Epochs of both kinds, gradients and values; the gradients are at most K + 1 per epoch."""
    most, fail = accepted[1], failures[1]
    both = "accepted and N_iv discarded epochs at most"
    return [
        case.row("accepted epochs", accepted[0], most, len(run.accepted), by_gap=True),
        case.row("discarded epochs", failures[0], fail, len(run.discarded)),
        case.row(
            "gradients", f"(A + N_iv)(K + 1) + K, A {both}",
            (most + fail) * (case.epoch_length + 1) + case.epoch_length, run.gradients, by_gap=True,
        ),
        case.row(
            "values", f"A + N_iv + 2, A {both}; one at the start, one at the output",
            most + fail + 2, run.result.nfev, by_gap=True,
        ),
    ]  # fmt: skip


def _accepted_decrease(case: Case, run: EpochRun, rules: Rules, rho: str) -> list[Bound]:
    required = f"gamma eps^(3/2)/sqrt({rho}), gamma = {rules.gamma:g}"
    return case.decrease("an accepted epoch", required, rules.gamma, run.accepted)
