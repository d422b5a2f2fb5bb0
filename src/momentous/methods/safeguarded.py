"""A fast method under the guard of one with a guarantee: the speed of the first, the bound of the
second."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from momentous.core.acceptance import within_limit
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import copied, record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step, has_restarted
from momentous.core.stopping import LEVEL
from momentous.methods.checks import check_whole
from momentous.methods.classical.lbfgs import LBFGS
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall

# Chosen on one half of the problems of testbed.suite; docs/scoreboard.md reports on the other half.
DEFAULT_FAST = LBFGS()
# With the mean in every iteration, as its theorem has it.
DEFAULT_GUARANTEED = UniversalHeavyBall(average_growth=1.0)

# The fast method may spend so many times what the guard has spent.
SHARE = 16.0

# A round of the fast method has no more steps than this: a step may evaluate nothing, and two
# rounds in a row must not look like a run that rests at its noise.
MOST_STEPS = LEVEL // 4

# Turns of the two methods, as the value of an event.
FAST, GUARANTEED = 0.0, 1.0


@record
class Turn:
    """Whose turn it is, and what a round must earn: what changes only where one of them ends."""

    fast_from: Sample  # where the fast method was last started
    guaranteed_from: Sample  # where the guaranteed one was
    tol: float | None
    seed: int
    slack: float  # what f may be above the best point where a run ends, relative to f
    allowance: float  # K, the evaluations that a round may take
    began: int  # evaluations when the round or the turn began
    began_at: Sample  # the best point then
    mark: float  # the smallest gradient norm when that last earned a round
    price: float = 0.0  # decrease per evaluation that a round must bring; 0: any
    pace: float = 0.0  # the most that a round has brought since the guaranteed one was last started
    guaranteed_spent: int = 0  # evaluations of the guaranteed method before this turn
    guaranteed_began: int = 0  # what it had spent when it was last started
    owed: float = 0.0  # evaluations when it has had its share: its turn is not over before
    until: float = 0.0  # evaluations when its turn is over, even in the middle of an epoch
    midway: bool = False  # has its last turn ended in the middle of an epoch?
    lost: bool = False  # has the fast method lost this turn, by a round that earned nothing?
    patience: int = 1  # epochs that its next turn has if the fast method has broken down
    left: int = 0  # epochs left in its turn
    guarding: bool = False  # is it the guaranteed method's turn?
    given_up: Ending | None = None  # why its last turn ended, if it could not go on


@record
class SafeguardedMemory:
    """The last steps of both methods, and what they have found: what every step changes.

    The rest is kept apart, in a turn that steps share, so that a step has little to copy.
    """

    fast: Step
    guaranteed: Step | None  # None until its first turn
    best: Sample  # the lowest accepted point; of points within the noise, that with least gradient
    lowest: float  # the lowest value that the best point has had: it stays within the noise of it
    smallest: float  # the smallest gradient norm at an accepted point of the fast method
    ahead: bool  # is the best point one of the guaranteed method's own?
    steps: int  # of the fast method in this round
    turn: Turn

    @property
    def noise(self) -> float:
        """What the guaranteed method has measured; what the fast one says is not relied on."""
        return 0.0 if self.guaranteed is None else self.guaranteed.report.noise

    def as_step(
        self, report: Report, *events: Event, ending: Ending | None = None
    ) -> Step[SafeguardedMemory]:
        """The step of one of the two that led here, as a step of our own."""
        events, sample, eta = (*report.events, *events), report.sample, report.step_size
        limit = self.limit_for(report)
        return Step(self, Report(sample, eta, events, ending, self.best, self.noise, limit))

    def limit_for(self, report: Report) -> RiseLimit | None:
        """For an end at the report's sample: not above the lowest point.  The guaranteed method's
        own limit will do where that point is its own."""
        best, guaranteed = self.best, self.guaranteed
        trusted = guaranteed is not None and report is guaranteed.report
        accepted = report.accepted if trusted else None
        if (accepted or report.sample).point is best.point:
            return report.limit if trusted else None
        return RiseLimit(best, self.noise, self.turn.slack, convex=True)


@dataclasses.dataclass(frozen=True)
class Safeguarded(Method[SafeguardedMemory]):
    """A fast method (H) that must keep earning its turn, guarded by one with a guarantee (G).

    H runs in rounds of K evaluations (values and gradients).  A round that earns its cost is
    followed by another, and H goes on undisturbed.  After one that does not, G has a turn: to the
    end of its epoch, or K evaluations of it.  Then H goes on where it was or, if G has found a
    lower point, there, with what it has learned.  A round of H earns its cost if, beginning with
    the lowest point of both,

    - it lowers f by at least ``price`` per evaluation: that is what the last epoch of G has
      brought, if that was more than any round of H since that epoch began; if H has kept up, or G
      has brought nothing yet, any decrease will do; or
    - it halves the smallest gradient norm since that was last the reason, and the lowest point is
      H's own.

    Whatever H earns, G has a turn as soon as H has spent 16 times what G has, and 16 K, until it
    has a 16th of it again; then H goes on where it was.  An epoch that is not at its end by then is
    carried over to G's next turn.  Every epoch begins at the lowest point of both.

    K = 2 (|grad f(x0)|/eps)^(1/4), at least ``shortest_round``; eps is the tolerance, or sqrt(u)
    |grad f(x0)| if that is larger, u the unit roundoff.  A round also ends after 125 steps, as they
    may evaluate nothing, and at once when H cannot go on (a line search that fails, nothing
    finite); G's turn then begins at the lowest point, is not cut short, and has twice as many
    epochs each time until a round of H earns something.

    H and G propose, and what they find is judged at the lowest point.  That H calls the run ended,
    whatever the reason, ends its round; the run ends only where the gradient is within the
    tolerance and f is not above the lowest point, or where G ends it.  A point where value or
    gradient is not finite is never the lowest, and what H says of noise is not relied on.

    What it guarantees.  Let D = f(x0) - inf f, and let every epoch of G that starts above eps end
    after at most K* evaluations, either lower by delta or with a gradient of at most eps: G alone
    needs N = (D/delta + 1) K* evaluations by this account.  Then, whatever H does, a gradient of
    eps is met within

        17 max(N, K) + K + c

    evaluations, c those of one step, by which a round may overshoot.  The run ends there, unless it
    knows a lower point: then it goes on from that one.  Proof.  An epoch of G begins at the lowest
    point of both and is completed, in as many turns as it takes; so all but the last lower the
    lowest value by delta, and G spends no more than N.  H has never spent more than 16 times what
    G has, or 16 K, and one round.  (An epoch that is under way when H breaks down is given up for a
    lower point.  The turn that follows completes others, so this doubles N at the most; and each
    breakdown in a row may add a round, of which there are at most log2(D/delta + 1).)

    With delta of the order eps^(3/2) and K* of eps^(-1/4), as for the G here, that is O(eps^(-7/4))
    with 17 times G's constant, for every H; beside an H that earns its rounds G's part is a 17th.
    For the parameter-free G, epochs that end unsuccessfully add the logarithm of how wrong its
    estimate of L is, and its early ends cost what is said there.  Where G's theorem does not apply
    (rounding, functions without a Lipschitz gradient) no bound is claimed; but f at the lowest
    point is never above the lowest value that it has had by more than the noise of the values.

    The cost of an iteration is that of the method whose turn it is; neither knows of the other.
    The trace has an event ``turn`` when it passes (1: to G, 0: back to H).

    Parameters
    ----------
    fast : Method
        H: any method that can be started anywhere; by default `LBFGS`.
    guaranteed : Method
        G: a method whose epochs end, with restart events.  By default `UniversalHeavyBall` with
        ``average_growth=1``.
    shortest_round : int
        The least K.

    References
    ----------
    .. [1] N. Marumo, A. Takeda (2025), see :class:`UniversalHeavyBall`: the guarantee.
    .. [2] D. C. Liu, J. Nocedal (1989), see :class:`LBFGS`: the speed.
    """

    name = "safeguarded"
    ends_at_noise = True
    summary = "L-BFGS under the guard of the universal heavy ball; takes any two methods"
    guarantee = "O(eps^-7/4) values and gradients: 17 times the guard's bound, for any fast method"
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
        turn = Turn(
            fast_from=here,
            guaranteed_from=here,
            tol=tol,
            seed=seed,
            slack=math.sqrt(oracle.space.rounding),
            allowance=max(float(self.shortest_round), 2 * ratio**0.25),
            began=_evaluations(oracle),
            began_at=here,
            mark=norm,
        )
        memory = SafeguardedMemory(fast, None, here, here.value, norm, False, 0, turn)
        report = copied(fast.report)
        report.sample = here
        return memory.as_step(report)

    def with_new_tolerance(
        self, step: Step[SafeguardedMemory], tol: float | None
    ) -> Step[SafeguardedMemory]:
        after = copied(step.memory)
        after.fast, after.turn = self.fast.with_new_tolerance(after.fast, tol), copied(after.turn)
        if after.guaranteed is not None:
            after.guaranteed = self.guaranteed.with_new_tolerance(after.guaranteed, tol)
        after.turn.tol = tol
        return Step(after, step.report)

    def inverse_hessian(self, space: Space, memory: SafeguardedMemory) -> Callable[[], Any] | None:
        """That of the fast method, if the lowest point is not the guaranteed one's own."""
        if memory.ahead:
            return None
        return self.fast.inverse_hessian(space, memory.fast.memory)

    def _goal(self, oracle: Oracle, start_norm: float, tol: float | None) -> float:
        """eps: the tolerance, at least what rounding leaves of |grad f(x0)|."""
        wanted = self.default_tolerance if tol is None else tol
        return max(wanted, math.sqrt(oracle.space.rounding) * start_norm)

    def step(self, oracle: Oracle, memory: SafeguardedMemory) -> Step[SafeguardedMemory]:
        turn = memory.turn
        if turn.guarding:
            assert memory.guaranteed is not None
            return self._guard(oracle, memory, memory.guaranteed)
        inner = self.fast.step(oracle, memory.fast.memory)
        report, smallest, lowest = inner.report, memory.smallest, memory.lowest
        stand = _standing(oracle, report, turn.fast_from)
        best = _lower(oracle, memory, stand)
        if stand.grad_norm < smallest:
            smallest = stand.grad_norm
        if best.value < lowest:
            lowest = best.value
        ahead, steps = memory.ahead and best is memory.best, memory.steps + 1
        after = SafeguardedMemory(
            inner, memory.guaranteed, best, lowest, smallest, ahead, steps, turn
        )
        ended = report.ending
        spent = oracle.nfev + oracle.njev - turn.began
        if ended is None and spent < turn.allowance and steps < MOST_STEPS:
            if best is report.sample and best is report.accepted and memory.guaranteed is None:
                return Step(after, report)  # there is nothing to add: as most steps are
            return after.as_step(report)
        if ended is not None and self._is_success(oracle, after, report, ended):
            return after.as_step(report, ending=ended)
        return self._end_round(oracle, after, report)

    def _is_success(
        self, oracle: Oracle, memory: SafeguardedMemory, report: Report, ended: Ending
    ) -> bool:
        """Is it, as the fast method says, the end of the run?  Its word alone is not enough."""
        wanted = self.default_tolerance if memory.turn.tol is None else memory.turn.tol
        norm = report.sample.grad_norm
        return (
            ended.success
            and norm <= wanted
            and within_limit(oracle, report.sample, memory.limit_for(report))
        )

    def _end_round(
        self, oracle: Oracle, after: SafeguardedMemory, report: Report
    ) -> Step[SafeguardedMemory]:
        """Has the round of H that this step ends earned its cost?  Another one, or G's turn."""
        ended, before = report.ending, after.turn
        after.turn = turn = copied(before)
        total, guaranteed_spent = _evaluations(oracle), before.guaranteed_spent
        spent, gain = total - before.began, before.began_at.value - after.best.value
        earned = gain > _noise(oracle, after) and gain >= before.price * spent
        pace = gain / max(spent, 1)
        turn.pace = max(pace, before.pace)
        if after.smallest < before.mark / 2 and not after.ahead:  # 0 is earned once: not <=
            turn.mark, earned = after.smallest, True
        earned = earned and ended is None
        if earned:
            turn.given_up, turn.patience = None, 1
        elif before.given_up is not None and after.best.point is before.began_at.point:
            return after.as_step(report, ending=before.given_up)
        due = (total - guaranteed_spent) / SHARE
        if earned and due < max(guaranteed_spent, before.allowance):
            _begin_round(oracle, after)
            return after.as_step(report)
        turn.left, turn.owed, turn.lost = 1, total + due - guaranteed_spent, not earned
        turn.until = turn.owed if earned else max(turn.owed, total + before.allowance)
        if ended is not None:
            turn.left, turn.patience, turn.until = before.patience, 2 * before.patience, math.inf
        # G's turn: on with the epoch under way, or from the lowest point.
        if after.guaranteed is None or self._leaves(oracle, after, after.guaranteed):
            self._start_guaranteed(oracle, after)
            turn.guaranteed_began, turn.pace = guaranteed_spent, pace
        turn.guarding = True
        _begin_round(oracle, after)
        turn.began = total  # what the start has cost is G's
        return after.as_step(report, Event(EventKind.TURN, GUARANTEED))

    def _start_guaranteed(self, oracle: Oracle, memory: SafeguardedMemory) -> None:
        """G from the lowest point."""
        oracle.recall(memory.best)
        best, turn = oracle.gradient(memory.best.point), memory.turn
        method, before, goal = self.guaranteed, memory.guaranteed, (turn.tol, turn.seed)
        memory.guaranteed = (
            method.start(oracle, best.point, *goal)
            if before is None
            else method.moved_to(oracle, before.memory, best, *goal)
        )
        memory.best = turn.guaranteed_from = best

    def _leaves(self, oracle: Oracle, memory: SafeguardedMemory, guaranteed: Step) -> bool:
        """Does G move to the lowest point, rather than go on with the epoch under way?"""
        if not memory.turn.midway:
            return True
        if memory.fast.report.ending is None:
            return False
        origin = memory.turn.guaranteed_from
        lowest = min(origin.value, _standing(oracle, guaranteed.report, origin).value)
        return lowest > memory.best.value

    def _guard(
        self, oracle: Oracle, memory: SafeguardedMemory, guaranteed: Step
    ) -> Step[SafeguardedMemory]:
        """A step of G."""
        inner, before = self.guaranteed.step(oracle, guaranteed.memory), memory.turn
        report, origin = inner.report, before.guaranteed_from
        after = copied(memory)
        after.guaranteed = inner
        stand = _standing(oracle, report, origin)
        after.best = _lower(oracle, after, stand)
        after.lowest = min(memory.lowest, after.best.value)
        after.ahead = memory.ahead or after.best is not memory.best
        ended, total = report.ending, _evaluations(oracle)
        completed = ended is not None and ended.status.is_output
        if completed and within_limit(oracle, report.sample, after.limit_for(report)):
            return after.as_step(report, ending=ended)
        # G has come to its end above the lowest point, or to that of an epoch.  Where nothing was
        # accepted, the step after an epoch shows where that has led.
        over = completed or (has_restarted(report) and _has_accepted(report, origin))
        over |= has_restarted(guaranteed.report) and not _has_accepted(guaranteed.report, origin)
        if not over and ended is None and total < before.until:
            return after.as_step(report)
        after.turn = turn = copied(before)
        guaranteed_spent = before.guaranteed_spent + total - before.began
        broken = memory.fast.report.ending  # why H cannot go on from where it is
        if over:
            fallen, spent = origin.value - stand.value, guaranteed_spent - before.guaranteed_began
            if fallen > 0.0:  # an epoch that has brought nothing is not the measure
                rate = fallen / max(spent, 1)
                turn.price = rate if rate > before.pace else 0.0
            turn.left -= 1
            if turn.left > 0 and not completed:
                return after.as_step(report)
            if total < before.owed and broken is None:
                if completed or after.best.point is not stand.point:
                    self._start_guaranteed(oracle, after)
                    turn.guaranteed_began, turn.pace = guaranteed_spent, 0.0
                return after.as_step(report)
            if broken is not None and after.best.point is before.began_at.point:
                return after.as_step(report, ending=_no_way(after.best, broken))
        elif ended is not None:
            turn.given_up = ended
            if broken is not None and after.best.point is before.began_at.point:
                return after.as_step(report, ending=ended)
        turn.midway = not over and ended is None
        self._turn_to_fast(oracle, after)
        return after.as_step(report, Event(EventKind.TURN, FAST))

    def _turn_to_fast(self, oracle: Oracle, memory: SafeguardedMemory) -> None:
        """Where H was; if it has lost the turn and G has found a lower point, or if H cannot go on,
        at the lowest."""
        best, fast, turn = memory.best, memory.fast, memory.turn
        turn.guaranteed_spent += _evaluations(oracle) - turn.began
        if fast.report.ending is not None or (turn.lost and memory.ahead):
            oracle.recall(best)
            memory.ahead = False
            memory.best = turn.fast_from = best = oracle.gradient(best.point)
            memory.fast = self.fast.moved_to(oracle, fast.memory, best, turn.tol, turn.seed)
        turn.guarding = False
        _begin_round(oracle, memory)


def _no_way(best: Sample, broken: Ending) -> Ending:
    """H has broken down, and a whole turn of G has found nothing lower."""
    return Ending(
        Status.NO_PROGRESS,
        f"neither method makes progress: {broken.message}; and whole epochs of the guaranteed one "
        f"bring no decrease at gradient norm {best.grad_norm:.3g}: rounding is reached, or jac is "
        "not the gradient of fun",
        {"grad_norm": best.grad_norm},
    )


def _begin_round(oracle: Oracle, memory: SafeguardedMemory) -> None:
    memory.steps = 0
    memory.turn.began, memory.turn.began_at = _evaluations(oracle), memory.best


def _evaluations(oracle: Oracle) -> int:
    return oracle.nfev + oracle.njev


def _has_accepted(report: Report, origin: Sample) -> bool:
    """Has a method that began at the origin accepted another point by its value?"""
    return report.accepted is not None and report.accepted.point is not origin.point


def _standing(oracle: Oracle, report: Report, origin: Sample) -> Sample:
    """Where a method that began at the origin stands: at the last point that it accepted by its
    value; if it has accepted none, at the last that it evaluated."""
    stand = report.accepted
    if stand is None or stand.point is origin.point:
        stand = report.sample
    if stand.value != stand.value:  # NaN: unknown
        oracle.learn_value(stand)
    return stand


def _noise(oracle: Oracle, memory: SafeguardedMemory) -> float:
    return max(oracle.space.value_noise(memory.best.value), memory.noise)


def _lower(oracle: Oracle, memory: SafeguardedMemory, other: Sample) -> Sample:
    """The best point or another one, whichever is lower; where noise may be all the difference, the
    one with less gradient.  Value and gradient of the best point are finite."""
    best = memory.best
    change = other.value - best.value
    if change < 0.0 and not other.evaluated:  # accepted by its value alone
        oracle.recall(other)
        other = oracle.gradient(other.point)
    if not (other.has_finite_gradient and math.isfinite(other.value)):
        return best
    if other.grad_norm < best.grad_norm:
        # Level with the lowest value: with that of the best point, rises by the noise would add up.
        takes = change < 0.0 or other.value - memory.lowest <= _noise(oracle, memory)
    else:
        takes = change < 0.0 and change < -_noise(oracle, memory)
    return other if takes else best
