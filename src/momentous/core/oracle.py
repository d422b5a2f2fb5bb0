"""The oracle: all that a method can ask about the function.  It counts, caches and checks.

A value is counted as one value, a gradient (or the image of a map) as one gradient, a fused call as
one of each.  The last point is remembered by identity (arrays are never changed once they have been
handed out), so asking again for what is known costs nothing and counts nothing.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from momentous.core.admission import explain_read_only
from momentous.core.passes import GRADIENT, Pass
from momentous.core.record import record
from momentous.core.sources import Source, with_kinks
from momentous.core.space import Array, set_writable
from momentous.io.types import Unchecked

Work = tuple[Pass, Sequence[Array], Sequence[float]]
_NO_WORK: Work = (GRADIENT, (), ())


@record
class Sample:
    """One point with its value, gradient and norm, as far as they are known."""

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


class BudgetSpentError(Exception):
    """A method asks for more than ``max_evaluations`` allows: the loop ends the run."""


class InterruptFlag:
    """Ctrl-C: let through while user code runs, held back while a step is being put together.

    A context manager around user code; :meth:`held_back` makes it matter.

    Held back, an interrupt that arrives outside of user code waits for the next piece of user code
    or for :meth:`raise_pending`; a second one does not wait.
    """

    def __init__(self) -> None:
        self.pending = False
        self.depth = 0  # of user code: a callback may call the oracle

    def __enter__(self) -> None:
        if self.pending:
            self.raise_pending()
        self.depth += 1

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.depth -= 1
        if error is not None:
            explain_read_only(error)

    def raise_pending(self) -> None:
        """Raise the interrupt that was held back, if there is one."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Hold interrupts back.  Handlers that are not Python's own are left alone."""
        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if not ours:
            yield
            return
        signal.signal(signal.SIGINT, self._arrived)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _arrived(self, signal_number: int, frame: FrameType | None) -> None:
        if self.depth or self.pending:
            self.pending = False
            raise KeyboardInterrupt
        self.pending = True


class Oracle:
    """What a method may ask about the function, or the descent map, of a source: counted, checked,
    and the last answer remembered."""

    limit: float = math.inf  # values, and gradients, that may be computed
    # Of a map: is a point in the set that its points are to stay in?  None: there is none.
    is_feasible: Callable[[Array], bool] | None = None
    lowest: Sample | None = None  # that was evaluated, where there is a limit
    last: Sample | None = None  # what is known of the point that was asked for last

    def __init__(self, source: Source, interrupts: InterruptFlag | None = None):
        source = with_kinks(source)
        self.source, self.space, self.fused = source, source.space, source.fused
        self.has_values, self.noun = source.has_values, source.noun
        self.advice, self.words = source.advice, source.words
        self.nfev = 0  # values that were computed
        self.njev = 0  # gradients, counted on their own
        # Stands around every call of user code.
        self.interrupts = InterruptFlag() if interrupts is None else interrupts
        self._work = _NO_WORK
        # What a pass has made of the last gradient; nothing where that was known before.
        self._made: list[tuple[tuple[Array, ...], tuple[float, ...]]] = []

    def recall(self, sample: Sample | None) -> None:
        """Put a sample back as the last point, so that the next request for it is free."""
        self.last = sample

    def value(self, x: Array) -> float:
        """f(x), possibly not finite: that is for the method to judge."""
        last = self.last if self.last is not None and self.last.point is x else None
        if last is not None and last.value == last.value:  # not NaN: known
            return last.value
        if self.fused:
            return self.gradient(x).value
        if self.nfev >= self.limit:
            raise BudgetSpentError
        with self.interrupts:
            value = self.source.value(x)
        self.nfev += 1
        if last is None:
            self.last = Sample(x, value)
        else:
            last.value = value
        return value

    def gradient(self, x: Array) -> Sample:
        """The gradient at x (or the image of a map), its norm, and the value if it came along."""
        known, last = math.nan, self.last
        if last is not None and last.point is x:
            if last.gradient is not None or last.image is not None:  # `evaluated`
                return last
            known = last.value
        else:
            # Let the old gradient go before the user's code makes a new one.
            self.last = last = None
        if self.njev >= self.limit:
            raise BudgetSpentError
        set_writable(x, False)
        flag = self.interrupts
        if flag.pending:
            flag.raise_pending()
        flag.depth += 1
        try:  # as `with` does it, in half of the time
            value, answer, values = self.source.gradient(x, known)
        except BaseException as error:
            explain_read_only(error)
            raise
        finally:
            flag.depth -= 1
        if last is not None and isinstance(value, float) and value != value:
            value = known
        self.last = sample = self._sample(x, value, answer)
        # Counted now: on ranks a sum in `_sample` may bring Ctrl-C, and the answer is lost then.
        self.nfev += values
        self.njev += 1
        if self.fused and not math.isfinite(sample.value):
            sample.grad_norm = math.nan  # of no use where the function is not finite
        if self.limit < math.inf and math.isfinite(sample.grad_norm):
            low = self.lowest
            self.lowest = sample if low is None or sample.value < low.value else low
        return sample

    def _sample(self, x: Array, value: Unchecked, answer: Array) -> Sample:
        """The sample that user code's answer at x makes."""
        space = self.space
        if self.source.is_map:
            norm = space.distance(x, answer)
            return Sample(x, value if self.has_values else norm, None, norm, answer)
        box = space.box or space.penalty
        if not space.fuses:
            size = space.norm(answer) if box is None else box.size(space, x, answer)
            return Sample(x, value, answer, size)
        # One pass and one transfer: the norm, the value, and what the method is about to do.
        work, vectors, numbers = self._work
        made, sums, value = space.compute(work, (answer, *vectors), numbers, value)
        self._made = [(made, sums[1:])]
        if box is not None:
            return Sample(x, value, answer, box.size(space, x, answer))
        return Sample(x, value, answer, space.norm_from(sums[0], answer))

    def gradient_with(
        self, x: Array, work: Pass, vectors: Sequence[Array], numbers: Sequence[float] = ()
    ) -> tuple[Sample, tuple[Array, ...], tuple[float, ...]]:
        """The gradient at x, and what a pass makes of it and more vectors: its new vectors, and
        its sums behind the first, which is the square of the gradient."""
        if self.space.fuses:
            self._work, self._made = (work, vectors, numbers), []
            try:
                sample = self.gradient(x)
            finally:
                self._work = _NO_WORK
            for made, sums in self._made:
                return sample, made, sums
        else:
            sample = self.gradient(x)
        given = (sample.gradient, *vectors)
        made, sums, _ = self.space.compute(work, given, numbers, skip=1)
        return sample, made, sums

    def learn(self, sample: Sample, *, gradient: bool = False) -> Sample:
        """Evaluate f (or the gradient) at the sample, if it is unknown, and note it there; what the
        oracle remembers stays as it was."""
        if sample.evaluated if gradient else sample.value == sample.value:
            return sample
        kept, self.last = self.last, sample
        try:
            if gradient:
                self.gradient(sample.point)
            else:
                self.value(sample.point)
            found = self.last  # another one where the gradient came along
            sample.value, sample.gradient = found.value, found.gradient
            sample.grad_norm, sample.image = found.grad_norm, found.image
        finally:
            self.last = kept
        return sample

    def peek(self, x: Array) -> float:
        """f(x) for plots only: neither counted nor remembered."""
        last = self.last
        if last is not None and last.point is x and last.value == last.value:
            return last.value
        with self.interrupts:
            return self.source.value(x)

    def evaluate_anew(self, x: Array, *, value: bool = True, counted: bool = False) -> Sample:
        """Gradient (and value) at x whether or not they are known, and not remembered: to check
        user code."""
        kept = self.last, self.nfev, self.njev, self.limit, self.lowest
        self.last, self.limit = None, self.limit if counted else math.inf
        try:
            sample = self.gradient(x)
            if value:
                sample.value = self.value(x)
            return sample
        finally:
            spent = self.nfev, self.njev
            self.last, self.nfev, self.njev, self.limit, self.lowest = kept
            if counted:
                self.nfev, self.njev = spent

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """What a result shows besides x: the gradient as ``jac``."""
        return self.source.arrays_at(sample.point, sample.gradient, sample.image)
