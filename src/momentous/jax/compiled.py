"""`solve`: a whole run as one compiled loop, with nothing on the host between two evaluations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.status import Status
from momentous.jax.driver import Driver, State
from momentous.jax.vectors import Scalar, Tree
from momentous.methods.registry import method_class


class Solution(NamedTuple):
    """What `solve` returns: arrays, so that it can be vmapped and used in compiled code."""

    x: Tree  # the solution, with the structure, shapes and dtypes of x0
    fun: Scalar  # f(x)
    grad_norm: Scalar  # the Euclidean norm of the gradient there, NaN where a run has failed and
    # returns a point that it had accepted before
    aux: Any  # what fun has brought along at x (``has_aux=True``)
    success: Scalar
    status: Scalar  # a `momentous.Status`, as an integer
    nit: Scalar  # iterations as `momentous.minimize` counts them
    evaluations: Scalar  # values and gradients, one of each
    restarts: Scalar

    @property
    def message(self) -> str:
        """The status in words; outside of compiled code only."""
        return Status(int(self.status)).name.lower().replace("_", " ")


def solve(
    fun: Callable[..., Any],
    x0: Tree,
    args: tuple[Any, ...] = (),
    *,
    method: str | Method = "ada-ragd",
    tol: float = DEFAULT_TOLERANCE,
    rtol: float = 0.0,
    max_evaluations: int = 100_000,
    has_aux: bool = False,
    key: Any = None,
    **parameters: Any,
) -> Solution:
    """Minimise a function of JAX operations in one compiled loop.

    Every method that is a `momentous.Rule` takes the same steps here as in `momentous.minimize`:
    "auto", L-BFGS, the paper's methods and the parameter-free ones.  There is no trace, no callback
    and no checkpoint; nothing but ``max_evaluations`` ends a run whose f has no lower bound, or one
    that rests at the noise of its values.  In return nothing waits for the host, and the whole run
    can be jitted, vmapped and put into loops.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> value``, or ``(value, aux)`` with ``has_aux=True``; it must be traceable
        (no Python ``if`` on entries of x).  As under ``jax.jit``, what it reads besides x and args
        is read once.
    x0 : pytree of arrays
    args : tuple
        Further arguments; arrays in it may change from call to call without another compilation.
    method : str or Method
        A name such as "auto" or "ada-ragd", or an instance; methods that are no rules are refused
        with the list of those that are.
    tol, rtol : float
        Stop when the Euclidean norm of the gradient is at most tol + rtol |grad f(x0)|.
    max_evaluations : int
        Of value and gradient together.
    key : optional
        A key of ``jax.random``, for "perturbed-ragd".
    **parameters
        Those of the method, if it is given by name.

    Returns
    -------
    Solution
    """
    if isinstance(method, Method):
        if parameters:
            raise TypeError(
                f"solve() has no option {next(iter(parameters))!r}; the method is an instance "
                "already: give its parameters where it is made"
            )
    else:
        method = method_class(method)(**parameters)
    if key is None:
        key = jax.random.key(0)
    x0 = jax.tree.map(floating, x0)
    run = partial(_solve, fun, method, float(tol), float(rtol), has_aux)
    return run(x0, args, key, max_evaluations)  # type: ignore[no-any-return]


def floating(leaf: Any) -> Any:
    """A leaf as an array of floating-point numbers."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        raise TypeError(
            f"x0 has a leaf of dtype {leaf.dtype}; split it into real and imaginary parts, "
            "momentous minimises over real numbers only"
        )
    return leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(float)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _solve(
    fun: Callable[..., Any],
    method: Method,
    tol: float,
    rtol: float,
    has_aux: bool,
    x0: Tree,
    args: tuple[Any, ...],
    key: Any,
    most: Any,
) -> Solution:
    def with_aux(x: Tree, args: tuple[Any, ...]) -> tuple[Scalar, Any]:
        return fun(x, *args) if has_aux else (fun(x, *args), None)

    value, shapes = jax.eval_shape(with_aux, x0, args)
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"fun returned {value.dtype}{list(value.shape)}; it must return one real number"
            + ("" if has_aux else ", or a pair with has_aux=True")
        )
    driver = Driver(method, with_aux, args, x0, rtol=rtol, atol=tol, key=key)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def goes_on(state: State) -> Scalar:
        return state.runs & (state.evaluations < most)

    state = jax.lax.while_loop(goes_on, driver.after_one, driver.begin(x0, nothing))
    state = driver.finished(state)
    return Solution(
        x=state.shown.sample.point,
        fun=state.shown.sample.value,
        grad_norm=state.shown.size,
        aux=state.shown.aux,
        success=state.succeeded,
        status=state.status,
        nit=state.iterations,
        evaluations=state.evaluations,
        restarts=state.restarts,
    )
