"""Restarted momentum with the theory's fixed radius B: RAGD and RHB, Algorithms 1 and 3.

With e = x^k + (1 - theta)(x^k - x^{k-1}) both step to x^{k+1} = e - eta * gradient.  Nesterov takes
the gradient at e, the heavy ball at x^k.  A restart continues from x^k or, for the heavy ball, from
a point a little behind it.  The constants of the theorems differ too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core.machine import NUMBERS, Arithmetic, Events, Machine
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.rule import GRADIENT, STEP, Ask, Goal, Outcome, Rule, Sums, Vectors
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import M, Step
from momentous.methods.checks import (
    check_momentum,
    check_positive,
    check_whole,
    needed,
    root_of_product,
    square_over,
)
from momentous.methods.endings import by_own_rule, left_the_domain

# What an evaluation is for.
ITERATE = 0  # the next iteration
OUTPUT = 1  # the averaged point of an epoch that ran through, with which the run ends

GIVEN = (
    "gradient_lipschitz", "hessian_lipschitz", "eps", "step_size", "momentum", "radius",
    "epoch_length",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Momentum:
    """Nesterov's momentum iteration, and the constants of its theorem (Algorithm 1, Theorem 1).

    y^k = x^k + (1 - theta)(x^k - x^{k-1});  x^{k+1} = y^k - eta grad f(y^k).
    """

    theta_factor: float = 4.0  # theta is this times (eps rho eta^2)^(1/4), where eta = 1/(4 L) ...
    largest_theta: float = 1.0  # ... and must not be larger
    radius_factor: float = 1.0  # B is this times sqrt(eps/rho)
    decrease_factor: float = 7 / 8  # a restarted epoch lowers f by this times eps^(3/2)/sqrt(rho)
    promise_factor: float = 82.0  # one of K = 1/theta iterations ends with a gradient of this eps
    curvature_factor: float = 4.0  # of rho B^2 in the bound on that gradient (Lemma 6)

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        """Where the iteration takes its gradient: at e, which is ahead of x."""
        return ahead

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        """Where the next epoch starts, given x^{k+1} and x^k."""
        return x_next

    def theta(self, eps: float, rho: float, eta: float) -> float:
        return self.theta_factor * math.sqrt(eta * root_of_product(eps, rho))

    def radius(self, eps: float, rho: float) -> float:
        return self.radius_factor * math.sqrt(eps / rho)

    def eps_for(self, theta: float, rho: float, eta: float) -> float:
        """The eps that has this theta."""
        root = theta / self.theta_factor * theta / self.theta_factor / eta
        return square_over(root, rho)

    def largest_eps(self, rho: float, eta: float) -> float:
        """The eps at which theta is as large as the theorem allows."""
        return self.eps_for(self.largest_theta, rho, eta)

    def promise(self, eta: float, theta: float, radius: float, length: int, rho: float) -> float:
        """Bound on the gradient at the average of an epoch of ``length`` iterations that stayed
        within ``radius`` (Lemma 6, the sharp form with the real K)."""
        return (
            2 * math.sqrt(2) * radius / (eta * length**2)
            + 2 * theta * radius / (eta * length)
            + self.curvature_factor * rho * radius * radius
        )


@dataclasses.dataclass(frozen=True)
class HeavyBall(Momentum):
    """x^{k+1} = x^k - eta grad f(x^k) + (1 - theta)(x^k - x^{k-1})   (Algorithm 3, Theorem 4)."""

    theta_factor: float = 10.0
    largest_theta: float = 0.1
    radius_factor: float = 0.5
    decrease_factor: float = 1.0
    promise_factor: float = 242.0
    curvature_factor: float = 1.0

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        return x

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        a = (1 - 2 * theta) * (1 - theta)
        return m.combination(x_next, a / (1 + a), x, x_next)  # (x^{k+1} + a x^k)/(1 + a)


NESTEROV = Momentum()
ESCAPING_NESTEROV = Momentum(theta_factor=1.0, promise_factor=1.0)  # Theorem 3
HEAVY_BALL = HeavyBall()


@record
class Parameters:
    """The numbers of Algorithms 1 and 3."""

    step_size: float  # eta
    theta: float  # 1 - momentum
    radius: float  # B
    epoch_length: int  # K
    promise: float  # bound on the averaged gradient of a completed epoch, NaN if none is known
    eps: float  # of the theorem, NaN if everything was given by hand


def whole_epoch(theta: float, m: Arithmetic = NUMBERS) -> int:
    """K = floor(1/theta), as the adaptive theorems have it.

    Theorem 1 lets K = 1/theta be fractional; rounding it up would break the descent argument.  The
    small term keeps 1/theta = 20 from becoming 19.
    """
    return m.maximum(1, m.floor(1 / theta + 1e-9))


def theory_parameters(method: Method, scheme: Momentum, tol: float) -> Parameters:
    """Parameters by hand where given to the method, and by the theorem where not."""
    owner, given = type(method).__name__, (getattr(method, name) for name in GIVEN)
    _, rho, eps, step_size, momentum, radius, epoch_length = given
    if step_size is None:
        step_size = 1 / (4 * needed(method, "gradient_lipschitz", "step_size"))
    if momentum is None or radius is None:
        rho = needed(method, "hessian_lipschitz", "momentum and radius")
        largest = scheme.largest_eps(rho, step_size)
        if eps is None:
            # The output satisfies promise_factor * eps, not eps, and that only if 1/theta is whole:
            # take the next smaller eps for which it is, within the admissible range.
            if not tol:
                raise ValueError(
                    f"{owner} takes eps from tol, and tol={tol:g} is none; give eps=, or a tol "
                    "above 0"
                )
            eps = min(tol / scheme.promise_factor, largest)
            if momentum is None and epoch_length is None:
                K = math.ceil(1 / scheme.theta(eps, rho, step_size) - 1e-9)
                eps = min(eps, scheme.eps_for(1 / K, rho, step_size))
        elif momentum is None and eps > largest * (1 + 1e-12):
            raise ValueError(
                f"eps={eps:.3g} is above {largest:.3g}, the largest for which {owner} has "
                f"theta <= {scheme.largest_theta:g} with these constants; choose a smaller eps, or "
                "give momentum and radius by hand"
            )
    if momentum is not None:
        theta = 1 - momentum
    else:
        theta = min(scheme.theta(eps, rho, step_size), scheme.largest_theta)
    if radius is None:
        radius = scheme.radius(eps, rho)
    length = epoch_length if epoch_length is not None else whole_epoch(theta)
    promise = math.nan
    if rho is not None and math.isfinite(radius):
        promise = scheme.promise(step_size, theta, radius, length, rho)
    return Parameters(
        step_size, theta, radius, length, promise=promise, eps=math.nan if eps is None else eps
    )


@record
class Average:
    """The mean of y^0..y^{K0}, K0 = argmin of |x^{k+1} - x^k| over floor(K/2) <= k <= K-1.

    (Algorithm 1, lines 10-11; for the heavy ball the y^k are the x^k.)  The first minimiser wins.
    """

    mean: Array  # of the points y^0..y^{k-1}
    snapshot: Array  # the mean at the shortest step so far
    shortest: float = math.inf  # |x^{k+1} - x^k|^2 there

    @staticmethod
    def at(x: Array) -> Average:
        return Average(x, x)

    def add(self, m: Machine, k: int, point: Array, moved: float, length: int) -> Average:
        """With y^k and |x^{k+1} - x^k|^2 = ``moved`` in an epoch of K = ``length``."""
        weight = 1 / (k + 1)
        mean = m.case(point, (k > 0, lambda: m.combination(self.mean, weight, point, self.mean)))
        shorter = (k >= length // 2) & (moved < self.shortest)
        return Average(
            mean, m.choose(shorter, mean, self.snapshot), m.where(shorter, moved, self.shortest)
        )


@record
class Epoch:
    """Where an epoch stands after k of its iterations."""

    start: Array  # x^0
    x: Array  # x^k
    ahead: Array  # x^k + (1 - theta)(x^k - x^{k-1})
    average: Average
    k: int = 0
    travelled: float = 0.0  # S = sum of |x^{t+1} - x^t|^2, t < k
    again: bool = False  # was x the last point to be evaluated?

    @staticmethod
    def at(x: Array, again: bool = False) -> Epoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return Epoch(x, x, x, Average.at(x), again=again)


def judge(m: Machine, norm: float, promise: float, tol: float) -> int:
    """The status of a method whose last epoch ran through, by the gradient at its output."""
    above = (tol > 0.0) & m.no(norm <= tol)
    status = m.where(above, int(Status.ABOVE_TOLERANCE), int(Status.COMPLETED))
    return m.where(norm > promise, int(Status.PROMISE_BROKEN), status)


def completed(norm: float, promise: float, tol: float, length: int) -> Ending:
    """The same in words."""
    message = (
        f"an epoch of {length} iterations ran without restart; the gradient norm is {norm:.3g}"
    )
    numbers = {"grad_norm": norm, "promise": promise, "tolerance": tol, "length": length}
    if norm > promise:
        message += (
            f", above the {promise:.3g} that the theorem promises: gradient_lipschitz or "
            "hessian_lipschitz is too small for this function, or the promise is below what "
            "rounding allows"
        )
        return Ending(Status.PROMISE_BROKEN, message, numbers)
    if not math.isnan(promise):
        message += f", the theorem promises {promise:.3g}"
    return by_own_rule(message, numbers, f", the tolerance is {tol:.3g}: lower eps")


@dataclasses.dataclass(frozen=True)
class Restarted(Rule[M]):
    """What the rules of the paper share: the numbers of a theorem, by which an epoch that ran
    through is judged."""

    has_epochs = repeats = True
    scheme: ClassVar[Momentum]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_momentum(self, getattr(self, "momentum", None))
        check_whole(self, "epoch_length", "(K)")
        check_positive(self, *(name for name in GIVEN if name != "momentum"))

    def with_new_tolerance(self, step: Step[M], tol: float | None) -> Step[M]:
        after, ending = super().with_new_tolerance(step, tol), step.report.ending
        if tol is not None and ending is not None and "promise" in ending.numbers:
            ending = self.ending(after.memory, step.report.sample, ending.status)
            after.report = dataclasses.replace(step.report, ending=ending)
        return after


@record
class FixedMemory:
    """The epoch under way, and what stays the same throughout the run."""

    epoch: Epoch
    outcome: Outcome
    parameters: Parameters
    tol: float  # what the user asked for, 0 if nothing
    seed: int
    origin: Sample  # x0 and f(x0): the only point whose value is looked at
    phase: int = ITERATE
    draws: int = 0  # perturbations drawn so far: the n-th comes from its own stream (seed, n)


@dataclasses.dataclass(frozen=True)
class FixedRadius(Restarted[FixedMemory]):
    """Momentum, restarted as soon as k * sum |x^{t+1} - x^t|^2 > B^2, until K steps need none."""

    requires = ("gradient_lipschitz", "hessian_lipschitz")

    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    step_size: float | None = None
    momentum: float | None = None
    radius: float | None = None
    epoch_length: int | None = None

    @property
    def default_tolerance(self) -> float:
        by_hand = self.momentum is not None and self.radius is not None
        return 0.0 if self.eps is not None or by_hand else DEFAULT_TOLERANCE

    def resolved(self, tol: float, dimension: int) -> Parameters:
        """The numbers that a run with this tolerance uses."""
        return theory_parameters(self, self.scheme, tol)

    def begin(self, m: Machine, here: Sample, goal: Goal) -> FixedMemory:
        p = self.resolved(self.tolerance_for(goal.tol), m.dimension)
        memory = FixedMemory(
            Epoch.at(here.point), Outcome(p.step_size, m.no_events), p, goal.tol or 0.0, goal.seed,
            Sample(here.point, here.value),
        )  # fmt: skip
        return self._new_epoch(m, memory, here, here.point, m.no_events, again=True)

    def accepted(self, memory: FixedMemory) -> Sample:
        return memory.origin

    def ask(self, m: Machine, memory: FixedMemory) -> Ask:
        p, epoch = memory.parameters, memory.epoch
        return Ask(
            self.scheme.gradient_point(epoch.x, epoch.ahead),
            m.where(memory.phase == ITERATE, STEP, GRADIENT),
            epoch.again,
            NO_SAMPLE,
            (epoch.ahead, epoch.x),
            (-p.step_size, 1 - p.theta),
        )

    def tell(
        self, m: Machine, memory: FixedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FixedMemory:
        phases = (self._iterate, self._conclude)
        return m.switch(memory, memory.phase, phases, here, made, sums)

    def _iterate(
        self, m: Machine, memory: FixedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FixedMemory:
        p, epoch = memory.parameters, memory.epoch
        (x_next, ahead), (moved,) = made, sums  # lines 3-4
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5

        def advance() -> Epoch:
            average = epoch.average.add(m, epoch.k, here.point, moved, p.epoch_length)
            return Epoch(epoch.start, x_next, ahead, average, k, travelled)

        def restart() -> FixedMemory:  # line 7: x^{-1} = x^0 = x^k (the heavy ball: z^k), k = 0
            start = self.scheme.restart_point(m, x_next, epoch.x, p.theta)
            return self._new_epoch(m, memory, here, start, m.event(EventKind.RESTART, k))

        def complete() -> FixedMemory:  # lines 10-11
            average = advance().average
            last = Epoch(epoch.start, average.snapshot, average.snapshot, average, k, travelled)
            outcome = Outcome(p.step_size, m.no_events, shows=False, ended=False)
            return m.but(memory, epoch=last, phase=OUTPUT, outcome=outcome)

        finite = m.isfinite(here.grad_norm) & m.isfinite(moved)
        return m.case(
            memory,
            (m.no(finite), lambda: self._drop_momentum(m, memory, here)),
            (m.no(k * travelled <= p.radius * p.radius), restart),  # line 6
            (k >= p.epoch_length, complete),  # line 2
            otherwise=lambda: m.but(
                memory, epoch=advance(), outcome=Outcome(p.step_size, m.no_events)
            ),
        )

    def _conclude(self, m: Machine, memory: FixedMemory, here: Sample, *_: object) -> FixedMemory:
        p = memory.parameters
        status = judge(m, here.grad_norm, p.promise, memory.tol)
        return m.but(memory, outcome=Outcome(p.step_size, m.no_events, status=status))

    def _new_epoch(
        self, m: Machine, memory: FixedMemory, here: Sample, start: Array, events: Events,
        again: bool = False,
    ) -> FixedMemory:  # fmt: skip
        """On from ``start`` without momentum; the last gradient was taken ``here``."""
        outcome = Outcome(memory.parameters.step_size, events)
        return m.but(memory, epoch=Epoch.at(start, again), outcome=outcome)

    def _drop_momentum(self, m: Machine, memory: FixedMemory, here: Sample) -> FixedMemory:
        """Drop the momentum and go on from x^k; if x^k itself is bad, there is no way on."""
        epoch, lost = memory.epoch, m.event(EventKind.NON_FINITE, here.grad_norm)
        events = lost + m.event(EventKind.RESTART, epoch.k)
        ended = Outcome(memory.parameters.step_size, lost, status=int(Status.NON_FINITE))
        return m.case(
            memory,
            (epoch.k > 0, lambda: FixedRadius._new_epoch(self, m, memory, here, epoch.x, events)),
            otherwise=lambda: m.but(memory, outcome=ended),
        )

    def ending(self, memory: FixedMemory, shown: Sample, status: Status) -> Ending:
        p = memory.parameters
        if status is Status.NON_FINITE:
            remedy = "use AdaRAGD or AdaRHB, which shrink it"
            return left_the_domain(shown, p.step_size, remedy)
        return completed(shown.grad_norm, p.promise, memory.tol, memory.epoch.k)


@dataclasses.dataclass(frozen=True)
class RAGD(FixedRadius):
    """Restarted accelerated gradient descent, RAGD-NC: Algorithm 1 of Li & Lin [1]_.

    Nesterov's iteration with constant momentum, restarted whenever
    ``k * sum_{t<k} |x^{t+1} - x^t|^2 > B^2``.  The run ends with the first epoch of K iterations
    that needs no restart; its output is the average of Algorithm 1, lines 10-11.  One gradient per
    iteration, no values.

    With eta = 1/(4L), B = sqrt(eps/rho), theta = 4 (eps rho eta^2)^(1/4) <= 1 and
    K = floor(1/theta), the output has |grad f| <= 82 eps (Theorem 1, for integer 1/theta; in
    general the bound that ``result.numbers["promise"]`` gives) after at most
    (floor(8 D/7) + 1) K gradients, D = (f(x0) - min f) sqrt(rho)/eps^(3/2).

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz : float, optional
        L and rho, Lipschitz constants of the gradient and of the Hessian.
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
    guarantee = "gradient of 82 eps in O(eps^-7/4) gradients [Thm 1]"
    cost = "1 gradient"
    scheme = NESTEROV


@dataclasses.dataclass(frozen=True)
class RHB(FixedRadius):
    """Restarted heavy ball, RHB-NC: Algorithm 3 of Li & Lin [1]_.

    Polyak's iteration with the restart rule of :class:`RAGD`; an epoch restarts from
    z^k = (x^k + a x^{k-1})/(1 + a), a = (1 - 2 theta)(1 - theta).  One gradient per iteration, no
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
    guarantee = "gradient of 242 eps in O(eps^-7/4) gradients [Thm 4]"
    cost = "1 gradient"
    scheme = HEAVY_BALL
