"""A method that calls its oracle is a rule where its step is played again with every answer."""

from __future__ import annotations

import numpy as np
import pytest

from momentous import iterate, minimize, testbed
from momentous.core.rule import Rule
from momentous.methods.registry import REGISTRY
from momentous.methods.replayed import Replayed

CONSTANTS = {"gradient_lipschitz": 2e3, "hessian_lipschitz": 1e3, "third_lipschitz": 1e3}
CALLERS = [cls for cls in REGISTRY.values() if not issubclass(cls, Rule)]


def made(cls):
    return cls(**{name: CONSTANTS[name] for name in cls.requires if name in CONSTANTS})


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
@pytest.mark.parametrize("cls", CALLERS, ids=lambda cls: cls.name)
def test_it_evaluates_where_the_method_does(cls, fused):
    problem, method = testbed.rosenbrock(6), made(cls)

    def seen(method):
        points = []

        def value(x):
            points.append(("value", x.copy()))
            return problem.value(x)

        def gradient(x):
            points.append(("gradient", x.copy()))
            return problem.gradient(x)

        def both(x):
            return value(x), gradient(x)

        fun, jac = (both, True) if fused else (value, gradient)
        result = minimize(fun, problem.start, jac=jac, method=method, tol=1e-4, max_evaluations=400)
        return points, result

    (expected, as_method), (found, as_rule) = seen(method), seen(Replayed(method))
    assert as_rule.message == as_method.message
    assert (as_rule.nit, as_rule.restarts) == (as_method.nit, as_method.restarts)
    # A value that a step has asked for, and no other, may be known to the rule already.
    assert len(found) <= len(expected)
    told = iter(expected)
    assert all(any(kind == k and np.array_equal(x, y) for k, y in told) for kind, x in found)


def test_a_step_is_shown_with_the_sample_of_the_method():
    problem, method = testbed.rosenbrock(6), made(REGISTRY["heuristic-agd"])
    options = {"jac": problem.gradient, "tol": 1e-4}
    steps = zip(
        iterate(problem.value, problem.start, method=method, **options),
        iterate(problem.value, problem.start, method=Replayed(method), **options),
        strict=True,
    )
    for one, other in steps:
        assert np.array_equal(one.x, other.x)
        assert one.grad_norm == other.grad_norm
        assert one.step_size == other.step_size
