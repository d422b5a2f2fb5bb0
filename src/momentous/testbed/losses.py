"""Scalar losses phi, and their sums: one per coordinate (separable, saddles), or per residual.

A loss has its first two derivatives and the extreme values of the next ones.  All suprema are
exact: closed forms where these are short, otherwise rounded in the last digit.  Sums of losses of
linear maps inherit Lipschitz constants from them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from momentous.testbed.problem import Array, Constants, Problem, Rng

Elementwise = Callable[[Array], Array]


@dataclass(frozen=True)
class Loss:
    """A smooth function of one variable, applied elementwise.

    Its name is its key in `LOSSES`.
    """

    name: str
    value: Elementwise = field(repr=False)  # phi
    slope: Elementwise = field(repr=False)  # phi'
    curvature: Elementwise = field(repr=False)  # phi''
    least_curvature: float  # infimum and supremum of phi''
    greatest_curvature: float
    third_bound: float  # suprema of |phi'''| and |phi''''|
    fourth_bound: float
    infimum: float = 0.0
    minimiser: float | None = 0.0  # a point where it is attained, if there is one

    @property
    def curvature_bound(self) -> float:
        """Supremum of ``|phi''|``."""
        return max(self.greatest_curvature, -self.least_curvature)


def _elementwise(name: str) -> Elementwise:
    """The function of that name in the library that owns t."""
    return lambda t: getattr(array_namespace(t), name)(t)


_exp, _sin, _cos, _tanh = map(_elementwise, ("exp", "sin", "cos", "tanh"))


def _bell(t: Array) -> Array:
    return 1.0 / (1.0 + t * t)


def _quartic_bell(t: Array) -> Array:
    return 1.0 / (1.0 + t**4)


def _sigmoid(t: Array) -> Array:
    """Logistic function without overflow, accurate in both tails."""
    xp = array_namespace(t)
    decay = xp.exp(-xp.abs(t))
    return xp.where(t >= 0.0, xp.ones_like(t), decay) / (1.0 + decay)


def _softplus(t: Array) -> Array:
    """``log(1 + exp(t))`` without overflow."""
    xp = array_namespace(t)
    return (t + xp.abs(t)) / 2.0 + xp.log1p(xp.exp(-xp.abs(t)))


def _log_cosh(t: Array) -> Array:
    xp = array_namespace(t)
    return xp.abs(t) + xp.log1p(xp.exp(-2.0 * xp.abs(t))) - math.log(2.0)


def _sech_squared(t: Array) -> Array:
    return 4.0 * _sigmoid(2.0 * t) * _sigmoid(-2.0 * t)


_COSINE = Loss(
    name="cosine",
    value=_cos,
    slope=lambda t: -_sin(t),
    curvature=lambda t: -_cos(t),
    least_curvature=-1.0,
    greatest_curvature=1.0,
    third_bound=1.0,
    fourth_bound=1.0,
    infimum=-1.0,
    minimiser=math.pi,
)
_TABLE = (
    Loss(
        name="geman-mcclure",  # t^2 / (1 + t^2), the "smoothed biweight" of Carmon et al. (2017)
        value=lambda t: t * t * _bell(t),
        slope=lambda t: 2.0 * t * _bell(t) ** 2,
        curvature=lambda t: 2.0 * _bell(t) ** 2 * (4.0 * _bell(t) - 3.0),
        least_curvature=-0.5,
        greatest_curvature=2.0,
        third_bound=4.668559284155,  # at t^2 = 1 - 2/sqrt(5)
        fourth_bound=24.0,
    ),
    Loss(
        name="welsch",  # 1 - exp(-t^2 / 2)
        value=lambda t: -array_namespace(t).expm1(-0.5 * t * t),
        slope=lambda t: t * _exp(-0.5 * t * t),
        curvature=lambda t: (1.0 - t * t) * _exp(-0.5 * t * t),
        least_curvature=-2.0 * math.exp(-1.5),
        greatest_curvature=1.0,
        third_bound=1.380119046162,  # at t^2 = 3 - sqrt(6)
        fourth_bound=3.0,
    ),
    Loss(
        name="cauchy",  # log(1 + t^2) / 2
        value=lambda t: 0.5 * array_namespace(t).log1p(t * t),
        slope=lambda t: t * _bell(t),
        curvature=lambda t: _bell(t) * (2.0 * _bell(t) - 1.0),
        least_curvature=-0.125,
        greatest_curvature=1.0,
        third_bound=0.75 + 0.5 * math.sqrt(2.0),  # at t = sqrt(2) - 1
        fourth_bound=6.0,
    ),
    Loss(
        name="tanh-squared",
        value=lambda t: _tanh(t) ** 2,
        slope=lambda t: 2.0 * _tanh(t) * _sech_squared(t),
        curvature=lambda t: 2.0 * _sech_squared(t) * (1.0 - 3.0 * _tanh(t) ** 2),
        least_curvature=-2.0 / 3.0,
        greatest_curvature=2.0,
        third_bound=4.085885502970,  # at tanh(t)^2 = 1/2 - sqrt(105)/30
        fourth_bound=16.0,
    ),
    Loss(
        name="sigmoid-squared",  # (1 - sigmoid(t))^2, as in nonconvex binary classification
        value=lambda t: _sigmoid(-t) ** 2,
        slope=lambda t: -2.0 * _sigmoid(t) * _sigmoid(-t) ** 2,
        curvature=lambda t: 2.0 * _sigmoid(t) * _sigmoid(-t) ** 2 * (3.0 * _sigmoid(t) - 1.0),
        least_curvature=-0.120204403455,  # at sigmoid(t) = (9 - sqrt(33)) / 24
        greatest_curvature=0.154058570122,  # at sigmoid(t) = (9 + sqrt(33)) / 24
        third_bound=0.202023009169,
        fourth_bound=0.278187700946,
        minimiser=None,
    ),
    Loss(
        name="logistic",  # log(1 + exp(-t)), convex
        value=lambda t: _softplus(-t),
        slope=lambda t: -_sigmoid(-t),
        curvature=lambda t: _sigmoid(t) * _sigmoid(-t),
        least_curvature=0.0,
        greatest_curvature=0.25,
        third_bound=math.sqrt(3.0) / 18.0,
        fourth_bound=0.125,
        minimiser=None,
    ),
    Loss(
        name="log-cosh",  # convex
        value=_log_cosh,
        slope=_tanh,
        curvature=_sech_squared,
        least_curvature=0.0,
        greatest_curvature=1.0,
        third_bound=4.0 * math.sqrt(3.0) / 9.0,
        fourth_bound=2.0,
    ),
    _COSINE,
    Loss(
        name="flat-bottom",  # t^4 / (1 + t^4): no curvature at its minimum
        value=lambda t: t**4 * _quartic_bell(t),
        slope=lambda t: 4.0 * t**3 * _quartic_bell(t) ** 2,
        curvature=lambda t: 4.0 * t**2 * _quartic_bell(t) ** 2 * (8.0 * _quartic_bell(t) - 5.0),
        least_curvature=-2.5 * math.sin(math.pi / 5.0),
        greatest_curvature=2.5 * math.sin(2.0 * math.pi / 5.0),
        third_bound=11.061324578438,
        fourth_bound=64.3125,
    ),
    # 1 + cos(t): a strict maximum at 0; no cancellation near the minimum.
    replace(_COSINE, name="hill", value=lambda t: 2.0 * _cos(0.5 * t) ** 2, infimum=0.0),
    Loss(
        name="flat-hill",  # 1 - sin(t/2)^4: a maximum at 0 without curvature, strict minima at pi
        value=lambda t: _cos(0.5 * t) ** 2 * (1.0 + _sin(0.5 * t) ** 2),
        slope=lambda t: -0.5 * _sin(t) * (1.0 - _cos(t)),
        curvature=lambda t: 0.5 * (_cos(t) - 1.0) * (2.0 * _cos(t) + 1.0),
        least_curvature=-9.0 / 16.0,
        greatest_curvature=1.0,
        third_bound=1.367907552033,
        fourth_bound=2.5,
        minimiser=math.pi,
    ),
)

LOSSES = {loss.name: loss for loss in _TABLE}
"""The losses by name."""


def find_loss(loss: Loss | str) -> Loss:
    """A loss, given itself or its name."""
    if isinstance(loss, Loss):
        return loss
    try:
        return LOSSES[loss]
    except KeyError:
        raise ValueError(f"unknown loss {loss!r}; known are {', '.join(LOSSES)}") from None


# --- sums of losses ------------------------------------------------------------------------------


def separable(
    loss: Loss | str = "cosine",
    weights: ArrayLike = (1.0, 0.5, 2.0),
    scales: ArrayLike = (1.0, 2.0, 0.5),
) -> Problem:
    """Weighted sum of a loss of each coordinate, ``f(x) = sum_i a_i phi(w_i x_i)``.

    phi is a `Loss` or its name in `LOSSES`; the weights a_i are positive, the scales w_i not zero,
    and they are broadcast against each other.  The Hessian is diagonal, so
    ``L = max a_i w_i^2 sup|phi''|`` and ``rho = max a_i |w_i|^3 sup|phi'''|`` are exact and global;
    so is the minimum.
    """
    phi = find_loss(loss)
    a, w = np.broadcast_arrays(
        np.atleast_1d(np.asarray(weights, dtype=np.float64)),
        np.atleast_1d(np.asarray(scales, dtype=np.float64)),
    )
    if a.ndim != 1 or not np.all(a > 0.0) or not np.all(w != 0.0):
        raise ValueError("weights must be positive and scales not zero, both one-dimensional")
    data = Constants(a, w)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        a, w = data.like(x)
        return array_namespace(x).sum(a * phi.value(w * x)), a * w * phi.slope(w * x)

    def hessian_product(x: Array, v: Array) -> Array:
        a, w = data.like(x)
        return a * w * w * phi.curvature(w * x) * v

    return Problem(
        name=f"separable-{phi.name}-{a.size}",
        start=np.linspace(0.5, 1.5, a.size) / w,  # between the origin and the flat parts
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=float(np.max(a * w**2)) * phi.curvature_bound,
        hessian_lipschitz=float(np.max(a * np.abs(w) ** 3)) * phi.third_bound,
        minimum=float(np.sum(a)) * phi.infimum,
        minimum_is_exact=True,
        minimiser=None if phi.minimiser is None else phi.minimiser / w,
    )


def generalised_linear(
    matrix: ArrayLike, targets: ArrayLike, loss: Loss | str = "geman-mcclure"
) -> Problem:
    """Mean loss of the residuals, ``f(x) = (1/m) sum_i phi(<a_i, x> - b_i)``.

    The matrix has the m rows a_i, the targets are the b_i; phi is a `Loss` or its name in `LOSSES`.
    The constants are global upper bounds: ``L = sup|phi''| |A|^2/m`` and
    ``rho = sup|phi'''| (|A|^2/m) max|a_i|``, in the spectral norm. The minimum is the lower
    bound ``inf phi``.
    """
    phi = find_loss(loss)
    A = np.asarray(matrix, dtype=np.float64)
    b = np.asarray(targets, dtype=np.float64)
    if A.ndim != 2 or b.shape != A.shape[:1]:
        raise ValueError(f"matrix and targets do not fit: shapes {A.shape} and {b.shape}")
    m, d = A.shape
    data = Constants(A, b)
    steepness = float(np.linalg.norm(A, 2)) ** 2 / m

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        A, b = data.like(x)
        residual = A @ x - b
        return array_namespace(x).mean(phi.value(residual)), A.T @ phi.slope(residual) / m

    def hessian_product(x: Array, v: Array) -> Array:
        A, b = data.like(x)
        return A.T @ (phi.curvature(A @ x - b) * (A @ v)) / m

    return Problem(
        name=f"regression-{phi.name}-{m}x{d}",
        start=np.zeros(d),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=phi.curvature_bound * steepness,
        hessian_lipschitz=phi.third_bound * steepness * float(np.linalg.norm(A, axis=1).max()),
        minimum=phi.infimum,
    )


def robust_regression(
    loss: Loss | str = "geman-mcclure", samples: int = 60, dimension: int = 30, rng: Rng = 0
) -> Problem:
    """Linear regression with gross errors and a loss that forgives them.

    The data follow the experiments of Carmon, Duchi, Hinder and Sidford, "Convex until proven
    guilty" (2017): ``b = A z + 3 n + o`` with Gaussian A and n, ``z ~ N(0, 4 I)`` and o Bernoulli
    with probability 0.3; the start is 0. For the constants see `generalised_linear`.
    """
    rng = np.random.default_rng(rng)
    A = rng.standard_normal((samples, dimension))
    z = 2.0 * rng.standard_normal(dimension)
    noise = 3.0 * rng.standard_normal(samples)
    outliers = (rng.random(samples) < 0.3).astype(np.float64)
    return generalised_linear(A, A @ z + noise + outliers, loss)


# --- saddles with a known spectrum, started exactly on them ---------------------------------------


def saddle(
    p: int = 2, q: int = 2, curvature: float = 1.0, negative_curvature: ArrayLike = 1.0
) -> Problem:
    """Strict saddle at the start, ``f(x, y) = (c/2)|x|^2 + sum_j g_j (1 + cos y_j)``.

    The Hessian at ``(x, y)`` has the eigenvalues c (p times) and ``-g_j cos y_j``: at the origin
    q of them are negative. ``L = max(c, g)`` and ``rho = max g`` are exact and global, the minimum
    0 is attained at ``x = 0, y_j = pi`` (mod 2 pi). Deterministic first-order methods started at
    ``y = 0`` stay there.

    x has p entries and y has q; ``curvature`` is c, ``negative_curvature`` the g_j, all positive.
    """
    return _on_the_hill("saddle", LOSSES["hill"], p, q, curvature, negative_curvature)


def flat_saddle(p: int = 2, q: int = 1, curvature: float = 1.0, height: ArrayLike = 1.0) -> Problem:
    """Degenerate saddle, ``f(x, y) = (c/2)|x|^2 + sum_j g_j (1 - sin(y_j/2)^4)``.

    At the origin the Hessian has the eigenvalues c and 0 only: a second-order stationary point
    that is no local minimum, since f falls like ``-g y^4/16``. A second-order method may stop
    there. ``L = max(c, g)`` and ``rho = 1.368 max g`` are exact and global, the minimum 0 is
    attained at ``x = 0, y_j = pi`` (mod 2 pi), where the Hessian is positive definite.

    Parameters as in `saddle`; ``height`` is the g_j.
    """
    return _on_the_hill("flat-saddle", LOSSES["flat-hill"], p, q, curvature, height)


def _on_the_hill(
    name: str, hill: Loss, p: int, q: int, curvature: float, heights: ArrayLike
) -> Problem:
    """A bowl in p coordinates, the top of a hill in q."""
    c = float(curvature)
    g = np.broadcast_to(np.asarray(heights, dtype=np.float64), (q,))
    if p < 0 or q < 1 or c <= 0.0 or not np.all(g > 0.0):
        raise ValueError("a saddle needs p >= 0, q >= 1 and positive curvatures")
    data = Constants(g)

    def value_and_gradient(z: Array) -> tuple[Array, Array]:
        xp = array_namespace(z)
        (g,) = data.like(z)
        f = 0.5 * c * xp.sum(z[:p] ** 2) + xp.sum(g * hill.value(z[p:]))
        return f, xp.concat([c * z[:p], g * hill.slope(z[p:])])

    def hessian_product(z: Array, v: Array) -> Array:
        (g,) = data.like(z)
        return array_namespace(z).concat([c * v[:p], g * hill.curvature(z[p:]) * v[p:]])

    steepest = float(np.max(g))
    bowl = c if p > 0 else 0.0
    return Problem(
        name=f"{name}-{p}+{q}" + ("" if np.ptp(g) == 0.0 else "-mixed"),
        start=np.zeros(p + q),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=max(bowl, steepest * hill.curvature_bound),
        hessian_lipschitz=steepest * hill.third_bound,
        minimum=0.0,
        minimiser=np.concatenate([np.zeros(p), np.full(q, np.pi)]),
    )
