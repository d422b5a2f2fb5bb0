"""A fast method under the guard of one with a guarantee: the speed of the first, the bound of the
second."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from momentous.core.acceptance import rises
from momentous.core.machine import Machine, Records
from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.rule import (
    GRADIENT,
    RUNNING,
    VALUE,
    Ask,
    Goal,
    Outcome,
    Rule,
    Sums,
    Vectors,
)
from momentous.core.space import Space
from momentous.core.status import OUTPUTS, SUCCESSES, Ending, EventKind, Status
from momentous.core.step import RiseLimit
from momentous.core.stopping import LEVEL
from momentous.methods.checks import check_whole
from momentous.methods.classical.lbfgs import LBFGS
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall
from momentous.methods.replayed import Played, Replayed

# Chosen on one half of the problems of testbed.suite; docs/scoreboard.md reports on the other half.
DEFAULT_FAST = LBFGS()
# With the mean in every iteration, as its theorem has it.
DEFAULT_GUARANTEED = UniversalHeavyBall(average_growth=1.0)

# The fast method may spend so many times what the guard has spent.
SHARE = 16.0

# A round of the fast method has no more steps than this: a step may evaluate nothing, and two
# rounds in a row must not look like a run that rests at its noise.
MOST_STEPS = LEVEL // 4

# Turns of the two methods, as the value of an event; and whose word the end of a run is.
FAST, GUARANTEED, NEITHER = 0, 1, 2

# What an evaluation is for.
RUN = 0  # the method whose turn it is ...
START = 1  # ... before its first iteration at another point
VALUE_THERE = 2  # the value where that method stands, which it has not asked for ...
GRADIENT_THERE = 3  # ... and the gradient


@record
class Part:
    """One of the two methods."""

    memory: Any
    shown: Sample  # the point that its last iteration has reported
    origin: Sample  # where it was last started


@record
class Turn:
    """Whose turn it is, and what a round must earn: what changes only where one of them ends."""

    allowance: float  # K, the evaluations that a round may take
    began: int  # evaluations when the round or the turn began
    began_value: float  # f at the best point then
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
    begun: bool = False  # has it ever been started?
    given_up: int = RUNNING  # why its last turn ended, if it could not go on


@record
class SafeguardedMemory:
    """Both methods, and what they have found: what every step changes.

    The rest is kept apart, in a turn that steps share, so that a step has little to copy.
    """

    fast: Part
    guaranteed: Part
    outcome: Outcome
    best: Sample  # the lowest accepted point; of points within the noise, that with least gradient
    lowest: float  # the lowest value that the best point has had: it stays within the noise of it
    smallest: float  # the smallest gradient norm at an accepted point of the fast method
    turn: Turn
    stand: Sample  # where the method stands whose iteration has ended, while more is asked there
    tol: float | None
    seed: int
    ahead: bool = False  # is the best point one of the guaranteed method's own?
    lowered: bool = False  # has the best point changed in this round or turn?
    awaits: bool = False  # has an epoch of the guaranteed one ended, with no point accepted?
    by_guard: bool = False  # is the last evaluation one of an iteration of the guaranteed method?
    steps: int = 0  # of the fast method in this round
    phase: int = RUN
    told: int = FAST  # which of the two has had the last evaluation
    starts: int = NEITHER  # which is to be started at the lowest point
    word: int = NEITHER  # whose the end is


@dataclasses.dataclass(frozen=True)
class Safeguarded(Rule[SafeguardedMemory]):
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
    work = None

    fast: Method = DEFAULT_FAST
    guaranteed: Method = DEFAULT_GUARANTEED
    shortest_round: int = 40

    def __post_init__(self) -> None:
        super().__post_init__()
        for role, method in (("fast", self.fast), ("guaranteed", self.guaranteed)):
            if not isinstance(method, Method):
                raise TypeError(f"Safeguarded: {role}={method!r} must be a Method, such as LBFGS()")
        check_whole(self, "shortest_round")

    @cached_property
    def _rules(self) -> tuple[Rule[Any], Rule[Any]]:
        both = self.fast, self.guaranteed
        fast, guaranteed = (each if isinstance(each, Rule) else Replayed(each) for each in both)
        return fast, guaranteed

    def begin(self, m: Machine, here: Sample, goal: Goal) -> SafeguardedMemory:
        fast, guaranteed = (Part(rule.begin(m, here, goal), here, here) for rule in self._rules)
        tol, norm = self._wanted(goal.tol), here.grad_norm
        eps = m.maximum(tol, math.sqrt(m.rounding) * norm)
        ratio = m.where(eps > 0.0, norm / m.where(eps > 0.0, eps, 1.0), 1.0)
        K = m.maximum(float(self.shortest_round), 2 * ratio**0.25)
        begun = fast.memory.outcome
        step_size = m.where(begun.ended, begun.step_size, math.nan)
        # Are value and gradient always known where they stand?
        whole = m.fused and not any(
            isinstance(rule, Replayed) or rule.accepted(part.memory).gradient is None
            for rule, part in zip(self._rules, (fast, guaranteed), strict=True)
        )
        return SafeguardedMemory(
            fast, guaranteed, Outcome(step_size, m.no_events, shows=False, ended=begun.ended),
            here, here.value, norm, Turn(K, m.spent, here.value, norm),
            NO_SAMPLE if whole else here, goal.tol, goal.seed,
            phase=m.where(begun.ended, RUN, START),
        )  # fmt: skip

    def _wanted(self, tol: float | None) -> Any:
        return self.default_tolerance if tol is None else tol

    def with_tolerance(self, m: Records, memory: SafeguardedMemory, tol: Any) -> SafeguardedMemory:
        fast, guaranteed = (
            m.but(part, memory=rule.with_tolerance(m, part.memory, tol))
            for rule, part in zip(self._rules, (memory.fast, memory.guaranteed), strict=True)
        )
        return m.but(memory, fast=fast, guaranteed=guaranteed, tol=tol)

    def inverse_hessian(self, space: Space, memory: SafeguardedMemory) -> Callable[[], Any] | None:
        """That of the fast method, if the lowest point is not the guaranteed one's own."""
        if memory.ahead or isinstance(self._rules[FAST], Replayed):
            return None
        return self.fast.inverse_hessian(space, memory.fast.memory)

    def ask(self, m: Machine, memory: SafeguardedMemory) -> Ask:
        repeats = []

        def of(which: int) -> Ask:
            rule, part = self._rules[which], memory.guaranteed if which else memory.fast
            ask = rule.ask(m, part.memory)
            if ask.known.point is not ask.point and ask.point is part.origin.point:
                ask = ask._replace(known=part.origin)
            if ask.again is not False:
                ask = ask._replace(again=ask.again & (memory.told == which))
                repeats.append(which)
            return m.passed_on(ask, rule)  # type: ignore[no-any-return]

        stand, guarding = memory.stand, memory.turn.guarding
        branches = [(guarding, lambda: of(GUARANTEED))]
        if stand.point is not None:
            there = memory.phase >= VALUE_THERE
            need = m.where(memory.phase == VALUE_THERE, VALUE, GRADIENT)
            seen = Ask(stand.point, need, known=stand)
            branches.insert(0, (there, lambda: m.passed_on(seen, self)))
        ask = m.case(Ask(memory.best.point, GRADIENT), *branches, otherwise=lambda: of(FAST))
        return ask if repeats else ask._replace(again=False)

    def tell(
        self, m: Machine, memory: SafeguardedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> SafeguardedMemory:
        def told(which: int) -> SafeguardedMemory:
            return self._told(m, memory, which, here, made, sums)

        branches = [(memory.turn.guarding, lambda: told(GUARANTEED))]
        if memory.stand.point is not None:
            there = memory.phase >= VALUE_THERE
            branches.insert(0, (there, lambda: self._stands(m, memory, here)))
        after = m.case(memory, *branches, otherwise=lambda: told(FAST))
        return m.case(
            after,
            (after.starts == FAST, lambda: self._start(m, after, FAST)),
            (after.starts == GUARANTEED, lambda: self._start(m, after, GUARANTEED)),
        )

    def write(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        changes = {}
        for name, rule in zip(("fast", "guaranteed"), self._rules, strict=True):
            part = getattr(memory, name)
            written = rule.write(m, part.memory)
            if written is not part.memory:
                changes[name] = Part(written, part.shown, part.origin)
        return m.but(memory, **changes) if changes else memory

    def shown(self, memory: SafeguardedMemory, here: Sample) -> Sample:
        part = memory.guaranteed if memory.by_guard else memory.fast
        return part.shown if isinstance(part.memory, Played) else here

    def accepted(self, memory: SafeguardedMemory) -> Sample:
        return memory.best

    def noise(self, memory: SafeguardedMemory) -> Any:
        """What the guaranteed method has measured; what the fast one says is not relied on."""
        return self._rules[GUARANTEED].noise(memory.guaranteed.memory)

    def _noise(self, m: Machine, memory: SafeguardedMemory) -> Any:
        return m.maximum(m.value_noise(memory.best.value), self.noise(memory))

    def rise_limit(self, m: Machine, memory: SafeguardedMemory, shown: Sample) -> RiseLimit:
        """Not above the lowest point.  The guaranteed method's own limit will do where that point
        is its own."""
        best, part, rule = memory.best, memory.guaranteed, self._rules[GUARANTEED]
        stand = m.choose(memory.by_guard, rule.accepted(part.memory).point, shown.point)
        general = RiseLimit(best, self.noise(memory), math.sqrt(m.rounding), convex=True)

        def own() -> RiseLimit:
            limit = rule.rise_limit(m, part.memory, shown)
            return RiseLimit(best, math.inf) if limit is None else limit

        at_best = m.same(stand, best.point)
        return m.case(
            general,
            (at_best & m.no(memory.by_guard), lambda: RiseLimit(best, math.inf)),
            (at_best, own),
        )

    def _told(
        self, m: Machine, memory: SafeguardedMemory, which: int, here: Sample, made: Vectors,
        sums: Sums,
    ) -> SafeguardedMemory:  # fmt: skip
        """After an evaluation of one of the two."""
        rule, part = self._rules[which], memory.guaranteed if which else memory.fast
        made, sums = m.worked(rule, part.memory, here, made, sums)
        inner = rule.tell(m, part.memory, here, made, sums)
        outcome, shown, before = inner.outcome, part.shown, memory.outcome
        if here.point is shown.point and shown.value != shown.value:
            shown = here
        starts = memory.phase == START
        shown = m.choose(outcome.shows & m.no(starts), rule.shown(inner, here), shown)
        after = self._with(m, memory, which, Part(inner, shown, part.origin))
        going = m.case(
            Outcome(outcome.step_size, outcome.events, outcome.shows, ended=False),
            (starts, lambda: Outcome(before.step_size, before.events, False, False)),
        )
        after.outcome = going
        after.by_guard = m.where(starts, memory.by_guard, which == GUARANTEED)
        after.told = which
        return m.case(
            after,
            (outcome.ended & m.no(starts), lambda: self._iterated(m, after, which)),
            (outcome.ended, lambda: self._started(m, after, which)),
        )

    def _with(
        self, m: Machine, memory: SafeguardedMemory, which: int, part: Part, **changes: Any
    ) -> SafeguardedMemory:
        changes["guaranteed" if which else "fast"] = part
        return m.but(memory, **changes)

    # Where a method stands: at the last point that it accepted by its value; if it has accepted
    # none, at the last that it evaluated.

    def _iterated(self, m: Machine, memory: SafeguardedMemory, which: int) -> SafeguardedMemory:
        rule, part = self._rules[which], memory.guaranteed if which else memory.fast
        accepted, shown = rule.accepted(part.memory), part.shown
        own = m.same(accepted.point, part.origin.point)
        known = own | (accepted.gradient is not None)
        stand = m.choose(own, shown, accepted)
        if memory.stand.point is None:
            return self._judged(m, memory, which, stand)
        ask = m.but(memory, stand=stand, phase=VALUE_THERE)
        return m.case(
            memory,
            (stand.value != stand.value, lambda: ask),
            otherwise=lambda: self._weighed(m, memory, which, stand, known),
        )

    def _stands(self, m: Machine, memory: SafeguardedMemory, here: Sample) -> SafeguardedMemory:
        """The value, or the gradient, where a method stands is known."""
        known = (memory.phase == GRADIENT_THERE) | (here.gradient is not None)
        if here.gradient is None:
            stand = memory.stand
            here = Sample(here.point, here.value, stand.gradient, stand.grad_norm, stand.image)
            known = stand.evaluated

        def go(which: int) -> SafeguardedMemory:
            before = m.but(memory, stand=here, phase=RUN, told=NEITHER)
            return self._weighed(m, before, which, here, known)

        return m.case(
            memory, (memory.turn.guarding, lambda: go(GUARANTEED)), otherwise=lambda: go(FAST)
        )

    def _weighed(
        self, m: Machine, memory: SafeguardedMemory, which: int, stand: Sample, known: Any
    ) -> SafeguardedMemory:
        """The gradient is asked for where the point is lower."""
        ask = (stand.value < memory.best.value) & m.no(known)
        return m.case(
            memory,
            (ask, lambda: m.but(memory, stand=stand, phase=GRADIENT_THERE)),
            otherwise=lambda: self._judged(m, memory, which, stand),
        )

    def _judged(
        self, m: Machine, memory: SafeguardedMemory, which: int, stand: Sample
    ) -> SafeguardedMemory:
        """The best point or where the method stands, whichever is lower; where noise may be all the
        difference, the one with less gradient.  Value and gradient of the best are finite."""
        best, noise = memory.best, self._noise(m, memory)
        change = stand.value - best.value
        # Level with the lowest value: with that of the best point, rises by the noise would add up.
        level = stand.value - memory.lowest <= noise
        less = stand.grad_norm < best.grad_norm
        takes = m.where(less, (change < 0.0) | level, change < -noise)
        takes = takes & m.isfinite(stand.grad_norm) & m.isfinite(stand.value)
        best = m.choose(takes, stand, best)
        judge = self._after_guaranteed if which else self._after_fast
        outcome = memory.outcome
        inner = (memory.guaranteed if which else memory.fast).memory.outcome
        after = m.but(
            memory,
            outcome=Outcome(inner.step_size, inner.events, outcome.shows),
            best=best,
            lowest=m.where(best.value < memory.lowest, best.value, memory.lowest),
            ahead=(memory.ahead | takes) if which else memory.ahead & m.no(takes),
            lowered=memory.lowered | takes,
        )
        return judge(m, after, stand)

    # The fast method.

    def _after_fast(
        self, m: Machine, memory: SafeguardedMemory, stand: Sample
    ) -> SafeguardedMemory:
        less = stand.grad_norm < memory.smallest
        memory.smallest = m.where(less, stand.grad_norm, memory.smallest)
        memory.steps = steps = memory.steps + 1
        turn, status = memory.turn, memory.fast.memory.outcome.status
        ended = status != RUNNING
        spent = m.spent - turn.began
        goes_on = m.no(ended) & (spent < turn.allowance) & (steps < MOST_STEPS)
        return m.case(
            memory, (goes_on, lambda: memory), otherwise=lambda: self._end_round(m, memory, ended)
        )

    def _end_round(self, m: Machine, memory: SafeguardedMemory, ended: Any) -> SafeguardedMemory:
        """Has the round of H that this step ends earned its cost?  Another one, or G's turn."""
        before, status = memory.turn, memory.fast.memory.outcome.status
        # Is it, as the fast method says, the end of the run?  Its word alone is not enough.
        shown = memory.fast.shown
        success = _is_one_of(status, SUCCESSES) & (shown.grad_norm <= self._wanted(memory.tol))
        success = success & m.no(rises(m, shown, self.rise_limit(m, memory, shown)))
        total, guaranteed_spent = m.spent, before.guaranteed_spent
        spent, gain = total - before.began, before.began_value - memory.best.value
        earned = (gain > self._noise(m, memory)) & (gain >= before.price * spent)
        pace = gain / m.maximum(spent, 1)
        # A gradient of 0 is earned once: not <=.
        halved = (memory.smallest < before.mark / 2) & m.no(memory.ahead)
        earned = (earned | halved) & m.no(ended)
        turn = m.but(
            before,
            pace=m.maximum(pace, before.pace),
            mark=m.where(halved, memory.smallest, before.mark),
            given_up=m.where(earned, RUNNING, before.given_up),
            patience=m.where(earned, 1, before.patience),
        )
        due = (total - guaranteed_spent) / SHARE
        again = earned & (due < m.maximum(guaranteed_spent, before.allowance))
        stuck = m.no(earned) & (before.given_up != RUNNING) & m.no(memory.lowered)

        def guard() -> SafeguardedMemory:
            """G's turn: on with the epoch under way, or from the lowest point."""
            leaves = m.no(before.begun) | self._leaves(m, memory, ended)
            owed = total + due - guaranteed_spent
            until = m.where(earned, owed, m.maximum(owed, total + before.allowance))
            outcome = memory.outcome
            events = outcome.events + m.event(EventKind.TURN, GUARANTEED)
            after = m.but(
                memory,
                outcome=Outcome(outcome.step_size, events, outcome.shows),
                turn=m.but(
                    turn,
                    left=m.where(ended, before.patience, 1),
                    patience=m.where(ended, 2 * before.patience, turn.patience),
                    owed=owed,
                    until=m.where(ended, math.inf, until),
                    lost=m.no(earned),
                    guaranteed_began=m.where(leaves, guaranteed_spent, before.guaranteed_began),
                    pace=m.where(leaves, pace, turn.pace),
                    guarding=True,
                ),
            )
            after = self._new_round(m, after, total)  # what the start costs is G's
            after.starts = m.where(leaves, GUARANTEED, NEITHER)
            return after

        return m.case(
            memory,
            (success, lambda: self._end(m, memory, status, FAST)),
            (stuck, lambda: self._end(m, memory, before.given_up, GUARANTEED)),
            (again, lambda: self._new_round(m, m.but(memory, turn=turn), total)),
            otherwise=guard,
        )

    def _leaves(self, m: Machine, memory: SafeguardedMemory, ended: Any) -> Any:
        """Does G move to the lowest point, rather than go on with the epoch under way?"""
        part, rule = memory.guaranteed, self._rules[GUARANTEED]
        accepted, origin = rule.accepted(part.memory), part.origin
        own = m.same(accepted.point, origin.point)
        value = m.where(own, part.shown.value, accepted.value)
        lowest = m.where(value < origin.value, value, origin.value)
        return m.no(memory.turn.midway) | (ended & (lowest > memory.best.value))

    def _end(
        self, m: Machine, memory: SafeguardedMemory, status: Any, word: int
    ) -> SafeguardedMemory:
        outcome = memory.outcome
        outcome = Outcome(outcome.step_size, outcome.events, outcome.shows, status=status)
        return m.but(memory, outcome=outcome, word=word)

    def _new_round(self, m: Machine, memory: SafeguardedMemory, began: Any) -> SafeguardedMemory:
        turn = m.but(memory.turn, began=began, began_value=memory.best.value)
        return m.but(memory, turn=turn, steps=0, lowered=False)

    def _start(self, m: Machine, memory: SafeguardedMemory, which: int) -> SafeguardedMemory:
        """One of the two from the lowest point, with what it has learned."""
        rule, part = self._rules[which], memory.guaranteed if which else memory.fast
        best, goal = memory.best, Goal(memory.tol, memory.seed)
        known = memory.turn.begun if which else True
        inner = m.case(
            part.memory,
            (known, lambda: rule.move(m, part.memory, best, goal)),
            otherwise=lambda: rule.begin(m, best, goal),
        )
        turn = m.but(memory.turn, begun=True) if which else memory.turn
        begun, outcome = inner.outcome.ended, memory.outcome
        outcome = Outcome(outcome.step_size, outcome.events, outcome.shows, ended=begun)
        phase = m.where(begun, RUN, START)
        after = self._with(
            m, memory, which, Part(inner, best, best), outcome=outcome, turn=turn, phase=phase,
            told=NEITHER, starts=NEITHER,
        )  # fmt: skip
        if which:
            after.awaits = False
        return after

    def _started(self, m: Machine, memory: SafeguardedMemory, which: int) -> SafeguardedMemory:
        """The iteration in which a method was started again is over."""
        step_size, part = memory.outcome.step_size, memory.guaranteed if which else memory.fast
        step_size = m.where(step_size == step_size, step_size, part.memory.outcome.step_size)
        outcome = Outcome(step_size, memory.outcome.events, shows=False)
        after = m.but(memory, outcome=outcome, phase=RUN)
        return after if which else self._new_round(m, after, m.spent)

    # The guaranteed one.

    def _after_guaranteed(
        self, m: Machine, memory: SafeguardedMemory, stand: Sample
    ) -> SafeguardedMemory:
        turn, part, rule = memory.turn, memory.guaranteed, self._rules[GUARANTEED]
        outcome = part.memory.outcome
        ended = outcome.status != RUNNING
        completed = _is_one_of(outcome.status, OUTPUTS)
        # An epoch is over; where nothing was accepted, the step after it shows where it has led.
        restarted = m.restarted(outcome.events)
        accepts = m.no(m.same(rule.accepted(part.memory).point, part.origin.point))
        over = completed | (restarted & accepts) | memory.awaits
        memory.awaits = restarted & m.no(accepts)
        goes_on = m.no(over) & m.no(ended) & (m.spent < turn.until)

        def judge() -> SafeguardedMemory:
            limit = self.rise_limit(m, memory, part.shown)
            ends = completed & m.no(rises(m, part.shown, limit))
            return m.case(
                memory,
                (ends, lambda: self._end(m, memory, outcome.status, GUARANTEED)),
                otherwise=lambda: self._end_turn(m, memory, stand, over, completed, ended),
            )

        return m.case(memory, (goes_on, lambda: memory), otherwise=judge)

    def _end_turn(
        self, m: Machine, memory: SafeguardedMemory, stand: Sample, over: Any, completed: Any,
        ended: Any,
    ) -> SafeguardedMemory:  # fmt: skip
        """An epoch of G has ended, or its turn; or it has ended above the lowest point."""
        before, total, origin = memory.turn, m.spent, memory.guaranteed.origin
        broken = memory.fast.memory.outcome.status != RUNNING  # H cannot go on from where it is
        guaranteed_spent = before.guaranteed_spent + total - before.began
        fallen, spent = origin.value - stand.value, guaranteed_spent - before.guaranteed_began
        rate = fallen / m.maximum(spent, 1)
        # An epoch that has brought nothing is not the measure.
        price = m.where(rate > before.pace, rate, 0.0)
        left = m.where(over, before.left - 1, before.left)
        gives_up = ended & m.no(over)
        turn = m.but(
            before,
            price=m.where(over & (fallen > 0.0), price, before.price),
            left=left,
            given_up=m.where(gives_up, memory.guaranteed.memory.outcome.status, before.given_up),
        )
        after = m.but(memory, turn=turn)
        more = over & (left > 0) & m.no(completed)
        owed = over & m.no(more) & (total < before.owed) & m.no(broken)
        stuck = broken & m.no(memory.lowered)

        def go_on() -> SafeguardedMemory:
            elsewhere = completed | m.no(m.same(memory.best.point, stand.point))
            clock = m.but(
                turn,
                guaranteed_began=m.where(elsewhere, guaranteed_spent, turn.guaranteed_began),
                pace=m.where(elsewhere, 0.0, turn.pace),
            )
            return m.but(after, turn=clock, starts=m.where(elsewhere, GUARANTEED, NEITHER))

        def pass_on() -> SafeguardedMemory:
            """To H: where it was; if it has lost the turn and G has found a lower point, or if H
            cannot go on, at the lowest."""
            outcome = memory.outcome
            events = outcome.events + m.event(EventKind.TURN, FAST)
            moves = broken | (before.lost & memory.ahead)
            passed = m.but(
                after,
                outcome=Outcome(outcome.step_size, events, outcome.shows),
                turn=m.but(
                    turn,
                    midway=m.no(over) & m.no(ended),
                    guaranteed_spent=guaranteed_spent,
                    guarding=False,
                ),
                ahead=memory.ahead & m.no(moves),
            )
            passed = self._new_round(m, passed, total)
            passed.starts = m.where(moves, FAST, NEITHER)
            return passed

        no_progress = int(Status.NO_PROGRESS)
        return m.case(
            memory,
            (more, lambda: after),
            (owed, go_on),
            (over & stuck, lambda: self._end(m, after, no_progress, NEITHER)),
            (gives_up & stuck, lambda: self._end(m, after, turn.given_up, GUARANTEED)),
            otherwise=pass_on,
        )

    def ending(self, memory: SafeguardedMemory, shown: Sample, status: Status) -> Ending:
        fast, guaranteed = self._rules
        if memory.word == GUARANTEED:
            part = memory.guaranteed
            return guaranteed.ending(part.memory, part.shown, status)
        part = memory.fast
        broken = fast.ending(part.memory, part.shown, Status(part.memory.outcome.status))
        if memory.word == FAST:
            return broken
        norm = memory.best.grad_norm
        return Ending(
            Status.NO_PROGRESS,
            f"neither method makes progress: {broken.message}; and whole epochs of the guaranteed "
            f"one bring no decrease at gradient norm {norm:.3g}: rounding is reached, or jac is "
            "not the gradient of fun",
            {"grad_norm": norm},
        )


def _is_one_of(status: Any, statuses: frozenset[Status]) -> Any:
    found: Any = False
    for each in statuses:
        found = found | (status == int(each))
    return found
