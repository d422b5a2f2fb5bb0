"""The methods as minimisers of Optimistix: ``optimistix.minimise(fn, AdaRAGD(rtol, atol), y0)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx

from momentous.core.method import Method
from momentous.core.status import Status
from momentous.jax.driver import Driver, State
from momentous.jax.vectors import Scalar, Tree, select
from momentous.methods.registry import rules


class OfGradients(eqx.Module):  # type: ignore[misc]
    """A norm of gradients, which `optimistix.root_find` may not take for one of residuals."""

    of: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, residuals: Tree) -> Scalar:
        raise TypeError(
            "optimistix.root_find minimises the norm of the residuals, which has a kink at the "
            "root: no gradient method ends there. Give the residuals to optimistix.least_squares"
        )


class AbstractMomentous(optx.AbstractMinimiser):  # type: ignore[misc]
    """A method of momentous, one evaluation of value and gradient per step.

    A solve ends when ``norm(gradient) <= atol + rtol * norm(gradient at y0)``, where f has not
    risen above the last accepted point; or by the method's own rule.  ``sol.stats`` has
    ``num_iterations`` (as `momentous.minimize` counts them), ``num_restarts``,
    ``num_evaluations``, ``grad_norm`` and ``status``, a `momentous.Status` as an integer.  A solve
    that fails returns the lower of the last point and the last accepted one.

    Parameters
    ----------
    rtol, atol : float
        As above.  Methods that take their eps from the tolerance take it from ``atol``.
    norm : callable
        Of gradients; by default `optimistix.two_norm`, the norm that the theorems are about.
    **parameters
        Those of the class of the same name in `momentous`.

    ``options={"autodiff_mode": "fwd"}`` differentiates in forward mode, as in Optimistix;
    ``options={"key": key}`` is where the perturbed method draws from.
    """

    kind: ClassVar[type[Method]]

    rtol: float
    atol: float
    norm: OfGradients
    method: Method = eqx.field(static=True)

    def __init__(
        self,
        rtol: float,
        atol: float,
        norm: Callable[[Any], Any] = optx.two_norm,
        **parameters: Any,
    ):
        self.rtol, self.atol, self.norm = rtol, atol, OfGradients(norm)
        self.method = self.kind(**parameters)

    def _driver(self, fn: Any, y: Tree, args: Any, options: dict[str, Any]) -> Driver:
        mode = options.get("autodiff_mode", "bwd")
        if mode not in ("fwd", "bwd"):
            raise ValueError(f"options: autodiff_mode={mode!r} must be 'fwd' or 'bwd'")
        return Driver(
            self.method, fn, args, y, rtol=self.rtol, atol=self.atol, key=options.get("key"),
            norm=None if self.norm.of is optx.two_norm else self.norm.of, forward=mode == "fwd",
        )  # fmt: skip

    def init(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], f_struct: Any,
        aux_struct: Any, tags: Any,
    ) -> State:  # fmt: skip
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux_struct)
        return self._driver(fn, y, args, options).begin(y, nothing)

    def step(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], state: State, tags: Any
    ) -> tuple[Tree, State, Any]:
        after = self._driver(fn, y, args, options).after_one(state)
        # What belongs to the y that came in; the first step evaluates it.
        aux = select(state.evaluations == 0, after.shown.aux, state.shown.aux)
        return after.shown.sample.point, after, aux

    def terminate(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], state: State, tags: Any
    ) -> tuple[Scalar, Any]:
        results = optx.RESULTS
        lost = state.status == int(Status.NON_FINITE)
        failed = results.where(lost, results.nonfinite, results.nonlinear_divergence)
        fine = state.runs | state.succeeded
        return ~state.runs, results.where(fine, results.successful, failed)

    def postprocess(
        self, fn: Any, y: Tree, aux: Any, args: Any, options: dict[str, Any], state: State,
        tags: Any, result: Any,
    ) -> tuple[Tree, Any, dict[str, Any]]:  # fmt: skip
        state = self._driver(fn, y, args, options).finished(state)
        stats = {
            "num_iterations": state.iterations,
            "num_restarts": state.restarts,
            "num_evaluations": state.evaluations,
            "grad_norm": state.shown.size,
            "status": state.status,
        }
        return state.shown.sample.point, state.shown.aux, stats


@functools.cache
def minimiser_of(method: type[Method]) -> type[AbstractMomentous]:
    """The class of a rule for Optimistix; it has the same name."""

    class Minimiser(AbstractMomentous):
        kind = method

    name = Minimiser.__name__ = Minimiser.__qualname__ = method.__name__
    Minimiser.__doc__ = f"`momentous.{name}` for Optimistix: {method.summary}."
    return Minimiser


def __getattr__(name: str) -> type[AbstractMomentous]:
    """The classes, made when they are first used; pickle finds them here, too."""
    for method in rules().values():
        if method.__name__ == name:
            return minimiser_of(method)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
