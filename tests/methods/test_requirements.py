"""What a method needs is data: parameters by name, from which the table of methods is made."""

import dataclasses

import numpy as np
import pytest

from helpers import Waves
from momentous import minimize
from momentous.methods.registry import REGISTRY, methods_table, requirements

WAVES = Waves()
CONSTANTS = {
    "gradient_lipschitz": 100.0,
    "hessian_lipschitz": 100.0,
    "third_lipschitz": 100.0,
    "step_size": 1e-3,
}
each = pytest.mark.parametrize("cls", REGISTRY.values(), ids=lambda cls: cls.name)


def run(cls, names):
    parameters = {name: CONSTANTS[name] for name in names}
    if "third_lipschitz" in parameters:
        parameters["order"] = 3
    return minimize(
        WAVES.value, WAVES.start, jac=WAVES.gradient, method=cls(**parameters), max_iterations=2
    )


@each
def test_it_names_parameters_of_the_method(cls):
    fields = {field.name for field in dataclasses.fields(cls)}
    for names in (cls.requires, *cls.alternatives):
        assert set(names) <= fields


@each
def test_with_what_it_requires_a_method_runs(cls):
    for names in (cls.requires, *cls.alternatives):
        assert np.all(np.isfinite(run(cls, names).x))


@each
def test_without_any_of_it_a_method_says_what_is_missing(cls):
    for name in cls.requires:
        with pytest.raises(ValueError, match=f"needs {name}="):
            run(cls, set(cls.requires) - {name})


@each
def test_the_table_says_it_in_words(cls):
    row = next(line for line in methods_table().splitlines() if f"`{cls.__name__}`" in line)
    assert f"| {requirements(cls)} |" in row
    assert requirements(cls).startswith("nothing") is (not cls.requires)
