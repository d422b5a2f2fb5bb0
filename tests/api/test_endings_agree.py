"""Message, numbers and gradient norm of one result never disagree, however a run ends."""

import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import NEEDS_CONSTANTS
from momentous import (
    GradientNorm,
    Iterations,
    Stagnation,
    Status,
    StepLength,
    ValueChange,
    accelerate,
    minimize,
)
from momentous.methods.registry import REGISTRY

ALWAYS = {
    "deadline": None,
    "derandomize": True,  # the same cases in every run
    "suppress_health_check": list(HealthCheck),
}
CONSTANTS = {"gradient_lipschitz": 60.0, "hessian_lipschitz": 60.0, "eps": 5e-6}


def waves(seed):
    """Hills and valleys: cut off by NaN in some, without a floor in others."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    w, a = rng.uniform(0.5, 4, n), rng.uniform(0.1, 3, n)
    wall = rng.uniform(0.5, 3) if seed % 3 == 0 else np.inf

    bowl = -0.05 if seed % 5 == 0 else 0.05

    def both(x):
        if np.abs(x - x0).max() > wall:
            return np.nan, np.full(n, np.nan)
        value = np.sum(a * (1 - np.cos(w * x)) + bowl * x**2)
        return float(value), a * w * np.sin(w * x) + 2 * bowl * x

    x0 = rng.uniform(-4, 4, n)
    return both, x0


def stop_by_callback(after):
    calls = iter(range(after))
    return lambda x: next(calls, None) is None


def interrupt_after(both, calls):
    count = iter(range(10**6))

    def interrupted(x):
        if next(count) == calls:
            raise KeyboardInterrupt
        return both(x)

    return interrupted


ENDINGS = {
    "tolerance": lambda k: {"tol": 10.0**-k},
    "iterations": lambda k: {"max_iterations": k, "tol": 0},
    "evaluations": lambda k: {"max_evaluations": 2 + 3 * k, "tol": 0},
    "time": lambda k: {"max_time": 0.0, "tol": 0},
    "target": lambda k: {"target": 1.0 / k},
    "stagnation": lambda k: {"stop": Stagnation(k), "tol": 0},
    "both": lambda k: {"stop": GradientNorm(0.1) & Iterations(k), "tol": 0},
    "small change": lambda k: {"stop": ValueChange(0.1, k) | StepLength(0.1, k), "tol": 0},
    "callback": lambda k: {"callback": stop_by_callback(k), "tol": 0},
    "interrupt": lambda k: {"interrupts": "return", "tol": 0},
    "rounding": lambda k: {"tol": 0, "max_iterations": 300},
}


def require_agreement(result, both):
    value, gradient = both(result.x)
    assert result.fun == value
    assert np.array_equal(result.jac, gradient)
    norm = result.grad_norm
    assert norm == pytest.approx(math.hypot(*gradient), rel=1e-12, abs=1e-300)
    assert result.best_grad_norm <= norm
    numbers, message = result.numbers, result.message
    for name in ("nit", "nfev", "njev", "fun", "grad_norm", "best_grad_norm"):
        if name in numbers:
            assert numbers[name] == result[name], (name, message, numbers)
    if norm not in (numbers.get("grad_norm"), numbers.get("best_grad_norm")):
        assert "norm" not in message, (message, numbers, norm)
    said = re.findall(r"norm (?:of |below |so far is |, )?([0-9.]+(?:e[-+]?\d+)?)\b", message)
    if said:  # the last is about x, if there are several
        assert said[-1] == f"{norm:.3g}", (message, norm)
    objectives = re.findall(r"objective (?:has fallen to )?(-?[0-9.]+(?:e[-+]?\d+)?)\b", message)
    if objectives:
        assert float(objectives[-1]) == pytest.approx(result.fun, rel=0.01)
    within = re.search(r"within the tolerance ([-0-9.e+]+)", message)
    if result.status is Status.CONVERGED and within:
        assert norm <= float(within.group(1)) * 1.01
    if result.status is not Status.COMPLETED:
        assert result.success == result.status.success


@settings(max_examples=100, **ALWAYS)
@given(
    name=st.sampled_from(sorted(REGISTRY)),
    ending=st.sampled_from(sorted(ENDINGS)),
    seed=st.integers(0, 200),
    k=st.integers(1, 12),
)
def test_of_minimize(name, ending, seed, k):
    both, x0 = waves(seed)
    options = {"max_iterations": 300} | ENDINGS[ending](k)
    asked = interrupt_after(both, k) if ending == "interrupt" else both
    constants = CONSTANTS if name in NEEDS_CONSTANTS else {}
    with np.errstate(all="ignore"):
        result = minimize(asked, x0, jac=True, method=name, **constants, **options)
        require_agreement(result, both)


@settings(max_examples=40, **ALWAYS)
@given(
    ending=st.sampled_from(["tolerance", "iterations", "evaluations", "stagnation", "callback"]),
    seed=st.integers(0, 200),
    k=st.integers(1, 12),
)
def test_of_accelerate(ending, seed, k):
    rng = np.random.default_rng(seed)
    A = np.eye(3) - np.diag(rng.uniform(0.01, 0.9, 3))

    def step(x):
        return A @ x

    result = accelerate(step, rng.standard_normal(3), lambda x: float(x @ x), **ENDINGS[ending](k))
    residual = result.x - step(result.x)
    assert result.grad_norm == pytest.approx(math.hypot(*residual), rel=1e-12, abs=1e-300)
    for name in ("nit", "nfev", "njev", "fun", "grad_norm", "best_grad_norm"):
        if name in result.numbers:
            assert result.numbers[name] == result[name]
