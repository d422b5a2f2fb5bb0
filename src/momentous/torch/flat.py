"""Parameters of PyTorch as one vector, and a closure as a function of it.

A method works on one flat vector x.  The parameters keep their own memory: to evaluate at x, its
pieces are copied into them, the closure runs, and their gradients are copied into a fresh vector.
That is two passes over the parameters, of which a forward and a backward pass make several.
Parameters that were views of x would save the first; but compiled modules, CUDA graphs and hooks
that hold a parameter's memory would lose it, and code that puts other memory under a parameter
(``module.to(...)``, ``parameter.data = ...``) would be heard of by nobody.

In the memory of the host, in float32 and float64, x is an array of NumPy: its operations on short
vectors take a fraction of the time of PyTorch's.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from momentous.core.box import Sides, read_sides, sides_or_pairs
from momentous.core.penalties import check_term
from momentous.core.sources import Words
from momentous.core.space import Array
from momentous.io.types import Unchecked

Closure = Callable[[], object]
Named = Sequence[tuple[str, torch.Tensor]]


class FlatParameters:
    """Trained parameters, in one order, as one vector.

    Complex parameters are two real numbers per entry.  Parameters may be on several devices; the
    vector is on the first one's.

    Parameters
    ----------
    named : sequence of (name, tensor)
        The parameters; those that require no gradient are left out.
    """

    def __init__(self, named: Named):
        trained = [(name, tensor) for name, tensor in named if tensor.requires_grad]
        if not trained:
            raise ValueError(
                f"none of the {len(named)} parameters requires a gradient: there is nothing to "
                "train; call requires_grad_() on those to train"
            )
        _require_one_dtype(trained)
        _require_own_memory(trained)
        _require_own_names(trained)
        self.names = [name for name, _ in trained]
        self.tensors = [tensor for _, tensor in trained]
        self.kinds = kinds(self.tensors)
        with torch.no_grad():
            real = [_real(tensor) for tensor in self.tensors]
        self._shapes = [tensor.shape for tensor in real]
        self._sizes = [tensor.numel() for tensor in real]
        self._device, self._dtype = self.tensors[0].device, real[0].dtype
        # Where x is an array of NumPy: the same as a tensor, and its pieces.
        self._staged: torch.Tensor | None = None
        if self._device.type == "cpu" and self._dtype in (torch.float32, torch.float64):
            self._staged = torch.empty(sum(self._sizes), dtype=self._dtype)
            self._staged_pieces = self._split(self._staged)

    def point(self) -> Array:
        """The parameters as they are, as a fresh vector."""
        with torch.no_grad():
            return self._joined(map(_real, self.tensors))

    def is_at(self, x: Array) -> bool:
        """Are the parameters those of the point x, bit for bit?"""
        if x.shape != (sum(self._sizes),) or _name(x.dtype) != _name(self._dtype):
            return False
        with torch.no_grad():
            if self._staged is not None:  # no new memory, and no more than need be
                pairs = zip(map(_real, self.tensors), self._pieces(x), strict=True)
                return all(torch.equal(here, there.to(here.device)) for here, there in pairs)
            # One answer from the device.
            return bool(torch.equal(self.tensor(x), self.point()))

    def write(self, x: Array) -> None:
        """Make the parameters those of the point x."""
        with torch.no_grad():
            torch._foreach_copy_([_real(tensor) for tensor in self.tensors], self._pieces(x))

    def tensor(self, x: Array) -> torch.Tensor:
        """A vector as a tensor on the device of the parameters; of an array a copy."""
        tensor = torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x
        return tensor.to(self._device)

    def gradient(self) -> Array:
        """The gradients that the parameters have, as a fresh vector; those that have none have not
        been used, and get zeros."""
        with torch.no_grad():
            return self._joined(map(_dense_gradient, self.tensors))

    def write_gradient(self, gradient: Array | None) -> None:
        """Give the parameters these gradients; without any, none."""
        if gradient is None:
            self.drop_gradients()
            return
        own = gradient if isinstance(gradient, np.ndarray) else gradient.clone()
        for tensor, piece in zip(self.tensors, self.views(own).values(), strict=True):
            tensor.grad = piece.to(tensor.device)

    def drop_gradients(self) -> None:
        """Leave no gradient of another point to add to."""
        for tensor in self.tensors:
            tensor.grad = None

    @property
    def has_gradients(self) -> bool:
        return any(tensor.grad is not None for tensor in self.tensors)

    def views(self, x: Array) -> dict[str, torch.Tensor]:
        """A vector in the shapes of the parameters, by name; of an array, copies."""
        pieces = zip(self.names, self.tensors, self._split(self.tensor(x)), strict=True)
        return {  # complex tensors begin at even places only
            name: torch.view_as_complex(piece.clone()) if tensor.is_complex() else piece
            for name, tensor, piece in pieces
        }

    def bounds(self, bounds: object) -> object:
        """Bounds of the vector, given by the names of parameters; else as they are."""
        if not isinstance(bounds, Mapping):
            return bounds
        self._require_trained("bounds=", bounds)
        dtype, sides = _name(self._dtype), []
        for name, shape in zip(self.names, self._shapes, strict=True):
            given = bounds.get(name)
            given = (None, None) if given is None else sides_or_pairs(given)
            sides.append(read_sides(given, tuple(shape), dtype))
        lower, upper = zip(*sides, strict=True)
        return Sides(*(np.concatenate([a.reshape(-1) for a in side]) for side in (lower, upper)))

    def penalty(self, penalty: object) -> object:
        """A simple term of the vector, given for each parameter or by their names."""
        if penalty is None:
            return None
        if not isinstance(penalty, Mapping):
            check_term(penalty)
            return _TermOfEach(self, dict.fromkeys(self.names, penalty))
        self._require_trained("penalty=", penalty)
        for term in penalty.values():
            check_term(term)
        return _TermOfEach(self, penalty)

    def _require_trained(self, what: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                raise ValueError(
                    f"{what} names {name!r}, which is not trained; these are: "
                    f"{', '.join(self.names)}"
                )

    def _pieces(self, x: Array) -> list[torch.Tensor]:
        """A vector in the shapes of the parameters, until the next one is asked for."""
        if self._staged is None:
            return self._split(self.tensor(x))
        if isinstance(x, torch.Tensor):
            self._staged.copy_(x)
        else:
            np.copyto(self._staged.numpy(), x)
        return self._staged_pieces

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = zip(torch.split(x, self._sizes), self._shapes, strict=True)
        return [piece.view(shape) for piece, shape in parts]

    def _joined(self, parts: Iterator[torch.Tensor]) -> Array:
        flat = [part.reshape(-1).to(self._device) for part in parts]
        if self._staged is None:
            return torch.cat(flat)
        joined = np.empty(sum(self._sizes), self._staged.numpy().dtype)
        torch.cat(flat, out=torch.from_numpy(joined))
        return joined


def kinds(tensors: Sequence[torch.Tensor]) -> list[tuple[object, ...]]:
    """What must stay as it is for a vector to mean the same parameters."""
    return [(id(tensor), tensor.dtype, tensor.device, tensor.shape) for tensor in tensors]


class _TermOfEach:
    """Simple terms of parameters, each in its shape, as one of the vector."""

    def __init__(self, flat: FlatParameters, terms: Mapping[str, Unchecked]):
        self._flat, self._terms = flat, terms

    def __repr__(self) -> str:
        return repr(dict(self._terms))

    def _pieces(self, x: Array) -> list[tuple[Unchecked, torch.Tensor]]:
        pieces = self._flat._split(self._flat.tensor(x))
        names = zip(self._flat.names, pieces, strict=True)
        return [(self._terms.get(name), piece) for name, piece in names]

    def value(self, x: Array) -> float:
        return sum(float(term.value(piece)) for term, piece in self._pieces(x) if term is not None)

    def prox(self, x: Array, step: float) -> Array:
        made = [p if term is None else term.prox(p, step) for term, p in self._pieces(x)]
        joined = torch.cat([piece.reshape(-1) for piece in made])
        return joined.numpy() if isinstance(x, np.ndarray) else joined


class ClosureFunction:
    """A closure as a function x -> (value, gradient).

    The closure is that of ``torch.optim.LBFGS``, and may leave out two of its three lines: the
    gradients of the last call are dropped before it runs, and where it has not called ``backward``
    on the loss, that is done after it.

    Attributes
    ----------
    flat : FlatParameters
        The parameters that x stands for.
    closure : callable
        What is called; set anew in every step.
    at : array or None
        The point that the parameters were last written to.
    dtype : torch.dtype
        That of the last loss.
    """

    words = Words(
        "the loss",
        "the gradient that the closure leaves",
        "call backward() once, on the loss that is returned, and do not change gradients (clip, "
        "scale) in the closure; or leave backward() out",
        "use all data or one fixed batch, and net.eval() where there is dropout; for mini-batches "
        "use torch.optim",
        suspect=True,
    )

    def __init__(self, flat: FlatParameters, closure: Closure):
        self.flat, self.closure = flat, closure
        self.at: Array | None = None
        self.dtype = torch.float64
        self._first = True

    def __call__(self, x: Array) -> tuple[torch.Tensor | float, Array]:
        self.at = x
        self.flat.write(x)
        self.flat.drop_gradients()
        with torch.enable_grad():
            loss = self.closure()
            value = self._checked(loss)
            if not self.flat.has_gradients and isinstance(loss, torch.Tensor) and loss.grad_fn:
                loss.backward()
        if not self.flat.has_gradients:
            raise RuntimeError(
                "the closure left no gradient in any of the trained parameters: it must compute "
                "the loss from them, with gradients enabled, and return it as a tensor or call "
                "backward() on it"
            )
        if self._first:
            self._require_finite(value)
            self._first = False
        return value, self.flat.gradient()

    def holds(self, x: Array) -> bool:
        """Is x the point that the parameters were last written to?"""
        at = self.at
        if isinstance(at, torch.Tensor):  # the oracle hands out another tensor in the same memory
            return bool(at.data_ptr() == x.data_ptr())
        return at is x

    def _checked(self, loss: object) -> torch.Tensor | float:
        """The loss as one number, still on its device."""
        if isinstance(loss, torch.Tensor):
            if loss.numel() != 1:
                raise ValueError(
                    f"the closure returned a tensor of shape {tuple(loss.shape)}; it must return "
                    "the loss, which is one number: take its sum() or mean()"
                )
            self.dtype = loss.dtype
            return loss.detach().reshape(())
        if loss is None:
            raise TypeError("the closure returned None; it must return the loss")
        self.dtype = torch.float64
        try:
            if isinstance(loss, str | bytes | bytearray):  # float() would read it
                raise TypeError
            return float(loss)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise TypeError(
                f"the closure returned a {type(loss).__name__}; it must return the loss, which is "
                "one number"
            ) from None

    def _require_finite(self, value: torch.Tensor | float) -> None:
        """Refuse a start where the loss, or one of its derivatives, is not finite."""
        if not math.isfinite(float(value)):
            raise ValueError(
                f"the loss at the start is {float(value)}; begin with parameters where it is finite"
            )
        bad = [
            name
            for name, tensor in zip(self.flat.names, self.flat.tensors, strict=True)
            if not torch.isfinite(_dense_gradient(tensor)).all()
        ]
        if bad:
            raise ValueError(
                f"the gradient at the start is not finite in {', '.join(bad)}; begin with "
                "parameters where it is"
            )


def _name(dtype: object) -> str:
    return str(dtype).rpartition(".")[2]


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _dense_gradient(tensor: torch.Tensor) -> torch.Tensor:
    gradient = tensor.grad
    if gradient is None:
        return torch.zeros_like(_real(tensor.detach()))
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    return _real(gradient.detach())


def _require_one_dtype(trained: Named) -> None:
    first: dict[torch.dtype, str] = {}
    for name, tensor in trained:
        if hasattr(tensor, "device_mesh"):
            raise TypeError(
                f"the parameter {name} is spread over processes (a DTensor); momentous needs whole "
                "parameters in every process"
            )
        first.setdefault(tensor.real.dtype if tensor.is_complex() else tensor.dtype, name)
    if len(first) > 1:
        found = ", ".join(f"{dtype} ({name})" for dtype, name in first.items())
        raise TypeError(
            f"the parameters have {len(first)} dtypes: {found}; they are one vector, of one dtype: "
            "convert the module (module.to(torch.float64)) or train the parameters of one dtype"
        )


def _require_own_memory(trained: Named) -> None:
    """Two parameters in the same memory cannot be two parts of one point."""
    spans = sorted(
        (str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + _extent(tensor), name)
        for name, tensor in trained
        if tensor.numel()
    )
    for (place, _, end, name), (other_place, begin, _, other) in itertools.pairwise(spans):
        if place == other_place and begin < end:
            raise ValueError(
                f"the parameters {name} and {other} share memory; tie weights by one parameter in "
                "two places (b.weight = a.weight), not by two that share their data"
            )


def _require_own_names(trained: Named) -> None:
    """Results are dictionaries by name."""
    for name, times in collections.Counter(name for name, _ in trained).items():
        if times > 1:
            raise ValueError(
                f"{times} parameters are called {name!r}; give each a name of its own, or pass "
                "parameters() in place of named_parameters()"
            )


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first entry to behind the last."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int((1 + sum((n - 1) * stride for n, stride in steps)) * tensor.element_size())
