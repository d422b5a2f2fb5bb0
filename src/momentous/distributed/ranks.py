"""The six calls that the library makes over ranks, and what is built of them."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, final

import array_api_compat
import numpy as np

from momentous.core.space import Array
from momentous.version import __version__

Operation = Literal["sum", "max"]

TIMEOUT = 1800.0
"""Seconds that a rank waits for the others in one call, by default."""

RELEASE = f"momentous {__version__} with NumPy {np.__version__}"
"""What must be the same on all ranks: they compute alike, and send what the others expect."""

ANNOUNCEMENT_GRACE_SECONDS = 2.0
"""Seconds that a call may take to end once a rank has announced that it has failed."""


class RankError(RuntimeError):
    """Another rank has failed, is gone, or does not answer: the message names it and says why.

    ``rank`` is the rank that failed, or -1 where that is not known.
    """

    def __init__(self, message: str, rank: int = -1):
        super().__init__(message)
        self.rank = rank


@dataclasses.dataclass
class Traffic:
    """What was sent, as one rank counts it: calls, and bytes of the whole arrays in them.

    An array of n bytes that is summed over the ranks, or that is gathered from their parts, counts
    as n, whatever way the engine takes.  On a ring of P ranks each of them sends (P-1)/P n for a
    reduce_scatter or an all_gather, and twice that for an all_reduce.
    """

    calls: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.calls += 1
        self.bytes += size


@dataclasses.dataclass(frozen=True)
class _News:
    """That a rank has failed, in which part of the program, and when this was heard."""

    part: int
    rank: int
    text: str
    time: float


class Ranks(abc.ABC):
    """The processes of one program, numbered 0, ..., size - 1; this one is ``rank``.

    Every rank must make the same calls in the same order, with arrays of the same dtype.  Arrays
    may be of any library; what comes back is a fresh array of the same one, on the same device.
    All ranks get the same bits from ``all_reduce``, ``all_gather`` and ``broadcast``.
    """

    rank: int
    size: int

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._timeout = TIMEOUT
        self._part = 0  # of the program: how many `announced` contexts have begun
        self._raised = 0  # the last part that this rank itself has left by an exception
        self._heard: _News | None = None
        self._broken = ""  # why no call can be made any more

    @final
    def _meet(self, timeout: float) -> None:
        """The last part of an engine's set-up, which all ranks come to."""
        releases = self.gather_text(RELEASE)
        for rank, other in enumerate(releases):
            if other != releases[0]:
                raise RankError(
                    f"rank {rank} runs {other}, but rank 0 runs {releases[0]}; install the same "
                    "releases on all machines, and in all environments",
                    rank,
                )
        self.traffic = Traffic()
        self._timeout = timeout

    # --- the six calls: rank, size, and these four -----------------------------------------------

    @final
    def all_reduce(self, a: Array, operation: Operation = "sum") -> Array:
        """The sum (or the maximum) over all ranks, entry by entry, on every rank."""
        self._begin(_bytes(a))
        return self._all_reduce(a, operation)

    @final
    def reduce_scatter(self, a: Array) -> Array:
        """Of the sum over all ranks the rows ``share(len(a))`` of this rank."""
        self._begin(_bytes(a))
        return self._reduce_scatter(a)

    @final
    def all_gather(self, a: Array, rows: Sequence[int] | None = None) -> Array:
        """The rows of rank 0, then those of rank 1, and so on, on every rank.

        Ranks may have different numbers of rows.  ``rows`` are these numbers where they are known:
        otherwise one small call asks for them.
        """
        if rows is None:
            rows = self.row_counts(len(a))
        self._begin(math.prod(a.shape[1:]) * a.dtype.itemsize * sum(rows))
        return self._all_gather(a, rows) if any(rows) else _copy(a)

    @final
    def broadcast(self, a: Array, root: int = 0) -> Array:
        """The array of the rank ``root``; the others pass one of the same shape and dtype."""
        self._begin(_bytes(a))
        return self._broadcast(a, root)

    @abc.abstractmethod
    def _all_reduce(self, a: Array, operation: Operation) -> Array: ...

    @abc.abstractmethod
    def _reduce_scatter(self, a: Array) -> Array: ...

    @abc.abstractmethod
    def _all_gather(self, a: Array, rows: Sequence[int]) -> Array: ...

    @abc.abstractmethod
    def _broadcast(self, a: Array, root: int) -> Array: ...

    # --- failures --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def announced(self) -> Iterator[None]:
        """A context in which an exception on this rank ends the waiting of all others.

        Whatever call they wait in raises a `RankError` that names this rank and the exception.
        Contexts may stand within each other.
        """
        self._part += 1
        try:
            yield
        except RankError:
            raise  # known to all
        except BaseException as error:
            if self._raised < self._part:
                self.announce(error)
            raise

    @final
    def announce(self, error: BaseException) -> None:
        """Tell the other ranks that this one has failed."""
        self._raised = self._part
        text = str(error)
        what = f"{type(error).__name__}{': ' if text else ''}{text}"
        self._announce(f"{self._part} {self.rank} rank {self.rank} failed: {what}")

    @abc.abstractmethod
    def _announce(self, message: str) -> None:
        """Send a message beside the calls, to whoever waits."""

    @final
    def _hear(self, message: str) -> None:
        """Take in what another rank has announced."""
        part, rank, text = message.split(" ", 2)
        if self._heard is None or int(part) > self._heard.part:
            self._heard = _News(int(part), int(rank), text, time.monotonic())

    @final
    def _check(self, call: str, begun: float, patience: float = ANNOUNCEMENT_GRACE_SECONDS) -> None:
        """Raise where a call that began at that time waits in vain.

        Where all ranks leave a part of the program by exceptions of their own, as for an argument
        that all of them refuse, none waits for another: such news are old as soon as this rank has
        raised its own.  And a rank that has ended a call may fail, and say so, before this one has
        seen the end of that call: news are believed only if the call does not end soon.
        """
        news, now = self._heard, time.monotonic()
        if (
            news is not None
            and news.part > self._raised
            and now >= max(begun, news.time) + patience
        ):
            self._broken = news.text
            raise RankError(news.text, news.rank)
        if now - begun > self._timeout:
            raise self._late(call, f"{self._timeout:.0f} s")

    @final
    def _late(self, call: str, waited: str) -> RankError:
        """The error of a rank that has waited too long, which the others are told."""
        error = RankError(
            f"rank {self.rank} has waited {waited} in {call} for the other ranks: one of them "
            "hangs, makes other calls, or needs longer; the engine's timeout= allows more"
        )
        self._broken = str(error)
        self.announce(error)
        return error

    @final
    def _ended(self, begun: float) -> None:
        """A call has ended; if it began after the news, the rank that failed has gone on."""
        if self._heard is not None and self._heard.time < begun:
            self._heard = None

    @final
    def _begin(self, size: int) -> None:
        """Count a call, if it can be made."""
        if self._broken:
            raise RankError(
                f"these ranks cannot be used any more, since {self._broken}; make new ones"
            )
        self.traffic.add(size)

    # --- built of the above ----------------------------------------------------------------------

    def block(self, count: int) -> int:
        """How many of so many rows are on each rank, but for the last ranks, which have fewer."""
        return -(-count // self.size)

    def share(self, count: int) -> slice[int, int]:
        """Which of so many rows are this rank's in ``reduce_scatter``."""
        block = self.block(count)
        return slice(min(self.rank * block, count), min((self.rank + 1) * block, count))

    def shares(self, count: int) -> list[int]:
        """How many of so many rows are on each rank in ``reduce_scatter``."""
        block = self.block(count)
        return [max(0, min(block, count - rank * block)) for rank in range(self.size)]

    def sum(self, number: float) -> float:
        """The sum of one number per rank."""
        return float(self.all_reduce(np.array([number], np.float64))[0])

    def gather_text(self, text: str) -> list[str]:
        """The texts of all ranks."""
        encoded = np.frombuffer(text.encode(), np.uint8)
        rows = self.row_counts(len(encoded))
        whole = self.all_gather(encoded, rows).tobytes()
        ends = np.cumsum(rows)
        return [whole[end - length : end].decode() for end, length in zip(ends, rows, strict=True)]

    def all_or_none(self, work: Callable[[], None]) -> None:
        """Do this rank's work; an OSError on one rank is one on all of them."""
        problem = ""
        try:
            work()
        except OSError as error:
            problem = str(error)
        for rank, text in enumerate(self.gather_text(problem)):
            if text:
                raise OSError(f"rank {rank}: {text}")

    def row_counts(self, count: int) -> list[int]:
        """The numbers of all ranks."""
        lengths = np.zeros(self.size, np.int64)
        lengths[self.rank] = count
        return [int(n) for n in self.all_reduce(lengths)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"


class Alone(Ranks):
    """One process: every sum over ranks is what this rank has, and nothing is sent."""

    rank, size = 0, 1

    def _all_reduce(self, a: Array, operation: Operation) -> Array:
        return _copy(a)

    def _reduce_scatter(self, a: Array) -> Array:
        return _copy(a)

    def _all_gather(self, a: Array, rows: Sequence[int]) -> Array:
        return _copy(a)

    def _broadcast(self, a: Array, root: int) -> Array:
        return _copy(a)

    def _announce(self, message: str) -> None:
        """There is nobody to tell."""


def _copy(a: Array) -> Array:
    return array_api_compat.array_namespace(a).asarray(a, copy=True)


def _bytes(a: Array) -> int:
    return int(math.prod(a.shape) * a.dtype.itemsize)
