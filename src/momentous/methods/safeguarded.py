"""A fast method under the guard of one with a guarantee: the speed of the first, the bound of the
second."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import copied, record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, Step
from momentous.methods.checks import check_whole
from momentous.methods.classical.lbfgs import LBFGS
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall

# Chosen on one half of the problems of testbed.suite; docs/scoreboard.md reports on the other half.
DEFAULT_FAST = LBFGS()
# With the mean in every iteration and no early ends of epochs, as its theorem has it; what differs
# from the published form is the probe for L, beta = 1/2 and the rounding guards.
DEFAULT_GUARANTEED = UniversalHeavyBall(average_growth=1.0, contraction=0.0)

# Turns of the two methods, as the value of an event.
FAST, SAFE = 0.0, 1.0


@record
class SafeguardedMemory:
    """The last steps of both methods, whose turn it is, and what a round must earn."""

    fast: Step
    safe: Step | None  # None until its first turn
    best: Sample  # the lowest point that either has accepted
    tol: float | None
    seed: int
    start_norm: float  # |grad f(x0)|
    allowance: float  # evaluations that a round may take
    began: int  # evaluations when the round began
    began_at: Sample  # the best point then
    mark: float  # the smallest gradient norm when that last earned a round
    smallest: float  # the smallest gradient norm at an accepted point of the fast method
    price: float = -1.0  # decrease per evaluation that a round must bring; negative: not known yet
    patience: int = 1  # epochs that the safe method's next turn has if the fast one has broken down
    left: int = 0  # epochs left in its turn
    guarding: bool = False  # is it the safe method's turn?
    given_up: Ending | None = None  # why the safe method's last turn ended, if it could not go on

    @property
    def noise(self) -> float:
        """What either of the methods has measured."""
        return max(self.fast.report.noise, 0.0 if self.safe is None else self.safe.report.noise)

    def as_step(
        self, report: Report, *events: Event, ending: Ending | None = None
    ) -> Step[SafeguardedMemory]:
        """The step of one of the two that led here, as a step of our own."""
        events = (*report.events, *events)
        sample, eta, limit = report.sample, report.step_size, report.limit
        return Step(self, Report(sample, eta, events, ending, self.best, self.noise, limit))


@dataclasses.dataclass(frozen=True)
class Safeguarded(Method[SafeguardedMemory]):
    """A fast method (H) that must keep earning its turn, guarded by one with a guarantee (G).

    H runs in rounds of K evaluations.  A round that earns its cost is followed by another, and H
    goes on undisturbed.  After one that does not, G has a turn from the lowest point: one epoch,
    or K evaluations of it.  Then H goes on at the lowest point, with what it has learned.  A round
    of H earns its cost if

    - it lowers f by at least ``price`` per evaluation, which is what G's last turn has brought;
      before an epoch of G was completed, by at least D_1 (eps/|grad f(x0)|)^(3/2) in K evaluations,
      where D_1 is the decrease of the first round that has brought any; or
    - it halves the smallest gradient norm since that was last the reason.

    K = 2 (|grad f(x0)|/eps)^(1/4) to begin with, at least ``shortest_round``, and is doubled when a
    turn of G is cut short by it; eps is the tolerance, or sqrt(u) |grad f(x0)| if that is larger, u
    the unit roundoff.  H's round ends at once when H cannot go on (a line search that fails,
    nothing finite); G's turn is then not cut short, and has twice as many epochs each time until a
    round of H earns something.

    What it guarantees.  Let D = f(x0) - inf f, and let every epoch of G that starts above eps end
    after at most K* evaluations, either lower by delta or with a gradient of at most eps: G alone
    needs (D/delta + 1) K* evaluations.  Write K0 for the first K, M for max(K0, 2 K*), and c for
    the evaluations of one step, by which a round may overshoot.  Then up to a gradient of eps

    - at most D/delta + 1 epochs of G are completed, and log2(K*/K0) + 1 turns cut short, which
      together cost (D/delta + 3) K*;
    - the rounds of H that earned nothing are as many as turns, and cost M + c each;
    - the rounds that paid G's price cost D K*/delta;
    - the rounds that halved the gradient are at most log2(|grad f(x0)|/eps), and cost M + c each;
    - the rounds that paid D_1's price cost K0 (D/D_1) (|grad f(x0)|/eps)^(3/2).

    With delta of the order eps^(3/2) and K* of eps^(-1/4) all of it is O(eps^(-7/4)), the order of
    G alone.  In the last item D |grad f(x0)|^(7/4)/D_1 stands in place of G's constants: what it
    costs to know neither L nor rho before G has run.  (A first round that brings next to nothing
    makes that item large.)  For the parameter-free G here, epochs that end unsuccessfully add the
    logarithm of how wrong its estimate of L is.  Where G's theorem does not apply (rounding,
    functions without a Lipschitz gradient) no bound is claimed; but f at the lowest point, where
    the next turn begins, rises by no more than the noise of the values.

    The cost of an iteration is that of the method whose turn it is; neither knows of the other.
    The trace has an event ``turn`` when it passes (1: to G, 0: back to H).

    Parameters
    ----------
    fast : Method
        H: any method that can be started anywhere; by default `LBFGS`.
    guaranteed : Method
        G: a method whose epochs end, with restart events: a turn lasts until there is one.  By
        default `UniversalHeavyBall` with ``average_growth=1, contraction=0``.
    shortest_round : int
        The least K.

    References
    ----------
    .. [1] N. Marumo, A. Takeda (2025), see :class:`UniversalHeavyBall`: the guarantee.
    .. [2] D. C. Liu, J. Nocedal (1989), see :class:`LBFGS`: the speed.
    """

    name = "safeguarded"
    summary = "L-BFGS under the guard of the universal heavy ball; takes any two methods"
    guarantee = "O(eps^-7/4) values and gradients, the order of the guard's"
    cost = "that of the method whose turn it is (1 value, 1 gradient)"

    fast: Method = DEFAULT_FAST
    guaranteed: Method = DEFAULT_GUARANTEED
    shortest_round: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        for role, method in (("fast", self.fast), ("guaranteed", self.guaranteed)):
            if not isinstance(method, Method):
                raise TypeError(f"Safeguarded: {role}={method!r} must be a Method, such as LBFGS()")
        check_whole(self, "shortest_round")

    def start(
        self, oracle: Oracle, x0: Array, tol: float | None, seed: int
    ) -> Step[SafeguardedMemory]:
        here = oracle.gradient(x0)
        fast = self.fast.start(oracle, x0, tol, seed)
        norm, goal = here.grad_norm, self._goal(oracle, here.grad_norm, tol)
        ratio = norm / goal if goal > 0 else 1.0
        memory = SafeguardedMemory(
            fast=fast,
            safe=None,
            best=here,
            tol=tol,
            seed=seed,
            start_norm=norm,
            allowance=max(float(self.shortest_round), 2 * ratio**0.25),
            began=_evaluations(oracle),
            began_at=here,
            mark=norm,
            smallest=norm,
        )
        return memory.as_step(dataclasses.replace(fast.report, sample=here))

    def with_new_tolerance(
        self, step: Step[SafeguardedMemory], tol: float | None
    ) -> Step[SafeguardedMemory]:
        fast, safe = self.fast.with_new_tolerance(step.memory.fast, tol), step.memory.safe
        safe = None if safe is None else self.guaranteed.with_new_tolerance(safe, tol)
        return Step(dataclasses.replace(step.memory, fast=fast, safe=safe, tol=tol), step.report)

    def _goal(self, oracle: Oracle, start_norm: float, tol: float | None) -> float:
        """eps: the tolerance, at least what rounding leaves of |grad f(x0)|."""
        wanted = self.default_tolerance if tol is None else tol
        return max(wanted, math.sqrt(oracle.space.rounding) * start_norm)

    def step(self, oracle: Oracle, memory: SafeguardedMemory) -> Step[SafeguardedMemory]:
        if memory.guarding:
            assert memory.safe is not None
            return self._guard(oracle, memory, memory.safe)
        return self._run(oracle, memory)

    def _run(self, oracle: Oracle, memory: SafeguardedMemory) -> Step[SafeguardedMemory]:
        """A step of H."""
        inner = self.fast.step(oracle, memory.fast.memory)
        report = inner.report
        stand = _standing(oracle, report, memory.began_at)
        best = _lower(_noise(oracle, memory), memory.best, stand)
        after = copied(memory)
        after.fast, after.best = inner, best
        after.smallest = min(memory.smallest, stand.grad_norm) if stand.finite else memory.smallest
        ended = report.ending
        if ended is not None and ended.status.success:
            return after.as_step(report, ending=ended)
        spent = _evaluations(oracle) - memory.began
        if ended is None and spent < memory.allowance:
            return after.as_step(report)
        gain = memory.began_at.value - after.best.value
        if gain <= _noise(oracle, after):
            gain = 0.0
        earned = gain > 0.0 and gain >= memory.price * spent
        if memory.price < 0.0 and earned:  # the first that has brought any
            goal = self._goal(oracle, memory.start_norm, memory.tol)
            after.price = gain * (goal / memory.start_norm) ** 1.5 / memory.allowance
        if after.smallest <= after.mark / 2:
            after.mark, earned = after.smallest, True
        if ended is None and earned:
            after.given_up, after.patience = None, 1
            return _new_round(oracle, after).as_step(report)
        if memory.given_up is not None and after.best.point is memory.began_at.point:
            return after.as_step(report, ending=memory.given_up)
        if ended is not None:
            after.patience *= 2
        after.left = memory.patience if ended is not None else 1
        return self._turned_to_safe(oracle, after).as_step(report, Event(EventKind.TURN, SAFE))

    def _turned_to_safe(self, oracle: Oracle, memory: SafeguardedMemory) -> SafeguardedMemory:
        oracle.recall(memory.best)
        known, goal = oracle.gradient(memory.best.point), (memory.tol, memory.seed)
        if memory.safe is None:
            memory.safe = self.guaranteed.start(oracle, known.point, *goal)
        else:
            memory.safe = self.guaranteed.moved_to(oracle, memory.safe.memory, known, *goal)
        memory.best, memory.guarding = known, True
        return _new_round(oracle, memory)

    def _guard(
        self, oracle: Oracle, memory: SafeguardedMemory, safe: Step
    ) -> Step[SafeguardedMemory]:
        """A step of G."""
        inner = self.guaranteed.step(oracle, safe.memory)
        report = inner.report
        after = dataclasses.replace(memory, safe=inner)
        stand = _standing(oracle, report, memory.began_at)
        after.best = _lower(_noise(oracle, after), memory.best, stand)
        if report.ending is not None and report.ending.status.is_output:
            return after.as_step(report, ending=report.ending)
        spent = _evaluations(oracle) - memory.began
        broken = memory.fast.report.ending  # why H cannot go on from where it is
        # Where nothing was accepted, the step after an epoch shows where that has led.
        over = _restarted(report) and _has_accepted(report, memory.began_at)
        over |= _restarted(safe.report) and not _has_accepted(safe.report, memory.began_at)
        if over:
            after.price = max(0.0, memory.began_at.value - after.best.value) / max(spent, 1)
            after.left -= 1
            if after.left > 0:
                return after.as_step(report)
            if broken is not None and after.best.point is memory.began_at.point:
                return after.as_step(report, ending=_no_way(after.best, broken))
        elif report.ending is not None:
            after.given_up = report.ending
            if broken is not None and after.best.point is memory.began_at.point:
                return after.as_step(report, ending=report.ending)
        elif spent >= memory.allowance and broken is None:
            after.allowance *= 2.0
        else:
            return after.as_step(report)
        return self._turned_to_fast(oracle, after).as_step(report, Event(EventKind.TURN, FAST))

    def _turned_to_fast(self, oracle: Oracle, memory: SafeguardedMemory) -> SafeguardedMemory:
        best, fast = memory.best, memory.fast
        accepted = fast.report.accepted
        if fast.report.ending or accepted is None or accepted.point is not best.point:
            oracle.recall(best)
            memory.best = best = oracle.gradient(best.point)
            memory.fast = self.fast.moved_to(oracle, fast.memory, best, memory.tol, memory.seed)
        memory.guarding = False
        return _new_round(oracle, memory)


def _no_way(best: Sample, broken: Ending) -> Ending:
    """H has broken down, and a whole turn of G has found nothing lower."""
    return Ending(
        Status.NO_PROGRESS,
        f"neither method makes progress: {broken.message}; and whole epochs of the guaranteed one "
        f"bring no decrease at gradient norm {best.grad_norm:.3g}: rounding is reached, or jac is "
        "not the gradient of fun",
        {"grad_norm": best.grad_norm},
    )


def _new_round(oracle: Oracle, memory: SafeguardedMemory) -> SafeguardedMemory:
    memory.began, memory.began_at = _evaluations(oracle), memory.best
    return memory


def _evaluations(oracle: Oracle) -> int:
    return oracle.nfev + oracle.njev


def _restarted(report: Report) -> bool:
    return any(event.kind is EventKind.RESTART for event in report.events)


def _has_accepted(report: Report, origin: Sample) -> bool:
    """Has a method accepted a point by its value since it was at the origin?"""
    return report.accepted is not None and report.accepted.point is not origin.point


def _standing(oracle: Oracle, report: Report, origin: Sample) -> Sample:
    """Where a method stands: the last point that it accepted, otherwise the last it evaluated."""
    stand = report.accepted if _has_accepted(report, origin) else report.sample
    assert stand is not None
    oracle.learn_value(stand)
    return stand


def _noise(oracle: Oracle, memory: SafeguardedMemory) -> float:
    return max(oracle.space.value_noise(memory.best.value), memory.noise)


def _lower(noise: float, best: Sample, other: Sample) -> Sample:
    """The lower of the two; where noise may be all the difference, the one with less gradient."""
    change = other.value - best.value
    if abs(change) <= noise and other.finite:
        return other if other.grad_norm < best.grad_norm else best
    return other if change < 0.0 else best
