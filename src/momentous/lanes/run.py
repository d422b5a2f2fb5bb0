"""A batch under way: evaluate, take a turn, let those leave that have ended."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from momentous.core.admission import levels_to_the_user
from momentous.core.checkpoint import Checkpoint
from momentous.core.machine import Host
from momentous.core.oracle import InterruptFlag
from momentous.core.space import Array, to_numpy
from momentous.core.status import Ending, Status
from momentous.lanes import saved
from momentous.lanes.driver import CONVERGED, GOES_ON, MAY_END, Batch, Driver
from momentous.lanes.function import BatchFunction
from momentous.lanes.machine import gathered, leaves, one_lane
from momentous.lanes.result import ManyResult
from momentous.lanes.saved import BatchState, EndedRows

# Lanes that have ended are dropped as soon as fewer than this share of all is left: before that it
# costs less to carry them along.
SHARE_LEFT = 0.7


# What is kept of a run that has ended, besides its points.
NUMBERS = ("fun", "grad_norm", "best_grad_norm", "nit", "nfev", "restarts", "time", "status")
WHOLE = ("nit", "nfev", "restarts", "status")


class ManyRun:
    """Many runs of one rule."""

    def __init__(
        self, function: BatchFunction, driver: Driver, starts: Array, *,
        max_time: float | None = None, checkpoint: Checkpoint | None = None,
        progress: Callable[[int, int], None] | None = None, resume: BatchState | None = None,
    ):  # fmt: skip
        self.function, self.driver, self.m, self.starts = function, driver, driver.m, starts
        self.total = starts.shape[0]
        self.interrupts = InterruptFlag()
        self._max_time = math.inf if max_time is None else max_time
        self._checkpoint, self._progress, self._turns = checkpoint, progress, 0
        self._warned = False
        self.rows: list[EndedRows] = []
        self.numbers = {
            name: np.zeros(self.total, int if name in WHOLE else float) for name in NUMBERS
        }
        self.endings: dict[str, Ending] = {}  # by the numbers of problems, as a file has them
        self.batch: Any = None
        self.problems = np.arange(self.total)  # of the lanes
        self.running = np.ones(self.total, bool)
        self._began = perf_counter()
        if resume is not None:
            self.batch, self.rows, self.endings = resume.batch, resume.rows, resume.endings
            self.numbers, self.problems = resume.numbers, to_numpy(resume.problems)
            self.running = to_numpy(resume.running)
            self._began -= resume.time
            self.m.enter(self.problems)

    @property
    def time(self) -> float:
        return perf_counter() - self._began

    def finish(self) -> ManyResult:
        """Run to the end.  Ctrl-C, and an exception of the user's function, leave with what was
        found as ``result``."""
        with self.interrupts.held_back():
            try:
                self._run()
            except BaseException as error:
                self._autosave()  # before those that still run are ended
                if self.batch is not None:
                    status, why = Status.STOPPED, f"stopped by a {type(error).__name__} of fun"
                    if isinstance(error, KeyboardInterrupt):
                        status, why = Status.INTERRUPTED, "interrupted"
                    self._stop(status, why)
                    with contextlib.suppress(AttributeError):
                        error.result = self.result  # type: ignore[attr-defined]
                raise
            self._autosave()
            return self.result

    def _run(self) -> None:
        self._prepare()
        self._begin() if self.batch is None else self._go_on()
        while self.running.any():
            self._turns += 1
            self._turn()
            if self.running.any() and self.time > self._max_time:
                self._stop(
                    Status.MAX_TIME, f"{self._max_time:.3g} s are spent,", "raise max_time to go on"
                )
            if self._progress is not None:
                self._progress(self.total - int(self.running.sum()), self.total)
            if self._checkpoint is not None and self._checkpoint.is_due(self._turns):
                self._autosave()
            self.interrupts.raise_pending()

    def _prepare(self) -> None:
        """Before the first evaluation."""

    def _begin(self) -> None:
        here = self._evaluate(self.starts)
        self._take(lambda: self.driver.begin(self.driver.sample(self.starts, *here)))

    def _go_on(self) -> None:
        batch = self.batch
        self._resize()
        self._take(lambda: batch)

    def _turn(self) -> None:
        driver, m, batch = self.driver, self.m, self.batch
        # A turn may be taken twice: nothing of it may depend on what is asked after it.
        asked = self._asked
        point, known, free, _ = asked
        needed = np.flatnonzero(self.running & ~self._is_known)
        if len(needed) == m.size:
            values, gradients = self._evaluate(point)
        elif len(needed):
            values, gradients = self._evaluate(self.m.rows(point, needed), needed)
            place = np.zeros(m.size, np.int64)
            place[needed] = np.arange(len(needed))
            values, gradients = self.m.rows(values, place), self.m.rows(gradients, place)

        def work() -> Batch:
            here = known
            if len(needed):
                here = m.choose(free, known, driver.sample(point, values, gradients))
            return driver.turn(batch, here, asked)

        self._take(work)

    def _evaluate(self, points: Array, lanes: np.ndarray | None = None) -> tuple[Array, Array]:
        problems = self.problems if lanes is None else self.problems[lanes]
        with self.interrupts:
            return self.function(points, None if len(problems) == self.total else problems)

    def _take(self, work: Callable[[], Batch]) -> None:
        """A turn, what is asked next, and what the host has to know of it, in one transfer."""
        m, xp, guesses = self.m, self.m.xp, self.m.guesses
        with np.errstate(all="ignore"):
            while True:
                if guesses is not None:
                    guesses.begin()
                batch = work()
                self._asked = asked = self.driver.ask(batch)
                if self.driver.is_limited:
                    spent = (batch.code == GOES_ON) & self.driver.at_limit(batch, asked)
                    batch = m.but(batch, code=m.where(spent, MAY_END, batch.code))
                told = m.where(self._asked.free, 4, 0) + batch.code + xp.zeros_like(batch.nfev)
                if guesses is None:
                    found = to_numpy(told)
                    break
                flags = [xp.astype(flag, told.dtype)[None] for _, flag in guesses.skipped]
                found = to_numpy(xp.concat([told, *flags]))
                if not guesses.learn(found[m.size :]):
                    break
            self.batch, self._is_known = batch, found[: m.size] >= 4
            self._leave(found[: m.size] % 4)

    def _leave(self, codes: np.ndarray) -> None:
        """Who has ended leaves; the others move together where many have."""
        batch, m = self.batch, self.m
        converged = np.flatnonzero(self.running & (codes == CONVERGED))
        if len(converged):
            index = m.xp.asarray(converged, device=m.device)
            self._keep(converged, gathered(m.but(batch, memory=None, last=None), index))
        self._finish(np.flatnonzero(self.running & (codes > CONVERGED)))
        left = np.flatnonzero(self.running)
        if 0 < len(left) < SHARE_LEFT * m.size:
            index = m.xp.asarray(left, device=m.device)
            self.batch, self._asked = gathered((batch, self._asked), index)
            self._is_known, self.problems = self._is_known[left], self.problems[left]
            self.running = np.ones(len(left), bool)
            m.enter(self.problems)
        self._resize()

    def _resize(self) -> None:
        m, all_run = self.m, self.running.all()
        live = None if all_run else m.xp.asarray(self.running, device=m.device)
        m.resize(len(self.running), live)

    def _finish(self, lanes: np.ndarray, why: Callable[[float, str], Ending] | None = None) -> None:
        """Those of the lanes that have ended, one by one on the host."""
        if not len(lanes):
            return
        m = self.m
        part = leaves(_on_host, gathered(self.batch, m.xp.asarray(lanes, device=m.device)))
        for i, lane in enumerate(lanes.tolist()):
            self._finish_one(lane, one_lane(part, i), self.driver, m.host(lane), why)

    def _finish_one(
        self, lane: int, batch: Batch, driver: Driver, machine: Host,
        why: Callable[[float, str], Ending] | None,
    ) -> bool:  # fmt: skip
        """Has it ended?  The batch is this lane's, as a single run has it."""
        ended = driver.finish(batch, machine, why)
        if ended is None:
            return False
        ending, batch.shown = ended
        self.endings[str(self.problems[lane])] = ending
        self._keep(
            np.array([lane]),
            leaves(_one_row, Host.but(batch, memory=None, last=None)),
            ending.status,
        )
        return True

    def _keep(self, lanes: np.ndarray, batch: Batch, status: Status = Status.CONVERGED) -> None:
        """What is known of lanes that have ended, with ``shown`` as their solutions."""
        problems, sample, best = self.problems[lanes], batch.shown, batch.best
        found = (
            sample.value, sample.grad_norm, best.grad_norm, batch.nit, batch.nfev, batch.restarts,
            self.time, int(status),
        )  # fmt: skip
        for name, numbers in zip(NUMBERS, found, strict=True):
            self.numbers[name][problems] = _on_host(numbers)
        start = (to_numpy(a) for a in (batch.start_value, batch.start_norm))
        self.rows.append(EndedRows(problems, sample.point, sample.gradient, best.point, *start))
        self.running[lanes] = False

    def _stop(self, status: Status, why: str, advice: str = "") -> None:
        """End all runs that are still under way."""

        def ending(norm: float, noun: str) -> Ending:
            message = f"{why} with {noun} norm {norm:.3g}" + (f"; {advice}" if advice else "")
            return Ending(status, message, {"grad_norm": norm})

        self._finish(np.flatnonzero(self.running), ending)

    @property
    def result(self) -> ManyResult:
        """Of all runs, once they have ended."""
        m, xp, function = self.m, self.m.xp, self.function
        # Rows that are on the host come first, and go to the device of the lanes together.
        kept = sorted(self.rows, key=lambda each: not isinstance(each.x, np.ndarray))
        order = np.argsort(np.concatenate([each.problems for each in kept]))
        host = sum(isinstance(each.x, np.ndarray) for each in kept)
        rows: dict[str, Array] = {}
        for name in ("x", "jac", "best_x"):
            parts = [getattr(each, name) for each in kept]
            if host:
                joined = np.concatenate(parts[:host])
                parts[:host] = [xp.asarray(joined, dtype=m.dtype, device=m.device)]
            rows[name] = m.rows(xp.concat(parts), order)
        columns: dict[str, Any] = dict(self.numbers)
        if m.bounds is not None:  # as `Box.report` has it
            x, gradient = rows["x"], rows["jac"]
            sides = rows["active"] = m.bounds.sides(m, x, gradient)
            rows["multipliers"] = xp.where(sides != 0.0, gradient, 0.0)
            gap = xp.max(xp.abs(m.bounds.gap(m, x, gradient)), axis=-1)
            columns["optimality"] = to_numpy(gap)
        if (penalty := m.space.penalty) is not None:
            rows["jac"] = penalty.smooth(m, rows["x"], rows["jac"], -1.0)
            columns["penalty"] = np.array([penalty.total(m.space, x) for x in rows["x"]])
            columns["optimality"] = columns["grad_norm"]
        for name, found in rows.items():
            shaped = xp.reshape(found, (self.total, *function.shape))
            columns[name] = function.from_lanes(shaped)
        if "active" in columns:
            columns["active"] = function.xp.astype(columns["active"], function.xp.int8)
        columns["njev"] = columns["nfev"]
        columns["nfev"] = columns["nfev"] * function.values + function.more_values
        endings = {int(i): ending for i, ending in self.endings.items()}
        rule, tolerance = self.driver.rule, self.driver.tolerance
        return ManyResult(
            columns, endings, rule, tolerance, m.noun, m.rounding, function.grad_noise
        )

    def _autosave(self) -> None:
        if self._checkpoint is None or self.batch is None:
            return
        try:
            state = BatchState(
                self.batch, self.rows, self.numbers, self.endings, self.problems, self.running,
                self.time,
            )  # fmt: skip
            saved.write(self._checkpoint, state, self.driver, self.starts)
        except OSError as failure:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"the checkpoint {self._checkpoint.path} cannot be written ({failure}); the "
                    "runs go on without",
                    RuntimeWarning,
                    stacklevel=levels_to_the_user(),
                )


def _on_host(leaf: Any) -> Any:
    return to_numpy(leaf) if hasattr(leaf, "shape") else leaf


def _one_row(leaf: Any) -> np.ndarray:
    return np.asarray(leaf)[None]
