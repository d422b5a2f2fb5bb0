"""Ranks over MPI, by mpi4py."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import array_api_compat
import numpy as np

from momentous.core.space import Array, to_numpy
from momentous.distributed.ranks import TIMEOUT, Operation, Ranks
from momentous.io.optional import require
from momentous.io.types import AnyArray

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

TESTS_BEFORE_SLEEP = 200  # looks at a call before the rank begins to sleep between them
FIRST_SLEEP_SECONDS = 2e-5  # seconds of the first sleep; they grow
LONGEST_SLEEP_SECONDS = 2e-3
FAILURE_TAG = 77  # the tag of a message that says that a rank has failed
SHUTDOWN_GRACE_SECONDS = 4.0  # seconds at the end for all ranks to print their messages


class MPI(Ranks):
    """The ranks of an MPI communicator.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        By default a copy of ``COMM_WORLD``.
    timeout : float
        Seconds to wait for the other ranks in one call.

    Notes
    -----
    Arrays travel through the memory of the host.  If a rank fails while others wait in a call, MPI
    cannot take that call back: at its end such a program is aborted, so that no rank stays behind.
    """

    def __init__(self, communicator: Intracomm | None = None, *, timeout: float = TIMEOUT) -> None:
        super().__init__()
        self._mpi = mpi = require("mpi4py.MPI", "mpi", "momentous.distributed.MPI")
        given = mpi.COMM_WORLD if communicator is None else communicator
        self._world, self._news = given.Dup(), given.Dup()
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        self._sent: list[Request] = []  # messages on their way
        # Calls that have begun, with their buffers.
        self._unfinished: list[tuple[Request, tuple[AnyArray, ...]]] = []
        atexit.register(self._close)
        self._meet(timeout)

    def _all_reduce(self, a: Array, operation: Operation) -> Array:
        host = np.ascontiguousarray(to_numpy(a))
        total = np.empty_like(host)
        op = self._mpi.SUM if operation == "sum" else self._mpi.MAX
        self._wait("all_reduce", self._world.Iallreduce(host, total, op), host, total)
        return _like(total, a)

    def _reduce_scatter(self, a: Array) -> Array:
        host = np.ascontiguousarray(to_numpy(a))
        row, counts = _row(host), self.shares(len(host))
        part = np.empty((counts[self.rank], *host.shape[1:]), host.dtype)
        request = self._world.Ireduce_scatter(
            host, part, [count * row for count in counts], self._mpi.SUM
        )
        self._wait("reduce_scatter", request, host, part)
        return _like(part, a)

    def _all_gather(self, a: Array, rows: Sequence[int]) -> Array:
        host = np.ascontiguousarray(to_numpy(a))
        row = _row(host)
        whole = np.empty((sum(rows), *host.shape[1:]), host.dtype)
        counts = [count * row for count in rows]
        self._wait("all_gather", self._world.Iallgatherv(host, (whole, counts)), host, whole)
        return _like(whole, a)

    def _broadcast(self, a: Array, root: int) -> Array:
        host = np.array(to_numpy(a), order="C")
        self._wait("broadcast", self._world.Ibcast(host, root), host)
        return _like(host, a)

    def _announce(self, message: str) -> None:
        for rank in range(self.size):
            if rank != self.rank:
                self._sent.append(self._news.isend(message, rank, FAILURE_TAG))

    def _wait(self, call: str, request: Request, *buffers: AnyArray) -> None:
        """Wait for the other ranks, and for news of one that failed."""
        for _ in range(TESTS_BEFORE_SLEEP):
            if request.Test():
                return
        begun, pause = time.monotonic(), FIRST_SLEEP_SECONDS
        # MPI writes into the buffers of a call that is broken off here, too: they must stay.
        self._unfinished.append((request, buffers))
        while not request.Test():
            if self._news.iprobe(tag=FAILURE_TAG):
                self._hear(self._news.recv(tag=FAILURE_TAG))
            self._check(call, begun)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP_SECONDS)
        self._unfinished.pop()
        self._ended(begun)

    def _close(self) -> None:
        """After a failure there may be calls without an end: MPI could not finish by itself."""
        failed = self._sent and self._raised == self._part
        if self._mpi.Is_finalized() or not (self._broken or failed):
            return
        sys.stdout.flush()
        sys.stderr.flush()
        end = time.monotonic() + SHUTDOWN_GRACE_SECONDS
        everybody = self._news.Ibarrier()  # at the end, and not in a call of the user's own
        while self._broken or not everybody.Test():
            if time.monotonic() > end:
                self._world.Abort(1)
            time.sleep(LONGEST_SLEEP_SECONDS)


def _row(host: AnyArray) -> int:
    """Entries of one row."""
    return int(np.prod(host.shape[1:], dtype=np.int64))


def _like(host: AnyArray, a: Array) -> Array:
    """The array in the library, and on the device, of ``a``."""
    if array_api_compat.is_numpy_array(a):
        return host
    xp = array_api_compat.array_namespace(a)
    return xp.asarray(host, dtype=a.dtype, device=array_api_compat.device(a))
