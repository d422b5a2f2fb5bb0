"""What all ranks of a run must see alike: Ctrl-C, values, and exceptions of user code.

It travels with the sums that a run makes over ranks, and costs nothing while there is no news.  A
rank that has news puts NaN in the place of its first number, so the sum is NaN on all ranks.  All
who see that ask, in a message of its own, what it means, and act on it at the same place.

Where every rank has all of x, a checksum of it travels with the parts that are computed there, so
parts from different points are never added up.  Points differ where CPUs or libraries round
differently; from then on the x of rank 0 is sent to all before each evaluation.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar
from zlib import crc32

import array_api_compat
import numpy as np

from momentous.core.admission import levels_to_the_user
from momentous.core.oracle import InterruptFlag
from momentous.core.space import Array, Space, set_writable, to_numpy
from momentous.distributed.ranks import RankError, Ranks
from momentous.io.types import AnyArray

T = TypeVar("T")

# Flags are added up: so many interrupts can be told from failures.
FAILURE = 2.0**24

# By this power of the unit of rounding, as a share of the largest entry, points may differ (6e-6 in
# double precision): one iteration after equal points L-BFGS with L1 was 2e-13 away at most, over 12
# runs on unlike kernels.
ROUNDING_POWER = 1 / 3
ALIKE = (
    "give unlike CPUs the same kernels (OPENBLAS_CORETYPE=Haswell and NPY_DISABLE_CPU_FEATURES, "
    "the same on all ranks), and install the same releases everywhere"
)


class PointsDifferError(Exception):
    """Parts of a sum come from different points; raised on all ranks."""


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
        self._sends_x = False  # rank 0, before each evaluation

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

    def sum_of_local(self, work: Callable[[], float], at: Array) -> float:
        """The sum over ranks of the values that local user code gives."""
        value, failure = self.local(work)
        return self.sum_of_values(0.0 if value is None else value, at, failure)

    def sum_of_values(self, value: float, at: Array, failure: BaseException | None = None) -> float:
        """The sum over ranks of values at a point that all of them have; an exception of one rank
        is raised on all of them."""
        whole = self._added([value, float(self._mark(at))], failure)
        self._require_same_point(whole[1])
        return float(whole[0])

    def sum_of_gradients(
        self, space: Space, value: float, gradient: Array, at: Array,
        failure: BaseException | None,
    ) -> tuple[float, Array]:  # fmt: skip
        """The same for value and gradient, in one message if both are in double precision."""
        if gradient is None:
            gradient = space.from_numpy(np.zeros(space.shape))
        if space.describe()["dtype"] != "float64":
            gradient = self.ranks.all_reduce(gradient)
            return self.sum_of_values(value, at, failure), gradient
        xp, place = space.xp, {"dtype": space.dtype, "device": space.device}
        end = xp.asarray(self._outgoing([value], failure), **place)
        mark = xp.reshape(xp.asarray(self._mark(at), **place), (1,))
        whole = self.ranks.all_reduce(xp.concat([xp.reshape(gradient, (-1,)), end, mark]))
        found = self._incoming(to_numpy(whole[space.size :]), value, failure)
        self._require_same_point(found[1])
        return float(found[0]), xp.reshape(whole[: space.size], space.shape)

    # --- one x -----------------------------------------------------------------------------------

    def _mark(self, x: Array) -> Array:
        """A whole number, exact in a float64: the marks of all ranks add up to 0 if x is the same
        everywhere; if not, they do with a probability of 2^-32."""
        return checksum(x) * (self.ranks.size - 1 if self.ranks.rank == 0 else -1)

    def _require_same_point(self, marks: float) -> None:
        if marks != 0.0:
            raise PointsDifferError

    def at_one_point(self, x: Array, evaluate: Callable[[], T]) -> T:
        """What ``evaluate`` gives, a sum over ranks of their parts at x, which must be the same on
        all of them: it becomes that of rank 0 where it differs by rounding."""
        if self._sends_x:
            self._take_over_point(x)
        try:
            return evaluate()
        except PointsDifferError:
            self._sends_x = True
        self._take_over_point(x)
        if self.ranks.rank == 0:
            warnings.warn(
                "the ranks round differently: from here on x is sent to all of them for each "
                f"evaluation, as many numbers as the gradient has; to save this, {ALIKE}",
                RuntimeWarning,
                stacklevel=levels_to_the_user(),
            )
        return evaluate()

    def point_of_rank_0(self, x: Array) -> Array:
        """A RankError on all ranks where one has a point that differs by more than rounding."""
        first, xp = self.ranks.broadcast(x), array_api_compat.array_namespace(x)
        apart, limit = _apart(to_numpy(x), to_numpy(first)), xp.finfo(x.dtype).eps ** ROUNDING_POWER
        if self.ranks.all_reduce(np.array([apart]), "max")[0] > limit:
            found = [float(text) for text in self.ranks.gather_text(str(apart))]
            rank = next(rank for rank, apart in enumerate(found) if apart > limit)
            how = f"{found[rank]:.1g} of its largest entry apart"
            raise self._known_to_all(
                RankError(
                    f"rank {rank} has another x than rank 0, "
                    f"{how if math.isfinite(found[rank]) else 'with entries that are not finite'}, "
                    "so their parts do not add up: all ranks must be called with the same "
                    "arguments, and prox, callback and libraries give the same on each",
                    rank,
                )
            )
        return first

    def _take_over_point(self, x: Array) -> None:
        """Write the x of rank 0 into that of this rank."""
        first = self.point_of_rank_0(x)
        if array_api_compat.is_jax_array(x):
            raise self._known_to_all(
                RankError(
                    "the ranks round differently, and their x of JAX cannot be corrected: pass x0 "
                    f"of NumPy or PyTorch, or {ALIKE}"
                )
            )
        set_writable(x, True)
        x[...] = first
        set_writable(x, False)

    def _known_to_all(self, error: RankError) -> RankError:
        self.known = error
        return error

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


def _apart(x: AnyArray, first: AnyArray) -> float:
    """How far the one is from the other, as a share of its largest entry."""
    if np.array_equal(x, first, equal_nan=True):  # but for signs of zeros and bits of NaN
        return 0.0
    with np.errstate(all="ignore"):
        share = np.max(np.abs(x - first)) / np.max(np.abs([x, first]))
    return float(share) if np.isfinite(share) else math.inf


def checksum(x: Array) -> Array:
    """A whole number below 2^32 that depends on every bit of x: of an array on a GPU an array
    there, which nobody has to wait for."""
    if array_api_compat.is_cupy_array(x) or getattr(x, "is_cuda", False):
        return checksum_on_device(x)
    host = to_numpy(x)
    # Longer numbers than doubles have bytes that mean nothing.
    whole = np.ascontiguousarray(host, float if host.dtype.itemsize > 8 else None)
    return crc32(whole.reshape(-1).view(np.uint8).data)


def checksum_on_device(x: Array) -> Array:
    """The sum of the entries' bits times odd numbers, modulo 2^64, folded; exact in a float64."""
    xp, device = array_api_compat.array_namespace(x), array_api_compat.device(x)
    kinds = {8: xp.int64, 4: xp.int32, 2: xp.int16}
    bits = xp.astype(xp.reshape(x, (-1,)).view(kinds[x.dtype.itemsize]), xp.int64)
    odd = xp.arange(1, 2 * bits.shape[0], 2, dtype=xp.int64, device=device)
    total = xp.sum(bits * (odd * 0x1E3779B97F4A7C15), dtype=xp.int64)
    return xp.astype((total ^ (total >> 32)) & 0xFFFFFFFF, xp.float64)
