"""The oracle of a function and its gradient, however the user gives them."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from momentous.core.admission import Admission, kind
from momentous.core.oracle.base import (
    CachedOracle,
    Sample,
    Words,
    both_of,
    scalar,
    without_grad,
)
from momentous.core.passes import GRADIENT, Pass
from momentous.core.space import Array, Space, set_writable, to_numpy

Fun = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Differences:
    """How the gradient is approximated by differences of fun, for ``jac=``."""

    central: bool = False  # "3-point" rather than "2-point"
    relative_step: Any = None  # a number or one per coordinate, times |x_i|
    absolute_step: Any = None  # the same, as it is
    map: Callable[..., Any] = map  # how fun is applied to many points: `Pool.map`, for example


Jac = Callable[..., Any] | bool | Literal["2-point", "3-point", "autodiff"] | Differences | None


class FunctionOracle(CachedOracle):
    """Values and gradients of the user's function; fun, jac, args as for `momentous.minimize`."""

    def __init__(self, fun: Fun, jac: Jac, args: tuple[Any, ...], space: Space):
        self._source = _source(fun, jac, args, space)
        super().__init__(space, fused=self._source.fused)
        if space.box is not None:
            self.noun = "projected gradient"
        self.advice, self.words = self._source.advice, self._source.words
        self._work: tuple[Pass, Sequence[Array], Sequence[float]] = (GRADIENT, (), ())
        self._made: tuple[tuple[Array, ...], tuple[float, ...]] | None = None
        self._ready: tuple[tuple[Array, ...], tuple[float, ...]] | None = None

    def _call_value(self, x: Array) -> float:
        if self.space.box is not None:
            x = self._inside(x)
        return self._source.value(x)

    def _inside(self, x: Array) -> Array:
        """Never outside of the box, whoever asks: rules ask inside, and there this changes
        nothing."""
        box = self.space.box
        return x if x is box.latest else box.clip(self.space, x)

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if self.space.box is not None:
            x = self._inside(x)
        joined = self._source.joined(x) if self.space.fuses else None
        self._ready = None
        if joined is None:
            return self._source.gradient(x, known)
        answer, made, sums, value = self.space.compute_joined(joined, x, *self._work)
        self._ready = made, sums
        return value, self._source.admission.admit(answer, "fun (the gradient)"), 1

    def _sample(self, x: Array, value: Any, answer: Array) -> Sample:
        space = self.space
        if not space.fuses:
            box = space.box
            size = space.norm(answer) if box is None else box.size(space, x, answer)
            return Sample(x, value, answer, size)
        # One pass and one transfer: the norm, the value, and what the method is about to do.
        if self._ready is not None:
            (made, sums), self._ready = self._ready, None
        else:
            work, vectors, numbers = self._work
            made, sums, value = space.compute(work, (answer, *vectors), numbers, value)
        self._made = made, sums[1:]
        if space.box is not None:
            return Sample(x, value, answer, space.box.size(space, x, answer))
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
        box, gradient = self.space.box, sample.gradient
        if box is None or gradient is None or not self._source.by_differences:
            return {"jac": gradient}
        fixed = lambda xp, g, low, up: xp.where(low < up, g, math.nan)  # noqa: E731
        return {"jac": self.space.each(fixed, gradient, box.lower, box.upper)}

    def _what_was_made(self) -> tuple[tuple[Array, ...], tuple[float, ...]] | None:
        """New vectors and sums of the pass that came with the last gradient, if one was asked."""
        made, self._made = self._made, None
        return made


def _source(fun: Fun, jac: Jac, args: tuple[Any, ...], space: Space) -> _Source:
    if not callable(fun):
        raise TypeError(f"fun must be callable, not {fun!r}")
    if isinstance(jac, Differences):
        return _Differences(fun, args, space, jac)
    if callable(jac):
        return _Separate(fun, jac, args, space)
    if jac is True:
        return _Fused(fun, args, space)
    libraries = space.xp.__name__.split(".")
    if jac == "autodiff" or (jac is None and not {"torch", "jax"}.isdisjoint(libraries)):
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
        jac = "2-point"
    if jac in ("2-point", "3-point"):
        return _Differences(fun, args, space, Differences(central=jac == "3-point"))
    raise ValueError(
        f"jac={jac!r} is not understood; pass a callable, True (fun returns (f, g)), 'autodiff', "
        "'2-point', '3-point' or None"
    )


def levels_to_the_user(*packages: str) -> int:
    """The stack level, as warnings count it in the caller, of the first frame outside of here, of
    SciPy, whose ``minimize`` takes ours as a method, and of these packages."""
    ours = tuple(f"{name}." for name in ("momentous", "scipy", *packages))
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    return level + 1


class _Source:
    """How values and gradients are had from the user's code; checks what comes back."""

    fused = False
    by_differences = False
    advice = "pass check_gradient=True to test the gradient"
    words: Words | None = Words()

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space):
        self.args, self.space = args, space
        self.fun = without_grad(fun, space)
        self.admission = Admission(space)
        self._join: Callable[[Array], Any] | None = None
        self._joined: Any = None

    def joined(self, x: Array) -> Any:
        """Value and gradient in a form that is compiled together with passes, or None."""
        if self._join is not None:
            self._joined, self._join = self._join(x), None
        return self._joined

    def do_not_join(self) -> None:
        """Values and gradients come alone: passes need more than this process knows."""
        self._join = self._joined = None

    def value(self, x: Array) -> float:
        set_writable(x, False)
        return scalar(self.fun(x, *self.args), "fun")

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        """As `CachedOracle._call_gradient`; the value may still be on the device."""
        raise NotImplementedError

    def _taken(self, value: Any) -> Any:
        """A value that came with a gradient: where it is, if a pass can bring it to the host."""
        brings = self.space.fuses and self.space.brings(value)
        return value if brings else scalar(value, "fun")


class _Separate(_Source):
    """fun(x) -> f and jac(x) -> g."""

    def __init__(self, fun: Fun, jac: Fun, args: tuple[Any, ...], space: Space):
        super().__init__(fun, args, space)
        self.jac = without_grad(jac, space)

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        return math.nan, self.admission.admit(self.jac(x, *self.args), "jac"), 0


class _Fused(_Source):
    """fun(x) -> (f, g)."""

    fused = True
    words = Words(
        gradient="what fun returns with its value",
        remedy="correct it, or return the value alone and let it be computed: jac='autodiff', "
        "'3-point' or '2-point'",
    )

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space):
        super().__init__(fun, args, space)
        self.words = getattr(fun, "words", self.words)
        if not args:
            self._join = lambda x: space.joined(fun, x, differentiate=False)

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        parts = both_of(self.fun(x, *self.args), "with jac=True fun must return (f, g)")
        return self._taken(parts[0]), self.admission.admit(parts.pop(), "fun (the gradient)"), 1

    def value(self, x: Array) -> float:
        return scalar(self.gradient(x, math.nan)[0], "fun")


class _Autodiff(_Source):
    """fun(x) -> f in PyTorch or JAX operations; the library differentiates it."""

    fused = True
    words = Words(
        gradient="the derivative of fun",
        remedy="fun must not leave the library on its way (detach, item, stop_gradient, NumPy); "
        "jac='3-point' asks for differences",
    )

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space):
        super().__init__(fun, args, space)
        self._bare = fun
        self._pair: Callable[[Array], tuple[Any, Array]]
        library = space.xp.__name__.rsplit(".", 1)[-1]
        if "torch" in space.xp.__name__:
            self._pair = self._torch_pair
        elif "jax" in space.xp.__name__:
            from momentous.core.oracle.jax_autodiff import JaxPair

            self._pair = JaxPair(fun, args, levels_to_the_user)
            if not args:
                self._join = lambda x: space.joined(fun, x, differentiate=True)
        else:
            raise ValueError(
                f"jac='autodiff' needs x0 to be a PyTorch or JAX array; {library} does not "
                "differentiate: pass jac=callable or jac=True"
            )

    def _torch_pair(self, x: Array) -> tuple[Any, Array]:
        import torch

        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            value = self._bare(leaf, *self.args)
            if not getattr(value, "requires_grad", False):
                raise TypeError(
                    f"PyTorch cannot differentiate fun: it returned {kind(type(value))} without a "
                    "graph that leads to x; compute it by PyTorch's operations (no detach(), "
                    "item(), numpy()), or pass jac=callable, jac=True or jac='2-point'"
                )
            (gradient,) = torch.autograd.grad(value, leaf)
        return value, gradient

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        value, gradient = self._pair(x)
        return self._taken(value), self.admission.admit(gradient, "the derivative of fun"), 1

    def value(self, x: Array) -> float:
        return scalar(self.fun(x, *self.args), "fun")


class _Differences(_Source):
    """Forward or central differences of fun, one coordinate at a time, through the host."""

    by_differences = True
    words = None
    advice = "a gradient of your own is more exact than differences: jac=callable, True, 'autodiff'"

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space, how: Differences):
        super().__init__(fun, args, space)
        self.central, self._map = how.central, how.map
        self._how = how
        self.relative_step = (2 * space.rounding) ** (1 / 3 if self.central else 1 / 2)

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if self.space.box is not None:
            return self._gradient_in_box(x, known)
        host = to_numpy(x)
        flat = host.reshape(-1)
        steps = self._steps(flat)
        if self.central:
            steps = np.concatenate([steps, -steps])
        values = steps.size
        if not self.central and known != known:
            known = self.value(x)
            values += 1
        # Where the coordinates really went, after rounding.
        places = (np.resize(flat, steps.shape) + steps).astype(flat.dtype).astype(float)
        found = self._found(self._moved(flat, steps), steps.size)
        if self.central:
            (ahead, back), (forward, behind) = np.split(found, 2), np.split(places, 2)
        else:
            ahead, forward, behind = found, places, flat.astype(float)
            back = np.full(flat.shape, known)
        with np.errstate(all="ignore"):  # what is not finite is for the method to judge
            gradient = (ahead - back) / (forward - behind)
        return known, self.space.from_numpy(gradient.reshape(host.shape)), values

    def _found(self, points: Iterator[Array], count: int) -> np.ndarray:
        """The values of fun at so many points."""
        at = functools.partial(_value, self.fun, self.args)  # which processes can be sent
        answers = list(self._map(at, points))
        if len(answers) != count:
            raise RuntimeError(
                f"{count} values of fun were asked for, and {len(answers)} came back: fun "
                "raised StopIteration, which ends a map, or workers= is no function like map"
            )
        return np.array(answers, dtype=float)

    def _gradient_in_box(self, x: Array, known: float) -> tuple[float, Array, int]:
        """By points of the box alone: where a step has no room, it goes the other way, or as far as
        there is room.  The derivative by a fixed variable is 0: nothing can be asked of it."""
        host, box = to_numpy(x), self.space.box
        flat = host.reshape(-1)
        lower, upper = (to_numpy(side).reshape(-1) for side in (box.lower, box.upper))
        places = places_in_box(flat, self._steps(flat), lower, upper, self.central)
        values = 0
        if known != known:
            known, values = self.value(x), 1
        moves = [(int(i), each[i]) for each in places for i in np.flatnonzero(each != flat)]
        found = self._found(self._with_entries(flat, moves), len(moves))
        gradient, taken = np.zeros(flat.shape), 0
        slopes = []
        with np.errstate(all="ignore"):  # what is not finite is for the method to judge
            for each in places:
                moved = np.flatnonzero(each != flat)
                step, slope = each.astype(float) - flat.astype(float), np.zeros(flat.shape)
                slope[moved] = (found[taken : taken + moved.size] - known) / step[moved]
                taken += moved.size
                slopes.append((step, slope))
            (a, first), *rest = slopes
            gradient = first
            for b, second in rest:  # the parabola through three points
                two = (a != 0.0) & (b != 0.0) & (a != b)
                parabola = (first * b - second * a) / np.where(two, b - a, 1.0)
                gradient = np.where(two, parabola, np.where(a != 0.0, first, second))
        return known, self.space.from_numpy(gradient.reshape(host.shape)), values + len(moves)

    def _with_entries(
        self, flat: np.ndarray, moves: list[tuple[int, np.floating]]
    ) -> Iterator[Array]:
        for i, place in moves:
            moved = flat.copy()
            moved[i] = place
            yield self.space.from_numpy(moved.reshape(self.space.shape))

    def _steps(self, flat: np.ndarray) -> np.ndarray:
        """How far each coordinate is moved: as asked for, or by a share of max(1, |x|)."""
        sizes = np.abs(flat).astype(float)
        steps: np.ndarray = self.relative_step * np.maximum(1.0, sizes)
        if self._how.absolute_step is not None:
            steps = np.broadcast_to(np.asarray(self._how.absolute_step, dtype=float), flat.shape)
        elif self._how.relative_step is not None:
            asked = np.asarray(self._how.relative_step, dtype=float) * sizes
            steps = np.where(asked != 0.0, asked, steps)
        return steps

    def _moved(self, flat: np.ndarray, steps: np.ndarray) -> Iterator[Array]:
        """x with one coordinate moved, for each of the steps."""
        for i, h in enumerate(steps):
            moved = flat.copy()
            moved[i % flat.size] += h
            yield self.space.from_numpy(moved.reshape(self.space.shape))


def places_in_box(
    x: np.ndarray, steps: np.ndarray, lower: np.ndarray, upper: np.ndarray, central: bool
) -> list[np.ndarray]:
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


def _value(fun: Fun, args: tuple[Any, ...], x: Array) -> float:
    return scalar(fun(x, *args), "fun")
