"""`solve`: a whole run as one compiled loop, with nothing on the host between two evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.extend.core import get_opaque_trace_state, jaxpr_as_fun, take_current_trace

from momentous.api import choose_method
from momentous.core.box import Box, Sides
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.penalties import bounds_or_term
from momentous.core.rule import Rule
from momentous.core.stopping import require, whole
from momentous.jax.driver import Driver, Function, Limits, Solution, State
from momentous.jax.flat import Flat, Tree, value_and_aux
from momentous.jax.implicit import at_bounds, change_of_solution, changes, no_change
from momentous.jax.machine import number
from momentous.jax.penalties import CompiledPenalty, as_argument
from momentous.methods.registry import in_box


def solve(
    fun: Callable[..., Any],
    x0: Tree,
    args: Any = (),
    *,
    method: str | Method | type[Method] | None = None,
    tol: float = DEFAULT_TOLERANCE,
    rtol: float = 0.0,
    max_evaluations: int | None = 100_000,
    max_iterations: int | None = None,
    has_aux: bool = False,
    key: Any = None,
    bounds: Any = None,
    penalty: Any = None,
    **parameters: Any,
) -> Solution:
    """Minimise a function of JAX operations in one compiled loop.

    Every method that is a `momentous.Rule` takes the same steps here as in `momentous.minimize`:
    "auto", L-BFGS, the paper's methods and the parameter-free ones.  There is no trace, no callback
    and no checkpoint.  In return nothing waits for the host, and the whole run can be jitted,
    vmapped and put into loops.

    A solution can be differentiated by ``args``, in forward and in reverse mode, by the implicit
    function theorem (`momentous.jax.implicit`); by x0 its derivative is zero.  It is NaN where a
    run has not succeeded, and that of x also where the Hessian is singular or indefinite.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> value``, or ``(value, aux)`` with ``has_aux=True``; it must be traceable
        (no Python ``if`` on entries of x).  As under ``jax.jit``, what it reads besides x and args
        is read once.
    x0 : pytree of arrays
    args : tuple
        Further arguments; arrays in it may change from call to call without another compilation.
    method : str, Method or class, optional
        As for `momentous.minimize`; methods that are no rules are refused with the list of those
        that are.
    tol, rtol : float
        Stop when the Euclidean norm of the gradient is at most tol + rtol |grad f(x0)|.
    max_evaluations, max_iterations : int, optional
        Limits on evaluations, of value and gradient together, and on iterations as
        `momentous.minimize` counts them; None: none.  They may be traced.
    key : optional
        A key of ``jax.random``, for "perturbed-ragd".
    bounds : optional
        ``(lower, upper)``, each a number, None or a tree like x0, so that bounds can be vmapped; or
        a tree like x0 with the bounds of each leaf, as for `momentous.minimize`; a tuple of two is
        that pair, where x0 is a tuple of two as well.  fun is never evaluated outside; an x0
        outside is moved to the nearest point inside; ``grad_norm`` is then the norm of
        x - P(x - gradient), P the projection onto the box.
    penalty : optional
        A simple term beside fun, as for `momentous.minimize`: ``fun`` of the solution is of both,
        ``grad_norm`` the norm of x - prox(x - gradient, 1).  Weights may be arrays of a compiled
        program, and vmapped.  A pytree other than one array is one flat vector to it.  A term of
        your own is read once, as fun is: change it by making another object, or register its class
        as a pytree, with the numbers that may change as leaves.  Solutions with a penalty have no
        derivative (NaN).
    **parameters
        Those of the method, if it is given by name.

    Returns
    -------
    Solution
    """
    method = choose_method(method, parameters, None, solve)
    for name, value in (("tol", tol), ("rtol", rtol)):
        if isinstance(value, jax.core.Tracer):
            raise TypeError(
                f"{name} is traced, but it is part of the compiled program: give a Python number, "
                "by static_argnames of the jit around, for example"
            )
        require(name, value, 0)
    most = Limits(
        _limit("max_evaluations", max_evaluations), _limit("max_iterations", max_iterations)
    )
    key = jax.random.key(0) if key is None else _checked_key(key)
    flat = Flat(x0)
    if penalty is not None:
        bounds, penalty = bounds_or_term(bounds, penalty)
    sides = None if bounds is None else flat.bounds(bounds)
    if sides is not None or penalty is not None:
        method = in_box(method, "bounds=" if penalty is None else "penalty=")
    term = None if penalty is None else as_argument(penalty)
    args = args if isinstance(args, tuple | list) else (args,)
    how = fun, float(tol), float(rtol), has_aux
    given = flat.tree(flat.vector), args, key, most, sides, term
    opening = method.opening() if isinstance(method, Rule) and _is_outermost() else None
    if opening is None:
        return _solve(method, *how, *given)  # type: ignore[no-any-return]
    state, is_over, found = _open(opening, *how, *given)
    return found if is_over else _resume(method, *how, state, *given)  # type: ignore[no-any-return]


def _limit(name: str, value: Any) -> Any:
    """A limit as a whole number, checked where it is known already."""
    if isinstance(value, jax.core.Tracer):
        return value
    given = math.inf if value is None else whole(name, value, 0)
    return int(min(given, np.iinfo(np.int32).max))  # which no run comes to


def _checked_key(key: Any) -> Any:
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise TypeError(f"key={key!r} must be a key of JAX, such as jax.random.key(0)")
    return key


def _is_outermost() -> bool:
    """Does nothing of JAX look on: no `jit`, `vmap` or `grad`?"""
    here = get_opaque_trace_state()
    with take_current_trace():
        return here == get_opaque_trace_state()  # type: ignore[no-any-return]


# Outside of `jit` the part of a program that most runs end in is compiled first, the whole of it
# only where it is needed.


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _open(
    opening: Method, fun: Callable[..., Any], tol: float, rtol: float, has_aux: bool, x0: Tree,
    args: tuple[Any, ...], key: Any, most: Limits, sides: Sides | None, term: Any,
) -> tuple[State, jax.Array, Solution]:  # fmt: skip
    flat = Flat(x0)
    function, given = _closed(flat, fun, args, has_aux)
    driver, start = _driver(opening, function, tol, rtol, flat.vector, given, key, sides, term)
    state = driver.advance(driver.begin(start), most)
    found = driver.end(state, most)
    is_over = jnp.logical_not(driver.rule.hands_over(state.memory))
    return state, is_over, found._replace(x=flat.tree(found.x))


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _resume(
    method: Method, fun: Callable[..., Any], tol: float, rtol: float, has_aux: bool, state: State,
    x0: Tree, args: tuple[Any, ...], key: Any, most: Limits, sides: Sides | None, term: Any,
) -> Solution:  # fmt: skip
    flat = Flat(x0)
    function, given = _closed(flat, fun, args, has_aux)
    driver, _ = _driver(method, function, tol, rtol, flat.vector, given, key, sides, term)
    found = driver.run(driver.take_over(state), most)
    return found._replace(x=flat.tree(found.x))


def _driver(
    method: Method, function: Function, tol: float, rtol: float, x0: jax.Array, given: Any,
    key: Any, sides: Sides | None, term: Any, lanes: bool = False,
) -> tuple[Driver, jax.Array]:  # fmt: skip
    """And where it begins."""
    box = None if sides is None else Box(*sides, tol=tol)
    penalty = None if term is None else CompiledPenalty(term)
    driver = Driver(
        method, function, given, x0, rtol=rtol, atol=tol, key=key, lanes=lanes, box=box,
        penalty=penalty,
    )  # fmt: skip
    if box is not None:
        x0 = box.clip(driver.m, x0)
    if penalty is not None:
        x0 = penalty.start(driver.m, x0)
    return driver, x0


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _solve(
    method: Method, fun: Callable[..., Any], tol: float, rtol: float, has_aux: bool, x0: Tree,
    args: tuple[Any, ...], key: Any, most: Limits, sides: Sides | None, term: Any,
) -> Solution:  # fmt: skip
    flat = Flat(x0)
    function, given = _closed(flat, fun, args, has_aux)

    def run(
        lanes: bool, asks: bool, x0: jax.Array, given: Any, key: Any, most: Limits,
        sides: Sides | None, term: Any,
    ) -> Solution:  # fmt: skip
        driver, x0 = _driver(method, function, tol, rtol, x0, given, key, sides, term, lanes)
        driver.m.asks = asks
        return driver.run(driver.begin(x0), most)

    one = custom_vmap(partial(run, False, True))

    @one.def_vmap  # type: ignore[untyped-decorator]
    def many(size: int, in_batched: list[Any], *arguments: Any) -> Any:
        """In a loop of its own for many runs at once: see `Compiled.lanes`."""
        axes = jax.tree.map(lambda has: 0 if has else None, tuple(in_batched))
        on_cpu, elsewhere = (
            jax.vmap(partial(run, True, asks), axes, axis_size=size) for asks in (True, False)
        )
        if jax.default_backend() == "cpu":
            found = on_cpu(*arguments)
        else:  # a CPU may be meant even so
            found = jax.lax.platform_dependent(*arguments, cpu=on_cpu, default=elsewhere)
        return found, jax.tree.map(lambda _: True, found)

    smooth = jax.custom_jvp(one)

    @smooth.defjvp  # type: ignore[untyped-decorator]
    def differentiated(primals: Any, tangents: Any) -> tuple[Solution, Solution]:
        found, given, change = smooth(*primals), primals[1], tangents[1]
        x, good = found.x, found.success & (term is None)
        held = None if primals[4] is None else at_bounds(x, primals[4], tangents[4])
        dx, daux = change_of_solution(function, x, given, change, good, held)
        # The gradient is zero there: that x moves changes no value, but where it is at a bound.
        along = jnp.zeros_like(x) if held is None else held[1]
        value = jax.jvp(lambda *of: function(*of)[0], (x, given), (along, change))[1]
        # By products, which are NaN in reverse mode, too; a choice between numbers is 0 there.
        value = number(value * jnp.where(good, 1.0, jnp.nan))
        made = dx, value, daux
        if term is not None:
            leaves = [leaf for leaf in jax.tree.leaves(tangents[5]) if changes(leaf)]
            lost = sum((jnp.sum(leaf) * jnp.nan for leaf in leaves), jnp.sum(value) * jnp.nan)
            made = jax.tree.map(
                lambda leaf: leaf + lost.astype(leaf.dtype) if changes(leaf) else leaf, made
            )
        rest = jax.tree.map(no_change, found)
        return found, rest._replace(x=made[0], fun=made[1], aux=made[2])

    found = smooth(flat.vector, given, key, most, sides, term)
    return found._replace(x=flat.tree(found.x))  # type: ignore[no-any-return]


def _closed(
    flat: Flat, fun: Callable[..., Any], args: tuple[Any, ...], has_aux: bool
) -> tuple[Function, Any]:
    """A function of the array, and what is given to it: what fun reads besides its arguments is an
    argument, too, as it may be mapped, or differentiated."""

    def with_aux(x: jax.Array, args: tuple[Any, ...]) -> tuple[jax.Array, Any]:
        found = fun(flat.tree(x), *args)
        return value_and_aux(found) if has_aux else (found, None)

    program, shapes = jax.make_jaxpr(with_aux, return_shape=True)(flat.vector, args)
    value, _ = shapes
    is_array = isinstance(value, jax.ShapeDtypeStruct)
    if not is_array or value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        kind = f"{value.dtype}{list(value.shape)}" if is_array else f"a {type(value).__name__}"
        raise TypeError(
            f"fun returned {kind}; it must return one real number"
            + ("" if has_aux else ", or a pair with has_aux=True")
        )

    def function(x: jax.Array, given: Any) -> tuple[jax.Array, Any]:
        consts, args = given
        leaves = jaxpr_as_fun(program.replace(consts=consts))(*jax.tree.leaves((x, args)))
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)  # type: ignore[no-any-return]

    return function, (list(program.consts), args)
