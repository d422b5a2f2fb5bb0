"""Alternating steps: each minimises exactly over one part of the variables, in turn."""

import numpy as np
from scipy.special import logsumexp

from momentous.testbed.problem import MapProblem, Matrix, Rng, Vector


def sinkhorn(rows: int, columns: int, entropy: float = 0.02, rng: Rng = 0) -> MapProblem:
    """Entropic transport between two clouds in the plane: the dual over one potential.

    Sinkhorn's iteration in logarithms (M. Cuturi, NIPS 2013): the best potential of the rows for
    that of the columns, x, then the best one of the columns.  The objective is minus the dual
    where the rows' potential is the best, in units of the mean cost; a step has mean 0.
    """
    rng = np.random.default_rng(rng)
    one, other = rng.random((rows, 2)), rng.random((columns, 2)) ** 2
    cost = np.sum((one[:, None] - other) ** 2, axis=2)
    cost /= cost.mean()
    log_a, log_b = -np.log(rows), -np.log(columns)

    def both(x: Vector) -> tuple[Vector, float]:
        f = entropy * (log_a - logsumexp((x - cost) / entropy, axis=1))
        g = entropy * (log_b - logsumexp((f[:, None] - cost) / entropy, axis=0))
        return g - g.mean(), -float(f.mean() + x.mean())

    return MapProblem(
        name=f"sinkhorn-{rows}x{columns}-{entropy:g}", start=np.zeros(columns), step_and_value=both
    )


def tensor_factors(size: int, rank: int, collinearity: float = 0.9, rng: Rng = 0) -> MapProblem:
    """A tensor of three equal sides as a sum of products of vectors, by alternating least squares.

    The test of G. Tomasi, R. Bro, Comput. Stat. Data Anal. 50 (2006), on which H. De Sterck tries
    his accelerations: the columns of a factor have one cosine with each other, and 1 % of noise is
    added.  A ridge of 1e-6 keeps factors from growing against each other without end.
    """
    rng = np.random.default_rng(rng)
    n, r, ridge = size, rank, 1e-6
    root = np.linalg.cholesky(np.full((r, r), collinearity) + (1 - collinearity) * np.eye(r))
    A, B, C = (np.linalg.qr(rng.standard_normal((n, r)))[0] @ root.T for _ in range(3))
    X = np.einsum("ir,jr,kr->ijk", A, B, C)
    noise = rng.standard_normal(X.shape)
    X += 0.01 * np.linalg.norm(X) / np.linalg.norm(noise) * noise
    X /= np.linalg.norm(X)
    flat = [np.moveaxis(X, mode, 0).reshape(n, n * n) for mode in range(3)]

    def best(mode: int, one: Matrix, other: Matrix) -> Matrix:
        """The best factor of this mode; one and other in the order of the remaining modes."""
        products = np.einsum("jr,kr->jkr", one, other).reshape(n * n, r)
        gram = (one.T @ one) * (other.T @ other) + ridge * np.eye(r)
        return np.asarray(np.linalg.solve(gram, (flat[mode] @ products).T).T)

    def step(x: Vector) -> Vector:
        A, B, C = x.reshape(3, n, r)
        A = best(0, B, C)
        B = best(1, A, C)
        return np.concatenate([A.ravel(), B.ravel(), best(2, A, B).ravel()])

    def value(x: Vector) -> float:
        A, B, C = x.reshape(3, n, r)
        rest = np.einsum("ir,jr,kr->ijk", A, B, C, optimize=True) - X
        return 0.5 * float(np.sum(rest * rest)) + 0.5 * ridge * float(x @ x)

    return MapProblem(
        name=f"tensor-{n}-{r}-{collinearity:g}", start=rng.random(3 * n * r), step=step, value=value
    )
