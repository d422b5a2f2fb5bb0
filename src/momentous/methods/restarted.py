"""Restarted momentum with a fixed radius: RAGD, RHB (Algorithms 1, 3) and PerturbedRAGD."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

from momentous.core.arrays import Array
from momentous.core.method import DEFAULT_TOLERANCE, Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import (
    Epoch,
    Parameters,
    check_common,
    check_positive,
    completed,
    judged_anew,
    theory_parameters,
)
from momentous.methods.momentum import ESCAPING_NESTEROV, HEAVY_BALL, NESTEROV, Momentum


@record
class FixedState(State):
    """The epoch under way, and what stays the same throughout the run."""

    epoch: Epoch
    parameters: Parameters
    tol: float  # what the user asked for, 0 if nothing
    seed: int
    draws: int  # perturbations drawn so far: the n-th comes from its own stream (seed, n)
    origin: Sample  # x0 and f(x0): the only point whose value is looked at

    @property
    def accepted(self) -> Sample:
        return self.origin


@dataclasses.dataclass(frozen=True)
class FixedRadius(Method):
    """Momentum, restarted as soon as k * sum |x^{t+1} - x^t|^2 > B^2, until K steps need none."""

    scheme: ClassVar[Momentum]

    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    step_size: float | None = None
    momentum: float | None = None
    radius: float | None = None
    epoch_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(
            type(self).__name__,
            gradient_lipschitz=self.gradient_lipschitz,
            hessian_lipschitz=self.hessian_lipschitz,
            eps=self.eps,
            step_size=self.step_size,
            radius=self.radius,
        )
        check_common(type(self).__name__, self.momentum, self.epoch_length)

    @property
    def default_tolerance(self) -> float:
        by_hand = self.momentum is not None and self.radius is not None
        return 0.0 if self.eps is not None or by_hand else DEFAULT_TOLERANCE

    def resolved(self, tol: float, dimension: int) -> Parameters:
        """The numbers that a run with this tolerance uses."""
        return theory_parameters(
            self.scheme,
            owner=type(self).__name__,
            tol=tol,
            gradient_lipschitz=self.gradient_lipschitz,
            hessian_lipschitz=self.hessian_lipschitz,
            eps=self.eps,
            step_size=self.step_size,
            momentum=self.momentum,
            radius=self.radius,
            epoch_length=self.epoch_length,
        )

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> FixedState:
        p = self.resolved(self.default_tolerance if tol is None else tol, oracle.space.size)
        sample = oracle.gradient(x0)
        epoch, origin = Epoch.at(x0, averaged=True), Sample(x0, sample.value)
        return FixedState(sample, p.step_size, (), None, epoch, p, tol or 0.0, seed, 0, origin)

    def with_tolerance(self, state: State, tol: float | None) -> State:
        return judged_anew(state, tol)

    def step(self, oracle: Oracle, state: State) -> FixedState:
        assert isinstance(state, FixedState)
        p, epoch, space = state.parameters, state.epoch, oracle.space
        assert epoch.average is not None
        state.release()
        sample, x_next, moved = self.scheme.advance(
            oracle, epoch.x, epoch.x_prev, p.step_size, p.theta
        )  # lines 3-4
        if not (sample.finite and math.isfinite(moved)):
            return self._non_finite(state, sample)
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5
        if not k * travelled <= p.radius * p.radius:  # line 6
            return self._restarted(oracle, state, sample, x_next)
        average = epoch.average
        average.add(epoch.k, sample.point, moved, p.epoch_length, space)
        epoch = Epoch(epoch.start, x_next, epoch.x, k, travelled, average)
        ending = None
        if k >= p.epoch_length:  # line 2
            sample = oracle.gradient(average.snapshot)  # lines 10-11
            ending = completed(sample, p.promise, state.tol, k)
        return FixedState(
            sample,
            p.step_size,
            (),
            ending,
            epoch,
            p,
            state.tol,
            state.seed,
            state.draws,
            state.origin,
        )

    def _restarted(
        self, oracle: Oracle, state: FixedState, sample: Sample, x_next: Array
    ) -> FixedState:
        """Line 7: x^{-1} = x^0 = x^k (the heavy ball: z^k), k = 0."""
        p, epoch = state.parameters, state.epoch
        start = self.scheme.restart_point(oracle.space, x_next, epoch.x, p.theta)
        event = Event(EventKind.RESTART, float(epoch.k + 1))
        fresh = Epoch.at(start, averaged=True)
        return dataclasses.replace(state, sample=sample, events=(event,), epoch=fresh)

    def _non_finite(self, state: FixedState, sample: Sample) -> FixedState:
        """Drop the momentum and go on from x^k; if x^k itself is bad, there is no way on."""
        epoch = state.epoch
        events: tuple[Event, ...] = (Event(EventKind.NON_FINITE, sample.grad_norm),)
        if epoch.k > 0:
            events += (Event(EventKind.RESTART, float(epoch.k)),)
            fresh = Epoch.at(epoch.x, averaged=True)
            return dataclasses.replace(state, sample=sample, events=events, epoch=fresh)
        ending = Ending(
            Status.NON_FINITE,
            "the gradient is not finite at the point that the method reached, and the step size "
            f"{state.step_size:.3g} is fixed; give a smaller one (a larger gradient_lipschitz), or "
            "use AdaRAGD or AdaRHB, which shrink it",
            {"step_size": state.step_size},
        )
        return dataclasses.replace(state, sample=sample, events=events, ending=ending)


@dataclasses.dataclass(frozen=True)
class RAGD(FixedRadius):
    """Restarted accelerated gradient descent, RAGD-NC: Algorithm 1 of Li & Lin [1]_.

    Nesterov's iteration with constant momentum, restarted whenever
    ``k * sum_{t<k} |x^{t+1} - x^t|^2 > B^2``.  The run ends with the first epoch of K iterations
    that needs no restart; its output is the average of Algorithm 1, lines 10-11.  One gradient an
    iteration, no values.

    With eta = 1/(4L), B = sqrt(eps/rho), theta = 4 (eps rho eta^2)^(1/4) <= 1 and
    K = floor(1/theta), the output has |grad f| <= 82 eps (Theorem 1, for integer 1/theta; in
    general the bound that ``result.numbers["promise"]`` gives) after at most
    (floor(8 D/7) + 1) K gradients, D = (f(x0) - min f) sqrt(rho)/eps^(3/2).

    Parameters
    ----------
    gradient_lipschitz : float, optional
        L, Lipschitz constant of the gradient.
    hessian_lipschitz : float, optional
        rho, Lipschitz constant of the Hessian.
    eps : float, optional
        The eps of the theorem.  The output satisfies 82 eps; without eps it is tol/82.
    step_size, momentum, radius, epoch_length : optional
        eta, 1 - theta, B and K by hand, in place of the theory's.

    References
    ----------
    .. [1] H. Li, Z. Lin, "Restarted Nonconvex Accelerated Gradient Descent: No More
       Polylogarithmic Factor in the O(eps^(-7/4)) Complexity", JMLR 24 (2023).
    """

    name = "ragd"
    summary = "restarted accelerated gradient descent, fixed radius"
    needs = "L, rho"
    guarantee = "gradient of 82 eps in O(eps^-7/4) gradients [Thm 1]"
    cost = "1 gradient"
    scheme = NESTEROV


@dataclasses.dataclass(frozen=True)
class RHB(FixedRadius):
    """Restarted heavy ball, RHB-NC: Algorithm 3 of Li & Lin [1]_.

    Polyak's iteration with the restart rule of :class:`RAGD`; an epoch restarts from
    z^k = (x^k + a x^{k-1})/(1 + a), a = (1 - 2 theta)(1 - theta).  One gradient an iteration, no
    values.

    With eta = 1/(4L), B = sqrt(eps/(4 rho)), theta = 10 (eps rho eta^2)^(1/4) <= 1/10 and
    K = floor(1/theta), the output has |grad f| <= 242 eps (Theorem 4) after at most
    (floor(D) + 1) K gradients.  Note how small eps has to be: at most 1.6e-7 L^2/rho.

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz, eps, step_size, momentum, radius, epoch_length
        As in :class:`RAGD`; without eps it is tol/242.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "rhb"
    summary = "restarted heavy ball, fixed radius"
    needs = "L, rho"
    guarantee = "gradient of 242 eps in O(eps^-7/4) gradients [Thm 4]"
    cost = "1 gradient"
    scheme = HEAVY_BALL


@dataclasses.dataclass(frozen=True)
class PerturbedRAGD(FixedRadius):
    """Perturbed RAGD-NC, for second-order stationary points: Theorem 3 of Li & Lin [1]_.

    Algorithm 1 with a random displacement, uniform in a ball of radius r, at every restart at which
    the last gradient norm was at most B/eta.  Since no restart happens at a start in a saddle, the
    start is displaced under the same condition (the paper is silent on that case).  One gradient an
    iteration, no values.

    eta = 1/(4L), theta = (1/2)(eps rho/L^2)^(1/4), K = ceil(2 chi/theta),
    r = min{B/2, theta B/(20 K), sqrt(theta B^2/(2K))}.  Settings:

    ``"theory"``
        B = sqrt(eps/rho)/(288 chi^2).  The output has |grad f| <= eps and, with probability
        1 - zeta, smallest Hessian eigenvalue >= -1.011 sqrt(eps rho).  Its constants make it a
        reference only.
    ``"practical"`` (the default)
        B = 0.3 sqrt(eps/rho), about the largest radius for which Lemma 6 still gives
        |grad f| <= eps at the output.  The second-order property is then no theorem:
        :func:`momentous.certify` checks it.

    chi is of the order ln(d/(zeta eps)); the paper leaves its constant open.  Here it is the fixed
    point of chi = max{1, log2(sqrt(d) (40 chi/theta^2)/(theta zeta))}: enough for a displacement to
    grow, by a factor 2^chi an epoch, from its smallest likely component to B.

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz : float
        L and rho.
    eps : float, optional
        The gradient norm to reach, and sqrt(eps rho) the curvature; by default tol.
    failure_probability : float
        zeta.
    setting : {"practical", "theory"}
    log_factor : float, optional
        chi by hand.
    perturbation : float, optional
        r by hand.
    step_size, momentum, radius, epoch_length : optional
        eta, 1 - theta, B, K by hand.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "perturbed-ragd"
    summary = "RAGD that leaves saddles by random displacements"
    needs = "L, rho"
    guarantee = (
        'gradient of eps; with setting="theory" a second-order point with high probability [Thm 3]'
    )
    cost = "1 gradient"
    scheme = ESCAPING_NESTEROV

    failure_probability: float = 0.01
    setting: Literal["practical", "theory"] = "practical"
    log_factor: float | None = None
    perturbation: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("PerturbedRAGD", perturbation=self.perturbation)
        if self.log_factor is not None and not self.log_factor >= 1:
            raise ValueError(f"PerturbedRAGD: log_factor={self.log_factor!r} (chi) must be >= 1")
        if not 0 < self.failure_probability < 1:
            raise ValueError(
                f"PerturbedRAGD: failure_probability={self.failure_probability!r} must be in (0, 1)"
            )
        if self.setting not in ("practical", "theory"):
            raise ValueError(
                f"PerturbedRAGD: setting={self.setting!r} must be 'practical' or 'theory'"
            )

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

    def displacement(self, p: Parameters) -> float:
        """r, the radius of the ball that perturbations are drawn from."""
        if self.perturbation is not None:
            return self.perturbation
        theta, B, K = p.theta, p.radius, p.epoch_length
        return min(B / 2, theta * B / (20 * K), B * math.sqrt(theta / (2 * K)))

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> FixedState:
        state = super().start(oracle, x0, tol, seed)
        return self._perturbed(oracle, state)

    def _restarted(
        self, oracle: Oracle, state: FixedState, sample: Sample, x_next: Array
    ) -> FixedState:
        return self._perturbed(oracle, super()._restarted(oracle, state, sample, x_next))

    def _perturbed(self, oracle: Oracle, state: FixedState) -> FixedState:
        """x^0 + xi, xi uniform in the ball, if the last gradient norm is at most B/eta."""
        p, space = state.parameters, oracle.space
        if state.sample.grad_norm > p.radius / p.step_size or space.size == 0:
            return state
        r = self.displacement(p)
        start = space.displaced(state.epoch.start, r, state.seed, state.draws)
        return dataclasses.replace(
            state,
            events=(*state.events, Event(EventKind.PERTURBED, r)),
            epoch=Epoch.at(start, averaged=True),
            draws=state.draws + 1,
        )
