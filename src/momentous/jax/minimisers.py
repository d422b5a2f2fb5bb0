"""The methods as minimisers of Optimistix: ``optimistix.minimise(fn, AdaRAGD(rtol, atol), y0)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import optimistix as optx

from momentous.core.method import Method
from momentous.core.rule import RUNNING
from momentous.core.status import SUCCESSES, Status, is_one_of
from momentous.jax.driver import Driver, State
from momentous.jax.flat import Flat, Tree
from momentous.methods.registry import rules


class OfGradients(eqx.Module):  # type: ignore[misc]
    """A norm of gradients, which `optimistix.root_find` may not take for one of residuals."""

    of: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, residuals: Tree) -> jax.Array:
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

    def _driver(self, fn: Any, y: Tree, args: Any, options: dict[str, Any]) -> tuple[Driver, Flat]:
        mode = options.get("autodiff_mode", "bwd")
        if mode not in ("fwd", "bwd"):
            raise ValueError(f"options: autodiff_mode={mode!r} must be 'fwd' or 'bwd'")
        flat, norm = Flat(y), None
        if self.norm.of is not optx.two_norm:
            norm = lambda gradient: self.norm.of(flat.tree(gradient))  # noqa: E731
        driver = Driver(
            self.method, lambda x, args: fn(flat.tree(x), args), args, flat.vector, rtol=self.rtol,
            atol=self.atol, key=options.get("key"), norm=norm, forward=mode == "fwd",
        )  # fmt: skip
        return driver, flat

    def init(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], f_struct: Any,
        aux_struct: Any, tags: Any,
    ) -> State:  # fmt: skip
        driver, flat = self._driver(fn, y, args, options)
        return driver.begin(flat.vector)

    def step(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], state: State, tags: Any
    ) -> tuple[Tree, State, Any]:
        driver, flat = self._driver(fn, y, args, options)
        after = driver.turn(state)
        return flat.tree(after.shown.sample.point), after, state.shown.aux

    def terminate(
        self, fn: Any, y: Tree, args: Any, options: dict[str, Any], state: State, tags: Any
    ) -> tuple[jax.Array, Any]:
        results, status = optx.RESULTS, state.status
        lost = status == int(Status.NON_FINITE)
        failed = results.where(lost, results.nonfinite, results.nonlinear_divergence)
        runs = status == RUNNING
        fine = runs | is_one_of(status, SUCCESSES)
        return ~runs, results.where(fine, results.successful, failed)

    def postprocess(
        self, fn: Any, y: Tree, aux: Any, args: Any, options: dict[str, Any], state: State,
        tags: Any, result: Any,
    ) -> tuple[Tree, Any, dict[str, Any]]:  # fmt: skip
        driver, flat = self._driver(fn, y, args, options)
        found = driver.finish(state)
        stats = {
            "num_iterations": found.nit,
            "num_restarts": found.restarts,
            "num_evaluations": found.nfev,
            "grad_norm": found.grad_norm,
            "status": found.status,
        }
        return flat.tree(found.x), found.aux, stats


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
