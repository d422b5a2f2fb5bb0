"""A fast method under the guard of one with a guarantee: the speed of the first, the bound of the
second."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

from momentous.core.acceptance import rises
from momentous.core.machine import Machine, Records
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
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
from momentous.core.status import OUTPUTS, SUCCESSES, Ending, EventKind, Status, is_one_of
from momentous.core.step import RiseLimit, UnderWay
from momentous.core.stopping import LEVEL
from momentous.methods.checks import check_whole
from momentous.methods.classical.lbfgs import LBFGS
from momentous.methods.classical.projected_gradient import ProjectedGradient
from momentous.methods.classical.ssbroyden import fast_for_costly_gradients
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall

# Chosen on one half of the problems of testbed.suite; docs/scoreboard.md reports on the other half.
DEFAULT_FAST = LBFGS()
# With the mean in every iteration, as its theorem has it.
DEFAULT_GUARANTEED = UniversalHeavyBall(average_growth=1.0)


@dataclasses.dataclass(frozen=True)
class SafeguardConstants:
    """What the referee goes by and a user does not choose; docs/explanation/safeguard.md."""

    # The fast method may spend so many times what the guard has spent.
    share: float = 16.0
    # A round of the fast method has no more steps than this: a step may evaluate nothing, and two
    # rounds in a row must not look like a run that rests at its noise.
    most_steps: int = LEVEL // 4


CONSTANTS = SafeguardConstants()

# Turns of the two methods, as the value of an event; and who ends a run.
FAST, GUARANTEED, NEITHER = 0, 1, 2

# What an evaluation is for.
RUN = 0  # the method whose turn it is ...
START = 1  # ... before its first iteration at another point
STAND = 2  # what that method has not asked for where it stands: the value, and the gradient if low


@record
class Guard:
    """The guaranteed method."""

    memory: Any
    shown: Sample  # the point that its last iteration has reported
    origin: Sample  # where it was last started
    begun: bool = False  # has it ever been?
    awaits_point: bool = False  # has an epoch ended, with no point accepted?
    noise: float = 0.0  # of values, as it has measured it

    OLD_NAMES: ClassVar = {"awaits": "awaits_point"}


@record
class Turn:
    """Whose turn it is, and what a round must earn: what changes only where one of them ends."""

    allowance: float  # K, the evaluations that a round may take
    began: int  # evaluations when the round or the turn began
    began_value: float  # f at the best point then
    norm_at_last_halving: float  # the smallest gradient norm when that last earned a round
    origin: Sample  # where the fast method was last started
    # Where a method stands whose iteration has ended, while more is asked there; None: never.
    stand: Sample | None
    pending: Outcome  # of an iteration at whose end a method is started again
    tol: float | None
    seed: int
    min_decrease_rate: float = 0.0  # decrease per evaluation that a round must bring; 0: any
    best_rate: float = 0.0  # the most that a round has brought since the guard was last started
    guaranteed_spent: int = 0  # evaluations of the guaranteed method before this turn
    guaranteed_began: int = 0  # what it had spent when it was last started
    guard_due: float = 0.0  # evaluations when it has had its share: its turn is not over before
    turn_limit: float = 0.0  # evaluations when its turn is over, even in the middle of an epoch
    epoch_unfinished: bool = False  # has its last turn ended in the middle of an epoch?
    round_failed: bool = False  # has a round that earned nothing led to this turn?
    breakdown_epochs: int = 1  # of its next turn, if the fast method has broken down
    epochs_left: int = 0  # epochs left in its turn
    guarding: bool = False  # is it the guaranteed method's turn?
    guard_ending: int = RUNNING  # why its last turn ended, if it could not go on
    # Steps of the fast method since a round last earned something or that one could go on.
    idle_steps: int = 0
    phase: int = RUN
    last_told: int = FAST  # which of the two has been told of the last evaluation
    by_guard: bool = False  # is it one of an iteration of the guaranteed method, not of its start?
    starts: int = NEITHER  # which is to be started at the lowest point
    ended_by: int = NEITHER  # whose the end is

    OLD_NAMES: ClassVar = {
        "mark": "norm_at_last_halving", "price": "min_decrease_rate", "pace": "best_rate",
        "owed": "guard_due", "until": "turn_limit", "midway": "epoch_unfinished",
        "lost": "round_failed", "patience": "breakdown_epochs", "left": "epochs_left",
        "given_up": "guard_ending", "told": "last_told", "word": "ended_by",
    }  # fmt: skip


@record
class SafeguardedMemory:
    """The fast method, and what both have found: what each of its steps changes.

    The rest is kept apart, in a turn that steps share, so that a step has little to copy.
    """

    fast: Any
    shown: Sample  # the point that its last iteration has reported
    outcome: Outcome
    best: Sample  # the lowest accepted point; of points within the noise, that with least gradient
    lowest: float  # the lowest value that the best point has had: it stays within the noise of it
    smallest: float  # the smallest gradient norm at an accepted point of the fast method
    guard: Guard
    turn: Turn
    best_is_guards: bool = False  # is the best point one of the guaranteed method's own?
    lowered: bool = False  # has the best point changed in this round or turn?
    steps: int = 0  # of the fast method in this round

    OLD_NAMES: ClassVar = {"ahead": "best_is_guards"}


@dataclasses.dataclass(frozen=True)
class Safeguarded(Rule[SafeguardedMemory]):
    """A fast method (H), watched by one with a guarantee (G), which takes over if H gets stuck.

    H runs in rounds of K evaluations (values and gradients), beginning with the lowest point of
    both.  A round earns its cost if

    - it lowers f by at least so much per evaluation: that is what the last epoch of G has
      brought, if that was more than any round of H since that epoch began; if H has kept up, or G
      has brought nothing yet, any decrease will do; or
    - it halves the smallest gradient norm since that was last the reason, and the lowest point is
      H's own.

    After one that does not, G has a turn: to the end of its epoch, or K evaluations of it; and
    whatever H earns, as soon as H has spent 16 times what G has, and 16 K.  Then H goes on where it
    was or, if the round had earned nothing and G has found a lower point, there.  Where H cannot go
    on, G has twice as many whole epochs each time, until a round of H earns something.  Where G
    cannot go on (by rounding: its theorem knows of none) H goes on by itself, any decrease earns
    its rounds, and G is asked again at the next lowest point.

    K = 2 (|grad f(x0)|/eps)^(1/4), at least ``shortest_round``; eps is the tolerance, or sqrt(u)
    |grad f(x0)| if that is larger, u the unit roundoff.  A round also ends after 125 steps, as they
    may evaluate nothing.

    H and G propose, and what they find is judged at the lowest point: the run ends only where the
    gradient is within the tolerance and f is not above the lowest point, where G ends by its
    promise, or where neither can go on: H in 500 steps that earn nothing cannot.  A point where
    value or gradient is not finite is never the lowest, and what H says of noise is not relied on.

    What it guarantees.  Let D = f(x0) - inf f, and let every epoch of G that starts above eps end
    after at most K* evaluations, either lower by delta or with a gradient of at most eps: G alone
    needs N = (D/delta + 1) K* evaluations by this account.  Then, whatever H does, a gradient of
    eps is met within

        17 max(N, K) + K + c

    evaluations, c those of one step (and within twice N, and log2(D/delta + 1) rounds more, if H
    breaks down).  With delta of the order eps^(3/2) and K* of eps^(-1/4), as for the G here, that
    is O(eps^(-7/4)) for every H.  docs/explanation/safeguard.md has the proof, and what the theorem
    does not say.

    With bounds G is `ProjectedGradient`, each of whose steps is an epoch, of one step and lower by
    eps^2/(2M), M the larger of 1 and of its L: N = 2 M D/eps^2 + 1, up to the trials of a step.
    With a simple term it is the same, of proximal gradient steps.

    The cost of an iteration is that of the method whose turn it is; neither knows of the other.
    The trace has an event ``turn`` when it passes (1: to G, 0: back to H).

    Parameters
    ----------
    fast : Rule
        H: any method that asks for its evaluations, as all do but `JinAGD` and
        `ConvexUntilGuilty`; by default `LBFGS`.
    guaranteed : Rule
        G: one whose epochs end, with restart events.  By default `UniversalHeavyBall` with
        ``average_growth=1``.
    shortest_round : int
        The least K.

    References
    ----------
    .. [1] N. Marumo, A. Takeda (2025), see :class:`UniversalHeavyBall`: the guarantee.
    .. [2] D. C. Liu, J. Nocedal (1989), see :class:`LBFGS`: the speed.
    """

    name = "safeguarded"
    takes_bounds = takes_penalty = True
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
            if not isinstance(method, Rule):
                is_method, why = isinstance(method, Method), ""
                if is_method:
                    why = f"; {method.name} calls its function itself: run it alone"
                raise TypeError(
                    f"Safeguarded: {role}={method!r} must be a Rule, such as LBFGS(){why}"
                )
        check_whole(self, "shortest_round")

    @functools.cached_property
    def _rules(self) -> tuple[Rule[Any], Rule[Any]]:
        return self.fast, self.guaranteed  # type: ignore[return-value]

    @property
    def counts_as_published(self) -> bool:  # type: ignore[override]
        return self.fast.counts_as_published

    def for_costly_gradients(
        self, dimension: int, nbytes: int, matrix_bytes: float = 0.0
    ) -> Safeguarded:
        fast = self.fast.for_costly_gradients(dimension, nbytes, matrix_bytes)
        if self.fast == DEFAULT_FAST:
            fast = fast_for_costly_gradients(dimension, nbytes, matrix_bytes)
        return dataclasses.replace(self, fast=fast)

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        return any(rule.repeats for rule in self._rules)

    def in_box(self) -> Safeguarded:
        """With bounds the guard is the projected gradient method, if no other was given."""
        guaranteed = self.guaranteed
        if guaranteed == DEFAULT_GUARANTEED:
            guaranteed = ProjectedGradient()
        both = self.fast.in_box(), guaranteed.in_box()
        return dataclasses.replace(self, fast=both[0], guaranteed=both[1])

    def begin(self, m: Machine, here: Sample, goal: Goal) -> SafeguardedMemory:
        H, G = self._rules
        fast, guaranteed = H.begin(m, here, goal), m.unbegun(lambda: G.begin(m, here, goal))
        tol, norm = self._wanted(goal.tol), here.grad_norm
        eps = m.maximum(tol, math.sqrt(m.rounding) * norm)
        ratio = m.where(eps > 0.0, norm / m.where(eps > 0.0, eps, 1.0), 1.0)
        K = m.maximum(float(self.shortest_round), 2 * m.power(ratio, 0.25))
        begun = fast.outcome
        # Are value and gradient always known where they stand?
        whole = m.fused and not any(
            rule.accepted(memory).gradient is None
            for rule, memory in zip(self._rules, (fast, guaranteed), strict=True)
        )
        step_size = m.where(begun.ended, begun.step_size, math.nan)
        outcome = Outcome(step_size, m.no_events, shows=False, ended=begun.ended)
        turn = Turn(
            K, m.spent, here.value, norm, here, None if whole else here, outcome, goal.tol,
            goal.seed, phase=m.where(begun.ended, RUN, START),
        )  # fmt: skip
        guard = Guard(guaranteed, here, here, noise=self._rules[GUARANTEED].noise(guaranteed))
        return SafeguardedMemory(fast, here, outcome, here, here.value, norm, guard, turn)

    def _wanted(self, tol: float | None) -> Any:
        return self.tolerance_for(tol)

    def with_tolerance(self, m: Records, memory: SafeguardedMemory, tol: Any) -> SafeguardedMemory:
        fast, guaranteed = self._rules
        inner = guaranteed.with_tolerance(m, memory.guard.memory, tol)
        return m.but(
            memory,
            fast=fast.with_tolerance(m, memory.fast, tol),
            guard=m.but(memory.guard, memory=inner),
            turn=m.but(memory.turn, tol=tol),
        )

    def inverse_hessian(self, space: Space, memory: SafeguardedMemory) -> object:
        """That of the fast method, if the lowest point is not the guaranteed one's own."""
        if memory.best_is_guards:
            return None
        return self.fast.inverse_hessian(space, memory.fast)

    def opening(self) -> Safeguarded | None:
        return Opening(self.fast, self.guaranteed, self.shortest_round)

    def take_over(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        return self._with_start(m, memory)

    def ask(self, m: Machine, memory: SafeguardedMemory) -> Ask:
        turn, repeats = memory.turn, []

        def of(which: int) -> Ask:
            rule = self._rules[which]
            inner, origin = memory.fast, turn.origin
            if which:
                inner, origin = memory.guard.memory, memory.guard.origin
            ask = rule.ask(m, inner)
            if ask.point is origin.point and ask.known.point is not ask.point:
                ask = ask._replace(known=origin)
            if ask.again is not False:
                ask = ask._replace(again=ask.again & (turn.last_told == which))
                repeats.append(which)
            return m.passed_on(ask, rule)  # type: ignore[no-any-return]

        branches = [(turn.guarding, lambda: of(GUARANTEED))]
        stand = turn.stand
        if stand is not None:
            there = Ask(stand.point, VALUE, known=stand, below=memory.best.value)
            branches.insert(0, (turn.phase == STAND, lambda: m.passed_on(there, self)))
        ask = m.case(Ask(memory.best.point, GRADIENT), *branches, otherwise=lambda: of(FAST))
        return ask if repeats else ask._replace(again=False)

    def tell(
        self, m: Machine, memory: SafeguardedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> SafeguardedMemory:
        """What the method makes of it whose turn it is; `write` judges."""
        turn, fast, guaranteed = memory.turn, *self._rules

        def pass_on(rule: Rule[Any], inner: Any, shown: Sample) -> tuple[Any, Sample]:
            after = rule.tell(m, inner, here, *m.worked(rule, inner, here, made, sums))
            # Where values come alone, on the host: now it is known.
            if not m.fused and here.point is shown.point and shown.value != shown.value:
                shown = here
            shows = after.outcome.shows & (turn.phase != START)
            return after, m.choose(shows, here, shown)

        def told(which: int) -> Turn:
            by_guard = m.where(turn.phase == START, turn.by_guard, which == GUARANTEED)
            return m.but(turn, last_told=which, by_guard=by_guard)

        def tell_fast() -> SafeguardedMemory:
            after, shown = pass_on(fast, memory.fast, memory.shown)
            return m.but(memory, fast=after, shown=shown, outcome=after.outcome, turn=told(FAST))

        def tell_guaranteed() -> SafeguardedMemory:
            after, shown = pass_on(guaranteed, memory.guard.memory, memory.guard.shown)
            guard = m.but(memory.guard, memory=after, shown=shown, noise=guaranteed.noise(after))
            return m.but(memory, guard=guard, outcome=after.outcome, turn=told(GUARANTEED))

        branches = [(turn.guarding, tell_guaranteed)]
        if turn.stand is not None:
            known = m.but(turn, stand=here, last_told=NEITHER)
            branches.insert(0, (turn.phase == STAND, lambda: m.but(memory, turn=known)))
        return m.case(memory, *branches, otherwise=tell_fast)

    def write(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """The stores of both; and, where an iteration has ended, who goes on."""
        fast, guaranteed = self._rules
        inner, turn = fast.write(m, memory.fast), memory.turn
        if inner is not memory.fast:
            outcome = m.choose(turn.last_told == FAST, inner.outcome, memory.outcome)
            memory = m.but(memory, fast=inner, outcome=outcome)
        inner = guaranteed.write(m, memory.guard.memory)
        if inner is not memory.guard.memory:
            outcome = m.choose(turn.last_told == GUARANTEED, inner.outcome, memory.outcome)
            guard = m.but(memory.guard, memory=inner, noise=guaranteed.noise(inner))
            memory = m.but(memory, guard=guard, outcome=outcome)
        if turn.stand is not None:
            return self._committed(m, memory)
        ended = memory.outcome.ended & (turn.phase == RUN) & m.no(turn.guarding)
        usual = ended & m.no(self._round_is_over(m, memory, memory.fast))
        return m.usually(
            memory,
            usual,
            lambda: self._iterated(m, memory, FAST, memory.fast, memory.shown, False),
            lambda: self._committed(m, memory),
        )

    def _committed(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """After an evaluation, whatever it was for."""
        iterated = functools.partial(self._iterated, m, memory)
        turn = memory.turn
        starts = turn.phase == START
        branches = [
            (m.no(memory.outcome.ended) & m.no(starts), lambda: memory),
            (m.no(memory.outcome.ended), lambda: self._waits(m, memory)),
            (starts, lambda: self._started(m, memory)),
            (turn.guarding, lambda: iterated(GUARANTEED, memory.guard.memory, memory.guard.shown)),
        ]
        if turn.stand is not None:
            branches.insert(0, (turn.phase == STAND, lambda: self._weighed(m, memory)))
        after = m.case(
            memory, *branches, otherwise=lambda: iterated(FAST, memory.fast, memory.shown)
        )
        return self._with_start(m, after)

    def _with_start(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        starts = memory.turn.starts
        return m.case(
            memory,
            (starts == FAST, lambda: self._start(m, memory, FAST)),
            (starts == GUARANTEED, lambda: self._start(m, memory, GUARANTEED)),
        )

    def _waits(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """Until a method has started."""
        pending = memory.turn.pending
        waits = Outcome(pending.step_size, pending.events, shows=False, ended=False)
        return m.but(memory, outcome=waits)

    def accepted(self, memory: SafeguardedMemory) -> Sample:
        return memory.best

    def noise(self, memory: SafeguardedMemory) -> Any:
        """What the guaranteed method has measured; what the fast one says is not relied on."""
        return memory.guard.noise

    def _noise(self, m: Machine, memory: SafeguardedMemory) -> Any:
        return m.maximum(m.value_noise(memory.best.value), memory.guard.noise)

    def rise_limit(self, m: Machine, memory: SafeguardedMemory, shown: Sample) -> RiseLimit | None:
        """Not above the lowest point.  The guaranteed method's own limit will do where that point
        is its own."""
        best, by_guard = memory.best, memory.turn.by_guard
        if shown.point is best.point and by_guard is False:
            return None  # as most steps of the fast method are, on the host
        guard, rule = memory.guard, self._rules[GUARANTEED]
        general = RiseLimit(best, guard.noise, math.sqrt(m.rounding), convex=True)

        def of_guard() -> RiseLimit:
            limit = rule.rise_limit(m, guard.memory, shown)
            own = RiseLimit(best, math.inf) if limit is None else limit
            is_own = m.same(rule.accepted(guard.memory).point, best.point)
            return m.choose(is_own, own, general)

        return m.case(
            general,
            (by_guard, of_guard),
            (m.same(shown.point, best.point), lambda: RiseLimit(best, math.inf)),
        )

    def _may_end(self, m: Machine, memory: SafeguardedMemory, shown: Sample) -> Any:
        limit = self.rise_limit(m, memory, shown)
        return True if limit is None else m.no(rises(m, shown, limit))

    def evaluate(self, oracle: Oracle, way: UnderWay[Any]) -> None:
        """On the host an iteration of the fast method runs by itself: until it ends there is
        nothing to judge.  That takes half of the time of two rules within each other."""
        memory, fast, turn = way.memory, self._rules[FAST], way.memory.turn
        if not (turn.guarding or turn.by_guard or turn.last_told != FAST or turn.phase != RUN):
            way.memory = memory.fast
            try:
                fast.evaluate(oracle, way)
            except BaseException:
                way.memory = self.machine(oracle).but(memory, fast=way.memory)
                raise
            m, inner = oracle.space.machine, way.memory
            if way.shown.point is None:
                way.shown = fast.accepted(inner)
            stand, best, steps = fast.accepted(inner), memory.best, memory.steps + 1
            noise = max(m.value_noise(best.value), memory.guard.noise)
            # What `_iterated` makes of most iterations, in a third of the time: about 6 % of an
            # iteration with 100 variables, measured on a busy machine.
            if (
                stand.value - best.value < -noise
                and stand.value > -math.inf
                and stand.grad_norm < math.inf
                and inner.outcome.status == RUNNING
                and m.spent - turn.began < turn.allowance
                and steps < CONSTANTS.most_steps
                and turn.stand is None
                and stand.point is not turn.origin.point
            ):
                lowest, smallest = min(memory.lowest, stand.value), memory.smallest
                smallest = min(smallest, stand.grad_norm)
                way.memory = SafeguardedMemory(
                    inner, way.shown, inner.outcome, stand, lowest, smallest, memory.guard, turn,
                    False, True, steps,
                )  # fmt: skip
                return
            way.memory = after = self._iterated(m, memory, FAST, inner, way.shown)
            if after.turn is not turn:
                way.memory = after = self._with_start(m, after)
            if after.outcome.ended:
                return
        super().evaluate(oracle, way)

    # Where a method stands: at the last point that it accepted by its value; if it has accepted
    # none, at the last that it evaluated.

    def _iterated(
        self, m: Machine, memory: SafeguardedMemory, which: int, inner: Any, here: Sample,
        over: Any = None,
    ) -> SafeguardedMemory:  # fmt: skip
        """An iteration has left that memory, and shown that point; ``over``: is the round, where
        that is known?"""
        turn = memory.turn
        origin = memory.guard.origin if which else turn.origin
        accepted = self._rules[which].accepted(inner)
        stand = m.choose(m.same(accepted.point, origin.point), here, accepted)
        if which:
            told = memory.fast, memory.shown, memory.outcome
        else:
            told = inner, here, inner.outcome
        if turn.stand is None:
            return self._judged(m, memory, which, stand, *told, over)
        fast, shown, outcome = told
        turn = m.but(turn, stand=stand)
        return self._weighed(m, m.but(memory, fast=fast, shown=shown, outcome=outcome, turn=turn))

    def _weighed(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """Where a method stands the value is needed and, if the point is lower, the gradient."""
        turn, stand, known = memory.turn, memory.turn.stand, memory.turn.phase == STAND
        assert stand is not None
        lower = (stand.value < memory.best.value) & (stand.grad_norm != stand.grad_norm)
        asks = m.no(known) & (lower | (stand.value != stand.value))
        outcome = m.case(memory.outcome, (known, lambda: m.but(turn.pending, shows=False)))
        after = m.but(memory, turn=m.but(turn, phase=RUN), outcome=outcome)
        told = memory.fast, memory.shown, outcome

        def ask() -> SafeguardedMemory:
            waits = m.but(turn, phase=STAND, pending=outcome)
            return m.but(memory, turn=waits, outcome=m.but(outcome, ended=False, status=RUNNING))

        return m.case(
            after,
            (asks, ask),
            (turn.guarding, lambda: self._judged(m, after, GUARANTEED, stand, *told)),
            otherwise=lambda: self._judged(m, after, FAST, stand, *told),
        )

    def _judged(
        self, m: Machine, memory: SafeguardedMemory, which: int, stand: Sample, fast: Any,
        shown: Sample, outcome: Outcome, over: Any = None,
    ) -> SafeguardedMemory:  # fmt: skip
        """The best point or where the method stands, whichever is lower; where noise may be all the
        difference, the one with less gradient.  Value and gradient of the best are finite."""
        best, lowest = memory.best, memory.lowest
        noise = m.maximum(m.value_noise(best.value), memory.guard.noise)
        value, norm = stand.value, stand.grad_norm
        change = value - best.value
        # Level with the lowest value: with that of the best point, rises by the noise would add up.
        level = (change < 0.0) | (value - lowest <= noise)
        takes = (change < -noise) | ((norm < best.grad_norm) & level)
        takes = takes & m.isfinite(norm) & m.isfinite(value)
        best, lowered = m.choose(takes, stand, best), memory.lowered | takes
        lowest = m.minimum(lowest, best.value)
        if which:
            after = m.but(
                memory,
                best=best,
                lowest=lowest,
                best_is_guards=memory.best_is_guards | takes,
                lowered=lowered,
            )
            return self._after_guaranteed(m, after, stand)
        smallest = m.where(norm < memory.smallest, norm, memory.smallest)
        # Field by field: `but` takes four times as long.
        after = SafeguardedMemory(
            fast, shown, outcome, best, lowest, smallest, memory.guard, memory.turn,
            memory.best_is_guards & m.no(takes), lowered, memory.steps + 1,
        )  # fmt: skip
        if over is None:
            over = self._round_is_over(m, memory, fast)
        ended = fast.outcome.status != RUNNING
        return m.case(after, (over, lambda: self._end_round(m, after, ended)))

    def _round_is_over(self, m: Machine, memory: SafeguardedMemory, fast: Any) -> Any:
        """Is it with the step that has left that memory of the fast method?"""
        turn = memory.turn
        over = (fast.outcome.status != RUNNING) | (m.spent - turn.began >= turn.allowance)
        return over | (memory.steps + 1 >= CONSTANTS.most_steps)

    def _end_round(self, m: Machine, memory: SafeguardedMemory, ended: Any) -> SafeguardedMemory:
        """Has the round of H that this step ends earned its cost?  Another one, or G's turn."""
        before, status, shown = memory.turn, memory.fast.outcome.status, memory.shown
        # Is it, as the fast method says, the end of the run?  Its word alone is not enough.
        success = is_one_of(status, SUCCESSES) & (shown.grad_norm <= self._wanted(before.tol))
        success = success & self._may_end(m, memory, shown)
        total, guaranteed_spent = m.spent, before.guaranteed_spent
        spent, gain = total - before.began, before.began_value - memory.best.value
        earned = (gain > self._noise(m, memory)) & (gain >= before.min_decrease_rate * spent)
        pace = gain / m.maximum(spent, 1)
        # A gradient of 0 is earned once: not <=.
        halved = (memory.smallest < before.norm_at_last_halving / 2) & m.no(memory.best_is_guards)
        earned = (earned | halved) & m.no(ended)
        turn = m.but(
            before,
            best_rate=m.maximum(pace, before.best_rate),
            norm_at_last_halving=m.where(halved, memory.smallest, before.norm_at_last_halving),
            guard_ending=m.where(earned, RUNNING, before.guard_ending),
            breakdown_epochs=m.where(earned, 1, before.breakdown_epochs),
            began=total,
            began_value=memory.best.value,
        )
        due = (total - guaranteed_spent) / CONSTANTS.share
        again = earned & (due < m.maximum(guaranteed_spent, before.allowance))
        idles = m.no(earned) & (before.guard_ending != RUNNING)
        turn = m.but(turn, idle_steps=m.where(idles, before.idle_steps + memory.steps, 0))
        rested = m.but(memory, turn=turn)
        # G has given up at the point that is still the lowest, and would do so again.
        alone = idles & m.no(memory.lowered)
        stuck = alone & (ended | (turn.idle_steps >= LEVEL))

        def guard() -> SafeguardedMemory:
            """G's turn: on with the epoch under way, or from the lowest point."""
            leaves = m.no(memory.guard.begun) | self._leaves(m, memory, ended)
            owed = total + due - guaranteed_spent
            until = m.where(earned, owed, m.maximum(owed, total + before.allowance))
            passed = m.but(
                turn,
                epochs_left=m.where(ended, before.breakdown_epochs, 1),
                breakdown_epochs=m.where(ended, 2 * before.breakdown_epochs, turn.breakdown_epochs),
                guard_due=owed,
                turn_limit=m.where(ended, math.inf, until),
                round_failed=m.no(earned),
                guaranteed_began=m.where(leaves, guaranteed_spent, before.guaranteed_began),
                best_rate=m.where(leaves, pace, turn.best_rate),
                guarding=True,
                starts=m.where(leaves, GUARANTEED, NEITHER),
            )
            events = m.event(EventKind.TURN, GUARANTEED)
            return self._new_round(m, memory, passed, events)  # what a start costs is G's

        return m.case(
            memory,
            (success, lambda: self._end(m, memory, status, FAST)),
            (stuck, lambda: self._end(m, rested, before.guard_ending, GUARANTEED)),
            (again | alone, lambda: self._new_round(m, memory, turn)),
            otherwise=guard,
        )

    def _leaves(self, m: Machine, memory: SafeguardedMemory, ended: Any) -> Any:
        """Does G move to the lowest point, rather than go on with the epoch under way?"""
        guard, rule = memory.guard, self._rules[GUARANTEED]
        accepted, origin = rule.accepted(guard.memory), guard.origin
        own = m.same(accepted.point, origin.point)
        value = m.where(own, guard.shown.value, accepted.value)
        lowest = m.where(value < origin.value, value, origin.value)
        return m.no(memory.turn.epoch_unfinished) | (ended & (lowest > memory.best.value))

    def _end(
        self, m: Machine, memory: SafeguardedMemory, status: Any, word: int
    ) -> SafeguardedMemory:
        outcome = m.but(memory.outcome, status=status)
        return m.but(memory, outcome=outcome, turn=m.but(memory.turn, ended_by=word))

    def _new_round(
        self, m: Machine, memory: SafeguardedMemory, turn: Turn, events: Any = None
    ) -> SafeguardedMemory:
        """The word of the method that is judged here, that it has ended, is not the run's."""
        before = memory.outcome
        added = before.events if events is None else before.events + events
        return m.but(
            memory,
            outcome=Outcome(before.step_size, added, before.shows),
            turn=turn,
            steps=0,
            lowered=False,
        )

    def _start(self, m: Machine, memory: SafeguardedMemory, which: int) -> SafeguardedMemory:
        """One of the two from the lowest point, with what it has learned."""
        rule, turn, best, guard = self._rules[which], memory.turn, memory.best, memory.guard
        goal, before = Goal(turn.tol, turn.seed), guard.memory if which else memory.fast
        inner = m.case(
            before,
            (guard.begun if which else True, lambda: rule.move(m, before, best, goal)),
            otherwise=lambda: rule.begin(m, best, goal),
        )
        begun, outcome = inner.outcome.ended, memory.outcome
        turn = m.but(
            turn,
            phase=m.where(begun, RUN, START),
            pending=outcome,
            last_told=NEITHER,
            starts=NEITHER,
        )
        memory = m.but(memory, outcome=m.but(outcome, ended=begun), turn=turn)
        if which:
            turn = m.but(turn, guard_ending=RUNNING)  # what it said is of where it was
            guard = Guard(inner, best, best, True, noise=rule.noise(inner))
            return m.but(memory, guard=guard, turn=turn)
        return m.but(memory, fast=inner, shown=best, turn=m.but(turn, origin=best))

    def _started(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """The iteration in which a method was started is over."""
        turn, step_size = memory.turn, memory.turn.pending.step_size
        step_size = m.where(step_size == step_size, step_size, memory.outcome.step_size)
        began = m.where(turn.guarding, turn.began, m.spent)  # the start of H is not of its round
        return m.but(
            memory,
            outcome=Outcome(step_size, turn.pending.events, shows=False),
            turn=m.but(turn, phase=RUN, began=began),
        )

    # The guaranteed one.

    def _after_guaranteed(
        self, m: Machine, memory: SafeguardedMemory, stand: Sample
    ) -> SafeguardedMemory:
        guard, rule = memory.guard, self._rules[GUARANTEED]
        outcome = guard.memory.outcome
        ended = outcome.status != RUNNING
        completed = is_one_of(outcome.status, OUTPUTS)
        # An epoch is over; where nothing was accepted, the step after it shows where it has led.
        restarted = m.restarted(outcome.events)
        accepts = m.no(m.same(rule.accepted(guard.memory).point, guard.origin.point))
        over = completed | (restarted & accepts) | guard.awaits_point
        turn = memory.turn
        after = m.but(memory, guard=m.but(guard, awaits_point=restarted & m.no(accepts)))
        goes_on = m.no(over) & m.no(ended) & (m.spent < turn.turn_limit)

        def judge() -> SafeguardedMemory:
            ends = completed & self._may_end(m, after, guard.shown)
            return m.case(
                after,
                (ends, lambda: self._end(m, after, outcome.status, GUARANTEED)),
                otherwise=lambda: self._end_turn(m, after, stand, over, completed, ended),
            )

        return m.case(after, (goes_on, lambda: after), otherwise=judge)

    def _end_turn(
        self, m: Machine, memory: SafeguardedMemory, stand: Sample, over: Any, completed: Any,
        ended: Any,
    ) -> SafeguardedMemory:  # fmt: skip
        """An epoch of G has ended, or its turn; or it has ended above the lowest point."""
        before, total, origin = memory.turn, m.spent, memory.guard.origin
        broken = memory.fast.outcome.status != RUNNING  # H cannot go on from where it is
        guaranteed_spent = before.guaranteed_spent + total - before.began
        fallen, spent = origin.value - stand.value, guaranteed_spent - before.guaranteed_began
        rate = fallen / m.maximum(spent, 1)
        # An epoch that has brought nothing is not the measure.
        price = m.where(over & (rate > before.best_rate), rate, 0.0)
        left = m.where(over, before.epochs_left - 1, before.epochs_left)
        gives_up = ended & m.no(over)
        turn = m.but(
            before,
            # A G that cannot go on would bring nothing.
            min_decrease_rate=m.where(
                gives_up | (over & (fallen > 0.0)), price, before.min_decrease_rate
            ),
            epochs_left=left,
            guard_ending=m.where(gives_up, memory.guard.memory.outcome.status, before.guard_ending),
        )
        after = m.but(memory, turn=turn, outcome=m.but(memory.outcome, status=RUNNING))
        more = over & (left > 0) & m.no(completed)
        owed = over & m.no(more) & (total < before.guard_due) & m.no(broken)
        stuck = broken & m.no(memory.lowered)

        def go_on() -> SafeguardedMemory:
            elsewhere = completed | m.no(m.same(memory.best.point, stand.point))
            clock = m.but(
                turn,
                guaranteed_began=m.where(elsewhere, guaranteed_spent, turn.guaranteed_began),
                best_rate=m.where(elsewhere, 0.0, turn.best_rate),
                starts=m.where(elsewhere, GUARANTEED, NEITHER),
            )
            return m.but(after, turn=clock)

        def pass_on() -> SafeguardedMemory:
            """To H: where it was; if it has lost the turn and G has found a lower point, or if H
            cannot go on, at the lowest."""
            moves = broken | (before.round_failed & memory.best_is_guards)
            passed = m.but(
                turn,
                epoch_unfinished=m.no(over) & m.no(ended),
                guaranteed_spent=guaranteed_spent,
                guarding=False,
                starts=m.where(moves, FAST, NEITHER),
                began=total,
                began_value=memory.best.value,
            )
            events = m.event(EventKind.TURN, FAST)
            after_turn = m.but(after, best_is_guards=memory.best_is_guards & m.no(moves))
            return self._new_round(m, after_turn, passed, events)

        no_progress = int(Status.NO_PROGRESS)
        return m.case(
            memory,
            (more, lambda: after),
            (owed, go_on),
            (over & stuck, lambda: self._end(m, after, no_progress, NEITHER)),
            (gives_up & stuck, lambda: self._end(m, after, turn.guard_ending, GUARANTEED)),
            otherwise=pass_on,
        )

    def ending(self, memory: SafeguardedMemory, shown: Sample, status: Status) -> Ending:
        fast, guaranteed = self._rules
        if memory.turn.ended_by == GUARANTEED:
            ending = guaranteed.ending(memory.guard.memory, memory.guard.shown, status)
            if memory.turn.idle_steps >= LEVEL:
                idle = f"{LEVEL} steps of {fast.name} have brought nothing"
                ending = Ending(status, f"{ending.message}; and {idle}", ending.numbers)
            return ending
        broken = fast.ending(memory.fast, memory.shown, Status(memory.fast.outcome.status))
        if memory.turn.ended_by == FAST:
            return broken
        norm = memory.best.grad_norm
        return Ending(
            Status.NO_PROGRESS,
            f"neither method makes progress: {broken.message}; and whole epochs of the guaranteed "
            f"one bring no decrease at gradient norm {norm:.3g}: rounding is reached, or jac is "
            "not the gradient of fun",
            {"grad_norm": norm},
        )


class Opening(Safeguarded):
    """The rounds of H before the first turn of G, without what is G's: in compiled code that is
    half of the program, which most runs never need.

    It ends where G would be started, within that iteration; `take_over` starts it.
    """

    def opening(self) -> None:
        return None

    def hands_over(self, memory: SafeguardedMemory) -> Any:
        return memory.turn.starts == GUARANTEED

    def ask(self, m: Machine, memory: SafeguardedMemory) -> Ask:
        return super().ask(m, self._without_guard(m, memory))

    def tell(
        self, m: Machine, memory: SafeguardedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> SafeguardedMemory:
        return super().tell(m, self._without_guard(m, memory), here, made, sums)

    def rise_limit(self, m: Machine, memory: SafeguardedMemory, shown: Sample) -> RiseLimit | None:
        return super().rise_limit(m, self._without_guard(m, memory), shown)

    def _without_guard(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        """With what is known before G has had a turn: branches that ask for it fall away."""
        return m.but(memory, turn=m.but(memory.turn, guarding=False, by_guard=False))

    def _with_start(self, m: Machine, memory: SafeguardedMemory) -> SafeguardedMemory:
        goes_on = m.no(self.hands_over(memory))
        ended = memory.outcome.ended & goes_on
        return m.but(memory, outcome=m.but(memory.outcome, ended=ended))
