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
from momentous.core.oracle import InterruptFlag
from momentous.core.record import record
from momentous.core.space import Array, to_numpy
from momentous.core.status import Ending, Status
from momentous.lanes import saved
from momentous.lanes.driver import CONVERGED, Batch, Driver
from momentous.lanes.function import BatchFunction
from momentous.lanes.machine import gathered, leaves, one_lane
from momentous.lanes.result import ManyResult

# Lanes that have ended are dropped as soon as fewer than this share of all is left: before that it
# costs less to carry them along.
SHARE_LEFT = 0.7


@record
class Piece:
    """Runs that have ended in one turn."""

    problems: Any  # their numbers
    x: Any
    jac: Any
    best_x: Any
    fun: Any
    grad_norm: Any
    best_grad_norm: Any
    nit: Any
    nfev: Any
    restarts: Any
    time: Any
    status: Any


class ManyRun:
    """Many runs of one rule."""

    def __init__(
        self, function: BatchFunction, driver: Driver, starts: Array, *,
        max_time: float | None = None, checkpoint: Checkpoint | None = None,
        progress: Callable[[int, int], None] | None = None, resume: saved.Saved | None = None,
    ):  # fmt: skip
        self.function, self.driver, self.m, self.starts = function, driver, driver.m, starts
        self.total = starts.shape[0]
        self.interrupts = InterruptFlag()
        self._max_time = math.inf if max_time is None else max_time
        self._checkpoint, self._progress, self._turns = checkpoint, progress, 0
        self._warned = False
        self.pieces: list[Piece] = []
        self.endings: dict[int, Ending] = {}
        self.batch: Batch | None = None
        self.problems = np.arange(self.total)  # of the lanes
        self.running = np.ones(self.total, bool)
        self._began = perf_counter()
        if resume is not None:
            self.batch, self.pieces, self.endings = resume.batch, resume.pieces, resume.endings
            self.problems, self.running = resume.problems, resume.running
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
        assert batch is not None
        self._resize()
        self._take(lambda: batch)

    def _turn(self) -> None:
        driver, m, batch = self.driver, self.m, self.batch
        assert batch is not None
        # A turn may be taken twice: nothing of it may depend on what is asked after it.
        point, known, free = self._point, self._known, self._free
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
            return driver.turn(batch, here, free)

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
                self._point, self._known, self._free = self.driver.ask(batch)
                told = m.where(self._free, 4, 0) + batch.code + xp.zeros_like(batch.nfev)
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
            part = gathered(
                m.but(batch, memory=None, last=None), m.xp.asarray(converged, device=m.device)
            )
            self._add(converged, part, part.shown, int(Status.CONVERGED))
        self._finish(np.flatnonzero(self.running & (codes > CONVERGED)))
        left = np.flatnonzero(self.running)
        if 0 < len(left) < SHARE_LEFT * m.size:
            index = m.xp.asarray(left, device=m.device)
            parts = batch, self._point, self._known, self._free
            self.batch, self._point, self._known, self._free = gathered(parts, index)
            self._is_known, self.problems = self._is_known[left], self.problems[left]
            self.running = np.ones(len(left), bool)
            m.enter(self.problems)
        self._resize()

    def _resize(self) -> None:
        m, all_run = self.m, self.running.all()
        live = None if all_run else m.xp.asarray(self.running, device=m.device)
        m.resize(len(self.running), live)

    def _finish(self, lanes: np.ndarray, why: Callable[[float], Ending] | None = None) -> None:
        """Those of the lanes that have ended, one by one on the host."""
        if not len(lanes):
            return
        m, found, samples = self.m, [], []
        index = m.xp.asarray(lanes, device=m.device)
        part = leaves(_on_host, gathered(self.batch, index))
        for i in range(len(lanes)):
            ended = self.driver.finish(one_lane(part, i), m.host(int(lanes[i])), why)
            if ended is not None:
                ending, sample = ended
                self.endings[int(self.problems[lanes[i]])] = ending
                found.append((i, int(ending.status)))
                samples.append(sample)
        if not found:
            return
        rows = np.array([i for i, _ in found])

        def stacked(name: str) -> Array:
            return np.stack([np.asarray(getattr(sample, name)) for sample in samples])

        chosen = type(samples[0])(
            *(stacked(n) for n in ("point", "value", "gradient", "grad_norm"))
        )
        ended_part = gathered(m.but(part, memory=None, last=None), rows)
        self._add(lanes[rows], ended_part, chosen, np.array([status for _, status in found]))

    def _add(self, lanes: np.ndarray, part: Batch, sample: Any, status: Any) -> None:
        def library(array: Any) -> Array:
            if not isinstance(array, np.ndarray):
                return array
            return self.m.xp.asarray(array, dtype=self.m.dtype, device=self.m.device)

        def numbers(array: Any) -> np.ndarray:
            return np.broadcast_to(
                to_numpy(array) if hasattr(array, "shape") else array, len(lanes)
            )

        self.pieces.append(
            Piece(
                self.problems[lanes], library(sample.point), library(sample.gradient),
                library(part.best.point), *map(numbers, (
                    sample.value, sample.grad_norm, part.best.grad_norm, part.nit, part.nfev,
                    part.restarts, self.time, status,
                )),
            )
        )  # fmt: skip
        self.running[lanes] = False

    def _stop(self, status: Status, why: str, advice: str = "") -> None:
        """End all runs that are still under way."""

        def ending(norm: float) -> Ending:
            message = f"{why} with {self.m.noun} norm {norm:.3g}" + (
                f"; {advice}" if advice else ""
            )
            return Ending(status, message, {"grad_norm": norm})

        self._finish(np.flatnonzero(self.running), ending)

    @property
    def result(self) -> ManyResult:
        """Of all runs, once they have ended."""
        m, xp, pieces = self.m, self.m.xp, self.pieces
        order = np.argsort(np.concatenate([piece.problems for piece in pieces]))
        columns: dict[str, Any] = {}
        rows = {
            name: m.rows(xp.concat([getattr(piece, name) for piece in pieces]), order)
            for name in ("x", "jac", "best_x")
        }
        if m.bounds is not None:  # as `Box.report` has it
            x, gradient = rows["x"], rows["jac"]
            sides = rows["active"] = m.bounds.sides(m, x, gradient)
            rows["multipliers"] = xp.where(sides != 0.0, gradient, 0.0)
            gap = xp.max(xp.abs(m.bounds.gap(m, x, gradient)), axis=-1)
            columns["optimality"] = to_numpy(gap)
        for name, found in rows.items():
            shaped = xp.reshape(found, (self.total, *self.function.shape))
            columns[name] = self.function.from_lanes(shaped)
        if "active" in columns:
            columns["active"] = self.function.xp.astype(columns["active"], self.function.xp.int8)
        for name in (
            "fun",
            "grad_norm",
            "best_grad_norm",
            "nit",
            "nfev",
            "restarts",
            "time",
            "status",
        ):
            columns[name] = np.concatenate([getattr(piece, name) for piece in pieces])[order]
        columns["njev"] = columns["nfev"].copy()
        columns["nfev"] = columns["nfev"] * self.function.values
        columns["_rounding"] = self.m.rounding
        return ManyResult(columns, self.endings, self.driver.rule, self.driver.tolerance, m.noun)

    def _autosave(self) -> None:
        if self._checkpoint is None or self.batch is None:
            return
        try:
            state = saved.Saved(
                self.batch, self.pieces, self.endings, self.problems, self.running, self.time
            )
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
