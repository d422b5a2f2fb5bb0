"""EM steps: mixtures, k-means, latent classes, factor analysis, the multivariate t distribution.

The objective is minus the log likelihood per observation.  It falls out of the first half of the
step, so that a map brings the value at the point that it was given.  All these steps are those of
Dempster, Laird, Rubin, J. R. Stat. Soc. B 39 (1977), for the model at hand.

Weights are written as logarithms up to a common constant, variances as logarithms, covariances as
Cholesky factors with the logarithm of the diagonal.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from momentous.testbed.problem import MapProblem, Matrix, Rng, Vector

# How often 0, 1, ..., 9 death notices of women aged 80 and over stood in The Times on one day of
# the years 1910 to 1912: V. Hasselblad, J. Amer. Stat. Assoc. 64 (1969), table 1.
DEATH_NOTICES = (162, 267, 271, 185, 111, 61, 27, 8, 3, 1)


Both = Callable[[Vector], tuple[Vector, float]]


def poisson_mixture() -> MapProblem:
    """Two Poisson distributions mixed, for the death notices of Hasselblad (1969).

    The slow EM iteration that SQUAREM and its successors were tried on first.
    x = (logit of the weight of the first, log mean 1, log mean 2).
    """
    counts = np.array(DEATH_NOTICES, dtype=np.float64)
    seen = np.arange(counts.size, dtype=np.float64)
    share = counts / counts.sum()

    def both(x: Vector) -> tuple[Vector, float]:
        logit, means = x[0], np.exp(x[1:])
        log_weights = -np.logaddexp(0.0, [-logit, logit])
        logs = log_weights + np.outer(seen, x[1:]) - means - gammaln(seen + 1)[:, None]
        total = logsumexp(logs, axis=1)
        part = np.exp(logs - total[:, None]) * share[:, None]
        sizes = part.sum(axis=0)
        with np.errstate(divide="ignore"):
            image = np.log([sizes[0] / sizes[1], *(part.T @ seen / sizes)])
        return image, -float(share @ total)

    start = np.array([math.log(0.3 / 0.7), math.log(1.0), math.log(2.5)])
    return MapProblem(name="poisson-mixture-3", start=start, step_and_value=both)


def gaussian_mixture(
    observations: int, dimension: int, parts: int, apart: float = 2.0, rng: Rng = 0
) -> MapProblem:
    """A mixture of normal distributions with full covariances; the nearer, the slower.

    The means of the data are ``apart`` standard deviations from the origin in random directions.
    x = (log weights, means, Cholesky factors with the logarithm of the diagonal), in this order.
    """
    rng = np.random.default_rng(rng)
    d, k = dimension, parts
    means = apart * _directions(rng, k, d)
    label = rng.integers(k, size=observations)
    points = means[label] + rng.standard_normal((observations, d))

    def join(sizes: Vector, means: Matrix, factors: Matrix) -> Vector:
        return np.concatenate([np.log(sizes), means.ravel(), _pack(factors).ravel()])

    def both(x: Vector) -> tuple[Vector, float]:
        weights, centres = x[:k], x[k : k + k * d].reshape(k, d)
        factors = _unpack(x[k + k * d :].reshape(k, -1), d)
        logs = np.empty((observations, k))
        for j in range(k):
            away = solve_triangular(factors[j], (points - centres[j]).T, lower=True)
            logs[:, j] = -0.5 * np.sum(away * away, axis=0) - np.log(np.diag(factors[j])).sum()
        logs += weights - logsumexp(weights)
        total = logsumexp(logs, axis=1)
        part = np.exp(logs - total[:, None])
        sizes = part.sum(axis=0)
        new_centres = part.T @ points / sizes[:, None]
        new_factors = np.empty_like(factors)
        for j in range(k):
            away = points - new_centres[j]
            new_factors[j] = np.linalg.cholesky((part[:, j, None] * away).T @ away / sizes[j])
        image = join(sizes / observations, new_centres, new_factors)
        return image, -float(total.mean()) + 0.5 * d * math.log(2 * math.pi)

    centres = points[rng.choice(observations, k, replace=False)]
    spread = np.linalg.cholesky(np.cov(points.T, bias=True).reshape(d, d))
    start = join(np.full(k, 1 / k), centres, np.broadcast_to(spread, (k, d, d)).copy())
    return MapProblem(
        name=f"gaussian-mixture-{observations}x{d}-{k}", start=start, step_and_value=_guard(both)
    )


def soft_means(
    observations: int, dimension: int, parts: int, spread: float = 1.0, rng: Rng = 0
) -> MapProblem:
    """Soft k-means: equal weights and one known variance, only the centres are looked for."""
    points, start, distances = _clouds(observations, dimension, parts, 2.0, rng)

    def both(x: Vector) -> tuple[Vector, float]:
        logs = distances(x.reshape(start.shape)) * (-0.5 / spread**2)
        total = logsumexp(logs, axis=1)
        part = np.exp(logs - total[:, None])
        return (part.T @ points / part.sum(axis=0)[:, None]).ravel(), -float(total.mean())

    name = f"soft-means-{observations}x{dimension}-{parts}"
    return MapProblem(name=name, start=start.ravel(), step_and_value=_guard(both))


def lloyd(observations: int, dimension: int, parts: int, rng: Rng = 0) -> MapProblem:
    """k-means: S. Lloyd's step (1957).  The objective has kinks; the iteration ends by itself."""
    points, start, distances = _clouds(observations, dimension, parts, 1.5, rng)

    def both(x: Vector) -> tuple[Vector, float]:
        y = x.reshape(start.shape)
        away = distances(y)
        label = np.argmin(away, axis=1)
        value = float(away[np.arange(observations), label].mean())
        sizes = np.bincount(label, minlength=parts)
        sums = np.zeros_like(y)
        np.add.at(sums, label, points)
        # A centre without points stays where it is.
        return np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], y).ravel(), value

    name = f"lloyd-{observations}x{dimension}-{parts}"
    return MapProblem(name=name, start=start.ravel(), step_and_value=both)


def _clouds(
    observations: int, dimension: int, parts: int, apart: float, rng: Rng
) -> tuple[Matrix, Matrix, Callable[[Matrix], Matrix]]:
    """Points around centres, some of them to start from, and squared distances to such centres."""
    rng = np.random.default_rng(rng)
    centres = apart * rng.standard_normal((parts, dimension))
    label = rng.integers(parts, size=observations)
    points = centres[label] + rng.standard_normal((observations, dimension))
    squares = np.sum(points * points, axis=1)

    def distances(y: Matrix) -> Matrix:
        return np.asarray(squares[:, None] - 2.0 * (points @ y.T) + np.sum(y * y, axis=1))

    return points, points[rng.choice(observations, parts, replace=False)], distances


def latent_classes(observations: int, questions: int, classes: int, rng: Rng = 0) -> MapProblem:
    """Latent class analysis: questions with two answers, independent within each class.

    x = (log weights, logits of the probabilities, one row per class).
    """
    rng = np.random.default_rng(rng)
    k, q = classes, questions
    chances = 0.2 + 0.6 * rng.random((k, q))
    label = rng.integers(k, size=observations)
    answers = (rng.random((observations, q)) < chances[label]).astype(np.float64)

    def both(x: Vector) -> tuple[Vector, float]:
        weights, logits = x[:k], x[k:].reshape(k, q)
        logs = answers @ logits.T - np.logaddexp(0.0, logits).sum(axis=1)
        logs += weights - logsumexp(weights)
        total = logsumexp(logs, axis=1)
        part = np.exp(logs - total[:, None])
        sizes = part.sum(axis=0)
        # Half an answer of each kind per class keeps probabilities away from 0 and 1.
        yes = (part.T @ answers + 0.5) / (sizes[:, None] + 1.0)
        prior = 0.5 * np.sum(logits - 2.0 * np.logaddexp(0.0, logits))
        image = np.concatenate(
            [np.log(sizes / observations), (np.log(yes) - np.log1p(-yes)).ravel()]
        )
        return image, -float(total.sum() + prior) / observations

    start = np.concatenate([np.zeros(k), rng.standard_normal(k * q)])
    return MapProblem(
        name=f"latent-classes-{observations}x{q}-{k}", start=start, step_and_value=_guard(both)
    )


def factor_analysis(variables: int, factors: int, rng: Rng = 0) -> MapProblem:
    """Maximum likelihood factor analysis: S = L L' + diag(psi), for a covariance of 10 p samples.

    The EM step of D. Rubin, D. Thayer, Psychometrika 47 (1982); x = (L, log psi).
    """
    rng = np.random.default_rng(rng)
    p, q = variables, factors
    loadings = rng.standard_normal((p, q))
    unique = np.exp(rng.uniform(-1.0, 1.5, p))
    samples = 10 * p
    data = rng.standard_normal((samples, q)) @ loadings.T
    data += np.sqrt(unique) * rng.standard_normal((samples, p))
    S = data.T @ data / samples

    def both(x: Vector) -> tuple[Vector, float]:
        L, log_psi = x[: p * q].reshape(p, q), x[p * q :]
        scaled = L / np.exp(log_psi)[:, None]
        # Woodbury: Sigma^-1 L = psi^-1 L (I + L' psi^-1 L)^-1.
        inner = np.eye(q) + L.T @ scaled
        inverse = np.linalg.inv(inner)
        beta = scaled @ inverse
        moments = S @ beta
        second = inverse + beta.T @ moments
        new = np.linalg.solve(second, moments.T).T
        psi = np.diag(S) - np.sum(new * moments, axis=1)
        fit = np.sum(np.diag(S) / np.exp(log_psi)) - np.sum(beta * (S @ scaled))
        value = 0.5 * (np.sum(log_psi) + np.linalg.slogdet(inner)[1] + fit)
        return np.concatenate([new.ravel(), np.log(psi)]), float(value)

    start = np.concatenate([rng.standard_normal(p * q), np.log(np.diag(S))])
    return MapProblem(name=f"factor-analysis-{p}-{q}", start=start, step_and_value=_guard(both))


def student(observations: int, dimension: int, freedom: float = 1.0, rng: Rng = 0) -> MapProblem:
    """Location and scatter of a multivariate t distribution with known degrees of freedom.

    The EM step of K. Lange, R. Little, J. Taylor, J. Amer. Stat. Assoc. 84 (1989); x = (location,
    Cholesky factor of the scatter with the logarithm of its diagonal).
    """
    rng = np.random.default_rng(rng)
    d = dimension
    mixing = rng.standard_normal((d, d))
    tails = np.sqrt(rng.chisquare(freedom, observations) / freedom)
    points = (rng.standard_normal((observations, d)) / tails[:, None]) @ mixing.T

    def both(x: Vector) -> tuple[Vector, float]:
        factor = _unpack(x[d:], d)
        away = solve_triangular(factor, (points - x[:d]).T, lower=True)
        squares = np.sum(away * away, axis=0)
        value = np.mean(0.5 * (freedom + d) * np.log1p(squares / freedom))
        value += np.log(np.diag(factor)).sum()
        weights = (freedom + d) / (freedom + squares)
        centre = weights @ points / weights.sum()
        rest = points - centre
        factor = np.linalg.cholesky((weights[:, None] * rest).T @ rest / observations)
        return np.concatenate([centre, _pack(factor)]), float(value)

    # Medians and their spread: moments do not exist.
    spread = _pack(np.linalg.cholesky(np.diag(np.median(points**2, axis=0))))
    return MapProblem(
        name=f"student-{observations}x{d}-{freedom:g}",
        start=np.concatenate([np.median(points, axis=0), spread]),
        step_and_value=_guard(both),
    )


def _pack(factors: Matrix) -> Matrix:
    """Lower triangles row by row, with the logarithm of their diagonals."""
    rows, columns = np.tril_indices(factors.shape[-1])
    packed = factors[..., rows, columns]
    packed[..., rows == columns] = np.log(packed[..., rows == columns])
    return packed


def _unpack(packed: Matrix, size: int) -> Matrix:
    """The triangles that `_pack` took."""
    rows, columns = np.tril_indices(size)
    factors = np.zeros((*packed.shape[:-1], size, size))
    factors[..., rows, columns] = packed
    factors[..., range(size), range(size)] = np.exp(packed[..., rows == columns])
    return factors


def _directions(rng: np.random.Generator, count: int, dimension: int) -> Matrix:
    found = rng.standard_normal((count, dimension))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def _guard(both: Both) -> Both:
    """Far away, where a matrix is singular, the objective counts as infinite."""

    def guarded(x: Vector) -> tuple[Vector, float]:
        with np.errstate(all="ignore"):
            try:
                image, value = both(x)
            except np.linalg.LinAlgError:
                return np.full_like(x, math.nan), math.inf
        return image, value if math.isfinite(value) else math.inf

    return guarded
