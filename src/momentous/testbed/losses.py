"""Scalar losses phi with their first two derivatives and the extreme values of the next ones.

All suprema are exact: closed forms where these are short, otherwise rounded in the last digit.
Compositions of a loss with linear maps inherit Lipschitz constants from them (`separable`,
`generalised_linear`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from array_api_compat import array_namespace

from momentous.testbed.problem import Array

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
    Loss(
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
    ),
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
    Loss(
        name="hill",  # 1 + cos(t): a strict maximum at 0
        value=lambda t: 2.0 * _cos(0.5 * t) ** 2,  # no cancellation near the minimum
        slope=lambda t: -_sin(t),
        curvature=lambda t: -_cos(t),
        least_curvature=-1.0,
        greatest_curvature=1.0,
        third_bound=1.0,
        fourth_bound=1.0,
        minimiser=math.pi,
    ),
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
