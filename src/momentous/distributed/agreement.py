"""What all ranks of a run must see alike: Ctrl-C, values, and exceptions of user code.

It travels with the sums that a run makes over ranks, and costs nothing while there is no news.  A
rank that has news puts NaN in the place of its first number, so the sum is NaN on all ranks.  All
who see that ask, in a message of its own, what it means, and act on it at the same place.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

import numpy as np

from momentous.core.oracle import InterruptFlag
from momentous.core.space import Array, Space, to_numpy
from momentous.distributed.ranks import RankError, Ranks
from momentous.io.types import AnyArray

T = TypeVar("T")

# Flags are added up: so many interrupts can be told from failures.
FAILURE = 2.0**24


class RankInterrupts(InterruptFlag):
    """Ctrl-C on one rank waits for the next sum over ranks, which brings it to all of them.

    In user code that makes no calls over ranks it need not wait.  A second one does not wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_local_code = False

    def raise_pending(self) -> None:
        """Not here: the next sum over ranks does it."""

    def _arrived(self, signal_number: int, frame: FrameType | None) -> None:
        if self.in_local_code or self.pending:
            self.pending = False
            raise KeyboardInterrupt
        self.pending = True


class Agreement:
    """Sums over ranks for one run, with what must be agreed on."""

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.interrupts = RankInterrupts()
        self.interrupted = False  # on all ranks
        self.seconds = 0.0  # by the mean of their clocks, where that decides something
        self.known: BaseException | None = None  # the exception of user code that all know of
        self._passenger: list[float] = []  # a value that travels with the next sum,
        self._brought = math.nan  # and what came of it

    @contextlib.contextmanager
    def announced(self) -> Iterator[None]:
        """A context in which an exception of this rank alone ends all of them."""
        known = None
        with self.ranks.announced():
            try:
                yield
            except BaseException as error:
                if error is not self.known:
                    raise
                known = error
        if known is not None:
            raise known

    # --- sums ------------------------------------------------------------------------------------

    def total(self, sums: AnyArray) -> AnyArray:
        """Local sums in, global sums out: what a `Space` asks for."""
        passengers, self._passenger = self._passenger, []
        whole = self._added([*sums, *passengers], None)
        if passengers:
            self._brought = float(whole[len(sums)])  # once: a second sum does not take it along
        return whole[: len(sums)]

    def with_value(self, value: float, work: Callable[[], T]) -> tuple[T, float]:
        """What ``work`` gives, which makes a sum over ranks, and the value of rank 0, which
        travels with it: NaN if that of any rank is not finite."""
        self._passenger = [self._of_rank_0(value)]
        return work(), self._brought

    def same_value(self, value: float) -> float:
        """The value of rank 0 on all ranks; NaN if that of any rank is not finite."""
        return float(self.total(np.array([self._of_rank_0(value)]))[0])

    def _of_rank_0(self, value: float) -> float:
        if not math.isfinite(value):
            return math.nan
        return value if self.ranks.rank == 0 else 0.0

    def local(self, work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
        """What user code gives that makes no calls over ranks, or its exception."""
        self.interrupts.in_local_code = True
        try:
            if self.interrupts.pending:
                raise KeyboardInterrupt
            return work(), None
        except BaseException as error:
            return None, error
        finally:
            self.interrupts.in_local_code = False

    def sum_of_local(self, work: Callable[[], float]) -> float:
        """The sum over ranks of the values that local user code gives."""
        value, failure = self.local(work)
        return self.sum_of_values(0.0 if value is None else value, failure)

    def sum_of_values(self, value: float, failure: BaseException | None = None) -> float:
        """The sum of values over ranks; an exception of one rank is raised on all of them."""
        return float(self._added([value], failure)[0])

    def sum_of_gradients(
        self, space: Space, value: float, gradient: Array, failure: BaseException | None
    ) -> tuple[float, Array]:
        """The same for value and gradient, in one message if both are in double precision."""
        if gradient is None:
            gradient = space.from_numpy(np.zeros(space.shape))
        if space.describe()["dtype"] != "float64":
            gradient = self.ranks.all_reduce(gradient)
            return self.sum_of_values(value, failure), gradient
        xp, numbers = space.xp, self._outgoing([value], failure)
        end = xp.asarray(numbers, dtype=space.dtype, device=space.device)
        whole = self.ranks.all_reduce(xp.concat([xp.reshape(gradient, (-1,)), end]))
        found = self._incoming(to_numpy(whole[space.size :]), value, failure)
        return float(found[0]), xp.reshape(whole[: space.size], space.shape)

    # --- what travels with every sum -------------------------------------------------------------

    def _added(self, numbers: list[float], failure: BaseException | None) -> AnyArray:
        """The sums of some numbers over ranks."""
        whole = self.ranks.all_reduce(np.array(self._outgoing(numbers, failure), np.float64))
        return self._incoming(whole, numbers[0], failure)

    def _outgoing(self, numbers: list[float], failure: BaseException | None) -> list[float]:
        first = math.nan if failure is not None or self.interrupts.pending else numbers[0]
        return [first, *numbers[1:]]

    def _incoming(self, sums: AnyArray, first: float, failure: BaseException | None) -> AnyArray:
        if math.isnan(sums[0]):
            sums = np.concatenate([[self._ask(first, failure)], sums[1:]])
        return sums

    def _ask(self, first: float, failure: BaseException | None) -> float:
        """What a NaN means; the sum of the numbers that it stood for, if there is no news."""
        flag = float(self.interrupts.pending or isinstance(failure, KeyboardInterrupt))
        if failure is not None and not isinstance(failure, KeyboardInterrupt):
            flag = FAILURE
        number, flags = self.ranks.all_reduce(np.array([first, flag]))
        if flags >= FAILURE:
            self._raise_failure(failure)
        if flags:
            self.interrupts.pending = False
            self.interrupted = True
            raise KeyboardInterrupt
        return float(number)

    def _raise_failure(self, failure: BaseException | None) -> None:
        """On the ranks that failed their own exception, on the others one that names the first."""
        text = "" if failure is None else f"{type(failure).__name__}: {failure}".rstrip(": ")
        texts = self.ranks.gather_text(text)
        first = next(rank for rank, text in enumerate(texts) if text)
        if failure is None or isinstance(failure, KeyboardInterrupt):
            failure = RankError(f"rank {first} failed: {texts[first]}", first)
        self.known = failure
        raise failure
