"""The oracle: all that a method can ask about the function.  It counts, caches and checks.

A value is counted as one value, a gradient (or the image of a map) as one gradient, a fused call as
one of each.  The last point is remembered by identity (arrays are never changed once they have been
handed out), so asking again for what is known costs nothing and counts nothing.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from momentous.core.interrupt import InterruptFlag
from momentous.core.passes import Pass
from momentous.core.record import record
from momentous.core.space import Array, Space, set_writable


@record
class Sample:
    """What is known about one point."""

    point: Array
    value: float = math.nan  # f(point), NaN while unknown
    gradient: Array = None  # its gradient, None while unknown
    grad_norm: float = math.nan  # the norm of the gradient, or of the residual point - image
    image: Array = None  # T(point), where a map T takes the place of the gradient

    @property
    def has_finite_gradient(self) -> bool:
        return math.isfinite(self.grad_norm)

    @property
    def evaluated(self) -> bool:
        """Is the gradient, or the image, known?"""
        return self.gradient is not None or self.image is not None


NO_SAMPLE = Sample(None)


class Words(NamedTuple):
    """What the caller calls function and gradient, for messages; and the way out."""

    function: str = "fun"
    gradient: str = "jac"
    remedy: str = "correct it, or let it be computed: jac='autodiff', '3-point' or '2-point'"
    repeat: str = (
        "draw the batch, or the random numbers, once before the run; for mini-batches use "
        "torch.optim or optax"
    )


# How the names of dtypes begin that a value of f cannot have: NumPy's, then PyTorch's.
NO_NUMBERS = ("complex", "str", "bytes", "void", "datetime", "timedelta", "torch.complex")


class Oracle(abc.ABC):
    """The questions that a method may ask.

    There are three: `FunctionOracle` for a function and its gradient, `MapOracle` for a descent
    map, and `MetricOracle` for a function in coordinates in which a metric is Euclidean.
    """

    space: Space  # of x
    nfev: int  # values that were computed
    njev: int  # gradients, counted on their own
    interrupts: InterruptFlag  # stands around every call of user code
    fused: bool  # does every gradient bring the value with it?
    has_values: bool = True  # of an objective; otherwise the residual's norm takes their place
    noun: str = "gradient"  # what the norms of samples are norms of, for messages
    advice: str = ""  # where a run makes no progress: what to do about the gradient
    words: Words | None = None  # of a function that gives value and gradient at one price
    _last: Sample | None = None

    @abc.abstractmethod
    def value(self, x: Array) -> float:
        """f(x), possibly not finite: that is for the method to judge."""

    @abc.abstractmethod
    def gradient(self, x: Array) -> Sample:
        """The gradient at x (or the image of a map), its norm, and the value if it came along."""

    def gradient_with(
        self, x: Array, work: Pass, vectors: Sequence[Array], numbers: Sequence[float] = ()
    ) -> tuple[Sample, tuple[Array, ...], tuple[float, ...]]:
        """The gradient at x, and what a pass makes of it and more vectors: its new vectors, and
        its sums behind the first, which is the square of the gradient."""
        sample = self.gradient(x)
        made, sums, _ = self.space.compute(work, (sample.gradient, *vectors), numbers, skip=1)
        return sample, made, sums

    @abc.abstractmethod
    def learn_value(self, sample: Sample) -> None:
        """Evaluate f at the sample, if it is unknown; what the oracle remembers stays as it was."""

    def recall(self, sample: Sample) -> None:
        """Put a sample back as the last point, so that the next request for it is free."""
        self._last = sample

    @property
    def last(self) -> Sample | None:
        """What is known of the point that was asked for last."""
        return self._last

    @abc.abstractmethod
    def peek(self, x: Array) -> float:
        """f(x) for plots only: neither counted nor remembered."""

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """What a result shows besides x: the gradient as ``jac``."""
        return {"jac": sample.gradient}


class BudgetSpentError(Exception):
    """A method asks for more than ``max_evaluations`` allows: the loop ends the run."""


class CachedOracle(Oracle):
    """Counts, and remembers the last point: what the oracles that call user code share."""

    limit: float = math.inf  # values, and gradients, that may be computed

    def __init__(self, space: Space, *, fused: bool):
        self.space = space
        self.fused = fused
        self.nfev = 0
        self.njev = 0
        self.interrupts = InterruptFlag()
        self._carried: Sample | None = None
        self._asked = False

    @abc.abstractmethod
    def _call_value(self, x: Array) -> float:
        """f(x) from user code."""

    @abc.abstractmethod
    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        """Value or NaN, gradient or image, and the number of values that this took, from user code.

        ``known`` is the value at x if it is known, otherwise NaN.
        """

    @abc.abstractmethod
    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        """The sample that user code's answer at x makes."""

    def value(self, x: Array) -> float:
        last = self._last
        if last is not None and last.point is x:
            if last.value == last.value:  # not NaN: known
                self._asked = True
                return last.value
        else:
            last = None
        if self.fused:
            return self.gradient(x).value
        if self.nfev >= self.limit:
            raise BudgetSpentError
        self._note_request(last)
        writes = x._version if self.space.counts_writes else 0
        with self.interrupts:
            try:
                value = self._call_value(x)
            except ValueError as error:
                explain_read_only(error)
                raise
        if self.space.counts_writes and x._version != writes:
            raise written_into()
        self.nfev += 1
        if last is None:
            self._last = Sample(x, value)
        else:
            last.value = value
        return value

    def gradient(self, x: Array) -> Sample:
        last = self._last
        if last is not None and last.point is x:
            if last.gradient is not None or last.image is not None:  # `evaluated`
                self._asked = True
                return last
        elif self.njev >= self.limit:
            raise BudgetSpentError
        else:
            # Let the old gradient go before the user's code makes a new one.
            self._last = last = None
        # From here on small things are written out rather than called: this is the hottest place.
        if not self._asked:  # `_note_request`
            self._asked = True
            if last is None:
                self._carried = None
        set_writable(x, False)
        counts_writes, interrupts = self.space.counts_writes, self.interrupts
        writes = x._version if counts_writes else 0
        if interrupts.pending:
            interrupts.raise_pending()
        interrupts.depth += 1  # `with interrupts`
        try:
            value, answer, values = self._call_gradient(x, math.nan if last is None else last.value)
        except BaseException as error:
            interrupts.error = error
            explain_read_only(error)
            raise
        finally:
            interrupts.depth -= 1
        if counts_writes and x._version != writes:
            raise written_into()
        self.nfev += values
        self.njev += 1
        if last is not None and isinstance(value, float) and value != value:
            value = last.value
        self._last = sample = self._sample(x, value, answer)
        if self.fused and not math.isfinite(sample.value):
            sample.grad_norm = math.nan  # of no use where the function is not finite
        return sample

    def learn_value(self, sample: Sample) -> None:
        if sample.value == sample.value:
            return
        kept, self._last = self._last, sample
        try:
            self.value(sample.point)
            found = self._last or sample  # another one where the gradient came along
            sample.value, sample.gradient = found.value, found.gradient
            sample.grad_norm, sample.image = found.grad_norm, found.image
        finally:
            self._last = kept

    def peek(self, x: Array) -> float:
        last = self._last
        if last is not None and last.point is x and last.value == last.value:
            return last.value
        with self.interrupts:
            return self._call_value(x)

    def peek_gradient(self, x: Array, *, value: bool = True) -> Sample:
        """Gradient (and value) at x, neither counted nor remembered: to check user code."""
        kept = self.nfev, self.njev
        try:
            return self.evaluate_anew(x, value=value)
        finally:
            self.nfev, self.njev = kept

    def evaluate_anew(self, x: Array, *, value: bool = True) -> Sample:
        """Gradient (and value) at x whether or not they are known, counted and not remembered."""
        kept = self._last, self._carried, self._asked
        self._last = None
        try:
            sample = self.gradient(x)
            if value:
                sample.value = self.value(x)
            return sample
        finally:
            self._last, self._carried, self._asked = kept

    @property
    def carried(self) -> Sample | None:
        """What a step may use that begins here or, in the middle of one, begins again."""
        return self._carried if self._asked else self._last

    def begin_step(self) -> None:
        """What is known now may be used by the step that begins."""
        self._carried, self._asked = self._last, False

    def end_step(self) -> None:
        self._carried, self._asked = None, False

    def _note_request(self, known: Sample | None) -> None:
        if not self._asked:
            self._asked = True
            if known is None:  # the step began with another point, and so it would again
                self._carried = None


def explain_read_only(error: BaseException) -> None:
    """NumPy says that an array is read-only; say which one, and what to do."""
    if isinstance(error, ValueError) and error.args and "read-only" in str(error.args[0]):
        error.args = (
            f"{error.args[0]}: user code writes into x, which it must leave as it is; let it work "
            "on x.copy() instead",
        )


def written_into() -> RuntimeError:
    return RuntimeError(
        "user code has written into x; it must leave x as it is (work on x.clone() instead)"
    )


def without_grad(function: Any, space: Space) -> Any:
    """For PyTorch: user code may make its x require gradients, ours must not."""
    if not space.counts_writes:
        return function
    return lambda x, *args: function(x.detach(), *args)


def both_of(pair: Any, contract: str) -> list[Any]:
    """The two things that user code returned, in a list so that each can be taken out of it: the
    array is in one place only then."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{contract}, but it returned {type(pair).__name__}")
    return list(pair)


def scalar(raw: Any, source: str) -> float:
    """A user's function value as a float: a number, a 0-d array or an array of one element."""
    if isinstance(raw, float):
        return float(raw)  # one of NumPy's is a float, too
    if getattr(raw, "requires_grad", False):
        raw = raw.detach()
    size = math.prod(getattr(raw, "shape", ()))
    if size != 1:
        raise ValueError(
            f"{source} returned an array of shape {tuple(raw.shape)}; it must return one number"
        )
    try:
        number = raw.reshape(()) if getattr(raw, "shape", ()) else raw
        if isinstance(number, np.ndarray):
            number = number[()]  # of an array of objects, the object
        dtype = getattr(number, "dtype", "")
        kind = getattr(dtype, "name", str(dtype))
        # float() would read text: "3" is no number.
        if isinstance(number, str | bytes | bytearray | complex) or kind.startswith(NO_NUMBERS):
            raise TypeError
        return float(number)
    except (TypeError, ValueError):
        raise TypeError(
            f"{source} returned {raw!r} ({type(raw).__name__}); it must return one real number"
        ) from None
