"""A whole run on a module in one call, and what the point that it ends at is."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import torch

from momentous.certify import Certificate
from momentous.certify import certify as certify_function
from momentous.core.checkpoint import Checkpoint
from momentous.core.loop import IntermediateResult
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.result import Result, interrupt_with
from momentous.core.stopping import Criterion
from momentous.display import Display, take
from momentous.io.types import Options, Unchecked
from momentous.torch.flat import Closure, ClosureFunction, FlatParameters, Named
from momentous.torch.optimizer import Optimizer

Parameters: TypeAlias = (
    torch.nn.Module
    | torch.Tensor
    | Mapping[str, torch.Tensor]
    | Iterable[torch.Tensor]
    | Iterable[tuple[str, torch.Tensor]]
)


def minimize(
    parameters: Parameters,
    loss: Closure,
    method: str | Method | type[Method] | None = None,
    *,
    tol: float | None = None,
    max_iterations: int | None = 100_000,
    max_evaluations: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    stop: Criterion | None = None,
    callback: Callable[[Optimizer], object] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: str | os.PathLike[str] | None = None,
    rng: int | None = None,
    trace: bool = True,
    check_gradient: bool = False,
    bounds: object = None,
    penalty: object = None,
    **method_parameters: object,
) -> Result:
    """Train the parameters of a module until the gradient is small, or a limit is reached.

    Parameters
    ----------
    parameters : module, or tensors
        A ``torch.nn.Module``; or a tensor, an iterable or a dictionary of tensors, or
        ``named_parameters()``.  They are changed: at the end they are the solution, and after an
        exception or Ctrl-C the point reached.  The ``KeyboardInterrupt`` of Ctrl-C has the result
        as ``.result``.
    loss : callable
        A function without arguments that computes the loss of all data from the parameters and
        returns it.  It may be a closure as for ``torch.optim.LBFGS``.
    callback : callable, optional
        ``callback(optimizer)`` after every iteration, with the parameters as a run that ended there
        would leave them; it ends the run by returning True.
    method, tol, max_iterations, max_evaluations, max_time, target, stop, checkpoint, resume, rng
        These, ``trace``, ``check_gradient``, ``bounds`` and ``penalty`` are as for `Optimizer`.
    **method_parameters
        Parameters of the method; and ``disp``, ``verbose`` and ``progress`` as for
        `momentous.minimize`.

    Returns
    -------
    Result
        As `momentous.minimize` returns it; ``x``, ``jac`` and ``best_x`` are dictionaries of
        tensors by name, in memory of their own.

    Examples
    --------
    >>> import torch
    >>> from momentous.torch import minimize
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> net = torch.nn.Linear(1, 1, dtype=torch.float64)
    >>> result = minimize(net, lambda: (net(x) - 3 * x - 1).square().mean(), tol=1e-8)
    >>> result.status.name, round(result.x["weight"].item(), 6)
    ('CONVERGED', 3.0)
    """
    pairs = named(parameters)
    _require_callable(loss)
    asked = take(method_parameters)
    optimizer = Optimizer(
        pairs,
        method,
        tol=tol,
        max_iterations=max_iterations,
        max_evaluations=max_evaluations,
        max_time=max_time,
        target=target,
        stop=stop,
        checkpoint=checkpoint,
        resume=resume,
        rng=rng,
        trace=trace,
        check_gradient=check_gradient,
        bounds=bounds,
        penalty=penalty,
        _caller=minimize,
        **method_parameters,
    )
    optimizer._is_watched = callback is not None
    with Display(asked) as display:
        try:
            while not optimizer.done:
                nit = 0 if optimizer.progress is None else optimizer.progress.nit
                optimizer.step(loss)
                run = optimizer._run
                assert run is not None
                if run.progress.nit == nit:
                    continue
                display.step(run, IntermediateResult(run))
                asks = callback is not None and _asks_to_stop(callback, optimizer)
                if asks and not optimizer.done:
                    optimizer.stop("the callback asked to stop")
        except KeyboardInterrupt:
            result = optimizer._interrupt()
            if result is None:
                raise
            raise interrupt_with(result) from None
        display.result = optimizer.result
    assert optimizer.result is not None
    return optimizer.result


def certify(
    parameters: Parameters, loss: Closure, *, eps: float = DEFAULT_TOLERANCE, **options: Unchecked
) -> Certificate:
    """Decide whether the parameters are a first-order or a second-order stationary point.

    The Hessian is multiplied by vectors, which takes two backward passes per product; where
    ``loss`` calls ``backward`` itself, by differences of gradients.  The parameters stay as they
    are.

    Parameters
    ----------
    parameters, loss
        As for `minimize`.
    eps : float
        What the norm of the gradient may be: 1e-5, as for `minimize`, or the tolerance of the run.
    **options
        ``rho curvature failure_probability max_products gradient_lipschitz step rng``, as for
        `momentous.certify`; ``bounds`` and ``penalty`` as for `Optimizer` (with a
        penalty only the first order is told).

    Returns
    -------
    Certificate
        As `momentous.certify` returns it; ``direction``, ``active`` and ``multipliers`` are
        dictionaries of tensors by name.
    """
    flat = FlatParameters(named(parameters))
    _require_callable(loss)
    x = flat.point()
    if options.get("bounds") is not None:
        options["bounds"] = flat.bounds(options["bounds"])
    if options.get("penalty") is not None:
        options["penalty"] = flat.penalty(options["penalty"])
    try:
        product = None if _calls_backward(flat, loss) else _product_of(flat, loss)
        found = certify_function(
            ClosureFunction(flat, loss), x, jac=True, eps=eps, hessp=product, **options
        )
    finally:
        flat.write(x)
        flat.drop_gradients()
    vectors = {name: getattr(found, name) for name in ("direction", "active", "multipliers")}
    views: Options = {name: flat.views(a) for name, a in vectors.items() if a is not None}
    return dataclasses.replace(found, **views)


def named(parameters: Parameters) -> Named:
    """What the user calls parameters, by name."""
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.named_parameters()
    elif isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    elif isinstance(parameters, Mapping):
        parameters = parameters.items()
    if not isinstance(parameters, Iterable):
        raise TypeError(
            f"parameters is a {type(parameters).__name__}; it must be a module, a tensor, or "
            "several tensors, and the loss comes after it"
        )
    listed: list[Unchecked] = list(parameters)
    pairs = [each if isinstance(each, tuple) else (str(i), each) for i, each in enumerate(listed)]
    if not pairs:
        raise ValueError("there are no parameters to train")
    return pairs


def _require_callable(loss: Unchecked) -> None:
    if not callable(loss):
        raise TypeError(
            f"loss must be a function without arguments that returns the loss, not {loss!r}"
        )
    if _needs_arguments(loss):
        name = getattr(loss, "__name__", type(loss).__name__)
        raise TypeError(
            f"loss takes no arguments here, and {name} needs some: pass a function that computes "
            f"the loss of all data, such as lambda: {_call_of(loss, name)}(net(X), y)"
        )


def _needs_arguments(loss: Unchecked) -> bool:
    """Can it not be called as ``loss()``?  A class of losses, such as torch.nn.MSELoss, cannot
    either: that would make an object."""
    if isinstance(loss, type):
        return issubclass(loss, torch.nn.Module)
    try:
        forward = loss.forward if isinstance(loss, torch.nn.Module) else loss
        inspect.signature(forward).bind()
    except TypeError:
        return True
    except ValueError:  # built-in functions do not tell
        pass
    return False


def _call_of(loss: Unchecked, name: str) -> str:
    """How it is called in Python, as far as its name tells."""
    if isinstance(loss, type | torch.nn.Module):
        return f"{name}()"
    return name if name.isidentifier() else "loss"


def _asks_to_stop(callback: Callable[[Optimizer], object], optimizer: Optimizer) -> bool:
    try:
        return callback(optimizer) is True
    except StopIteration:
        return True


def _calls_backward(flat: FlatParameters, loss: Closure) -> bool:
    flat.drop_gradients()
    with torch.enable_grad():
        loss()
    return flat.has_gradients


def _product_of(
    flat: FlatParameters, loss: Closure
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """(x, v) -> the Hessian at x times v: the derivative of <gradient, v>."""

    def product(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        flat.write(x)
        flat.drop_gradients()
        with torch.enable_grad():
            slopes = torch.autograd.grad(
                loss(), flat.tensors, create_graph=True, materialize_grads=True
            )
            parts = zip(slopes, flat.views(v).values(), strict=True)
            slope = sum((g.conj() * w.to(g.device)).real.sum() for g, w in parts)
            if slope.requires_grad:  # where it does not, the gradient is constant
                slope.backward()
        return flat.gradient()

    return product
