"""Is x a first-order or a second-order stationary point?  Says so with numbers.

The Hessian is only ever multiplied by vectors: by all unit vectors where there are few of them, and
then the answer is certain; otherwise by a Krylov basis from a random start (Lanczos), and then
negative curvature that was found is certain, its absence up to a stated probability.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from momentous.core.arrays import Array, Space, set_writable, starting_point, to_numpy
from momentous.core.oracle import Fun, Jac, Oracle

Matrix = NDArray[np.float64]

DENSE = 500  # up to this many variables the whole matrix is formed
# Lanczos steps by default, and as many vectors in memory: they show that no eigenvalue is below a
# thousandth of the spectrum, for failure_probability = 1e-3 and up to 1e9 variables (see _Goal).
STEPS = 300
RELATIVE = 1e-3  # tau by default, as a fraction of the largest absolute Ritz value ...
SETTLED = 10  # ... which this many Lanczos steps must have looked for


class Verdict(enum.StrEnum):
    """What a point is."""

    NOT_STATIONARY = "not stationary"  # |grad f(x)| > eps; the curvature was not looked at
    FIRST_ORDER = "first order"  # |grad f(x)| <= eps; the curvature is not settled
    SECOND_ORDER = "second order"  # ... and no eigenvalue of the Hessian is below -tau
    SADDLE = "saddle"  # ... but one of them is: a saddle or a maximum
    NOT_CERTIFIABLE = "not certifiable"  # ... but the Hessian products are too inaccurate to tell


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """What :func:`certify` found, and the numbers behind it.

    Attributes
    ----------
    verdict : Verdict
        ``NOT_STATIONARY``, ``FIRST_ORDER``, ``SECOND_ORDER``, ``SADDLE`` or ``NOT_CERTIFIABLE``.
    message : str
        The same in words, with the numbers and, where there is one, the remedy.
    grad_norm, eps : float
        The norm of the gradient at x, and what it may be.
    curvature_tolerance : float
        tau: eigenvalues of at least -tau are accepted.
    smallest_eigenvalue : float
        Of the Hessian.  With Lanczos, which stops as soon as it can decide, the smallest Ritz value:
        an upper bound.  NaN if the Hessian was not looked at, infinite if x has no entries.
    eigenvalue_error : float
        Estimate of what inaccurate Hessian products may have done to it.
    lower_bound : float
        No eigenvalue is below this, within the error estimate; with Lanczos that holds with
        probability at least ``1 - failure_probability``.
    probability : float
        Upper bound on the probability that the verdict is wrong for an unlucky random start: 0
        unless it is ``SECOND_ORDER`` by Lanczos.
    residual : float
        ``|H w - t w|``, t the smallest eigenvalue and w its unit vector, from a fresh product.  A
        small one says that t is near an eigenvalue, not that it is the smallest.
    products, nfev, njev : int
        Hessian-vector products, values and gradients that were computed.  The gradients of products
        by differences are counted as gradients too.
    direction : array or None
        For ``SADDLE`` the unit vector w, an array like x; downhill: ``<grad f(x), w> <= 0``.
    """

    verdict: Verdict
    message: str
    grad_norm: float
    eps: float
    curvature_tolerance: float = math.nan
    smallest_eigenvalue: float = math.nan
    eigenvalue_error: float = math.nan
    lower_bound: float = -math.inf
    probability: float = 0.0
    residual: float = math.nan
    products: int = 0
    nfev: int = 0
    njev: int = 0
    direction: Array | None = field(default=None, repr=False)

    @property
    def is_first_order(self) -> bool:
        """The gradient is small, whatever the curvature."""
        return self.verdict is not Verdict.NOT_STATIONARY

    @property
    def is_second_order(self) -> bool:
        return self.verdict is Verdict.SECOND_ORDER

    @property
    def is_saddle(self) -> bool:
        return self.verdict is Verdict.SADDLE

    def escape(
        self, fun: Fun, x: Any, args: Any = (), *, jac: Jac = None, rho: float | None = None
    ) -> Array:
        """A point below the saddle x, along `direction`.

        Let ``-t`` be the curvature along it, less its error.  With the Lipschitz constant ``rho`` of
        the Hessian the step is ``s = 2 t / rho`` and lowers f by at least ``2 t^3 / (3 rho^2)``.
        Without it s is halved from 1, either way along the direction, until f falls by at least
        ``s^2 t / 4``.  ``fun``, ``x``, ``args`` and ``jac`` are as for :func:`certify`; only values
        are computed, and none with ``rho``.
        """
        if self.direction is None:
            raise ValueError(f"x is {self.verdict.value}: there is no direction to escape along")
        x = starting_point(x)
        space, w = Space(x), self.direction
        if space != Space(w):
            raise ValueError(
                f"x is {space.describe()}, the direction is {Space(w).describe()}; pass the x that "
                "was certified"
            )
        t = -(self.smallest_eigenvalue + self.eigenvalue_error)
        if rho is not None:
            return x + (2.0 * t / _positive("rho", rho)) * w
        oracle = Oracle(fun, True if jac is True else "2-point", _tuple(args), space)
        value, s = oracle.value(x), 1.0
        while s > math.sqrt(space.rounding):
            for candidate in (x + s * w, x - s * w):
                if oracle.value(candidate) <= value - s * s * t / 4.0:
                    return candidate
            s /= 2.0
        raise RuntimeError(
            f"f(x) = {value:.6g} does not fall along a direction of curvature {-t:.3g}, by steps "
            f"from 1 to {s:.1g}: is fun the function whose gradient was certified?"
        )


def certify(
    fun: Fun,
    x: Any,
    args: Any = (),
    *,
    jac: Jac = None,
    eps: float,
    rho: float | None = None,
    curvature: float | None = None,
    hessp: Callable[..., Any] | None = None,
    failure_probability: float = 1e-3,
    max_products: int | None = None,
    gradient_lipschitz: float | None = None,
    step: float | None = None,
    rng: int | np.random.Generator | None = 0,
) -> Certificate:
    """Decide whether x is an eps-approximate first-order or second-order stationary point.

    It is of first order if ``|grad f(x)| <= eps``, and of second order if moreover no eigenvalue of
    the Hessian is below ``-tau``, where ``tau = sqrt(eps rho)`` [1]_.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> float``, or ``-> (float, array)`` with ``jac=True``.
    x : array
        The point: an array of any library, shape and real floating-point dtype.
    args : tuple
        Further arguments of ``fun``, ``jac`` and ``hessp``.
    jac : callable, True or 'autodiff'
        The gradient, as for `minimize`, but not by differences: they cannot be differenced again.
    eps : float
        What the norm of the gradient may be.
    rho : float, optional
        Lipschitz constant of the Hessian, ``tau = sqrt(eps rho)``.
    curvature : float, optional
        tau itself, in place of ``rho``.  With neither, tau is a thousandth of the largest absolute
        eigenvalue (or Ritz value).
    hessp : callable, optional
        ``hessp(x, v, *args) -> array``, exact Hessian-vector products; by default differences of
        gradients.
    failure_probability : float
        The probability p with which Lanczos may miss a negative eigenvalue.
    max_products : int, optional
        Hessian-vector products allowed, 0 for a look at the gradient only.  By default all that the
        whole matrix takes, or about 300 with Lanczos, which keeps a vector like x for each of them.
    gradient_lipschitz : float, optional
        L, a bound on the absolute eigenvalues: it may save products.
    step : float, optional
        The length h of difference steps.
    rng : int, numpy.random.Generator or None
        Where the random start comes from; None is 0.

    Returns
    -------
    Certificate
        A `verdict`, a `message` and the numbers.  Where the gradient is too large, the Hessian is
        not looked at.

    Notes
    -----
    *Eigenvalues.*  With up to 500 variables, if ``max_products`` allows, the whole matrix is formed.
    Otherwise the Lanczos process with full reorthogonalisation starts from q, uniform on the sphere.
    The smallest Ritz value after j steps is too large by more than ``delta`` times the length of the
    spectrum only if ``|<q, e>| cosh((2j-1) artanh(sqrt(delta))) < 1``, e being the eigenvector.
    That has a probability of at most ``1.6 sqrt(d) exp(-(2j-1) sqrt(delta))``, the bound of [2]_, but
    is an event of q alone: the bound holds for all j at once, so the process may stop as soon as it
    can decide.  The Ritz values at both ends bound the length of the spectrum in the same way.

    *Products.*  With ``rho``, and where that is accurate enough for tau, forward differences: one
    gradient, ``h = 2 sqrt(u) (1 + |x|)`` with the unit roundoff u, error at most ``rho h / 2`` but for
    rounding.  Otherwise central differences: two gradients, ``h = u^(1/3) (1 + |x|)``.  The error
    estimate sums up that bound, the rounding to be expected, half the asymmetry of the (projected)
    matrix, and the change when h is doubled, for a random vector and for the eigenvector.  Unless it
    is at most a quarter of tau or of the eigenvalue, the verdict is ``NOT_CERTIFIABLE``.

    References
    ----------
    .. [1] H. Li and Z. Lin, "Restarted nonconvex accelerated gradient descent: no more
       polylogarithmic factor in the O(eps^(-7/4)) complexity", J. Mach. Learn. Res. 24 (2023).
    .. [2] J. Kuczynski and H. Wozniakowski, "Estimating the largest eigenvalue by the power and
       Lanczos algorithms with a random start", SIAM J. Matrix Anal. Appl. 13 (1992), 1094-1122.

    Examples
    --------
    >>> import numpy as np
    >>> from momentous.certify import certify
    >>> def f(x):
    ...     return float(np.sum(x**4 - 2 * x**2)), 4 * x**3 - 4 * x
    >>> found = certify(f, np.array([0.0, 1.0]), jac=True, eps=1e-6)
    >>> found.verdict.name, round(found.smallest_eigenvalue, 6)
    ('SADDLE', -4.0)
    >>> certify(f, np.array([-1.0, 1.0]), jac=True, eps=1e-6).is_second_order
    True
    """
    eps = _positive("eps", eps)
    if rho is not None and curvature is not None:
        raise ValueError(
            f"rho={rho!r} and curvature={curvature!r} are both given, but curvature stands in place "
            "of sqrt(eps*rho); give one of them"
        )
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability={failure_probability!r} must be between 0 and 1")
    if max_products is not None and not (isinstance(max_products, Integral) and max_products >= 0):
        raise ValueError(f"max_products={max_products!r} must be a whole number >= 0 or None")
    if hessp is not None and not callable(hessp):
        raise TypeError(f"hessp={hessp!r} must be callable or None")
    if not (callable(jac) or jac is True or jac == "autodiff"):
        raise ValueError(
            f"jac={jac!r}: a certificate needs gradients, and differences of fun are too inaccurate "
            "for it; pass jac=callable, jac=True if fun returns (f, g), or jac='autodiff' for PyTorch "
            "and JAX"
        )
    tau = None if curvature is None else _positive("curvature", curvature)
    tau = tau if rho is None else math.sqrt(eps * _positive("rho", rho))
    L = None if gradient_lipschitz is None else _positive("gradient_lipschitz", gradient_lipschitz)
    h = None if step is None else _positive("step", step)
    random = np.random.default_rng(0 if rng is None else rng)
    x = starting_point(x)
    space = Space(x)
    if not math.isfinite(space.norm(x)):
        raise ValueError(f"x is not finite (its norm is {space.norm(x)}); certify a finite point")

    oracle = Oracle(fun, jac, _tuple(args), space)
    hessian = _Hessian(oracle, x, hessp, _tuple(args))
    grad_norm = hessian.grad_norm
    if not math.isfinite(grad_norm):
        raise ValueError(f"the gradient at x is not finite (its norm is {grad_norm}); check jac")

    def certificate(verdict: Verdict, words: str, **numbers: Any) -> Certificate:
        relation = ">" if grad_norm > eps else "<="
        return Certificate(
            verdict=verdict,
            message=f"|grad f(x)| = {grad_norm:.3g} {relation} eps = {eps:.3g}; {words}",
            grad_norm=grad_norm,
            eps=eps,
            curvature_tolerance=numbers.pop("tau", math.nan if tau is None else tau),
            products=hessian.products,
            nfev=oracle.nfev,
            njev=oracle.njev,
            **numbers,
        )

    if grad_norm > eps:
        words = "x is not stationary, and its curvature was not looked at"
        return certificate(Verdict.NOT_STATIONARY, words)
    d = space.size
    if d == 0:
        ends = {"smallest_eigenvalue": math.inf, "eigenvalue_error": 0.0, "lower_bound": math.inf}
        return certificate(Verdict.SECOND_ORDER, "x has no entries", **ends)

    # Products that check others, by differences: two for the eigenvector, one for the random start.
    checks, check = (1, 0) if hessian.exact else (2, 1)
    allowed = (DENSE if d <= DENSE else STEPS) + 3 if max_products is None else int(max_products)
    dense = d <= DENSE and d + checks <= allowed
    steps = d if dense else min(d, allowed - checks - check)
    if steps < 1:
        words = f"its curvature is not known, since max_products={allowed} allows no look at it"
        return certificate(Verdict.FIRST_ORDER, words)
    hessian.choose_step(h, rho, tau, steps)
    goal = _Goal(tau, d, failure_probability, math.inf if L is None else L)
    if dense:
        basis, G, beta = _whole_matrix(hessian)
    else:
        basis, G, beta = _lanczos(hessian, random.standard_normal(space.shape), steps, goal)

    ritz, vectors = np.linalg.eigh((G + G.T) / 2.0)
    t = float(ritz[0])
    w = sum((float(s) * q for s, q in zip(vectors[:, 0], basis, strict=True)), 0.0 * x)
    w = w * ((-1.0 if space.inner(hessian.gradient, w) > 0.0 else 1.0) / space.norm(w))
    Hw = hessian.checked(w)
    asymmetry = float(np.linalg.norm(G - G.T, 2)) / 2.0
    error = hessian.error(ritz) + asymmetry + abs(space.inner(w, Hw) - t)
    miss = 0.0 if dense else goal.miss(ritz, beta, error)
    tau, lower = goal.tolerance(ritz), max(t - error - miss, -goal.L)
    numbers: dict[str, Any] = {
        "smallest_eigenvalue": t,
        "eigenvalue_error": error,
        "lower_bound": lower,
        "residual": space.norm(Hw - t * w),
    }
    found = "eigenvalue of the Hessian" if dense else f"Ritz value of {len(basis)} Lanczos steps"
    found = f"the smallest {found} is {t:.6g} with an error of about {error:.1g}"
    limit = f"-tau = {-tau:.3g}"
    if goal.tau is None:
        limit += f" ({RELATIVE:g} of the largest; rho= or curvature= set your own)"
    if error > max(tau, abs(t)) / 4.0:
        needed = (
            f"{found}, too inaccurate for {limit}: the error must be below tau/4; {hessian.remedy}"
        )
        return certificate(Verdict.NOT_CERTIFIABLE, needed, **numbers)
    if t + error < -tau:
        words = (
            f"a saddle or a maximum: {found}, below {limit}; along `direction` f falls, for small s by "
            f"about {-t / 2.0:.3g} s^2 (see `escape`)"
        )
        return certificate(Verdict.SADDLE, words, direction=w, **numbers)
    if lower >= -tau:
        p = 0.0 if dense else failure_probability
        chance = "" if dense else f" with probability at least 1 - {p:g}"
        words = f"{found}, and{chance} none is below {lower:.3g} >= {limit}"
        return certificate(Verdict.SECOND_ORDER, words, probability=p, **numbers)
    more = goal.steps_needed(ritz, error)
    if dense or more is None:
        words = f"{found}, too close to {limit} to be told from it"
    else:
        words = (
            f"{found}, but eigenvalues below {limit} are not ruled out; about {more} steps would: "
        )
        words += f"pass max_products={more + checks + check}, the memory of as many vectors"
    return certificate(Verdict.FIRST_ORDER, words, **numbers)


class _Hessian:
    """Products with the Hessian at x, exact or by differences of gradients, and what they are worth."""

    def __init__(
        self, oracle: Oracle, x: Array, hessp: Callable[..., Any] | None, args: tuple[Any, ...]
    ):
        self.oracle, self.space, self.x = oracle, oracle.space, x
        self.hessp, self.args, self.exact = hessp, args, hessp is not None
        sample = oracle.gradient(x)
        self.gradient, self.grad_norm = self.space.copy(sample.gradient), sample.grad_norm
        self.products = 0
        self.forward = False
        self.step = self.truncation = self.change = 0.0

    def choose_step(
        self, h: float | None, rho: float | None, tau: float | None, columns: int
    ) -> None:
        """Forward differences where rho proves them accurate enough for tau, otherwise central."""
        if self.exact:
            return
        u, scale = self.space.rounding, 1.0 + self.space.norm(self.x)
        if rho is not None and tau is not None:
            forward = 2.0 * math.sqrt(u) * scale if h is None else h
            # |E| <= sqrt(columns) rho h/2 for the matrix E of the errors of all products.
            self.truncation = math.sqrt(columns) * rho * forward / 2.0
            self.forward = self.truncation <= tau / 16.0
        if self.forward:
            self.step = forward
        else:
            self.truncation = 0.0  # no bound is known that is worth having: it is measured
            self.step = u ** (1.0 / 3.0) * scale if h is None else h

    def __call__(self, v: Array, stretch: float = 1.0) -> Array:
        """H v, for |v| = 1."""
        self.products += 1
        h = stretch * self.step
        if self.hessp is not None:
            set_writable(v, False)
            product = self.space.admit(self.hessp(self.x, v, *self.args), "hessp")
        else:
            ahead = self.oracle.gradient(self.x + h * v).gradient
            if self.forward:
                product = (ahead - self.gradient) * (1.0 / h)
            else:
                ahead = self.space.copy(ahead)  # the next call may reuse its array
                product = (ahead - self.oracle.gradient(self.x - h * v).gradient) * (0.5 / h)
        if not math.isfinite(self.space.norm(product)):
            raise ValueError(
                "hessp returned values that are not finite; check it at x"
                if self.exact
                else f"the gradient is not finite at a distance of {h:.3g} from x; pass hessp= or a "
                "smaller step="
            )
        return product

    def checked(self, v: Array) -> Array:
        """H v, having measured what doubling the step does to it.

        The change is at least the error of the shorter step: three times that of truncation for
        central differences, once for forward ones, and noise of both steps.
        """
        product = self(v)
        if not self.exact:
            other = self(v, stretch=2.0)
            self.change = max(self.change, math.sqrt(self.space.distance_squared(product, other)))
        return product

    def error(self, ritz: Matrix) -> float:
        """Of eigenvalues, as far as products are to blame: truncation, what was measured, rounding."""
        u, scale = self.space.rounding, 1.0 + self.space.norm(self.x)
        noise = 8.0 * u if self.exact else u * scale / self.step  # relative
        return max(self.truncation, self.change) + noise * float(np.max(np.abs(ritz)))

    @property
    def remedy(self) -> str:
        if self.exact:
            return (
                "check that hessp is symmetric, that is <a, H b> = <b, H a>, or accept a larger tau"
            )
        return f"pass hessp=, another step= than {self.step:.2g}, x in higher precision, or a larger tau"


@dataclass(frozen=True)
class _Goal:
    """What is to be shown, and how far Ritz values go towards it."""

    tau: float | None
    size: int
    failure_probability: float
    L: float

    def tolerance(self, ritz: Matrix) -> float:
        return RELATIVE * float(np.max(np.abs(ritz))) if self.tau is None else self.tau

    @property
    def share(self) -> float:
        """A unit eigenvector e has |<q, e>| at least this, but for probability p/2: the density of
        <q, e> is at most sqrt(d/(2 pi)).  (p/2, since there are two: one at each end.)"""
        return self.failure_probability / 2.0 * math.sqrt(math.pi / (2.0 * self.size))

    def miss(self, ritz: Matrix, beta: float, error: float) -> float:
        """How far the smallest Ritz value may be above the smallest eigenvalue, but for probability p.

        The polynomial p of degree j-1 for which sqrt(x - delta) p(x) is a Chebyshev polynomial of
        degree 2j-1 on the spectrum, scaled to [0, 1], shows that the Ritz value of j steps is
        above delta only if |<q, e>| < 1/cosh((2j-1) artanh(sqrt(delta))).  Also, the Krylov space is
        invariant up to beta and the error, so that one Ritz value is within (beta + error)/|<q, e>|.
        """
        delta = math.tanh(math.acosh(1.0 / self.share) / (2 * ritz.size - 1)) ** 2
        length = 2.0 * self.L
        if delta < 0.5:  # both ends miss by at most delta times the length
            length = min(length, (float(ritz[-1] - ritz[0]) + 2.0 * error) / (1.0 - 2.0 * delta))
        return min(delta * length, (beta + error) / self.share)

    def steps_needed(self, ritz: Matrix, error: float) -> int | None:
        """Steps after which the smallest Ritz value, should it stay, shows enough."""
        room = float(ritz[0]) - error + self.tolerance(ritz)
        if room <= 0.0:
            return None
        delta = room / (float(ritz[-1] - ritz[0]) + 2.0 * (error + room))
        return math.ceil(0.5 + math.acosh(1.0 / self.share) / math.atanh(math.sqrt(delta)) / 2.0)

    def decided(self, ritz: Matrix, beta: float, error: float) -> bool:
        t, tau = float(ritz[0]), self.tolerance(ritz)
        above = max(t - error - self.miss(ritz, beta, error), -self.L) >= -tau
        return (above or t + error < -tau) and (self.tau is not None or ritz.size >= SETTLED)


def _whole_matrix(hessian: _Hessian) -> tuple[list[Array], Matrix, float]:
    """All unit vectors, and what the Hessian makes of them, column by column."""
    space = hessian.space
    units = np.eye(space.size)
    basis = [space.from_numpy(unit.reshape(space.shape)) for unit in units]
    for column, unit in enumerate(basis):
        units[:, column] = to_numpy(hessian(unit)).reshape(-1)
    return basis, units, 0.0


def _lanczos(
    hessian: _Hessian, start: Matrix, steps: int, goal: _Goal
) -> tuple[list[Array], Matrix, float]:
    """An orthonormal Krylov basis Q, G = Q'HQ, and the norm of what H Q has outside of Q.

    G is kept as it comes out, with the entries that are zero or equal for a symmetric H: its
    asymmetry tells the error of the products.
    """
    space = hessian.space
    q = space.from_numpy(start / np.linalg.norm(start))
    basis, G, beta = [q], np.zeros((steps, steps)), 0.0
    for j in range(steps):
        v = hessian.checked(q) if j == 0 else hessian(q)
        for i in (
            *range(max(0, j - 1), j + 1),
            *range(j + 1),
        ):  # the recurrence, then all once more
            c = space.inner(basis[i], v)
            v = v - c * basis[i]
            G[i, j] += c
        beta = space.norm(v) if j + 1 < space.size else 0.0
        ritz = eigvalsh_tridiagonal(G.diagonal()[: j + 1], G.diagonal(-1)[:j])
        if j + 1 == steps or beta == 0.0 or goal.decided(ritz, beta, 2.0 * hessian.error(ritz)):
            break
        G[j + 1, j] = beta
        basis.append(q := v * (1.0 / beta))
    return basis, G[: len(basis), : len(basis)], beta


def _positive(name: str, value: Any) -> float:
    if not (isinstance(value, Real) and 0.0 < value < math.inf):
        raise ValueError(f"{name}={value!r} must be a positive number")
    return float(value)


def _tuple(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)
