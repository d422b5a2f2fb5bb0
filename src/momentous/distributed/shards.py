"""Checkpoints of vectors that are spread over ranks: each rank writes its shard, then rank 0 the
file that names the shards.

That file is written last, and atomically, so a checkpoint is whole or not there.  It and the one
before it keep their shards; all others are removed.  `momentous.core.checkpoint.load` reads such a
checkpoint on any number of ranks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.checkpoint import Checkpoint, RunState, shard_path
from momentous.distributed.agreement import Agreement
from momentous.distributed.ranks import Ranks


class ShardedCheckpoint(Checkpoint):
    """Where and how often a run on ranks is saved: as `Checkpoint`, by the clock that all share."""

    def __init__(self, given: Checkpoint, agreement: Agreement):
        super().__init__(given.path, given.every_seconds, given.every_iterations)
        self._agreement = agreement
        self._saved_seconds: float | None = None

    @property
    def by_shared_clock(self) -> bool:
        return self.every_seconds is not None

    @property
    def shared_settings(self) -> tuple[Any, ...]:
        return (Path(self.path).name, self.every_seconds, self.every_iterations)

    def is_due(self, nit: int) -> bool:
        if self.every_iterations is not None and nit % self.every_iterations == 0:
            return True
        now = self._agreement.seconds
        if self._saved_seconds is None:  # the first iteration, perhaps of a run that is resumed
            self._saved_seconds = now
        return self.every_seconds is not None and now - self._saved_seconds >= self.every_seconds

    def save(self, state: RunState) -> None:
        """A failure of one rank is an OSError on all of them, and leaves the old file as it was."""
        self._saved_seconds = self._agreement.seconds
        ranks = self._agreement.ranks
        token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
        mine = shard_path(self.path, token, ranks.rank)
        sizes = np.zeros(ranks.size, np.int64)
        sizes[ranks.rank] = np.prod(state.best_point.shape, dtype=np.int64)
        lengths = [int(size) for size in ranks.all_reduce(sizes)]
        try:
            all_or_none(ranks, lambda: self.save_shard(state, token, ranks.rank))
            if ranks.rank == 0:
                all_or_none(ranks, lambda: self.save_manifest(state, token, lengths))
            else:
                all_or_none(ranks, lambda: None)
        except OSError:
            mine.unlink(missing_ok=True)
            raise


def all_or_none(ranks: Ranks, work: Callable[[], None]) -> None:
    """Do this rank's work; an OSError on one rank is one on all of them."""
    problem = ""
    try:
        work()
    except OSError as error:
        problem = str(error)
    problems = ranks.gather_text(problem)
    for rank, text in enumerate(problems):
        if text:
            raise OSError(f"rank {rank}: {text}")
