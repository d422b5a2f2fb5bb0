"""The proximal gradient method: gradient descent, and the guard, with bounds or a simple term."""

from __future__ import annotations

import dataclasses
from typing import Any

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT
from momentous.core.record import record
from momentous.core.rule import RUNNING, VALUE, Ask, Goal, Outcome, Rule, Sums, Vectors
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.checks import check_positive
from momentous.methods.endings import no_progress, zero_gradient
from momentous.methods.search.rounding import Rounding

MOST_TRIALS = 100  # of a step: L grows by 2^100
# What an accepted step multiplies L by: the first as long as none was rejected.
FIRST_DECREASE, DECREASE = 0.1, 0.9


@record
class ProjectedMemory:
    """Where the method stands."""

    current: Sample
    lipschitz: float  # L of the trial under way
    rounding: Rounding
    outcome: Outcome
    tried: int = 0  # trials of this step that were rejected
    rejects: bool = False  # was a trial ever rejected?


@dataclasses.dataclass(frozen=True)
class ProjectedGradient(Rule[ProjectedMemory]):
    """x+ = P(x - g/L), P the projection onto the box, with L by doubling.

    With a simple term h (``penalty=``) P is its proximal map, prox(., 1/L), and f + h, called f
    below, takes the place of f; a box is the term that is 0 inside and infinite outside.

    A step p = x+ - x is accepted where f(x+) <= f(x) + <g, p> + L |p|^2/2 (of f alone), which every
    L at least the Lipschitz constant of the gradient satisfies; else L is doubled.  After a step L
    is multiplied by 0.9, so that a step takes at most 1.16 trials on average.

    What it guarantees.  Of v = P(x - g) - x, by which a run stops, |v| <= eps is met within
    2 M D/eps^2 + 1 points, D = f(x0) - inf f and M the larger of 1 and of all L, which are at most
    twice the Lipschitz constant (or the first guess).  A step lowers f by at least
    m(L) = -min_z (<g, z - x> + L |z - x|^2/2), z in the box.  Less is left of it as L grows, and
    with p_M = P(x - g/M) - x it is m(M) >= M |p_M|^2/2 >= |v|^2/(2M), as |v| <= M |p_M| for M >= 1
    (theorem 10.9 of [1]_).  In a set narrower than 1 a run stops by v = (P(x - t g) - x)/t, t the
    least width: there M is the larger of 1/t and of all L.

    8 L D/eps^2 + 2 points are enough, which is fewer where L < 1/4, if no step has been taken with
    an L below the Lipschitz constant: then |v| at x+ is at most 2 L |p|, because P leaves x+ where
    it is if it comes from x+ - g - L p, and P(x+ - g+) is no farther from that than |g+ - g - L p|.
    Steps with a smaller L, which are taken where f bends little along them, may be more.

    As the guard of a fast method (`Safeguarded`) every step is an epoch: K* = 1 step, delta =
    eps^2/(2M).  Whatever the fast method does, eps is met within 17 max(2 M D/eps^2 + 1, K) + K + c
    evaluations, K the length of a round and c the trials of a step.

    Where values cannot tell, within their noise, a step is accepted by the gradients at its ends.

    Parameters
    ----------
    gradient_lipschitz : float, optional
        The first L; by default the first step has length 1.

    References
    ----------
    .. [1] A. Beck, "First-Order Methods in Optimization" (2017), sections 10.2 and 10.3.
    """

    name = "projected-gradient"
    takes_bounds = takes_penalty = True
    ends_at_noise = True
    summary = "gradient descent in a box, or with a simple term"
    guarantee = "O(eps^-2) values and gradients"
    cost = "1 gradient, 1 value per trial"
    work = GRADIENT

    gradient_lipschitz: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "gradient_lipschitz")

    def begin(self, m: Machine, here: Sample, goal: Goal) -> ProjectedMemory:
        guess = here.grad_norm + (here.grad_norm == 0.0)
        lipschitz = self.gradient_lipschitz or guess
        outcome = Outcome(1.0 / lipschitz, m.no_events)
        return ProjectedMemory(here, lipschitz, Rounding.at(m, here.value), outcome)

    def move(self, m: Machine, memory: ProjectedMemory, here: Sample, goal: Goal) -> Any:
        outcome = Outcome(1.0 / memory.lipschitz, m.no_events)
        return m.but(memory, current=here, outcome=outcome, tried=0)

    def ask(self, m: Machine, memory: ProjectedMemory) -> Ask:
        x = memory.current
        point = self._step(m, x, memory.lipschitz)
        gp, pp = self._way(m, x, point)
        noise = memory.rounding.between(m, x.value)
        return Ask(point, VALUE, below=x.value + gp + memory.lipschitz * pp / 2 + noise)

    @staticmethod
    def _step(m: Machine, x: Sample, lipschitz: Any) -> Array:
        point = m.combination(x.point, -1.0 / lipschitz, x.gradient)
        if m.penalty is not None:
            return m.penalty.prox(m, point, 1.0 / lipschitz)
        return point if m.box is None else m.box.clip(m, point)

    @staticmethod
    def _way(m: Machine, x: Sample, point: Array) -> tuple[Any, Any]:
        """What f and a term would change by if f were linear, and |p|^2."""
        p = m.combination(point, -1.0, x.point)
        linear = m.inner(x.gradient, p)
        if m.penalty is not None:
            linear = linear + m.penalty.value(m, point) - m.penalty.value(m, x.point)
        return linear, m.inner(p, p)

    def tell(
        self, m: Machine, memory: ProjectedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> ProjectedMemory:
        x, lipschitz = memory.current, memory.lipschitz
        gp, pp = self._way(m, x, here.point)
        limit = x.value + gp + lipschitz * pp / 2
        falls, usable = here.value <= limit, m.isfinite(here.grad_norm) & m.isfinite(here.value)
        if here.gradient is not None:
            noise = memory.rounding.between(m, x.value, here.value)
            level = abs(here.value - x.value) <= noise
            falls = falls | (level & (self._bend(m, x, here) <= lipschitz * pp))
        accepted = falls & usable & (pp > 0.0)
        stuck = m.no(accepted) & ((pp == 0.0) | (memory.tried >= MOST_TRIALS))
        still = x.grad_norm == 0.0
        status = m.where(still, int(Status.COMPLETED), int(Status.NO_PROGRESS))
        outcome = Outcome(
            1.0 / lipschitz,
            m.event(EventKind.RESTART, 1, accepted),
            shows=accepted,
            ended=accepted | stuck,
            status=m.where(stuck, status, RUNNING),
        )
        decrease = m.where(memory.rejects, DECREASE, FIRST_DECREASE)
        return ProjectedMemory(
            m.choose(accepted, here, x),
            lipschitz * m.where(accepted, decrease, 2.0),
            memory.rounding,
            outcome,
            m.where(accepted, 0, memory.tried + 1),
            memory.rejects | m.no(accepted),
        )

    @staticmethod
    def _bend(m: Machine, x: Sample, there: Sample) -> Any:
        """<grad f(x+) - g, p>: at most L |p|^2, by the trapezoidal rule, where the values are."""
        p = m.combination(there.point, -1.0, x.point)
        return m.inner(there.gradient, p) - m.inner(x.gradient, p)

    def accepted(self, memory: ProjectedMemory) -> Sample:
        return memory.current

    def ending(self, memory: ProjectedMemory, shown: Sample, status: Status) -> Ending:
        norm, step_size = memory.current.grad_norm, memory.outcome.step_size
        if status is Status.COMPLETED:
            return zero_gradient(step_size)
        return no_progress(
            f"no step is accepted at projected gradient norm {norm:.3g}, down to size "
            f"{step_size:.3g}",
            grad_norm=norm,
            step_size=step_size,
        )
