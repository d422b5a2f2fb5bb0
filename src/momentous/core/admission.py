"""What comes in from user code: the starting point, values, and gradients, all of it checked."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Literal, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike

from momentous.core.space import Array, Space, set_writable, to_numpy

# How the names of dtypes begin that a value of f cannot have: NumPy's, then PyTorch's.
NO_NUMBERS = ("complex", "str", "bytes", "void", "datetime", "timedelta", "torch.complex")

Fun = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Differences:
    """How the gradient is approximated by differences of fun, for ``jac=``."""

    central: bool = False  # "3-point" rather than "2-point"
    relative_step: ArrayLike | None = None  # a number or one per coordinate, times |x_i|
    absolute_step: ArrayLike | None = None  # the same, as it is
    map: Callable[..., Iterable[float]] = (
        map  # how fun is applied to many points: `Pool.map`, for example
    )


Jac = Callable[..., Any] | bool | Literal["2-point", "3-point", "autodiff"] | Differences | None


def starting_point(x0: Any) -> Array:
    """x0 as a private floating-point array: a copy, so that the user's own is never written to.

    Numbers and lists become NumPy arrays of at least one dimension, integers become floats, as in
    SciPy; what cannot be minimised over (complex numbers, text, objects) is refused.
    """
    if type(x0) is np.ndarray and x0.dtype == np.float64:  # as most are: nothing to check
        return np.array(x0, dtype=np.float64, order="C", copy=True)
    if array_api_compat.is_array_api_obj(x0):
        if getattr(x0, "requires_grad", False):
            x0 = x0.detach()
        if isinstance(x0, np.ndarray | np.generic):
            if np.ma.is_masked(x0):
                raise ValueError("x0 has masked entries; pass the array without them")
            scalar = isinstance(x0, np.generic)
            x0 = np.asarray(np.ma.getdata(x0))
            x0 = x0.reshape(1) if scalar else x0
    else:
        _refuse_many_arrays(x0)
        try:
            x0 = np.atleast_1d(np.asarray(x0))
        except ValueError as error:
            raise ValueError(f"x0 is not an array of numbers: {error}") from None
    xp = array_api_compat.array_namespace(x0)
    if isinstance(x0, np.ndarray) and x0.dtype == object:
        kinds = sorted({type(each).__name__ for each in x0.flat})
        raise TypeError(f"x0 holds {', '.join(kinds)}; pass one array of real numbers")
    if isinstance(x0, np.ndarray) and x0.dtype.kind not in "biufc":
        raise TypeError(f"x0 has dtype {x0.dtype}; momentous minimises over real numbers only")
    if xp.isdtype(x0.dtype, "complex floating"):
        raise TypeError(
            f"x0 has dtype {x0.dtype}; split it into real and imaginary parts, "
            "momentous minimises over real numbers only"
        )
    if isinstance(x0, np.ndarray):
        dtype = x0.dtype.newbyteorder("=") if x0.dtype.kind == "f" else np.dtype(float)
        return np.array(x0, dtype=dtype, order="C", copy=True)
    if not xp.isdtype(x0.dtype, "real floating"):
        x0 = xp.astype(x0, xp.asarray(0.0).dtype)
    return xp.asarray(x0, copy=True)


def _refuse_many_arrays(x0: Any) -> None:
    """A list of tensors, such as the parameters of a network, is not one array."""
    parts = list(x0.values()) if isinstance(x0, dict) else x0
    if isinstance(parts, list | tuple) and any(
        array_api_compat.is_array_api_obj(part) and not isinstance(part, np.ndarray | np.generic)
        for part in parts
    ):
        kinds = sorted({kind(type(part)) for part in parts})
        raise TypeError(
            f"x0 holds {len(parts)} arrays ({', '.join(kinds)}), but it must be one array: "
            "momentous.torch.minimize(net, loss) trains the parameters of a network; or join them "
            "(torch.nn.utils.parameters_to_vector(net.parameters())) and let fun take them "
            "apart again (vector_to_parameters, or torch.func.functional_call)"
        )
    if isinstance(x0, list | tuple | int | float | complex | str):
        return
    if hasattr(x0, "__next__") or hasattr(x0, "named_parameters"):
        raise TypeError(
            f"x0 is a {type(x0).__name__}, not an array; momentous.torch.minimize(net, loss) "
            "trains the parameters of a network, or make one array of them: "
            "torch.nn.utils.parameters_to_vector(net.parameters())"
        )


class Admission:
    """Takes arrays that user code returned into a :class:`Space`: checked, and ours alone."""

    def __init__(self, space: Space):
        self.space = space
        self._immutable = space.library is not np.ndarray and array_api_compat.is_jax_namespace(
            space.xp
        )
        # The reference count of an array that was just returned to admit().  How many references a
        # call adds depends on the Python version and on debuggers: it is measured, in a call of
        # the same form.
        self._fresh_count = _Measure().admit(np.empty(0), "")
        self._unshared = _test_of_memory(space)

    def admit(self, raw: Any, source: str) -> Array:
        """An array that user code returned, checked, as one that only we hold.

        User code may write all its answers into one buffer, or return x itself.  Where nobody but
        us refers to an array it is taken as it is; otherwise it is copied.
        """
        if (
            type(raw) is self.space.library is np.ndarray
            and raw.dtype == self.space.dtype
            and raw.shape == self.space.shape
        ):
            if raw.base is None and sys.getrefcount(raw) == self._fresh_count:
                flags = raw.flags
                if flags.owndata and flags.c_contiguous:
                    return raw
            return self.space.copy(raw)
        # Asked before anything else refers to it.
        test = self._unshared
        ours = test is not None and sys.getrefcount(raw) == self._fresh_count
        raw = self._checked(raw, source)
        if self._immutable:
            return raw
        raw = raw.detach() if getattr(raw, "requires_grad", False) else raw
        return raw if ours and test is not None and test(raw) else self.space.copy(raw)

    def _checked(self, raw: Any, source: str) -> Array:
        space = self.space
        if (
            type(raw) is space.library
            and raw.dtype == space.dtype
            and raw.shape == space.shape
            and raw.device == space.device
        ):
            return raw  # as nearly always; what follows asks each thing again
        if raw is None:
            raise TypeError(f"{source} returned None, not an array of shape {self.space.shape}")
        if self.space.library is np.ndarray and (
            not array_api_compat.is_array_api_obj(raw) or isinstance(raw, np.generic)
        ):
            # Lists, tuples and plain numbers carry no dtype of their own: take them as SciPy does.
            try:
                raw = np.asarray(raw)
            except ValueError:
                raise TypeError(
                    f"{source} returned a {type(raw).__name__} that is not an array of numbers"
                ) from None
            if raw.dtype.kind in "iufb":
                raw = raw.astype(self.space.dtype)
        if not array_api_compat.is_array_api_obj(raw) or not self._same_library(raw):
            raise TypeError(
                f"{source} returned {kind(type(raw))}, but x0 is {kind(self.space.library)}; "
                "return the library of x0, or pass x0 in the library of the answer"
            )
        if tuple(raw.shape) != self.space.shape:
            if self.space.size == 1 == math.prod(raw.shape):  # a number, for one variable
                return self._checked(raw.reshape(self.space.shape), source)
            raise ValueError(
                f"{source} returned shape {tuple(raw.shape)}, but x has shape {self.space.shape}; "
                "it must have one entry for every entry of x"
            )
        if raw.dtype != self.space.dtype:
            raise TypeError(
                f"{source} returned dtype {raw.dtype}, but x0 has dtype {self.space.dtype}; "
                "cast one of them: momentous keeps the dtype of x0 throughout"
            )
        if array_api_compat.device(raw) != self.space.device:
            return self._placed(raw, source)
        return raw

    def _placed(self, raw: Array, source: str) -> Array:
        """An array of JAX that is spread over the devices of x, but in another way: spread as x."""
        place, wanted = array_api_compat.device(raw), self.space.device
        if getattr(place, "device_set", None) == getattr(wanted, "device_set", ""):
            return import_module("jax").device_put(raw, wanted)
        raise ValueError(f"{source} returned an array on {place}, but x0 is on {wanted}")

    def _same_library(self, raw: Any) -> bool:
        # JAX hands out several classes for its arrays, NumPy allows subclasses: compare namespaces.
        return array_api_compat.array_namespace(raw) is self.space.xp


def _test_of_memory(space: Space) -> Callable[[Array], bool] | None:
    """A test whether memory belongs to an array of PyTorch or CuPy alone, or None where there is
    no such test."""
    if array_api_compat.is_torch_namespace(space.xp):
        return _owns_tensor
    if array_api_compat.is_cupy_namespace(space.xp):
        return lambda a: a.base is None and a.flags.c_contiguous
    return None


def _owns_tensor(a: Array) -> bool:
    """Does nothing but this tensor refer to its memory, and will nothing write to it?

    Compiled functions that replay a CUDA graph write all their answers to the same memory.
    """
    graphs = sys.modules.get("torch._inductor.cudagraph_trees")
    if graphs is not None and getattr(graphs.local, "tree_manager_containers", None):
        return False
    storage = a.untyped_storage()
    count = getattr(sys.modules["torch"]._C, "_storage_Use_Count", None)
    return (
        count is not None
        and count(storage._cdata) == 2  # the tensor, and `storage`
        and storage.resizable()
        and a.is_contiguous()
        and storage.nbytes() == a.numel() * a.element_size()
    )


class _Measure:
    def admit(self, raw: np.ndarray, source: str) -> int:
        return sys.getrefcount(raw)


def kind(library: type) -> str:
    return f"a {library.__module__.split('.')[0]} {library.__name__}"


def without_grad(function: Fun, space: Space) -> Fun:
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


def source_of(fun: Fun, jac: Jac, args: tuple[object, ...], space: Space) -> Source:
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


class Words(NamedTuple):
    """What the caller calls function and gradient, for messages; and the way out."""

    function: str = "fun"
    gradient: str = "jac"
    remedy: str = "correct it, or let it be computed: jac='autodiff', '3-point' or '2-point'"
    repeat: str = (
        "draw the batch, or the random numbers, once before the run; for mini-batches use "
        "torch.optim or optax"
    )


class Source:
    """How values and gradients are had from the user's code; checks what comes back."""

    fused = False
    by_differences = False
    advice = "pass check_gradient=True to test the gradient"
    words: Words | None = Words()

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space):
        self.args, self.space = args, space
        self.fun = without_grad(fun, space)
        self.admission = Admission(space)

    def value(self, x: Array) -> float:
        set_writable(x, False)
        return scalar(self.fun(x, *self.args), "fun")

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        """As `Oracle._call_gradient`; the value may still be on the device."""
        raise NotImplementedError

    def _taken(self, value: Any) -> Any:
        """A value that came with a gradient: where it is, if a pass can bring it to the host."""
        if type(value) is float:
            return value
        brings = self.space.fuses and self.space.brings(value)
        return value if brings else scalar(value, "fun")


class _Separate(Source):
    """fun(x) -> f and jac(x) -> g."""

    def __init__(self, fun: Fun, jac: Fun, args: tuple[object, ...], space: Space):
        super().__init__(fun, args, space)
        self.jac = without_grad(jac, space)

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        return math.nan, self.admission.admit(self.jac(x, *self.args), "jac"), 0


class _Fused(Source):
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

    def gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        parts = both_of(self.fun(x, *self.args), "with jac=True fun must return (f, g)")
        return self._taken(parts[0]), self.admission.admit(parts.pop(), "fun (the gradient)"), 1

    def value(self, x: Array) -> float:
        return scalar(self.gradient(x, math.nan)[0], "fun")


class _Autodiff(Source):
    """fun(x) -> f in PyTorch or JAX operations; the library differentiates it."""

    fused = True
    words = Words(
        gradient="the derivative of fun",
        remedy="fun must not leave the library on its way (detach, item, stop_gradient, NumPy); "
        "jac='3-point' asks for differences",
    )

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space):
        super().__init__(fun, args, space)
        self._bare = fun
        self._pair: Callable[[Array], tuple[Any, Array]]
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
        try:
            value, gradient = self._pair(x)
        except (TypeError, RuntimeError) as error:
            error.add_note("fun is differentiated here; jac='2-point' asks for differences of it")
            raise
        return self._taken(value), self.admission.admit(gradient, "the derivative of fun"), 1

    def value(self, x: Array) -> float:
        return scalar(self.fun(x, *self.args), "fun")


class _Differences(Source):
    """Forward or central differences of fun, one coordinate at a time, through the host."""

    by_differences = True
    words = None
    advice = "a gradient of your own is more exact than differences: jac=callable, True, 'autodiff'"

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space, how: Differences):
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
        there = [np.full(flat.shape, known) for _ in places]
        for values_there, each in zip(there, places, strict=True):
            moved = np.flatnonzero(each != flat)
            values_there[moved], found = found[: moved.size], found[moved.size :]
        gradient = slopes_by_places(flat, places, known, there)
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


def slopes_by_places(
    x: np.ndarray, places: list[np.ndarray], known: Any, values: list[np.ndarray]
) -> np.ndarray:
    """The derivative by each coordinate: 0 where it was not moved."""
    slopes = []
    with np.errstate(all="ignore"):  # what is not finite is for the method to judge
        for place, value in zip(places, values, strict=True):
            step = place.astype(float) - x.astype(float)
            slopes.append((step, np.where(step != 0.0, (value - known) / step, 0.0)))
        (a, gradient), *rest = slopes
        for b, second in rest:  # the parabola through three points
            two = (a != 0.0) & (b != 0.0) & (a != b)
            parabola = (gradient * b - second * a) / np.where(two, b - a, 1.0)
            gradient = np.where(two, parabola, np.where(a != 0.0, gradient, second))
    return gradient


def _value(fun: Fun, args: tuple[object, ...], x: Array) -> float:
    return scalar(fun(x, *args), "fun")
