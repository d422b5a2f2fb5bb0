"""The loop on every rank: the same steps, and the same end at the same place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.checkpoint import Checkpoint, RunState
from momentous.core.loop import Callback, Run
from momentous.core.method import Method
from momentous.core.oracle import Oracle
from momentous.core.result import Result, Trace
from momentous.core.space import Array
from momentous.core.stopping import AnyOf, Criterion, WallTime, flatten
from momentous.distributed.agreement import Agreement
from momentous.distributed.ranks import Ranks


class RankRun(Run):
    """A run that is under way on all ranks."""

    def __init__(
        self,
        agreement: Agreement,
        oracle: Oracle,
        method: Method,
        x0: Array,
        *,
        stop: Criterion,
        tol: float | None,
        seed: int,
        callback: Callback | None,
        checkpoint: Checkpoint | None,
        trace: Trace | None,
        resume: RunState | None,
        raises_interrupts: bool,
    ):
        self._agreement = agreement
        same: dict[str, Any] = {
            "method": method.description(),
            "tol": tol,
            "seed": seed,
            "checkpoint": None if checkpoint is None else checkpoint.shared_settings,
            "resume": None if resume is None else f"at iteration {resume.progress.nit}",
            "interrupts": raises_interrupts,
            "Trace(values)": trace is not None and trace.values,
            **{type(part).__name__: part for part in _parts(stop) if type(part) is not WallTime},
        }
        if own := [name for name, part in same.items() if _is_of_the_user(part)]:
            same |= dict.fromkeys(own, "a criterion of the user's own")
        require_same(agreement.ranks, same)
        asks = callback is not None or bool(own)
        timed = _has_time_limit(stop) or (checkpoint is not None and checkpoint.by_shared_clock)
        asks, timed = agreement.ranks.all_reduce(np.array([asks, timed], np.float64), "max") > 0.0
        if asks:
            callback = callback or _nothing
        agreement.shares_clock = bool(timed)
        super().__init__(
            oracle,
            method,
            x0,
            stop=_with_shortest_time(agreement, stop),
            tol=tol,
            seed=seed,
            callback=callback,
            checkpoint=checkpoint,
            trace=trace,
            resume=resume,
            raises_interrupts=raises_interrupts,
        )

    def _resume(self, saved: RunState, tol: float | None) -> None:
        self._agreement.set_clock(saved.progress.time)
        super()._resume(saved, tol)

    def _advance(self) -> None:
        self._agreement.start_clock()
        super()._advance()

    def _decide(self) -> None:
        self._agreement.stop_clock()
        self.progress.time = self._agreement.seconds
        super()._decide()

    def _call(self, callback: Callback) -> None:
        """What callbacks and criteria of the user's own want may differ from rank to rank: one
        small message per iteration, if there are any."""
        super()._call(callback)
        ranks = self._agreement.ranks
        wish = -1.0 if self.ending is None else float(ranks.rank)
        asking = int(ranks.all_reduce(np.array([wish]), "max")[0])
        if asking >= 0 and self.ending is None:
            self._end(f"rank {asking} asked to stop")

    def _guarded(self, work: Callable[[], None]) -> None:
        with self._agreement.announced():
            super()._guarded(work)

    def _autosave(self, raised: BaseException | None = None) -> None:
        if raised is None or raised is self._agreement.known:
            super()._autosave(raised)
        # Otherwise the ranks stand at different places, and nothing can be written together.

    def _interrupted(self) -> None:
        if not self._agreement.interrupted:
            raise  # of this rank alone: the others are told
        super()._interrupted()

    def _close(self) -> Result:
        with self._agreement.announced(), self.oracle.interrupts.held_back():
            return super()._close()


def require_same(ranks: Ranks, given: dict[str, Any]) -> None:
    """Raise a ValueError on all ranks where one of them was called with other arguments."""
    mine = {name: str(value) for name, value in given.items()}
    for rank, text in enumerate(ranks.gather_text(json.dumps(mine))):
        other = json.loads(text)
        if rank == 0:
            first = other
        elif other != first:
            name = next(name for name in (*first, *other) if first.get(name) != other.get(name))
            raise ValueError(
                f"rank {rank} was called with another {name} than rank 0: "
                f"{other.get(name, 'none')}, not {first.get(name, 'none')}"
            )


def _parts(stop: Criterion) -> tuple[Criterion, ...]:
    return stop.parts if type(stop) is AnyOf else (stop,)


def _is_of_the_user(part: Any) -> bool:
    """May this criterion differ from rank to rank?"""
    if isinstance(part, AnyOf):
        return any(map(_is_of_the_user, part.parts))
    return isinstance(part, Criterion) and not type(part).__module__.startswith("momentous.")


def _has_time_limit(part: Criterion) -> bool:
    if isinstance(part, AnyOf):
        return any(map(_has_time_limit, part.parts))
    return isinstance(part, WallTime)


def _with_shortest_time(agreement: Agreement, stop: Criterion) -> Criterion:
    """With the shortest time limit that any rank was given, by the clock that all share."""
    own = min((p.seconds for p in _parts(stop) if type(p) is WallTime), default=math.inf)
    shortest = -float(agreement.ranks.all_reduce(np.array([-own]), "max")[0])
    parts = [part for part in _parts(stop) if type(part) is not WallTime]
    return flatten([*parts, *([WallTime(shortest)] if math.isfinite(shortest) else [])])


def _nothing(intermediate_result: Any) -> None:
    """The callback of a rank that has none, where others have one."""
