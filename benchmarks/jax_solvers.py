"""`momentous.jax.solve` beside the compiled solvers of others, on one run's clock.

    python benchmarks/jax_solvers.py [--starts 1000]

Four functions: evaluations of ``solve("auto")`` and of ``minimize``, steps of L-BFGS and BFGS of
Optimistix, of jaxopt and of Optax where they are installed, all to the same gradient norm; the time
of the compilation as a ratio to Optimistix's L-BFGS.  Then four functions from many starts under
``vmap``: time as a ratio to Optimistix's BFGS.  A solver that ends by another rule gets the loosest
of a row of tolerances that brings the gradient down (in the median lane under ``vmap``).

A turn of 1,000 starts of Rosenbrock-4 takes 150 us, in 390 kernels (JAX 0.10.2, one core): what
lanes compute decides, not the number of kernels.  Tried, and no gain there: branches that are
computed without asking whether a lane needs them (25 times the time on a CPU, as XLA repeats a
formula in every kernel that reads it; on a GPU .3 to .45, and it is done), one question for all
branches of a choice (1.1 times), sums of products as products of matrices (level).  Of the lanes
that are computed half still run; a second loop for the last of them would double the compilation.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import optimistix as optx  # noqa: E402

import momentous.jax as home  # noqa: E402

TOLERANCE = 1e-5
LOOSE_FIRST = [10.0**-k for k in range(2, 13)]
DRAWN = np.random.default_rng(0)
Function = Callable[[Any], Any]


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(rows: int, size: int) -> Function:
    data = DRAWN.standard_normal((rows, size)) * np.logspace(0, 1, size)
    signs = np.sign(data @ DRAWN.standard_normal(size) + DRAWN.standard_normal(rows))

    def fun(x: Any) -> Any:
        margins = signs * (data @ x[:size] + (x[size] if len(x) > size else 0.0))
        return jnp.mean(jnp.logaddexp(0.0, -margins)) + 1e-3 * jnp.sum(x * x)

    return fun


def robust_regression(size: int) -> Function:
    data = DRAWN.standard_normal((60, size))
    targets = data @ DRAWN.standard_normal(size) + DRAWN.standard_t(1.5, 60)
    return lambda x: jnp.sum(jnp.log1p((data @ x - targets) ** 2))


def gaussian_process() -> Function:
    """The likelihood of 60 points: three length scales, amplitude and noise, as logarithms."""
    points = DRAWN.uniform(-2, 2, (60, 3))
    values = np.sin(points[:, 0] * 2) + 0.3 * points[:, 1] + 0.1 * DRAWN.standard_normal(60)

    def fun(x: Any) -> Any:
        scaled = points / jnp.exp(x[:3])
        squares = jnp.sum((scaled[:, None] - scaled[None]) ** 2, -1)
        kernel = jnp.exp(x[3] - squares / 2) + (jnp.exp(x[4]) + 1e-6) * jnp.eye(60)
        root = jnp.linalg.cholesky(kernel)
        half = jax.scipy.linalg.solve_triangular(root, values, lower=True)
        return half @ half / 2 + jnp.sum(jnp.log(jnp.diag(root))) + 0.01 * jnp.sum(x * x)

    return fun


def network() -> Function:
    inputs = DRAWN.standard_normal((100, 4))
    targets = np.sin(inputs.sum(1))

    def fun(x: Any) -> Any:
        hidden = jnp.tanh(inputs @ x[:32].reshape(4, 8) + x[32:40])
        return jnp.mean((hidden @ x[40:48] + x[48] - targets) ** 2) + 1e-3 * jnp.sum(x * x)

    return fun


SINGLE: dict[str, tuple[Function, np.ndarray]] = {
    "logistic, 51": (logistic(300, 50), np.zeros(51)),
    "GP, 5": (gaussian_process(), np.zeros(5)),
    "Rosenbrock, 100": (rosenbrock, np.tile([-1.2, 1.0], 50)),
    "MLP, 49": (network(), 0.5 * DRAWN.standard_normal(49)),
}
MANY: dict[str, tuple[Function, int]] = {
    "robust regression, 10": (robust_regression(10), 10),
    "Rosenbrock, 4": (rosenbrock, 4),
    "Rosenbrock, 10": (rosenbrock, 10),
    "logistic, 10": (logistic(60, 10), 10),
}


def compiled(run: Callable[[Any], Any], x: Any) -> tuple[Any, float]:
    """What runs, and the time of the processor that tracing and compiling took."""
    began = time.process_time()
    made = jax.jit(run).lower(x).compile()
    return made, time.process_time() - began


def optimistix(kind: Any, fun: Function, tolerance: float) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        solver = kind(tolerance, tolerance)
        found = optx.minimise(lambda y, _: fun(y), solver, x, max_steps=20_000, throw=False)
        return found.value, found.stats["num_steps"]

    return run


def jaxopt(fun: Function, tolerance: float) -> Callable[[Any], Any]:
    from jaxopt import LBFGS

    def run(x: Any) -> Any:
        found = LBFGS(fun, maxiter=20_000, tol=tolerance).run(x)
        return found.params, found.state.iter_num

    return run


def optax(fun: Function, tolerance: float) -> Callable[[Any], Any]:
    import optax

    solver = optax.lbfgs()

    def run(x: Any) -> Any:
        both = optax.value_and_grad_from_state(fun)

        def step(carry: Any) -> Any:
            x, state, i, _ = carry
            value, gradient = both(x, state=state)
            more = {"value": value, "grad": gradient, "value_fn": fun}
            updates, state = solver.update(gradient, state, x, **more)
            return optax.apply_updates(x, updates), state, i + 1, jnp.linalg.norm(gradient)

        def goes_on(carry: Any) -> Any:
            return (carry[3] > tolerance) & (carry[2] < 20_000)

        x, _, steps, _ = jax.lax.while_loop(goes_on, step, (x, solver.init(x), 0, jnp.inf))
        return x, steps

    return run


def loosest(make: Callable[[float], Any], fun: Function, x: Any, many: bool) -> Any:
    """The first of the tolerances that brings the gradient down: what runs, and what it finds."""
    size = jax.vmap(jax.grad(fun)) if many else jax.grad(fun)
    for tolerance in LOOSE_FIRST:
        run, seconds = compiled(jax.vmap(make(tolerance)) if many else make(tolerance), x)
        found = run(x)
        if np.median(np.linalg.norm(size(found[0]), axis=-1)) <= TOLERANCE:
            return run, seconds, found
    return None


def one_run() -> None:
    print(f"{'function':18}{'minimize':>10}{'solve':>8}  steps of others (solve by these)")
    ratios = []
    for name, (fun, x0) in SINGLE.items():
        there = home.minimize(jax.jit(fun), x0, tol=TOLERANCE)
        run, seconds = compiled(lambda x, fun=fun: home.solve(fun, x, tol=TOLERANCE), x0)
        found = run(x0)
        count, notes = int(found.nfev), []
        others = {
            "optimistix.LBFGS": lambda t, fun=fun: optimistix(optx.LBFGS, fun, t),
            "optimistix.BFGS": lambda t, fun=fun: optimistix(optx.BFGS, fun, t),
            "jaxopt.LBFGS": lambda t, fun=fun: jaxopt(fun, t),
            "optax.lbfgs": lambda t, fun=fun: optax(fun, t),
        }
        for other, make in others.items():
            if importlib.util.find_spec(other.split(".")[0]) is None:
                notes.append(f"{other} not installed")
                continue
            best = loosest(make, fun, x0, many=False)
            if best is None:
                notes.append(f"{other} not there")
                continue
            steps = int(best[2][1])
            ratios.append(count / steps)
            notes.append(f"{other} {steps} ({count / steps:.2f})")
            if other == "optimistix.LBFGS":
                notes.append(f"compilation {seconds / best[1]:.1f} of its")
        print(f"{name:18}{there.nfev:10}{count:8}  " + "; ".join(notes), flush=True)
    print(f"evaluations of solve by steps of others, median: {statistics.median(ratios):.2f}")


def many_runs(starts: int) -> None:
    print(f"\n{starts} starts under vmap, time by that of optimistix.BFGS (and their compilations)")
    ratios = []
    for name, (fun, size) in MANY.items():
        x = DRAWN.standard_normal((starts, size))
        ours, seconds = compiled(jax.vmap(lambda x, fun=fun: home.solve(fun, x, tol=TOLERANCE)), x)
        found = ours(x)
        best = loosest(lambda t, fun=fun: optimistix(optx.BFGS, fun, t), fun, x, many=True)
        if best is None:
            print(f"{name:24} optimistix.BFGS does not bring the gradient down")
            continue
        theirs, its_seconds, _ = best
        clock: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(7):  # in turn
            for who, run in (("ours", ours), ("theirs", theirs)):
                began = time.perf_counter()
                jax.block_until_ready(run(x))
                clock[who].append(time.perf_counter() - began)
        ratio = min(clock["ours"]) / min(clock["theirs"])
        ratios.append(ratio)
        print(
            f"{name:24} {ratio:5.2f}   compilation {seconds / its_seconds:.1f}   "
            f"success {int(found.success.sum())}, evaluations {found.nfev.mean():.0f}",
            flush=True,
        )
    print(f"geometric mean: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=1000)
    given = parser.parse_args()
    one_run()
    many_runs(given.starts)
