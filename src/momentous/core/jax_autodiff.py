"""Value and gradient of a function of JAX operations, compiled once.

What is compiled is shared between runs where ``fun`` itself is jitted: JAX's contract is then that
it always does the same.  A plain function may read what has changed since; it is compiled once per
run.  Arrays in ``args`` go in as arguments, everything else is part of what is compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np

from momentous.core.jitted import is_jitted, kept


class JaxPair:
    """``pair(x) -> (f, g)``: compiled, or where ``fun`` cannot be traced, as it is."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], level: Callable[[], int]):
        import jax

        self._jax, self._fun, self._args, self._level = jax, fun, args, level
        self._is_jitted = is_jitted(fun)
        # A function that is not jitted may do with an array of NumPy what only NumPy can.
        dynamic = (jax.Array, np.ndarray) if self._is_jitted else jax.Array
        leaves, self._tree = jax.tree.flatten(args)
        self._arrays = [leaf if isinstance(leaf, dynamic) else None for leaf in leaves]
        self._others = [None if isinstance(leaf, dynamic) else leaf for leaf in leaves]
        self._plain = jax.value_and_grad(lambda x: self._require_traced(fun(x, *args)))
        self._compiled: Any = self._shared() or self._made(lambda: fun)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        if self._compiled is None:
            return self._plain(x)  # type: ignore[no-any-return]
        try:
            return self._compiled(x, self._arrays)  # type: ignore[no-any-return]
        except (
            self._jax.errors.ConcretizationTypeError,
            self._jax.errors.TracerArrayConversionError,
            self._jax.errors.TracerIntegerConversionError,
        ) as error:
            self._compiled = None
            found = self._plain(x)
            # Only now: where it cannot be differentiated either, that error says why.
            warnings.warn(
                "jac='autodiff': fun cannot be compiled by jax.jit, because what it does depends "
                f"on the entries of x ({type(error).__name__}); it is differentiated anew in every "
                "call, which is slow: write it with jnp.where, lax.cond or lax.while_loop in place "
                "of Python's if and while",
                RuntimeWarning,
                stacklevel=self._level(),
            )
            return found  # type: ignore[no-any-return]

    def _require_traced(self, value: Any) -> Any:
        """Its derivative would be 0 where the value has left JAX on its way."""
        if not isinstance(value, self._jax.core.Tracer):
            raise TypeError(
                f"JAX cannot differentiate fun: it returned {value!r}, a number that no longer "
                "depends on x; compute it by JAX's operations (no item(), float(), NumPy), or "
                "pass jac=callable, jac=True or jac='2-point'"
            )
        return value

    def _shared(self) -> Any:
        """What an earlier run with the same jitted function has compiled, or will now."""
        if not self._is_jitted:
            return None
        key = self._tree, tuple(map(type, self._others)), tuple(self._others)
        try:
            hash(key)
        except TypeError:  # something in args
            return None
        return kept(self._fun, key, lambda: self._made(ref(self._fun)))

    def _made(self, fun: Callable[[], Any]) -> Any:
        tree, others = self._tree, self._others

        def value(x: Any, arrays: list[Any]) -> Any:
            pairs = zip(arrays, others, strict=True)
            leaves = [other if array is None else array for array, other in pairs]
            return fun()(x, *tree.unflatten(leaves))

        return self._jax.jit(self._jax.value_and_grad(value))
