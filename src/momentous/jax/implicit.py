"""The derivative of a solution by the arguments of its function: the implicit function theorem.

Where grad f(x, a) = 0 and the Hessian H is positive definite, x is a smooth function of a, with
dx = -H^-1 d(grad f) for a change of a alone.  Up to 500 variables H is formed and factored: that
serves every definite H whose condition the precision can resolve, and tells whether it is definite.
Of more variables H is only multiplied with vectors, in conjugate gradients.  With a random
right-hand side these also tell whether H is definite: such a vector has a part in every
eigenvector.  An ill-conditioned H may need more of them than are allowed: then a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from momentous.core.box import Sides
from momentous.jax.driver import Function
from momentous.jax.machine import inner, number

# A curvature below so many units of rounding of the largest is none.
FLAT = 64.0
MOST_FACTORED = 500  # variables, as in `certify`
COLUMNS_AT_ONCE = 16  # of the Hessian: more take memory, fewer time


def change_of_solution(
    fun: Function, x: jax.Array, given: Any, change: Any, is_solution: jax.Array,
    held: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """dx and d(aux) where the arguments change by ``change``; NaN where there is no such
    derivative: x must be a solution, and its Hessian positive definite.

    ``held`` is what `at_bounds` says: variables at bounds go where these go, and the Hessian is
    that of the others.  That their multipliers are not 0 is taken for granted."""

    def gradient(x: jax.Array, given: Any) -> jax.Array:
        return jax.grad(fun, has_aux=True)(x, given)[0]

    def whole_product(v: jax.Array) -> jax.Array:
        return jax.jvp(lambda x: gradient(x, given), (x,), (v,))[1]

    product, pull = whole_product, jax.jvp(lambda given: gradient(x, given), (given,), (change,))[1]
    if held is not None:
        at, along = held
        pull = jnp.where(at, -along, pull + whole_product(along))

        def product(v: jax.Array) -> jax.Array:
            return jnp.where(at, v, whole_product(jnp.where(at, 0.0, v)))

    if x.size <= MOST_FACTORED:
        solve, definite = factored(product, x)
    else:
        drawn = jax.random.normal(jax.random.key(0), x.shape, x.dtype)
        definite = conjugate_gradients(product, drawn)[1]
        jax.debug.callback(partial(_warn_of_failure, x.size), is_solution & ~definite)

        def solve(b: jax.Array) -> jax.Array:
            return conjugate_gradients(product, b)[0]

    smooth = is_solution & definite
    moved = jax.lax.custom_linear_solve(product, pull, lambda _, b: solve(b), symmetric=True)
    dx = moved * jnp.where(smooth, -1.0, jnp.nan).astype(x.dtype)
    return dx, jax.jvp(lambda *of: fun(*of)[1], (x, given), (dx, change))[1]


def at_bounds(x: jax.Array, sides: Sides, changes: Sides) -> tuple[jax.Array, jax.Array]:
    """Which variables are at bounds, and how x changes with these alone."""
    low, high = x <= sides.lb, x >= sides.ub
    along = jnp.where(low, changes.lb, jnp.where(high, changes.ub, 0.0))
    return low | high, along.astype(x.dtype)


def factored(
    product: Callable[[jax.Array], jax.Array], x: jax.Array
) -> tuple[Callable[[jax.Array], jax.Array], jax.Array]:
    """What gives u with H u = b, and whether H is positive definite beyond rounding.

    Units of the variables do not matter: H is scaled to a diagonal of 1."""
    d, wide = x.size, jnp.promote_types(x.dtype, jnp.float32)
    if not d:
        return lambda b: b, jnp.asarray(True)
    chunks = -(-d // COLUMNS_AT_ONCE)
    units = jnp.eye(chunks * COLUMNS_AT_ONCE, d, dtype=x.dtype)
    rows = jax.lax.map(jax.vmap(product), units.reshape(chunks, COLUMNS_AT_ONCE, *x.shape))
    H = jax.lax.stop_gradient(rows.reshape(-1, d)[:d].astype(wide))
    scale = 1 / jnp.sqrt(jnp.diagonal(H))  # not a number where it is no minimum
    lower = jnp.linalg.cholesky((H + H.T) / 2 * scale * scale[:, None])
    pivots = jnp.diagonal(lower) ** 2
    definite = jnp.all(pivots > FLAT * float(jnp.finfo(wide).eps))

    def solve(b: jax.Array) -> jax.Array:
        u = jax.scipy.linalg.cho_solve((lower, True), scale * b.astype(wide).reshape(d))
        return (scale * u).astype(b.dtype).reshape(b.shape)

    return solve, definite


def _warn_of_failure(size: int, failed: Any) -> None:
    if np.any(failed):
        warnings.warn(
            f"the derivative of a solution of {size} variables is NaN: its Hessian is singular, "
            "indefinite, or too ill-conditioned for conjugate gradients; scale the variables "
            "alike, or add a penalty such as 1e-6 |x|^2",
            RuntimeWarning,
            stacklevel=2,
        )


def conjugate_gradients(
    product: Callable[[jax.Array], jax.Array], b: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """u with H u = b, and whether it was found, along directions of positive curvature; NaN where
    it was not, or where b is NaN."""

    def combine(a: jax.Array, weight: jax.Array, b: jax.Array) -> jax.Array:
        return a + weight.astype(b.dtype) * b

    eps, most = float(jnp.finfo(b.dtype).eps), 100 + 10 * b.size
    goal = eps**1.5 * inner(b, b)

    def goes_on(state: Any) -> Any:
        _, _, _, square, _, positive, i = state
        return positive & (square > goal) & (i < most)

    def step(state: Any) -> Any:
        u, r, p, square, largest, _, i = state
        q = product(p)
        bend, size = inner(p, q), inner(p, p)
        largest = jnp.maximum(largest, bend / size)
        positive = bend > FLAT * eps * largest * size
        share = square / jnp.where(positive, bend, 1.0)
        u, r = combine(u, share, p), combine(r, -share, q)
        after = inner(r, r)
        return u, r, combine(r, after / square, p), after, largest, positive, i + 1

    first = (jnp.zeros_like(b), b, b, inner(b, b), number(0.0), jnp.asarray(True), 0)
    u, _, _, square, _, positive, _ = jax.lax.while_loop(goes_on, step, first)
    # Rounding may keep it from the goal, but no further from it than this.
    found = positive & (square <= eps * inner(b, b))
    return jnp.where(found, u, jnp.nan), found


def changes(leaf: Any) -> bool:
    """Is it of real numbers, which have derivatives, or itself such a derivative?"""
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def no_change(leaf: Any) -> Any:
    """The derivative of what does not depend on the arguments."""
    if changes(leaf):
        return jnp.zeros_like(leaf)
    return np.zeros(np.shape(leaf), jax.dtypes.float0)
