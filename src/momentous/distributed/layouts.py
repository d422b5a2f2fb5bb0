"""The layouts of a run on many ranks: the data is spread and x is not, or x is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from momentous.core.admission import Admission, starting_point
from momentous.core.checkpoint import Checkpoint, RunState
from momentous.core.loop import Layout, Run
from momentous.core.oracle import FunctionOracle, MapOracle
from momentous.core.space import Array, Inner, Space
from momentous.distributed.agreement import Agreement
from momentous.distributed.find import find
from momentous.distributed.oracles import (
    DataMapOracle,
    DataOracle,
    VariablesMapOracle,
    VariablesOracle,
)
from momentous.distributed.ranks import Ranks
from momentous.distributed.run import RankRun, require_same
from momentous.distributed.shards import ShardedCheckpoint

RanksArgument = Literal["data", "variables"] | Layout | None


class Data(Layout):
    """Every rank has x and its share of the data: value and gradient are sums over ranks.

    ``fun`` and ``jac`` give the part of the sum that belongs to the data of this rank (a penalty is
    added on one rank, or in parts).  One message of d + 1 numbers per evaluation: gradient and
    value.  All else is computed on every rank, in the same way.

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

    def start(self, x0: Any) -> Array:
        """That of rank 0."""
        start = starting_point(x0)
        kind = f"shape {tuple(start.shape)} and dtype {start.dtype}"
        require_same(self.ranks, {"x0": kind})
        return starting_point(self.ranks.broadcast(start))  # in memory of our own

    def function_oracle(self, *given: Any) -> FunctionOracle:
        return DataOracle(self._agreement, *given)

    def map_oracle(self, *given: Any) -> MapOracle:
        return DataMapOracle(self._agreement, *given)

    def products(self, hessp: Callable[..., Any] | None, space: Space) -> Callable[..., Any] | None:
        """Their sum over ranks."""
        if hessp is None:
            return None
        admission, agreement = Admission(space), self._agreement

        def product(*given: Any) -> Array:
            part, failure = agreement.local(lambda: admission.admit(hessp(*given), "hessp"))
            return agreement.sum_of_gradients(space, 0.0, part, failure)[1]

        return product

    def run(self, *given: Any, **options: Any) -> Run:
        """Rank 0 writes the checkpoint: x is the same on all."""
        checkpoint = options["checkpoint"]
        if checkpoint is not None and checkpoint.is_file and self.ranks.rank > 0:
            options["checkpoint"] = _ByRankZero(checkpoint.path)
        return RankRun(self._agreement, *given, **options)


class _ByRankZero(Checkpoint):
    """The checkpoint of a rank that leaves it to rank 0."""

    def save(self, state: RunState) -> None:
        """Nothing to do."""


class Variables(Data):
    """Every rank has its part of x: one flat vector is cut in pieces, in the order of ranks.

    ``fun`` gives the value of the whole function on every rank, and ``jac`` this rank's part of the
    gradient; to compute them, they make calls over ranks themselves.  One message of one to three
    numbers per iteration: sums of products, and the value if it comes with the gradient.
    """

    def start(self, x0: Any) -> Array:
        start = starting_point(x0)
        require_same(self.ranks, {"x0": f"dtype {start.dtype}"})
        return start

    def space(self, start: Array, inner: Inner | None = None) -> Space:
        if inner is not None:
            raise ValueError("inner= and ranks='variables' both say how to add up over ranks")
        sizes = np.zeros(self.ranks.size, np.int64)
        sizes[self.ranks.rank] = np.prod(start.shape, dtype=np.int64)
        sizes = self.ranks.all_reduce(sizes)
        return Space(
            start,
            total=self._agreement.total,
            offset=int(sizes[: self.ranks.rank].sum()),
            dimension=int(sizes.sum()),
        )

    def function_oracle(self, *given: Any) -> FunctionOracle:
        return VariablesOracle(self._agreement, *given)

    def map_oracle(self, *given: Any) -> MapOracle:
        return VariablesMapOracle(self._agreement, *given)

    def products(self, hessp: Callable[..., Any] | None, space: Space) -> Callable[..., Any] | None:
        return hessp

    def run(self, *given: Any, **options: Any) -> Run:
        """Every rank writes its part of the checkpoint."""
        checkpoint = options["checkpoint"]
        if checkpoint is not None and checkpoint.is_file:
            options["checkpoint"] = ShardedCheckpoint(checkpoint, self._agreement)
        return RankRun(self._agreement, *given, **options)


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
