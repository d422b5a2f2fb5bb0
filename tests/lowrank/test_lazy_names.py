"""The names of `momentous.lowrank`: loaded when used, the same for editors as for the program."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from momentous import lowrank


def test_the_names_for_editors_are_those_that_are_loaded_when_used():
    tree = ast.parse(Path(lowrank.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname: node.module for node in block.body for alias in node.names}
    assert sorted(shown) == dir(lowrank)
    assert lowrank.__all__ == sorted(shown)
    for name, module in shown.items():
        assert getattr(lowrank, name) is getattr(importlib.import_module(module), name)


def test_to_import_the_package_loads_nothing_else():
    program = "import sys, momentous.lowrank; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lowrank.nonsense  # noqa: B018


def test_an_import_of_all_names_has_the_estimators():
    names: dict = {}
    exec("from momentous.lowrank import *", names)
    assert {"MatrixCompletion", "OneBitMatrixCompletion", "ImplicitMF", "LowRankImputer"} <= {
        *names
    }
