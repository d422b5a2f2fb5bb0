"""The names of `momentous.lowrank` are loaded when they are used."""

import subprocess
import sys

import pytest

from momentous import lowrank


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
