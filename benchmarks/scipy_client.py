"""SciPy's own tests with ``method=momentous.minimize``: what a user of SciPy would stumble over.

Every call of ``scipy.optimize.minimize`` in the tests that come with the installed SciPy, for a
method that looks at gradients, without bounds and constraints, goes to momentous.  Of the tests in
which that happens those that fail must stand in ``REASONS``.

    python benchmarks/scipy_client.py [pytest options]
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import pytest
import scipy
import scipy.optimize
import scipy.optimize._minimize

import momentous

MODULES = (
    "test_optimize", "test__basinhopping", "test_regression", "test_slsqp", "test_tnc",
    "test_trustregion", "test_trustregion_exact", "test_trustregion_krylov",
    "test_lbfgsb_hessinv",
)  # fmt: skip
METHODS = {
    None, "bfgs", "cg", "l-bfgs-b", "newton-cg", "tnc", "slsqp", "dogleg", "trust-ncg",
    "trust-exact", "trust-krylov", "trust-constr",
}  # fmt: skip

_COUNTS = "the calls, the path or the last digits of SciPy's own algorithm are compared"
_WORDS = "the error says the same in other words"
_START = "a start where the function is not finite is refused"
_STOPPED = "a limit on iterations and a callback that stops end with numbers of a status of our own"
_TOLERANCE = "the default tolerance is 1e-5, whatever the method was"
_NO_MATRIX = "a result has no hess_inv"
_INITIAL_MATRIX = "hess_inv0 is an option without a meaning here, with a warning"

# The reason for every failure, by the name of the test.
REASONS = {
    "test_obj_func_returns_scalar": _WORDS,
    "test_invalid_c1_c2": _WORDS,
    "test_cg": _COUNTS,
    "test_ncg": _COUNTS,
    "test_ncg_hess": _COUNTS,
    "test_ncg_hessp": _COUNTS,
    "test_ncg_zero_xtol": "another of the minima of a cosine is found",
    "test_ncg_negative_maxiter": "a negative limit on iterations is refused",
    "test_bfgs": _NO_MATRIX,
    "test_bfgs_hess_inv0_neg": _INITIAL_MATRIX,
    "test_bfgs_hess_inv0_semipos": _INITIAL_MATRIX,
    "test_bfgs_infinite": "x stays finite where f has no lower bound: status UNBOUNDED",
    "test_bfgs_c1": "a larger c1 does not cost more calls here",
    "test_bfgs_nan_return": _START,
    "test_nan_values": _START,
    "test_finite_differences_hess": "a Hessian that nobody uses is not checked",
    "test_l_bfgs_b_maxiter": "the number of a status is ours",
    "test_minimize_l_bfgs_b_ftol": "ftol is held against ten iterations, not one",
    "test_minimize_l_bfgs_maxls": "one trial per line search is enough here: it converges",
    "test_minimize_automethod": _TOLERANCE,
    "test_initial_step_scaling": "its jac is half the gradient: more than three iterations",
    "test_respect_maxiter[SLSQP]": "the number of a status is ours",
    "test_callback_stopiteration[0-trust-constr]": _STOPPED,
    "test_callback_stopiteration[1-trust-constr]": _STOPPED,
    "test_callback_stopiteration[2-trust-constr]": _STOPPED,
    "test_njev": _COUNTS,
    "test_dogleg_user_warning": "the warning is an OptimizeWarning, not a RuntimeWarning",
    "test_minimize_unbounded_approximated": _TOLERANCE,
    "test_minimize_unbounded_given": _TOLERANCE,
    "test_minimize_unbounded_combined": _TOLERANCE,
    "test_nested_minimization": _TOLERANCE,
    "test_1": _NO_MATRIX,
    "test_2": _NO_MATRIX,
    "test_3": _NO_MATRIX,
    "test_x_overwritten_user_function": "x is read-only in user code, and the error says so",
    "test_solver_concordance": "calls of methods that are all the same one here are compared",
}


class Client:
    """A pytest plugin: sends calls of minimize to momentous, and keeps what became of the tests."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.calls = 0
        self.ended: dict[str, bool] = {}  # by test: has it passed?
        self.why: dict[str, str] = {}

    def minimize(
        self, fun: Any, x0: Any, args: Any = (), method: Any = None, jac: Any = None,
        hess: Any = None, hessp: Any = None, bounds: Any = None, constraints: Any = (),
        tol: Any = None, callback: Any = None, options: Any = None,
    ) -> Any:  # fmt: skip
        """Like SciPy's."""
        known = method is None or (isinstance(method, str) and method.lower() in METHODS)
        free = bounds is None and not (isinstance(constraints, (tuple, list)) and constraints)
        if known and free and isinstance(constraints, (tuple, list)):
            self.calls += 1
            method = momentous.minimize
        return self.original(
            fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Look at every test: does it call minimize, and does it pass?"""
        self.calls = 0
        outcome = yield
        if not self.calls:
            return
        failure = outcome.excinfo
        if failure is not None and issubclass(
            failure[0], (pytest.skip.Exception, pytest.xfail.Exception)
        ):
            return
        name = item.nodeid.rsplit("/", 1)[-1]
        self.ended[name] = failure is None
        if failure is not None:
            self.why[name] = f"{failure[0].__name__}: {str(failure[1]).strip()[:300]}"

    def expected(self, name: str) -> str | None:
        """Why that test fails, if it is known to."""
        test = name.rpartition("::")[2]
        return REASONS.get(test) or REASONS.get(test.partition("[")[0])


def main() -> int:
    """Run the tests and print what fails, with the reason; 1 if there is none for a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rest = parser.parse_known_args()[1]
    if importlib.util.find_spec("scipy.optimize.tests") is None:
        print("the installed SciPy comes without its tests: there is nothing to run")
        return 0
    client = Client(scipy.optimize.minimize)
    scipy.optimize.minimize = scipy.optimize._minimize.minimize = client.minimize
    modules = [f"scipy.optimize.tests.{name}" for name in MODULES]
    quiet = ["-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider"]
    pytest.main(["--pyargs", *modules, *quiet, "-c", "/dev/null", *rest], plugins=[client])
    failures = [name for name, passed in client.ended.items() if not passed]
    print(f"\nSciPy {scipy.__version__}: {len(client.ended)} tests call minimize, "
          f"{len(client.ended) - len(failures)} pass")  # fmt: skip
    unexpected = [name for name in failures if client.expected(name) is None]
    for name in failures:
        print(f"- {name}: {client.expected(name) or 'UNEXPECTED ' + client.why[name]}")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
