"""What L-BFGS has learned of the inverse of the Hessian, as an array and a linear operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from scipy.sparse.linalg import LinearOperator

from momentous.core.admission import levels_to_the_user
from momentous.methods.classical.curvature import Curvature

# With more variables it is a linear operator only: an array of it would take 128 MB.
MOST_VARIABLES = 4000


def _of_either(name: str) -> Callable[..., Any]:
    """An operator of Python: of linear operators among each other, and of long ones; else of
    arrays."""
    of_operators, of_arrays = getattr(LinearOperator, name), getattr(NDArrayOperatorsMixin, name)

    def operate(self: InverseHessian, *other: Any) -> Any:
        foreign = [type(each) for each in other if isinstance(each, LinearOperator)]
        alike = foreign in ([], [InverseHessian]) and self.is_small
        return (of_arrays if alike else of_operators)(self, *other)

    return operate


class InverseHessian(NDArrayOperatorsMixin, LinearOperator):  # type: ignore[misc]
    """H at the end of a run, on flat vectors: symmetric and positive definite.

    Starting with ``gamma I``, each pair of a step s and the change y of the gradient along it
    makes ``V'HV + s s'/(t <s, y>)`` of H, with ``V = I - y s'/<s, y>``; t is 1, or the correction
    by values.  Where variables A are held at bounds it is what H says of the others, the inverse of
    the Hessian restricted to them: ``H_FF - H_FA (H_AA)^-1 H_AF``, and 0 for those held.

    Like the ``hess_inv`` of SciPy's L-BFGS-B it is a linear operator: ``H @ v`` and ``H.matvec(v)``
    take products with the pairs, ``H.todense()`` is an array.  Like that of SciPy's BFGS it is an
    array, up to 4,000 variables: ``2 * H``, ``H + A``, ``H[0, 0]``, ``H.diagonal()`` and functions
    of NumPy make arrays, and ``*`` is of entries.
    """

    def __init__(self, curvature: Curvature, size: int, held: np.ndarray | None = None):
        super().__init__(np.float64, (size, size))
        self.held = held if held is not None and held.any() else None
        self.doubt = ""  # a warning for who reads it, once
        self._curvature = curvature
        self._entries: np.ndarray | None = None

    @property
    def is_small(self) -> bool:
        """Is it an array, too?"""
        return bool(self.shape[0] <= MOST_VARIABLES)

    @cached_property
    def times(self) -> Callable[[np.ndarray], np.ndarray]:
        """What multiplies by H, made when it is first needed."""
        return self._curvature.inverse(self.held) if len(self._curvature) else np.copy

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle: without the store, which may hold arrays of any library."""
        made = {"times": self.times, "_curvature": None, "_entries": None}
        return {**super().__getstate__(), **made}

    # --- a linear operator ---

    def _adjoint(self) -> InverseHessian:
        return self

    _transpose = _adjoint

    def _matmat(self, X: Any) -> np.ndarray:
        if self.doubt:
            doubt, self.doubt = self.doubt, ""
            level = levels_to_the_user("numpy")
            warnings.warn(doubt, RuntimeWarning, stacklevel=level)
        x, held = np.array(X, np.float64), self.held
        if held is None:
            return self.times(x)
        x[held] = 0.0
        product = self.times(x)
        product[held] = 0.0
        return product

    __add__, __sub__ = _of_either("__add__"), _of_either("__sub__")
    __mul__, __rmul__, __neg__ = (
        _of_either("__mul__"),
        _of_either("__rmul__"),
        _of_either("__neg__"),
    )

    def __matmul__(self, other: Any) -> Any:
        return self.dot(self._as_array(other) if self.is_small else other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.dot(np.asarray(other).T).T

    def todense(self) -> np.ndarray:
        """H as an array."""
        if self._entries is None:
            columns = self._matmat(np.eye(self.shape[0]))
            self._entries = (columns + columns.T) / 2  # rounding differs from column to column
        return self._entries.copy()

    # --- an array ---

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.todense(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, kind: str, *given: Any, **options: Any) -> Any:
        if "out" in options and options["out"][0] is self:
            options.pop("out")  # H += A makes an array of H
        if ufunc is np.matmul and not options and given[0] is not self:
            return self.__rmatmul__(given[0])  # an array @ H
        if ufunc is np.multiply and not self.is_small and np.isscalar(given[0]):
            return self * given[0]  # a number of NumPy's
        return getattr(ufunc, kind)(*map(self._as_array, given), **options)

    def _as_array(self, given: Any) -> Any:
        return given._small_array() if isinstance(given, InverseHessian) else given

    def _small_array(self) -> np.ndarray:
        if not self.is_small:
            raise TypeError(
                f"hess_inv of {self.shape[0]:,} variables is a linear operator only: multiply by "
                f"it (H @ v), or make an array of {8e-9 * self.shape[0] ** 2:.2g} GB by H.todense()"
            )
        return self.todense()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._small_array())

    def __getitem__(self, index: Any) -> Any:
        return self._small_array()[index]

    def __getattr__(self, name: str) -> Any:
        """The other methods of arrays: diagonal, trace, round, ..."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"hess_inv has no attribute {name!r}")
        return getattr(self._small_array(), name)
