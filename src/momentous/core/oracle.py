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
from typing import Any

from momentous.core.admission import Admission, both_of, scalar, source_of, without_grad
from momentous.core.admission import Differences as Differences
from momentous.core.admission import Fun as Fun
from momentous.core.admission import Jac as Jac
from momentous.core.admission import Words as Words
from momentous.core.admission import levels_to_the_user as levels_to_the_user
from momentous.core.passes import GRADIENT, Pass
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
        self.error: BaseException | None = None  # the last that came out of user code
        self.depth = 0  # of user code: a callback may call the oracle

    def __enter__(self) -> None:
        self.raise_pending()
        self.depth += 1

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.depth -= 1
        if error is not None:
            self.error = error

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
    """What a method may ask about the function: counted, checked, and the last answer remembered.

    `FunctionOracle` calls a function and its gradient, `MapOracle` a descent map.
    """

    has_values: bool = True  # of an objective; otherwise the residual's norm takes their place
    noun: str = "gradient"  # what the norms of samples are norms of, for messages
    advice: str = ""  # where a run makes no progress: what to do about the gradient
    words: Words | None = None  # of a function that gives value and gradient at one price
    limit: float = math.inf  # values, and gradients, that may be computed
    # Of a map: is a point in the set that its points are to stay in?  None: there is none.
    is_feasible: Callable[[Array], bool] | None = None
    lowest: Sample | None = None  # that was evaluated, where there is a limit
    _last: Sample | None = None

    def __init__(self, space: Space, *, fused: bool):
        self.space = space
        self.fused = fused  # does every gradient bring the value with it?
        self.nfev = 0  # values that were computed
        self.njev = 0  # gradients, counted on their own
        self.interrupts = InterruptFlag()  # stands around every call of user code
        self._carried: Sample | None = None
        self._asked = False

    def _call_value(self, x: Array) -> float:
        """f(x) from user code."""
        raise NotImplementedError

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        """Value or NaN, gradient or image, and the number of values that this took, from user code.

        ``known`` is the value at x if it is known, otherwise NaN.
        """
        raise NotImplementedError

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        """The sample that user code's answer at x makes."""
        raise NotImplementedError

    def recall(self, sample: Sample) -> None:
        """Put a sample back as the last point, so that the next request for it is free."""
        self._last = sample

    @property
    def last(self) -> Sample | None:
        """What is known of the point that was asked for last."""
        return self._last

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """What a result shows besides x: the gradient as ``jac``."""
        return {"jac": sample.gradient}

    def gradient_with(
        self, x: Array, work: Pass, vectors: Sequence[Array], numbers: Sequence[float] = ()
    ) -> tuple[Sample, tuple[Array, ...], tuple[float, ...]]:
        """The gradient at x, and what a pass makes of it and more vectors: its new vectors, and
        its sums behind the first, which is the square of the gradient."""
        sample = self.gradient(x)
        made, sums, _ = self.space.compute(work, (sample.gradient, *vectors), numbers, skip=1)
        return sample, made, sums

    def value(self, x: Array) -> float:
        """f(x), possibly not finite: that is for the method to judge."""
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
        """The gradient at x (or the image of a map), its norm, and the value if it came along."""
        last = self._last
        if last is not None and last.point is x:
            if last.gradient is not None or last.image is not None:  # `evaluated`
                self._asked = True
                return last
        else:
            # Let the old gradient go before the user's code makes a new one.
            self._last = last = None
        if self.njev >= self.limit:
            raise BudgetSpentError
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
        if last is not None and isinstance(value, float) and value != value:
            value = last.value
        self._last = sample = self._sample(x, value, answer)
        # Counted now: on ranks a sum in `_sample` may bring Ctrl-C, and the answer is lost then.
        self.nfev += values
        self.njev += 1
        if self.fused and not math.isfinite(sample.value):
            sample.grad_norm = math.nan  # of no use where the function is not finite
        if self.limit < math.inf and math.isfinite(sample.grad_norm):
            low = self.lowest
            self.lowest = sample if low is None or sample.value < low.value else low
        return sample

    def learn_value(self, sample: Sample) -> None:
        """Evaluate f at the sample, if it is unknown; what the oracle remembers stays as it was."""
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
        """f(x) for plots only: neither counted nor remembered."""
        last = self._last
        if last is not None and last.point is x and last.value == last.value:
            return last.value
        with self.interrupts:
            return self._call_value(x)

    def peek_gradient(self, x: Array, *, value: bool = True) -> Sample:
        """Gradient (and value) at x, neither counted nor remembered: to check user code."""
        kept = self.nfev, self.njev, self.limit, self.lowest
        self.limit = math.inf
        try:
            return self.evaluate_anew(x, value=value)
        finally:
            self.nfev, self.njev, self.limit, self.lowest = kept

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
        """What a step of a plain method may use that begins again."""
        return self._carried if self._asked else self._last

    def take_back(self, nfev: int, njev: int) -> None:
        """As it was before the step of a plain method that was broken off."""
        self._last, self.nfev, self.njev = self.carried, nfev, njev

    def begin_step(self) -> None:
        """What is known now may be used by the step that begins."""
        self._carried, self._asked = self._last, False

    def _note_request(self, known: Sample | None) -> None:
        if not self._asked:
            self._asked = True
            if known is None:  # the step began with another point, and so it would again
                self._carried = None


class FunctionOracle(Oracle):
    """Values and gradients of the user's function; fun, jac, args as for `momentous.minimize`."""

    def __init__(self, fun: Fun, jac: Jac, args: tuple[object, ...], space: Space):
        self._source = source_of(fun, jac, args, space)
        super().__init__(space, fused=self._source.fused)
        if space.box is not None:
            self.noun = "projected gradient"
        elif space.penalty is not None:
            self.noun = "proximal gradient"
        self.advice, self.words = self._source.advice, self._source.words
        self._work: tuple[Pass, Sequence[Array], Sequence[float]] = (GRADIENT, (), ())
        self._made: tuple[tuple[Array, ...], tuple[float, ...]] | None = None

    def _call_value(self, x: Array) -> float:
        if self.space.box is not None:
            x = self._inside(x)
        value = self._source.value(x)
        penalty = self.space.penalty
        return value if penalty is None else value + penalty.total(self.space, x)

    def _inside(self, x: Array) -> Array:
        """Never outside of the box, whoever asks: rules ask inside, and there this changes
        nothing."""
        box = self.space.box
        return x if x is box.latest else box.clip(self.space, x)

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if self.space.box is not None:
            x = self._inside(x)
        if self.space.penalty is not None:
            return self._with_penalty(x, known)
        return self._source.gradient(x, known)

    def _with_penalty(self, x: Array, known: float) -> tuple[float, Array, int]:
        """The value of f with the term, the gradient of f with what is smooth in it."""
        space, penalty = self.space, self.space.penalty
        h = penalty.total(space, x)
        value, answer, values = self._source.gradient(x, known - h)
        return value + h, penalty.smooth(space, x, answer), values

    def _sample(self, x: Array, value: Any, answer: Array) -> Sample:
        space = self.space
        box = space.box or space.penalty
        if not space.fuses:
            size = space.norm(answer) if box is None else box.size(space, x, answer)
            return Sample(x, value, answer, size)
        # One pass and one transfer: the norm, the value, and what the method is about to do.
        work, vectors, numbers = self._work
        made, sums, value = space.compute(work, (answer, *vectors), numbers, value)
        self._made = made, sums[1:]
        if box is not None:
            return Sample(x, value, answer, box.size(space, x, answer))
        return Sample(x, value, answer, space.norm_from(sums[0], answer))

    def gradient_with(
        self, x: Array, work: Pass, vectors: Sequence[Array], numbers: Sequence[float] = ()
    ) -> tuple[Sample, tuple[Array, ...], tuple[float, ...]]:
        if not self.space.fuses:
            return super().gradient_with(x, work, vectors, numbers)
        self._work, self._made = (work, vectors, numbers), None
        try:
            sample = self.gradient(x)
        finally:
            self._work = (GRADIENT, (), ())
        made = self._what_was_made()
        if made is None:  # the gradient was known
            return super().gradient_with(x, work, vectors, numbers)
        return sample, *made

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """Differences tell nothing of a fixed variable: NaN, as SciPy has it."""
        box, penalty, gradient = self.space.box, self.space.penalty, sample.gradient
        if penalty is not None and gradient is not None:  # that of f alone
            return {"jac": penalty.smooth(self.space, sample.point, gradient, -1.0)}
        if box is None or gradient is None or not self._source.by_differences:
            return {"jac": gradient}
        fixed = lambda xp, g, low, up: xp.where(low < up, g, math.nan)  # noqa: E731
        return {"jac": self.space.each(fixed, gradient, box.lower, box.upper)}

    def _what_was_made(self) -> tuple[tuple[Array, ...], tuple[float, ...]] | None:
        """New vectors and sums of the pass that came with the last gradient, if one was asked."""
        made, self._made = self._made, None
        return made


class MapOracle(Oracle):
    """Images and values of the user's descent map T: step, value and args as for
    `momentous.accelerate`.  Where a gradient would stand there is the image T(x), and the norm of a
    sample is that of the residual x - T(x), which is zero at the fixed points.

    Where there is no objective, the norm of the residual stands for it.
    """

    noun = "residual"

    def __init__(
        self,
        step: Fun,
        value: Fun | bool | None,
        args: tuple[object, ...],
        space: Space,
    ):
        if not callable(step):
            raise TypeError(f"step must be callable, not {step!r}")
        if not (value is None or value is True or callable(value)):
            raise TypeError(f"value={value!r} must be callable, True or None")
        super().__init__(space, fused=not callable(value))
        self._step = without_grad(step, space)
        self._objective = without_grad(value, space) if callable(value) else None
        self._paired = value is True
        self.has_values = value is not None
        self._args = args
        self._admission = Admission(space)

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """The residual x - T(x) as ``jac``, and T(x) as ``image``."""
        x, image = sample.point, sample.image
        residual = None if image is None else self.space.combination(x, -1.0, image)
        return {"jac": residual, "image": image}

    def _call_value(self, x: Array) -> float:
        set_writable(x, False)
        if self._objective is not None:
            return scalar(self._objective(x, *self._args), "value")
        value, image, _ = self._call_gradient(x, math.nan)
        return self._sample(x, value, image).value

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if not self._paired:
            image = self._admission.admit(self._step(x, *self._args), "step")
            return math.nan, image, int(not self.has_values)
        contract = "with value=True step must return (x_next, value at x)"
        parts = both_of(self._step(x, *self._args), contract)
        value = scalar(parts.pop(), "step (the value)")
        return value, self._admission.admit(parts.pop(), "step"), 1

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        norm = self.space.distance(x, answer)
        return Sample(x, value if self.has_values else norm, None, norm, answer)


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
