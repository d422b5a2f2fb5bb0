"""Low-rank matrix problems: nonconvex, benign, and not globally Lipschitz.

Factors are stored row by row in one flat vector, U first and then V.
"""

import math
from collections.abc import Callable

import numpy as np
from array_api_compat import array_namespace

from momentous.testbed.losses import Loss, find_loss
from momentous.testbed.problem import Array, Constants, Problem, Rng, Vector


def factorisation(n: int = 8, rank: int = 2, rng: Rng = 0) -> Problem:
    """Symmetric factorisation (PCA), ``f(U) = (1/2)|U U' - M|_F^2`` with M of the given rank.

    M has the eigenvalues 1, .., `rank`. All local minima are global; U = 0 is a strict saddle with
    least eigenvalue ``-2 rank``. On ``|U|^2 <= G`` with G at least the norm of M (spectral norms)
    ``L = 6 G`` and ``rho = 12 sqrt(G)`` are upper bounds, from the quartic in t that
    ``f(U + t D)`` is; they are given for the ball of twice the minimiser's norm.
    """
    rng = np.random.default_rng(rng)
    basis = np.linalg.qr(rng.standard_normal((n, rank)))[0]
    factor = basis * np.sqrt(np.arange(1.0, rank + 1.0))
    data = Constants(factor @ factor.T)
    radius = 2.0 * float(np.linalg.norm(factor))

    def excess(x: Array) -> tuple[Array, Array]:
        (M,) = data.like(x)
        U = array_namespace(x).reshape(x, (n, rank))
        return U, U @ U.T - M

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        U, E = excess(x)
        return 0.5 * array_namespace(x).sum(E**2), _flat(2.0 * E @ U)

    def hessian_product(x: Array, v: Array) -> Array:
        U, E = excess(x)
        D = array_namespace(x).reshape(v, (n, rank))
        turn = U @ D.T
        return _flat(2.0 * (turn + turn.T) @ U + 2.0 * E @ D)

    return Problem(
        name=f"factorisation-{n}-{rank}",
        start=0.1 * rng.standard_normal(n * rank),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=6.0 * radius**2,
        hessian_lipschitz=12.0 * radius,
        constants_radius=radius,
        minimum=0.0,
        minimiser=factor.ravel(),
    )


def matrix_sensing(
    shape: tuple[int, int] = (6, 5),
    rank: int = 2,
    samples: int = 60,
    balance: float = 0.5,
    rng: Rng = 0,
) -> Problem:
    """Recover a low-rank matrix from inner products with Gaussian matrices A_i.

    ``f(U, V) = (1/2m) sum_i (<A_i, U V'> - b_i)^2 + (w/2)|U'U - V'V|_F^2`` with exact data, so
    that the minimum 0 is attained. No global constants.

    ``shape`` and ``rank`` are those of the unknown matrix, ``samples`` is m and ``balance`` is w.
    """
    rng = np.random.default_rng(rng)
    U, V = _planted(rng, shape, rank)
    sensors = rng.standard_normal((samples, math.prod(shape)))
    data = Constants(sensors, sensors @ (U @ V.T).ravel())

    def fit(product: Array) -> tuple[Array, Array]:
        xp = array_namespace(product)
        A, b = data.like(product)
        residual = A @ xp.reshape(product, (-1,)) - b
        slope = xp.reshape(residual @ A, shape)
        return 0.5 * xp.sum(residual**2) / samples, slope / samples

    return Problem(
        name=f"matrix-sensing-{shape[0]}x{shape[1]}-{rank}",
        start=0.5 * rng.standard_normal(sum(shape) * rank),
        value_and_gradient=_balanced(shape, rank, balance, fit),
        minimum=0.0,
        minimiser=_join(U, V),
    )


def matrix_completion(
    shape: tuple[int, int] = (12, 10), rank: int = 2, observed: float = 0.6, rng: Rng = 0
) -> Problem:
    """Recover a low-rank matrix from some of its N entries.

    ``f(U, V) = (1/2N) sum_{(i,j)} (U V' - X)_ij^2 + (1/2N)|U'U - V'V|_F^2`` over the observed
    entries, which are exact, so that the minimum 0 is attained. The start is the truncated SVD of
    the matrix with zeros in place of the missing entries, split evenly. No global constants. Dense,
    so it is for small matrices only. ``observed`` is the fraction of observed entries, in (0, 1].
    """
    rng = np.random.default_rng(rng)
    U, V = _planted(rng, shape, rank)
    count = max(1, round(observed * math.prod(shape)))
    mask = np.zeros(shape)
    mask.flat[rng.choice(mask.size, count, replace=False)] = 1.0
    known = mask * (U @ V.T)
    data = Constants(mask, known)

    def fit(product: Array) -> tuple[Array, Array]:
        mask, known = data.like(product)
        residual = mask * product - known
        return 0.5 * array_namespace(product).sum(residual**2) / count, residual / count

    return Problem(
        name=f"matrix-completion-{shape[0]}x{shape[1]}-{rank}",
        start=_spectral_start(known, rank),
        value_and_gradient=_balanced(shape, rank, 1.0 / count, fit),
        minimum=0.0,
        minimiser=_join(U, V),
    )


def robust_pca(
    shape: tuple[int, int] = (10, 8),
    rank: int = 2,
    loss: Loss | str = "welsch",
    width: float = 1.0,
    outliers: float = 0.1,
    rng: Rng = 0,
) -> Problem:
    """Recover a low-rank matrix of which a few entries are grossly wrong.

    ``f(U, V) = (1/N) sum_{ij} phi((U V' - X)_ij / width) + (1/2N)|U'U - V'V|_F^2``. The minimum is
    the lower bound ``inf phi``; no global constants. The start is the truncated SVD of X.

    X has N entries, of which the fraction ``outliers`` is wrong; residuals beyond ``width`` count
    as gross.  phi is a `Loss` or its name in `LOSSES`.
    """
    phi, width = find_loss(loss), float(width)
    rng = np.random.default_rng(rng)
    U, V = _planted(rng, shape, rank)
    wrong = rng.random(shape) < outliers
    given = U @ V.T + 0.05 * rng.standard_normal(shape) + 10.0 * wrong * rng.standard_normal(shape)
    data = Constants(given)
    count = given.size

    def fit(product: Array) -> tuple[Array, Array]:
        (given,) = data.like(product)
        t = (product - given) / width
        return array_namespace(product).mean(phi.value(t)), phi.slope(t) / (width * count)

    return Problem(
        name=f"robust-pca-{phi.name}-{shape[0]}x{shape[1]}-{rank}",
        start=_spectral_start(given, rank),
        value_and_gradient=_balanced(shape, rank, 1.0 / count, fit),
        minimum=phi.infimum,
    )


def phase_retrieval(dimension: int = 8, samples: int = 60, rng: Rng = 0) -> Problem:
    """Recover a vector z, up to its sign, from squared inner products with Gaussian vectors.

    ``f(x) = (1/4m) sum_i (<a_i, x>^2 - <a_i, z>^2)^2`` with m ``samples``; the minimum 0 is
    attained at z and -z. No global constants.
    """
    rng = np.random.default_rng(rng)
    A = rng.standard_normal((samples, dimension))
    z = rng.standard_normal(dimension)
    data = Constants(A, (A @ z) ** 2)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        A, y = data.like(x)
        inner = A @ x
        excess = inner**2 - y
        return 0.25 * array_namespace(x).mean(excess**2), A.T @ (excess * inner) / samples

    def hessian_product(x: Array, v: Array) -> Array:
        A, y = data.like(x)
        return A.T @ ((3.0 * (A @ x) ** 2 - y) * (A @ v)) / samples

    return Problem(
        name=f"phase-retrieval-{dimension}",
        start=rng.standard_normal(dimension),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        minimum=0.0,
        minimiser=z,
    )


def _balanced(
    shape: tuple[int, int], rank: int, balance: float, fit: Callable[[Array], tuple[Array, Array]]
) -> Callable[[Array], tuple[Array, Array]]:
    """A fit of the product U V', given with its gradient in the product, plus balancing."""
    m, n = shape
    w = float(balance)

    def split(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        return xp.reshape(x[: m * rank], (m, rank)), xp.reshape(x[m * rank :], (n, rank))

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        U, V = split(x)
        imbalance = U.T @ U - V.T @ V
        error, slope = fit(U @ V.T)
        to_U = slope @ V + 2.0 * w * U @ imbalance
        to_V = slope.T @ U - 2.0 * w * V @ imbalance
        return error + 0.5 * w * xp.sum(imbalance**2), xp.concat([_flat(to_U), _flat(to_V)])

    return value_and_gradient


def _flat(matrix: Array) -> Array:
    return array_namespace(matrix).reshape(matrix, (-1,))


def _join(U: Vector, V: Vector) -> Vector:
    return np.concatenate([U.ravel(), V.ravel()])


def _planted(rng: np.random.Generator, shape: tuple[int, int], rank: int) -> tuple[Vector, Vector]:
    """Balanced factors (U'U = V'V) of a random matrix with singular values 2, 4, ..."""
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in shape)
    root = np.sqrt(2.0 * np.arange(1.0, rank + 1.0))
    return left * root, right * root


def _spectral_start(matrix: Vector, rank: int) -> Vector:
    """Truncated SVD split evenly; signs fixed, so that it does not depend on the SVD routine."""
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    left, right, root = left[:, :rank], right[:rank].T, np.sqrt(singular[:rank])
    sign = np.sign(left[np.argmax(np.abs(left), axis=0), np.arange(rank)])
    return _join(sign * left * root, sign * right * root)
