"""The numbers of an adaptive method: what may be given, how they begin and change at restarts."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.machine import Machine
from momentous.core.method import DEFAULT_TOLERANCE
from momentous.core.record import record
from momentous.core.step import M
from momentous.methods.checks import check, check_positive, root_of_product
from momentous.methods.restarted.fixed_radius import Restarted, theory_parameters, whole_epoch

# The paper's advice is theta in (0, 0.01]; 0.03 and 0.1 were often 2 to 10 times slower.
LARGEST_PRACTICAL_THETA = 0.01
# B0 to begin with, in units of |grad f(x0)| eta/theta, where a run without momentum would end.
WIDE = 100


@record
class Schedule:
    """Step size, momentum and the two radii, with the rules of Algorithm 2 and Remark 2."""

    step_size: float  # eta
    hessian_lipschitz: float  # rho', the current guess
    eps: float
    theta: float  # 1 - momentum
    uncapped_theta: float  # what the formula gives, where theta is at its largest
    epoch_length: int  # K
    radius: float  # B ~ sqrt(eps/rho')
    wide_radius: float  # B0
    restarts: int = 0  # t

    def limit(self, m: Machine) -> float:
        """max(B, B0): the distance that ends an epoch."""
        return m.maximum(self.radius, self.wide_radius)

    @property
    def at_radius(self) -> bool:
        """B0 <= B: from here on the method is the one with the fixed radius."""
        return self.wide_radius <= self.radius

    def repeats(self, m: Machine, failed: Schedule, k: int) -> bool:
        """Would an epoch run just as the one that failed after k iterations under ``failed``?

        A first step beyond the radius is the same whatever the radius.
        """
        return (
            (self.step_size == failed.step_size)
            & (self.theta == failed.theta)
            & (self.epoch_length == failed.epoch_length)
            & ((k == 1) | (self.limit(m) == failed.limit(m)))
        )

    def tightened(self, m: Machine) -> Schedule:
        """A tenth of eps, with eta, theta and K as they are."""
        return m.but(
            self,
            eps=self.eps / 10,
            hessian_lipschitz=self.hessian_lipschitz * 10,
            radius=self.radius / 10,
            restarts=self.restarts + 1,
        )


@dataclasses.dataclass(frozen=True)
class Scheduled(Restarted[M]):
    """The parameters of Algorithms 2 and 4, and the schedules that follow from them."""

    alternatives = (("gradient_lipschitz", "hessian_lipschitz"),)

    step_size: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    gradient_lipschitz: float | None = None
    momentum: float | None = None
    radius: float | None = None
    epoch_length: int | None = None
    initial_radius: float | None = None
    decrease: float = 1e-5
    radius_shrink: float | None = None
    failure_shrink: float = 10.0
    backoff: float | None = None
    step_size_min: float = 0.0
    hessian_lipschitz_max: float = math.inf
    growth: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "initial_radius", "decrease", "hessian_lipschitz_max")
        c0, c1, c2 = self.radius_shrink, self.failure_shrink, self._backoff
        most = self.scheme.decrease_factor
        guaranteed = f"(gamma) must be at most {most:g}, what the theorem guarantees"
        check(self, "decrease", self.decrease <= most, guaranteed)
        falls = "(c0) must be above 1, or B0 may never fall to B"
        check(self, "radius_shrink", c0 is None or c0 > 1, falls)
        slower = f"(c1) >= backoff={c2!r} (c2) >= 1 must hold, or B shrinks faster than B0"
        check(self, "failure_shrink", c1 >= c2 >= 1, slower)
        grows = self.growth is None or 1 <= self.growth < 2
        check(self, "growth", grows, "must be in [1, 2); 1 is none, 1.2 works well")

    @property
    def _by_theory(self) -> bool:
        """Are both Lipschitz constants declared, so that the theorem applies as it stands?"""
        return self.gradient_lipschitz is not None and self.hessian_lipschitz is not None

    @property
    def _scale_free(self) -> bool:
        """Is the step size ours to find?"""
        return self.step_size is None and self.gradient_lipschitz is None

    @property
    def _tightens(self) -> bool:
        """Is eps ours to choose?"""
        return self._scale_free and self.eps is None

    @property
    def _backoff(self) -> float:
        if self.backoff is not None:
            return self.backoff
        return 1.0 if self._by_theory else 2.0

    @property
    def default_tolerance(self) -> float:
        return self.eps if self.eps is not None else DEFAULT_TOLERANCE

    def _first_schedule(self, m: Machine, norm: float, tol: float) -> Schedule:
        """Before the first iteration, or the probe; ``norm`` is that of the first gradient."""
        if not self._by_theory:
            eps = self.eps or m.where(tol > 0.0, tol, m.where(norm > 0.0, 1e-6 * norm, 1.0))
            return self._practical_schedule(m, norm, eps, self.gradient_lipschitz or 1.0)
        p, rho = theory_parameters(self, self.scheme, tol), self.hessian_lipschitz or 0.0
        uncapped = p.theta
        if self.momentum is None:
            uncapped = self.scheme.theta(p.eps, rho, p.step_size)
        wide = self.initial_radius or WIDE * norm * p.step_size / p.theta
        return Schedule(
            p.step_size, rho, p.eps, p.theta, uncapped, p.epoch_length, p.radius, wide
        )  # fmt: skip

    def _practical_schedule(self, m: Machine, norm: float, eps: float, L: float) -> Schedule:
        """The step comes from one probe of the curvature, so that it scales with f, and rho' is
        such that theta = (eps rho' eta^2)^(1/4)."""
        eta = self.step_size or 1 / (4 * L if self.gradient_lipschitz else L)
        uncapped = LARGEST_PRACTICAL_THETA
        if self.hessian_lipschitz is not None:
            rho = self.hessian_lipschitz
            uncapped = m.sqrt(eta * root_of_product(eps, rho, m))
        theta = m.minimum(uncapped, LARGEST_PRACTICAL_THETA)
        if self.momentum is not None:
            theta = uncapped = 1 - self.momentum
        if self.hessian_lipschitz is None:
            # rho' = theta^4/(eps eta^2), kept within what a float can hold.
            sqrt_rho = theta / eta * theta / m.sqrt(eps)
            rho = m.power(m.minimum(m.maximum(sqrt_rho, m.smallest), 1 / m.smallest), 2)
        B = self.radius or m.sqrt(eps / rho)
        K = self.epoch_length or whole_epoch(theta, m)
        wide = self.initial_radius or WIDE * norm * eta / theta
        return Schedule(eta, rho, eps, theta, uncapped, K, B, wide)

    def _required_decrease(self, m: Machine, now: Schedule) -> float:
        """gamma eps^(3/2)/sqrt(rho'), with the current rho'."""
        return self.decrease * now.eps * m.sqrt(now.eps / now.hessian_lipschitz)

    def _shrink(self, now: Schedule) -> float:
        """c0: as given, or 1 + 0.001 t in the t-th epoch (section 5.1 of the paper)."""
        if self.radius_shrink is not None:
            return self.radius_shrink
        return 1 + 0.001 * (now.restarts + 1)

    def _after_success(self, m: Machine, now: Schedule) -> Schedule:
        """B0/c0; with growth a larger step too, and theta as it is: eta^2 rho' does not change."""
        growth = 1.2 if self._scale_free else 1.0
        if self.growth is not None:
            growth = self.growth
        return m.but(
            now,
            step_size=now.step_size * growth,
            hessian_lipschitz=m.maximum(now.hessian_lipschitz / (growth * growth), m.tiny),
            radius=now.radius * growth,
            wide_radius=now.wide_radius / self._shrink(now),
            restarts=now.restarts + 1,
        )

    def _after_failure(self, m: Machine, now: Schedule) -> Schedule:
        """B0/(c0 c1), eta/c2, rho' c2^2 within their caps (Remark 2).

        Where only one cap binds, theta ~ (eps rho' eta^2)^(1/4) changes and is made again, from
        what it was before the largest theta cut it.  As long as eta and rho' move together it must
        not be: the floor in K could flip by rounding.
        """
        c2, before, rho_before = self._backoff, now.step_size, now.hessian_lipschitz
        eta = m.maximum(before / c2, m.minimum(self.step_size_min, before))
        rho = m.minimum(rho_before * c2 * c2, m.maximum(self.hessian_lipschitz_max, rho_before))
        theta, uncapped, K = now.theta, now.uncapped_theta, now.epoch_length
        if self.momentum is None:
            largest = self.scheme.largest_theta if self._by_theory else LARGEST_PRACTICAL_THETA
            change = (rho / rho_before) * (eta / before) * (eta / before)
            apart = (change - 1 > 1e-9) | (1 - change > 1e-9)
            uncapped = m.where(apart, uncapped * m.power(change, 0.25), uncapped)
            theta = m.where(apart, m.minimum(uncapped, largest), theta)
            K = m.where(apart, self.epoch_length or whole_epoch(theta, m), K)
        return m.but(
            now,
            step_size=eta,
            hessian_lipschitz=rho,
            theta=theta,
            uncapped_theta=uncapped,
            epoch_length=K,
            radius=now.radius * m.sqrt(rho_before / rho),
            wide_radius=now.wide_radius / (self._shrink(now) * self.failure_shrink),
            restarts=now.restarts + 1,
        )

    def _promise(self, now: Schedule) -> float:
        """On the gradient at the output; NaN where the theorem does not apply as it stands."""
        if not (self._by_theory and self._backoff == 1.0):
            return math.nan
        rho = self.hessian_lipschitz or 0.0
        return self.scheme.promise(now.step_size, now.theta, now.radius, now.epoch_length, rho)
