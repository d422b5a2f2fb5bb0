"""Is x a first-order or a second-order stationary point?  Says so with numbers.

The question is one of the smallest eigenvalue of the Hessian, which is only ever multiplied by
vectors: all unit vectors when there are few (then the answer is certain), otherwise a Krylov basis
from a random start (Lanczos; then its absence is certain up to a stated probability, while negative
curvature that was found is a fact).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from momentous.core.arrays import Array, Space, set_writable, starting_point, to_numpy
from momentous.core.oracle import Fun, Jac, Oracle, Sample

# Up to this size the whole matrix is formed.
DENSE = 500
# Lanczos steps by default.  They suffice for tau at a thousandth of the spectrum, p = 1e-3 and up to
# 10^9 variables (see ``_shortfall``); they take the memory of as many vectors.
STEPS = 300
# tau where nothing is said about it, as a fraction of the largest absolute Ritz value ...
RELATIVE_TOLERANCE = 1e-3
# ... which a few steps of Lanczos must have found before it is relied on.
SETTLED = 10


class Verdict(enum.StrEnum):
    """What a point is."""

    NOT_STATIONARY = "not stationary"  # |grad f(x)| > eps; the curvature was not looked at
    FIRST_ORDER = "first order"  # |grad f(x)| <= eps; the curvature is not settled
    SECOND_ORDER = "second order"  # ... and no eigenvalue of the Hessian is below -tau
    SADDLE = "saddle"  # ... but one of them is: a saddle or a maximum
    NOT_CERTIFIABLE = "not certifiable"  # ... but Hessian products are too inaccurate to tell


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """What :func:`certify` found, and the numbers behind it.

    Attributes
    ----------
    verdict : Verdict
        ``NOT_STATIONARY``, ``FIRST_ORDER``, ``SECOND_ORDER``, ``SADDLE`` or ``NOT_CERTIFIABLE``.
    message : str
        The same in a sentence, with the numbers and, where there is one, the remedy.
    grad_norm, eps : float
        The norm of the gradient at x, and what it was compared with.
    curvature_tolerance : float
        tau: eigenvalues of at least -tau are accepted.
    smallest_eigenvalue : float
        The smallest eigenvalue of the Hessian; with Lanczos the smallest Ritz value, which never
        lies below it (NaN if the Hessian was not looked at, infinity if x has no entries).
    eigenvalue_error : float
        Estimate of what the inaccuracy of Hessian products does to it.
    lower_bound : float
        No eigenvalue is below this: up to `eigenvalue_error` certain for the whole matrix, with
        probability at least ``1 - failure_probability`` for Lanczos.
    probability : float
        Upper bound on the probability that the verdict is wrong because of an unlucky random start;
        0 unless it is ``SECOND_ORDER`` by Lanczos.
    residual : float
        ``|H w - t w|`` for the eigenvalue t and its unit vector w, from a fresh product; small
        residuals say that t is near *an* eigenvalue, not that it is the smallest.
    products, nfev, njev : int
        Hessian-vector products, values and gradients that were computed; a product by differences
        costs one or two gradients, which are counted as such.
    direction : array or None
        For ``SADDLE`` the unit vector w with ``<w, H w> = smallest_eigenvalue``, an array like x; f
        falls along it, ``<grad f(x), w> <= 0``.
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
        """The gradient is small enough, whatever the curvature."""
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

        Let t < 0 be the curvature along w, the error deducted.  With ``rho`` the step is
        ``s = 2 |t| / rho`` and lowers f by at least ``2 |t|^3 / (3 rho^2)``; without it s is halved
        from 1 until ``f(x + s w)`` or ``f(x - s w)`` is at most ``f(x) - s^2 |t| / 4``.

        Parameters
        ----------
        fun, x, args, jac
            As they were given to :func:`certify`; only values are computed.
        rho : float, optional
            Lipschitz constant of the Hessian.
        """
        if self.direction is None:
            raise ValueError(f"there is no direction to escape along: x is {self.verdict.value}")
        x = starting_point(x)
        space, w = Space(x), self.direction
        space.admit(w, "certify, for another x,")
        t = abs(self.smallest_eigenvalue + self.eigenvalue_error)
        if rho is not None:
            return x + (2 * t / _positive(rho=rho)) * w
        oracle = Oracle(fun, True if jac is True else "2-point", _tuple(args), space)
        f, s = oracle.value(x), 1.0
        while s > math.sqrt(space.rounding):
            for sign in (1.0, -1.0):
                candidate = x + (sign * s) * w
                if oracle.value(candidate) <= f - s * s * t / 4:
                    return candidate
            s /= 2
        raise RuntimeError(
            f"f does not fall from f(x) = {f:.6g} along the direction with curvature {-t:.3g}, by "
            f"steps from 1 to {s:.1g}: is fun the function whose gradient was certified?"
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

    It is of first order if ``|grad f(x)| <= eps``, and of second order if moreover the smallest
    eigenvalue of the Hessian is at least ``-tau``, where ``tau = sqrt(eps rho)`` [1]_.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> float``, or ``-> (float, array)`` with ``jac=True``.
    x : array
        The point: an array of any library and shape; real floating-point dtypes are kept.
    args : tuple
        Further arguments of ``fun``, ``jac`` and ``hessp``.
    jac : callable, True or 'autodiff'
        The gradient, as for `minimize`.  It cannot be left out: differences of ``fun`` are too
        inaccurate to be differentiated again.
    eps : float
        What the norm of the gradient may be.
    rho : float, optional
        Lipschitz constant of the Hessian; ``tau = sqrt(eps rho)``.
    curvature : float, optional
        tau itself, in place of ``rho``.  With neither, tau is a thousandth of the largest absolute
        (Ritz) eigenvalue found.
    hessp : callable, optional
        ``hessp(x, v, *args) -> array``, the exact Hessian-vector product.  By default gradients are
        differenced (see Notes).
    failure_probability : float
        The probability p with which a negative eigenvalue may be missed by Lanczos.
    max_products : int, optional
        Hessian-vector products allowed; 0 looks at the gradient only.  By default all that are
        needed, and at most 303 where the matrix is not formed.  Lanczos keeps a vector of the size
        of x for each.
    gradient_lipschitz : float, optional
        L, a bound on the absolute eigenvalues; it may save products.
    step : float, optional
        Length h of the difference step.
    rng : int, numpy.random.Generator or None
        Where the random start is drawn from; None is 0.

    Returns
    -------
    Certificate
        With a `verdict`, a `message` and the numbers.  Where the gradient is too large nothing else
        is looked at.

    Raises
    ------
    ValueError, TypeError
        For arguments that make no sense, and for values that are not finite.

    Notes
    -----
    *Eigenvalues.*  Up to 500 variables (and ``max_products`` permitting) the matrix is formed, one
    product for each variable.  Otherwise the Lanczos process runs with full reorthogonalisation
    from q uniform on the sphere.  Let e be the unit eigenvector of the smallest eigenvalue.  The
    smallest Ritz value t of j steps misses that eigenvalue by more than ``delta`` times the length
    of the spectrum only if ``|<q, e>| < 1/cosh((2j - 1) artanh(sqrt(delta)))``, which has a
    probability of at most ``1.6 sqrt(d) exp(-(2j - 1) sqrt(delta))``: the bound of [2]_, seen as an
    event of q alone.  Hence it holds for all j at once, and the process may stop at the first j that
    decides: t below -tau, or t minus the possible miss above it.  The length of the spectrum is
    bounded in the same way from the Ritz values at both ends, so no constant has to be known.  A
    small residual alone is never taken for a proof.

    *Products.*  With ``rho``, and if that is accurate enough for tau, they are forward differences,
    one gradient each, ``h = 2 sqrt(u) (1 + |x|)`` with u the unit roundoff, whose error is at most
    ``rho h / 2`` before rounding; otherwise central differences, two gradients each,
    ``h = u^(1/3) (1 + |x|)``.  The error estimate adds what rounding must be expected to do, half
    the asymmetry of the (projected) matrix, and the change when h is doubled in a random direction
    and in that of the smallest eigenvalue.  It has to be below a quarter of tau or of the eigenvalue
    itself, whichever is larger; otherwise the verdict is ``NOT_CERTIFIABLE``.

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
    ...     return float(x[0] ** 2 - x[1] ** 2 + x[1] ** 4), np.stack(
    ...         [2 * x[0], 4 * x[1] ** 3 - 2 * x[1]]
    ...     )
    >>> at_zero = certify(f, np.zeros(2), jac=True, eps=1e-6)
    >>> at_zero.verdict.name, round(at_zero.smallest_eigenvalue, 6)
    ('SADDLE', -2.0)
    >>> certify(f, np.array([0.0, 0.5**0.5]), jac=True, eps=1e-6).is_second_order
    True
    """
    eps = _positive(eps=eps)
    if rho is not None and curvature is not None:
        raise ValueError(
            f"rho={rho!r} and curvature={curvature!r} are both given; curvature stands for "
            "sqrt(eps*rho): give one of them"
        )
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability={failure_probability!r} must be between 0 and 1")
    if max_products is not None and not (isinstance(max_products, int) and max_products >= 0):
        raise ValueError(f"max_products={max_products!r} must be a whole number >= 0 or None")
    if not (callable(jac) or jac is True or jac == "autodiff"):
        raise ValueError(
            f"jac={jac!r}: a certificate needs gradients, and differences of fun are too inaccurate "
            "to be differentiated again; pass jac=callable, jac=True if fun returns (f, g), or "
            "jac='autodiff' for PyTorch and JAX"
        )
    rho = None if rho is None else _positive(rho=rho)
    tau = None if curvature is None else _positive(curvature=curvature)
    tau = math.sqrt(eps * rho) if rho is not None else tau
    L = math.inf if gradient_lipschitz is None else _positive(gradient_lipschitz=gradient_lipschitz)
    h = None if step is None else _positive(step=step)
    random = np.random.default_rng(0 if rng is None else rng)

    x = starting_point(x)
    space = Space(x)
    if not math.isfinite(space.norm(x)):
        raise ValueError("x is not finite: it has NaN or infinite entries; certify a finite point")
    oracle = Oracle(fun, jac, _tuple(args), space)
    sample = oracle.gradient(x)
    if not sample.finite:
        raise ValueError(
            f"the gradient at x is not finite (its norm is {sample.grad_norm}); check jac there"
        )
    sample = Sample(x, gradient=space.copy(sample.gradient), grad_norm=sample.grad_norm)
    hessian = _Hessian(oracle, sample, hessp, _tuple(args))
    limit = max(space.size + 2, STEPS + 3) if max_products is None else max_products

    def certificate(verdict: Verdict, message: str, **numbers: Any) -> Certificate:
        size = "<=" if sample.grad_norm <= eps else ">"
        return Certificate(
            verdict=verdict,
            message=f"|grad f(x)| = {sample.grad_norm:.3g} {size} eps = {eps:.3g}{message}",
            grad_norm=sample.grad_norm,
            eps=eps,
            curvature_tolerance=numbers.pop("tau", math.nan if tau is None else tau),
            products=hessian.products,
            nfev=oracle.nfev,
            njev=oracle.njev,
            **numbers,
        )

    if sample.grad_norm > eps:
        return certificate(
            Verdict.NOT_STATIONARY, ": not a stationary point (the curvature was not looked at)"
        )
    if space.size == 0:
        nothing = {"smallest_eigenvalue": math.inf, "eigenvalue_error": 0.0, "lower_bound": math.inf}
        return certificate(Verdict.SECOND_ORDER, ": x has no entries", **nothing)
    dense = space.size <= DENSE and space.size + hessian.checks <= limit
    steps = space.size if dense else min(space.size, STEPS, limit - hessian.checks - hessian.extra)
    if max_products is not None and not dense:
        steps = min(space.size, limit - hessian.checks - hessian.extra)
    if steps < 1:
        return certificate(
            Verdict.FIRST_ORDER,
            f": a stationary point, of its curvature nothing is known; max_products={limit} allows "
            f"no look at it, {hessian.checks + hessian.extra + 1} is the least",
        )
    hessian.prepare(h, rho, tau, steps)
