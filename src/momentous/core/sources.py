"""Sources: how values and gradients, or images of a map, are had from the user's code.

A box, a simple term beside f, and sums over ranks are sources around a source.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from momentous.core.admission import (
    Admission,
    Fun,
    both_of,
    kind,
    levels_to_the_user,
    scalar,
    unwritten,
    without_grad,
)
from momentous.core.space import Array, Space, set_writable, to_numpy
from momentous.io.types import AnyArray, Floats, Unchecked


@dataclasses.dataclass(frozen=True)
class Differences:
    """How the gradient is approximated by differences of fun, for ``jac=``."""

    central: bool = False  # "3-point" rather than "2-point"
    relative_step: ArrayLike | None = None  # a number or one per coordinate, times |x_i|
    absolute_step: ArrayLike | None = None  # the same, as it is
    map: Fun = map  # how fun is applied to many points: `Pool.map`, for example

    def __post_init__(self) -> None:
        for name, step in (
            ("finite_diff_rel_step", self.relative_step), ("eps", self.absolute_step),
        ):  # fmt: skip
            given = np.asarray(0.0 if step is None else step)
            fits = given.dtype.kind in "iuf" and bool(np.all(np.isfinite(given)))
            if not fits or (name == "eps" and step is not None and not np.all(given)):
                raise ValueError(
                    f"{name}={step!r} must be the step of differences: a number other than 0, or "
                    "one per variable; leave it out for the default"
                )

    def require_size(self, size: int) -> None:
        """Refuse steps of which there is neither one nor one for each of so many variables."""
        for name, step in (
            ("finite_diff_rel_step", self.relative_step), ("eps", self.absolute_step),
        ):  # fmt: skip
            if step is not None and np.size(step) not in (1, size):
                raise ValueError(
                    f"{name} has {np.size(step)} numbers, and x has {size} entries; give one "
                    "number, or one per entry"
                )


Jac = Fun | bool | Literal["2-point", "3-point", "autodiff"] | Differences | None


def function_source(fun: Fun, jac: Jac, args: tuple[object, ...], space: Space) -> Source:
    """The source of values and gradients that fun, jac and args of `momentous.minimize` are."""
    if not callable(fun):
        raise TypeError(f"fun must be callable, not {fun!r}")
    if isinstance(jac, Differences):
        jac.require_size(space.size)
        return _Differences(fun, args, space, jac)
    if callable(jac):
        return _Separate(fun, jac, args, space)
    if jac is True:
        return _Fused(fun, args, space)
    libraries = space.xp.__name__.split(".")
    by_name = isinstance(jac, str)  # an array cannot be compared with a name
    if (by_name and jac == "autodiff") or (
        jac is None and not {"torch", "jax"}.isdisjoint(libraries)
    ):
        return _Autodiff(fun, args, space)
    if jac is None or jac is False:
        warnings.warn(
            "no gradient was given: it is approximated by forward differences, "
            f"{space.size} values of fun for each gradient, accurate to about half of the digits; "
            "pass jac=callable, jac=True if fun returns (f, g), or jac='autodiff' for PyTorch and "
            "JAX (jac='2-point' asks for differences without this warning)",
            RuntimeWarning,
            stacklevel=levels_to_the_user(),
        )
        jac, by_name = "2-point", True
    if by_name and jac in ("2-point", "3-point"):
        return _Differences(fun, args, space, Differences(central=jac == "3-point"))
    raise ValueError(
        f"jac={jac!r} is not understood; pass a callable, True (fun returns (f, g)), 'autodiff', "
        "'2-point', '3-point' or None"
    )


class Words(NamedTuple):
    """What the caller calls function and gradient, for messages; and the way out."""

    function: str = "fun"
    gradient: str = "jac"
    remedy: str = "correct it, or let it be computed: jac='autodiff', '3-point' or '2-point'"
    repeat: str = (
        "draw the batch, or the random numbers, once before the run; for mini-batches use "
        "torch.optim or optax"
    )
    suspect: bool = False  # is it often random, or its gradient changed, in the hands of its users?


Answer = tuple[Unchecked, Array, int]  # value or NaN, gradient or image, number of values it took


DIFFERENCES_ADVICE = (
    "a gradient of your own is more exact than differences: jac=callable, True, 'autodiff'"
)


class Source:
    """How values and gradients are had from the user's code; checks what comes back."""

    fused = False  # does every gradient bring the value with it?
    by_differences = False
    fits_steps = True  # may the steps of differences follow what values are like?
    has_values = True  # of an objective; otherwise the residual's norm takes their place
    is_map = False  # is the answer the image of a descent map rather than a gradient?
    noun = "gradient"  # what the norms of samples are norms of, for messages
    # Where a run makes no progress: what to do about the gradient.
    advice = "pass check_gradient=True to test the gradient"
    words: Words | None = Words()  # of a function that gives value and gradient at one price

    def __init__(self, args: tuple[object, ...], space: Space):
        self.args, self.space = args, space
        self.admission = Admission(space)

    def value(self, x: Array) -> float:
        """f(x)."""
        raise NotImplementedError

    def gradient(self, x: Array, known: float) -> Answer:
        """The answer at x, where the value is known, or NaN; it may still be on the device."""
        raise NotImplementedError

    def gradient_noise(self, x: Array, gradient: Array, noise: float) -> float:
        """How far the norm of the gradient at x may be off, where it is made of differences of
        values with this noise; in a box, or with a simple term, that of the gap."""
        return 0.0

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        """What a result shows besides x."""
        return {"jac": gradient}

    @property
    def smooth(self) -> Source:
        """The same without a simple term."""
        return self

    @property
    def rounding(self) -> float:
        """The unit roundoff of values, as far as it is known."""
        return self.space.rounding


class Wrapped(Source):
    """A source around another one."""

    def __init__(self, inner: Source):
        super().__init__(inner.args, inner.space)
        self.inner, self.admission = inner, inner.admission
        self.fused, self.by_differences = inner.fused, inner.by_differences
        self.has_values, self.is_map, self.noun = inner.has_values, inner.is_map, inner.noun
        self.advice, self.words = inner.advice, inner.words

    def value(self, x: Array) -> float:
        return self.inner.value(x)

    def gradient(self, x: Array, known: float) -> Answer:
        return self.inner.gradient(x, known)

    @property
    def rounding(self) -> float:
        return self.inner.rounding

    def gradient_noise(self, x: Array, gradient: Array, noise: float) -> float:
        return self.inner.gradient_noise(x, gradient, noise)

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        return self.inner.arrays_at(x, gradient, image)


def with_kinks(source: Source) -> Source:
    """The source in the box of its space, or with its penalty: of the whole function, so around the
    sum over ranks."""
    if source.space.box is not None:
        return _InBox(source)
    return source if source.space.penalty is None else _WithPenalty(source)


class _InBox(Wrapped):
    """Never outside of the box, whoever asks: rules ask inside, and there this changes nothing."""

    def __init__(self, inner: Source):
        super().__init__(inner)
        self.noun = "projected gradient"

    def value(self, x: Array) -> float:
        return self.inner.value(self._inside(x))

    def gradient(self, x: Array, known: float) -> Answer:
        return self.inner.gradient(self._inside(x), known)

    def _inside(self, x: Array) -> Array:
        box = self.space.box
        return x if x is box.latest else box.clip(self.space, x)

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        """Differences tell nothing of a fixed variable: NaN, as SciPy has it."""
        if gradient is None or not self.by_differences:
            return {"jac": gradient}
        fixed = lambda xp, g, low, up: xp.where(low < up, g, math.nan)  # noqa: E731
        return {"jac": self.space.each(fixed, gradient, self.space.box.lower, self.space.box.upper)}


class _WithPenalty(Wrapped):
    """The value of f with the term, the gradient of f with what is smooth in it."""

    def __init__(self, inner: Source):
        super().__init__(inner)
        self.noun = "proximal gradient"

    @property
    def smooth(self) -> Source:
        return self.inner

    def value(self, x: Array) -> float:
        h: float = self.space.penalty.total(self.space, x)
        return self.inner.value(x) + h

    def gradient(self, x: Array, known: float) -> Answer:
        penalty = self.space.penalty
        h = penalty.total(self.space, x)
        value, answer, values = self.inner.gradient(x, known - h)
        return value + h, penalty.smooth(self.space, x, answer), values

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        """The gradient of f alone."""
        smooth = self.space.penalty.smooth
        return {"jac": None if gradient is None else smooth(self.space, x, gradient, -1.0)}


class MapSource(Source):
    """Images and values of the user's descent map T: step, value and args as for
    `momentous.accelerate`.  Where a gradient would stand there is the image T(x), and the norm of a
    sample is that of the residual x - T(x), which is zero at the fixed points.

    Where there is no objective, the norm of the residual stands for it.
    """

    is_map, noun, advice, words = True, "residual", "", None

    def __init__(self, step: Fun, value: Fun | bool | None, args: tuple[object, ...], space: Space):
        if not callable(step):
            raise TypeError(f"step must be callable, not {step!r}")
        if not (value is None or value is True or callable(value)):
            raise TypeError(f"value={value!r} must be callable, True or None")
        super().__init__(args, space)
        self._step = without_grad(step, space)
        self._objective = without_grad(value, space) if callable(value) else None
        self.fused, self.has_values = not callable(value), value is not None
        self.brings_value = value is True

    def value(self, x: Array) -> float:
        set_writable(x, False)
        if self._objective is not None:
            return scalar(self._objective(x, *self.args), "value")
        value, image, _ = self.gradient(x, math.nan)
        return value if self.has_values else self.space.distance(x, image)

    def gradient(self, x: Array, known: float) -> Answer:
        if not self.brings_value:
            image = self.admission.admit(self._step(x, *self.args), "step")
            return math.nan, image, int(not self.has_values)
        contract = "with value=True step must return (x_next, value at x)"
        parts = both_of(self._step(x, *self.args), contract)
        value = scalar(parts.pop(), "step (the value)")
        return value, self.admission.admit(parts.pop(), "step"), 1

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        """The residual x - T(x) as ``jac``, and T(x) as ``image``."""
        residual = None if image is None else self.space.combination(x, -1.0, image)
        return {"jac": residual, "image": image}


class _Function(Source):
    """A source of which fun(x) -> f, or (f, g), is one."""

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space):
        super().__init__(args, space)
        self.fun = without_grad(fun, space)

    def value(self, x: Array) -> float:
        set_writable(x, False)
        return scalar(self.fun(x, *self.args), "fun")

    def _where_it_is(self, value: Unchecked) -> Unchecked:
        """A value that came with a gradient: on its device, if a pass can bring it to the host."""
        if isinstance(value, float):
            return float(value)  # one of NumPy's is a float, too
        brings = self.space.fuses and self.space.brings(value)
        return value if brings else scalar(value, "fun")


class _Separate(_Function):
    """fun(x) -> f and jac(x) -> g."""

    def __init__(self, fun: Fun, jac: Fun, args: tuple[object, ...], space: Space):
        super().__init__(fun, args, space)
        self.jac = without_grad(jac, space)

    def gradient(self, x: Array, known: float) -> Answer:
        return math.nan, self.admission.admit(self.jac(x, *self.args), "jac"), 0


class _Fused(_Function):
    """fun(x) -> (f, g)."""

    fused = True
    words = Words(
        gradient="what fun returns with its value",
        remedy="correct it, or return the value alone and let it be computed: jac='autodiff', "
        "'3-point' or '2-point'",
    )

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space):
        super().__init__(fun, args, space)
        self.words = getattr(fun, "words", self.words)

    def gradient(self, x: Array, known: float) -> Answer:
        parts = both_of(self.fun(x, *self.args), "with jac=True fun must return (f, g)")
        value = parts[0]
        value = float(value) if isinstance(value, float) else self._where_it_is(value)
        return value, self.admission.admit(parts.pop(), "fun (the gradient)"), 1

    def value(self, x: Array) -> float:
        return scalar(self.gradient(x, math.nan)[0], "fun")


AUTODIFF_WORDS = Words(
    gradient="the derivative of fun",
    remedy="fun must not leave the library on its way (detach, item, stop_gradient, NumPy); "
    "jac='3-point' asks for differences",
)


class _Autodiff(_Function):
    """fun(x) -> f in PyTorch or JAX operations; the library differentiates it."""

    fused = True
    words = AUTODIFF_WORDS

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space):
        super().__init__(fun, args, space)
        self._bare = fun
        self._pair: Callable[[Array], tuple[Unchecked, Array]]
        library = space.xp.__name__.rsplit(".", 1)[-1]
        if "torch" in space.xp.__name__:
            self._pair = self._torch_pair
        elif "jax" in space.xp.__name__:
            from momentous.core.jax_autodiff import JaxPair

            self._pair = JaxPair(fun, args, levels_to_the_user)
        else:
            raise ValueError(
                f"jac='autodiff' needs x0 to be a PyTorch or JAX array; {library} does not "
                "differentiate: pass jac=callable or jac=True"
            )

    def _torch_pair(self, x: Array) -> tuple[Unchecked, Array]:
        import torch

        with torch.enable_grad(), unwritten(x, self.space):
            leaf = x.detach().requires_grad_(True)
            value = self._bare(leaf, *self.args)
            require_graph(value)
            (gradient,) = torch.autograd.grad(value, leaf)
        return value, gradient

    def gradient(self, x: Array, known: float) -> Answer:
        try:
            value, gradient = self._pair(x)
        except (TypeError, RuntimeError) as error:
            error.add_note("fun is differentiated here; jac='2-point' asks for differences of it")
            raise
        return self._where_it_is(value), self.admission.admit(gradient, "the derivative of fun"), 1


# How far a difference of values is off, in units of their rounding: both by the last one, and by
# those on the way to it.
DIFFERENCE_NOISE = 4.0
# The unit roundoff of values in single precision, whatever the precision of x.
SINGLE = 2.0**-24
TINY = float(np.finfo(float).tiny)


# What the curvature that a method has learned from differences is worth.
LEARNED_BY_DIFFERENCES = (
    "hess_inv was learned from differences of fun: their noise may make it wrong by a factor of "
    "several; for error bars invert the Hessian made of longer differences, or pass jac= "
    "(docs/how-to/error-bars.md)"
)


class _Measured(NamedTuple):
    """What values around a point tell."""

    slopes: AnyArray
    unchanged: AnyArray  # by which coordinates has the value not changed at all?
    is_single: bool  # are all values numbers of single precision?
    largest: float  # of the values
    calls: int  # of the values it took


class _Differences(_Function):
    """Forward or central differences of fun, one coordinate at a time, through the host.

    Steps fit the precision of the values.  Where all of them are numbers of single precision, the
    steps are those of single precision, in double precision, too: over shorter ones differences
    are 0, or come in steps.  Where values are rounded otherwise, all differences may be 0: then
    each is looked at over longer steps, as a gradient of 0 would end the run.
    """

    by_differences = True
    words = None

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space, how: Differences):
        super().__init__(fun, args, space)
        self.central, self._how = how.central, how
        self.advice = DIFFERENCES_ADVICE + ("" if self.central else " (or '3-point')")
        self._rounding = space.rounding
        self.fits_steps = how.absolute_step is None and how.relative_step is None

    @property
    def rounding(self) -> float:
        """What the values behind the last gradient were like."""
        return self._rounding

    def gradient(self, x: Array, known: float) -> Answer:
        """By points of the box alone.  The derivative by a fixed variable is 0: nothing can be
        asked of it."""
        host = to_numpy(x)
        flat = host.reshape(-1)
        places = self._places(flat, self.rounding)
        values = 0
        if known != known and not (self.central and has_two_sides(flat, places).all()):
            known, values = self.value(x), 1
        found = self._measure(flat, known, places)
        if self.fits_steps:
            found = self._fit_to_precision(flat, known, found)
            found = self._look_further(flat, known, found)
        gradient = self.space.from_numpy(found.slopes.reshape(host.shape))
        return known, gradient, values + found.calls

    def gradient_noise(self, x: Array, gradient: Array, noise: float) -> float:
        space, flat = self.space, to_numpy(x).reshape(-1)
        each = self._slope_noise(flat, noise)
        cut = space.box or space.penalty
        if cut is None:
            return float(np.linalg.norm(each))
        # Where the way to a bound is shorter than the gradient, noise need not move the gap at all.
        move, here = space.from_numpy(each.reshape(space.shape)), cut.gap(space, x, gradient)
        moved = (abs(cut.gap(space, x, gradient + sign * move) - here) for sign in (1.0, -1.0))
        return space.norm(space.each(lambda xp, up, down: xp.maximum(up, down), *moved))

    def _slope_noise(self, flat: AnyArray, noise: float) -> AnyArray:
        """How far each difference of values with this noise may be off."""
        places = self._places(flat, self.rounding)
        apart = np.abs(places[0].astype(float) - (places[1] if self.central else flat))
        shares = np.divide(1.0, apart, out=np.zeros(flat.shape), where=apart > 0.0)
        noises: AnyArray = max(noise, TINY) * shares
        return noises

    def _fit_to_precision(self, flat: AnyArray, known: float, found: _Measured) -> _Measured:
        """By the steps that fit values in single or in double precision, whichever they are."""
        is_single = found.is_single
        if self.space.rounding >= SINGLE or is_single == (self.rounding == SINGLE):
            return found
        rounding = SINGLE if is_single else self.space.rounding
        again = self._measure(flat, known, self._places(flat, rounding))
        if again.is_single != is_single:  # a few round numbers, such as 2 at a minimum
            return found._replace(calls=found.calls + again.calls)
        self._rounding = rounding
        return again._replace(calls=found.calls + again.calls)

    def _look_further(self, flat: AnyArray, known: float, found: _Measured) -> _Measured:
        """Where the whole gradient is lost in rounding, look at differences that are exactly 0 over
        longer steps.

        (Elsewhere the others lead on, and a variable of no influence would cost two values more in
        every gradient.)  What does not change over 1/200 of max(1, |x|) is taken as flat."""
        for rounding in (self.rounding, SINGLE):
            noise = DIFFERENCE_NOISE * self.rounding * found.largest
            noises = self._slope_noise(flat, noise)
            lost = np.linalg.norm(found.slopes) <= np.linalg.norm(noises)
            if not (lost and found.unchanged.any()):
                break
            if self.central and rounding == self.rounding:
                continue  # they were as long
            places = self._places(flat, rounding, central=True)
            places = [np.where(found.unchanged, place, flat) for place in places]
            longer = self._measure(flat, known, places)
            usable = found.unchanged & np.isfinite(longer.slopes)
            found = found._replace(
                slopes=np.where(usable, longer.slopes, found.slopes),
                unchanged=longer.unchanged,
                calls=found.calls + longer.calls,
            )
        return found

    def _places(self, flat: AnyArray, rounding: float, central: bool = False) -> list[AnyArray]:
        """Where each coordinate is moved for its difference, for values with this roundoff."""
        box, central = self.space.box, central or self.central
        sides = (-math.inf, math.inf) if box is None else (box.lower, box.upper)
        lower, upper = (np.broadcast_to(to_numpy(side).reshape(-1), flat.shape) for side in sides)
        steps = self._steps(flat, (2 * rounding) ** (1 / 3 if central else 1 / 2))
        return places_in_box(flat, steps, lower, upper, central)

    def _measure(self, flat: AnyArray, known: float, places: list[AnyArray]) -> _Measured:
        """By the values at all places that are not x itself."""
        moves = [(int(i), each[i]) for each in places for i in np.flatnonzero(each != flat)]
        found = self._values_at(self._with_entries(flat, moves), len(moves))
        seen = np.append(found, known)
        seen = seen[np.isfinite(seen)]
        there = [np.full(flat.shape, known) for _ in places]
        for values_there, each in zip(there, places, strict=True):
            moved = np.flatnonzero(each != flat)
            values_there[moved], found = found[: moved.size], found[moved.size :]
        with np.errstate(over="ignore"):
            is_single = bool(np.all(seen.astype(np.float32) == seen))
        here = known if known == known else there[0]  # of central ones both sides are compared
        return _Measured(
            slopes_by_places(flat, places, known, there),
            np.any([place != flat for place in places], axis=0)
            & np.all([values == here for values in there], axis=0),
            is_single,
            float(np.max(np.abs(seen), initial=0.0)),
            len(moves),
        )

    def _values_at(self, points: Iterator[Array], count: int) -> AnyArray:
        """The values of fun at so many points."""
        at = functools.partial(_value, self.fun, self.args)  # which processes can be sent
        answers = list(self._how.map(at, points))
        if len(answers) != count:
            raise RuntimeError(
                f"{count} values of fun were asked for, and {len(answers)} came back: fun "
                "raised StopIteration, which ends a map, or workers= is no function like map"
            )
        return np.array(answers, dtype=float)

    def _with_entries(self, flat: AnyArray, moves: list[tuple[int, float]]) -> Iterator[Array]:
        for i, place in moves:
            moved = flat.copy()
            moved[i] = place
            yield self.space.from_numpy(moved.reshape(self.space.shape))

    def _steps(self, flat: AnyArray, share: float) -> AnyArray:
        """How far each coordinate is moved: as asked for, or by a share of max(1, |x|), with the
        width of narrow bounds in place of 1."""
        sizes, box = np.abs(flat).astype(float), self.space.box
        unit = 1.0 if box is None or box.unit is None else to_numpy(box.unit).reshape(-1)
        steps: AnyArray = share * np.maximum(unit, sizes)
        if self._how.absolute_step is not None:
            steps = np.broadcast_to(np.asarray(self._how.absolute_step, dtype=float), flat.shape)
        elif self._how.relative_step is not None:
            asked = np.asarray(self._how.relative_step, dtype=float) * sizes
            steps = np.where(asked != 0.0, asked, steps)
        return steps


def places_in_box(
    x: AnyArray, steps: AnyArray, lower: AnyArray, upper: AnyArray, central: bool
) -> list[AnyArray]:
    """Where each coordinate is moved for a difference, once or twice: a step ahead (and one back);
    without room for it, the other way, or (both) the way with more room."""
    ahead, back = upper.astype(float) - x, x - lower.astype(float)
    forward = np.where(steps > 0.0, ahead, back)
    size, more = np.abs(steps), np.where(ahead >= back, 1.0, -1.0)
    fits = np.minimum(size, np.maximum(ahead, back))
    if central:
        both = (ahead >= size) & (back >= size)
        moves = [np.where(both, steps, more * fits / 2), np.where(both, -steps, more * fits)]
    else:
        moves = [np.where(forward >= size, steps, more * fits)]
    return [np.clip((x + move).astype(x.dtype), lower, upper) for move in moves]


def has_two_sides(x: AnyArray, places: list[AnyArray]) -> AnyArray:
    """Which coordinates are moved both ways?"""
    first, second = places
    return ((first > x) & (second < x)) | ((first < x) & (second > x))


def require_graph(value: Unchecked) -> None:
    """Can PyTorch differentiate it?"""
    if not getattr(value, "requires_grad", False):
        raise TypeError(
            f"PyTorch cannot differentiate fun: it returned {kind(type(value))} without a graph "
            "that leads to x; compute it by PyTorch's operations (no detach(), item(), numpy()), "
            "or pass jac=callable, jac=True or jac='2-point'"
        )


def slopes_by_places(
    x: AnyArray, places: list[AnyArray], known: Floats | float, values: list[AnyArray]
) -> AnyArray:
    """The derivative by each coordinate: 0 where it was not moved."""
    with np.errstate(all="ignore"):  # what is not finite is for the method to judge
        steps = [place.astype(float) - x.astype(float) for place in places]
        slopes = [
            np.where(step != 0.0, (value - known) / step, 0.0)
            for step, value in zip(steps, values, strict=True)
        ]
        if len(places) == 1:
            return slopes[0]
        (a, b), (first, second) = steps, slopes
        # The parabola through three points, of which the middle one is not needed at equal steps.
        two = (a != 0.0) & (b != 0.0) & (a != b)
        parabola = (first * b - second * a) / np.where(two, b - a, 1.0)
        slope = np.where(two, parabola, np.where(a != 0.0, first, second))
        apart = places[0].astype(float) - places[1].astype(float)
        return np.where(has_two_sides(x, places), (values[0] - values[1]) / apart, slope)


def _value(fun: Fun, args: tuple[object, ...], x: Array) -> float:
    return scalar(fun(x, *args), "fun")
