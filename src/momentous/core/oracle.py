"""The oracle: the only caller of the user's functions.  It counts, caches and checks.

A value is counted as one value, a gradient as one gradient, a fused call as one of each.  The last
point is remembered by identity (arrays are never changed once they have been handed out), so asking
again for what is known costs nothing and counts nothing.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from momentous.core.arrays import Array, Space, set_writable, to_numpy
from momentous.core.interrupt import Interrupts
from momentous.core.record import record

Fun = Callable[..., Any]
Jac = Callable[..., Any] | bool | Literal["2-point", "3-point", "autodiff"] | None


@record
class Sample:
    """What is known about one point."""

    point: Array
    value: float = math.nan  # f(point), NaN while unknown
    gradient: Array = None  # its gradient, None while unknown
    grad_norm: float = math.nan

    @property
    def finite(self) -> bool:
        return math.isfinite(self.grad_norm)


NO_SAMPLE = Sample(None)


class Oracle:
    """Values and gradients of the user's function on one :class:`Space`.

    Attributes
    ----------
    nfev, njev : int
        Values and gradients that were computed, each counted on its own.
    """

    def __init__(self, fun: Fun, jac: Jac, args: tuple[Any, ...], space: Space):
        self.space = space
        self.nfev = 0
        self.njev = 0
        self.interrupts = Interrupts()
        self._source = _source(fun, jac, args, space)
        self._last: Sample | None = None
        self._carried: Sample | None = None
        self._asked = False

    @property
    def fused(self) -> bool:
        """Does every gradient bring the value with it?"""
        return self._source.fused

    def value(self, x: Array) -> float:
        """f(x), possibly not finite: that is for the method to judge."""
        last = self._last
        if last is not None and last.point is x:
            if last.value == last.value:  # not NaN: known
                self._asked = True
                return last.value
        else:
            last = None
        if self._source.fused:
            return self.gradient(x).value
        self._note_request(last)
        writes = x._version if self.space.counts_writes else 0
        with self.interrupts:
            value = self._source.value(x)
        if self.space.counts_writes and x._version != writes:
            raise _written()
        self.nfev += 1
        if last is None:
            self._last = Sample(x, value)
        else:
            last.value = value
        return value

    def gradient(self, x: Array) -> Sample:
        """The gradient at x, with its norm, and the value where it came along."""
        last = self._last
        if last is not None and last.point is x:
            if last.gradient is not None:
                self._asked = True
                return last
        else:
            # Let the old gradient go before the user's code makes a new one.
            self._last = last = None
        self._note_request(last)
        source = self._source
        set_writable(x, False)
        writes = x._version if self.space.counts_writes else 0
        with self.interrupts:
            value, gradient = source.gradient(x, math.nan if last is None else last.value)
        if self.space.counts_writes and x._version != writes:
            raise _written()
        self.nfev += source.values_per_gradient
        self.njev += 1
        if last is not None and value != value:
            value = last.value
        norm = self.space.norm(gradient)
        if source.fused and not math.isfinite(value):
            norm = math.nan  # a gradient is of no use where the function is not finite
        self._last = sample = Sample(x, value, gradient, norm)
        return sample

    def learn_value(self, sample: Sample) -> None:
        """Evaluate f at the sample, if it is unknown; what the oracle remembers stays as it was."""
        if sample.value == sample.value:
            return
        kept, self._last = self._last, sample
        self.value(sample.point)
        self._last = kept

    def recall(self, sample: Sample) -> None:
        """Put a sample back as the last point, so that the next request for it is free."""
        self._last = sample

    @property
    def last(self) -> Sample | None:
        """What is known of the point that was asked for last."""
        return self._last

    @property
    def carried(self) -> Sample | None:
        """What a step may use that begins here or, in the middle of one, begins anew."""
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

    def peek(self, x: Array) -> float:
        """f(x) for the eye only: neither counted nor remembered."""
        last = self._last
        if last is not None and last.point is x and last.value == last.value:
            return last.value
        with self.interrupts:
            return self._source.value(x)


def _source(fun: Fun, jac: Jac, args: tuple[Any, ...], space: Space) -> _Source:
    if not callable(fun):
        raise TypeError(f"fun must be callable, not {fun!r}")
    if callable(jac):
        return _Separate(fun, jac, args, space)
    if jac is True:
        return _Fused(fun, args, space)
    if jac == "autodiff":
        return _Autodiff(fun, args, space)
    if jac is None or jac is False:
        warnings.warn(
            "no gradient was given: it is approximated by forward differences, "
            f"{space.size} values of fun for each gradient, accurate to about half of the digits; "
            "pass jac=callable, jac=True if fun returns (f, g), or jac='autodiff' for PyTorch and "
            "JAX (jac='2-point' asks for differences without this warning)",
            RuntimeWarning,
            stacklevel=_levels_to_the_user(),
        )
        jac = "2-point"
    if jac in ("2-point", "3-point"):
        return _Differences(fun, args, space, central=jac == "3-point")
    raise ValueError(
        f"jac={jac!r} is not understood; pass a callable, True (fun returns (f, g)), 'autodiff', "
        "'2-point', '3-point' or None"
    )


def _detaching(function: Fun) -> Fun:
    """For PyTorch: user code may make its x require gradients, ours must not."""
    return lambda x, *args: function(x.detach(), *args)


def _written() -> RuntimeError:
    return RuntimeError(
        "fun or jac has written into x; it must leave x as it is (work on x.clone() instead)"
    )


def _levels_to_the_user() -> int:
    """The stack level, as warnings count it in the caller, of the first frame outside of here."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("momentous."):
        level, frame = level + 1, frame.f_back
    return level + 1


class _Source:
    """How values and gradients are had from the user's code; checks what comes back."""

    fused = False
    values_per_gradient = 0

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space):
        self.args, self.space = args, space
        self.fun = _detaching(fun) if space.counts_writes else fun

    def value(self, x: Array) -> float:
        set_writable(x, False)
        return scalar(self.fun(x, *self.args), "fun")

    def gradient(self, x: Array, known: float) -> tuple[float, Array]:
        """(value or NaN, gradient) at x, where ``known`` is the value if it is known."""
        raise NotImplementedError


class _Separate(_Source):
    """fun(x) -> f and jac(x) -> g."""

    def __init__(self, fun: Fun, jac: Fun, args: tuple[Any, ...], space: Space):
        super().__init__(fun, args, space)
        self.jac = _detaching(jac) if space.counts_writes else jac

    def gradient(self, x: Array, known: float) -> tuple[float, Array]:
        return math.nan, self.space.admit(self.jac(x, *self.args), "jac")


class _Fused(_Source):
    """fun(x) -> (f, g)."""

    fused = True
    values_per_gradient = 1

    def gradient(self, x: Array, known: float) -> tuple[float, Array]:
        pair = self.fun(x, *self.args)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"with jac=True fun must return (f, g), but it returned {type(pair).__name__}"
            )
        parts = list(pair)
        del pair  # so that the gradient is in one place only
        return scalar(parts[0], "fun"), self.space.admit(parts.pop(), "fun (the gradient)")

    def value(self, x: Array) -> float:
        return self.gradient(x, math.nan)[0]


class _Autodiff(_Source):
    """fun(x) -> f in PyTorch or JAX operations; the library differentiates it."""

    fused = True
    values_per_gradient = 1

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space):
        super().__init__(fun, args, space)
        self._bare = fun
        library = space.xp.__name__.rsplit(".", 1)[-1]
        if "torch" in space.xp.__name__:
            self._pair = self._torch_pair
        elif "jax" in space.xp.__name__:
            import jax

            self._pair = jax.value_and_grad(lambda x: fun(x, *args))
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
            (gradient,) = torch.autograd.grad(value, leaf)
        return value, gradient

    def gradient(self, x: Array, known: float) -> tuple[float, Array]:
        value, gradient = self._pair(x)
        return scalar(value, "fun"), self.space.admit(gradient, "the derivative of fun")

    def value(self, x: Array) -> float:
        return scalar(self.fun(x, *self.args), "fun")


class _Differences(_Source):
    """Forward or central differences of fun, one coordinate at a time, through the host."""

    def __init__(self, fun: Fun, args: tuple[Any, ...], space: Space, *, central: bool):
        super().__init__(fun, args, space)
        self.central = central
        self.relative_step = (2 * space.rounding) ** (1 / 3 if central else 1 / 2)

    def gradient(self, x: Array, known: float) -> tuple[float, Array]:
        host = to_numpy(x)
        flat = host.reshape(-1)
        gradient = np.empty(flat.size)
        self.values_per_gradient = 2 * flat.size if self.central else flat.size
        if not self.central and known != known:
            known = self.value(x)
            self.values_per_gradient += 1
        for i in range(flat.size):
            h = self.relative_step * max(1.0, abs(float(flat[i])))
            ahead, forward = self._moved(flat, i, h)
            if self.central:
                back, behind = self._moved(flat, i, -h)
            else:
                back, behind = known, float(flat[i])
            gradient[i] = (ahead - back) / (forward - behind)
        return known, self.space.from_numpy(gradient.reshape(host.shape))

    def _moved(self, flat: np.ndarray, i: int, h: float) -> tuple[float, float]:
        """f with coordinate i moved by h, and where the coordinate really went after rounding."""
        moved = flat.copy()
        moved[i] += h
        x = self.space.from_numpy(moved.reshape(self.space.shape))
        return scalar(self.fun(x, *self.args), "fun"), float(moved[i])


def scalar(raw: Any, source: str) -> float:
    """A user's function value as a float: a number, a 0-d array or an array of one element."""
    if type(raw) is float:
        return raw
    if getattr(raw, "requires_grad", False):
        raw = raw.detach()
    size = math.prod(getattr(raw, "shape", ()))
    if size != 1:
        raise ValueError(
            f"{source} returned an array of shape {tuple(raw.shape)}; it must return one number"
        )
    try:
        if isinstance(raw, complex | np.complexfloating) or "complex" in str(
            getattr(raw, "dtype", "")
        ):
            raise TypeError
        return float(raw.reshape(()) if getattr(raw, "shape", ()) else raw)
    except (TypeError, ValueError):
        raise TypeError(
            f"{source} returned {raw!r} ({type(raw).__name__}); it must return one real number"
        ) from None
