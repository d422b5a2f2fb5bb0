"""Majorise-minimise steps: each minimises a simple function that lies above the objective.

Nonnegative numbers are the absolute values of x: then a vector with negative entries, where
momentum may lead, stands for a point as well.
"""

import math

import numpy as np
from scipy.special import xlogy

from momentous.io.types import JsonObject
from momentous.testbed.problem import MapProblem, Matrix, Rng, Vector

TINY = 1e-300  # added to what is divided by, where 0/0 may come up


# --- nonnegative factors and intensities ----------------------------------------------------------


def nonnegative_factors(
    rows: int, columns: int, rank: int, loss: str = "squared", rng: Rng = 0
) -> MapProblem:
    """Multiplicative updates for X ~ W H' with W, H >= 0, x = (W, H).

    D. Lee, H. Seung, "Algorithms for non-negative matrix factorization", NIPS (2000); ``loss`` is
    "squared", |X - W H'|^2 / (2 N), or "kl", the divergence of Kullback and Leibler per entry.
    """
    rng = np.random.default_rng(rng)
    m, n, r = rows, columns, rank
    X = rng.gamma(0.5, size=(m, r)) @ rng.gamma(0.5, size=(r, n))
    X = rng.poisson(20.0 * X) / 20.0 if loss == "kl" else X + 0.1 * rng.random((m, n))
    size = m * n

    def split(x: Vector) -> tuple[Matrix, Matrix]:
        x = np.abs(x)
        return x[: m * r].reshape(m, r), x[m * r :].reshape(n, r)

    def squared_step(x: Vector) -> Vector:
        W, H = split(x)
        H = H * (X.T @ W) / (H @ (W.T @ W) + TINY)
        W = W * (X @ H) / (W @ (H.T @ H) + TINY)
        return np.concatenate([W.ravel(), H.ravel()])

    def squared_value(x: Vector) -> float:
        W, H = split(x)
        return float(np.sum((X - W @ H.T) ** 2)) / (2 * size)

    def kl_step(x: Vector) -> Vector:
        W, H = split(x)
        H = H * ((X / (W @ H.T + TINY)).T @ W) / (W.sum(axis=0) + TINY)
        W = W * ((X / (W @ H.T + TINY)) @ H) / (H.sum(axis=0) + TINY)
        return np.concatenate([W.ravel(), H.ravel()])

    def kl_value(x: Vector) -> float:
        W, H = split(x)
        fit = W @ H.T
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(np.sum(fit - xlogy(X, fit) + xlogy(X, X) - X)) / size
        return value if math.isfinite(value) else math.inf

    steps: JsonObject = {"squared": (squared_step, squared_value), "kl": (kl_step, kl_value)}
    step, value = steps[loss]
    return MapProblem(
        name=f"nmf-{loss}-{m}x{n}-{r}", start=rng.random((m + n) * r) + 0.1, step=step, value=value
    )


def deconvolution(pixels: int, width: float = 2.0, two: bool = False, rng: Rng = 0) -> MapProblem:
    """A blurred image of counts made sharp: the EM step for Poisson counts.

    ``image * (A' (counts / (A image)))`` with a blur A whose columns have sum 1: W. Richardson,
    J. Opt. Soc. Am. 62 (1972); L. Shepp, Y. Vardi, IEEE Trans. Med. Imaging 1 (1982).  A is a
    periodic Gaussian blur of the given width, in one dimension or in two.
    """
    rng = np.random.default_rng(rng)
    shape = (pixels, pixels) if two else (pixels,)
    near = np.minimum(np.arange(pixels), pixels - np.arange(pixels))
    line = np.exp(-0.5 * (near / width) ** 2)
    line /= line.sum()
    kernel = np.outer(line, line) if two else line
    spectrum = np.fft.rfftn(kernel)

    def blur(image: Matrix) -> Matrix:  # symmetric: its own transpose
        blurred = np.fft.irfftn(np.fft.rfftn(image) * spectrum, s=shape, axes=range(len(shape)))
        return np.asarray(blurred, dtype=np.float64)

    truth = 10.0 + 200.0 * (rng.random(shape) < 0.05)
    counts = rng.poisson(np.maximum(blur(truth), 0.0)).astype(np.float64)
    size = int(counts.size)
    constant = float(np.sum(xlogy(counts, counts) - counts))

    def mean(x: Vector) -> Matrix:
        return np.asarray(np.maximum(blur(np.abs(x).reshape(shape)), 1e-12))

    def step(x: Vector) -> Vector:
        return np.asarray(np.abs(x) * np.maximum(blur(counts / mean(x)), 0.0).ravel())

    def value(x: Vector) -> float:
        fit = mean(x)
        return float(np.sum(fit - xlogy(counts, fit)) + constant) / size

    return MapProblem(
        name=f"deconvolution-{'x'.join(map(str, shape))}-{width:g}",
        start=np.full(size, counts.mean()),
        step=step,
        value=value,
    )


def mixing_weights(observations: int, grid: int, rng: Rng = 0) -> MapProblem:
    """The weights of known normal distributions: a mixing distribution on a grid, by EM.

    N. Laird, J. Amer. Stat. Assoc. 73 (1978).  x/|x|_1 has the weights; the step ends with sum 1.
    """
    rng = np.random.default_rng(rng)
    data = np.concatenate(
        [
            rng.normal(-2, 1, observations // 2),
            rng.normal(1.0, 1.3, observations - observations // 2),
        ]
    )
    nodes = np.linspace(data.min(), data.max(), grid)
    densities = np.exp(-0.5 * (data[:, None] - nodes) ** 2)

    def both(x: Vector) -> tuple[Vector, float]:
        weights = np.abs(x) / np.sum(np.abs(x))
        total = densities @ weights
        return weights * (densities.T @ (1.0 / total)) / observations, -float(np.log(total).mean())

    return MapProblem(
        name=f"mixing-weights-{observations}-{grid}",
        start=np.full(grid, 1 / grid),
        step_and_value=both,
    )


# --- rankings, distances, regressions -------------------------------------------------------------


def bradley_terry(players: int, rounds: int, rng: Rng = 0) -> MapProblem:
    """Strengths of players from games between neighbours on a ring: slow, for news travels slowly.

    The MM step of D. Hunter, "MM algorithms for generalized Bradley-Terry models", Ann. Stat. 32
    (2004), equation 3; x are the logarithms of the strengths, of mean 0 after a step.
    """
    rng = np.random.default_rng(rng)
    n = players
    truth = rng.standard_normal(n)
    away = np.array([1, 2, 5])
    first = np.repeat(np.arange(n), away.size)
    second = (first + np.tile(away, n)) % n
    chance = 1.0 / (1.0 + np.exp(truth[second] - truth[first]))
    # Half a game more for each side: nobody has lost all.
    won = rng.binomial(rounds, chance) + 0.5
    games = rounds + 1.0
    wins = np.bincount(first, won, n) + np.bincount(second, games - won, n)
    total = games * first.size

    def step(x: Vector) -> Vector:
        strength = np.exp(x)
        share = games / (strength[first] + strength[second])
        new = np.log(wins / (np.bincount(first, share, n) + np.bincount(second, share, n)))
        return np.asarray(new - new.mean())

    def value(x: Vector) -> float:
        one, other = x[first], x[second]
        return (
            float(np.sum(games * np.logaddexp(one, other) - won * one - (games - won) * other))
            / total
        )

    return MapProblem(name=f"bradley-terry-{n}", start=np.zeros(n), step=step, value=value)


def scaling(points: int, dimension: int = 2, noise: float = 0.1, rng: Rng = 0) -> MapProblem:
    """Multidimensional scaling: points whose distances are nearest to given ones.

    SMACOF, the Guttman transform of J. de Leeuw (1977), for ``sum (d_ij(x) - delta_ij)^2`` over
    pairs, per pair; the points of a step have mean 0.
    """
    rng = np.random.default_rng(rng)
    n, d = points, dimension
    truth = rng.standard_normal((n, d))
    given = _distances(truth) * np.exp(noise * rng.standard_normal((n, n)))
    given = 0.5 * (given + given.T)
    pairs = 0.5 * n * (n - 1)

    def both(x: Vector) -> tuple[Vector, float]:
        place = x.reshape(n, d)
        away = _distances(place)
        value = 0.5 * float(np.sum((away - given) ** 2)) / pairs
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.where(away > 0, given / away, 0.0)
        np.fill_diagonal(pull, 0.0)
        new = (pull.sum(axis=1)[:, None] * place - pull @ place) / n
        return new.ravel(), value

    return MapProblem(
        name=f"scaling-{n}x{d}", start=rng.standard_normal(n * d), step_and_value=both
    )


def _distances(place: Matrix) -> Matrix:
    squares = np.sum(place * place, axis=1)
    away = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * (place @ place.T), 0.0))
    np.fill_diagonal(away, 0.0)
    return np.asarray(away)


def reweighted(
    samples: int, variables: int, power: float = 1.0, smooth: float = 1e-2, rng: Rng = 0
) -> MapProblem:
    """Regression with the loss (t^2 + s^2)^(p/2)/p by iteratively reweighted least squares.

    Weights (t^2 + s^2)^(p/2 - 1) make a parabola above the loss for p <= 2: W. Heiser (1987).
    """
    rng = np.random.default_rng(rng)
    A = rng.standard_normal((samples, variables)) * np.logspace(0, -1, variables)
    b = A @ rng.standard_normal(variables) + rng.standard_t(1.5, samples)

    def both(x: Vector) -> tuple[Vector, float]:
        squares = (A @ x - b) ** 2 + smooth**2
        weighted = A * (squares ** (0.5 * power - 1.0))[:, None]
        image: Vector = np.asarray(np.linalg.solve(weighted.T @ A, weighted.T @ b), np.float64)
        return image, float(np.mean(squares ** (0.5 * power))) / power

    return MapProblem(
        name=f"reweighted-{samples}x{variables}-{power:g}",
        start=np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], np.float64),
        step_and_value=both,
    )


def bounded_logistic(
    samples: int, variables: int, ridge: float = 1e-3, decades: float = 1.5, rng: Rng = 0
) -> MapProblem:
    """Logistic regression with one fixed matrix above all Hessians, A'A/4 + ridge.

    D. Bohning, B. Lindsay, "Monotonicity of quadratic-approximation algorithms", Ann. Inst. Stat.
    Math. 40 (1988).  Features have scales over so many decades, and most labels are of one kind.
    """
    rng = np.random.default_rng(rng)
    A = rng.standard_normal((samples, variables)) * np.logspace(0, -decades, variables)
    A = np.hstack([A, np.ones((samples, 1))])
    logits = A @ np.append(3.0 * rng.standard_normal(variables), -4.0)
    y = np.where(rng.random(samples) < 1.0 / (1.0 + np.exp(-logits)), 1.0, -1.0)
    signed = A * y[:, None]
    above = A.T @ A / (4 * samples) + ridge * np.eye(variables + 1)
    inverse = np.linalg.inv(above)

    def both(x: Vector) -> tuple[Vector, float]:
        margins = signed @ x
        slope = -signed.T @ np.exp(-np.logaddexp(0.0, margins)) / samples + ridge * x
        value = float(np.mean(np.logaddexp(0.0, -margins))) + 0.5 * ridge * float(x @ x)
        return x - inverse @ slope, value

    return MapProblem(
        name=f"bounded-logistic-{samples}x{variables}",
        start=np.zeros(variables + 1),
        step_and_value=both,
    )
