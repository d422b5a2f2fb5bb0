"""The function of a batch: values and gradients of many points in one call."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np

from momentous.core.admission import (
    NO_NUMBERS,
    both_of,
    explain_read_only,
    levels_to_the_user,
    refuse_masked,
    written_into,
)
from momentous.core.box import Box
from momentous.core.sources import (
    DIFFERENCES_ADVICE,
    SINGLE,
    TINY,
    places_in_box,
    require_graph,
    slopes_by_places,
)
from momentous.core.space import Array, set_writable, to_numpy


class BatchFunction:
    """``fun(X, *args)`` of the points that still run, X of shape (k, ...), with its gradients."""

    def __init__(
        self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...], starts: Array, *,
        vectorized: bool = True,
    ):  # fmt: skip
        for name, each in (
            ("fun", fun),
            *([("jac", jac)] if not isinstance(jac, bool | str | None) else []),
        ):
            if not callable(each):
                raise TypeError(f"{name}={each!r} must be callable")
        self.xp = array_api_compat.array_namespace(starts)
        self.dtype, self.device = starts.dtype, array_api_compat.device(starts)
        self.shape, self.count = tuple(starts.shape[1:]), starts.shape[0]
        self.wide = self.xp.result_type(self.dtype, self.xp.float64)
        self.on_jax = array_api_compat.is_jax_namespace(self.xp)
        self.args = args
        self.is_cut = [getattr(a, "ndim", 0) > 0 and a.shape[0] == self.count for a in args]
        self.fun = fun if vectorized else self._by_rows(fun)
        self.jac = self._by_rows(jac) if callable(jac) and not vectorized else jac
        self.values = 1  # of f, that an evaluation takes
        self.is_single = np.zeros(self.count, bool)  # of which problems the values are
        self.more_values = np.zeros(self.count, int)  # of f, where steps of differences did not fit
        self.box: Box | None = None  # of all problems, where differences are to keep inside
        if jac in (None, False):
            differentiates = self.on_jax or array_api_compat.is_torch_namespace(self.xp)
            self.jac = "autodiff" if differentiates else "2-point"
            if not differentiates:
                warnings.warn(
                    "no gradient was given: it is approximated by forward differences, "
                    f"{self.size} more values for each; pass jac=True if fun returns (f, g), or "
                    "jac=callable (jac='2-point' asks for differences without this warning)",
                    RuntimeWarning,
                    stacklevel=levels_to_the_user(),
                )
        if self.jac in ("2-point", "3-point"):
            self.values = 1 + self.size * (1 if self.jac == "2-point" else 2)
        elif not callable(self.jac) and self.jac not in (True, "autodiff"):
            raise ValueError(
                f"jac={jac!r} is not understood; pass True (fun returns values and gradients), a "
                "callable, 'autodiff' (PyTorch, JAX), '2-point', '3-point' or None"
            )

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def grad_noise(self) -> float:
        """Of differences more than 0: that all of them are 0 is no proof."""
        return TINY if self.values > 1 else 0.0

    @property
    def advice(self) -> str:
        """Where a run makes no progress: what to do about the gradient."""
        if self.values > 1:
            return DIFFERENCES_ADVICE
        return "minimize() with check_gradient=True tests the gradient of one problem"

    def to_lanes(self, rows: Array) -> Array:
        """As the lanes have them: what is compiled is the function, and the rest is NumPy's."""
        return np.array(to_numpy(rows)) if self.on_jax else rows

    def from_lanes(self, rows: Array) -> Array:
        """The other way round."""
        if not self.on_jax:
            return rows
        return self.xp.asarray(rows, dtype=self.dtype, device=self.device)

    def __call__(self, points: Array, problems: np.ndarray | None) -> tuple[Array, Array]:
        """Values (k,) and gradients (k, d) at points (k, d) of the problems with these numbers
        (None: of all)."""
        if self.on_jax and self.jac not in ("2-point", "3-point"):
            values, gradients = self._compiled_call(points, problems)
        else:
            values, gradients = self._call(points, problems)
        if not self.on_jax:
            return values, gradients
        # Doubles, as numbers that decide have in lanes, where JAX has none too.
        return np.array(to_numpy(values), float), np.array(to_numpy(gradients))

    def _compiled_call(self, points: Array, problems: np.ndarray | None) -> tuple[Array, Array]:
        """With the last point repeated up to a power of two: for each number of points the function
        is compiled."""
        k = len(points)
        size = min(1 << (k - 1).bit_length(), self.count)
        place = np.minimum(np.arange(size), k - 1)
        problems = (np.arange(self.count) if problems is None else problems)[place]
        found = self._pair_of(self.from_lanes(points[place]), self._cut(problems))
        return found[0][:k], found[1][:k]

    @functools.cached_property
    def _pair_of(self) -> Callable[..., Any]:
        import jax

        def pair(points: Array, args: list[Any]) -> tuple[Array, Array]:
            k = points.shape[0]
            values, gradients = self._pair(self.xp.reshape(points, (k, *self.shape)), args)
            return self._values(values, k), self._gradients(gradients, k)

        return jax.jit(pair) if all(map(_traces, self.args)) else pair

    def _call(self, points: Array, problems: np.ndarray | None) -> tuple[Array, Array]:
        k = points.shape[0]
        X = self.xp.reshape(points, (k, *self.shape))
        set_writable(X, False)
        if self.jac in ("2-point", "3-point"):
            return self._differences(points, np.arange(k) if problems is None else problems)
        args, version = self._cut(problems), getattr(points, "_version", None)
        try:
            values, gradients = self._pair(X, args)
        except ValueError as error:
            explain_read_only(error)
            raise
        if getattr(points, "_version", None) != version:  # PyTorch counts writes
            raise written_into()
        return self._values(values, k), self._gradients(gradients, k)

    def _pair(self, X: Array, args: list[Any]) -> Any:
        if self.jac is True:
            return both_of(self.fun(X, *args), "with jac=True fun must return (values, gradients)")
        if callable(self.jac):
            return self.fun(X, *args), self.jac(X, *args)
        if self.on_jax:
            import jax

            def total(X: Any) -> Any:
                values = self._values(self.fun(X, *args), X.shape[0])
                return self.xp.sum(values), values

            (_, values), gradients = jax.value_and_grad(total, has_aux=True)(X)
            return values, gradients
        if not array_api_compat.is_torch_namespace(self.xp):
            library = self.xp.__name__.rsplit(".", 1)[-1]
            raise ValueError(
                f"jac='autodiff' needs arrays of PyTorch or JAX; {library} does not differentiate: "
                "pass jac=True or jac=callable"
            )
        import torch

        with torch.enable_grad():
            leaf = X.detach().requires_grad_(True)
            values = self.fun(leaf, *args)
            self._values(values, X.shape[0])
            require_graph(values)
            (gradients,) = torch.autograd.grad(values.sum(), leaf)
        return values, gradients

    def _cut(self, problems: np.ndarray | None) -> list[Any]:
        """Arguments whose first axis is that of the problems, of those that run."""
        if problems is None:
            return list(self.args)
        return [
            _rows(arg, problems) if cut else arg
            for arg, cut in zip(self.args, self.is_cut, strict=True)
        ]

    def _values(self, values: Any, k: int) -> Array:
        refuse_masked(values, "fun returned")
        if not array_api_compat.is_array_api_obj(values) and self.xp.__name__.endswith("numpy"):
            values = np.asarray(values)
        if tuple(getattr(values, "shape", ("no array",))) != (k,):
            raise ValueError(
                f"fun returned values of shape {tuple(getattr(values, 'shape', ()))} for {k} "
                f"points; it must return one value for each, an array of shape ({k},): sum over "
                "the axes of x only, or pass vectorized=False for a function of one point"
            )
        if getattr(values.dtype, "name", str(values.dtype)).startswith(NO_NUMBERS):
            raise TypeError(
                f"fun returned values of dtype {values.dtype}; they must be real numbers"
            )
        values = values.detach() if getattr(values, "requires_grad", False) else values
        return self.xp.astype(values, self.wide, copy=True)

    def _gradients(self, gradients: Any, k: int) -> Array:
        refuse_masked(gradients, "the gradients have")
        shape = tuple(getattr(gradients, "shape", ()))
        if shape != (k, *self.shape):
            raise ValueError(
                f"the gradients of {k} points have shape {shape}; they must have that of the "
                f"points, {(k, *self.shape)}"
            )
        if gradients.dtype != self.dtype:
            raise TypeError(
                f"the gradients have dtype {gradients.dtype}, but X0 has {self.dtype}; cast one of "
                "them: momentous keeps the dtype of X0 throughout"
            )
        gradients = gradients.detach() if getattr(gradients, "requires_grad", False) else gradients
        made = self.xp.reshape(gradients, (k, self.size))
        return made if self.on_jax else self.xp.asarray(made, copy=True)

    def _differences(self, points: Array, problems: np.ndarray) -> tuple[Array, Array]:
        """Of all points and coordinates in one call, which are in the box.

        As in a single run: where all values of a problem are numbers of single precision the steps
        are those of single precision, and where all its differences are 0 longer ones are taken."""
        flat, central = to_numpy(points), self.jac == "3-point"
        values, gradients = self._measure(flat, problems, central)
        if flat.dtype == np.float64:
            is_single = _are_single(values)
            other = np.flatnonzero(is_single != self.is_single[problems])
            if other.size:
                own, before = problems[other], self.is_single[problems[other]]
                self.is_single[own] = is_single[other]
                again, fitting = self._measure(flat[other], own, central)
                self.more_values[own] += values.shape[1] - 1
                # Otherwise these were a few round numbers, such as 2 at a minimum.
                fits = _are_single(again) == is_single[other]
                self.is_single[own] = np.where(fits, is_single[other], before)
                gradients[other[fits]] = fitting[fits]
        flat_ones = np.flatnonzero(~gradients.any(axis=1))
        if flat_ones.size:
            _, longer = self._measure(flat[flat_ones], problems[flat_ones], True, SINGLE)
            self.more_values[problems[flat_ones]] += 2 * self.size
            gradients[flat_ones] = np.where(np.isfinite(longer), longer, 0.0)
        here = self.xp.asarray(values[:, 0], dtype=self.wide, device=self.device)
        return here, self.xp.asarray(gradients.astype(flat.dtype), device=self.device)

    def _measure(
        self, flat: np.ndarray, problems: np.ndarray, central: bool, rounding: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The values at points (k, d) and around them, (k, n), and the gradients, by steps for
        values with this rounding at least."""
        d, usual = self.size, float(np.finfo(flat.dtype).eps) / 2
        unit = np.where(self.is_single[problems], max(SINGLE, usual), max(rounding, usual))
        steps = (2 * unit[:, None]) ** (1 / 3 if central else 1 / 2)
        size = np.ones((1, d))
        box = (np.full((1, d), -np.inf), np.full((1, d), np.inf))
        if self.box is not None:
            box = tuple(to_numpy(side)[problems] for side in (self.box.lower, self.box.upper))
            size = size if self.box.unit is None else to_numpy(self.box.unit)[problems]
        places = places_in_box(flat, steps * np.maximum(size, np.abs(flat)), *box, central)
        axes = np.arange(d)
        every = np.repeat(flat[:, None, :], 1 + d * len(places), axis=1)
        for i, place in enumerate(places):
            every[:, 1 + i * d + axes, axes] = place
        k, n = every.shape[:2]
        X = self.xp.asarray(every.reshape(k * n, *self.shape), device=self.device)
        found = self._values(self.fun(X, *self._cut(np.repeat(problems, n))), k * n)
        values = to_numpy(found).reshape(k, n).astype(float)
        moved = np.split(values[:, 1:], len(places), axis=1)
        return values, slopes_by_places(flat, places, values[:, :1], moved)

    def _by_rows(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one point as one of many."""
        if self.on_jax:
            import jax

            axes = (0, *[0 if cut else None for cut in self.is_cut])
            return jax.vmap(function, axes)  # type: ignore[no-any-return]

        def call(X: Array, *args: Any) -> Any:
            cut = self.is_cut
            found = [
                function(X[i, ...], *(a[i] if c else a for a, c in zip(args, cut, strict=True)))
                for i in range(X.shape[0])
            ]
            if isinstance(found[0], tuple | list):
                return tuple(self._stacked(part) for part in zip(*found, strict=True))
            return self._stacked(found)

        return call

    def _stacked(self, parts: Any) -> Array:
        for part in parts:
            refuse_masked(part, "fun or jac returned")
        is_array = array_api_compat.is_array_api_obj(parts[0])
        return self.xp.stack(list(parts)) if is_array else np.array(parts, float)


def _are_single(values: np.ndarray) -> np.ndarray:
    """In which rows is every value a number of single precision?"""
    with np.errstate(over="ignore"):
        same: np.ndarray = np.all(values.astype(np.float32) == values, axis=1)
    return same


def _traces(argument: Any) -> bool:
    """Can JAX take it as an argument of compiled code?"""
    return array_api_compat.is_array_api_obj(argument) or isinstance(argument, int | float)


def _rows(array: Array, problems: np.ndarray) -> Array:
    if isinstance(array, np.ndarray):
        return array[problems]
    xp, device = array_api_compat.array_namespace(array), array_api_compat.device(array)
    return xp.take(array, xp.asarray(problems, device=device), axis=0)
