"""SciPy's own tests with ``method=momentous.minimize``: what a user of SciPy would stumble over.

Every call of ``scipy.optimize.minimize`` in the tests that come with the installed SciPy, for a
method that looks at gradients, without constraints other than bounds, goes to momentous.  Of the
tests in which that happens those that fail must stand in ``REASONS``; the others are listed with
what they say, and the exit status is 1.  Each file of tests runs in a process of its own, and each
test has a limit in seconds (where the system has SIGALRM).

    python benchmarks/scipy_client.py [--out docs/scipy-client.md] [--limit 60] [--jobs 2]
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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

_COUNTS = "the test compares the calls, the path or the last digits of SciPy's algorithm"
_WORDS = "the error, or the message, says the same in other words"
_STATUS = "the status has another number than that of this one method of SciPy"
_TOLERANCE = "the default tolerance is 1e-5, whatever the method was"

# The reason for every failure, by the name of the test.
REASONS = {
    "test_obj_func_returns_scalar": _WORDS,
    "test_cg": _COUNTS,
    "test_ncg": _COUNTS,
    "test_ncg_hess": _COUNTS,
    "test_ncg_hessp": _COUNTS,
    "test_bfgs": _COUNTS,
    "test_bfgs_infinite": "x stays finite where f has no lower bound: status UNBOUNDED",
    "test_bfgs_c1": _COUNTS,
    "test_bfgs_nan_return": "the best point is returned, where f is finite",
    "test_finite_differences_hess": "a Hessian that nobody uses is not checked",
    "test_l_bfgs_b_maxiter": _WORDS,
    "test_minimize_l_bfgs_b_ftol": "the run ends more exactly than ftol asks for",
    "test_minimize_l_bfgs_maxls": "the test expects a failure; here the run converges",
    "test_minimize_automethod": _TOLERANCE,
    "test_initial_step_scaling": "its jac is half the gradient: more than three iterations",
    "test_respect_maxiter[SLSQP]": _STATUS,
    "test_callback_stopiteration[0-trust-constr]": _STATUS,
    "test_callback_stopiteration[1-trust-constr]": _STATUS,
    "test_callback_stopiteration[2-trust-constr]": _STATUS,
    "test_njev": _COUNTS,
    "test_minimize_unbounded_approximated": _TOLERANCE,
    "test_minimize_unbounded_given": _TOLERANCE,
    "test_minimize_unbounded_combined": _TOLERANCE,
    "test_nested_minimization": _TOLERANCE,
    "test_all_bounds_equal": _WORDS,
    "test_minimize_tnc38": _TOLERANCE,
    "test_3": "the test compares the pairs inside SciPy's own class of hess_inv",
    "test_x_overwritten_user_function": "x is read-only in user code, and the error says so",
    "test_solver_concordance": "the test compares two names that run the same method here",
}


class Client:
    """A pytest plugin: sends calls of minimize to momentous, and keeps what became of the tests."""

    def __init__(self, original: Callable[..., Any], limit: float) -> None:
        self.original, self.limit = original, limit
        self.calls = 0
        self.ended: dict[str, str] = {}  # by test: why it failed, or nothing
        self.has_bounds = False
        self.bounded: list[str] = []  # tests that pass bounds

    def minimize(
        self, fun: Any, x0: Any, args: Any = (), method: Any = None, jac: Any = None,
        hess: Any = None, hessp: Any = None, bounds: Any = None, constraints: Any = (),
        tol: Any = None, callback: Any = None, options: Any = None,
    ) -> Any:  # fmt: skip
        """Like SciPy's."""
        known = method is None or (isinstance(method, str) and method.lower() in METHODS)
        free = constraints is None or (isinstance(constraints, (tuple, list)) and not constraints)
        if known and free:
            self.calls += 1
            self.has_bounds |= bounds is not None
            method = momentous.minimize
        return self.original(
            fun, x0, args, method, jac, hess, hessp, bounds, constraints, tol, callback, options
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Look at every test: does it call minimize, and does it pass?"""
        self.calls, self.has_bounds = 0, False
        with time_limit(self.limit):
            outcome = yield
        if not self.calls:
            return
        failure = outcome.excinfo
        if failure is not None and issubclass(
            failure[0], (pytest.skip.Exception, pytest.xfail.Exception)
        ):
            return
        name = f"{item.path.stem}::{item.nodeid.partition('::')[2]}"
        self.bounded += [name] * self.has_bounds
        self.ended[name] = (
            "" if failure is None else f"{failure[0].__name__}: {str(failure[1]).strip()[:300]}"
        )


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A context that a TimeoutError ends after so many seconds."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"the test took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_module(name: str, limit: float, choice: str | None = None) -> Client:
    """Run one file of SciPy's tests in this process."""
    client = Client(scipy.optimize.minimize, limit)
    scipy.optimize.minimize = scipy.optimize._minimize.minimize = client.minimize
    quiet = ["-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:cacheprovider"]
    chosen = ["-k", choice] if choice else []
    module = f"scipy.optimize.tests.{name}"
    pytest.main(
        ["--pyargs", module, *quiet, "-p", "no:xdist", "-c", os.devnull, *chosen], plugins=[client]
    )
    return client


def run_in_process(
    name: str, limit: float, only: str | None = None
) -> tuple[dict[str, str], list[str]]:
    """The same in a process of its own: why each test failed, or nothing; and those with bounds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "ended.json")
        words = [sys.executable, __file__, "--module", name, "--limit", str(limit), "--to", out]
        words += ["--only", only] if only else []
        done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not out.exists():
            why = f"the process ended with {done.returncode}: {done.stdout[-500:]!r}"
            return {f"{name}::": why}, []
        ended, bounded = json.loads(out.read_text())
        return ended, bounded


def reason(name: str) -> str | None:
    """Why that test fails, if it is known to."""
    return next((REASONS[part] for part in _names(name) if part in REASONS), None)


def _names(name: str) -> tuple[str, str]:
    """The name of a test with and without its parameters."""
    test = name.rpartition("::")[2]
    return test, test.partition("[")[0]


def page(ended: dict[str, str], bounded: list[str]) -> str:
    """The table of the tests that fail, in Markdown."""
    inside = sum(not ended[name] for name in bounded)
    failures = [name for name, why in ended.items() if why]
    lines = [
        "# SciPy's own tests as a client",
        "",
        f"With `method=momentous.minimize`, {len(ended) - len(failures)} of {len(ended)} tests of "
        f"SciPy {scipy.__version__} pass: {inside} of {len(bounded)}",
        f"with bounds, {len(ended) - len(failures) - inside} of {len(ended) - len(bounded)} "
        "without. These are all the tests that call `scipy.optimize.minimize`",
        "for a method that uses gradients, without constraints other than bounds.",
        "`python benchmarks/scipy_client.py --out docs/scipy-client.md` runs them and writes this "
        "page.",
        "",
        "| reason of the failure | tests |",
        "|---|---|",
    ]
    by_reason: dict[str, list[str]] = {}
    for name in failures:
        by_reason.setdefault(reason(name) or f"UNEXPECTED: {ended[name]}", []).append(name)
    for why, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        cell = why.replace("|", "/").replace("\n", " ")
        lines.append(f"| {cell} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the tests and print what fails, with the reason; 1 if there is none for a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a test may take")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, help="the page to write")
    parser.add_argument("--only", help="of the tests those that match, as by pytest -k")
    parser.add_argument("--module", choices=MODULES, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if importlib.util.find_spec("scipy.optimize.tests") is None:
        print("the installed SciPy comes without its tests: there is nothing to run")
        return 0
    if given.module:
        client = run_module(given.module, given.limit, given.only)
        given.to.write_text(json.dumps((client.ended, client.bounded)))
        return 0
    ended: dict[str, str] = {}
    bounded: list[str] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda name: run_in_process(name, given.limit, given.only), MODULES):
            ended |= found[0]
            bounded += found[1]
    text = page(ended, bounded)
    if given.out:
        given.out.write_text(text)
    failures = [name for name, why in ended.items() if why]
    print(f"SciPy {scipy.__version__}: {len(ended)} tests call minimize, "
          f"{len(ended) - len(failures)} pass; {len(bounded)} with bounds, "
          f"{sum(not ended[name] for name in bounded)} pass")  # fmt: skip
    for name in failures:
        print(f"- {name}: {reason(name) or 'UNEXPECTED ' + ended[name]}")
    over = set(REASONS) - {part for name in failures for part in _names(name)}
    if over and not given.only:
        print(f"these have a reason, and do not fail: {', '.join(sorted(over))}")
    return int(any(reason(name) is None for name in failures))


if __name__ == "__main__":
    sys.exit(main())
