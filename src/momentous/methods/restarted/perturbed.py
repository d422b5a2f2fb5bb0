"""RAGD with random displacements, for second-order stationary points: Theorem 3."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from momentous.core.machine import NUMBERS, Arithmetic, Events, Machine
from momentous.core.oracle import Sample
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.checks import check, check_positive
from momentous.methods.restarted.fixed_radius import (
    ESCAPING_NESTEROV,
    FixedMemory,
    FixedRadius,
    Parameters,
)

# Of the whole run, where zeta is not given.
FAILURE_PROBABILITY = 0.01
# A perturbed epoch lowers f by eps^(3/2)/sqrt(rho) over this times chi^5, at least: 8 * 288^2.
EPOCHS_FACTOR = 663_552


@dataclasses.dataclass(frozen=True)
class PerturbedRAGD(FixedRadius):
    """Perturbed RAGD-NC, for second-order stationary points: Theorem 3 of Li & Lin [1]_.

    Algorithm 1 with a random displacement, uniform in a ball of radius r, at every restart at which
    the last gradient norm was at most B/eta.  Since no restart happens at a start in a saddle, the
    start is displaced under the same condition (the paper is silent on that case).  One gradient
    per iteration, no values.

    eta = 1/(4L), theta = (1/2)(eps rho/L^2)^(1/4), K = ceil(2 chi/theta),
    r = min{B/2, theta B/(20 K), sqrt(theta B^2/(2K))}.  Settings:

    ``"theory"``
        B = sqrt(eps/rho)/(288 chi^2).  The output has |grad f| <= eps and smallest Hessian
        eigenvalue >= -1.011 sqrt(eps rho), but for a probability of zeta per perturbed epoch: with
        n of them, of n zeta at most, which is the result's ``numbers["failure_probability"]``.
        (Each of them may be the one that fails to leave a saddle.)  By the proof n is at most
        N = 663552 chi^5 sqrt(rho) D/eps^(3/2) + 1, D = f(x0) - inf f, and zeta = 0.01/N.  Its
        constants make it a reference only.
    ``"practical"`` (the default)
        B = 0.3 sqrt(eps/rho), about the largest radius for which Lemma 6 still gives
        |grad f| <= eps at the output.  The second-order property is then no theorem:
        :func:`momentous.certify` checks it.

    chi is of the order ln(d/(zeta eps)); the paper leaves its constant open.  Here it is the fixed
    point of chi = max{1, log2(sqrt(d) (40 chi/theta^2)/(theta zeta))}: enough for a displacement to
    grow, by a factor 2^chi per epoch, from its smallest likely component to B.

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz, step_size, momentum, radius, epoch_length
        As in :class:`RAGD`.
    eps : float, optional
        The gradient norm to reach, and sqrt(eps rho) the curvature; by default tol.
    gap : float, optional
        D, or more.  Without it D = L^3/rho^2.
    failure_probability : float, optional
        zeta, per perturbed epoch.  By default 0.01/N, in the practical setting 0.01.
    setting : {"practical", "theory"}
    log_factor, perturbation : float, optional
        chi and r by hand.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "perturbed-ragd"
    summary = "RAGD that leaves saddles by random displacements"
    guarantee = (
        'gradient of eps; with setting="theory" a second-order point but for a probability of zeta '
        "per perturbed epoch [Thm 3]"
    )
    cost = "1 gradient"
    scheme = ESCAPING_NESTEROV

    gap: float | None = None
    failure_probability: float | None = None
    setting: Literal["practical", "theory"] = "practical"
    log_factor: float | None = None
    perturbation: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "perturbation", "gap")
        chi = self.log_factor
        check(self, "log_factor", chi is None or chi >= 1, "(chi) must be >= 1")
        zeta = self.failure_probability
        check(self, "failure_probability", zeta is None or 0 < zeta < 1, "must be in (0, 1)")
        known = self.setting in ("practical", "theory")
        check(self, "setting", known, "must be 'practical' or 'theory'")

    @property
    def stops_at_tolerance(self) -> bool:
        return False  # at a saddle the gradient is small from the start

    def resolved(self, tol: float, dimension: int) -> Parameters:
        p = super().resolved(tol, dimension)
        chi = self.log_factor or self._chi(p, dimension)
        if self.radius is None:
            p.radius *= 0.3 if self.setting == "practical" else 1 / (288 * chi**2)
        if self.epoch_length is None:
            p.epoch_length = math.ceil(2 * chi / p.theta)
        if self.hessian_lipschitz is not None:
            p.promise = self.scheme.promise(
                p.step_size, p.theta, p.radius, p.epoch_length, self.hessian_lipschitz
            )
        return p

    def _chi(self, p: Parameters, dimension: int) -> float:
        chi = 1.0
        for _ in range(10):
            ratio = math.sqrt(max(dimension, 1)) * 40 * chi / p.theta**3
            chi = max(1.0, math.log2(ratio / self._zeta(p, chi)))
        return chi

    def _zeta(self, p: Parameters, chi: float) -> float:
        """The probability that an epoch which begins with a displacement at a saddle stays."""
        if self.failure_probability is not None:
            return self.failure_probability
        if self.setting == "practical":
            return FAILURE_PROBABILITY
        # With theta = (1/2)(eps rho/L^2)^(1/4) this is sqrt(rho) D/eps^(3/2) for D = L^3/rho^2.
        most = 1 / (2 * p.theta) ** 6
        if self.gap is not None and self.hessian_lipschitz is not None and p.eps > 0:
            most = self.gap * math.sqrt(self.hessian_lipschitz / p.eps) / p.eps
        return FAILURE_PROBABILITY / (EPOCHS_FACTOR * chi**5 * most + 1)

    @property
    def _is_theory(self) -> bool:
        by_hand = (self.radius, self.epoch_length, self.log_factor, self.perturbation)
        return self.setting == "theory" and all(value is None for value in by_hand)

    def ending(self, memory: FixedMemory, shown: Sample, status: Status) -> Ending:
        ending = super().ending(memory, shown, status)
        if self._is_theory and ending.success:
            p, draws = memory.parameters, memory.draws
            zeta = self._zeta(p, p.epoch_length * p.theta / 2)  # K = ceil(2 chi/theta)
            chance = min(1.0, zeta * draws)
            ending.numbers["failure_probability"] = chance
            ending.message += (
                f"; a second-order point but for a probability of {chance:.3g}, that of "
                f"{draws} perturbed epochs"
                if chance < 1.0
                else f"; of the curvature nothing is promised, as each of {draws} perturbed epochs "
                f"may fail with a probability of {zeta:.3g}: lower failure_probability, or let "
                "certify look at x"
            )
        return ending

    def displacement(self, p: Parameters, m: Arithmetic = NUMBERS) -> float:
        """r, the radius of the ball that perturbations are drawn from."""
        if self.perturbation is not None:
            return self.perturbation
        theta, B, K = p.theta, p.radius, p.epoch_length
        return m.minimum(m.minimum(B / 2, theta * B / (20 * K)), B * m.sqrt(theta / (2 * K)))

    def _new_epoch(
        self, m: Machine, memory: FixedMemory, here: Sample, start: Array, events: Events,
        again: bool = False,
    ) -> FixedMemory:  # fmt: skip
        """From x^0 + xi, xi uniform in the ball, if the last gradient norm is at most B/eta."""
        p, draw = memory.parameters, memory.draws
        far = here.grad_norm > p.radius / p.step_size
        r = self.displacement(p, m)

        def displace() -> FixedMemory:
            moved = m.displaced(start, r, memory.seed, draw)
            perturbed = events + m.event(EventKind.PERTURBED, r)
            after = super(PerturbedRAGD, self)._new_epoch(m, memory, here, moved, perturbed)
            return m.but(after, draws=draw + 1)

        def stay() -> FixedMemory:
            return super(PerturbedRAGD, self)._new_epoch(m, memory, here, start, events, again)

        return m.case(memory, (m.no(far) & (m.dimension > 0), displace), otherwise=stay)
