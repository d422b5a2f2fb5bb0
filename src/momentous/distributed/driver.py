"""The driver on ranks: one evaluation is summed over them, and failures travel with the sum.

The data is spread and x is not (`Data`), or x is (`Variables`).  Every rank takes the same steps,
and ends at the same place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal
from zlib import crc32

import array_api_compat
import numpy as np

from momentous.core.admission import Admission, Fun, scalar, starting_point
from momentous.core.checkpoint import Checkpoint, InMemory, RunState, shard_path
from momentous.core.loop import NOW, Callback, Layout, Run, RunOptions
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.penalties import Ball, Penalty
from momentous.core.result import Result
from momentous.core.sources import Answer, Source, Wrapped
from momentous.core.space import Array, Space, to_numpy
from momentous.core.stopping import AnyOf, Criterion, WallTime, flatten, leaves
from momentous.distributed.agreement import Agreement
from momentous.distributed.find import find
from momentous.distributed.ranks import Ranks
from momentous.io.types import AnyArray, Unchecked

RanksArgument = Literal["data", "variables"] | Layout | None


class Data(Layout):
    """Every rank has x and its share of the data: value and gradient are sums over ranks.

    ``fun`` and ``jac`` give the part of the sum that belongs to the data of this rank (a ridge of
    theirs is added on one rank, or in parts; ``penalty=`` counts once).  One message of d + 2
    numbers per evaluation: gradient, value, and a checksum of x.  All else is computed on every
    rank, in the same way; where ranks round differently, that of rank 0 is sent to them.

    Parameters
    ----------
    ranks : Ranks, optional
        By default those that `find` gives.
    """

    def __init__(self, ranks: Ranks | None = None):
        self.ranks = find() if ranks is None else ranks
        self._agreement = Agreement(self.ranks)

    def announced(self) -> contextlib.AbstractContextManager[None]:
        return self._agreement.announced()

    def start(self, x0: object) -> Array:
        """That of rank 0."""
        start = self._start_of_one_kind(x0)
        return starting_point(self.ranks.broadcast(start))  # in memory of our own

    def given(self, x: object, **others: object) -> Array:
        """That of rank 0, which others may differ from by rounding."""
        point = self._start_of_one_kind(x, **others)
        return starting_point(self._agreement.point_of_rank_0(point))

    def _start_of_one_kind(self, x0: object, **others: object) -> Array:
        start = starting_point(x0)
        kind = f"shape {tuple(start.shape)} and dtype {start.dtype}"
        require_same(self.ranks, {"x0": kind} | others)
        return start

    def space(self, start: Array) -> Space:
        space = super().space(start)
        space.agree = self.agree
        return space

    def agree(self, penalty: Penalty | None, sides: Sequence[AnyArray]) -> None:
        """Raise a ValueError on all ranks where their terms or bounds differ."""
        require_same(self.ranks, {"penalty= or bounds=": self._restriction(penalty, sides)})

    def _restriction(self, penalty: Penalty | None, sides: Sequence[AnyArray]) -> str | None:
        if penalty is not None:
            return _in_words(penalty.given)
        return "bounds from {} to {}".format(*map(_numbers, sides)) if sides else None

    def oracle(self, source: Source) -> Oracle:
        return Oracle(SummedSource(source, self._agreement), self._agreement.interrupts)

    def products(self, hessp: Fun | None, space: Space) -> Fun | None:
        """Their sum over ranks."""
        if hessp is None:
            return None
        admission, agreement = Admission(space), self._agreement

        def product(*given: object) -> Array:
            _, vector, *_ = given  # at an x whose gradient is known

            def summed() -> Array:
                part, failure = agreement.local(lambda: admission.admit(hessp(*given), "hessp"))
                return agreement.sum_of_gradients(space, 0.0, part, vector, failure)[1]

            return agreement.at_one_point(vector, summed)

        return product

    def run(self, oracle: Oracle, method: Method, x0: Array, options: RunOptions) -> Run:
        checkpoint = options.checkpoint
        if options.resume is not None:
            self._agreement.seconds = options.resume.progress.time
        if checkpoint is not None and checkpoint.is_file:
            options = dataclasses.replace(options, checkpoint=self._shared(checkpoint))
        return RankRun(self._agreement, oracle, method, x0, options)

    def _shared(self, checkpoint: Checkpoint) -> Checkpoint:
        """Rank 0 writes it: x is the same on all."""
        return checkpoint if self.ranks.rank == 0 else InMemory(lambda: False, lambda state: None)


class Variables(Data):
    """Every rank has its part of x: one flat vector is cut in pieces, in the order of ranks.

    ``fun`` gives the value of the whole function on every rank, and ``jac`` this rank's part of the
    gradient; to compute them, they make calls over ranks themselves.  One message or two of one to
    three numbers per iteration: sums of products, and the value if it comes with the gradient.
    """

    def start(self, x0: object) -> Array:
        start = starting_point(x0)
        require_same(self.ranks, {"x0": f"dtype {start.dtype}"})
        return start

    def given(self, x: object, **others: object) -> Array:
        require_same(self.ranks, others)
        return self.start(x)

    def space(self, start: Array) -> Space:
        sizes = self.ranks.row_counts(math.prod(start.shape))
        space = Space(
            start,
            total=self._agreement.total,
            offset=sum(sizes[: self.ranks.rank]),
            dimension=sum(sizes),
        )
        space.agree = self.agree
        return space

    def _restriction(self, penalty: Penalty | None, sides: Sequence[AnyArray]) -> str | None:
        """Its kind, and what is of all of x: weights, groups and bounds are of this rank's part."""
        if penalty is None:
            return "bounds" if sides else None
        if type(penalty.given) is Ball:
            return _in_words(penalty.given)
        ridge = "" if penalty.ridge is None else f" with ridge={_numbers(penalty.ridge)}"
        return f"a sum over parts{ridge}"

    def oracle(self, source: Source) -> Oracle:
        return PartsOracle(source, self._agreement)

    def products(self, hessp: Fun | None, space: Space) -> Fun | None:
        return hessp

    def _shared(self, checkpoint: Checkpoint) -> Checkpoint:
        """Every rank writes its part."""
        return ShardedCheckpoint(checkpoint, self._agreement)


def layout_of(ranks: RanksArgument) -> Layout:
    """The layout that is asked for: that of one process where there is only one."""
    if ranks is None:
        return Layout()
    kinds = {"data": Data, "variables": Variables}
    if isinstance(ranks, str) and ranks in kinds:
        made = kinds[ranks]()
    elif isinstance(ranks, Data):
        made = type(ranks)(ranks.ranks)  # an agreement is for one run
    else:
        raise ValueError(
            f"ranks={ranks!r} is not understood; pass 'data' (every rank has x and its share of "
            "the data), 'variables' (every rank has its part of x), one of "
            "momentous.distributed.Data(engine) and Variables(engine), or None"
        )
    return made if made.ranks.size > 1 else Layout()


# --- one evaluation ------------------------------------------------------------------------------


class SummedSource(Wrapped):
    """x is on every rank; value and gradient are sums over ranks.  Of a map the image is on every
    rank, too, and only values are summed."""

    def __init__(self, inner: Source, agreement: Agreement):
        super().__init__(inner)
        self._agreement = agreement
        inner.fits_steps = False  # the parts of f may be unlike: all ranks take the same steps

    def value(self, x: Array) -> float:
        return self._agreement.at_one_point(x, lambda: self._value(x))

    def gradient(self, x: Array, known: float) -> Answer:
        return self._agreement.at_one_point(x, lambda: self._gradient(x, known))

    def _value(self, x: Array) -> float:
        if self.is_map and self.fused:  # a step of the map, which makes calls over ranks
            value = self.inner.value(x)
            return self._agreement.sum_of_values(value, x) if self.has_values else value
        return self._agreement.sum_of_local(lambda: self.inner.value(x), x)

    def _gradient(self, x: Array, known: float) -> Answer:
        if self.is_map:
            value, image, values = self.inner.gradient(x, known)
            comes = self.fused and self.has_values
            # Without a value this sum still brings news.
            total = self._agreement.sum_of_values(value if comes else 0.0, x)
            return total if comes else value, image, values
        # What is known is the value of the whole sum: of no use to the part of it that is here.
        found, failure = self._agreement.local(lambda: self.inner.gradient(x, math.nan))
        value, gradient, values = found or (0.0, None, 0)
        # Where no value comes along, what travels in its place is 0: a NaN would be news.
        part = scalar(value, "fun") if values else 0.0
        value, gradient = self._agreement.sum_of_gradients(self.space, part, gradient, x, failure)
        return value if values else math.nan, gradient, values


class _SameValue(Wrapped):
    """Every rank has its part of x, and values are of the whole: that of rank 0."""

    def __init__(self, inner: Source, agreement: Agreement):
        super().__init__(inner)
        self._agreement = agreement

    def value(self, x: Array) -> float:
        value = self.inner.value(x)
        alike = self.is_map and self.fused  # of a step that all ranks take together
        return value if alike else self._agreement.same_value(value)

    def gradient(self, x: Array, known: float) -> Answer:
        if self.by_differences:
            raise ValueError(
                "gradients by differences of fun do not work with ranks='variables': all ranks "
                "would move a coordinate at once; pass jac=callable, or jac=True if fun returns "
                "(f, g)"
            )
        return self.inner.gradient(x, known)


class PartsOracle(Oracle):
    """Every rank has its part of x, and of the gradient or image."""

    def __init__(self, source: Source, agreement: Agreement):
        super().__init__(_SameValue(source, agreement), agreement.interrupts)
        self._agreement = agreement

    def _sample(self, x: Array, value: Unchecked, answer: Array) -> Sample:
        make = super()._sample
        if not (self.fused and self.has_values):
            return make(x, value, answer)
        # Value and gradient come together: the value travels with the sum of the norm.
        value = scalar(value, "fun")
        sample, value = self._agreement.with_value(value, lambda: make(x, value, answer))
        sample.value = value
        return sample


# --- the loop ------------------------------------------------------------------------------------


class RankRun(Run):
    """A run that is under way on all ranks."""

    def __init__(
        self,
        agreement: Agreement,
        oracle: Oracle,
        method: Method,
        x0: Array,
        options: RunOptions,
    ):
        self._agreement, ranks = agreement, agreement.ranks
        checkpoint, resume, stop = options.checkpoint, options.resume, options.stop
        same: dict[str, object] = {
            "method": method.description(),
            "tol": options.tol,
            "seed": options.seed,
            "checkpoint": None if checkpoint is None else getattr(checkpoint, "settings", "given"),
            "resume": None if resume is None else f"at iteration {resume.progress.nit}",
            "interrupts": options.raises_interrupts,
            "Trace(values)": options.trace is not None and options.trace.values,
            **{type(part).__name__: part for part in _parts(stop) if type(part) is not WallTime},
        }
        if own := [name for name, part in same.items() if _is_of_the_user(part)]:
            same |= dict.fromkeys(own, "a criterion of the user's own")
        require_same(ranks, same)
        asks = options.callback is not None or bool(own)
        timed = any(isinstance(leaf, WallTime) for leaf in leaves(stop))
        if isinstance(checkpoint, ShardedCheckpoint):
            timed = timed or checkpoint.every_seconds is not None
        asks, timed = ranks.all_reduce(np.array([asks, timed], np.float64), "max") > 0.0
        self._shares_clock = bool(timed)  # does it decide anything in this run?
        callback = options.callback or (_nothing if asks else None)
        stop = _with_shortest_time(ranks, stop)
        options = dataclasses.replace(options, stop=stop, callback=callback)
        super().__init__(oracle, method, x0, options)

    def _decide(self) -> None:
        if self._shares_clock:  # asked in every iteration
            ranks, progress = self._agreement.ranks, self.progress
            self._agreement.seconds = progress.time = ranks.sum(progress.time) / ranks.size
        super()._decide()
        if self._shares_clock:
            self._next_look = NOW

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


def require_same(ranks: Ranks, given: dict[str, object]) -> None:
    """Raise a ValueError on all ranks where one of them was called with other arguments."""
    mine = {name: str(value) for name, value in given.items()}
    first, *others = map(json.loads, ranks.gather_text(json.dumps(mine)))
    for rank, other in enumerate(others, 1):
        if other != first:
            name = next(name for name in (*first, *other) if first.get(name) != other.get(name))
            raise ValueError(
                f"rank {rank} was called with another {name} than rank 0: "
                f"{other.get(name, 'none')}, not {first.get(name, 'none')}; pass the same on all "
                "ranks"
            )


def _in_words(term: Unchecked) -> str:
    """A term of ours with its parameters; of the user's own its name."""
    name = type(term).__name__
    if type(term).__module__ != Ball.__module__:
        return name
    values = {field.name: getattr(term, field.name) for field in dataclasses.fields(term)}
    return f"{name}({', '.join(f'{key}={_numbers(value)}' for key, value in values.items())})"


def _numbers(given: Unchecked) -> str:
    """A few as they are, of many a check sum."""
    a = to_numpy(given) if array_api_compat.is_array_api_obj(given) else np.asarray(given)
    a = a.astype(float) + 0.0 if a.dtype.kind in "biuf" else a.astype(str)  # 1 is 1.0, -0 is 0
    if a.size > 0 and (a == a.flat[0]).all():
        return str(a.flat[0])
    return str(a.tolist()) if a.size < 9 else f"{a.size} numbers of CRC {crc32(a.tobytes()):08x}"


def _parts(stop: Criterion) -> tuple[Criterion, ...]:
    return stop.parts if type(stop) is AnyOf else (stop,)


def _is_of_the_user(part: object) -> bool:
    """May this criterion, or a part of it, differ from rank to rank?"""
    kinds = [type(leaf) for leaf in leaves(part)] if isinstance(part, Criterion) else []
    return any(not kind.__module__.startswith("momentous.") for kind in kinds)


def _with_shortest_time(ranks: Ranks, stop: Criterion) -> Criterion:
    """With the shortest time limit that any rank was given, by the clock that all share."""
    own = min((p.seconds for p in _parts(stop) if type(p) is WallTime), default=math.inf)
    shortest = -float(ranks.all_reduce(np.array([-own]), "max")[0])
    parts = [part for part in _parts(stop) if type(part) is not WallTime]
    return flatten([*parts, *([WallTime(shortest)] if math.isfinite(shortest) else [])])


def _nothing(intermediate_result: object) -> None:
    """The callback of a rank that has none, where others have one."""


# --- checkpoints ---------------------------------------------------------------------------------


class ShardedCheckpoint(Checkpoint):
    """Where and how often a run with a spread x is saved: as `Checkpoint`, by the clock that all
    share.

    Each rank writes its shard, then rank 0 the file that names the shards.  That file is written
    last, and atomically, so a checkpoint is whole or not there.  It and the one before it keep
    their shards; all others are removed.  `momentous.core.checkpoint.load` reads such a checkpoint
    on any number of ranks.
    """

    def __init__(self, given: Checkpoint, agreement: Agreement):
        self._agreement = agreement
        super().__init__(given.path, given.every_seconds, given.every_iterations)
        # What must be the same on all ranks.
        self.settings = Path(self.path).name, self.every_seconds, self.every_iterations

    def _now(self) -> float:
        return self._agreement.seconds

    def save(self, state: RunState) -> None:
        """A failure of one rank is an OSError on all of them, and leaves the old file as it was."""
        self.mark_saved()
        ranks = self._agreement.ranks
        token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
        lengths = ranks.row_counts(math.prod(state.best_point.shape))
        name_shards = lambda: self.save_manifest(state, token, lengths)  # noqa: E731
        try:
            ranks.all_or_none(lambda: self.save_shard(state, token, ranks.rank))
            ranks.all_or_none(name_shards if ranks.rank == 0 else lambda: None)
        except OSError:
            shard_path(self.path, token, ranks.rank).unlink(missing_ok=True)
            raise
