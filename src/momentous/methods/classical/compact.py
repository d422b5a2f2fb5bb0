"""The algebra of pairs: which pairs are of use, and H of all that are kept, in compact form.

A pair is a step s and the change y of the gradient along it.  With the pairs as columns of S and Y,
R the upper triangle of S'Y, D its diagonal, corrected by values, and U = [S, Y],

    H = gamma I + U K U',    K = [[R^-T (D + gamma Y'Y) R^-1, -gamma R^-T], [-gamma R^-1, 0]]

(theorem 2.2 of [1]_).  So the direction -H g is a combination of the gradient and the pairs whose
weights follow from inner products alone: an iteration computes 2 m products with the new gradient
and adds up 2 m + 1 vectors in one pass, half of the memory traffic of the recursion on vectors, and
two reductions over ranks where that has 2 m in a row.  A block of H is inverted by way of a matrix
of the size of K (Woodbury), whatever the size of the block.

.. [1] R. H. Byrd, J. Nocedal, R. B. Schnabel, "Representations of quasi-Newton matrices and their
   use in limited memory methods", Math. Programming 63 (1994).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.lapack import dgesv, dposv

from momentous.core.machine import NUMBERS, Arithmetic, BoxMachine
from momentous.core.space import Array
from momentous.methods.classical.constants import LBFGS_CONSTANTS

Product = Callable[[Array], Array]


def correction(
    fall: float, slope: float, sy: float, noise: float, m: Arithmetic = NUMBERS
) -> float:
    """t, by which <s, y> is better multiplied, by what the values say; 1 if that is noise.

    <s, y> is a mean of the curvature along a step, and t <s, y> that at its end, up to O(|s|^4): of
    the cubic with the values and slopes at both ends.  BFGS then updates H to V'HV + s s'/(t <s,
    y>), with V = I - y s'/<s, y> [1]_.  Like BFGS, and unlike a correction of y along s [2]_, this
    is the same method in all linear coordinates.  ``fall`` is f(x) - f(x + s), ``slope``
    <grad f(x), s>; <s, y> > 0.

    .. [1] M. C. Biggs, "Minimization algorithms making use of non-quadratic properties of the
       objective function", J. Inst. Maths Applics 8 (1971); Y. Yuan, "A modified BFGS algorithm for
       unconstrained optimization", IMA J. Numer. Anal. 11 (1991).
    .. [2] J. Z. Zhang, N. Y. Deng, L. H. Chen, "New quasi-Newton equation and related methods for
       unconstrained optimization", J. Optim. Theory Appl. 102 (1999).
    """
    c = LBFGS_CONSTANTS
    change = 6.0 * fall + 3.0 * (sy + 2.0 * slope)
    t = m.minimum(m.maximum(1.0 + change / sy, c.least_correction), c.most_correction)
    return m.where(abs(change) > c.correction_signal * noise, t, 1.0)


def moved_square(m: BoxMachine, s: Array, y: Array) -> float:
    """<y, y> where the step has moved: in a box the change of the gradient by a variable that is
    held is no curvature along anything that moved."""
    return m.dot(lambda xp, s, y: (y, xp.where(s != 0.0, y, 0.0)), s, y)


def is_of_use(ss: float, sy: float, yy: float, m: Arithmetic = NUMBERS) -> bool:
    """Does a pair with these products keep H positive definite, beyond rounding?"""
    root = m.sqrt(ss) * m.sqrt(m.maximum(yy, 0.0))
    return (yy > 0) & (sy > LBFGS_CONSTANTS.smallest_cosine * root)


def weights(
    solve: Product, solve_transposed: Product, residual: Product, diagonal: Array, to_steps: Array
) -> tuple[Array, Array]:
    """p and q of -H g = gamma Y p - S q - gamma g, given products with R^-1 and R^-T, gamma (Y'Y p
    - Y'g), D and S'g."""
    p = solve(to_steps)
    return p, solve_transposed(residual(p) + diagonal * p)


def middle(
    xp: Any, matmul: Callable[..., Array], inverse: Array, gram: Array, diagonal: Array, gamma: Any
) -> Array:
    """K, given R^-1, Y'Y, D and gamma."""
    side, across = -gamma * inverse, xp.matrix_transpose(inverse)
    corner = matmul(across, gamma * matmul(gram, inverse) + diagonal[..., :, None] * inverse)
    upper = xp.concat([corner, xp.matrix_transpose(side)], axis=-1)
    return xp.concat([upper, xp.concat([side, xp.zeros_like(side)], axis=-1)], axis=-2)


def solve_masked(
    xp: Any, matmul: Callable[..., Array], rows: Array, mask: Array, r: Array, gamma: Any,
    weigh: Callable[[Array, Array], Array],
) -> tuple[Array, Array]:  # fmt: skip
    """z with (H z)_A = r_A and z = 0 outside of A, and H z; ``rows`` is U', ``mask`` is 1 in A.

    z = (H_AA)^-1 r = (r - U_A w)/gamma, with w = K U_A' z: then H z is gamma z + U w.  ``weigh``
    gives w by U_A'U_A and U_A'r: see `held_weights`."""
    chosen = rows * mask[..., None, :]
    products = matmul(chosen, r[..., None])[..., 0]
    w = weigh(matmul(chosen, xp.matrix_transpose(chosen)), products)[..., None, :]
    z = (r - matmul(w, chosen)[..., 0, :]) / gamma
    return z, gamma * z + matmul(w, rows)[..., 0, :]


def held_weights(gamma: float, K: np.ndarray, gram: np.ndarray, products: np.ndarray) -> np.ndarray:
    """w, with (gamma I + K M) w = K U_A'r and M = U_A'U_A; not numbers where that is singular."""
    matrix = K @ gram
    _diagonal(matrix)[:] += gamma
    _, _, w, failed = dgesv(matrix, K @ products)
    return np.full_like(w, math.nan) if failed else w


class CompactInverse:
    """H = gamma I + U K U' on flat NumPy vectors, or on the columns of a matrix."""

    def __init__(self, gamma: float, rows: np.ndarray, K: np.ndarray):
        self.gamma, self.rows, self.K = gamma, rows, K  # the rows are U'

    def times(self, x: np.ndarray) -> np.ndarray:
        product: np.ndarray = self.gamma * x + self.rows.T @ (self.K @ (self.rows @ x))
        return product

    def solve(self, held: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``, and H z: by the entries in A
        alone, where they can be picked out at little cost."""
        gamma, K, chosen = self.gamma, self.K, np.flatnonzero(held)
        rows, z = np.empty((len(self.rows), len(chosen))), np.zeros(r.shape)
        self.rows.take(chosen, axis=1, out=rows, mode="clip")  # any other mode makes a copy
        given = r[chosen]
        if len(chosen) <= len(K):
            block = rows.T @ (K @ rows)
            _diagonal(block)[:] += gamma
            found = solve_positive(block, given)
            w = K @ (rows @ found)
        else:
            w = held_weights(gamma, K, rows @ rows.T, rows @ given)
            found = (given - rows.T @ w) / gamma
        z[chosen] = found
        made = self.rows.T @ w
        made[chosen] += gamma * found
        return z, made


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Not numbers where the matrix is not positive definite."""
    _, found, failed = dposv(matrix, right)
    return np.full_like(found, math.nan) if failed else found


def _diagonal(matrix: np.ndarray) -> np.ndarray:
    """A view of it."""
    return matrix.reshape(-1)[:: len(matrix) + 1]
