"""The one loop: it steps the method, keeps track of progress, calls the observers, and stops."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np

from momentous.core.acceptance import (
    lowest_first,
    start_problem,
    verify_success,
    within_limit,
)
from momentous.core.admission import Fun, levels_to_the_user, starting_point
from momentous.core.checkpoint import Checkpoint, CheckpointError, Plain, RunState
from momentous.core.gradient_check import contradicts, find_kink, note_if_random, note_if_wrong
from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, BudgetSpentError, Oracle, Sample
from momentous.core.result import (
    OptimizeResultCompatible,
    Result,
    Trace,
    interrupt_with,
)
from momentous.core.sources import DIFFERENCE_NOISE, LEARNED_BY_DIFFERENCES, Source
from momentous.core.space import Array, Space, set_writable
from momentous.core.status import RESTARTS, Ending, Event, EventKind, Status, has_restart
from momentous.core.step import Report, Step, UnderWay
from momentous.core.stopping import (
    LEVEL_NOISE,
    MEASURED_EVERY,
    Criterion,
    Progress,
    Stand,
    decide,
    evaluation_limit,
    gradient_tolerance,
    next_look,
)
from momentous.io.types import Unchecked

Callback = Callable[["IntermediateResult"], object]

# An epoch of so many windows of a criterion may never end: its points count, where they are lower.
LONG_EPOCH = 10

# Of a gradient by differences: how many times as noisy values may be as their size tells, where
# they have not changed.  With 5,000 residuals and a scale, f the difference of two terms, it was 4.
CANCELLATION = 16.0

NOW = 0.0, math.inf  # in place of `next_look`

# An iteration of so many evaluations among the first ones, with a gradient far from zero, is what a
# line search takes on a random function: of 50 smooth ones `auto` took as many on none.
MANY_TRIALS, FIRST_ITERATIONS, FAR_FROM_ZERO = 10, range(1, 50), 1e-4
# In so many of them slopes are compared with the fall of f, which waits for a GPU twice.
COMPARED = range(1, 20)


class IntermediateResult(OptimizeResultCompatible):
    """The argument of a callback, and the item of ``iterate``, after every step.

    ``x`` is the point that the step evaluated, ``jac`` and ``grad_norm`` belong to it, and ``fun``
    does too, or is NaN if the method needed no value there (``peek()`` evaluates it, uncounted).
    ``memory`` is what the method will go on with, ``report`` what it has told the loop.
    """

    def __init__(self, run: Run):
        progress, report = run.progress, run.report
        self._oracle, self._sample = run.oracle, report.sample
        self.x: Array = report.sample.point
        self.fun: float = report.sample.value
        self.grad_norm: float = report.sample.grad_norm
        self.nit: int = progress.nit
        self.nfev: int = progress.nfev
        self.njev: int = progress.njev
        self.restarts: int = progress.restarts
        self.time: float = progress.time
        self.best_grad_norm: float = progress.best_grad_norm
        self.step_size: float = report.step_size
        self.events: tuple[Event, ...] = report.events
        self.memory: Unchecked = run.memory
        self.report: Report = dataclasses.replace(report)  # the loop makes room in its own

    @property
    def jac(self) -> Array:
        """The gradient at x (of a map: the residual)."""
        return self._oracle.arrays_at(self._sample)["jac"]

    def __getitem__(self, name: str) -> Unchecked:
        return getattr(self, name)

    def peek(self) -> float:
        """f(x), for plots only: neither counted nor timed."""
        return self._oracle.peek(self.x)

    def __repr__(self) -> str:
        noun = self._oracle.noun
        return (
            f"<iteration {self.nit}: fun {self.fun:.6g}, {noun} norm {self.grad_norm:.3g}, "
            f"{self.nfev} values, {self.njev} {noun}s, {self.restarts} restarts>"
        )


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What is asked of a run besides its function, method and start."""

    stop: Criterion
    tol: float | None  # the gradient norm that was asked for; None: none was
    seed: int = 0
    callback: Callback | None = None
    checkpoint: Checkpoint | None = None
    trace: Trace | None = None
    resume: RunState | None = None  # a run to go on with
    raises_interrupts: bool = True
    method_name: str | None = None  # as a result shows it; None: that of its class


class Run(Iterator[IntermediateResult]):
    """A minimisation under way: iterate over it, or :meth:`finish` it.

    ``next(run)`` takes one step; the iteration ends when a criterion or the method says so, and
    :attr:`result` is what was found.
    """

    def __init__(self, oracle: Oracle, method: Method, x0: Array, options: RunOptions):
        self.oracle, self.method, self._options = oracle, method, options
        self.interrupted = False  # has Ctrl-C been pressed?
        self.begun = False  # has the method taken up the start, or what was saved?
        self.progress = Progress(noun=oracle.noun)
        self.trace, self._stop = options.trace, options.stop
        self._observers = options.callback, options.checkpoint
        self.ending: Ending | None = None
        self._result: Result | None = None
        self.standing: Array | None = None  # the last of `Progress.stands`
        self.tolerance = gradient_tolerance(options.stop)
        if oracle.space.box is not None:
            oracle.space.box.set_tolerance(self.tolerance)
        self._warned = False
        # So often the run may see whether the function is random, or its gradient is not its own.
        suspect = oracle.words is not None and oracle.words.suspect
        self._looks_left = (
            0 if method.counts_as_published or oracle.words is None else 3 if suspect else 1
        )
        self._limit = limit = evaluation_limit(options.stop)
        # The sample of `best_point` is kept where no call may be left for it.
        self._best, self._keeps_best = NO_SAMPLE, limit < math.inf
        self._active = 0.0  # variables at bounds
        self._next_look = NOW
        self._way: UnderWay | None = None  # an iteration that is not committed
        self.memory: Unchecked  # the method's, after the last that is
        oracle.limit = max(limit, 1)
        self._guarded(lambda: self._begin_or_resume(x0, options.resume))

    @property
    def ended(self) -> bool:
        return self.ending is not None

    def _begin_or_resume(self, x0: Array, resume: RunState | None) -> None:
        started = perf_counter()
        try:
            if resume is None or resume.memory is None:  # a plain method that has not begun
                self._begin(x0 if resume is None else resume.best_point)
            else:
                self._resume(resume)
        except BudgetSpentError:
            self.begun = True
            self._end_at_limit(started)

    def _begin(self, x0: Array) -> None:
        started, goal = perf_counter(), (self._options.tol, self._options.seed)
        self.best_point, self.memory = x0, None
        self.report = Report(Sample(x0), math.nan)
        self.oracle.recall(self.report.sample)  # which learns what comes before Ctrl-C
        value, sample = self.oracle.value(x0), self.oracle.gradient(x0)
        self.report = Report(sample, math.nan)
        self.progress.best_grad_norm = sample.grad_norm
        if (why := start_problem(self.oracle, value, sample)) is not None:
            self.ending = Ending(Status.NON_FINITE, why, {"fun": value})
            return
        self.progress.start_fun, self.progress.start_norm = value, sample.grad_norm
        self.progress.start_size = self.oracle.space.norm(x0)
        self._best = sample if self._keeps_best else NO_SAMPLE
        if self._stop.window:
            self._take_stand(sample)
        self._way = way = self.method.set_out(self.oracle, x0, *goal)
        if way is None:
            first = self.method.start(self.oracle, x0, *goal)
            self.begun = True
            self._commit(first.memory, first.report, sample.value, started)
        else:
            self.begun = True
            self._set_out(way, started)

    def _set_out(self, way: UnderWay, started: float) -> None:
        """What a rule evaluates before the first iteration, or the rest of it."""
        value = way.shown.value
        self._commit(*self._take_step(way), value, started)

    def _take_step(self, way: UnderWay) -> tuple[Unchecked, Report]:
        """A step of the method, with the noise of values that it does not know."""
        memory, report = self.method.take_step(self.oracle, way)
        source, value = self.oracle.source, report.sample.value
        if source.by_differences and value == value:
            noise = DIFFERENCE_NOISE * source.rounding * abs(value)
            report.noise = max(report.noise, noise)
            if report.limit is not None:
                allowance = max(report.limit.allowance, noise)
                report.limit = dataclasses.replace(report.limit, allowance=allowance)
        return memory, report

    def _resume(self, saved: RunState) -> None:
        saved.require_same_method(self.method.description())
        self.progress = saved.progress
        self._require_inside(saved.best_point)
        way = saved.memory if isinstance(saved.memory, UnderWay) else None
        memory = saved.memory if way is None else way.memory
        step = self.method.with_new_tolerance(Step(memory, saved.report), self._options.tol)
        self.memory, self.report = step.memory, step.report
        self.best_point, self.standing = saved.best_point, saved.standing
        self.oracle.recall(saved.last)
        self.oracle.nfev, self.oracle.njev = self.progress.nfev, self.progress.njev
        if way is not None:
            way.memory, self._way = self.memory, way
            self.oracle.nfev, self.oracle.njev = way.nfev, way.njev
        if self.trace is not None and saved.trace is not None:
            self.trace.unpack(saved.trace.array, saved.events)
            if len(self.trace):
                self._active = float(self.trace["active"][-1])
        saved.require_same_function(self.oracle)
        if self._keeps_best:
            self.keep_best()
        self.begun = True
        if self.report.sample.point is not None:
            self.progress.acceptable = self._is_acceptable(self.report)
        if way is not None and way.sets_out:
            self._set_out(way, perf_counter())
        else:
            self._decide()

    def _require_inside(self, point: Array) -> None:
        """The box belongs to the problem, as the function does."""
        space = self.oracle.space
        if space.box is not None and space.distance(point, space.box.clip(space, point)) > 0.0:
            raise CheckpointError(
                "the checkpoint belongs to other bounds: its point lies outside of these; resume "
                "with those that it was written with, or start again"
            )

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> IntermediateResult:
        if self.ending is not None:
            raise StopIteration
        before = self.progress.nit
        self._go_on(self._advance)
        self.raise_interrupt()
        if self.progress.nit == before:  # interrupted in the middle of the step
            raise StopIteration
        return IntermediateResult(self)

    def finish(self) -> Result:
        """Run to the end."""
        if self.ending is None:
            self._go_on(self._advance_to_the_end)
        result = self.result
        self.raise_interrupt()
        return result

    def raise_interrupt(self) -> None:
        """Pass Ctrl-C on once the run is over, with what it has found."""
        if self.interrupted and self._options.raises_interrupts:
            raise interrupt_with(self.result)

    def _advance_to_the_end(self) -> None:
        while self.ending is None:
            self._advance()

    def _advance(self) -> None:
        oracle, progress, started = self.oracle, self.progress, perf_counter()
        if (way := self._way) is None:
            self._way = way = UnderWay(self.memory)
        # Make room: should this step be interrupted, the run ends with the best point.
        last = self.report
        before, told = last.accepted, (last.sample, last.limit)
        last.sample, last.limit = NO_SAMPLE, None
        if oracle.limit == math.inf:
            del told
        stand, windows, trace = None, self._stop.window, self.trace
        try:
            memory, report = self._take_step(way)
            sample = report.sample
            acceptable = not self._is_small(report) or self._is_acceptable(report)
            if self._stop.needs_value:
                oracle.learn(sample)
            if windows:
                stand = self._new_stand(report, before)
            if progress.nit >= progress.next_kink_look and self.method.ends_at_noise:
                self._look_for_kink(before, report)
            if self._looks_left and progress.nit in FIRST_ITERATIONS:
                self._doubt(before, report)
        except BudgetSpentError:
            last.sample, last.limit = told
            self._end_at_limit(started)
            return
        shown = sample.value
        if trace is not None and trace.values:
            paused = perf_counter()
            shown = oracle.peek(sample.point)
            started += perf_counter() - paused  # a value for the trace alone is not timed
        # No user code from here to the end of the commit: a step is taken as a whole or not at all.
        progress.nit += 1
        progress.acceptable = acceptable
        if windows:
            restarted = has_restart(report.events)
            if stand is not None:
                self._take_stand(stand, restarted or progress.awaits_stand)
            progress.awaits_stand = restarted and stand is None
        self._commit(memory, report, shown, started)
        # Observers: from here on nothing is timed.
        callback, checkpoint = self._observers
        if callback is not None:
            self._call(callback)
        if checkpoint is not None and checkpoint.is_due(progress.nit):
            self._autosave()
        if oracle.interrupts.pending:
            oracle.interrupts.raise_pending()

    def _end_at_limit(self, started: float) -> None:
        """No call is left: the run ends; resumed, a rule goes on with the evaluation it asked."""
        progress, oracle, trace, report = self.progress, self.oracle, self.trace, self.report
        progress.fun, progress.grad_norm = report.sample.value, report.sample.grad_norm
        progress.grad_noise = self._noise_of(report, 0)
        progress.nfev, progress.njev = oracle.nfev, oracle.njev
        progress.time += perf_counter() - started
        if trace is not None and not len(trace):
            trace.add(progress, progress.fun, report.step_size)
        self._decide()

    def _look_for_kink(self, before: Sample | None, report: Report) -> None:
        """End the run where its last step has crossed one, over a distance of rounding."""
        oracle, progress = self.oracle, self.progress
        nit, spent = progress.nit, oracle.njev
        if before is not None and report.ending is None:
            report.ending = find_kink(oracle, before, report.sample)
        # Where it was merely steep, and that took evaluations, not so soon again.
        wait = max(MEASURED_EVERY, nit // 4 if oracle.njev > spent else 0)
        progress.next_kink_look = nit - nit % MEASURED_EVERY + wait

    def _doubt(self, before: Sample | None, report: Report) -> None:
        """See to it where a step gives reason to: it took many trials or, in the hands of those who
        often err, changed f unlike the gradients say or was the last."""
        oracle, words, accepted = self.oracle, self.oracle.words, report.accepted
        if oracle.nfev - self.progress.nfev >= MANY_TRIALS:
            self._warn_if_no_function(report.sample)
            return
        if words is None or not words.suspect or before is None or accepted is None:
            return
        stuck = report.ending is not None and report.ending.status is Status.NO_PROGRESS
        compared = self.progress.nit in COMPARED and contradicts(oracle.space, before, accepted)
        if stuck or compared:
            # Of a clipped gradient the longer one is the more likely to be.
            self._warn_if_no_function(max(before, accepted, key=lambda a: a.grad_norm))

    def _warn_if_no_function(self, sample: Sample) -> None:
        """Say it once if the function gives two answers at one point, which takes a call, or its
        gradient is that of another one, which takes two to four more."""
        oracle, progress, known = self.oracle, self.progress, sample.value == sample.value
        far = progress.best_grad_norm > FAR_FROM_ZERO * progress.start_norm
        left = oracle.nfev < oracle.limit
        if not (left and far and known and sample.evaluated):
            return
        self._looks_left -= 1
        note = note_if_random(oracle, sample, progress.start_fun)
        suspect = oracle.words is not None and oracle.words.suspect
        # With a simple term values have a part that the gradient has not.
        if note is None and suspect and oracle.space.penalty is None:
            note = note_if_wrong(oracle, sample)
        if note is not None:
            self._looks_left, oracle.advice = 0, note
            warnings.warn(note, RuntimeWarning, stacklevel=levels_to_the_user("torch"))

    def _new_stand(self, report: Report, before: Sample | None) -> Sample | None:
        """The point that the method stands by from now on, with value and gradient; None while
        momentum is at work.  ``before`` is the last accepted one."""
        oracle, progress, accepted = self.oracle, self.progress, report.accepted
        epochs, restarted = self.method.has_epochs, has_restart(report.events)
        unfinished = progress.nit - progress.epoch_nit <= LONG_EPOCH * self._stop.window
        if epochs and unfinished and not restarted and not progress.awaits_stand:
            return None
        stand = report.sample
        is_new = accepted is not None and (before is None or accepted.point is not before.point)
        if is_new or (restarted and accepted is not None and accepted.point is not self.standing):
            assert accepted is not None
            stand = accepted
        elif restarted and epochs:
            return None  # a method that looks at no values: the next sample has no momentum
        if self._stop.compares_values or (epochs and oracle.has_values):
            oracle.learn(stand)
        if epochs or not is_new:  # accepted for another reason, if at all
            low = progress.stands[-1].value if progress.stands else math.nan
            unit = self._level_unit
            noise = max(unit * abs(low), unit * abs(progress.start_fun), report.noise)
            higher = stand.value > low + noise
            if higher or (epochs and stand.point is self.standing):
                return None
        if not stand.evaluated:
            oracle.recall(oracle.learn(stand, gradient=True))  # most methods need it next
        return stand

    def _take_stand(self, sample: Sample, restarted: bool = False) -> None:
        space, progress, point = self.oracle.space, self.progress, sample.point
        last = progress.stands[-1].value if progress.stands else math.nan
        move = math.inf if self.standing is None else space.distance(point, self.standing)
        value = last if sample.value > last else sample.value
        norm, begins = sample.grad_norm, restarted and self.method.has_epochs
        stand = Stand(progress.nit, value, move, space.norm(point), norm, begins)
        progress.note_stand(stand, self._stop.window)
        self.standing = point

    @property
    def _level_unit(self) -> float:
        return LEVEL_NOISE * self.oracle.source.rounding

    def _is_acceptable(self, report: Report) -> bool:
        """May the run end at the report's sample?  Asked only where the gradient is small."""
        return not self._is_small(report) or within_limit(self.oracle, report.sample, report.limit)

    def _is_small(self, report: Report) -> bool:
        """Is the gradient within the tolerance or, if it is made by differences, its noise?"""
        norm, tolerance = report.sample.grad_norm, self.tolerance
        return norm <= tolerance or (tolerance >= 0.0 and norm <= self._noise_of(report, 1))

    def _noise_of(self, report: Report, level: int) -> float:
        """How far rounding may have moved the norm of a gradient by differences; 0 of others.

        Values that cancel are noisier than their size tells.  If they have stayed level, the
        gradient need not be within the noise but near it."""
        source, sample = self.oracle.source, report.sample
        if not source.by_differences or sample.gradient is None:
            return 0.0
        noise = CANCELLATION * report.noise if level else report.noise
        return source.gradient_noise(sample.point, sample.gradient, noise)

    def _commit(self, memory: Unchecked, report: Report, shown: float, started: float) -> None:
        """Write down what the report says: progress, best point, trace, and whether it ends."""
        progress, oracle, trace, sample = self.progress, self.oracle, self.trace, report.sample
        self.memory, self.report, self._way = memory, report, None
        progress.fun = value = sample.value
        progress.grad_norm = norm = sample.grad_norm
        progress.nfev, progress.njev = oracle.nfev, oracle.njev
        if norm < progress.best_grad_norm:
            progress.best_grad_norm, progress.best_nit = norm, progress.nit
            self.best_point = sample.point
            self._best = sample if self._keeps_best else NO_SAMPLE
        change, noise = abs(value - progress.level_fun), self._level_unit * abs(value)
        if change <= noise or change <= report.noise:
            progress.level += 1
        else:
            progress.level, progress.level_fun = 0, value
        progress.grad_noise = self._noise_of(report, progress.level)
        progress.time += perf_counter() - started
        if trace is not None:
            trace.add(progress, shown, report.step_size)
            if report.events:
                trace.events += [(progress.nit, event) for event in report.events]
            if oracle.space.box is not None:
                self._note_face(trace, sample.point)
        for event in report.events:
            if event.kind in RESTARTS:
                progress.restarts, progress.epoch_nit = progress.restarts + 1, progress.nit
        # Does the run end?  Asked only where a number says that it may.
        (nit, floor), accepted = self._next_look, report.accepted
        low = value < floor or (accepted is not None and accepted.value < floor)
        small = norm <= self.tolerance or norm <= progress.grad_noise
        if progress.nit >= nit or small or low or report.ending is not None:
            self._decide()

    def _note_face(self, trace: Trace, point: Array) -> None:
        """How many variables are at bounds, where that has changed."""
        space = self.oracle.space
        active = space.box.active(space, point)
        if active != self._active:
            self._active = active
            trace.events.append((self.progress.nit, Event(EventKind.FACE, active)))

    def _decide(self) -> None:
        """Does the run end?"""
        space, progress, at_noise = self.oracle.space, self.progress, self.method.ends_at_noise
        self.ending = decide(space, self.report, progress, self._stop, at_noise)
        self._next_look = next_look(progress, self._stop)

    def _call(self, callback: Callback) -> None:
        why = "the callback asked to stop"
        try:
            with self.oracle.interrupts:
                answer = callback(IntermediateResult(self))
        except StopIteration:
            answer, why = True, "`callback` raised `StopIteration`"  # in SciPy's words
        if isinstance(answer, bool | np.bool_) and answer and self.ending is None:
            self._end(why)

    def stop(self, why: str = "the caller asked to stop") -> None:
        """End the run here."""
        if self.ending is None:
            self._end(why)
            self._autosave()

    def take_up_again(self) -> None:
        """Let a run that Ctrl-C has ended go on where it was."""
        if self.ending is not None and self.ending.status is Status.INTERRUPTED:
            self.ending = None
        self.interrupted = False

    def interrupt(self) -> None:
        """End the run here as Ctrl-C does."""
        if self.ending is None:
            self._interrupted()
            self._autosave()

    def _end(self, why: str) -> None:
        norm = self.progress.grad_norm
        message = f"{why} in iteration {self.progress.nit}, {self.oracle.noun} norm {norm:.3g}"
        self.ending = Ending(Status.STOPPED, message, {"grad_norm": norm})

    def _go_on(self, work: Callable[[], None]) -> None:
        """Out of ``next(run)`` a StopIteration of user code would look like the end of the run."""
        try:
            self._guarded(work)
        except StopIteration as error:
            raise RuntimeError(
                f"user code raised StopIteration in iteration {self.progress.nit + 1}, which would "
                "end a loop over the run as if it were done; raise another exception, or end the "
                "run by a callback that returns True"
            ) from error

    def _guarded(self, work: Callable[[], None]) -> None:
        """Ctrl-C ends the run with what it has; an exception passes on after a checkpoint."""
        with self.oracle.interrupts.held_back():
            try:
                work()
            except KeyboardInterrupt:
                self._interrupted()
            except BaseException as error:
                self._autosave(error)
                raise
            if self.ending is not None:
                self._autosave()
                self.interrupted |= self.oracle.interrupts.pending  # it has ended anyway
                self.oracle.interrupts.pending = False

    def _interrupted(self) -> None:
        self.interrupted = True
        if self.ending is None:
            norm, message = self.progress.best_grad_norm, "interrupted in the first evaluation"
            if norm < math.inf:
                message = (
                    f"interrupted after iteration {self.progress.nit}; the smallest "
                    f"{self.oracle.noun} norm so far is {norm:.3g}"
                )
            self.ending = Ending(Status.INTERRUPTED, message, {"best_grad_norm": norm})

    def _autosave(self, raised: BaseException | None = None) -> None:
        """Save, if there is a checkpoint; one that cannot be written must not cost the run, nor
        hide the exception that was raised."""
        checkpoint = self._options.checkpoint
        if checkpoint is None or not self.begun:
            return
        try:
            self.save()
        except Exception as failure:
            problem = f"the checkpoint {checkpoint.path} cannot be written ({failure})"
            if raised is not None:
                raised.add_note(f"momentous: {problem}")
            elif not isinstance(failure, OSError) or not checkpoint.is_file:
                raise
            elif not self._warned:
                self._warned = True
                remedy = "make room there, or allow writing, and the next one is saved"
                message = f"{problem}; the run goes on without: {remedy}"
                warnings.warn(message, RuntimeWarning, stacklevel=levels_to_the_user())

    def save(self) -> None:
        """Write a checkpoint now."""
        if self._options.checkpoint is None:
            raise ValueError("this run has no checkpoint file; pass checkpoint=path")
        self._options.checkpoint.save(self.state())

    def state(self) -> RunState:
        """All that is needed to go on from here: with a rule, from the evaluation that was broken
        off; with a plain method, from before that step."""
        rows, events = (None, ()) if self.trace is None else self.trace.pack()
        way, oracle = self._way, self.oracle
        last = oracle.last if way is None or way.begun else way.known
        last = None if last is NO_SAMPLE else last
        memory, progress = self.memory, self.progress
        if way is not None and way.begun:
            memory = dataclasses.replace(way, nfev=oracle.nfev, njev=oracle.njev)
        elif way is not None and way.known is not None:  # a step that will be taken again
            progress = dataclasses.replace(progress, nfev=way.nfev, njev=way.njev)
        return RunState(
            space=oracle.space.describe(),
            method=self.method.description(),
            tol=self._options.tol,
            progress=progress,
            memory=memory,
            report=self.report,
            best_point=self.best_point,
            standing=self.standing,
            last=last,
            trace=None if rows is None else Plain(rows),
            events=events,
        )

    @property
    def result(self) -> Result:
        """What was found; asking for it ends the run."""
        if self._result is None:
            self.stop()
            self._result = self._close()
        return self._result

    def _close(self) -> Result:
        assert self.ending is not None
        progress, oracle, ending = self.progress, self.oracle, self.ending
        raised = ending.numbers.get("noise", 0.0) > ending.numbers.get("tolerance", math.inf)
        if (ending.status is Status.NO_PROGRESS or raised) and oracle.advice:
            message = f"{ending.message}; {oracle.advice}"
            ending = Ending(ending.status, message, ending.numbers)
        if oracle.noun != "gradient":  # what methods call the gradient
            message = ending.message.replace("the gradient is", f"the {oracle.noun} is")
            message = message.replace("projected gradient", oracle.noun)
            ending = Ending(ending.status, message, ending.numbers)
        elif oracle.source.by_differences:
            said = ending.message.replace("the gradient is exactly zero", "all differences are 0")
            ending = Ending(ending.status, said, ending.numbers)
        started = perf_counter()
        oracle.limit = math.inf
        oracle.space.release()
        try:
            sample = self._choose(ending.status) if self.begun else self._last_known()
            if ending.status.success and ending.status.is_output:
                ending = verify_success(
                    ending, self.report, sample, oracle.space, progress.start_fun
                )
                if ending.status is Status.OBJECTIVE_ROSE:
                    sample = self._choose(ending.status)
        except KeyboardInterrupt:  # give what is known without further calls
            self.interrupted = True
            sample = self._last_known()
        if sample.grad_norm < progress.best_grad_norm:
            progress.best_grad_norm, self.best_point = sample.grad_norm, sample.point
        progress.time += perf_counter() - started
        progress.nfev, progress.njev = oracle.nfev, oracle.njev
        known = {
            "grad_norm": sample.grad_norm,
            "best_grad_norm": progress.best_grad_norm,
            "fun": sample.value,
            "nfev": progress.nfev,
            "njev": progress.njev,
        }
        ending = ending.of_point(known, oracle.noun)
        if oracle.space.box is not None and sample.gradient is not None:
            note = oracle.space.box.narrow(
                oracle.space, sample.point, sample.gradient, self.tolerance
            )
            if note:
                message = f"{ending.message}; the tolerance {note}"
                ending = Ending(ending.status, message, ending.numbers)
        for array in (sample.point, self.best_point):
            set_writable(array, True)
        more: dict[str, object] = {}
        if self.memory is not None:
            learned = self.method.inverse_hessian(oracle.space, self.memory)
            more = {} if learned is None else {"hess_inv": learned}
            if learned is not None and oracle.source.by_differences:
                learned.doubt = LEARNED_BY_DIFFERENCES
        arrays = oracle.arrays_at(sample)
        if oracle.space.box is not None and sample.gradient is not None:
            space = oracle.space
            more |= space.box.report(space, sample.point, sample.gradient, arrays["jac"])
        elif oracle.space.penalty is not None and sample.gradient is not None:
            more |= oracle.space.penalty.report(oracle.space, sample.point, sample.grad_norm)
        return Result(
            x=sample.point,
            fun=sample.value,
            **arrays,
            grad_norm=sample.grad_norm,
            success=ending.success,
            status=ending.status,
            message=ending.message,
            numbers=ending.numbers,
            nit=progress.nit,
            nfev=progress.nfev,
            njev=progress.njev,
            nhev=0,
            restarts=progress.restarts,
            time=progress.time,
            trace=self.trace,
            best_x=self.best_point,
            best_grad_norm=progress.best_grad_norm,
            method=self.method,
            method_name=self._options.method_name or self.method.name,
            **more,
        )

    def keep_best(self) -> None:
        """Keep value and gradient of the best point from now on: evaluated, and not counted, where
        a run that is resumed does not know them any more."""
        self._keeps_best, oracle = True, self.oracle
        for known in (self.report.sample, self.report.accepted, oracle.last):
            if known is not None and known.evaluated and known.point is self.best_point:
                self._best = known
                return
        self._best = oracle.evaluate_anew(self.best_point)

    def lowest_known(self, tried: Sample | None = None) -> Sample | None:
        """The point to return, if no further call is to be made."""
        seen = self._best, tried, self.report.sample, self.report.accepted
        usable = [each for each in seen if each is not None and each.has_finite_gradient]
        return next(iter(lowest_first(usable, self.oracle.space)), None) if usable else None

    def _last_known(self) -> Sample:
        """The point to return where no call is to be made, or none can help."""
        best = Sample(self.best_point, math.nan, None, self.progress.best_grad_norm)
        return best if self.report.sample.point is None else self.report.sample

    def _choose(self, status: Status) -> Sample:
        """The point to return, with value and gradient (counted where they are not known).

        A success, and a method's own output that is not above x0, is the last sample, if its value
        is finite.  Otherwise it is the lowest, by the objective, of the last sample, the point with
        the smallest gradient and the last point that the method accepted by its value.
        """
        oracle, last = self.oracle, self.report.sample
        if status is Status.MAX_EVALUATIONS:  # gradients are spent; values may be left
            for sample in (self._best, last):
                if sample.has_finite_gradient and oracle.nfev < self._limit:
                    oracle.learn(sample)
            if (known := self.lowest_known(oracle.lowest)) is not None:
                return known
        # (Not `_best` in any case: the counts of a run do not depend on who watches it.)
        best = self._best if self._limit < math.inf else Sample(self.best_point)
        candidates = [last if self.best_point is last.point else best]
        if last.point is not None:  # otherwise the run was interrupted in the middle of a step
            oracle.learn(last)
            if last.has_finite_gradient and math.isfinite(last.value):
                start = self.progress.start_fun
                low = last.value <= start + oracle.space.value_noise(start)
                if status.is_output and (status.success or low):
                    return oracle.learn(last, gradient=True)
                candidates.append(last)
        if self.report.accepted is not None:
            candidates.append(self.report.accepted)
        for sample in candidates:
            oracle.learn(sample)
        for sample in lowest_first(candidates, oracle.space):
            oracle.learn(sample, gradient=True)
            # A success has no larger gradient than the start; one of the candidates has not.
            larger = status.success and sample.grad_norm > self.progress.start_norm
            if sample.has_finite_gradient and not larger:
                return sample
        return oracle.learn(candidates[0], gradient=True)


class Layout:
    """The parts that a run is put together from, where x and the data are in one process.

    `momentous.distributed` has the layouts of many processes.
    """

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """A context in which an exception of one process ends all of them."""
        return contextlib.nullcontext()

    def start(self, x0: object) -> Array:
        """x0 as an array of our own."""
        return starting_point(x0)

    def given(self, x: object, **others: object) -> Array:
        """A point that is asked about; on ranks it and the other arguments must be the same."""
        return self.start(x)

    def space(self, start: Array) -> Space:
        """The space of x."""
        return Space(start)

    def oracle(self, source: Source) -> Oracle:
        """The oracle of a function, or of a map."""
        return Oracle(source)

    def products(self, hessp: Fun | None, space: Space) -> Fun | None:
        """Products with the Hessian of the whole function, given those of the user."""
        return hessp

    def run(self, oracle: Oracle, method: Method, x0: Array, options: RunOptions) -> Run:
        """The loop."""
        return Run(oracle, method, x0, options)
