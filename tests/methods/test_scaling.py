"""Acceleration is real: the work grows like the square root of what gradient descent's grows like.

A small instance of benchmarks/scaling.py, which says more.
"""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LENGTH = 3
MUS = (0.03, 0.01, 0.003)


def load_benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "scaling.py"
    spec = importlib.util.spec_from_file_location("scaling_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scaling = load_benchmark()


def fitted_exponent(name):
    return scaling.exponent(MUS, [scaling.gradients_to_tolerance(name, LENGTH, mu) for mu in MUS])


@pytest.mark.parametrize("name", ["RAGD", "RHB", "AdaRAGD", "AdaRHB"])
def test_accelerated_methods_pay_about_the_square_root(name):
    assert fitted_exponent(name) <= 0.7


def test_gradient_descent_pays_in_full():
    assert fitted_exponent("GD, step 1/4") >= 0.9


@pytest.mark.parametrize("name", ["AdaRAGD", "AdaRHB"])
def test_adaptive_methods_are_ahead_of_gradient_descent_on_the_hardest_instance(name):
    counts = [
        scaling.gradients_to_tolerance(each, LENGTH, MUS[-1]) for each in (name, "GD, step 1/4")
    ]
    assert counts[0] < counts[1] / 4


@pytest.mark.parametrize("name", ["AdaRAGD", "AdaRHB"])
@pytest.mark.parametrize("mu", MUS)
def test_no_method_beats_the_lower_bound(name, mu):
    gradients = scaling.gradients_to_tolerance(name, LENGTH, mu)
    assert gradients >= scaling.fewest_gradients(LENGTH, mu) > 0


def test_the_table_can_be_read(capsys):
    scaling.main(length=2, mus=(0.03, 0.02))
    lines = capsys.readouterr().out.splitlines()
    names = scaling.methods(scaling.nested_chain(2, 0.03))
    assert len(lines) == 3 + 1 + len(names)
    assert all(line.split()[-1].replace(".", "").lstrip("-").isdigit() for line in lines[3:])
    assert len({len(line) for line in lines[2:]}) == 1
