"""What L-BFGS has learned of the inverse of the Hessian, as a linear operator of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from momentous.core.space import to_numpy
from momentous.methods.classical.curvature import Curvature
from momentous.methods.classical.limited_memory import Pairs
from momentous.methods.classical.whole_matrix import WholeMatrix


class Symmetric(LinearOperator):  # type: ignore[misc]
    """A symmetric operator on flat vectors that can be had as an array."""

    def _adjoint(self) -> Symmetric:
        return self

    def todense(self) -> np.ndarray:
        """All of it as an array."""
        columns = np.column_stack([self._matvec(unit) for unit in np.eye(self.shape[0])])
        whole: np.ndarray = (columns + columns.T) / 2  # rounding differs from column to column
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.todense(), dtype)


class InverseHessian(Symmetric):
    """H at the end of a run, on flat vectors: symmetric and positive definite.

    Starting with ``scale * I``, each pair of a step s and the change y of the gradient along it
    makes ``V'HV + s s'/(t <s, y>)`` of H, with ``V = I - y s'/<s, y>``; t is 1, or the correction
    by values.  ``todense()`` is H as an array, and so is ``numpy.asarray`` of it.
    """

    def __init__(
        self,
        size: int,
        scale: float = 1.0,
        steps: np.ndarray | None = None,
        changes: np.ndarray | None = None,
        corrections: np.ndarray | None = None,
        matrix: np.ndarray | None = None,
    ):
        super().__init__(np.float64, (size, size))
        nothing = np.empty((0, size))
        self.scale, self.matrix = scale, matrix  # the matrix itself, where it is known
        self.steps = nothing if steps is None else steps  # one per row, the oldest first
        self.changes = nothing if changes is None else changes
        self.corrections = np.empty(0) if corrections is None else corrections  # t

    @classmethod
    def of(cls, curvature: Curvature, size: int) -> InverseHessian:
        """H of all pairs that are kept."""
        if isinstance(curvature, WholeMatrix):
            return cls(size, matrix=curvature.dense())
        assert isinstance(curvature, Pairs)
        if not len(curvature):
            return cls(size)
        kept = curvature.stored()
        steps, changes = (
            np.array([to_numpy(each).reshape(-1) for each in vectors], np.float64)
            for vectors in (kept.steps, kept.changes)
        )
        products = np.vecdot(steps, changes)
        scale = curvature.scale or float(products[-1] / np.vdot(changes[-1], changes[-1]))
        return cls(size, scale, steps, changes, products / np.array(kept.diagonal))

    def _matvec(self, x: Any) -> np.ndarray:
        q = np.array(x, np.float64).reshape(-1)
        if self.matrix is not None:
            product: np.ndarray = self.matrix @ q
            return product
        pairs = list(zip(self.steps, self.changes, self.corrections, strict=True))
        weights = []
        for s, y, _ in reversed(pairs):
            weights.append(float(s @ q) / float(s @ y))
            q -= weights[-1] * y
        q *= self.scale
        for (s, y, t), weight in zip(pairs, reversed(weights), strict=True):
            q += (weight / t - float(y @ q) / float(s @ y)) * s
        return q

    def todense(self) -> np.ndarray:
        """H as an array."""
        return super().todense() if self.matrix is None else self.matrix.copy()


class OnFace(Symmetric):
    """What H says of the free variables: the inverse of the Hessian restricted to them, which is
    ``H_FF - H_FA (H_AA)^-1 H_AF`` with the held variables A; 0 for those."""

    def __init__(self, whole: InverseHessian, held: np.ndarray):
        super().__init__(np.float64, whole.shape)
        self.whole, self.held = whole, held

    def _matvec(self, x: Any) -> np.ndarray:
        held = self.held
        v = np.where(held, 0.0, np.array(x, np.float64).reshape(-1))
        w = self.whole._matvec(v)
        if held.any():
            n = int(held.sum())

            def block(z: np.ndarray) -> Any:
                return self.whole._matvec(self._spread(z))[held]

            # As many steps as H has different eigenvalues, at the most: few with few pairs.
            z, _ = cg(LinearOperator((n, n), block, dtype=np.float64), w[held], rtol=1e-13)
            w = w - self.whole._matvec(self._spread(z))
        w[held] = 0.0
        return w

    def _spread(self, z: np.ndarray) -> np.ndarray:
        whole = np.zeros(self.held.size)
        whole[self.held] = z
        return whole

    def todense(self) -> np.ndarray:
        """All of it as an array."""
        held, free = self.held, ~self.held
        H, part = self.whole.todense(), np.zeros(self.shape)
        across = H[np.ix_(held, free)]
        block = H[np.ix_(free, free)] - across.T @ np.linalg.solve(H[np.ix_(held, held)], across)
        part[np.ix_(free, free)] = (block + block.T) / 2
        return part
