"""Hard instances: chains along which a first-order method discovers one coordinate per gradient.

Started at 0, a method whose iterates stay in the span of the gradients seen has at most n nonzero
coordinates after n gradients; the zeros of the gradients are exact in floating point.
"""

import math
from importlib import import_module

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_cupy_array,
    is_jax_array,
    is_numpy_array,
    is_torch_array,
)

from momentous.testbed.problem import Array, Problem

_UPSILON_CURVATURE = 180.0  # sup |Upsilon''|, at -1
_UPSILON_THIRD = 314.066776398745  # sup |Upsilon'''|, near -0.1989


def carmon_chain(length: int = 10) -> Problem:
    """Chain against all first-order methods on functions with a Lipschitz gradient; T = length.

    ``f(x) = -Psi(1) Phi(x_1) + sum_{i>=2} [Psi(-x_{i-1}) Phi(-x_i) - Psi(x_{i-1}) Phi(x_i)]`` with
    ``Psi(t) = exp(1 - 1/(2t-1)^2)`` for ``t > 1/2``, else 0, and
    ``Phi(t) = sqrt(e) int_{-inf}^t exp(-s^2/2) ds`` [1]_.

    The i-th partial derivative vanishes when ``|x_{i-1}|`` and ``|x_i|`` are below 1/2, and
    ``|grad f(x)| > 1`` while some ``|x_i| < 1``: a zero-respecting method needs `length` gradients
    to get there. ``L = 152`` [2]_ and ``rho = 3784`` are global upper bounds; the latter is twice
    the supremum 1891.61 of the third derivative of one link, of which each coordinate has two. The
    infimum ``-sqrt(2 pi e) (1 + e (T-1))`` is exact, but only approached as x grows.

    References
    ----------
    .. [1] Carmon, Duchi, Hinder, Sidford, "Lower bounds for finding stationary points I",
       Mathematical Programming 184 (2020).
    .. [2] Arjevani, Carmon, Duchi, Foster, Srebro, Woodworth, "Lower bounds for non-convex
       stochastic optimization", Mathematical Programming 199 (2023), lemma 2.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, not {length}")

    # With x_0 = 1 all links read alike. As Psi(a) Psi(-a) = 0, the link of a = x_{i-1} and b = x_i
    # is -s Psi(|a|) Phi(s b), s = sign(a).
    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        a = _behind(xp.ones_like(x[:1]), x)
        s = xp.sign(a)
        psi, slope, _ = _psi(xp.abs(a))
        area, bell = _phi(s * x), _phi_slope(x)
        return -xp.sum(s * psi * area), _ahead(-slope * area) - psi * bell

    def hessian_product(x: Array, v: Array) -> Array:
        xp = array_namespace(x)
        a, v_a = _behind(xp.ones_like(x[:1]), x), _behind(xp.zeros_like(v[:1]), v)
        s = xp.sign(a)
        psi, slope, curvature = _psi(xp.abs(a))
        area, bell = _phi(s * x), _phi_slope(x)
        aa, ab, bb = -s * curvature * area, -s * slope * bell, psi * x * bell
        return _ahead(aa * v_a + ab * v) + (ab * v_a + bb * v)

    return Problem(
        name=f"carmon-chain-{length}",
        start=np.zeros(length),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=152.0,
        hessian_lipschitz=3784.0,
        minimum=-math.sqrt(2.0 * math.pi * math.e) * (1.0 + math.e * (length - 1)),
        minimum_is_exact=True,
    )


def second_order_chain(length: int = 10, mu: float = 0.1) -> Problem:
    """Chain against first-order methods on functions with a Lipschitz Hessian as well.

    ``F(x) = (sqrt(mu)/2)(x_1 - 1)^2 + (1/2) sum_{i<=T} (x_{i+1} - x_i)^2 + mu sum_{i<=T} U(x_i)``
    with ``U(t) = 120 int_1^t s^2 (s-1)/(1+s^2) ds``, in T + 1 variables [1]_.

    ``L = 4 + 180 mu`` is a global upper bound, ``rho = 314.07 mu`` is global and exact, for all but
    the separable part is quadratic. The minimum 0 is attained at the vector of ones; the start
    is ``sqrt(mu)/2 + 7.3411 mu T`` above it. While ``x_T = x_{T+1} = 0``, which takes T gradients
    to leave, ``|grad F(x)| > mu^(3/4)/4``. ``length`` is T, and mu is in (0, 1].

    References
    ----------
    .. [1] Carmon, Duchi, Hinder, Sidford, "Lower bounds for finding stationary points II:
       first-order methods", Mathematical Programming 185 (2021); here with r = 1.
    """
    if length < 1 or not 0.0 < mu <= 1.0:
        raise ValueError(f"need length >= 1 and 0 < mu <= 1, not {length} and {mu}")
    mu = float(mu)
    pull = math.sqrt(mu)

    def springs(y: Array, anchor: Array) -> Array:
        """Gradient of the springs at y, the first one of length `anchor`."""
        xp = array_namespace(y)
        stretch = y[1:] - y[:-1]
        return xp.concat([pull * anchor, stretch]) - xp.concat([stretch, xp.zeros_like(y[:1])])

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        quadratic = 0.5 * (pull * (x[0] - 1.0) ** 2 + xp.sum((x[1:] - x[:-1]) ** 2))
        force = xp.concat([mu * _upsilon_slope(x[:-1]), xp.zeros_like(x[:1])])
        return quadratic + mu * xp.sum(_upsilon(x[:-1])), springs(x, x[:1] - 1.0) + force

    def hessian_product(x: Array, v: Array) -> Array:
        xp = array_namespace(x)
        bend = xp.concat([mu * _upsilon_curvature(x[:-1]) * v[:-1], xp.zeros_like(v[:1])])
        return springs(v, v[:1]) + bend

    return Problem(
        name=f"second-order-chain-{length}-{mu:.3g}",
        start=np.zeros(length + 1),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=4.0 + _UPSILON_CURVATURE * mu,
        hessian_lipschitz=_UPSILON_THIRD * mu,
        minimum=0.0,
        minimiser=np.ones(length + 1),
    )


def nested_chain(length: int = 4, mu: float = 0.03) -> Problem:
    """Chain of chains: reaching the next potential takes about ``1/sqrt(mu)`` gradients.

    Outer variables ``o_1 .. o_{T+1}`` carry the potentials U of `second_order_chain`; each two
    neighbours are joined by a bridge of springs through m variables z, ``m = floor(1/sqrt(3 mu))``:

    ``G = (mu/2)(o_1 - 1)^2 + (1/2) sum_{i<=T} Q(o_i, z^i, o_{i+1}) + mu sum_{i<=T} U(o_i)``,
    ``Q(a, z, b) = (z_1 - t a)^2/m + sum_j (z_{j+1} - z_j)^2 + (z_m - t b)^2/m``,
    ``t = sqrt(mu (3m - 1))``; minimising over z leaves mu times the second-order chain with
    weight 1. The variables are ordered ``o_1, z^1, o_2, z^2, .., o_{T+1}``.

    ``L = 4 + 181 mu`` is a global upper bound, ``rho = 314.07 mu`` is global and exact. The minimum
    0 is attained at ``o = 1, z = t``; the start is ``mu/2 + 7.3411 mu T`` above it. While
    ``o_T = o_{T+1} = 0``, which takes ``(m+1)(T-1)`` gradients to leave, ``|grad G|`` is at least
    about 0.78 mu (found numerically; ``mu/4`` is a safe target). Gradient descent pays of the
    order of ``T/mu``, an accelerated method ``T/sqrt(mu)``. ``length`` is T, and mu in (0, 1/3].

    References
    ----------
    .. [1] After the nested construction of Chen, Ji, Zhang, arXiv:2511.22331, with bridges as
       long as the potentials allow.
    """
    if length < 1 or not 0.0 < mu <= 1.0 / 3.0:
        raise ValueError(f"need length >= 1 and 0 < mu <= 1/3, not {length} and {mu}")
    mu = float(mu)
    m = max(1, math.floor(1.0 / math.sqrt(3.0 * mu) + 1e-9))  # 1e-9: mu = 1/3 means m = 1
    t = math.sqrt(mu * (3 * m - 1))

    def outer(y: Array) -> Array:
        """The variables o_1 .. o_T."""
        return array_namespace(y).reshape(y[:-1], (length, m + 1))[:, 0]

    def stretches(y: Array) -> tuple[Array, Array, Array]:
        """How far the springs of each bridge are pulled: the left one, the inner, the right one."""
        xp = array_namespace(y)
        z = xp.reshape(y[:-1], (length, m + 1))[:, 1:]
        o = xp.concat([outer(y), y[-1:]])
        return z[:, 0] - t * o[:-1], z[:, 1:] - z[:, :-1], z[:, -1] - t * o[1:]

    def assemble(y: Array, anchor: Array, potential: Array) -> Array:
        """Gradient of the springs at y, plus mu times the forces on o_1 and on o_1 .. o_T."""
        xp = array_namespace(y)
        left, inner, right = stretches(y)
        left, right = left[:, None] / m, right[:, None] / m
        bridges = xp.concat([left, inner], axis=1) - xp.concat([inner, -right], axis=1)
        from_behind = xp.concat([mu * anchor, -t * right[:, 0]])
        o = from_behind[:-1] - t * left[:, 0] + mu * potential
        blocks = xp.concat([o[:, None], bridges], axis=1)
        return xp.concat([xp.reshape(blocks, (-1,)), from_behind[-1:]])

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        left, inner, right = stretches(x)
        springs = (xp.sum(left**2) + xp.sum(right**2)) / m + xp.sum(inner**2)
        f = 0.5 * (mu * (x[0] - 1.0) ** 2 + springs) + mu * xp.sum(_upsilon(outer(x)))
        return f, assemble(x, x[:1] - 1.0, _upsilon_slope(outer(x)))

    def hessian_product(x: Array, v: Array) -> Array:
        return assemble(v, v[:1], _upsilon_curvature(outer(x)) * outer(v))

    minimiser = np.full((m + 1) * length + 1, t)
    minimiser[:: m + 1] = 1.0
    return Problem(
        name=f"nested-chain-{length}-{mu:.3g}",
        start=np.zeros(minimiser.size),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=4.0 + (_UPSILON_CURVATURE + 1.0) * mu,
        hessian_lipschitz=_UPSILON_THIRD * mu,
        minimum=0.0,
        minimiser=minimiser,
    )


def _behind(first: Array, x: Array) -> Array:
    """Each coordinate's predecessor, that of the first given."""
    return array_namespace(x).concat([first, x[:-1]])


def _ahead(contributions: Array) -> Array:
    """Hand what each link owes to its predecessor over to it; the first link has none."""
    xp = array_namespace(contributions)
    return xp.concat([contributions[1:], xp.zeros_like(contributions[:1])])


def _psi(t: Array) -> tuple[Array, Array, Array]:
    """Psi and its first two derivatives.

    Up to ``2t - 1 = 1/32`` Psi is at most exp(-1023), which is 0 in double precision.
    """
    xp = array_namespace(t)
    u = 2.0 * t - 1.0
    active = u > 1.0 / 32.0
    r = 1.0 / xp.where(active, u, xp.ones_like(u))
    psi = xp.where(active, xp.exp(1.0 - r * r), xp.zeros_like(u))
    return psi, 4.0 * psi * r**3, 8.0 * psi * r**4 * (2.0 * r**2 - 3.0)


def _phi(t: Array) -> Array:
    return math.sqrt(0.5 * math.e * math.pi) * _erfc(-math.sqrt(0.5) * t)


def _phi_slope(t: Array) -> Array:
    return array_namespace(t).exp(0.5 - 0.5 * t * t)


def _upsilon(t: Array) -> Array:
    xp = array_namespace(t)
    rise = 60.0 * (t - 1.0) ** 2 - 60.0 * xp.log1p(t * t) + 120.0 * xp.atan(t)
    return rise + (60.0 * math.log(2.0) - 30.0 * math.pi)


def _upsilon_slope(t: Array) -> Array:
    return 120.0 * t * t * (t - 1.0) / (1.0 + t * t)


def _upsilon_curvature(t: Array) -> Array:
    bell = 1.0 / (1.0 + t * t)
    return 120.0 * t * bell * (t + 2.0 * (t - 1.0) * bell)


def _erfc(x: Array) -> Array:
    """Complementary error function, by the library that owns x or else by SciPy."""
    if is_torch_array(x):
        return import_module("torch.special").erfc(x)
    if is_jax_array(x):
        return import_module("jax.scipy.special").erfc(x)
    if is_cupy_array(x):
        return import_module("cupyx.scipy.special").erfc(x)
    scipy = import_module("scipy.special")
    if is_numpy_array(x):
        return scipy.erfc(x)
    return array_namespace(x).asarray(scipy.erfc(np.from_dlpack(x)), device=device(x))
