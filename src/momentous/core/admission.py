"""What comes in from user code: the starting point, values, and gradients, all of it checked."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

import array_api_compat
import numpy as np

from momentous.core.space import Array, Space
from momentous.io.types import AnyArray, AnyFunction, Unchecked

# How the names of dtypes begin that a value of f cannot have: NumPy's, then PyTorch's.
NO_NUMBERS = ("complex", "str", "bytes", "void", "datetime", "timedelta", "torch.complex")

Fun = AnyFunction  # of the user


def starting_point(x0: Unchecked) -> Array:
    """x0 as a private floating-point array: a copy, so that the user's own is never written to.

    Numbers and lists become NumPy arrays of at least one dimension, integers become floats, as in
    SciPy; what cannot be minimised over (complex numbers, text, objects) is refused.
    """
    if type(x0) is np.ndarray and x0.dtype == np.float64:  # as most are: nothing to check
        return np.array(x0, dtype=np.float64, order="C", copy=True)
    if array_api_compat.is_array_api_obj(x0):
        refuse_traced([x0])
        if getattr(x0, "requires_grad", False):
            x0 = x0.detach()
        if isinstance(x0, np.ndarray | np.generic):
            refuse_masked(x0, "x0 has")
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


def refuse_traced(given: Iterable[Unchecked]) -> None:
    """A run on the host cannot begin at what JAX traces."""
    jax = sys.modules.get("jax")
    if jax is not None and any(isinstance(each, jax.core.Tracer) for each in given):
        raise TypeError(
            "this runs on the host, which jit, vmap and grad cannot look into: use "
            "momentous.jax.solve there, one compiled loop with the same steps"
        ) from None


def refuse_masked(raw: Unchecked, who: str) -> None:
    """Entries of NumPy's masked arrays that are hidden are not there to be used."""
    if np.ma.is_masked(raw):
        raise ValueError(f"{who} masked entries; fill them (array.filled(0.0)), or leave them out")


def _refuse_many_arrays(x0: Unchecked) -> None:
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
    if callable(x0):
        raise TypeError(
            f"x0 is {getattr(x0, '__name__', x0)!r}, a function, not an array: fun comes first, "
            "minimize(fun, x0); to train a network call momentous.torch.minimize(net, loss), with "
            "a loss that takes no arguments: lambda: mse_loss(net(X), y)"
        )
    if isinstance(x0, dict):
        raise TypeError(
            f"x0 is a dictionary of {', '.join(map(repr, x0)) or 'nothing':.100}, not an array; "
            "momentous.jax.minimize takes dictionaries of arrays, or join them: "
            "numpy.concatenate(...)"
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

    def admit(self, raw: Unchecked, source: str) -> Array:
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

    def _checked(self, raw: Unchecked, source: str) -> Array:
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
        refuse_masked(raw, f"{source} returned")
        if self.space.library is np.ndarray:
            # As SciPy, take lists, tuples and plain numbers, which have no dtype of their own, and
            # whole numbers, which lose nothing.
            plain = not array_api_compat.is_array_api_obj(raw) or isinstance(raw, np.generic)
            given = type(raw).__name__
            try:
                raw = np.asarray(raw) if plain else raw
                if plain and raw.dtype.kind not in "iubfc":
                    raise ValueError
            except ValueError:
                raise TypeError(
                    f"{source} returned a {given} that is not an array of numbers; it must return "
                    f"one real number for each entry of x, an array of shape {self.space.shape}"
                ) from None
            if isinstance(raw, np.ndarray) and raw.dtype.kind in ("iubf" if plain else "iub"):
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

    def _same_library(self, raw: Unchecked) -> bool:
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
    def admit(self, raw: AnyArray, source: str) -> int:
        return sys.getrefcount(raw)


def kind(library: type) -> str:
    return f"a {library.__module__.split('.')[0]} {library.__name__}"


def without_grad(function: Fun, space: Space) -> Fun:
    """For PyTorch: user code may make its x require gradients, ours must not; nor may it write."""
    if not space.counts_writes:
        return function

    def called(x: Array, *args: object) -> Unchecked:
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


def both_of(pair: Unchecked, contract: str) -> list[Unchecked]:
    """The two things that user code returned, in a list so that each can be taken out of it: the
    array is in one place only then."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{contract}, but it returned {type(pair).__name__}")
    return list(pair)


def scalar(raw: Unchecked, source: str) -> float:
    """A user's function value as a float: a number, a 0-d array or an array of one element."""
    if isinstance(raw, float):
        return float(raw)  # one of NumPy's is a float, too
    if getattr(raw, "requires_grad", False):
        raw = raw.detach()
    refuse_masked(raw, f"{source} returned")
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
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except (TypeError, ValueError):
        hint = "; if that is (f, g), pass jac=True" if isinstance(raw, tuple) else ""
        raise TypeError(
            f"{source} returned {raw!r} ({type(raw).__name__}); it must return one real number"
            f"{hint}"
        ) from None


def seed_of(rng: Unchecked) -> int:
    """The seed that ``rng=`` stands for; None is 0, so that runs repeat."""
    if rng is None:
        return 0
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return int(rng)
    raise ValueError(f"rng={rng!r} must be a whole number >= 0, a numpy Generator or None")


def levels_to_the_user(*packages: str) -> int:
    """The stack level, as warnings count it in the caller, of the first frame outside of here, of
    SciPy, whose ``minimize`` takes ours as a method, and of these packages."""
    ours = tuple(f"{name}." for name in ("momentous", "scipy", *packages))
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    return level + 1
