"""Is x a first-order or a second-order stationary point?  Says so with numbers.

The Hessian is only ever multiplied by vectors: by all unit vectors where there are few of them, and
then the answer is certain; otherwise by a Krylov basis from a random start (Lanczos), and then
negative curvature that was found is certain, its absence up to a stated probability.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from momentous.certify.curvature import (
    MARGIN,
    NEGLIGIBLE,
    RELATIVE,
    ROUNDS,
    SAMPLES,
    Goal,
    Hessian,
    find_scales,
    lanczos,
    whole_matrix,
)
from momentous.certify.face import Face, face_in_box, face_of_term
from momentous.core.admission import Fun, seed_of, starting_point
from momentous.core.box import read_bounds
from momentous.core.machine import has_kinks
from momentous.core.method import DEFAULT_TOLERANCE, is_number
from momentous.core.oracle import Oracle, Sample
from momentous.core.penalties import TERMS, add_penalty
from momentous.core.result import in_lines
from momentous.core.rounded import at_least, at_most
from momentous.core.sources import Jac, function_source
from momentous.core.space import Array, Space
from momentous.distributed.driver import RanksArgument, layout_of
from momentous.io.types import AnyFunction, JsonObject

DENSE = 500  # up to this many variables the whole matrix is formed
# Lanczos steps by default, and as many vectors in memory: enough to rule out, but for a probability
# of 1e-3, eigenvalues below minus a thousandth of the largest among up to 1e9 (Goal.miss).
STEPS = 300


class Verdict(enum.StrEnum):
    """The verdict on a point."""

    NOT_STATIONARY = "not stationary"  # |grad f(x)| > eps; the curvature was not looked at
    FIRST_ORDER = "first-order"  # |grad f(x)| <= eps; the curvature is not settled
    SECOND_ORDER = "second-order"  # ... and no eigenvalue of the Hessian is below -tau, or negative
    SADDLE = "saddle"  # ... but one of them is: a saddle or a maximum
    NOT_CERTIFIABLE = "not certifiable"  # ... but Hessian products are too inaccurate for that tau


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """The verdict of :func:`certify`, with its numbers.

    Attributes
    ----------
    verdict, message
        What x is; in words too, with the numbers and, where there is one, the remedy.
    grad_norm, eps, curvature_tolerance
        The norm of the gradient at x, what it may be, and tau: eigenvalues from -tau on are fine.
        Where no tau was given it is what the error of one that is not clearly positive may be.
    smallest_eigenvalue, eigenvalue_error
        t, that of the Hessian; with Lanczos, which stops as soon as it can decide, the smallest
        Ritz value: an upper bound.  NaN if the Hessian was not looked at, infinite if x has no
        entries.  The error is an estimate of what inaccurate Hessian products did to it.  Where
        only scaled variables show the sign, t is the curvature along ``direction``, an upper bound.
    lower_bound
        No eigenvalue is below this, within the error estimate; with Lanczos that holds with
        probability at least ``1 - failure_probability``.
    probability
        Upper bound on the probability that the verdict is wrong for an unlucky random start: 0
        unless it is ``SECOND_ORDER`` by Lanczos.
    residual
        ``|H w - t w|``, w the unit vector of t, from a fresh product.  A small one says that t is
        near an eigenvalue, not that it is the smallest.
    products, nfev, njev
        Hessian-vector products, values and gradients, those behind differences too.
    direction
        For ``SADDLE`` the vector w, an array like x, downhill: ``<grad f(x), w> <= 0``; or None.
    active, multipliers
        With bounds: where they hold x (-1 at the lower, 1 at the upper, 0 between), and the
        gradient there, 0 elsewhere.  ``grad_norm`` is then that of x - P(x - grad f(x)), and the
        eigenvalues are those of the Hessian of the free variables.
    weakly_active
        The flat indices of variables at bounds with multipliers of at most eps.  Without any,
        complementarity is strict, and a second-order point of the face is one in the box.
    longest_step
        How far x may go along ``direction``, either way, within the bounds.
    penalty
        The simple term, if there is one.  ``grad_norm`` is then that of x - prox(x - grad f(x), 1),
        ``active`` is 1 where the term holds an entry at 0, or a group within a few eps of it,
        and the eigenvalues are those of the Hessian of f + h along what it leaves free.
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
    active: Array | None = field(default=None, repr=False)
    multipliers: Array | None = field(default=None, repr=False)
    weakly_active: tuple[int, ...] = ()
    longest_step: float = field(default=math.inf, repr=False)
    penalty: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        names = (
            "verdict", "message", "grad_norm", "eps", "curvature_tolerance",
            "smallest_eigenvalue", "lower_bound", "probability", "products", "nfev", "njev",
        )  # fmt: skip
        return in_lines({name: getattr(self, name) for name in names})

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
        self,
        fun: Fun,
        x: Array,
        args: object = (),
        *,
        jac: Jac = None,
        rho: float | None = None,
        ranks: RanksArgument = None,
    ) -> Array:
        """A point below the saddle x, along `direction`.

        Let ``-t`` be the curvature along it, its error allowed for.  With ``rho``, the Lipschitz
        constant of the Hessian, the step is ``s = 2 t / rho``: f falls by ``2 t^3 / (3 rho^2)`` at
        least.  Without it s is halved from 1, either way along the direction, until f falls by
        ``s^2 t / 4``.  With a simple term h that is f + h, points are brought back into its domain,
        and ``rho`` is not used.  ``fun``, ``x``, ``args``, ``jac`` and ``ranks`` are as for
        :func:`certify`; only values are computed, and none with ``rho``.
        """
        if self.direction is None:
            raise ValueError(f"x is {self.verdict.value}: there is no direction to escape along")
        _check_positive(rho=rho)
        x, w = starting_point(x), self.direction
        if Space(x) != Space(w):
            raise ValueError(
                f"x is {Space(x).describe()} and the direction {Space(w).describe()}; pass the x "
                "that was certified"
            )
        t = -(self.smallest_eigenvalue + self.eigenvalue_error)
        if rho is not None and self.penalty is None:
            return x + min(2.0 * t / rho, self.longest_step) * w
        layout = layout_of(ranks)
        with layout.announced():
            space = layout.space(layout.start(x))
            if self.penalty is not None:
                add_penalty(self.penalty, None, space, x)
            jac = True if jac is True else "2-point"  # only values are asked for
            oracle = layout.oracle(function_source(fun, jac, _tuple(args), space))
            value, s = oracle.value(x), min(1.0, self.longest_step)
            while s > math.sqrt(space.rounding):
                for candidate in (x + s * w, x - s * w):
                    if space.penalty is not None:
                        candidate = space.penalty.prox(space, candidate, 0.0)
                    if oracle.value(candidate) <= value - s * s * t / 4.0:
                        return candidate
                s /= 2.0
        raise RuntimeError(
            f"f(x) = {value:.6g} does not fall along a direction of curvature {-t:.3g}, by steps "
            f"from 1 to {s:.1g}: is fun the function whose gradient was certified?"
        )


def certify(
    fun: Fun,
    x: Array,
    args: object = (),
    *,
    jac: Jac = None,
    eps: float = DEFAULT_TOLERANCE,
    rho: float | None = None,
    curvature: float | None = None,
    hessp: AnyFunction | None = None,
    failure_probability: float = 1e-3,
    max_products: int | None = None,
    gradient_lipschitz: float | None = None,
    step: float | None = None,
    rng: int | np.random.Generator | None = 0,
    ranks: RanksArgument = None,
    bounds: object = None,
    penalty: object = None,
) -> Certificate:
    """Decide whether x is an eps-approximate first-order or second-order stationary point.

    It is of first order if ``|grad f(x)| <= eps``, and of second order if moreover no eigenvalue of
    the Hessian is below ``-tau``, where ``tau = sqrt(eps rho)`` [1]_.  Where the gradient is too
    large, the Hessian is not looked at.

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
        What the norm of the gradient may be: 1e-5, as for `minimize`, or the tolerance of the run.
    rho : float, optional
        Lipschitz constant of the Hessian, ``tau = sqrt(eps rho)``.
    curvature : float, optional
        tau itself, in place of ``rho``.  With neither, the sign decides (see Notes).
    hessp : callable, optional
        ``hessp(x, v, *args) -> array``, exact Hessian-vector products; by default differences of
        gradients.
    failure_probability : float
        The probability p with which Lanczos may miss a negative eigenvalue.
    max_products : int, optional
        Hessian-vector products allowed, 0 for a look at the gradient only.  By default all that the
        whole matrix takes, or about 300 with Lanczos, which keeps a vector like x for each.
        Some check the others: one of ``hessp``, up to 3 with ``rho``, up to 24 otherwise; and up to
        16 find scales for Lanczos, where no tau is given.
    gradient_lipschitz : float, optional
        L, a bound on the absolute eigenvalues: it may save products.
    step : float, optional
        The length h of difference steps, in place of one that is found.
    rng : int, numpy.random.Generator or None
        Where the random start comes from; None is 0.
    ranks : {"data", "variables"}, optional
        On several processes, as for `minimize`; ``hessp`` is summed, or gives a part, as ``jac``.

    bounds : optional
        Bounds of x, as for `minimize`.  First order then means that x - P(x - grad f(x)) is small,
        P the projection onto the box, and second order is that of the free variables, with those
        at bounds held, where all multipliers are above eps: `Certificate.weakly_active` names the
        others.  A variable that is near a bound to which f falls, but not at it, is not held by it:
        then the verdict is ``FIRST_ORDER`` at best.  No gradient is taken outside.
    penalty : optional
        A simple term h that is added to ``fun``, as for `minimize`.  First order then means that
        x - prox(x - grad f(x), 1) is small, and second order is that of f + h along what h leaves
        free: the entries or groups that are not 0, the sum of a simplex, the sphere of a ball, with
        the curvature of norms and spheres there.  Of a term of your own that is not known, and the
        verdict is ``FIRST_ORDER`` at best.

    Notes
    -----
    *Eigenvalues.*  With up to 500 variables, ``max_products`` permitting, the whole matrix is
    formed.  Otherwise the Lanczos process with full reorthogonalisation starts from q, uniform on
    the sphere.  After j steps the smallest Ritz value exceeds the smallest eigenvalue by more than
    ``delta`` times the length of the spectrum only if the eigenvector e has
    ``|<q, e>| cosh((2j-1) artanh(sqrt(delta))) < 1``.  The probability of that is at most
    ``1.6 sqrt(d) exp(-(2j-1) sqrt(delta))``, which is the bound of [2]_; as an event of q alone it
    covers all j at once, so the process may stop as soon as it can decide.  The length of the
    spectrum is bounded in the same way, from the Ritz values at both ends.

    *Without tau* the sign decides.  D H D, D diagonal and positive, has as many negative
    eigenvalues as H, and is not dominated by a variable in other units: D is such that all rows
    have the same size [3]_ (for Lanczos: by products with random vectors [4]_), or 1 where these
    differ by little.  The point is a saddle if the smallest eigenvalue is below zero by 4 times its
    error, and of second order if it is not below zero by more than its error, and then by no more
    than 1e-6 of the largest (1e-3 with Lanczos, ``sqrt(u)`` in low precision).  Else the curvature
    is not resolved, and the verdict is ``FIRST_ORDER``.

    *Products.*  With ``rho`` the error of a product is at most ``rho h / 2`` before rounding.
    Where that does for tau, forward differences: one gradient, ``h = 2 sqrt(u) (1 + |x|)`` with the
    unit roundoff u.  Otherwise central differences, two gradients: ``h = u^(1/3) (1 + |x|)``, and
    with ``rho`` no longer than ``tau / (8 rho sqrt(m))``, m the number of products.  The error
    estimate adds up the bound, the rounding to be expected, and half the asymmetry of the
    (projected) matrix.

    Without ``rho`` nothing tells how far from x the function bends, least of all ``|x|``.  So
    products with one vector are compared for up to six lengths from h down to ``32 u (1 + |x|)``,
    and h is the longest that the shorter ones agree with.  For the whole matrix that is done along
    each variable, x being what it moves, which takes four products or, where they differ, up to
    eight; with Lanczos along a random vector.  In place of the bound stands twice what a shorter
    step changes beyond noise (which is measured): there, along the eigenvector and, where the whole
    matrix is formed, along a random vector, and what of that the matrix does not explain.  It is an
    estimate, not a bound: what f does within less than ``32 u (1 + |x|)``, or what changes a
    product by less than its noise at so short a step, escapes it.

    With a tau: if the error exceeds a quarter of tau and of the eigenvalue, or rounding a 16th of
    h, the verdict is ``NOT_CERTIFIABLE``.

    References
    ----------
    .. [1] H. Li and Z. Lin, "Restarted nonconvex accelerated gradient descent: no more
       polylogarithmic factor in the O(eps^(-7/4)) complexity", J. Mach. Learn. Res. 24 (2023).
    .. [2] J. Kuczynski and H. Wozniakowski, "Estimating the largest eigenvalue by the power and
       Lanczos algorithms with a random start", SIAM J. Matrix Anal. Appl. 13 (1992), 1094-1122.
    .. [3] D. Ruiz, "A scaling algorithm to equilibrate both rows and columns norms in matrices",
       Rutherford Appleton Laboratory, RAL-TR-2001-034 (2001).
    .. [4] A. M. Bradley and W. Murray, "Matrix-free approximate equilibration", arXiv:1110.2805
       (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from momentous import certify
    >>> def f(x):
    ...     return float(np.sum(x**4 - 2 * x**2)), 4 * x**3 - 4 * x
    >>> found = certify(f, np.array([0.0, 1.0]), jac=True, eps=1e-6)
    >>> found.verdict.name, round(found.smallest_eigenvalue, 6)
    ('SADDLE', -4.0)
    >>> certify(f, np.array([-1.0, 1.0]), jac=True, eps=1e-6).is_second_order
    True
    """
    if eps is None:
        raise ValueError("eps=None must be a positive number")
    _check_positive(
        eps=eps, rho=rho, curvature=curvature, step=step, gradient_lipschitz=gradient_lipschitz
    )
    if rho is not None and curvature is not None:
        raise ValueError(
            f"rho={rho!r} and curvature={curvature!r} are both given, but curvature stands in place"
            " of sqrt(eps*rho): give one of them"
        )
    if not (is_number(failure_probability) and 0.0 < failure_probability < 1.0):
        raise ValueError(f"failure_probability={failure_probability!r} must be between 0 and 1")
    if not (
        max_products is None or (isinstance(max_products, int | np.integer) and max_products >= 0)
    ):
        raise ValueError(f"max_products={max_products!r} must be a whole number >= 0 or None")
    if hessp is not None and not callable(hessp):
        raise TypeError(f"hessp={hessp!r} must be callable or None")
    if not (callable(jac) or jac is True or jac == "autodiff"):
        raise ValueError(
            f"jac={jac!r}: a certificate needs gradients, differences of fun are too inaccurate; "
            "pass a callable, True if fun returns (f, g), or 'autodiff' for PyTorch and JAX"
        )
    layout = layout_of(ranks)
    with layout.announced():
        x = layout.given(
            x, eps=eps, rho=rho, curvature=curvature, failure_probability=failure_probability,
            max_products=max_products, gradient_lipschitz=gradient_lipschitz, step=step,
        )  # fmt: skip
        space = layout.space(x)
        if penalty is not None:
            bounds = add_penalty(penalty, bounds, space, x)
        space.box = read_bounds(bounds, space)
        if space.box is not None:
            space.box.set_tolerance(float(eps))
        if not math.isfinite(space.norm(x)):
            raise ValueError(
                f"x is not finite (its norm is {space.norm(x)}); certify a finite point"
            )
        if has_kinks(space):
            _require_inside(x, space)
        oracle = layout.oracle(function_source(fun, jac, _tuple(args), space))
        sample = oracle.gradient(x)
        if not sample.has_finite_gradient:
            raise ValueError(
                f"the gradient at x is not finite (its norm is {sample.grad_norm}); check jac there"
            )
        eps = float(eps)
        tau = curvature if rho is None else math.sqrt(eps * rho)

        def certificate(
            verdict: Verdict, words: str, numbers: JsonObject | None = None
        ) -> Certificate:
            known: JsonObject = {"curvature_tolerance": math.nan if tau is None else tau}
            norm, relation = sample.grad_norm, "<=" if sample.grad_norm <= eps else ">"
            size = "|grad f(x)|"
            if space.box is not None:
                size = "|x - P(x - grad f(x))|"
                if space.box.unit is not None:
                    size = "|x - P(x - t grad f(x))|/t"
                    words += "; t is the width between narrow bounds, and 1 elsewhere"
                if note := space.box.narrow(space, x, sample.gradient, eps):
                    words += f"; eps = {note}"
            elif space.penalty is not None:
                size = "|x - prox(x - grad f(x), 1)|"
                if not space.penalty.has_unit_step(x):
                    size = "|x - prox(x - t grad f(x), t)|/t"
                    words += "; t is below 1, since the set is small, or the weight above 1"
            return Certificate(
                verdict=verdict,
                penalty=None if space.penalty is None else penalty,
                message=f"{size} = {norm:.3g} {relation} eps = {eps:.3g}; {words}",
                grad_norm=norm,
                eps=eps,
                nfev=oracle.nfev,
                njev=oracle.njev,
                **(known | (numbers or {})),
            )

        if sample.grad_norm > eps:
            words = "x is not stationary, and its curvature was not looked at"
            return certificate(Verdict.NOT_STATIONARY, words)
        asked = _Question(
            rho, tau, failure_probability, max_products, gradient_lipschitz, step, seed_of(rng)
        )
        given = layout.products(hessp, space), _tuple(args)
        if has_kinks(space):
            find = face_in_box if space.penalty is None else face_of_term
            face = find(oracle, sample, eps)
            if face is None:
                words = (
                    f"what h leaves free is known of {TERMS} alone, so its curvature was not looked"
                    " at: give one of these where h is one"
                )
                return certificate(Verdict.FIRST_ORDER, words)
            return _on_face(face, face.products(*given), asked, certificate)
        return certificate(*_examine(oracle, sample, *given, asked))


@dataclass(frozen=True)
class _Question:
    """What is to be shown of a Hessian, and with what."""

    rho: float | None
    tau: float | None
    failure_probability: float
    max_products: int | None
    gradient_lipschitz: float | None
    step: float | None
    seed: int


def _examine(
    oracle: Oracle,
    sample: Sample,
    hessp: AnyFunction | None,
    args: tuple[object, ...],
    asked: _Question,
    room: Array | None = None,
) -> tuple[Verdict, str, JsonObject]:
    """The verdict on the Hessian at a stationary point, in words and numbers too."""
    space, rho, max_products = oracle.space, asked.rho, asked.max_products
    d, without_tau = space.dimension, asked.tau is None
    if d == 0:
        ends = {"smallest_eigenvalue": math.inf, "eigenvalue_error": 0.0, "lower_bound": math.inf}
        return Verdict.SECOND_ORDER, "x has no entries", ends

    hessian = Hessian(oracle, sample, hessp, args, asked.step, room)
    is_measured = rho is None and hessp is None  # what products are worth
    whole = hessian.check_products(rho, dense=True) + (0 if is_measured else d)
    checks = hessian.check_products(rho, dense=False) + (ROUNDS * SAMPLES if without_tau else 0)
    if max_products is None:
        max_products = whole if d <= DENSE else STEPS + checks
    dense = d <= DENSE and whole <= max_products
    steps = d if dense else min(d, int(max_products) - checks)
    if steps < 1:
        words = f"its curvature is unknown, since max_products={max_products} allows no look at "
        words += f"it: {checks} check the others, so it takes {checks + 1} at least"
        return Verdict.FIRST_ORDER, words, {}
    q = space.normal(asked.seed)
    q = q * (1.0 / space.norm(q))
    negligible = max(NEGLIGIBLE, math.sqrt(space.rounding)) if dense else RELATIVE
    L = asked.gradient_lipschitz or math.inf
    goal = Goal(asked.tau, d, asked.failure_probability, L, negligible)
    H, lost = None, math.inf  # the Hessian itself, where it is whole, and its error
    if not dense:
        if without_tau:
            find_scales(hessian, asked.seed)
        hessian.choose_step(rho, asked.tau, steps, q)
        basis, G, beta = lanczos(hessian, q, steps, goal)
    else:
        if not is_measured:
            hessian.choose_step(rho, asked.tau, steps, q)
        found = whole_matrix(hessian, is_measured, without_tau, q)
        basis, G, beta = found.basis, found.matrix, 0.0
        H, lost = G / found.scales / found.scales[:, None], found.error
        lost += float(np.linalg.norm(H - H.T, 2)) / 2.0

    ritz, vectors = np.linalg.eigh((G + G.T) / 2.0)
    t, along = float(ritz[0]), vectors[:, 0]
    plain: tuple[float, float] | None = None  # the smallest eigenvalue of H, and its error
    if H is not None and hessian.scales is not None:
        values, vectors = np.linalg.eigh((H + H.T) / 2.0)
        lost += 8.0 * space.rounding * float(np.max(np.abs(values)))
        plain = float(values[0]), lost
        if plain[0] + MARGIN * lost < 0.0:  # a direction for x, rather than for scaled variables
            along = vectors[:, 0] / found.scales
    w = sum((float(s) * q for s, q in zip(along, basis, strict=True)), 0.0 * q)
    downhill = -1.0 if space.inner(sample.gradient, hessian.scaled(w)) > 0.0 else 1.0
    w = space.xp.asarray(w * (downhill / space.norm(w)))  # NumPy has made a number of a 0-d array
    if dense and is_measured:
        Hw = hessian.compare(G, w)
        apart = 0.0
    else:
        Hw = hessian.checked(w)
        apart = abs(space.inner(w, Hw) - t)
    error = hessian.error(ritz) + float(np.linalg.norm(G - G.T, 2)) / 2.0 + apart
    lower = t - error - (0.0 if dense else goal.miss(ritz, beta, error))
    lower = lower if hessian.scales is not None else max(lower, -goal.L)
    tau = goal.tolerance(ritz)
    numbers: JsonObject = {
        "smallest_eigenvalue": t,
        "eigenvalue_error": error,
        "lower_bound": lower,
        "residual": space.norm(Hw - t * w),
        "products": hessian.products,
        "curvature_tolerance": tau,
    }
    direction = w
    is_saddle = goal.is_saddle(t, error)
    is_minimum = not is_saddle and goal.is_minimum(t, error, lower, ritz)
    more = None if dense else goal.steps_needed(ritz, error)
    noun = "eigenvalue of the Hessian" if dense else f"Ritz value of {len(basis)} Lanczos steps"
    if hessian.scales is not None:
        direction = _in_units_of_x(hessian, w, Hw, plain, is_saddle, numbers)
        t_x, error_x = plain or (0.0, math.inf)
        if (is_saddle and t_x + MARGIN * error_x < 0.0) or (is_minimum and t_x > error_x):
            t, error, lower = t_x, error_x, numbers["lower_bound"]  # as clear without scales
        else:
            # Only ratios are known of scales.
            largest = float(np.max(np.abs(ritz))) or 1.0
            t, error, lower, tau = (each / largest for each in (t, error, lower, tau))
            noun = f"{noun} in scaled variables, where it has the same sign and the largest is 1,"
    words = f"the smallest {noun} is {t:.6g} with an estimated error of {at_most(error, 1)}"
    fall = -numbers["smallest_eigenvalue"] / 2.0
    down = f"over a short step s along `direction` f falls by about {fall:.3g} s^2 (see `escape`)"
    p = 0.0 if dense else asked.failure_probability
    chance = "" if dense else f" (but for a probability of {p:g})"
    none = f"none is below {at_least(lower)}{chance}"
    enough = more and f"max_products={more + checks} should do, with memory for as many vectors"

    if without_tau:
        if is_saddle:
            words = f"x is a saddle or a maximum: {words}, so it is below zero; {down}"
            return Verdict.SADDLE, words, numbers | {"direction": direction}
        if is_minimum:
            small = f", which is within {negligible:g} of the largest" if lower < 0.0 else ""
            words = f"{words}, and {none}{small}"
            return Verdict.SECOND_ORDER, words, numbers | {"probability": p}
        words = f"the curvature is not resolved: {words}"
        if error > tau:
            words += f"; {hessian.remedy}"
        elif t < -error:
            words += f", and what is negative by less than {MARGIN:g} times its error may be 0"
        elif enough:
            words += f", but smaller ones are not ruled out yet; {enough}"
        return Verdict.FIRST_ORDER, words, numbers
    limit = f"-tau = {at_least(-tau)}"
    if error > max(tau, abs(t)) / 4.0:
        words = f"{words}, which must be below tau/4 to compare with {limit}; {hessian.remedy}, or "
        words += "accept a larger tau"
        return Verdict.NOT_CERTIFIABLE, words, numbers
    if is_saddle:
        words = f"x is a saddle or a maximum: {words}, below -tau = {at_most(-tau)}; {down}"
        return Verdict.SADDLE, words, numbers | {"direction": direction}
    if is_minimum:
        words = f"{words}, and {none}, so none is below {limit}"
        return Verdict.SECOND_ORDER, words, numbers | {"probability": p}
    if enough:
        words = f"{words}, but smaller ones, below {limit}, are not ruled out yet; {enough}"
        return Verdict.FIRST_ORDER, words, numbers
    return Verdict.FIRST_ORDER, f"{words}, too close to {limit} to tell which is smaller", numbers


def _in_units_of_x(
    hessian: Hessian,
    w: Array,
    product: Array,
    plain: tuple[float, float] | None,
    is_saddle: bool,
    numbers: JsonObject,
) -> Array:
    """The direction of w, a unit vector of scaled variables with its product; and the numbers of H
    in place of those of D H D, of which ``plain`` has the smallest eigenvalue and its error.

    The curvature along a direction bounds the smallest eigenvalue of H from above.  From below the
    numbers of D H D do (Ostrowski): they are those of H times something from min D^2 to max D^2.
    """
    space, scales = hessian.space, hessian.scales
    moved = hessian.scaled(w)
    size = space.norm(moved)
    direction = space.xp.asarray(moved * (1.0 / size))
    sizes, lower = space.whole(scales).astype(float), numbers["lower_bound"]
    lower /= float(np.min(sizes) if lower < 0.0 else np.max(sizes)) ** 2
    along = space.inner(w, product) / size**2
    t, error = along, numbers["eigenvalue_error"] / size**2
    if plain is not None:
        lower = max(lower, plain[0] - plain[1])
        if not is_saddle or plain[0] + MARGIN * plain[1] < 0.0:
            t, error = plain
    image = space.each(_over, product, scales) * (1.0 / size)
    numbers |= {
        "smallest_eigenvalue": t,
        "eigenvalue_error": error,
        "lower_bound": lower,
        "residual": space.norm(image - along * direction),
    }
    return direction


def _over(xp: Any, a: Array, b: Array) -> Array:
    return a / b


def _on_face(
    face: Face, hessp: AnyFunction | None, asked: _Question, certificate: Callable[..., Certificate]
) -> Certificate:
    """The certificate of a point where something is held, from what is left free."""
    oracle = Oracle(function_source(face.value, face.gradient, (), Space(face.point)))
    sample = oracle.gradient(face.point)
    verdict, words, numbers = _examine(oracle, sample, hessp, (), asked, face.room)
    words = words.replace("the Hessian", face.noun) if face.free.size else "no variable is free"
    if "direction" in numbers:
        numbers["direction"] = face.spread(numbers["direction"])
    face.report(numbers, numbers.get("direction"))
    if face.is_open and verdict is Verdict.SECOND_ORDER:
        verdict = Verdict.FIRST_ORDER  # f may fall from what is held
    return certificate(verdict, f"{words}; {face.words()}", numbers | {"weakly_active": face.weak})


def _require_inside(x: Array, space: Space) -> None:
    given = "bounds" if space.penalty is None else "penalty"
    if space.is_part:
        raise ValueError(f"{given}= and ranks='variables' cannot be certified together yet")
    if space.penalty is not None:
        if not math.isfinite(space.penalty.value(space, x)):
            raise ValueError(
                f"penalty={space.penalty.given!r} is infinite at x: certify a point where it is "
                "finite, such as prox(x, 1)"
            )
        return
    apart = space.distance(x, space.box.clip(space, x))
    if apart > 0.0:
        raise ValueError(f"x lies outside of the bounds, by {apart:.3g}: certify a point within")


def _check_positive(**arguments: float | None) -> None:
    for name, value in arguments.items():
        if value is not None and not (is_number(value) and 0.0 < value < math.inf):
            raise ValueError(f"{name}={value!r:.200} must be a positive number")


def _tuple(args: object) -> tuple[object, ...]:
    return args if isinstance(args, tuple) else (args,)
