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
        (Each of them may be the one that fails to leave a saddle; n is not known beforehand, since
        f(x0) - inf f is not.)  Its constants make it a reference only.
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
    failure_probability : float
        zeta, per perturbed epoch.
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

    failure_probability: float = 0.01
    setting: Literal["practical", "theory"] = "practical"
    log_factor: float | None = None
    perturbation: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "perturbation")
        chi = self.log_factor
        check(self, "log_factor", chi is None or chi >= 1, "(chi) must be >= 1")
        check(self, "failure_probability", 0 < self.failure_probability < 1, "must be in (0, 1)")
        known = self.setting in ("practical", "theory")
        check(self, "setting", known, "must be 'practical' or 'theory'")

    @property
    def stops_at_tolerance(self) -> bool:
        return False  # at a saddle the gradient is small from the start

    def resolved(self, tol: float, dimension: int) -> Parameters:
        p = super().resolved(tol, dimension)
        chi = self.log_factor or self._chi(p.theta, dimension)
        if self.radius is None:
            p.radius *= 0.3 if self.setting == "practical" else 1 / (288 * chi**2)
        if self.epoch_length is None:
            p.epoch_length = math.ceil(2 * chi / p.theta)
        if self.hessian_lipschitz is not None:
            p.promise = self.scheme.promise(
                p.step_size, p.theta, p.radius, p.epoch_length, self.hessian_lipschitz
            )
        return p

    def _chi(self, theta: float, dimension: int) -> float:
        chi = 1.0
        for _ in range(10):
            ratio = math.sqrt(max(dimension, 1)) * 40 * chi / theta**3 / self.failure_probability
            chi = max(1.0, math.log2(ratio))
        return chi

    @property
    def _is_theory(self) -> bool:
        by_hand = (self.radius, self.epoch_length, self.log_factor, self.perturbation)
        return self.setting == "theory" and all(value is None for value in by_hand)

    def ending(self, memory: FixedMemory, shown: Sample, status: Status) -> Ending:
        ending = super().ending(memory, shown, status)
        if self._is_theory and ending.success:
            chance = min(1.0, self.failure_probability * memory.draws)
            ending.numbers["failure_probability"] = chance
            ending.message += (
                f"; a second-order point but for a probability of {chance:.3g}, that of "
                f"{memory.draws} perturbed epochs"
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
