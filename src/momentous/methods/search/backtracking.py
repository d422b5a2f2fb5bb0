"""Backtracking, the line search that the classical methods share: how far to go along a direction.

One test serves them all.  Along -p a step t is accepted if ``f(x - t p) <= f(x) - t <p, g>/2``: for
p = g and t = 1/L that is the descent lemma, for a conjugate direction Armijo's rule with 1/2.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from functools import cached_property
from typing import Any, TypeVar

from momentous.core.machine import Host, Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import (
    GRADIENT,
    UNKNOWN,
    VALUE,
    Ask,
    Goal,
    Outcome,
    Rule,
    Sums,
    Vectors,
)
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.checks import check, check_positive
from momentous.methods.endings import no_progress, zero_gradient
from momentous.methods.search.probe import Probe
from momentous.methods.search.rounding import NO_LOOK, Look, Rounding

# So many times the noise must the required decrease be for values to decide in any case.
SIGNAL = 10.0


@dataclasses.dataclass(frozen=True)
class BacktrackingConstants:
    """What the search goes by and a user does not choose; no benchmark of them is known."""

    # Trials after which a search asks how noisy the values are.
    trials_before_look: int = 3
    # Halvings in one search; a search that needs more goes on in the next step.
    most_halvings: int = 60
    # A step that is shorter than all that lowered f by this factor is not taken on the word of the
    # gradient alone.
    shortest_share: float = 2.0**-20


CONSTANTS = BacktrackingConstants()

TRIAL, WAITS, LOOK = 0, 1, 2  # what the next evaluation is: a trial, its gradient, or a look
SEARCHING, ACCEPTED, REJECTED, STUCK = 0, 1, 2, 3  # verdicts; stuck: shorter steps are of no use


@record
class Search:
    """A search under way, and what the next one needs to know."""

    first: float  # the first step size that it tries, if the dtype can hold it
    shortest: float  # the least that the gradient alone may accept
    held: Sample  # the last trial: it waits for its gradient, for a look, or is what was found
    rounding: Rounding = Rounding()  # how noisy values are
    t: float = 0.0  # of the trial under way
    trials: int = 1
    phase: int = TRIAL
    verdict: int = SEARCHING
    lost: float = 0.0  # the last value, or norm, that was not finite, if any was not
    look: Look = NO_LOOK

    def begin(self, m: Machine, first: float, norm: float) -> Search:
        """The next search, along a vector of that norm.

        The step stays within what the dtype can hold: where f has no lower bound, step sizes grow
        without bound.
        """
        t = m.minimum(first, math.sqrt(m.largest) / m.maximum(norm, 1.0))
        return Search(first, self.shortest, self.held, self.rounding, t, look=self.look)

    def events(self, m: Machine) -> Any:
        """What has happened in it."""
        return m.event(EventKind.NON_FINITE, self.lost, m.no(m.isfinite(self.lost)))


@dataclasses.dataclass(frozen=True)
class Backtracking:
    """Try the points x - t p, t = first, first/backoff, ..., until f is lowered by t <p, g>/2.

    Guarded, the search knows rounding: where the values at both ends are equal within rounding and
    the decrease asked for is not well above it, the test is replaced by its first-order equivalent,
    that f still falls along -p at the trial point.  That takes the gradient there, and steps below
    ``shortest``, a small part of the shortest that values ever accepted, are not worth it:
    something else is wrong.  The noise of the values is measured where the fourth trial fails, or
    one shorter than all that values ever accepted.  A trial is never accepted where the value is
    not finite, nor where the gradient is known and is not.

    A search ends with the gradient of what it has found ``with_gradient``, and where it is not
    guarded, as then its last trial is taken in any case.
    """

    backoff: float = 2.0
    most: int = CONSTANTS.most_halvings
    guarded: bool = True
    with_gradient: bool = True

    def ask(self, m: Machine, search: Search, here: Sample, p: Array, slope: float) -> Ask:
        """The next evaluation; ``slope`` is <p, g> at x.  None where the gradient is zero."""

        def go_on() -> Ask:
            t, looks = search.t, search.phase == LOOK
            end = m.case(-t, (looks, lambda: search.look.end(m)))
            moves = here.grad_norm != 0.0
            point = m.choose(moves, m.combination(here.point, end, p), here.point)
            required, below = t * slope / 2, UNKNOWN
            if self.with_gradient:
                # Not where values may be too near to each other to tell.
                clear = required > 2 * SIGNAL * search.rounding.between(m, here.value)
                below = m.where(clear & m.no(looks), here.value - required, UNKNOWN)
            return Ask(point, VALUE, known=here, below=below)

        if search.held.gradient is not None:
            return go_on()
        waits = Ask(search.held.point, GRADIENT, known=search.held)
        return m.case(waits, (search.phase != WAITS, go_on))

    def tell(
        self, m: Machine, search: Search, here: Sample, p: Array, slope: float, there: Sample
    ) -> Search:
        """After that evaluation."""
        looks = search.phase == LOOK

        def after_look() -> Search:
            rounding, look = search.look.answered(m, search.rounding, here, there.value)
            return m.but(
                search, rounding=rounding, look=look, phase=m.where(look.done, TRIAL, LOOK)
            )

        after = m.case(search, (looks, after_look))
        trial = m.choose(looks, search.held, there)
        return m.case(
            after,
            (after.phase == LOOK, lambda: after),
            (here.grad_norm == 0.0, lambda: m.but(after, verdict=STUCK, held=trial)),
            otherwise=lambda: self._judge(m, after, here, p, slope, trial),
        )

    def _judge(
        self, m: Machine, search: Search, here: Sample, p: Array, slope: float, there: Sample
    ) -> Search:
        t, rounding, share = search.t, search.rounding, CONSTANTS.shortest_share
        value, required = there.value, t * slope / 2
        falls, finite = value <= here.value - required, m.isfinite(value)
        is_missing, usable = there.gradient is None, m.isfinite(there.grad_norm)
        noise = rounding.between(m, here.value, value)
        level = (abs(value - here.value) <= noise) & (required <= SIGNAL * noise)
        # Noise may also shorten the step by one halving per search: then no search is long.
        unusual = (search.trials > CONSTANTS.trials_before_look) | (t * share < search.shortest)
        doubtful = finite & m.no(falls) & unusual & rounding.may_be_noise(required)

        def rests() -> bool:
            change = m.combination(there.point, -1.0, here.point)
            return m.inner(change, change) == 0.0

        def end(verdict: int) -> Search:
            return m.but(search, held=there, verdict=verdict, phase=TRIAL)

        def wait() -> Search:
            return m.but(search, held=there, phase=WAITS)

        def look() -> Search:
            begun = Look.along(m, here, p, slope, required, -t)
            return m.but(search, held=there, look=begun, phase=LOOK)

        def reject(known: Search = search) -> Search:
            def give_up() -> Search:
                if is_missing and not self.guarded:
                    return m.but(known, held=there, phase=WAITS)
                verdict = m.where(rests(), STUCK, REJECTED)
                return m.but(known, held=there, verdict=verdict, phase=TRIAL)

            # The trial is let go: its arrays are free for the next one.
            shorter = m.but(
                known, held=here, t=t / self.backoff, trials=search.trials + 1, phase=TRIAL
            )
            return m.case(shorter, (search.trials > self.most, give_up))

        def by_slope() -> Search:
            stuck = (t < search.shortest) | rests()
            if is_missing:
                return m.case(search, (stuck, lambda: end(STUCK)), otherwise=wait)
            holds = usable & (m.inner(p, there.gradient) >= 0.0)
            return m.case(
                search,
                (stuck, lambda: end(STUCK)),
                (holds, lambda: end(ACCEPTED)),
                otherwise=reject,
            )

        def by_value() -> Search:
            shortest = m.minimum(search.shortest, t * share)
            trusting = rounding.trusting(m, required, here.value)
            good = Search(
                search.first, shortest, there, trusting, t, search.trials, search.phase, ACCEPTED,
                search.lost, search.look,
            )  # fmt: skip
            if is_missing:
                return wait() if self.with_gradient or not self.guarded else good

            def lose() -> Search:
                return reject(m.but(good, verdict=SEARCHING, lost=there.grad_norm))

            return m.case(good, (m.no(usable), lose))

        guards = ((doubtful, look), (level, by_slope)) if self.guarded else ()
        return m.case(
            search,
            (m.no(finite), lambda: reject(m.but(search, lost=value))),
            *guards,
            (falls, by_value),
            otherwise=reject,
        )


@record
class SearchMemory:
    """What the memories of methods with a line search begin with."""

    current: Sample  # x^k with its gradient, and its value where the method looks at values
    search: Search
    outcome: Outcome
    probe: Probe | None  # of the first step size; None where that is given


Beginning = tuple[Sample, Search, Outcome, Probe | None]  # its fields
S = TypeVar("S", bound=SearchMemory)


@dataclasses.dataclass(frozen=True)
class LineSearchRule(Rule[S]):
    """A method whose first step size is given, 1/L, or found by a probe; then it searches."""

    counts_as_published = True

    step_size: float | None = None
    gradient_lipschitz: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        owner, eta, L = type(self).__name__, self.step_size, self.gradient_lipschitz
        check_positive(self, "step_size", "gradient_lipschitz")
        if math.inf in (eta, L):
            raise ValueError(f"{owner}: step_size and gradient_lipschitz must be finite")
        if eta is not None and L is not None:
            raise ValueError(
                f"{owner}: step_size={eta!r} (eta) and gradient_lipschitz={L!r} (eta = 1/L) say "
                "the same thing; give one of them"
            )
        growth: float = self.parameters()["growth"]
        check(self, "growth", 1 <= growth < math.inf, "must be at least 1")

    @property
    @abc.abstractmethod
    def _line(self) -> Backtracking:
        """The search."""

    @abc.abstractmethod
    def _memory_of(self, known: Beginning) -> S:
        """The memory before the first step size is known."""

    @abc.abstractmethod
    def _searched(self, m: Machine, memory: S, search: Search, here: Sample) -> S:
        """After a search, which has come to a verdict with this evaluation."""

    def _way(self, memory: S) -> tuple[Sample, Array, float]:
        """Where the search begins, p, and <p, g>."""
        x = memory.current
        return x, x.gradient, x.grad_norm * x.grad_norm

    def begin(self, m: Machine, here: Sample, goal: Goal) -> S:
        probe, given = None, self.step_size or self.gradient_lipschitz
        if given is None:
            probe = Probe.at(m, here)
        waits = Outcome(math.nan, m.no_events, shows=False, ended=False)
        memory = self._memory_of((here, Search(1.0, 1.0, here), waits, probe))
        if probe is not None:
            return self._probe(m, memory)
        return self._with_step(m, memory, self.step_size or 1 / given)  # type: ignore[operator]

    def _probe(self, m: Machine, memory: S) -> S:
        """The next trial, until L is known."""
        probe: Any = memory.probe
        found = (probe.found, lambda: self._with_step(m, memory, 1 / probe.lipschitz))
        return m.case(memory, found)

    def _with_step(self, m: Machine, memory: S, t: float) -> S:
        """Before the first iteration, with the step size."""
        here = memory.current
        search = Search(t, t * CONSTANTS.shortest_share, here)
        search = search.begin(m, t * self._first_growth, here.grad_norm)
        # On the host the probe is over; elsewhere a memory keeps its form.
        probe, outcome = memory.probe, Outcome(t, m.no_events, shows=False)
        probe = None if isinstance(m, Host) else probe
        return m.but(memory, search=search, outcome=outcome, probe=probe)

    @property
    def _first_growth(self) -> float:
        return 1.0

    def ask(self, m: Machine, memory: S) -> Ask:
        probe, x = memory.probe, memory.current.point
        if probe is None:
            return self._ask(m, memory)
        return m.case(
            Ask(x, GRADIENT),
            (m.no(probe.found), lambda: m.passed_on(Ask(probe.point(m, x), GRADIENT), self)),
            otherwise=lambda: m.passed_on(self._ask(m, memory), self),
        )

    def tell(self, m: Machine, memory: S, here: Sample, made: Vectors, sums: Sums) -> S:
        probe = memory.probe
        if probe is None:
            return self._tell(m, memory, here)

        def answer() -> S:
            known = probe.answered(m, memory.current.point, here)
            return self._probe(m, m.but(memory, probe=known))

        tell = lambda: self._tell(m, memory, here)  # noqa: E731
        return m.case(memory, (m.no(probe.found), answer), otherwise=tell)

    # Once the first step size is known.

    def _ask(self, m: Machine, memory: S) -> Ask:
        return self._line.ask(m, memory.search, *self._way(memory))

    def _tell(self, m: Machine, memory: S, here: Sample) -> S:
        search = self._line.tell(m, memory.search, *self._way(memory), here)

        def go_on() -> S:
            waits = Outcome(search.t, m.no_events, shows=False, ended=False)
            return m.but(memory, search=search, outcome=waits)

        ended = (search.verdict != SEARCHING, lambda: self._searched(m, memory, search, here))
        return m.case(memory, ended, otherwise=go_on)

    def noise(self, memory: S) -> float:
        return memory.search.rounding.seen


@dataclasses.dataclass(frozen=True)
class GradientSteps(LineSearchRule[S]):
    """A method with a fixed step along the gradient, or one that is found by backtracking."""

    backtracking: bool | None = None
    backoff: float = 2.0
    growth: float = 1 / 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "backoff", 1 < self.backoff < math.inf, "must be above 1")
        if self.step_size is None and self.gradient_lipschitz is None and not self._backtracks:
            raise ValueError(
                f"{type(self).__name__}: without backtracking give step_size= or "
                "gradient_lipschitz="
            )

    @cached_property
    def _backtracks(self) -> bool:
        """As asked for; by default where no step size follows from what is given."""
        if self.backtracking is not None:
            return self.backtracking
        return self.step_size is None and self.gradient_lipschitz is None


def halt_status(m: Machine, here: Sample, value: float) -> int:
    """Why there is no way on from a sample: the last trial had that value."""
    status = m.where(m.isfinite(value), int(Status.NO_PROGRESS), int(Status.NON_FINITE))
    return m.where(here.grad_norm == 0.0, int(Status.COMPLETED), status)


def halted(status: Status, here: Sample, step_size: float, value: float) -> Ending:
    """The same in words; the last trial had that step size."""
    norm = here.grad_norm
    if status is Status.COMPLETED:
        return zero_gradient(step_size)
    if status is Status.NON_FINITE:
        return Ending(
            status,
            f"the objective or its gradient is not finite (the value is {value}) even for the step "
            f"size {step_size:.3g}, from a point with gradient norm {norm:.3g}; check fun and jac "
            "around result.x",
            {"grad_norm": norm, "step_size": step_size},
        )
    return no_progress(
        f"a step of size {step_size:.3g} changes the objective by no more than rounding, and "
        f"longer ones do not lower it, at gradient norm {norm:.3g}",
        grad_norm=norm,
        step_size=step_size,
    )
