"""What a call of the closure costs on a GPU besides the closure: counted, and the same each time.

A small instance of ``benchmarks/networks.py --syncs``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "networks.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks_benchmark", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_guard_costs_no_more_than_lbfgs(benchmark: ModuleType) -> None:
    fast, guard = (benchmark.count(solver, 120, 40) for solver in ("lbfgs", "guard"))
    for name in ("kernels", "operations", "waits"):
        assert guard[name] <= 1.3 * fast[name], name
    assert guard["waits"] <= 2
    assert guard["kernels"] <= 3


def test_lbfgs_waits_twice_per_call_and_compiles_few_kernels(benchmark: ModuleType) -> None:
    found = benchmark.count("lbfgs", 120, 40)
    assert found["waits"] <= 2.5  # for the gradient with the new pair, and for the other pairs
    assert found["operations"] <= 5.5  # 4.0 to 4.9, by the version of PyTorch
    assert found["to compile"] <= 13
