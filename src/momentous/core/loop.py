"""The one loop: it steps the method, keeps the score, tells the observers, and stops."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np

from momentous.core.arrays import Array, set_writable, to_numpy
from momentous.core.checkpoint import Checkpoint, CheckpointError, Plain
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.result import Result
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.stopping import Criterion, Progress, gradient_tolerance
from momentous.core.trace import Trace

Callback = Callable[["IntermediateResult"], Any]

RESTARTS = frozenset({EventKind.RESTART, EventKind.ROLLBACK})


class IntermediateResult:
    """What a callback gets and ``iterate`` yields after every step.

    ``x`` is the point that the step evaluated, ``jac`` and ``grad_norm`` belong to it, and ``fun``
    does too, or is NaN if the method needed no value there (``peek()`` evaluates it, uncounted).
    """

    __slots__ = (
        "_oracle", "best_grad_norm", "events", "fun", "grad_norm", "jac", "nfev", "nit", "njev",
        "restarts", "state", "step_size", "time", "x",
    )  # fmt: skip

    def __init__(self, run: Run):
        progress, sample = run.progress, run.state.sample
        self._oracle = run.oracle
        self.x: Array = sample.point
        self.fun: float = sample.value
        self.jac: Array = sample.gradient
        self.grad_norm: float = sample.grad_norm
        self.nit: int = progress.nit
        self.nfev: int = progress.nfev
        self.njev: int = progress.njev
        self.restarts: int = progress.restarts
        self.time: float = progress.time
        self.best_grad_norm: float = progress.best_grad_norm
        self.step_size: float = run.state.step_size
        self.events: tuple[Event, ...] = run.state.events
        self.state: State = run.state

    def peek(self) -> float:
        """f(x), for the eye only: neither counted nor timed."""
        return self._oracle.peek(self.x)

    def __repr__(self) -> str:
        return (
            f"<iteration {self.nit}: fun {self.fun:.6g}, gradient norm {self.grad_norm:.3g}, "
            f"{self.nfev} values, {self.njev} gradients, {self.restarts} restarts>"
        )


class Run(Iterator[IntermediateResult]):
    """A minimisation under way: iterate over it, or :meth:`finish` it.

    ``next(run)`` takes one step; the iteration ends when a criterion or the method says so, and
    :attr:`result` is what was found.
    """

    def __init__(
        self,
        oracle: Oracle,
        method: Method,
        x0: Array,
        *,
        stop: Criterion,
        tol: float | None,
        seed: int,
        callback: Callback | None = None,
        checkpoint: Checkpoint | None = None,
        trace: Trace | None = None,
        resume: dict[str, Any] | None = None,
    ):
        self.oracle = oracle
        self.method = method
        self.progress = Progress()
        self.trace = trace
        self.ending: Ending | None = None
        self._stop = stop
        self._callback = callback
        self._checkpoint = checkpoint
        self._result: Result | None = None
        self._tolerance = gradient_tolerance(stop)
        self._tol = tol
        if resume is None:
            self._begin(x0, tol, seed)
        else:
            self._take_up(resume, tol)
        if self.ended and checkpoint is not None:
            self.save()

    @property
    def ended(self) -> bool:
        return self.ending is not None

    def _begin(self, x0: Array, tol: float | None, seed: int) -> None:
        started = perf_counter()
        value, sample = self.oracle.value(x0), self.oracle.gradient(x0)
        _require_finite(value, sample)
        self.progress.start_fun = value
        self.best_point = x0
        self._commit(self.method.start(self.oracle, x0, tol, seed), sample.value, started)

    def _take_up(self, content: dict[str, Any], tol: float | None) -> None:
        described = self.method.described()
        if content["method"] != described:
            raise CheckpointError(
                f"the checkpoint was written by {content['method']}, not by {described}; "
                "leave method out to go on with the method of the checkpoint"
            )
        self.progress = content["progress"]
        self.state = self.method.with_tolerance(content["state"], tol)
        self.best_point = content["best_point"]
        self.oracle.nfev, self.oracle.njev = self.progress.nfev, self.progress.njev
        if content["last"] is not None:
            self.oracle.recall(content["last"])
        if self.trace is not None and content["trace"] is not None:
            self.trace.unpack(content["trace"], content["events"])
        self._judge()

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> IntermediateResult:
        if self.ending is not None:
            raise StopIteration
        before = self.progress.nit
        self._guarded(self._advance)
        if self.progress.nit == before:  # interrupted in the middle of the step
            raise StopIteration
        return IntermediateResult(self)

    def finish(self) -> Result:
        """Run to the end."""
        if self.ending is None:
            self._guarded(self._advance_to_the_end)
        return self.result

    def _advance_to_the_end(self) -> None:
        while self.ending is None:
            self._advance()

    def _advance(self) -> None:
        oracle, started = self.oracle, perf_counter()
        oracle.begin_step()
        state = self.method.step(oracle, self.state)
        small = state.sample.grad_norm <= self._tolerance
        stands = not small or self.method.stands_by(oracle, state)
        if self._stop.needs_value:
            oracle.learn_value(state.sample)
        seen, looking = self._look(state.sample)
        # No user code from here to the end of the commit: a step is taken as a whole or not at all.
        self.progress.nit += 1
        self._commit(state, seen, started + looking, stands)
        # Observers: from here on nothing is timed.
        if self._callback is not None:
            self._tell(self._callback)
        if self._checkpoint is not None and self._checkpoint.is_due(self.progress.nit):
            self.save()
        oracle.interrupts.raise_pending()

    def _look(self, sample: Sample) -> tuple[float, float]:
        """The value to show in the trace, and how long it took to get it for that purpose alone."""
        if self.trace is None or not self.trace.values:
            return sample.value, 0.0
        started = perf_counter()
        seen = self.oracle.peek(sample.point)
        return seen, perf_counter() - started

    def _commit(self, state: State, seen: float, started: float, stands: bool = True) -> None:
        """Write down what the state says: scoreboard, best point, trace, and whether it ends."""
        progress, oracle, sample = self.progress, self.oracle, state.sample
        self.state = state
        oracle.end_step()
        progress.fun = sample.value
        progress.grad_norm = norm = sample.grad_norm
        progress.nfev, progress.njev = oracle.nfev, oracle.njev
        if norm < progress.best_grad_norm:
            progress.best_grad_norm, progress.best_nit = norm, progress.nit
            self.best_point = sample.point
        for event in state.events:
            progress.restarts += event.kind in RESTARTS
        progress.time += perf_counter() - started
        if self.trace is not None:
            self.trace.add(progress, seen, state.step_size)
            for event in state.events:
                self.trace.events.append((progress.nit, event))
        self._judge(stands)

    def _judge(self, stands: bool = True) -> None:
        """What was asked for, if it is reached, goes before the method's own reason to end.

        A gradient that is small where the method would not stay is no reason.
        """
        progress, own = self.progress, self.state.ending
        if not stands:
            progress = dataclasses.replace(progress, grad_norm=math.inf)
        asked = self._stop.check(progress)
        self.ending = own if own is not None and not (asked and asked.status.success) else asked

    def _tell(self, callback: Callback) -> None:
        try:
            with self.oracle.interrupts:
                answer = callback(IntermediateResult(self))
        except StopIteration:
            answer = True
        if isinstance(answer, bool | np.bool_) and answer and self.ending is None:
            self.stop("the callback asked to stop")

    def stop(self, why: str = "the caller asked to stop") -> None:
        """End the run here."""
        if self.ending is None:
            norm = self.progress.grad_norm
            message = f"{why} in iteration {self.progress.nit}, gradient norm {norm:.3g}"
            self.ending = Ending(Status.STOPPED, message, {"grad_norm": norm})

    def _guarded(self, work: Callable[[], None]) -> None:
        """Ctrl-C ends the run with what it has; an exception passes on after a checkpoint."""
        with self.oracle.interrupts.held_back():
            try:
                work()
            except KeyboardInterrupt:
                self._interrupted()
            except BaseException as error:
                self._save_before(error)
                raise
            if self.ending is not None:
                if self._checkpoint is not None:
                    self.save()
                self.oracle.interrupts.pending = False  # it has ended anyway

    def _interrupted(self) -> None:
        if self.ending is None:
            norm = self.progress.best_grad_norm
            self.ending = Ending(
                Status.INTERRUPTED,
                f"interrupted after iteration {self.progress.nit}; the smallest gradient norm so "
                f"far is {norm:.3g}",
                {"best_grad_norm": norm},
            )

    def _save_before(self, error: BaseException) -> None:
        if self._checkpoint is None:
            return
        try:
            self.save()
        except Exception as failure:
            error.add_note(f"momentous could not write the checkpoint before that: {failure}")

    def save(self) -> None:
        """Write a checkpoint now."""
        if self._checkpoint is None:
            raise ValueError("this run has no checkpoint file; pass checkpoint=path")
        content = {
            "method": self.method.described(),
            "tol": self._tol,
            "space": self.oracle.space.describe(),
            "progress": self.progress,
            "state": self.state,
            "best_point": self.best_point,
            "last": self.oracle.carried,
            "trace": None,
            "events": [],
        }
        if self.trace is not None:
            rows, content["events"] = self.trace.pack()
            content["trace"] = Plain(rows)
        self._checkpoint.save(content)

    @property
    def result(self) -> Result:
        """What was found; asking for it ends the run."""
        if self._result is None:
            if self.ending is None:
                self.stop()
                if self._checkpoint is not None:
                    self.save()
            self._result = self._close()
        return self._result

    def _close(self) -> Result:
        assert self.ending is not None
        progress, oracle, ending = self.progress, self.oracle, self.ending
        started = perf_counter()
        oracle.space.release()
        try:
            sample = self._choose(ending.status)
            if ending.status.success:
                ending = self._doubted(ending, sample)
        except KeyboardInterrupt:  # give what is known without further calls
            sample = self.state.sample
            if sample.point is None:
                sample = Sample(self.best_point, math.nan, None, progress.best_grad_norm)
        if sample.grad_norm < progress.best_grad_norm:
            progress.best_grad_norm, self.best_point = sample.grad_norm, sample.point
        progress.time += perf_counter() - started
        progress.nfev, progress.njev = oracle.nfev, oracle.njev
        for array in (sample.point, self.best_point):
            set_writable(array, True)
        return Result(
            x=sample.point,
            fun=sample.value,
            jac=sample.gradient,
            grad_norm=sample.grad_norm,
            success=ending.status.success,
            status=ending.status,
            message=ending.message,
            numbers=ending.numbers,
            nit=progress.nit,
            nfev=progress.nfev,
            njev=progress.njev,
            restarts=progress.restarts,
            time=progress.time,
            trace=self.trace,
            best_x=self.best_point,
            best_grad_norm=progress.best_grad_norm,
            method=self.method,
        )

    def _choose(self, status: Status) -> Sample:
        """The point to return, with value and gradient (counted where they are not known).

        A success, and a method's own output, is the last sample, if its value is finite.  Otherwise
        it is the lowest, by the objective, of the last sample, the point with the smallest gradient
        and the last point that the method accepted by its value.
        """
        oracle, last = self.oracle, self.state.sample
        candidates = [Sample(self.best_point)]
        if last.point is not None:  # otherwise the run was interrupted in the middle of a step
            oracle.recall(last)
            oracle.value(last.point)
            if last.finite and math.isfinite(last.value):
                if status.is_output or self.best_point is last.point:
                    return oracle.gradient(last.point)
                candidates.append(last)
        if self.state.accepted is not None:
            candidates.append(self.state.accepted)
        for sample in candidates:
            oracle.recall(sample)
            sample.value = oracle.value(sample.point)
        usable = [sample for sample in candidates if math.isfinite(sample.value)]
        usable.sort(key=lambda sample: sample.value)
        if usable and candidates[0] in usable:
            noise = oracle.space.value_noise(usable[0].value)
            if candidates[0].value <= usable[0].value + noise:
                return self._known(candidates[0])  # as low, and with the smallest gradient
        for sample in usable:
            known = self._known(sample)
            if known.finite:
                return known
        return self._known(candidates[0])

    def _known(self, sample: Sample) -> Sample:
        """The sample with its gradient."""
        self.oracle.recall(sample)
        return self.oracle.gradient(sample.point)

    def _doubted(self, ending: Ending, chosen: Sample) -> Ending:
        """A small gradient is no success where f is not finite, or has risen without reason."""
        last, accepted = self.state.sample, self.state.accepted
        numbers = ending.numbers | {"fun": last.value}
        if chosen.point is not last.point or not math.isfinite(last.value):
            message = f"{ending.message}, but the objective there is {last.value}"
            return Ending(Status.NON_FINITE, message, numbers)
        if accepted is None:
            return ending
        rise = last.value - accepted.value
        scale = max(abs(last.value), abs(accepted.value), abs(self.progress.start_fun))
        if rise > max(math.sqrt(self.oracle.space.rounding) * scale, self.state.value_noise):
            # Nor can a convex function have risen by more than |grad f(x)| |x - x0|.
            square = self.oracle.space.distance_squared(last.point, accepted.point)
            if rise > last.grad_norm * math.sqrt(square):
                message = (
                    f"{ending.message}, but the objective has risen from {accepted.value:.6g} to "
                    f"{last.value:.6g}: jac is not the gradient of fun, or the step size is too "
                    "large"
                )
                return Ending(Status.OBJECTIVE_ROSE, message, numbers)
        return ending


def _require_finite(value: float, sample: Sample) -> None:
    if not math.isfinite(value):
        raise ValueError(f"fun(x0) is {value}; start where the objective is finite")
    if not sample.finite:
        gradient = to_numpy(sample.gradient)
        bad = np.argwhere(~np.isfinite(gradient))
        if not len(bad):
            raise ValueError("the norm of the gradient at x0 overflows; rescale the objective")
        first = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"the gradient at x0 has {len(bad)} non-finite of {gradient.size} entries, the first "
            f"at index {first} ({gradient[tuple(bad[0])]}); start where the gradient is finite"
        )
