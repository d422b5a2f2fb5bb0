"""A rule is one source for every home: its code asks for no truth of a condition.

A small rule that runs on all of them is the example of CONTRIBUTING.md (tests/test_pages.py).
"""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest

import momentous
from momentous import testbed
from momentous.methods.registry import rules
from momentous.methods.restarted import RAGD
from momentous.methods.restarted.fixed_radius import Average, HeavyBall
from momentous.methods.restarted.free_momentum import FreeEpoch, FreeHeavyBall, Learned
from momentous.methods.restarted.free_radius import FreeRadius
from momentous.methods.restarted.schedule import Schedule
from momentous.methods.search.backtracking import Backtracking
from momentous.methods.search.probe import Probe
from momentous.methods.search.rounding import Look, Rounding
from momentous.methods.search.wolfe import Line, Search, Wolfe

PARTS = [
    FreeRadius, FreeEpoch, FreeHeavyBall, Learned, HeavyBall, Schedule, Average, Probe, Rounding,
    Look, Wolfe, Search, Line, Backtracking,
]  # fmt: skip


@pytest.mark.parametrize("cls", [*rules().values(), *PARTS])
def test_rules_never_ask_for_the_truth_of_a_condition(cls):
    """In a compiled loop there is none: ``not``, ``and``, ``or`` and ``if`` are for parameters."""
    for function in _functions_of_machines(cls):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            for condition in _conditions(node):
                assert _is_static(condition), f"{function.__qualname__}: {ast.unparse(condition)}"


STATIC = (
    "m.fuses", "m.fused", "made", "not made", "sums", "here.gradient is None",
    "here.gradient is not None", "start.gradient is None",
    "space.has_own_inner", "space.is_part",
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
        if base.__module__.startswith("momentous.methods"):
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
    return names <= allowed | {"which", "repeats", "whole", "is_missing"}


def test_a_rule_that_looks_at_no_values_returns_the_lower_of_its_points():
    problem = testbed.rosenbrock(4)
    method = RAGD(step_size=1e-4, momentum=0.9, radius=1.0, epoch_length=10_000)
    result = momentous.minimize(
        problem.value, problem.start, jac=problem.gradient, method=method, max_iterations=30
    )
    assert result.fun <= problem.value(problem.start)
