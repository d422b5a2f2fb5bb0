"""SciPy's own tests as a client: a few of them here, all by ``benchmarks/scipy_client.py``."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scipy_client.py"
# Of options, callbacks, Hessians and results.
SOME = "NoWrapperNoDisp and (c1_c2 or hess_inv0) or respect_maxiter or callback_stopiteration"


@pytest.mark.slow
def test_scipys_own_tests_of_options_and_callbacks_pass_or_have_a_reason():
    if importlib.util.find_spec("scipy.optimize.tests") is None:
        pytest.skip("SciPy is installed without its tests")
    spec = importlib.util.spec_from_file_location("scipy_client", SCRIPT)
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    ended, _ = client.run_in_process("test_optimize", 60.0, SOME)
    failures = {name: why for name, why in ended.items() if why}
    assert len(ended) > 25
    assert {name: why for name, why in failures.items() if client.reason(name) is None} == {}
    assert len(failures) <= 4
