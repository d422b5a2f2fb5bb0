"""Stopping criteria: small objects that look at the progress of a run and combine with | and &."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from momentous.core.machine import NUMBERS, Arithmetic, Machine
from momentous.core.record import record
from momentous.core.space import Space
from momentous.core.status import Ending, Status
from momentous.core.step import Report
from momentous.io.types import Unchecked


@record
class Stand:
    """A point that the method stands by: one that it has accepted by its value or, if it looks at
    none, one that is no higher than the last.  Of methods with epochs, where an epoch begins."""

    nit: int
    value: float  # the lowest so far; NaN where no criterion looks at it
    move: float  # from the last one
    size: float  # |x|
    grad_norm: float
    begins_epoch: bool


MEASURED_EVERY = 32  # iterations: the length of x, as it costs a pass

# A change is told from what so many epochs have brought: one may be short, or lead uphill first.
LEAST_EPOCHS = 2


@record
class Progress:
    """The state of a run for stopping rules; only the loop writes it."""

    nit: int = 0
    nfev: int = 0
    njev: int = 0
    time: float = 0.0  # seconds inside the method and the user's functions
    restarts: int = 0
    grad_norm: float = math.nan  # at the last sample
    grad_noise: float = 0.0  # how far rounding may have moved it, of a gradient by differences
    start_fun: float = math.nan  # f(x0), the scale of rounding in values
    start_norm: float = math.nan  # the norm at x0, the scale of rounding in gradients
    start_size: float = math.nan  # |x0|, the scale of lengths
    fun: float = math.nan  # at the last sample too, NaN where the method needed no value
    best_grad_norm: float = math.inf
    best_nit: int = 0
    acceptable: bool = True  # may a run end at the last sample, if its gradient is small enough?
    level: int = 0  # iterations in a row whose values differ by no more than their noise
    level_fun: float = math.inf  # from this one
    # For criteria with a window: the points of late that the method stands by.
    stands: tuple[Stand, ...] = ()
    awaits_stand: bool = False  # will the next sample be where an epoch begins?
    epoch_nit: int = 0  # the iteration of the last restart
    noun: str = "gradient"  # what the norms are norms of, for messages
    next_kink_look: int = MEASURED_EVERY  # the iteration from which on a kink is looked for again

    def out_of(self, budget: str, spent: str, numbers: Mapping[str, float]) -> Ending:
        """The ending of a run whose budget is spent: where it stands, and what to raise."""
        risen = "" if self.acceptable else ", where the objective has risen"
        where = f"{self.noun} norm {self.grad_norm:.3g}{risen}"
        message = f"{spent} {where}; raise {budget.lower()} to go on"
        return Ending(Status[budget], message, {**numbers, "grad_norm": self.grad_norm})

    def note_stand(self, stand: Stand, window: int) -> None:
        """Keep a point that the method stands by, and those before it as far as a window goes."""
        stands = (*self.stands, stand)
        while len(stands) > max(window, LEAST_EPOCHS) + 1 and stands[1].nit <= stand.nit - window:
            stands = stands[1:]
        self.stands = stands

    def settled(self, iterations: int) -> tuple[Stand, ...]:
        """The points of so many iterations that the method stands by, if this iteration has led to
        one of them; none where the last gradient is above the first.

        They are as many points as iterations; or fewer, over as many iterations and two restarts.
        """
        stands = self.stands
        if not (stands and stands[-1].nit == self.nit and stands[-1].grad_norm <= self.start_norm):
            return ()
        epochs = 0
        for points, stand in enumerate(reversed(stands)):
            enough = points >= iterations or epochs >= LEAST_EPOCHS
            if enough and self.nit - stand.nit >= iterations:
                return stands[-1 - points :]
            epochs += stand.begins_epoch
        return ()


class Criterion:
    """A reason to stop.  ``check`` returns an :class:`Ending` when it holds, otherwise None."""

    needs_value = False  # must the loop know f at every sample?
    window = 0  # iterations of which the points that the method stands by are to be known ...
    compares_values = False  # ... with their values

    def check(self, progress: Progress) -> Ending | None:
        raise NotImplementedError

    def next_check(self, progress: Progress) -> float:
        """The next iteration in which it may hold, where the gradient is not small."""
        return progress.nit + 1

    def __or__(self, other: Criterion) -> Criterion:
        return AnyOf((self, other)) if isinstance(other, Criterion) else NotImplemented

    def __and__(self, other: Criterion) -> Criterion:
        return AllOf((self, other)) if isinstance(other, Criterion) else NotImplemented


@dataclasses.dataclass(frozen=True)
class GradientNorm(Criterion):
    """|grad f| <= tolerance, in the Euclidean norm, at the last point evaluated.

    Of a gradient by differences it is enough if it is within their noise, which is all that they
    can tell.  Where the objective has risen without reason (`Progress.acceptable`) nothing is.
    """

    tolerance: float

    def __post_init__(self) -> None:
        require("tolerance", self.tolerance, 0)

    def check(self, progress: Progress) -> Ending | None:
        norm, noise, tolerance = progress.grad_norm, progress.grad_noise, self.tolerance
        if not (norm <= max(tolerance, noise) and progress.acceptable):
            return None
        numbers = {"grad_norm": norm, "tolerance": tolerance}
        if not norm <= noise or noise == 0.0:
            message = f"the {progress.noun} norm {norm:.3g} is within the tolerance {tolerance:.3g}"
            return Ending(Status.CONVERGED, message, numbers)
        message = f"the {progress.noun} norm is within the noise of differences, {noise:.2g}"
        if norm == 0.0 and progress.noun == "gradient":
            message = (
                "all differences of fun are 0: x is a minimum, or fun is flat or rounded there"
            )
        elif tolerance < noise:
            message += f", to which the tolerance {tolerance:.3g} was raised"
        else:
            message += f", and so within the tolerance {tolerance:.3g}"
        return Ending(Status.CONVERGED, message, numbers | {"noise": noise})

    def next_check(self, progress: Progress) -> float:
        return math.inf if type(self) is GradientNorm else super().next_check(progress)


@dataclasses.dataclass(frozen=True)
class Target(Criterion):
    """f <= value.  Asks for (and counts) a value at every iteration where the method has none."""

    value: float
    needs_value = True

    def __post_init__(self) -> None:
        require("target", self.value)
        object.__setattr__(self, "value", float(self.value))

    def check(self, progress: Progress) -> Ending | None:
        if not (progress.fun <= self.value and math.isfinite(progress.fun)):
            return None
        message = f"the objective {progress.fun:.6g} is at or below the target {self.value:.6g}"
        return Ending(Status.TARGET_REACHED, message, {"fun": progress.fun, "target": self.value})


@dataclasses.dataclass(frozen=True)
class Iterations(Criterion):
    """A limit on the number of iterations."""

    limit: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", whole("max_iterations", self.limit, 0))

    def check(self, progress: Progress) -> Ending | None:
        if progress.nit < self.limit:
            return None
        spent = f"{progress.nit} iterations, the limit, with"
        return progress.out_of("MAX_ITERATIONS", spent, {"nit": progress.nit, "limit": self.limit})

    def next_check(self, progress: Progress) -> float:
        return self.limit if type(self) is Iterations else super().next_check(progress)


@dataclasses.dataclass(frozen=True)
class Evaluations(Criterion):
    """So many evaluations: calls that give value and gradient together or, of two functions, the
    values or the gradients, whichever are more.  The run ends in the middle of an iteration, if
    need be."""

    limit: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", whole("max_evaluations", self.limit, 0))

    def check(self, progress: Progress) -> Ending | None:
        nfev, njev = progress.nfev, progress.njev
        if self.spent(progress) < self.limit:
            return None
        spent = f"the limit of {self.limit} evaluations is reached, with"
        numbers = {"nfev": nfev, "njev": njev, "limit": self.limit}
        return progress.out_of("MAX_EVALUATIONS", spent, numbers)

    def spent(self, progress: Progress) -> int:
        return max(progress.nfev, progress.njev)


@dataclasses.dataclass(frozen=True)
class WallTime(Criterion):
    """So many seconds inside the method and the user's functions (observers are not timed)."""

    seconds: float

    def __post_init__(self) -> None:
        require("max_time", self.seconds, 0, "a number of seconds")

    def check(self, progress: Progress) -> Ending | None:
        if progress.time < self.seconds:
            return None
        spent = f"{progress.time:.3g} s, {self.seconds:.3g} s allowed, with"
        return progress.out_of("MAX_TIME", spent, {"time": progress.time, "limit": self.seconds})


@dataclasses.dataclass(frozen=True)
class Stagnation(Criterion):
    """No smaller gradient norm than the best one for so many iterations."""

    iterations: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "iterations", whole("iterations", self.iterations, 1))

    def check(self, progress: Progress) -> Ending | None:
        norm, nit = progress.best_grad_norm, progress.best_nit
        if progress.nit - nit < self.iterations:
            return None
        return Ending(
            Status.STAGNATED,
            f"the {progress.noun} norm {norm:.3g} of iteration {nit} was not improved on in "
            f"{self.iterations} iterations",
            {"best_grad_norm": norm, "best_nit": nit},
        )


@dataclasses.dataclass(frozen=True)
class SmallChange(Criterion):
    """Little has changed between the points that the method stands by, in so many iterations.

    Momentum may climb for a while, or stand still before it turns.  So what counts is the points
    that the method has accepted, and of a method that restarts those where its epochs begin, over
    two restarts at least (`Progress.settled`).  It is no success where the gradient is larger than
    at the start.
    """

    tolerance: float
    iterations: int = 10

    def __post_init__(self) -> None:
        require("tolerance", self.tolerance, 0)
        object.__setattr__(self, "iterations", whole("iterations", self.iterations, 1))
        object.__setattr__(self, "window", self.iterations)


class ValueChange(SmallChange):
    """So many iterations have lowered f by no more than tolerance * max(|f|, 1): SciPy's ``ftol``.

    Accepted points are compared, and of methods that restart those where an epoch begins, over two
    restarts at least; it is no success where the gradient is larger than at the start.  Asks for
    (and counts) a value at each of these points where the method has none.
    """

    compares_values = True

    def check(self, progress: Progress) -> Ending | None:
        stands = progress.settled(self.iterations)
        if not stands:
            return None
        before, low = stands[0].value, stands[-1].value
        if not before - low <= self.tolerance * max(abs(before), abs(low), 1.0):
            return None
        message = (
            f"{stands[-1].nit - stands[0].nit} iterations have lowered the objective by "
            f"{before - low:.3g}, which is within the tolerance {self.tolerance:.3g}"
        )
        numbers = {"decrease": before - low, "tolerance": self.tolerance}
        return Ending(Status.SMALL_CHANGE, message, numbers)


class StepLength(SmallChange):
    """Each of so many iterations has moved x by no more than t (t + |x|), t the tolerance: SciPy's
    ``xtol`` and ``xrtol``.

    Moves are those between the points that `ValueChange` compares.  Takes two passes over x for
    each of them.
    """

    def check(self, progress: Progress) -> Ending | None:
        tolerance, stands = self.tolerance, progress.settled(self.iterations)
        small = all(stand.move <= tolerance * (tolerance + stand.size) for stand in stands[1:])
        if not stands or not small:
            return None
        length = max(stand.move for stand in stands[1:])
        message = (
            f"none of {len(stands) - 1} moves in {stands[-1].nit - stands[0].nit} iterations was "
            f"longer than {length:.3g}, which is within the relative tolerance {tolerance:.3g}"
        )
        return Ending(Status.SMALL_CHANGE, message, {"move": length, "tolerance": tolerance})


@dataclasses.dataclass(frozen=True)
class AnyOf(Criterion):
    """Stops with the first of its parts that holds."""

    parts: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        for name in ("needs_value", "compares_values", "window"):
            needed = max((getattr(part, name) for part in self.parts), default=0)
            object.__setattr__(self, name, needed)

    def check(self, progress: Progress) -> Ending | None:
        for part in self.parts:
            ending = part.check(progress)
            if ending is not None:
                return ending
        return None

    def next_check(self, progress: Progress) -> float:
        return min((part.next_check(progress) for part in self.parts), default=math.inf)


class AllOf(AnyOf):
    """Stops when all of its parts hold at once; the status is that of the first."""

    def check(self, progress: Progress) -> Ending | None:
        endings: list[Ending] = []
        for part in self.parts:
            ending = part.check(progress)
            if ending is None:
                return None
            endings.append(ending)
        numbers = {name: value for ending in endings for name, value in ending.numbers.items()}
        return Ending(endings[0].status, "; and ".join(e.message for e in endings), numbers)


def flatten(criteria: list[Criterion]) -> Criterion:
    """One criterion that stops with the first of many, in the order given."""
    parts: list[Criterion] = []
    for criterion in criteria:
        parts.extend(criterion.parts if type(criterion) is AnyOf else [criterion])
    return AnyOf(tuple(parts))


def leaves(criterion: Criterion) -> Iterator[Criterion]:
    """The criteria that this one is made of, however they are combined."""
    if not isinstance(criterion, AnyOf):
        yield criterion
        return
    for part in criterion.parts:
        yield from leaves(part)


def gradient_tolerance(criterion: Criterion) -> float:
    """The largest gradient norm at which the criterion, or a part of it, may hold."""
    norms = (leaf for leaf in leaves(criterion) if isinstance(leaf, GradientNorm))
    return max((leaf.tolerance for leaf in norms), default=-math.inf)


def evaluation_limit(criterion: Criterion) -> float:
    """After so many evaluations the criterion holds, whatever else does."""
    if type(criterion) is AnyOf:
        return min((evaluation_limit(part) for part in criterion.parts), default=math.inf)
    return criterion.limit if type(criterion) is Evaluations else math.inf


# Values that differ by so many units of rounding, or less, are level.
LEVEL_NOISE = 32.0
# So many iterations at one value and without a smaller gradient are rounding, not descent.
LEVEL = 500


def count_level(
    m: Machine, level: int, held: float, value: float, noise: float
) -> tuple[int, float]:
    """`Progress.level` and `level_fun` where numbers are arrays, after a value with that noise."""
    noise = m.maximum(noise, LEVEL_NOISE * m.rounding * abs(value))
    is_level = abs(value - held) <= noise
    return m.where(is_level, level + 1, 0), m.where(is_level, held, value)


def at_noise_floor(progress: Progress) -> Ending | None:
    """The end of a run that rounding moves to and fro: values that are known and differ by no more
    than their noise for 500 iterations, in which no gradient is smaller than the best.

    For methods that accept points by their values (`Method.ends_at_noise`): others may rest at one
    value for long, as those do that look for a way out of a saddle."""
    if not rests(progress.level, progress.nit - progress.best_nit):
        return None
    norm = progress.best_grad_norm
    return Ending(
        Status.NO_PROGRESS,
        f"rounding is reached: in {LEVEL} iterations the objective has stayed at "
        f"{progress.level_fun:.6g}, and no {progress.noun} norm was below {norm:.3g}",
        {"best_grad_norm": norm, "level": progress.level},
    )


def rests(level: int, since_best: int) -> bool:
    """Are so many iterations at one value, and since the best gradient, the end of a run?"""
    return (level >= LEVEL) & (since_best >= LEVEL)


DIVERGENCE_FACTOR = 1e20  # times the scale of the start is beyond all bounds


def next_look(progress: Progress, stop: Criterion) -> tuple[float, float]:
    """In most iterations there is nothing to `decide`: the next in which there may be, and the
    value of f below which there is at once.  (There is, too, where the gradient is within
    `gradient_tolerance` or the method ends.)"""
    nit = progress.nit
    measured = nit - nit % MEASURED_EVERY + MEASURED_EVERY
    level = nit + max(1, LEVEL - progress.level)
    floor = progress.start_fun - DIVERGENCE_FACTOR / 2 * progress.start_norm  # see `unbounded`
    return min(measured, level, stop.next_check(progress)), floor


def decide(
    space: Space, report: Report, progress: Progress, stop: Criterion, ends_at_noise: bool
) -> Ending | None:
    """Does a run end?  What was asked for, if it is reached, goes before the method's own reason to
    end."""
    asked, own = stop.check(progress), report.ending
    if asked is not None:
        return asked if asked.status.success else own or asked
    beyond = unbounded(space, report, progress, stop)
    return beyond or own or (at_noise_floor(progress) if ends_at_noise else None)


def unbounded(space: Space, report: Report, progress: Progress, stop: Criterion) -> Ending | None:
    """The end of a run that goes down for ever.

    With |x0| (at least 1) as the scale of lengths, that is where f has fallen 1e20 times

    - what its slope at x0 explains, |grad f(x0)| |x|, and 1e20 times |f(x0)| and 1; or
    - what its slope explains at the start, |grad f(x0)| |x0|, where x is 1e20 times as long and the
      slope is not smaller: f goes down at least as a linear function does.

    Nothing is told by values where a target says how low f may be.  Without them, x tells it where
    its square overflows (measured in every 32nd iteration).  Steps that do not
    grow take longer than anybody waits to get so far down a linear function: such a run ends by
    its other limits, as it looks like any long descent.

    Where the last sample is above the last accepted point, or may be and the run could then not end
    there, x is the accepted point: the sample may have gone astray.
    """
    here, lowest, accepted = report.sample, report.sample.value, report.accepted
    if accepted is not None and not lowest <= accepted.value:
        if lowest > accepted.value or report.limit is not None:
            here = accepted
        lowest = accepted.value
    slope, fall = progress.start_norm, progress.start_fun - lowest
    unmeasured = progress.nit % MEASURED_EVERY
    if unmeasured and not fall > DIVERGENCE_FACTOR * slope:  # in most iterations that is all
        return None
    point, norm = here.point, here.grad_norm if here.evaluated else progress.grad_norm
    has_target = any(isinstance(leaf, Target) for leaf in leaves(stop))
    by_value = not has_target and progress.noun.endswith("gradient")  # a residual has other units
    length = max(1.0, progress.start_size)
    fallen = by_value and DIVERGENCE_FACTOR * slope * length < fall < math.inf
    if point is None or (unmeasured and not fallen):
        return None
    square = space.inner(point, point)
    scale = abs(progress.start_fun), slope, length
    if fallen and falls_for_ever(NUMBERS, *scale, fall, norm, square):
        numbers, what = {"fun": lowest}, f"the objective has fallen to {lowest:.3g}"
    elif overflows(square, float(space.xp.finfo(space.dtype).max)):
        size = math.sqrt(square)
        numbers, what = {"size": size}, f"x has grown to a norm of {size:.3g}"
    else:
        return None
    message = f"{what} in iteration {progress.nit}: it seems to be unbounded below"
    remedy = "add a penalty, or pass target= or max_iterations= to stop earlier"
    return Ending(Status.UNBOUNDED, f"{message}; {remedy}", numbers)


def falls_for_ever(
    m: Arithmetic, value: float, slope: float, length: float, fall: float, norm: float,
    square: float,
) -> bool:  # fmt: skip
    """Has f fallen so far, to a gradient of that norm and an x of that square?  The scale of the
    start is |f|, |grad f| and |x|."""
    size = m.sqrt(m.where(square >= 0, square, math.nan))
    straight = (size > DIVERGENCE_FACTOR * length) & (norm >= (1 - 1e-6) * slope)
    explained = m.maximum(m.maximum(1.0, value), slope * m.maximum(size, length))
    far = (fall > DIVERGENCE_FACTOR * slope * length) & (fall < math.inf)
    return far & (straight | (fall > DIVERGENCE_FACTOR * explained))


def overflows(square: float, largest: float) -> bool:
    """Is x so long that its square is no number of its dtype?"""
    return (square >= 1e4) & (square >= largest)


def require(name: str, value: Unchecked, least: float = -math.inf, kind: str = "a number") -> None:
    """Refuse what is no number, text and truth values included, or is too small."""
    enough = getattr(value, "ndim", 0) == 0 and not isinstance(value, bool | np.bool_)
    try:
        enough = enough and bool(float(value + 0) >= least)
    except (TypeError, ValueError, OverflowError):  # text, a list, a whole number beyond floats
        enough = False
    if not enough:
        limit = f" >= {least}" if math.isfinite(least) else ""
        raise ValueError(f"{name}={value!r:.200} must be {kind}{limit}")


def whole(name: str, value: Unchecked, least: int) -> Unchecked:
    """That number as an int, if it is whole (1e5, too); infinity is no limit, and stays."""
    require(name, value, least, "a whole number")
    if value == math.inf:
        return math.inf
    if value != int(value):
        raise ValueError(
            f"{name}={value!r} must be a whole number >= {least}, such as {round(value)}"
        )
    return int(value)


def require_truth(name: str, value: Unchecked, other: str = "") -> None:
    """Refuse what is neither true nor false: text, and numbers other than 0 and 1."""
    if not (isinstance(value, bool | np.bool_ | int | None) and value in (None, 0, 1)):
        raise TypeError(f"{name}={value!r} must be True or False{other}")
