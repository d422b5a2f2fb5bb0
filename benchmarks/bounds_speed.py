"""What bounds cost: time per iteration beside the method without bounds, and JAX beside jaxopt.

    python benchmarks/bounds_speed.py [--jax]

The first table has the time per iteration with bounds over that without, on a chain of cosines that
is cheap to evaluate: with a box so wide that it is never met, and with one that holds about a fifth
of the variables.  Behind these stand the same ratio of SciPy's L-BFGS-B with 20 pairs in the second
box, and the time per iteration of the method there over that of L-BFGS-B.  The second table
(``--jax``) has runs in compiled code, one and a batch under vmap, beside jaxopt's LBFGSB, by the
same tolerance on |x - P(x - g)|.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.optimize

import momentous

REPEATS = 7


def chain(size: int) -> tuple[Callable[[np.ndarray], Any], np.ndarray]:
    """f = sum a_i x_i^2/2 + cos(3 x_i) + (x_{i+1} - x_i)^2, a_i from 0.01 to 10."""
    a, rng = np.geomspace(0.01, 10.0, size), np.random.default_rng(0)
    start = np.clip(rng.standard_normal(size), -0.8, 1.1)

    def f(x: np.ndarray) -> tuple[float, np.ndarray]:
        step, g = np.diff(x), a * x - 3 * np.sin(3 * x)
        g[1:] += 2 * step
        g[:-1] -= 2 * step
        return float(a @ (x * x) / 2 + np.cos(3 * x).sum() + step @ step), g

    return f, start


def seconds_per_iteration(f: Any, x0: np.ndarray, method: str, bounds: Any, steps: int) -> Any:
    began = time.process_time()
    run = momentous.minimize(
        f, x0, jac=True, method=method, bounds=bounds, tol=0.0, max_iterations=steps, trace=False
    )
    held = 0 if bounds is None else int(np.count_nonzero(run.active))
    return (time.process_time() - began) / max(1, run.nit), held


def seconds_of_scipy(f: Any, x0: np.ndarray, bounds: Any, steps: int) -> float:
    options = {"maxiter": steps, "maxcor": 20, "maxfun": 10**6, "gtol": 0.0, "ftol": 0.0}
    box = None if bounds is None else scipy.optimize.Bounds(*bounds)
    began = time.process_time()
    run = scipy.optimize.minimize(f, x0, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return (time.process_time() - began) / max(1, run.nit)


def print_overhead() -> None:
    print("| method | variables | never met | held | L-BFGS-B | beside it | variables held |")
    print("|---|---|---|---|---|---|---|")
    for method in ("lbfgs", "auto", "gd", "ada-ragd"):
        for size in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
            f, x0 = chain(size)
            steps = {1_000_000: 12, 100_000: 40, 10_000: 100}.get(size, 200)
            wide, tight, scipys, beside, held = [], [], [], [], 0
            box = -0.8, 1.1
            for _ in range(REPEATS if size < 1e6 else 3):
                plain, _ = seconds_per_iteration(f, x0, method, None, steps)
                far, _ = seconds_per_iteration(f, x0, method, (None, 1e9), steps)
                near, held = seconds_per_iteration(f, x0, method, box, steps)
                theirs = seconds_of_scipy(f, x0, box, steps)
                wide.append(far / plain)
                tight.append(near / plain)
                scipys.append(theirs / seconds_of_scipy(f, x0, None, steps))
                beside.append(near / theirs)
            cells = [f"{statistics.median(each):.2f}" for each in (wide, tight, scipys, beside)]
            print(f"| {method} | {size:,} | {' | '.join(cells)} | {held:,} |", flush=True)


def print_jax() -> None:
    import jax
    import jax.numpy as jnp
    import jaxopt

    from momentous.jax import solve

    jax.config.update("jax_enable_x64", True)
    print("| problem | momentous: solved, gradients, ms | jaxopt: solved, gradients, ms |")
    print("|---|---|---|")
    for size, lanes in ((20, 1), (20, 256), (200, 1), (200, 64)):
        a = jnp.geomspace(0.01, 10.0, size)

        def f(x: Any, a: Any = a) -> Any:
            return jnp.sum(a * x * x / 2 + jnp.cos(3 * x)) + jnp.sum(jnp.diff(x) ** 2)

        x0 = jnp.asarray(np.random.default_rng(0).uniform(-0.8, 1.1, (lanes, size)))
        lower, upper = jnp.full(size, -0.8), jnp.full(size, 1.1)

        def ours(x: Any, f: Any = f, box: Any = (lower, upper)) -> Any:
            found = solve(f, x, bounds=box, tol=1e-6, method="lbfgs", memory=10)
            return found.x, found.nfev

        def theirs(x: Any, f: Any = f, box: Any = (lower, upper)) -> Any:
            solver = jaxopt.LBFGSB(f, tol=1e-6, maxiter=2000, history_size=10)
            found = solver.run(x, bounds=box)
            return found.params, found.state.num_grad_eval

        cells = []
        for run in (ours, theirs):
            compiled = jax.jit(jax.vmap(run))
            x, count = jax.block_until_ready(compiled(x0))
            times = []
            for _ in range(5):
                began = time.perf_counter()
                jax.block_until_ready(compiled(x0))
                times.append(1e3 * (time.perf_counter() - began))
            gap = x - jnp.clip(x - jax.vmap(jax.grad(f))(x), lower, upper)
            inside = bool(((x >= lower) & (x <= upper)).all())
            solved = int((jnp.linalg.norm(gap, axis=1) <= 1.001e-6).sum())
            cells.append(
                f"{solved} of {lanes}{'' if inside else ' (outside)'}, {float(count.mean()):.0f}, "
                f"{statistics.median(times):.1f}"
            )
        print(f"| {size} variables, {lanes} at once | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jax", action="store_true")
    print_jax() if parser.parse_args().jax else print_overhead()
