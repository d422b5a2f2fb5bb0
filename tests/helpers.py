"""What the tests share: functions, the list of methods, the list of array libraries."""

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np

import momentous
from momentous.methods.registry import REGISTRY

# --- functions ----------------------------------------------------------------------------------


class Waves:
    """sum of a_i (1 - cos x_i): smooth, nonconvex, bounded, L = rho = max a; in any library."""

    weights = (1.0, 10.0, 100.0)
    gradient_lipschitz = hessian_lipschitz = 100.0

    def __init__(self, size: int = 3):
        self.amplitudes = np.resize(np.array(self.weights), size)
        self.start = np.resize(np.array([2.0, 1.0, 0.5]), size)

    def _terms(self, x):
        xp = array_api_compat.array_namespace(x)
        device = array_api_compat.device(x)
        amplitudes = xp.asarray(self.amplitudes, dtype=x.dtype, device=device)
        return xp, xp.reshape(amplitudes, tuple(x.shape))

    def value(self, x):
        xp, a = self._terms(x)
        return xp.sum(a * (1.0 - xp.cos(x)))

    def gradient(self, x):
        xp, a = self._terms(x)
        return a * xp.sin(x)

    def both(self, x):
        return self.value(x), self.gradient(x)


class Bowl:
    """A convex quadratic in NumPy, 1/2 sum of a_i x_i^2, and what went through its functions."""

    curvatures = np.array([1.0, 10.0, 100.0])
    gradient_lipschitz, hessian_lipschitz = 100.0, 1.0
    start = np.ones(3)

    def value(self, x):
        return 0.5 * float(np.sum(self.curvatures * x * x))

    def gradient(self, x):
        return self.curvatures * x


@dataclass
class Counted:
    """A user's functions that count how often they are called."""

    value_of: Callable[[Any], Any]
    gradient_of: Callable[[Any], Any]
    values: int = 0
    gradients: int = 0
    # Called with the number of the call, and x, before each call; may raise.
    before: Callable[[int, Any], None] | None = None
    _calls: Any = field(default_factory=lambda: itertools.count(1))

    def _note(self, x):
        if self.before is not None:
            self.before(next(self._calls), x)

    def fun(self, x):
        self._note(x)
        self.values += 1
        return self.value_of(x)

    def jac(self, x):
        self._note(x)
        self.gradients += 1
        return self.gradient_of(x)

    def both(self, x):
        self._note(x)
        self.values += 1
        self.gradients += 1
        return self.value_of(x), self.gradient_of(x)

    def given(self, how: str) -> dict[str, Any]:
        """The arguments of minimize that pass these functions, "separate" or "fused"."""
        if how == "fused":
            return {"fun": self.both, "jac": True}
        return {"fun": self.fun, "jac": self.jac}


def counted(problem, before=None) -> Counted:
    return Counted(problem.value, problem.gradient, before=before)


# --- methods ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodCase:
    """One of the five methods, and how tests call it."""

    name: str
    cls: type[momentous.Method]
    needs_constants: bool
    # Parameters by hand with which a run on the waves has epochs of many lengths, rollbacks where
    # the method knows them, and comes to its own end within a hundred iterations or so.
    eventful_parameters: dict[str, Any]

    def plain(self, problem) -> dict[str, Any]:
        """As a user would call it: with the constants of the problem where they are needed."""
        options: dict[str, Any] = {"method": self.name}
        if self.needs_constants:
            options["gradient_lipschitz"] = problem.gradient_lipschitz
            options["hessian_lipschitz"] = problem.hessian_lipschitz
        return options

    @property
    def eventful(self) -> dict[str, Any]:
        return {"method": self.name, "tol": 1e-6, **self.eventful_parameters}

    def __str__(self) -> str:
        return self.name


_BY_HAND = {"step_size": 0.005, "momentum": 0.9, "radius": 0.5, "epoch_length": 12}
_ADAPTIVE = {
    "step_size": 0.05,
    "hessian_lipschitz": 10.0,
    "eps": 1e-2,
    "initial_radius": 1.0,
    "momentum": 0.9,
    "epoch_length": 8,
    "radius": 0.3,
}
NEEDS_CONSTANTS = [name for name, cls in REGISTRY.items() if cls.requires]
METHODS = [
    MethodCase("ada-ragd", momentous.AdaRAGD, False, _ADAPTIVE),
    MethodCase("ada-rhb", momentous.AdaRHB, False, _ADAPTIVE),
    MethodCase("ragd", momentous.RAGD, True, _BY_HAND),
    MethodCase("rhb", momentous.RHB, True, _BY_HAND),
    MethodCase(
        "perturbed-ragd",
        momentous.PerturbedRAGD,
        True,
        {**_BY_HAND, "radius": 0.3, "perturbation": 1e-2},
    ),
]
ADAPTIVE = [case for case in METHODS if not case.needs_constants]
FIXED = [case for case in METHODS if case.needs_constants]


# --- array libraries ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """An array library, and the few things in which libraries differ."""

    name: str
    module: str
    dtypes: tuple[str, ...]

    @cached_property
    def xp(self):
        return importlib.import_module(self.module)

    def array(self, entries, dtype: str = "float32"):
        xp = array_api_compat.array_namespace(self.xp.zeros(1))
        return xp.asarray(np.asarray(entries, dtype=np.float64), dtype=getattr(self.xp, dtype))

    def numpy(self, a) -> np.ndarray:
        if self.name == "torch":
            a = a.detach().to(self.xp.float64)
        return np.asarray(a, dtype=np.float64)

    @property
    def array_type(self) -> type:
        return self.xp.ndarray if self.name == "jax" else type(self.array([0.0]))

    def __str__(self) -> str:
        return self.name


LIBRARIES = [
    Library("numpy", "numpy", ("float16", "float32", "float64", "longdouble")),
    Library("torch", "torch", ("bfloat16", "float32", "float64")),
    Library("jax", "jax.numpy", ("bfloat16", "float32")),
    Library("strict", "array_api_strict", ("float32", "float64")),
]


# --- comparisons --------------------------------------------------------------------------------

TRACE_WITHOUT_TIME = ("nit", "nfev", "njev", "fun", "grad_norm", "step_size")


def fingerprint(result, library: Library | None = None) -> dict[str, Any]:
    """Everything in a result that must not depend on when it was computed, exactly."""
    in_numpy = np.asarray if library is None else library.numpy
    facts = {
        "x": in_numpy(result.x).tobytes(),
        "jac": in_numpy(result.jac).tobytes(),
        "best_x": in_numpy(result.best_x).tobytes(),
        **{name: np.float64(result[name]).tobytes() for name in ("fun", "grad_norm")},
        **{name: result[name] for name in ("nit", "nfev", "njev", "restarts", "status")},
        "best_grad_norm": result.best_grad_norm,
        "message": result.message,
    }
    if result.trace is not None:
        facts |= {f"trace of {c}": result.trace[c].tobytes() for c in TRACE_WITHOUT_TIME}
        facts["events"] = [(nit, event.kind, event.value) for nit, event in result.trace.events]
    return facts


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
