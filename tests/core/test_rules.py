"""A rule is one source for every home: a toy method, on arrays, compiled and in lanes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from typing import Any

import numpy as np
import pytest

import momentous
from momentous import EventKind, iterate, minimize, testbed
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import STEP, Ask, Goal, Outcome, Rule
from momentous.core.space import to_numpy
from momentous.methods.classical import LBFGS
from momentous.methods.parameter_free import ParameterFreeAGD, UniversalHeavyBall
from momentous.methods.restarted import RAGD, AdaRAGD, PerturbedRAGD
from momentous.methods.restarted.epoch import Average
from momentous.methods.restarted.free_radius import FreeEpoch, FreeRadius, Learned
from momentous.methods.restarted.momentum import HeavyBall
from momentous.methods.restarted.schedule import Schedule
from momentous.methods.safeguarded import Safeguarded
from momentous.methods.search.probe import Probe
from momentous.methods.search.rounding import Look, Rounding
from momentous.methods.search.wolfe import Line, Search, Wolfe


@record
class ToyMemory:
    x: Any
    ahead: Any
    outcome: Outcome
    origin: Sample
    tol: float = 0.0
    k: int = 0


@dataclasses.dataclass(frozen=True)
class Toy(Rule[ToyMemory]):
    """Nesterov's iteration, restarted where it has gone on for ``length`` steps."""

    name = "toy"
    step_size: float = 0.1
    length: int = 7

    def begin(self, m, here: Sample, goal: Goal) -> ToyMemory:
        outcome, start = Outcome(self.step_size, m.no_events), Sample(here.point, here.value)
        return ToyMemory(here.point, here.point, outcome, start)

    def ask(self, m, memory: ToyMemory) -> Ask:
        given = (memory.ahead, memory.x)
        return Ask(memory.ahead, STEP, vectors=given, numbers=(-self.step_size, 0.8))

    def tell(self, m, memory: ToyMemory, here: Sample, made, sums) -> ToyMemory:
        x, ahead = made
        outcome = Outcome(self.step_size, m.no_events)
        restarted = Outcome(self.step_size, m.event(EventKind.RESTART, memory.k))
        return m.case(
            memory,
            (
                memory.k < self.length,
                lambda: m.but(memory, x=x, ahead=ahead, k=memory.k + 1, outcome=outcome),
            ),
            otherwise=lambda: m.but(memory, x=x, ahead=x, k=0, outcome=restarted),
        )

    def accepted(self, memory: ToyMemory) -> Sample:
        return memory.origin

    def ending(self, memory, shown, status):
        raise AssertionError("it never ends by itself")


START = [1.0, -2.0, 0.5, 3.0]
SCALES = [1.0, 2.0, 0.3, 4.0]


def points(make, tol=1e-6):
    """What the rule does with a convex function of arrays that ``make`` makes."""
    scales = make(SCALES)
    run = iterate(lambda x: ((scales * x * x).sum() / 2, scales * x), make(START), jac=True,
                  method=Toy(), tol=tol)  # fmt: skip
    return [to_numpy(step.x) for step in run], run.result


def test_a_toy_rule_runs_on_every_array_library():
    expected, result = points(np.array)
    assert result.success
    assert result.restarts == result.nit // 8
    torch = pytest.importorskip("torch")
    found, _ = points(lambda a: torch.tensor(a, dtype=torch.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    strict = pytest.importorskip("array_api_strict")

    def quadratic(x):
        scales = strict.asarray(SCALES, dtype=strict.float64)
        return float(strict.sum(scales * x * x)) / 2, scales * x

    there = minimize(
        quadratic, strict.asarray(START, dtype=strict.float64), jac=True, method=Toy(), tol=1e-6
    )
    assert (there.nit, there.restarts) == (result.nit, result.restarts)


def test_a_toy_rule_is_compiled_and_runs_in_lanes():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    from momentous.jax import solve

    _, result = points(np.array)
    with jax.enable_x64(True):
        scales = jnp.array(SCALES)

        def fun(x):
            return jnp.sum(scales * x * x) / 2

        found = solve(fun, jnp.array(START), method=Toy(), tol=1e-6)
        starts = jnp.array(START) * jnp.array([[1.0], [1e-9], [3.0]])
        many = jax.vmap(lambda x: solve(fun, x, method=Toy(), tol=1e-6))(starts)
        counts = (int(found.nit), int(found.restarts))
        first = (int(many.nit[0]), int(many.restarts[0]))
        np.testing.assert_allclose(found.x, result.x, atol=1e-12)
    assert counts == first == (result.nit, result.restarts)
    assert int(many.nit[1]) == 0  # a lane that has ended stays as it is
    assert int(many.nit[2]) > result.nit
    assert bool(many.success.all())


def test_a_toy_rule_resumes_bit_for_bit(tmp_path):
    _, result = points(np.array)
    problem = {"jac": True, "method": Toy(), "tol": 1e-6}
    scales = np.array(SCALES)

    def quadratic(x):
        return float((scales * x * x).sum()) / 2, scales * x

    path = tmp_path / "toy.ckpt"
    minimize(quadratic, np.array(START), checkpoint=path, max_iterations=10, **problem)
    again = minimize(quadratic, np.array(START), resume=path, **problem)
    assert again.nit == result.nit
    assert np.array_equal(again.x, result.x)


RULES = [RAGD, PerturbedRAGD, AdaRAGD, ParameterFreeAGD, UniversalHeavyBall, LBFGS, Safeguarded]
PARTS = [
    FreeRadius, FreeEpoch, Learned, HeavyBall, Schedule, Average, Probe, Rounding, Look, Wolfe,
    Search, Line,
]  # fmt: skip


@pytest.mark.parametrize("cls", [*RULES, *PARTS, Toy])
def test_rules_never_ask_for_the_truth_of_a_condition(cls):
    """In a compiled loop there is none: ``not``, ``and``, ``or`` and ``if`` are for parameters."""
    for function in _functions_of_machines(cls):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            for condition in _conditions(node):
                assert _is_static(condition), f"{function.__qualname__}: {ast.unparse(condition)}"


STATIC = (
    "m.fuses", "m.fused", "made", "not made", "sums", "here.gradient is None",
    "here.gradient is not None", "limit.reference.gradient is None", "not made or eta != epoch.expected_step",
)  # fmt: skip


def _conditions(node):
    if isinstance(node, ast.BoolOp):
        return node.values[:-1]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    return []


def _functions_of_machines(cls):
    for base in cls.__mro__:
        if base.__module__.startswith(("momentous.methods", __name__)):
            for item in vars(base).values():
                function = inspect.unwrap(getattr(item, "__func__", item))
                if inspect.isfunction(function) and "m" in inspect.signature(function).parameters:
                    yield function


def _is_static(node):
    """Does it look at nothing but parameters of the method, and whether something is there at all,
    which are known when it is compiled?"""
    if ast.unparse(node) in STATIC:
        return True
    if isinstance(node, ast.BoolOp):
        # A test of identity fails where arrays are traced, and what follows it is not looked at.
        return _is_static(node.values[0])
    if isinstance(node, ast.UnaryOp):
        return _is_static(node.operand)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "any"):
        return True
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return True
    names = {leaf.id for leaf in ast.walk(node) if isinstance(leaf, ast.Name)}
    allowed = {"self", "goal", "tol", "L", "largest_theta", "epoch_length"}
    return names <= allowed | {"which", "repeats", "whole"}


def test_a_rule_that_looks_at_no_values_returns_the_lower_of_its_points():
    problem = testbed.rosenbrock(4)
    method = RAGD(step_size=1e-4, momentum=0.9, radius=1.0, epoch_length=10_000)
    result = momentous.minimize(
        problem.value, problem.start, jac=problem.gradient, method=method, max_iterations=30
    )
    assert result.fun <= problem.value(problem.start)
