"""The numbers of an adaptive method: they change at restarts and stay the same within an epoch."""

from __future__ import annotations

from typing import Any

from momentous.core.machine import Machine
from momentous.core.record import record
from momentous.methods.restarted.momentum import whole_epoch


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

    def limit(self, m: Machine) -> Any:
        """max(B, B0): the distance that ends an epoch."""
        return m.maximum(self.radius, self.wide_radius)

    @property
    def at_radius(self) -> bool:
        """B0 <= B: from here on the method is the one with the fixed radius."""
        return self.wide_radius <= self.radius

    def required_decrease(self, m: Machine, gamma: float) -> Any:
        """gamma eps^(3/2)/sqrt(rho'), with the current rho'."""
        return gamma * self.eps * m.sqrt(self.eps / self.hessian_lipschitz)

    def after_success(self, m: Machine, c0: Any, growth: float) -> Schedule:
        """B0/c0; with growth a larger step too, and theta as it is: eta^2 rho' does not change."""
        rho = m.maximum(self.hessian_lipschitz / (growth * growth), m.tiny)
        return m.but(
            self,
            step_size=self.step_size * growth,
            hessian_lipschitz=rho,
            radius=self.radius * growth,
            wide_radius=self.wide_radius / c0,
            restarts=self.restarts + 1,
        )

    def after_failure(
        self,
        m: Machine,
        shrink: Any,
        c2: float,
        step_size_min: float,
        hessian_lipschitz_max: float,
        largest_theta: float | None,
        epoch_length: int | None,
    ) -> Schedule:
        """B0/shrink, shrink = c0 c1, eta/c2, rho' c2^2 within their caps (Remark 2).

        Where only one cap binds, theta ~ (eps rho' eta^2)^(1/4) changes and is made again, from
        what it was before ``largest_theta`` cut it (None: theta was given by hand).  As long as eta
        and rho' move together it must not be: the floor in K could flip by rounding.
        """
        before = self.step_size, self.hessian_lipschitz
        eta = m.maximum(before[0] / c2, m.minimum(step_size_min, before[0]))
        rho = m.minimum(before[1] * c2 * c2, m.maximum(hessian_lipschitz_max, before[1]))
        theta, uncapped, K = self.theta, self.uncapped_theta, self.epoch_length
        if largest_theta is not None:
            change = (rho / before[1]) * (eta / before[0]) * (eta / before[0])
            apart = (change - 1 > 1e-9) | (1 - change > 1e-9)
            uncapped = m.where(apart, uncapped * m.power(change, 0.25), uncapped)
            theta = m.where(apart, m.minimum(uncapped, largest_theta), theta)
            K = m.where(apart, epoch_length or whole_epoch(theta, m), K)
        return m.but(
            self,
            step_size=eta,
            hessian_lipschitz=rho,
            theta=theta,
            uncapped_theta=uncapped,
            epoch_length=K,
            radius=self.radius * m.sqrt(before[1] / rho),
            wide_radius=self.wide_radius / shrink,
            restarts=self.restarts + 1,
        )

    def repeats(self, m: Machine, failed: Schedule, k: Any) -> Any:
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
