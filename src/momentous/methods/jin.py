"""AGD that exploits negative curvature, and is perturbed where the gradient is small: JinAGD."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.machine import Host
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import MOMENTUM
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import (
    check,
    check_momentum,
    check_positive,
    check_whole,
    needed,
    root_of_product,
)
from momentous.methods.endings import Events, by_own_rule, stuck
from momentous.methods.restarted.fixed_radius import Momentum
from momentous.methods.search.rounding import Rounding


@record
class JinParameters:
    """The numbers that the iteration runs with."""

    step_size: float  # eta
    theta: float  # 1 - momentum
    curvature: float  # gamma
    curvature_step: float  # s
    eps: float
    perturbation: float  # r, 0 for none
    wait: int  # script T
    drop: float  # script E

    def halved(self) -> JinParameters:
        """As if L were twice as large: theta goes with sqrt(eta), gamma and s stay."""
        theta = self.theta / math.sqrt(2)
        return dataclasses.replace(self, step_size=self.step_size / 2, theta=theta)


@record
class JinMemory:
    """Where x and its momentum are, and what the last perturbation is judged by."""

    x: Array
    x_prev: Array  # v = x - x_prev
    value: float  # f(x)
    parameters: JinParameters
    waited: int  # iterations since the last perturbation
    tol: float  # what the user asked for, 0 if nothing
    seed: int
    origin: Sample  # x0 and f(x0)
    rounding: Rounding  # how noisy values are
    speed: float = 0.0  # |v|
    floor: float = 0.0  # |grad f(x)| is not below this, by L and the last gradient
    before: Sample | None = None  # the point that was perturbed, while the verdict is open
    energy_before: float = math.nan  # the Hamiltonian there
    draws: int = 0  # perturbations drawn so far: the n-th comes from its own stream (seed, n)
    rejected_at: float = math.inf  # f(x) when a step was last rejected

    @property
    def energy(self) -> float:
        """The Hamiltonian, f(x) + |v|^2/(2 eta)."""
        return self.value + self.speed * self.speed / (2 * self.parameters.step_size)

    def at_rest(self, at: Sample) -> JinMemory:
        """The same with the momentum dropped, at a point whose value is known."""
        return dataclasses.replace(
            self, x=at.point, x_prev=at.point, value=at.value, speed=0.0, floor=0.0
        )

    def as_step(
        self, sample: Sample, events: Events = (), ending: Ending | None = None
    ) -> Step[JinMemory]:
        """The step that led here."""
        eta, origin, noise = self.parameters.step_size, self.origin, self.rounding.seen
        # Not where f is higher than at the start: the momentum will carry on from there.
        limit = RiseLimit(origin, allowance=self.rounding.level)
        return Step(self, Report(sample, eta, events, ending, origin, noise, limit))


@dataclasses.dataclass(frozen=True)
class JinAGD(Method[JinMemory]):
    """Perturbed AGD with negative-curvature exploitation: Jin, Netrapalli & Jordan [1]_.

    Nesterov's iteration y = x + (1 - theta) v, x+ = y - eta grad f(y), v+ = x+ - x.  Where
    f(x) < f(y) + <grad f(y), x - y> - (gamma/2)|x - y|^2, the function is too nonconvex between x
    and y for the analysis: if |v| >= s only the momentum is dropped, otherwise x moves by s along
    v or -v, whichever is lower.  So the Hamiltonian f(x) + |v|^2/(2 eta) never rises if eta is at
    most 1/(4L).  Where |grad f(x)| <= eps, and no perturbation has been made for T iterations, x is
    displaced, uniformly in a ball of radius r.  The run ends, at the point before the displacement,
    when the Hamiltonian has not fallen by E within T iterations.

    eta = 1/(4L), theta = (1/2)(eps rho eta^2)^(1/4) <= 1/4, gamma = theta^2/eta, s = gamma/(4 rho).
    With kappa = L/sqrt(rho eps): T = c chi sqrt(kappa), r = eta eps/(chi^5 c^8),
    E = sqrt(eps^3/rho)/(chi^5 c^7), chi = max{1, ln(d L Delta/(rho eps zeta))}, Delta the gap
    f(x0) - inf f.  For c large enough the theorem finds, with probability 1 - zeta, a point with
    |grad f| <= eps and smallest Hessian eigenvalue >= -sqrt(rho eps) in
    O(L^(1/2) rho^(1/4) Delta eps^(-7/4) chi^6) iterations.  How large c has to be is not known:
    on saddles of curvature -1.05 sqrt(rho eps) c = 2 gave up in 15 of 24 runs, c = 3 in none.
    :func:`momentous.certify` checks the output.  With a guessed rho neither gamma nor s, nor the
    promise, say anything about the function.

    One gradient and two values per iteration, f(x+) and f(y); where x is displaced by s, three.
    The test |grad f(x)| <= eps takes one gradient more, only where L and the gradient at y leave it
    open and a perturbation may be due.

    Not in the paper: tests of values allow for rounding; a displacement by s that does not lower f
    is not made; r is at least 8 units of rounding of |x|; a step to where f or its gradient is not
    finite is rejected, the momentum dropped and, if f is no lower than the last time that this
    happened, eta halved.  The theorem, chi, E and the stopping rule are given here from secondary
    sources; that the Hamiltonian falls as it should was checked numerically.

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz : float, optional
        L and rho.
    eps : float, optional
        The gradient norm to reach, by default the tolerance of the run.
    step_size, momentum, curvature, curvature_step, momentum_factor : float, optional
        eta, 1 - theta, gamma, s and theta/(eps rho eta^2)^(1/4) by hand.
    perturbed : bool
        False: no perturbations; the run stops at the tolerance, for a first-order point.
    perturbation, wait, drop, log_factor : optional
        r, T, E and chi by hand.
    constant, gap, failure_probability : float
        c, Delta and zeta.  Without Delta chi = max{1, ln(d kappa^2/zeta)}, as with Delta = L.

    References
    ----------
    .. [1] C. Jin, P. Netrapalli, M. I. Jordan, "Accelerated Gradient Descent Escapes Saddle Points
       Faster than Gradient Descent", COLT 2018.
    .. [2] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "jin-agd"
    has_epochs = True
    summary = "AGD with negative-curvature exploitation and perturbation (Jin et al.)"
    requires = ("gradient_lipschitz", "hessian_lipschitz")
    guarantee = (
        "second-order point in O(eps^-7/4 log) with high probability, for a constant c that is "
        "large enough; how large is not known"
    )
    cost = "1 gradient, 2 values"

    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    step_size: float | None = None
    momentum: float | None = None
    curvature: float | None = None
    curvature_step: float | None = None
    momentum_factor: float = 0.5
    perturbed: bool = True
    perturbation: float | None = None
    wait: int | None = None
    drop: float | None = None
    log_factor: float | None = None
    constant: float = 3.0
    gap: float | None = None
    failure_probability: float = 0.01

    @property
    def stops_at_tolerance(self) -> bool:
        # At a saddle the gradient is small from the start: perturbed runs end by their own rule.
        return not self.perturbed

    def __post_init__(self) -> None:
        super().__post_init__()
        others = {"momentum", "perturbed", "failure_probability"}
        check_positive(self, *(self.parameters().keys() - others))
        check_momentum(self, self.momentum)
        check_whole(self, "wait", "(T)")
        check(self, "failure_probability", 0 < self.failure_probability < 1, "must be in (0, 1)")

    @classmethod
    def as_compared(cls, step_size: float) -> JinAGD:
        """The setting of the experiments of Li & Lin, where only eta was tuned.

        eps = 1e-4, rho = 1, theta = 0.04 (eps rho eta^2)^(1/4), no perturbations.
        """
        return cls(
            hessian_lipschitz=1.0, eps=1e-4, step_size=step_size, momentum_factor=0.04,
            perturbed=False,
        )  # fmt: skip

    @property
    def default_tolerance(self) -> float:
        return self.eps if self.eps is not None else DEFAULT_TOLERANCE

    def resolved(self, tol: float, dimension: int) -> JinParameters:
        """The numbers that a run with this tolerance uses."""
        eps, eta, rho = self.eps or tol, self.step_size, self.hessian_lipschitz
        if eta is None:
            eta = 1 / (4 * needed(self, "gradient_lipschitz", "step_size"))
        if self.momentum is not None:
            theta = 1 - self.momentum
        else:
            rho = needed(self, "hessian_lipschitz", "momentum")
            scheme = Momentum(self.momentum_factor, largest_theta=0.25)
            largest = scheme.largest_eps(rho, eta)  # with the theory's factor and step: kappa = 1
            if self.eps is None:
                # An eps above the range would be a weaker goal than the largest within: clip it.
                eps = min(tol or needed(self, "eps", "momentum"), largest)
            elif eps > largest * (1 + 1e-12):
                raise ValueError(
                    f"JinAGD: eps={eps:.3g} is above {largest:.3g}, the largest for which "
                    "theta <= 1/4; choose a smaller eps, or give momentum by hand"
                )
            theta = min(scheme.theta(eps, rho, eta), scheme.largest_theta)
        gamma = self.curvature or theta * theta / eta
        s = self.curvature_step
        s = s or gamma / (4 * needed(self, "hessian_lipschitz", "curvature_step"))
        r, wait, drop = self._perturbation(eta, eps, dimension) if self.perturbed else (0.0, 0, 0.0)
        return JinParameters(eta, theta, gamma, s, eps, r, wait, drop)

    def _perturbation(self, eta: float, eps: float, dimension: int) -> tuple[float, int, float]:
        """r, T and E."""
        r, wait, drop, c = self.perturbation, self.wait, self.drop, self.constant
        eps = eps or needed(self, "eps", "perturbed=False")
        if r is None or wait is None or drop is None:
            rho = needed(self, "hessian_lipschitz", "perturbation, wait and drop")
            kappa = max(1.0, 1 / (4 * eta) / root_of_product(rho, eps))
            # L Delta/(rho eps)
            ratio = self.gap / (4 * eta) / rho / eps if self.gap is not None else kappa * kappa
            argument = max(dimension, 1) * ratio / self.failure_probability
            chi = self.log_factor or max(1.0, math.log(max(1.0, argument)))
            r = r or eta * eps / (chi**5 * c**8)
            wait = wait or math.ceil(c * chi * math.sqrt(kappa))
            drop = drop or eps * math.sqrt(eps / rho) / (chi**5 * c**7)
        return r, int(wait), drop

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[JinMemory]:
        p = self.resolved(self.tolerance_for(tol), oracle.space.dimension)
        here = oracle.gradient(x0)
        origin, rounding = Sample(x0, here.value), Rounding.at(Host.of(oracle.space), here.value)
        memory = JinMemory(x0, x0, here.value, p, p.wait + 1, tol or 0.0, seed, origin, rounding)
        return memory.as_step(here)

    def step(self, oracle: Oracle, memory: JinMemory) -> Step[JinMemory]:
        memory = dataclasses.replace(memory, waited=memory.waited + 1)
        events: Events = ()
        displaced = self._perturbed(oracle, memory)
        if displaced is not None:
            if displaced.report.ending is not None:
                return displaced
            memory, events = displaced.memory, displaced.report.events
        p, x = memory.parameters, memory.x
        y = x  # the first step, or no momentum at all
        if x is not memory.x_prev and p.theta < 1.0:
            y = oracle.space.combination(x, 1 - p.theta, x, memory.x_prev)
        sample, (x_next, _), (moved,) = oracle.gradient_with(
            y, MOMENTUM, (y, x), (-p.step_size, 1 - p.theta)
        )
        fy = oracle.value(sample.point)
        if not (sample.has_finite_gradient and math.isfinite(fy) and math.isfinite(moved)):
            return self._rejected(oracle, memory, sample, events)
        proven = self._proven_curvature(oracle, memory, sample)
        if proven > p.curvature:
            events += (Event(EventKind.NEGATIVE_CURVATURE, proven),)
            return self._judged(oracle, self._exploited(oracle, memory), sample, events)
        if moved == 0.0 and x is memory.x_prev and memory.before is None:
            return memory.as_step(sample, events, stuck(sample.grad_norm, p.step_size))
        value, known = oracle.value(x_next), oracle.last
        if not math.isfinite(value) or (
            known and known.evaluated and not known.has_finite_gradient
        ):
            return self._rejected(oracle, memory, sample, events)
        L = self.gradient_lipschitz or 1 / (4 * p.step_size)
        floor = (1 - L * p.step_size) * sample.grad_norm  # |grad f(y - eta g) - g| <= L eta |g|
        after = dataclasses.replace(
            memory, x=x_next, x_prev=x, value=value, speed=math.sqrt(moved), floor=floor
        )
        return self._judged(oracle, after, sample, events)

    def _proven_curvature(self, oracle: Oracle, memory: JinMemory, sample: Sample) -> float:
        """The largest c for which f(x) <= f(y) + <grad f(y), x - y> - (c/2)|x - y|^2 for sure."""
        x, y, space = memory.x, sample.point, oracle.space
        if memory.speed == 0.0 or x is y:
            return 0.0
        back = space.combination(x, -1.0, y)
        noise = 2 * memory.rounding.between(Host.of(space), memory.value, sample.value)
        gap = sample.value - memory.value + space.inner(sample.gradient, back) - noise
        square = space.inner(back, back)
        return 2 * gap / square if square > 0.0 else 0.0

    def _exploited(self, oracle: Oracle, memory: JinMemory) -> JinMemory:
        """Negative-curvature exploitation with the pair (x, v) before the step."""
        x, s, speed = memory.x, memory.parameters.curvature_step, memory.speed
        best = Sample(x, memory.value)
        if speed < s:
            for sign in (1.0, -1.0):
                point = oracle.space.combination(x, sign * s / speed, x, memory.x_prev)
                value = oracle.value(point)
                if value < best.value and math.isfinite(value):
                    best = Sample(point, value)
        oracle.recall(best)
        return memory.at_rest(best)

    def _perturbed(self, oracle: Oracle, memory: JinMemory) -> Step[JinMemory] | None:
        """x + xi, xi uniform in the ball, if it is time and the gradient at x is small."""
        p, space = memory.parameters, oracle.space
        if p.perturbation == 0.0 or memory.waited <= p.wait or memory.floor > p.eps:
            return None
        here = oracle.gradient(memory.x)
        if not here.grad_norm <= p.eps or space.dimension == 0:
            return None
        here.value = memory.value
        r = max(p.perturbation, 8 * space.rounding * space.norm(memory.x))
        x = space.displaced(memory.x, r, memory.seed, memory.draws)
        value = oracle.value(x)
        if not math.isfinite(value):
            ending = Ending(
                Status.NON_FINITE,
                f"the gradient norm is {here.grad_norm:.3g}, but a perturbation of length {r:.3g} "
                f"leads to f = {value}; give a smaller perturbation=, or perturbed=False",
                {"grad_norm": here.grad_norm, "perturbation": r},
            )
            return memory.as_step(here, ending=ending)
        x_prev = x
        if memory.x is not memory.x_prev:
            x_prev = space.displaced(memory.x_prev, r, memory.seed, memory.draws)
        after = dataclasses.replace(
            memory, x=x, x_prev=x_prev, value=value, waited=0, before=here,
            energy_before=memory.energy, draws=memory.draws + 1,
        )  # fmt: skip
        return after.as_step(here, (Event(EventKind.PERTURBED, r),))

    def _judged(
        self, oracle: Oracle, memory: JinMemory, sample: Sample, events: Events
    ) -> Step[JinMemory]:
        """T iterations after a perturbation: has the Hamiltonian fallen by E?"""
        p, before = memory.parameters, memory.before
        if before is None or memory.waited + 1 < p.wait:
            return memory.as_step(sample, events)
        fallen = memory.energy_before - memory.energy
        noise = memory.rounding.between(Host.of(oracle.space), memory.energy_before)
        if fallen >= max(p.drop, noise):
            return dataclasses.replace(memory, before=None).as_step(sample, events)
        norm = before.grad_norm
        message = (
            f"the gradient norm is {norm:.3g}, and {p.wait} iterations after a perturbation of "
            f"length {p.perturbation:.3g} the Hamiltonian has fallen by {fallen:.3g} only, less "
            f"than {max(p.drop, noise):.3g}"
        )
        numbers = {"grad_norm": norm, "fallen": fallen, "drop": p.drop, "tolerance": memory.tol}
        ending = by_own_rule(message, numbers, f"; lower eps={p.eps:.3g}")
        return memory.as_step(before, events, ending)

    def _rejected(
        self, oracle: Oracle, memory: JinMemory, sample: Sample, events: Events
    ) -> Step[JinMemory]:
        """Not finite: drop the momentum; if that has not helped the last time, halve the step."""
        events += (Event(EventKind.NON_FINITE, sample.grad_norm),)
        resting, here, ending = sample.point is memory.x, sample, None
        if not resting:
            here = Sample(memory.x, memory.value)
            events += (Event(EventKind.RESTART, memory.speed),)
        oracle.recall(here)
        after = memory.at_rest(here)
        after.rejected_at = memory.value
        if resting or not memory.value < memory.rejected_at:
            after.parameters = memory.parameters.halved()
        if resting and not sample.has_finite_gradient:
            ending = Ending(
                Status.NON_FINITE,
                f"f is {memory.value:.6g} where the method stands, but its gradient is not finite; "
                "give a smaller step_size or a larger gradient_lipschitz",
                {"step_size": memory.parameters.step_size, "fun": memory.value},
            )
        return after.as_step(sample, events, ending)
