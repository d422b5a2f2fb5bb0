"""One entry per method: names, tables, homes and the scoreboard follow from it."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import momentous
from momentous import GradientDescent, compare, minimize, register_method
from momentous.methods.registry import AUTO, REGISTRY, method_class, methods_table, replaces


def bowl(x):
    return float(x @ x), 2 * x


def test_a_method_of_the_user_s_is_known_by_its_name(registry):
    @register_method
    @dataclasses.dataclass(frozen=True)
    class ShortSteps(GradientDescent):
        name = "short-steps"
        step_size: float = 0.1

    result = minimize(bowl, np.ones(3), jac=True, method="short_steps")
    assert result.success
    assert type(result.method) is ShortSteps
    assert registry["short-steps"] is ShortSteps
    assert "| `short-steps` | `ShortSteps` |" in methods_table()
    (row,) = compare(("bowl", bowl, np.ones(3)), "short-steps", progress=False).rows
    assert row.reached


def test_a_name_belongs_to_one_class_but_a_class_may_be_defined_again(registry):
    def define(module):
        return register_method(type("Mine", (GradientDescent,), {"name": "mine"} | module))

    define({"__module__": "notebook"})
    again = define({"__module__": "notebook"})
    assert registry["mine"] is again
    with pytest.raises(ValueError, match="the name 'mine' is that of Mine in notebook"):
        define({"__module__": "elsewhere"})
    for name in ("lbfgs", "auto"):
        with pytest.raises(ValueError, match=f"the name '{name}' is that of"):
            register_method(type("Mine", (GradientDescent,), {"name": name}))
    with pytest.raises(TypeError, match="must be a subclass of Method with a name"):
        register_method(int)


NEW_METHOD = '''"""Gradient descent with a step of its own."""

import dataclasses

from momentous.methods.restarted.fixed_radius import RAGD


@dataclasses.dataclass(frozen=True)
class Toy(RAGD):
    """A toy."""

    name = "toy"
    summary = "a toy"
'''
PROGRAM = """
import sys
import numpy as np
import momentous
from momentous.lab.compare.scoreboard import FUNCTIONS
from momentous.methods.registry import AUTO, REGISTRY, method_class, methods_table, replaces

assert "Toy" in momentous.__all__ and momentous.Toy.__module__ == "momentous.methods.toy"
by_hand = {"step_size": 0.1, "momentum": 0.5, "radius": 10.0, "epoch_length": 500}
def bowl(x): return float(x @ x), 2 * x
assert momentous.minimize(bowl, np.ones(2), jac=True, tol=1e-3, method="toy", **by_hand).success
assert "| `toy` | `Toy` | a toy |" in methods_table()
assert "toy" in FUNCTIONS.methods
if "jax" in sys.argv:
    import momentous.jax as home
    import optimistix, jax.numpy as jnp
    assert home.solve(lambda x: x @ x, jnp.ones(2), tol=1e-3, method="toy", **by_hand).success
    solver = home.Toy(rtol=0.0, atol=1e-3, **by_hand)
    solution = optimistix.minimise(lambda x, _: x @ x, solver, jnp.ones(2))
    assert solution.stats["grad_norm"] <= 1e-3 and "a toy" in home.Toy.__doc__
"""


def run_with_new_method(folder: Path, *arguments: str) -> None:
    """The program beside a copy of the library with one file and one line more."""
    package = Path(momentous.__file__).parent
    shutil.copytree(
        package, folder / "momentous", ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
    )
    methods = folder / "momentous" / "methods"
    (methods / "toy.py").write_text(NEW_METHOD)
    with (methods / "__init__.pyi").open("a") as stub:
        stub.write("from momentous.methods.toy import Toy as Toy\n")
    environment = os.environ | {"PYTHONPATH": str(folder)}
    program = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_new_method_is_a_file_and_a_line(tmp_path):
    run_with_new_method(tmp_path)


@pytest.mark.slow
def test_a_new_rule_has_a_minimiser_of_optimistix(tmp_path):
    pytest.importorskip("optimistix")
    run_with_new_method(tmp_path, "jax")


def test_a_method_of_the_users_goes_before_one_that_is_known_from_elsewhere(monkeypatch):
    assert method_class("TNC") is AUTO
    monkeypatch.setitem(REGISTRY, "tnc", GradientDescent)
    assert method_class("TNC") is GradientDescent
    assert not replaces("TNC")
