"""H of the pairs that L-BFGS keeps, as a matrix in compact form: H = gamma I + U K U', U = [S, Y].

K = [[R^-T (D + gamma Y'Y) R^-1, -gamma R^-T], [-gamma R^-1, 0]], with the upper triangle R of S'Y
and D its diagonal, corrected.  A block of H is then inverted by way of a matrix of the size of K
(Woodbury), whatever the size of the block.  See `Pairs` for what the numbers are.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dgesv, dposv, dtrtri

from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.space import Array, to_numpy


class Compact:
    """H where a line begins, for `box_model.model_step`."""

    def __init__(self, pairs: Any, m: Host):
        self._pairs, self._space = pairs, m.space

    def descent(self, m: Host, gradient: Array) -> Array:
        pairs = self._pairs
        if m.penalty is not None:  # else its products are known
            pairs = pairs.at(m, Sample(None, gradient=gradient))
        direction: Array = pairs.direction(self._space, gradient)
        return direction

    def first_scale(self, m: Host) -> float:
        return self._scale

    def solve(self, m: Host, held: Array, r: Array) -> tuple[Array, Array]:
        """With z = (H_AA)^-1 r = (r - U_A' w)/gamma, w = K U_A z: then H z is gamma z + U w."""
        if not len(self._pairs):
            return r, r
        space = self._space
        if space.library is np.ndarray and not space.is_part:
            return self._solve_by_rows(held, r)
        xp, rows = space.xp, self._rows
        mask = xp.astype(xp.reshape(held, (-1,)) != 0.0, rows.dtype)
        chosen, given = rows * mask, xp.astype(xp.reshape(r, (-1,)), rows.dtype)
        gram = self._totals(xp.matmul(chosen, xp.permute_dims(chosen, (1, 0))))
        weights = self._weights(gram, self._totals(xp.matmul(rows, given)))
        w = xp.asarray(weights, dtype=rows.dtype, device=space.device)
        z = (given - xp.matmul(w, chosen)) * (1.0 / self._scale)
        made = z * self._scale + xp.matmul(w, rows)
        return self._like(z, r), self._like(made, r)

    def _solve_by_rows(self, held: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By the entries that are held alone, where they can be picked out at little cost."""
        steps, changes = self._steps_and_changes
        chosen, k, scale, K = np.flatnonzero(held), len(steps), self._scale, self._middle
        rows, z = np.empty((2 * k, len(chosen))), np.zeros(held.size)
        for vectors, part in ((steps, rows[:k]), (changes, rows[k:])):
            vectors.take(chosen, axis=1, out=part, mode="clip")  # any other mode makes a copy
        given = r.reshape(-1)[chosen].astype(np.float64, copy=False)
        if len(chosen) <= len(K):
            block = rows.T @ (K @ rows)
            _diagonal(block)[:] += scale
            _, found, failed = dposv(block, given)
            if failed:
                found[:] = math.nan
            w = K @ (rows @ found)
        else:
            w = self._weights(rows @ rows.T, rows @ given)
            found = (given - w @ rows) / scale
        z[chosen] = found
        made = w[:k] @ steps
        made += w[k:] @ changes
        made[chosen] += scale * found
        return self._like(z, r), self._like(made, r)

    def _weights(self, gram: np.ndarray, products: np.ndarray) -> np.ndarray:
        """w, with (gamma I + K M) w = K U_A r and M = U_A'U_A."""
        matrix = self._middle @ gram
        _diagonal(matrix)[:] += self._scale
        _, _, w, failed = dgesv(matrix, self._middle @ products)
        return np.full(len(matrix), math.nan) if failed else w

    @cached_property
    def _scale(self) -> float:
        return float(self._pairs.first_scale())

    @cached_property
    def _middle(self) -> np.ndarray:
        """K."""
        pairs, scale, k = self._pairs, self._scale, len(self._pairs.steps_changes)
        inverse, _ = dtrtri(pairs.steps_changes)
        inverse = np.triu(inverse)
        part = dsymm(scale, pairs.changes_changes, inverse)
        part += pairs.diagonal[:, np.newaxis] * inverse
        K = np.zeros((2 * k, 2 * k))
        K[:k, :k] = inverse.T @ part
        inverse *= -scale
        K[k:, :k], K[:k, k:] = inverse, inverse.T
        return K

    @cached_property
    def _steps_and_changes(self) -> tuple[np.ndarray, np.ndarray]:
        """S and Y on the host, one vector per row."""
        steps, changes = (
            np.asarray(vectors).reshape(-1, self._space.size) for vectors in self._pairs.rows_of()
        )
        return steps, changes

    @cached_property
    def _rows(self) -> Array:
        """S and Y in the library of x, in the widest type that it has switched on, one vector per
        row."""
        xp = self._space.xp
        rows = [xp.reshape(a, (1, -1)) for vectors in self._pairs.rows_of() for a in vectors]
        return xp.astype(xp.concat(rows), xp.asarray(np.zeros(1)).dtype)

    def _totals(self, products: Array) -> np.ndarray:
        here = to_numpy(products).astype(np.float64)
        return np.asarray(self._space.totals(here.reshape(-1).tolist())).reshape(here.shape)

    def _like(self, entries: Array, r: Array) -> Array:
        return self._space.xp.reshape(self._space.xp.astype(entries, r.dtype, copy=False), r.shape)


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    """A view of it."""
    return matrix.reshape(-1)[:: len(matrix) + 1]
