"""The driver of rules in lanes: one evaluation of every problem per turn, and who may end.

What a turn finds is only that a lane may end.  A small gradient, which is how most end, is judged
for all of them at once; everything else is decided lane by lane by what decides it for single runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from momentous.core.acceptance import final_limit, lowest_first, rises, verify_success
from momentous.core.array_machine import Number
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import RUNNING, Ask, Goal, Rule
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import Report
from momentous.core.stopping import (
    DIVERGENCE_FACTOR,
    Criterion,
    Evaluations,
    GradientNorm,
    Iterations,
    Progress,
    Target,
    count_level,
    decide,
    flatten,
    rests,
)
from momentous.lanes.machine import Lanes

GOES_ON, CONVERGED, MAY_END = 0, 1, 2  # what a turn says of a lane


@record
class Batch:
    """Where every lane stands between two turns."""

    memory: Any  # the rule's
    shown: Sample  # the point that was reported last ...
    has_shown: Number  # ... in the iteration under way
    best: Sample  # the reported point with the smallest gradient
    last: Sample  # the point that was evaluated last
    start_value: Number
    start_norm: Number
    start_size: Number
    nfev: Number  # evaluations of value and gradient
    nit: Number
    best_nit: Number
    restarts: Number
    level: Number  # as in `Progress`
    level_fun: Number
    started: Number  # is all known that the first iteration needs?
    code: Number
    # Where evaluations are limited; otherwise they are ``shown``.
    reported: Sample  # by the last iteration that has ended
    lowest: Sample  # that was evaluated


class Asked(NamedTuple):
    """One evaluation of every lane."""

    point: Array
    known: Sample  # what is known there ...
    free: Number  # ... in these lanes, where nothing is to be evaluated
    work: Ask  # the pass over the gradient that the rule has asked for, if any


class Driver:
    """A rule, and when its runs end."""

    # Of problems that have no bound, where others have some: they run as without bounds=.
    unbounded: Driver | None = None
    advice = ""  # where a run makes no progress
    grad_noise = 0.0  # of gradients by differences
    is_unbounded: Sequence[bool] = ()

    def __init__(
        self, m: Lanes, rule: Rule[Any], tol: float | None, *, max_iterations: int | None = None,
        max_evaluations: int | None = None, target: float | None = None, seed: int = 0,
        values: int = 1,
    ):  # fmt: skip
        self.m, self.rule, self.goal, self.noun = m, rule, Goal(tol, seed), m.noun
        self.values = values  # that an evaluation takes
        goal = rule.tolerance_for(tol)
        self.tolerance = float(goal) if goal and rule.stops_at_tolerance else -math.inf
        if m.box is not None:
            m.box.set_tolerance(self.tolerance)
        criteria: list[Criterion] = [] if self.tolerance < 0 else [GradientNorm(self.tolerance)]
        criteria += [] if target is None else [Target(target)]
        evaluations = None if max_evaluations is None else Evaluations(max_evaluations)
        iterations = None if max_iterations is None else Iterations(max_iterations)
        criteria += [limit for limit in (evaluations, iterations) if limit is not None]
        self.stop = flatten(criteria)
        self.target = -math.inf if target is None else float(target)
        self.max_evaluations = math.inf if evaluations is None else evaluations.limit
        self.max_iterations = math.inf if iterations is None else iterations.limit

    def of(self, problem: int) -> Driver:
        """The driver of a problem that has a machine of its own."""
        free = self.unbounded
        return free if free is not None and self.is_unbounded[problem] else self

    def begin(self, here: Sample) -> Batch:
        """After the evaluation at the starts."""
        m = self.m
        one, infinity = m.full(1), m.full(math.inf)
        m.spent = 2 * one
        memory = self.rule.begin(m, here, self.goal)
        best = Sample(here.point, here.value, here.gradient, infinity)
        batch = Batch(
            memory, here, one > 0, best, here, here.value, here.grad_norm, m.norm(here.point), one,
            0 * one, 0 * one, 0 * one, 0 * one, infinity, one < 0, 0 * one, here, here,
        )  # fmt: skip
        batch = self._commit(batch)
        usable = m.isfinite(here.value) & m.isfinite(here.grad_norm)
        return m.but(batch, code=m.where(usable, batch.code, MAY_END))

    def ask(self, batch: Batch) -> Asked:
        """Where to evaluate; and what is known there, in the lanes for which that is said."""
        m, last = self.m, batch.last
        ask = self.rule.ask(m, batch.memory)
        point, known = m.inside(ask.point), ask.known
        free = m.same(point, last.point)
        if known.point is not None and known.gradient is not None:
            also = m.same(point, known.point) & m.no(free)
            last, free = m.choose(also, known, last), free | also
        return Asked(point, last, free, Ask(None, vectors=ask.vectors, numbers=ask.numbers))

    @property
    def is_limited(self) -> bool:
        """Is there a limit to evaluations?"""
        return self.max_evaluations < math.inf

    def at_limit(self, batch: Batch, asked: Asked) -> Number:
        """Which lanes ask for an evaluation where none is left?"""
        return self.m.no(asked.free) & (self.values * batch.nfev >= self.max_evaluations)

    def sample(self, point: Array, value: Array, gradient: Array) -> Sample:
        """What an evaluation has found."""
        m, kinks = self.m, self.m.box or self.m.penalty
        if m.penalty is not None:
            value = value + m.penalty.total(m, point)
            gradient = m.penalty.smooth(m, point, gradient)
        norm = m.norm(gradient) if kinks is None else kinks.size(m, point, gradient)
        return Sample(point, value, gradient, m.where(m.isfinite(value), norm, math.nan))

    def turn(self, batch: Batch, here: Sample, asked: Asked) -> Batch:
        """After an evaluation."""
        m, rule = self.m, self.rule
        nfev = batch.nfev + m.where(asked.free, 0, 1)
        m.spent = 2 * nfev
        work = m.run_pass(rule, asked.work, here)
        memory = rule.write(m, rule.tell(m, batch.memory, here, *work))
        shows, ended = memory.outcome.shows, memory.outcome.ended
        shown = m.choose(shows, here, batch.shown)
        has_shown = batch.has_shown | shows
        nothing_new = m.no(has_shown) & ended  # then it is where the method stands
        shown = m.case(
            shown, (nothing_new, lambda: m.choose(nothing_new, rule.accepted(memory), shown))
        )
        # The first iteration begins at the start.
        last = m.choose(ended & m.no(batch.started), shown, here)
        lowest = shown
        if self.is_limited:
            lower = m.isfinite(here.grad_norm) & (here.value < batch.lowest.value)
            lowest = m.choose(lower, here, batch.lowest)
        return self._commit(
            m.but(
                batch, memory=memory, shown=shown, has_shown=has_shown, last=last, nfev=nfev,
                lowest=lowest,
            )
        )  # fmt: skip

    def _commit(self, batch: Batch) -> Batch:
        """Where an iteration has ended: counts, the best point, and whether the lane may end."""
        m, rule, memory, shown = self.m, self.rule, batch.memory, batch.shown
        ended, outcome = memory.outcome.ended, memory.outcome
        nit = batch.nit + m.where(ended & batch.started, 1, 0)
        better = ended & (shown.grad_norm < batch.best.grad_norm)
        value, noise = shown.value, rule.noise(memory)
        level, level_fun = count_level(m, batch.level, batch.level_fun, value, noise)
        best_nit, level = m.where(better, nit, batch.best_nit), m.where(ended, level, batch.level)
        accepted = rule.accepted(memory)
        small = ended & (shown.grad_norm <= self.tolerance) & m.isfinite(value)
        lowest = m.where(value <= accepted.value, value, accepted.value)
        falls = batch.start_value - lowest > DIVERGENCE_FACTOR * batch.start_norm
        ends = (outcome.status != RUNNING) | (value <= self.target) | falls
        ends = (
            ends | (self.values * batch.nfev >= self.max_evaluations) | (nit >= self.max_iterations)
        )
        ends = ends | ((nit % 32 == 0) & m.no(m.inner(shown.point, shown.point) < m.largest))
        if rule.ends_at_noise:
            ends = ends | rests(level, nit - best_nit)
        code: Number = m.where(ended & ends, MAY_END, GOES_ON)
        return m.but(
            batch,
            nit=nit,
            best=m.choose(better, shown, batch.best),
            reported=m.choose(ended, shown, batch.reported) if self.is_limited else shown,
            best_nit=best_nit,
            restarts=batch.restarts + m.where(ended, m.restarts(outcome.events), 0),
            level=level,
            level_fun=m.where(ended, level_fun, batch.level_fun),
            has_shown=batch.has_shown & m.no(ended),
            started=batch.started | ended,
            code=m.case(code, (small, lambda: self._converged(batch, small, code))),
        )

    def _converged(self, batch: Batch, small: Number, code: Number) -> Number:
        """May these runs end at a small gradient?  Where f has risen it is not said here."""
        m, rule, shown = self.m, self.rule, batch.shown
        limit = rule.rise_limit(m, batch.memory, shown)
        fine = True if limit is None else m.no(rises(m, shown, limit))
        accepted = rule.accepted(batch.memory)
        last = final_limit(m, accepted, batch.start_value, rule.noise(batch.memory))
        sure = (accepted.value != accepted.value) | m.no(rises(m, shown, last))
        return m.where(small & fine, m.where(sure, CONVERGED, MAY_END), code)

    # One lane, on the host.

    def finish(
        self, lane: Batch, machine: Host, why: Callable[[float, str], Ending] | None = None
    ) -> tuple[Ending, Sample] | None:
        """How one lane has ended on its host, and at which point; None: it goes on.

        ``why`` makes the ending of a run that was stopped, of its smallest gradient norm and of
        what that is a norm of.
        """
        space, rule, memory, shown = machine.space, self.rule, lane.memory, lane.reported
        outcome = memory.outcome
        progress = Progress(
            nit=lane.nit, nfev=self.values * lane.nfev, njev=lane.nfev, restarts=lane.restarts,
            grad_norm=shown.grad_norm, start_fun=lane.start_value, start_norm=lane.start_norm,
            start_size=lane.start_size, fun=shown.value, best_grad_norm=lane.best.grad_norm,
            best_nit=lane.best_nit, level=lane.level, level_fun=lane.level_fun, noun=self.noun,
            grad_noise=self.grad_noise if self.noun == "gradient" else 0.0,
        )  # fmt: skip
        if not (math.isfinite(lane.start_value) and math.isfinite(lane.start_norm)):
            return bad_start(lane.start_value), shown
        own, limit = None, rule.rise_limit(machine, memory, shown)
        if outcome.status != RUNNING and outcome.ended:
            own = rule.ending(memory, shown, Status(outcome.status))
        report = Report(
            shown, outcome.step_size, (), own, rule.accepted(memory), rule.noise(memory), limit,
        )  # fmt: skip
        if shown.grad_norm <= self.tolerance and limit is not None:
            progress.acceptable = not rises(machine, shown, limit)
        decided = decide(space, report, progress, self.stop, rule.ends_at_noise)
        ending = decided if why is None else why(lane.best.grad_norm, self.noun)
        if ending is None:
            return None
        sample = self._choose(lane, report, ending.status)
        if ending.status.success and ending.status.is_output:
            ending = verify_success(ending, report, sample, space, lane.start_value)
            if ending.status is Status.OBJECTIVE_ROSE:
                sample = self._choose(lane, report, ending.status)
        known = {
            "grad_norm": sample.grad_norm, "best_grad_norm": lane.best.grad_norm,
            "fun": sample.value, "nfev": progress.nfev, "njev": lane.nfev,
        }  # fmt: skip
        ending = ending.of_point(known, progress.noun)
        if ending.status is Status.NO_PROGRESS and self.advice:
            message = f"{ending.message}; {self.advice}"
            ending = Ending(ending.status, message, ending.numbers)
        if progress.noun != "gradient":  # as rules call it
            message = ending.message.replace("the gradient is", f"the {progress.noun} is")
            ending = Ending(ending.status, message, ending.numbers)
        return ending, sample

    def _choose(self, lane: Batch, report: Report, status: Status) -> Sample:
        """As `Run` does, of points that are known."""
        space, last, accepted = self.m.space, lane.reported, report.accepted
        known = [] if accepted is None or accepted.gradient is None else [accepted]
        if status is Status.MAX_EVALUATIONS:
            known = [lane.best, lane.lowest, last, *known]
            known = [sample for sample in known if math.isfinite(sample.grad_norm)]
            return next(iter(lowest_first(known, space) if known else []), last)
        if math.isfinite(last.grad_norm) and math.isfinite(last.value):
            low = last.value <= lane.start_value + space.value_noise(lane.start_value)
            if status.is_output and (status.success or low):
                return last
        candidates = [lane.best, last, *known]
        for sample in lowest_first(candidates, space):
            larger = status.success and sample.grad_norm > lane.start_norm
            if math.isfinite(sample.grad_norm) and not larger:
                return sample
        return candidates[0]


def bad_start(value: float) -> Ending:
    """A run that cannot begin, for which `minimize` raises an exception."""
    what = "the gradient at x0 is not finite" if math.isfinite(value) else f"fun(x0) is {value}"
    message = f"{what}; start where objective and gradient are finite"
    return Ending(Status.NON_FINITE, message, {"fun": value})
