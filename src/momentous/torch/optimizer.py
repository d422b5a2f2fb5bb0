"""The methods as a ``torch.optim.Optimizer``: one step is one iteration."""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import warnings
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from torch.optim.optimizer import ParamsT

from momentous.api import choose_method, iterate
from momentous.core.admission import levels_to_the_user
from momentous.core.checkpoint import MALFORMED, Checkpoint, CheckpointError, RunState, load
from momentous.core.loop import Run
from momentous.core.method import Method
from momentous.core.oracle import Sample
from momentous.core.result import Result, interrupt_with
from momentous.core.space import Array, Space, host_memory
from momentous.core.stopping import Criterion, Progress
from momentous.display import SHOWN
from momentous.io.types import AnyFunction, Options
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.torch.flat import Closure, ClosureFunction, FlatParameters, kinds
from momentous.torch.state import PackedState, pack_run, unpack_run

_NO_RATE = (
    "there is no learning rate here, and nothing for a scheduler to change: the method finds its "
    "step sizes itself"
)
# What a PyTorch user might type, and what to do instead.
_TORCH_NAMES = {
    "lr": _NO_RATE,
    "weight_decay": "add the penalty to the loss in the closure",
    "maximize": "return the negative of the loss from the closure",
    "max_iter": "it is called max_iterations here, and counts those of all steps",
    "max_eval": "it is called max_evaluations here, and counts those of all steps",
    "tolerance_grad": "it is called tol here",
    "tolerance_change": "pass stop=momentous.StepLength(...) or stop=momentous.ValueChange(...)",
    "history_size": "pass method='lbfgs', memory=...",
    "line_search_fn": "the methods bring their line searches along",
    **dict.fromkeys(
        SHOWN, "print its progress after a step; momentous.torch.minimize takes this option"
    ),
}
_OF_GROUPS = ("params", "param_names", "bounds")
LOGGER = logging.getLogger("momentous")


@functools.cache  # once is enough
def _advise_double_precision() -> None:
    LOGGER.info(
        "the parameters are in float32: where the loss is to fall far below 1e-6 of its start, as "
        "that of a PINN, train in float64, as float32 ends in its noise"
    )


class Optimizer(torch.optim.Optimizer):
    """Minimises a smooth loss of all data by a method of this library.

    A step is one iteration of the method: it calls the closure as often as the method needs (once,
    as a rule).  After it the parameters are what `momentous.minimize` would return if it ended
    there, never a point that was only tried, and their ``grad`` is the gradient there.  When the
    run has ended, `done` is True, `result` says why, and further steps do nothing.

    Parameters
    ----------
    params : iterable
        Tensors, pairs of name and tensor (``module.named_parameters()``), or groups of either.  All
        trained parameters are one point of one function: groups have no options of their own but
        ``bounds``.  Those that require no gradient stay as they are.  One floating-point dtype;
        several devices are allowed.
    method : str, Method or class, optional
        As for `momentous.minimize`: "auto" in a new run, that of the state or the checkpoint in one
        that is resumed.
    tol, max_iterations, max_evaluations, max_time, target, stop, rng, check_gradient
        As for `momentous.minimize`; "the gradient" is that of all parameters.
    checkpoint, resume : path, optional
        As for `momentous.minimize`: save the run to a file from time to time; go on from one, at
        its point, whatever the parameters are.  ``state_dict`` is the other way.
    trace : bool
        Keep a row of numbers per iteration, for ``result.trace``.
    bounds : dict, optional
        By the names of parameters, ``{"weight": (0, 1)}``, in the forms that `momentous.minimize`
        takes; parameters that are not named have those of their group, ``{"params": ..., "bounds":
        (0, 1)}``, or none.  A pair of numbers is for all.  The closure never sees parameters
        outside.
    penalty : dict, optional
        Simple terms by the names of parameters, ``{"weight": L1(0.1)}``, of the kinds that
        `momentous.minimize` takes, each of a parameter in its shape; one alone is for every
        parameter.  The loss is without them.  Not together with bounds.
    **parameters
        Parameters of the method.

    Attributes
    ----------
    done : bool
        Has the run ended?
    result : Result or None
        What `momentous.minimize` returns, once the run has ended; ``x``, ``jac`` and ``best_x`` are
        dictionaries of tensors by the names of the parameters ("0", "1", ... without names).
    progress : Progress or None
        The counts so far (``nit nfev njev restarts time``), and ``fun`` and ``grad_norm`` at the
        last point evaluated, once the run has begun.

    Notes
    -----
    The loss must be the same function at every call: all data, or a part that does not change; no
    dropout.  ``check_gradient=True`` tests loss and gradient before the run.  Normalisation layers
    in training mode see every point that is tried; their running means are no part of the loss.

    Whatever the closure raises, Ctrl-C included, leaves the parameters as they were before the
    step, and the next step goes on at the call that was broken off.

    The run begins in the first step, at the parameters as they are then.  Where they have been
    changed since the last step (by hand, or by loading others), or others are trained, a new run
    begins there, with a warning; `add_param_group` asks for one.

    ``state_dict()`` holds the whole run, ``load_state_dict()`` resumes it: bit for bit on the same
    machine, if the module's state is loaded too.  The next step then calls the closure once or
    twice more, not counted, to see whether the loss is the same.

    Examples
    --------
    >>> import torch
    >>> from momentous.torch import Optimizer
    >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    >>> net = torch.nn.Linear(1, 1, dtype=torch.float64)
    >>> optimizer = Optimizer(net.parameters(), tol=1e-8)
    >>> while not optimizer.done:
    ...     loss = optimizer.step(lambda: (net(x) - 3 * x - 1).square().mean())
    >>> round(net.weight.item(), 6), round(net.bias.item(), 6), optimizer.result.status.name
    (3.0, 1.0, 'CONVERGED')
    """

    result: Result | None = None
    _run: Run | None = None  # under way, or ended
    _saved: PackedState | None = None  # a run to resume, where none is under way
    _is_watched: bool = True  # may parameters be read, or changed, between two steps?
    _shown: Array | None = None  # the point that the last step left in the parameters
    _flat: FlatParameters | None = None
    _function: ClosureFunction | None = None
    _loss: tuple[float, torch.dtype] = math.nan, torch.float64  # at that point

    def __init__(
        self,
        params: ParamsT,
        method: str | Method | type[Method] | None = None,
        *,
        tol: float | None = None,
        max_iterations: int | None = 100_000,
        max_evaluations: int | None = None,
        max_time: float | None = None,
        target: float | None = None,
        stop: Criterion | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        resume: str | os.PathLike[str] | None = None,
        rng: int | None = None,
        trace: bool = True,
        check_gradient: bool = False,
        bounds: object = None,
        penalty: object = None,
        **parameters: object,
    ):
        if isinstance(params, torch.nn.Module):
            raise TypeError(
                f"params is the module {type(params).__name__}: pass its named_parameters()"
            )
        # What the user has called, for errors.
        self._caller = cast(AnyFunction, parameters.pop("_caller", Optimizer))
        for name in parameters:
            if name in _TORCH_NAMES:
                raise TypeError(
                    f"{self._caller.__name__}() has no option {name!r}: {_TORCH_NAMES[name]}"
                )
        self._asked = method, parameters
        self._options: Options = {
            "tol": tol,
            "max_iterations": max_iterations,
            "max_evaluations": max_evaluations,
            "max_time": max_time,
            "target": target,
            "stop": stop,
            "checkpoint": checkpoint,
            "rng": rng,
            "trace": trace,
            "check_gradient": check_gradient,
            "bounds": bounds,
            "penalty": penalty,
        }
        super().__init__(params, {})
        saved = None if resume is None else load(resume, Space(self._trained().point()))
        self._method(saved)  # refuse a mistake now rather than later
        self._saved = None if saved is None else pack_run(saved, self._shown)

    @property
    def done(self) -> bool:
        return self.result is not None

    @property
    def progress(self) -> Progress | None:
        return None if self._run is None else self._run.progress

    def add_param_group(self, param_group: Options) -> None:
        """Train more parameters: a new run begins with the next step, at the point reached."""
        for name in param_group:
            if name not in _OF_GROUPS:
                why = _TORCH_NAMES.get(name, "all parameters are one point of one function")
                raise ValueError(f"a parameter group cannot have an option {name!r} here: {why}")
        super().add_param_group(param_group)
        self.param_groups[-1] = _Group(self.param_groups[-1])
        self._forget()

    # A step is a loop around the closure; that may be compiled.  (By the decorator of the base
    # class: `torch.compiler.disable` would import the compiler with this module.)
    @torch._disable_dynamo  # type: ignore[untyped-decorator]
    def step(self, closure: Closure | None = None) -> torch.Tensor:
        """One iteration of the method; returns the loss at the new parameters.

        Parameters
        ----------
        closure : callable
            Computes the loss of all data from the parameters and returns it.  It may zero the
            gradients and call ``backward`` as that of ``torch.optim.LBFGS`` does, or leave both
            out.
        """
        if not callable(closure):
            raise TypeError(
                "step() needs a closure: a function without arguments that computes the loss and "
                "returns it (the method evaluates it at points of its own choice)"
            )
        flat = self._trained()
        self._require_unchanged(flat)
        if self.done:
            return self._last_loss()
        before = flat.point() if self._run is None or self._shown is None else self._shown
        try:
            run = self._advance(flat, before, closure)
            self._show(run, flat)
        except BaseException:
            self._set_back(flat, before)
            raise
        return self._last_loss()

    def _last_loss(self) -> torch.Tensor:
        value, dtype = self._loss
        return torch.tensor(value, dtype=dtype)

    def stop(self, why: str = "the caller asked to stop") -> None:
        """End the run here: `result` is what it has found."""
        run, flat = self._run, self._flat
        if run is None or flat is None or self._shown is None or not flat.is_at(self._shown):
            raise RuntimeError(
                "there is no run to stop: one is under way after a step, until the parameters are "
                "changed"
            )
        if not self.done:
            run.stop(why)
            self._show(run, flat)

    def _method(self, saved: RunState | None) -> Method:
        method, parameters = self._asked
        chosen = choose_method(method, parameters, saved, self._caller)
        if saved is not None and not isinstance(method, Method):
            return chosen  # as it was
        trained = [tensor for _, tensor in self._named() if tensor.requires_grad]
        dimension = sum(tensor.numel() * (2 if tensor.is_complex() else 1) for tensor in trained)
        nbytes = sum(tensor.nbytes for tensor in trained)
        return chosen.for_costly_gradients(dimension, nbytes, self._matrix_bytes(trained))

    def _matrix_bytes(self, trained: list[torch.Tensor]) -> float:
        """How large a matrix of doubles may be beside them: by the kind of the device, and all the
        memory that it has, so that it is the same every time.  With bounds or a simple term there
        is none: a self-scaled method is one for smooth functions."""
        c, options = LBFGS_CONSTANTS, self._options
        smooth = self._bounds() is None and options["penalty"] is None
        device = trained[0].device if trained else torch.device("meta")
        if smooth and device.type == "cpu":
            return min(c.matrix_bytes_on_cpu, c.matrix_share_of_memory * host_memory())
        if smooth and device.type == "cuda":
            total = float(torch.cuda.get_device_properties(device).total_memory)
            return min(c.matrix_bytes_on_gpu, c.matrix_share_of_memory * total)
        return 0.0

    def _trained(self) -> FlatParameters:
        """The trained parameters; where they are others than before, or somewhere else, the run is
        put aside, to be resumed if it can be."""
        named = self._named()
        here = kinds([tensor for _, tensor in named if tensor.requires_grad])
        if self._flat is None or self._flat.kinds != here:
            self._put_aside()
            self._flat = FlatParameters(named)
        return self._flat

    def _named(self) -> list[tuple[str, torch.Tensor]]:
        tensors = [tensor for group in self.param_groups for tensor in group["params"]]
        names = [name for group in self.param_groups for name in group.get("param_names", ())]
        return list(zip(names or map(str, range(len(tensors))), tensors, strict=True))

    def _bounds(self) -> object:
        """As given, or by name where groups have bounds."""
        named, given = iter(self._named()), self._options["bounds"]
        of_groups = {
            name: group["bounds"]
            for group in self.param_groups
            for name, tensor in itertools.islice(named, len(group["params"]))
            if group.get("bounds") is not None and tensor.requires_grad
        }
        if not of_groups:
            return given
        if not isinstance(given, Mapping | None):
            raise ValueError(
                "bounds= must be a dict of names where groups have bounds of their own"
            )
        return of_groups | dict(given or {})

    def _require_unchanged(self, flat: FlatParameters) -> None:
        if self._shown is None or not self._is_watched or flat.is_at(self._shown):
            return
        self._forget()
        warnings.warn(
            "the parameters are not those that the last step left: a new run begins at the "
            "present ones, and what the method had learned is dropped (after load_state_dict, "
            "load the module's state as well)",
            RuntimeWarning,
            stacklevel=levels_to_the_user("torch"),
        )

    def _advance(self, flat: FlatParameters, x: Array, closure: Closure) -> Run:
        """One iteration, in a run that begins or is resumed where none is under way."""
        if self._run is None:
            self._function = ClosureFunction(flat, closure)
            saved = None if self._saved is None else unpack_run(self._saved, x)[0]
            begun = iterate(
                self._function,
                x,
                jac=True,
                method=self._method(saved),
                resume=saved,
                interrupts="return",
                **self._options
                | {
                    "bounds": flat.bounds(self._bounds()),
                    "penalty": flat.penalty(self._options["penalty"]),
                },
            )
            if begun.interrupted:  # nothing to go on with: the next step begins again
                raise interrupt_with(_named(begun.result, flat))
            if x.dtype in (np.float32, torch.float32):
                _advise_double_precision()
            begun.keep_best()
            self._run, self._saved = begun, None
        run, function = self._run, self._function
        assert function is not None
        function.closure = closure
        next(run, None)
        if run.interrupted:
            raise KeyboardInterrupt("the parameters are those before this step")
        return run

    def _show(self, run: Run, flat: FlatParameters) -> None:
        """Leave in the parameters what a run that ended here would return."""
        function, shown = self._function, None if run.ended else run.lowest_known()
        assert function is not None
        if shown is None:
            result = run.result
            shown = Sample(result.x, result.fun, result.jac, result.grad_norm)
            self.result = _named(result, flat)
        if not function.holds(shown.point) and (self._is_watched or run.ended):
            flat.write(shown.point)
            flat.write_gradient(shown.gradient)
            function.at = shown.point
        self._shown = shown.point
        self._loss = shown.value, function.dtype

    def _set_back(self, flat: FlatParameters, before: Array) -> None:
        """As it was before the step, which goes on where it was broken off."""
        flat.write(before)
        flat.drop_gradients()
        if self._run is not None and self._function is not None:
            self._shown = self._function.at = before
            self._run.take_up_again()

    def _interrupt(self) -> Result | None:
        """End the run as Ctrl-C does, at the point that it has reached; None where there is none.

        The parameters are those of the result.
        """
        run, flat = self._run, self._flat
        if self.done or run is None or flat is None:
            return self.result
        run.interrupt()
        result = run.result
        flat.write(result.x)
        flat.drop_gradients()
        self._shown = result.x
        self.result = _named(result, flat)
        return self.result

    def _put_aside(self) -> None:
        """Keep the run as one to be resumed."""
        if self._run is not None:
            self._saved, self._run, self.result = self._packed(), None, None

    def _forget(self) -> None:
        """Let the next step begin a new run."""
        self._run = self.result = self._saved = self._shown = None

    def __repr__(self) -> str:
        method, tol = self._method(None), self._options["tol"]
        tol = method.tolerance_for(tol)
        typed = self._asked[0] if isinstance(self._asked[0], str) else None
        name = typed or ("auto" if self._asked[0] is None else method.name)
        where = "not begun" if self.progress is None else f"iteration {self.progress.nit}"
        return (
            f"{type(self).__name__}(method={name!r}, tol={tol!r}): "
            f"{len(self._named())} tensors, {where}{', done' if self.done else ''}"
        )

    def state_dict(self) -> Options:
        """The run as it stands, in ``"run"``, beside the groups: plain Python and tensors, so that
        ``torch.load(..., weights_only=True)`` reads it."""
        return {**super().state_dict(), "run": self._packed()}

    def _packed(self) -> PackedState | None:
        return self._saved if self._run is None else pack_run(self._run.state(), self._shown)

    def load_state_dict(self, state_dict: Options) -> None:
        """Take over a run, to resume it in the next step.  Load the module's state too.

        A state that is damaged, or of another problem, is refused with a `CheckpointError`, and
        nothing changes.
        """
        if not isinstance(state_dict, dict) or "run" not in state_dict:
            raise CheckpointError(
                "the state has no entry 'run': it was not written by momentous.torch.Optimizer"
            )
        run = state_dict["run"]
        if run is not None:
            state, shown = unpack_run(run, FlatParameters(self._named()).point())
            state.require_same_method(self._method(state).description())
        try:
            groups = [dict(group) for group in state_dict["param_groups"]]
            for group in groups:
                group.pop("param_names", None)  # a state does not rename parameters
            super().load_state_dict({"state": {}, "param_groups": groups})
        except MALFORMED as error:
            raise CheckpointError(f"the state is damaged, or of other groups: {error}") from error
        self._forget()
        if run is not None:
            self._saved, self._shown = run, shown

    def __getstate__(self) -> Options:
        own = {name: getattr(self, name) for name in ("_asked", "_options", "_shown", "_caller")}
        return {**super().__getstate__(), **own, "_saved": self._packed()}

    def __setstate__(self, state: Options) -> None:
        super().__setstate__(state)
        self.param_groups[:] = [_Group(group) for group in self.param_groups]


class _Group(Options):
    """A parameter group, which says what is wrong where a scheduler looks for a learning rate."""

    def __missing__(self, key: str) -> object:
        raise KeyError(_NO_RATE if key == "lr" else key)


def _named(result: Result, flat: FlatParameters) -> Result:
    """The result with vectors taken apart into the parameters that they stand for, in memory of
    their own."""
    names = ("x", "jac", "best_x", "active", "multipliers")
    vectors = {name: result[name] for name in names if result.get(name) is not None}
    parts = {name: flat.views(flat.tensor(vector).clone()) for name, vector in vectors.items()}
    return result | parts
