"""What all ranks of a run must see alike: Ctrl-C, the clock, values, and exceptions of user code.

None of that costs a message of its own.  A flag and the clock of each rank travel with every sum
that a run makes over ranks: what comes back is the same on all ranks, and all act on it at the same
place.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from time import perf_counter
from types import FrameType
from typing import Any

import numpy as np

from momentous.core.interrupt import InterruptFlag
from momentous.core.space import Array, Space
from momentous.distributed.ranks import RankError, Ranks

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
        self.known: BaseException | None = None  # the exception of user code that all know of
        self.seconds = 0.0  # the mean over ranks of the clock, as of the last sum
        self._spent, self._since = 0.0, perf_counter()
        self._running = True
        self._passenger: list[float] = []

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

    # --- the clock: seconds inside the method and the user's functions ---------------------------

    def set_clock(self, seconds: float) -> None:
        """For a run that is resumed."""
        self.seconds = self._spent = seconds
        self._since = perf_counter()

    def start_clock(self) -> None:
        if not self._running:
            self._since, self._running = perf_counter(), True

    def stop_clock(self) -> None:
        self._spent, self._running = self._clock(), False

    def _clock(self) -> float:
        return self._spent + (perf_counter() - self._since if self._running else 0.0)

    # --- sums ------------------------------------------------------------------------------------

    def total(self, sums: np.ndarray) -> np.ndarray:
        """Local sums in, global sums out: what a `Space` asks for."""
        passengers, self._passenger = self._passenger, []
        numbers = np.concatenate([sums, passengers, self._note(None)])
        whole = self.ranks.all_reduce(numbers)
        if passengers:
            self._passenger = [float(whole[len(sums)])]
        self._learn(whole[-2:], None)
        return np.asarray(whole[: len(sums)])

    def with_value(self, value: float, work: Callable[[], Any]) -> tuple[Any, float]:
        """What ``work`` gives, which makes a sum over ranks, and the value of rank 0, which
        travels with it: NaN if that of any rank is not finite."""
        self._passenger = [self._of_rank_0(value)]
        result = work()
        (value,) = self._passenger
        self._passenger = []
        return result, value

    def same_value(self, value: float) -> float:
        """The value of rank 0 on all ranks; NaN if that of any rank is not finite."""
        return float(self.total(np.array([self._of_rank_0(value)]))[0])

    def _of_rank_0(self, value: float) -> float:
        if self.ranks.rank == 0:
            return value
        return 0.0 if math.isfinite(value) else math.nan

    def local(self, work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
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

    def sum_of_values(self, value: float, failure: BaseException | None) -> float:
        """The sum of values over ranks; an exception of one rank is raised on all of them."""
        whole = self.ranks.all_reduce(np.array([value, *self._note(failure)]))
        self._learn(whole[-2:], failure)
        return float(whole[0])

    def sum_of_gradients(
        self, space: Space, value: float, gradient: Array, failure: BaseException | None
    ) -> tuple[float, Array]:
        """The same for value and gradient, in one message if both are in double precision."""
        if gradient is None:
            gradient = space.from_numpy(np.zeros(space.shape))
        if space.describe()["dtype"] != "float64":
            gradient = self.ranks.all_reduce(gradient)
            return self.sum_of_values(value, failure), gradient
        xp, numbers = space.xp, [value, *self._note(failure)]
        end = xp.asarray(numbers, dtype=space.dtype, device=space.device)
        whole = self.ranks.all_reduce(xp.concat([xp.reshape(gradient, (-1,)), end]))
        value, *note = (float(number) for number in whole[space.size :])
        self._learn(np.array(note), failure)
        return value, xp.reshape(whole[: space.size], space.shape)

    # --- the note that travels with every sum ----------------------------------------------------

    def _note(self, failure: BaseException | None) -> list[float]:
        flag = float(self.interrupts.pending or isinstance(failure, KeyboardInterrupt))
        if failure is not None and not isinstance(failure, KeyboardInterrupt):
            flag = FAILURE
        return [flag, self._clock()]

    def _learn(self, note: np.ndarray, failure: BaseException | None) -> None:
        flags, seconds = note
        self.seconds = float(seconds) / self.ranks.size
        if flags >= FAILURE:
            self._raise_failure(failure)
        if flags:
            self.interrupts.pending = False
            self.interrupted = True
            raise KeyboardInterrupt

    def _raise_failure(self, failure: BaseException | None) -> None:
        """On the ranks that failed their own exception, on the others one that names the first."""
        text = "" if failure is None else f"{type(failure).__name__}: {failure}".rstrip(": ")
        texts = self.ranks.gather_text(text)
        first = next(rank for rank, text in enumerate(texts) if text)
        if failure is None or isinstance(failure, KeyboardInterrupt):
            failure = RankError(f"rank {first} failed: {texts[first]}", first)
        self.known = failure
        raise failure
