"""`minimize` and `iterate` over pytrees of arrays, with every method and a compiled gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from momentous import api
from momentous.core.admission import levels_to_the_user, refuse_traced
from momentous.core.box import Sides
from momentous.core.jax_autodiff import JaxPair
from momentous.core.loop import IntermediateResult, Run
from momentous.core.result import Result
from momentous.core.sources import AUTODIFF_WORDS
from momentous.core.status import Status
from momentous.display import finish_and_show
from momentous.jax.flat import Flat, Tree
from momentous.scipy_options import of_whole_run

# Entries up to which the vectors of a run on a CPU are NumPy's: a call of JAX takes ten times as
# long as one of NumPy on a short vector.  XLA shares a long one between cores.
SHORT = 1 << 17


def is_short_on_cpu(vector: jax.Array) -> bool:
    if isinstance(vector, jax.core.Tracer) or vector.size > SHORT:
        return False
    platforms = [device.platform for device in vector.devices()]
    return platforms == ["cpu"] and vector.dtype in (np.float32, np.float64)


class HostPair:
    """``pair(x) -> (f, g)`` of a function of JAX operations, with x and g of NumPy."""

    words = AUTODIFF_WORDS

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...]):
        self._pair = JaxPair(fun, args, levels_to_the_user)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._pair(x)
        return float(value), np.asarray(gradient)


class TreeStep:
    """An `IntermediateResult` whose x, jac and best point are pytrees like x0."""

    def __init__(self, step: IntermediateResult, flat: Flat):
        self._step, self._flat = step, flat

    @property
    def x(self) -> Tree:
        return self._flat.tree(self._step.x)

    @property
    def jac(self) -> Tree:
        return self._flat.tree(self._step.jac)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def __repr__(self) -> str:
        return repr(self._step)


class TreeRun(Iterator[TreeStep]):
    """A run over pytrees: iterate over it; ``result`` is what was found."""

    def __init__(self, run: Run, flat: Flat, aux: Callable[[Tree], Any] | None):
        self._run, self._flat, self._aux = run, flat, aux
        self._result: Result | None = None

    def __iter__(self) -> TreeRun:
        return self

    def __next__(self) -> TreeStep:
        return TreeStep(next(self._run), self._flat)

    def finish(self) -> Result:
        """Run to the end."""
        self._run.finish()
        return self.result

    @property
    def result(self) -> Result:
        """The result with pytrees; asking for it ends the run."""
        if self._result is None:
            self._result = self._as_tree(self._run.result)
        return self._result

    def _as_tree(self, result: Result) -> Result:
        found = result.copy()
        for name in ("x", "jac", "best_x", "multipliers"):
            if result.get(name) is not None:
                found[name] = self._flat.tree(result[name])
        if "active" in result:
            sides = self._flat.tree(result.active.astype(result.x.dtype))
            found["active"] = jax.tree.map(lambda leaf: leaf.astype(jnp.int8), sides)
        if "allvecs" in result:
            found["allvecs"] = [self._flat.tree(x) for x in result.allvecs]
        if self._aux is not None:
            found["aux"] = self._aux(found.x)
        if result.status is Status.NO_PROGRESS and result.x.dtype != jnp.float64:
            found["message"] += (
                f"; x is {result.x.dtype}, which holds {jnp.finfo(result.x.dtype).precision} "
                'digits: jax.config.update("jax_enable_x64", True) before x0 is made gives 15'
            )
        return found


def iterate(
    fun: Callable[..., Any], x0: Tree, args: Any = (), *, has_aux: bool = False, **options: Any
) -> TreeRun:
    """The same as :func:`minimize`, one step at a time: as `momentous.iterate`, with pytrees."""
    if "jac" in options:
        raise TypeError(
            "momentous.jax differentiates fun itself: leave jac out, or call momentous.minimize"
        )
    flat = Flat(x0)
    args = args if isinstance(args, tuple) else (args,)
    callback = options.get("callback")
    if callable(callback):
        options["callback"] = _with_trees(callback, flat)
    aux = (lambda x: fun(x, *args)[1]) if has_aux else None
    function = flat.function(fun, has_aux)
    if options.get("bounds") is not None:
        options["bounds"] = flat.bounds(options["bounds"])
    try:
        # A simple term of the user's own may be written in operations of JAX.
        if options.get("penalty") is None and is_short_on_cpu(flat.vector):
            if options.get("bounds") is not None:
                options["bounds"] = Sides(*map(np.asarray, options["bounds"]))
            x0 = np.asarray(flat.vector)
            run = api.iterate(HostPair(function, args), x0, jac=True, **options)
        else:
            run = api.iterate(function, flat.vector, args, jac="autodiff", **options)
    except Exception:
        _refuse_in_trace(function, flat.vector, args)
        raise
    return TreeRun(run, flat, aux)


def _refuse_in_trace(function: Callable[..., Any], vector: Any, args: tuple[Any, ...]) -> None:
    """Say so, where something that the function reads is not known yet."""
    given = [vector, *jax.tree.leaves(args)]
    refuse_traced(given)
    try:
        consts = jax.make_jaxpr(function)(vector, *args).consts
    except Exception:  # it cannot be traced: that is another matter
        return
    refuse_traced(consts)


def minimize(
    fun: Callable[..., Any], x0: Tree, args: Any = (), *, has_aux: bool = False, **options: Any
) -> Result:
    """Find a stationary point of a function of a pytree of arrays.

    The gradient comes from JAX, compiled with the value; everything else is as in
    `momentous.minimize`: every method by its name, tolerances and limits, traces, callbacks,
    checkpoints.  (`solve` compiles the whole run, for the methods that have such a form.)

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> value``, or ``(value, aux)`` with ``has_aux=True``.  What it reads
        besides x and args is read once per run; of a function that is jitted already what was
        compiled is used again in later runs.
    x0 : pytree of arrays
        A dictionary of arrays, the parameters of a network, one array, ...  Of several leaves the
        run is in the widest of their dtypes, and each leaf of the result has its own.
    args : tuple
        Further arguments; arrays of JAX in it are arguments of what is compiled, too.
    has_aux : bool
        Does fun bring more than its value?  The result then has ``aux``, that at the solution.
    **options
        Those of `momentous.minimize`, ``method`` and ``tol`` among them; not ``jac``.

    Returns
    -------
    Result
        That of `momentous.minimize`, in which ``x``, ``jac`` and ``best_x`` are pytrees like x0.

    Notes
    -----
    JAX computes in single precision unless ``jax_enable_x64`` is set.  Sums that decide something
    are made in double precision even so, but values and gradients are not: a tolerance below
    about 1e-3 sqrt(|f| L) may not be reached in it, L the curvature of f.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from momentous.jax import minimize
    >>> def loss(p):
    ...     return jnp.sum((p["w"] ** 2 - 2.0) ** 2) + (p["b"] - 1.0) ** 2
    >>> found = minimize(loss, {"w": jnp.ones(3), "b": jnp.array(0.0)}, tol=1e-3)
    >>> found.success, found.x["w"].shape, float(found.x["b"].round(2))
    (True, (3,), 1.0)
    """
    asked = of_whole_run(options)
    run = iterate(fun, x0, args, has_aux=has_aux, _caller=api.minimize, **options)
    try:
        finish_and_show(run._run, asked)
    except KeyboardInterrupt as error:
        if hasattr(error, "result"):
            error.result = run.result  # with trees
        raise
    return run.result


def _with_trees(callback: Callable[..., Any], flat: Flat) -> Callable[..., Any]:
    """A callback of the user's, which gets pytrees; what it is given depends on the name of its
    parameter, as in SciPy."""
    try:
        names = list(inspect.signature(callback).parameters)
    except (TypeError, ValueError):
        names = []
    if names == ["intermediate_result"]:

        def with_result(intermediate_result: Any) -> Any:
            return callback(intermediate_result=TreeStep(intermediate_result, flat))

        return with_result
    return lambda xk: callback(flat.tree(xk))
