"""What L-BFGS has learned of the inverse of the Hessian, as a linear operator of SciPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from momentous.methods.classical.curvature import Curvature


class InverseHessian(LinearOperator):  # type: ignore[misc]
    """H at the end of a run, on flat vectors: symmetric and positive definite.

    Starting with ``gamma I``, each pair of a step s and the change y of the gradient along it
    makes ``V'HV + s s'/(t <s, y>)`` of H, with ``V = I - y s'/<s, y>``; t is 1, or the correction
    by values.  Where variables A are held at bounds it is what H says of the others, the inverse of
    the Hessian restricted to them: ``H_FF - H_FA (H_AA)^-1 H_AF``, and 0 for those held.
    ``todense()`` is H as an array, and so is ``numpy.asarray`` of it.
    """

    def __init__(self, curvature: Curvature, size: int, held: np.ndarray | None = None):
        super().__init__(np.float64, (size, size))
        self.held = held if held is not None and held.any() else None
        self._curvature = curvature

    @cached_property
    def times(self) -> Callable[[np.ndarray], np.ndarray]:
        """What multiplies by H, made when it is first needed."""
        return self._curvature.inverse(self.held) if len(self._curvature) else np.copy

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle: without the store, which may hold arrays of any library."""
        return {**super().__getstate__(), "times": self.times, "_curvature": None}

    def _adjoint(self) -> InverseHessian:
        return self

    def _matmat(self, X: Any) -> np.ndarray:
        x, held = np.array(X, np.float64), self.held
        if held is None:
            return self.times(x)
        x[held] = 0.0
        product = self.times(x)
        product[held] = 0.0
        return product

    def todense(self) -> np.ndarray:
        """H as an array."""
        columns = self._matmat(np.eye(self.shape[0]))
        whole: np.ndarray = (columns + columns.T) / 2  # rounding differs from column to column
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.todense(), dtype)
