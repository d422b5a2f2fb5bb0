"""AGD on a regularised function that counts as convex until proven guilty: ConvexUntilGuilty."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from momentous.core.machine import Host
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import (
    check,
    check_positive,
    check_whole,
    cube_root_of_product,
    needed,
    root_of_product,
    square_over,
)
from momentous.methods.endings import Events, by_own_rule
from momentous.methods.search.rounding import Rounding

# How often in a row the step may be halved because nothing lowers f: the inverse of 2^20 is where
# values carry no signal any more.
MOST_HALVINGS = 20


@record
class GuiltyParameters:
    """The numbers that a run starts with."""

    smoothness: float  # Lg, of the regularised function; the step is 1/Lg
    curvature: float  # alpha
    exploration: float  # eta
    eps: float
    inner_eps: float
    inner_cap: float  # infinity for none


@record
class Pair:
    """A proof that f is not convex: f(u) < f(v) + <grad f(v), u - v> - (alpha/2)|u - v|^2."""

    u: Array
    v: Array
    curvature: float  # the largest number that could stand for alpha


@record
class Search:
    """The violation that the inner iteration met, while the pair that proves it is looked for."""

    witness: Sample  # w, with f(w)
    last: Sample  # y_t, with its gradient
    length: int  # t


@record
class GuiltyMemory:
    """The inner iteration under way (or, during a search, repeated) from the outer iterate."""

    outer: Sample  # p_{k-1}, with value and gradient
    y: Array  # y_t
    y_prev: Array  # y_{t-1}
    values: tuple[float, ...]  # of the regularised function at y_0, ..., y_t
    lowest: Sample  # the lowest of y_0, ..., y_t by f
    smoothness: float  # Lg
    parameters: GuiltyParameters
    tol: float  # what the user asked for, 0 if nothing
    rounding: Rounding  # how noisy values are
    t: int = 0
    search: Search | None = None
    stalls: int = 0  # outer iterations in a row that have not lowered f
    pair: Pair | None = None  # the pair found in the last step

    def as_step(
        self, space: Space, sample: Sample, events: Events = (), ending: Ending | None = None
    ) -> Step[GuiltyMemory]:
        """The step that led here."""
        eta, outer, noise = 1 / self.smoothness, self.outer, self.rounding.seen
        # Not where f is higher than at the outer iterate.
        limit = RiseLimit(outer, allowance=self.rounding.between(Host.of(space), outer.value))
        return Step(self, Report(sample, eta, events, ending, outer, noise, limit))


@dataclasses.dataclass(frozen=True)
class ConvexUntilGuilty(Method[GuiltyMemory]):
    """ "Convex until proven guilty": Carmon, Duchi, Hinder & Sidford [1]_, for p = 2 and p = 3.

    From the outer iterate p, Nesterov's iteration for strongly convex functions is run on
    g(x) = f(x) + alpha |x - p|^2, as if g were alpha-strongly convex: y_t = x_{t-1} - grad g/Lg,
    x_t = y_t + w (y_t - y_{t-1}), Lg = L + 2 alpha, until |grad g(y_t)| <= eps/10.  When it is
    slower than it would have to be, there are u, v among its points with
    f(u) < f(v) + <grad f(v), u - v> - (alpha/2)|u - v|^2, and along u - v the function curves
    downwards.  The next outer iterate is the lowest of the y_t, u, and two points at distance eta
    along this direction.  Ends when |grad f(p)| <= eps.

    order 2: alpha = 2 sqrt(rho eps), eta = alpha/rho; every outer iteration but the last lowers f
    by at least min{eps^2/(5 alpha), alpha^3/(64 rho^2)}; O(eps^(-7/4) log(1/eps)) evaluations.
    order 3, for a Lipschitz third derivative with constant L3: alpha = 2 L3^(1/3) eps^(2/3),
    eta = sqrt(2 alpha/L3), two more points are tried; min{eps^2/(5 alpha), alpha^2/(32 L3)} and
    O(eps^(-5/3) log(1/eps)).  Both need alpha <= L/4.  A deterministic first-order method.

    Two gradients and two values per iteration.  The pair is searched for by repeating the inner
    iteration from p, so that a handful of vectors is all that is ever stored: at a violation, one
    gradient and one value for every point x_s until the first pair, then 2 (order 3: 4) values;
    and a gradient at the next outer iterate.

    Not in the paper: tests of values allow for rounding.  After a violation without a pair, and
    where an outer iteration does not lower f (because 1/Lg is too large, f or its gradient is not
    finite, or its differences are lost in rounding), Lg is doubled; the run ends after 20 attempts
    in a row that were of no use.  The algorithm is given here from secondary sources.  That
    violations come with a pair, and how much outer iterations lower f, was checked numerically; the
    numbers of evaluations are quoted.

    Parameters
    ----------
    gradient_lipschitz, hessian_lipschitz, third_lipschitz : float, optional
        L, rho (for order 2) and L3 (for order 3).
    eps : float, optional
        The gradient norm to reach, by default the tolerance of the run.
    order : {2, 3}
        p, the order of the derivative that is Lipschitz.
    step_size, curvature, exploration, inner_tolerance : float, optional
        1/Lg, alpha and eta by hand, and a number in place of eps/10.
    inner_cap : int, optional
        The next outer iterate is y_t after so many inner iterations without violation.  No part of
        the theory; the experiments of Li & Lin [2]_ have 100, with rho = 1, a tuned step_size, and
        eps = 1e-12 or 1e-14.

    References
    ----------
    .. [1] Y. Carmon, J. C. Duchi, O. Hinder, A. Sidford, "Convex Until Proven Guilty":
       Dimension-Free Acceleration of Gradient Descent on Non-Convex Functions", ICML 2017.
    .. [2] H. Li, Z. Lin, JMLR 24 (2023); see :class:`RAGD`.
    """

    name = "guilty"
    has_epochs = True
    summary = "convex until proven guilty (Carmon et al.)"
    requires = ("gradient_lipschitz", "hessian_lipschitz")
    alternatives = (("gradient_lipschitz", "third_lipschitz"),)  # for order 3
    guarantee = "O(eps^-7/4 log) gradients, O(eps^-5/3 log) for order 3"
    cost = "2 gradients, 2 values"

    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    third_lipschitz: float | None = None
    eps: float | None = None
    order: Literal[2, 3] = 2
    step_size: float | None = None
    curvature: float | None = None
    exploration: float | None = None
    inner_tolerance: float | None = None
    inner_cap: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, *self.parameters())
        check(self, "order", self.order in (2, 3), "(p) must be 2 or 3")
        check_whole(self, "inner_cap")

    @property
    def default_tolerance(self) -> float:
        return self.eps if self.eps is not None else DEFAULT_TOLERANCE

    def resolved(self, tol: float) -> GuiltyParameters:
        """The numbers that a run with this tolerance uses."""
        L, eps = self.gradient_lipschitz, self.eps
        alpha, eta = self.curvature, self.exploration
        if alpha is None or eta is None:
            name = "hessian_lipschitz" if self.order == 2 else "third_lipschitz"
            constant = needed(self, name, "curvature and exploration")  # rho, or L3
        if eps is None:
            eps = tol or needed(self, "eps", "tol")
            if alpha is None and L is not None:  # alpha <= L/4
                largest = square_over(L / 8, constant)
                if self.order == 3:
                    largest = (L / 8) * math.sqrt(L / 8 / constant)
                eps = min(eps, largest)
        if alpha is None:
            if self.order == 2:
                alpha = 2 * root_of_product(constant, eps)
            else:  # 2 L3^(1/3) eps^(2/3)
                alpha = 2 * cube_root_of_product(constant, eps)
            if L is not None and alpha > L / 4 * (1 + 1e-9):
                raise ValueError(
                    f"ConvexUntilGuilty: eps={eps:.3g} makes alpha = {alpha:.3g}, but alpha <= L/4 "
                    f"= {L / 4:.3g} must hold; choose a smaller eps, or give curvature by hand"
                )
        if eta is None:
            eta = alpha / constant if self.order == 2 else math.sqrt(2 * alpha / constant)
        if self.step_size is not None:
            smoothness = 1 / self.step_size
        else:
            smoothness = needed(self, "gradient_lipschitz", "step_size") + 2 * alpha
        check(self, "step_size", smoothness > alpha, f"must be below 1/alpha = {1 / alpha:.3g}")
        inner = self.inner_tolerance if self.inner_tolerance is not None else eps / 10
        cap = float(self.inner_cap or math.inf)
        return GuiltyParameters(smoothness, alpha, eta, eps, inner_eps=inner, inner_cap=cap)

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[GuiltyMemory]:
        p = self.resolved(self.tolerance_for(tol))
        here = oracle.gradient(x0)
        memory = GuiltyMemory(
            outer=here,
            y=x0,
            y_prev=x0,
            values=(here.value,),
            lowest=here,
            smoothness=p.smoothness,
            parameters=p,
            tol=tol or 0.0,
            rounding=Rounding.at(Host.of(oracle.space), here.value),
        )
        return memory.as_step(oracle.space, here)

    def step(self, oracle: Oracle, memory: GuiltyMemory) -> Step[GuiltyMemory]:
        p, space, Lg = memory.parameters, oracle.space, memory.smoothness
        memory = dataclasses.replace(memory, pair=None)
        alpha, centre, kappa = p.curvature, memory.outer.point, Lg / p.curvature
        omega = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
        y = memory.y
        x = y if memory.t == 0 else space.combination(y, omega, y, memory.y_prev)
        at_x = oracle.gradient(x)
        if not at_x.has_finite_gradient:
            return self._lost(oracle, memory, at_x)
        slope = space.combination(at_x.gradient, 2 * alpha, x, centre)  # grad g(x_t)
        y = space.combination(x, -1 / Lg, slope)
        if memory.search is not None:
            return self._searched(oracle, memory, memory.search, at_x, slope, y)
        at_y, t = oracle.gradient(y), memory.t + 1
        fy = oracle.value(y)
        if not (at_y.has_finite_gradient and math.isfinite(fy)):
            return self._lost(oracle, memory, at_y)
        g_y = fy + alpha * space.distance_squared(y, centre)
        slope = space.combination(at_y.gradient, 2 * alpha, y, centre)  # grad g(y_t)
        after = dataclasses.replace(
            memory,
            y=y,
            y_prev=memory.y,
            t=t,
            values=(*memory.values, g_y),
            lowest=at_y if fy < memory.lowest.value else memory.lowest,
        )
        # Certify-Progress
        noise = memory.rounding.between(Host.of(space), memory.outer.value, g_y)
        if g_y > memory.outer.value + noise:
            return self._search_witness(oracle, after, at_y, memory.outer)
        z = space.combination(y, -1 / Lg, slope)
        fz, far = oracle.value(z), space.distance_squared(z, centre)
        if not math.isfinite(fz):
            return self._lost(oracle, after, at_y)
        gap = memory.outer.value - (fz + alpha * far) + alpha / 2 * far  # psi
        norm = space.norm(slope)
        if norm * norm > 2 * Lg * (gap + noise) * math.exp(-t / math.sqrt(kappa)):
            return self._search_witness(oracle, after, at_y, Sample(z, fz))
        if norm <= p.inner_eps or t >= p.inner_cap:
            return self._next(oracle, after, at_y)
        return after.as_step(space, at_y)

    def _search_witness(
        self, oracle: Oracle, memory: GuiltyMemory, last: Sample, witness: Sample
    ) -> Step[GuiltyMemory]:
        """Slower than a strongly convex function allows: go through the iteration once more."""
        p, search = memory.outer.point, Search(witness=witness, last=last, length=memory.t)
        oracle.recall(memory.outer)
        after = dataclasses.replace(memory, y=p, y_prev=p, t=0, search=search)
        return after.as_step(oracle.space, last)

    def _searched(
        self,
        oracle: Oracle,
        memory: GuiltyMemory,
        search: Search,
        at_x: Sample,
        slope: Array,
        y_next: Array,
    ) -> Step[GuiltyMemory]:
        """Find-Witness-Pair: does y_s or w prove, together with x_s, that g is not convex?"""
        space, alpha, centre = oracle.space, memory.parameters.curvature, memory.outer.point
        x, fx = at_x.point, oracle.value(at_x.point)
        g_x = fx + alpha * space.distance_squared(x, centre)
        w = search.witness
        g_w = w.value + alpha * space.distance_squared(w.point, centre)
        for u, g_u in ((Sample(memory.y), memory.values[memory.t]), (w, g_w)):
            apart = space.combination(u.point, -1.0, x)
            square, rise = space.inner(apart, apart), g_u - g_x - space.inner(slope, apart)
            noise = memory.rounding.between(Host.of(space), g_u, g_x)
            if square > 0.0 and rise < alpha / 2 * square - noise:
                pair = Pair(u=u.point, v=x, curvature=2 * alpha - 2 * rise / square)
                return self._exploited(oracle, dataclasses.replace(memory, pair=pair), pair, u)
        s = memory.t + 1
        after = dataclasses.replace(memory, y=y_next, y_prev=memory.y, t=s)
        if s < search.length:
            return after.as_step(space, at_x)
        # No pair: 1/Lg is too large, or values are lost in rounding, where the gradient can tell.
        last, lowest = search.last, memory.lowest
        best = lowest if lowest.value < memory.outer.value else last
        return self._next(oracle, after, best, step_was_too_long=True)

    def _exploited(
        self, oracle: Oracle, memory: GuiltyMemory, pair: Pair, u: Sample
    ) -> Step[GuiltyMemory]:
        """Find-Best-Iterate and Exploit-NC-Pair; the curvature along u - v is below -alpha."""
        space, eta = oracle.space, memory.parameters.exploration
        v, y, y_prev = pair.v, memory.y, memory.y_prev
        apart = math.sqrt(space.distance_squared(pair.u, v))
        forth, origin = eta, pair.u
        if self.order == 3:
            forth, origin = math.sqrt(eta * (eta + apart)) - apart, v
        trials = [
            space.combination(pair.u, forth / apart, pair.u, v),
            space.combination(origin, -eta / apart, pair.u, v),
        ]
        if self.order == 3 and memory.t > 0:  # c_j and q_j bound f(v), no point of descent itself
            trials += [space.combination(y, weight, y_prev, y) for weight in (0.5, 3.0)]
        best = memory.lowest  # of the y_s; u is one of them, its value unknown here, or w
        for trial in (u, *(Sample(point, oracle.value(point)) for point in trials)):
            if trial.value < best.value and math.isfinite(trial.value):
                best = trial
        event = Event(EventKind.NEGATIVE_CURVATURE, pair.curvature)
        return self._next(oracle, memory, best, (event,))

    def _lost(self, oracle: Oracle, memory: GuiltyMemory, bad: Sample) -> Step[GuiltyMemory]:
        """Not finite: back to the lowest point, and if that is where it began, smaller steps."""
        events = (Event(EventKind.NON_FINITE, bad.grad_norm),)
        return self._next(oracle, memory, memory.lowest, events)

    def _next(
        self,
        oracle: Oracle,
        memory: GuiltyMemory,
        best: Sample,
        events: Events = (),
        *,
        step_was_too_long: bool = False,
    ) -> Step[GuiltyMemory]:
        """The next outer iterate, if it is better than the one before; the step may be too long."""
        old, p = memory.outer, memory.parameters
        oracle.recall(best)
        new = oracle.gradient(best.point)
        noise = memory.rounding.between(Host.of(oracle.space), old.value)
        falls = new.value < old.value - noise or (
            new.value <= old.value + noise and new.grad_norm < old.grad_norm
        )
        ending, stalls, kind = None, 0, EventKind.RESTART
        if new.grad_norm <= p.eps:
            ending = self._completed(memory, new)
        elif not (new.has_finite_gradient and falls):
            new, step_was_too_long, stalls, kind = old, True, memory.stalls + 1, EventKind.ROLLBACK
            ending = self._stalled(memory, events) if stalls > MOST_HALVINGS else None
        Lg = 2 * memory.smoothness if step_was_too_long else memory.smoothness
        oracle.recall(new)
        after = dataclasses.replace(
            memory,
            outer=new,
            y=new.point,
            y_prev=new.point,
            t=0,
            values=(new.value,),
            lowest=new,
            search=None,
            smoothness=Lg,
            stalls=stalls,
        )
        return after.as_step(oracle.space, new, (*events, Event(kind, float(memory.t))), ending)

    def _completed(self, memory: GuiltyMemory, new: Sample) -> Ending:
        norm, eps, tol = new.grad_norm, memory.parameters.eps, memory.tol
        message = f"the gradient norm {norm:.3g} of an outer iterate is within eps = {eps:.3g}"
        numbers = {"grad_norm": norm, "eps": eps, "tolerance": tol}
        return by_own_rule(message, numbers, f", the tolerance is {tol:.3g}: lower eps")

    def _stalled(self, memory: GuiltyMemory, events: Events) -> Ending:
        step, norm, value = 1 / memory.smoothness, memory.outer.grad_norm, memory.outer.value
        finite = not any(event.kind is EventKind.NON_FINITE for event in events)
        return Ending(
            Status.NO_PROGRESS if finite else Status.NON_FINITE,
            f"{memory.stalls} halvings of the step, to {step:.3g}, have not lowered the objective "
            f"{value:.6g}, gradient norm {norm:.3g}: "
            + (
                "the differences are lost in rounding; subtract a constant from fun, or raise tol"
                if finite
                else "f is not finite nearby; give a smaller step_size"
            ),
            {"grad_norm": norm, "step_size": step, "fun": value},
        )
