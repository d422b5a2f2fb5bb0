"""What comes in from user code: the starting point, values, and gradients, all of it checked."""

from __future__ import annotations

import contextlib
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
from momentous.io.types import Floats

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
    """For PyTorch: user code may make its x require gradients, ours must not; nor may it write."""
    if not space.counts_writes:
        return function

    def called(x: Array, *args: object) -> Any:
        with unwritten(x, space):
            return function(x.detach(), *args)

    return called


@contextlib.contextmanager
def unwritten(x: Array, space: Space) -> Iterator[None]:
    """A context around user code that has x: a tensor of PyTorch counts the writes into it."""
    writes = x._version if space.counts_writes else 0
    yield
    if space.counts_writes and x._version != writes:
        raise written_into()


def written_into() -> RuntimeError:
    return RuntimeError(
        "user code has written into x; it must leave x as it is (work on x.clone() instead)"
    )


def explain_read_only(error: BaseException) -> None:
    """NumPy says that an array is read-only; say which one, and what to do."""
    if isinstance(error, ValueError) and error.args and "read-only" in str(error.args[0]):
        error.args = (
            f"{error.args[0]}: user code writes into x, which it must leave as it is; let it work "
            "on x.copy() instead",
        )


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


def function_source(fun: Fun, jac: Jac, args: tuple[object, ...], space: Space) -> Source:
    """The source of values and gradients that fun, jac and args of `momentous.minimize` are, in the
    box of the space, or with its penalty."""
    source = _source_of(fun, jac, args, space)
    if space.box is not None:
        return _InBox(source)
    return source if space.penalty is None else _WithPenalty(source)


def _source_of(fun: Fun, jac: Jac, args: tuple[object, ...], space: Space) -> Source:
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


Answer = tuple[Any, Array, int]  # value or NaN, gradient or image, number of values it took


class Source:
    """How values and gradients are had from the user's code; checks what comes back."""

    fused = False  # does every gradient bring the value with it?
    by_differences = False
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

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        """What a result shows besides x."""
        return {"jac": gradient}


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

    def arrays_at(self, x: Array, gradient: Array, image: Array) -> dict[str, Array]:
        return self.inner.arrays_at(x, gradient, image)


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

    def value(self, x: Array) -> float:
        return self.inner.value(x) + self.space.penalty.total(self.space, x)

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

    def _where_it_is(self, value: Any) -> Any:
        """A value that came with a gradient: on its device, if a pass can bring it to the host."""
        if type(value) is float:
            return value
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
        return (
            self._where_it_is(parts[0]),
            self.admission.admit(parts.pop(), "fun (the gradient)"),
            1,
        )

    def value(self, x: Array) -> float:
        return scalar(self.gradient(x, math.nan)[0], "fun")


class _Autodiff(_Function):
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

        with torch.enable_grad(), unwritten(x, self.space):
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

    def gradient(self, x: Array, known: float) -> Answer:
        try:
            value, gradient = self._pair(x)
        except (TypeError, RuntimeError) as error:
            error.add_note("fun is differentiated here; jac='2-point' asks for differences of it")
            raise
        return self._where_it_is(value), self.admission.admit(gradient, "the derivative of fun"), 1


class _Differences(_Function):
    """Forward or central differences of fun, one coordinate at a time, through the host."""

    by_differences = True
    words = None
    advice = "a gradient of your own is more exact than differences: jac=callable, True, 'autodiff'"

    def __init__(self, fun: Fun, args: tuple[object, ...], space: Space, how: Differences):
        super().__init__(fun, args, space)
        self.central, self._how = how.central, how
        self.relative_step = (2 * space.rounding) ** (1 / 3 if self.central else 1 / 2)

    def gradient(self, x: Array, known: float) -> Answer:
        """By points of the box alone.  The derivative by a fixed variable is 0: nothing can be
        asked of it."""
        host, box = to_numpy(x), self.space.box
        flat = host.reshape(-1)
        sides = (-math.inf, math.inf) if box is None else (box.lower, box.upper)
        lower, upper = (np.broadcast_to(to_numpy(side).reshape(-1), flat.shape) for side in sides)
        places = places_in_box(flat, self._steps(flat), lower, upper, self.central)
        values = 0
        if known != known and not (self.central and has_two_sides(flat, places).all()):
            known, values = self.value(x), 1
        moves = [(int(i), each[i]) for each in places for i in np.flatnonzero(each != flat)]
        found = self._values_at(self._with_entries(flat, moves), len(moves))
        there = [np.full(flat.shape, known) for _ in places]
        for values_there, each in zip(there, places, strict=True):
            moved = np.flatnonzero(each != flat)
            values_there[moved], found = found[: moved.size], found[moved.size :]
        gradient = slopes_by_places(flat, places, known, there)
        return known, self.space.from_numpy(gradient.reshape(host.shape)), values + len(moves)

    def _values_at(self, points: Iterator[Array], count: int) -> np.ndarray:
        """The values of fun at so many points."""
        at = functools.partial(_value, self.fun, self.args)  # which processes can be sent
        answers = list(self._how.map(at, points))
        if len(answers) != count:
            raise RuntimeError(
                f"{count} values of fun were asked for, and {len(answers)} came back: fun "
                "raised StopIteration, which ends a map, or workers= is no function like map"
            )
        return np.array(answers, dtype=float)

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


def has_two_sides(x: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """Which coordinates are moved both ways?"""
    first, second = places
    return ((first > x) & (second < x)) | ((first < x) & (second > x))


def slopes_by_places(
    x: np.ndarray, places: list[np.ndarray], known: Floats | float, values: list[np.ndarray]
) -> np.ndarray:
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
