"""What an iteration costs beside the gradient on arrays of JAX: the host's loop and a compiled one.

The same function and the same method twice: by `momentous.minimize`, whose loop runs on the host
and waits for a few sums in every iteration, and by `momentous.jax.solve`, where the whole run is
compiled.  The time of the evaluations that each has made, measured alone in a compiled loop, is
taken off.  At a small d what is left is the host's; at a large one it is the traffic of the
vectors, given in units of one pass that reads two vectors and writes one.

    python benchmarks/jax_loop.py [--sizes 1000,10000000] [--iterations 60] [--float32] \\
        [--methods ragd,ada-ragd]
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp

import momentous
from momentous.jax import solve

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("ragd", {"step_size": 0.02, "momentum": 0.9, "radius": 1e9, "epoch_length": 10**6}),
    ("ada-ragd", {}),
    ("ada-rhb", {}),
    ("universal-hb", {}),
    ("lbfgs", {}),
    ("auto", {}),
]


def waves(x: Any, scales: Any) -> Any:
    """Smooth, nonconvex, and cheap."""
    return jnp.sum(scales * (1 - jnp.cos(x)))


def seconds(work: Any) -> tuple[float, Any]:
    """The best of three, after one that compiles."""
    answer, times = jax.block_until_ready(work()), []
    for _ in range(3):
        started = perf_counter()
        answer = jax.block_until_ready(work())
        times.append(perf_counter() - started)
    return min(times), answer


def of_gradient(x0: Any, scales: Any, repeats: int = 50) -> float:
    """One value and gradient, within a compiled loop."""

    def once(_: int, x: Any) -> Any:
        value, gradient = jax.value_and_grad(waves)(x, scales)
        return x - 1e-6 * gradient + 0.0 * value

    run = jax.jit(lambda x: jax.lax.fori_loop(0, repeats, once, x))
    return seconds(lambda: run(x0))[0] / repeats


def of_pass(x0: Any, repeats: int = 50) -> float:
    """x + 0.5 y, within a compiled loop."""

    def once(_: int, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[1], pair[0] + 0.5 * pair[1]

    run = jax.jit(lambda x, y: jax.lax.fori_loop(0, repeats, once, (x, y)))
    return seconds(lambda: run(x0, x0))[0] / repeats


def row(name: str, parameters: dict[str, Any], x0: Any, scales: Any, count: int) -> str:
    """One method, by both loops."""
    gradient, unit = of_gradient(x0, scales), of_pass(x0)
    given = {"method": name, "tol": 0.0, **parameters}

    def whole() -> Any:
        return solve(waves, x0, (scales,), max_evaluations=count, **given)

    started = perf_counter()
    jax.block_until_ready(whole())
    first = perf_counter() - started
    compiled, found = seconds(whole)
    compiled = compiled / int(found.nfev) - gradient
    fun = jax.jit(lambda x: waves(x, scales))

    def steps() -> Any:
        limits = {"max_iterations": int(found.nit), "trace": False}
        return momentous.minimize(fun, x0, jac="autodiff", **limits, **given)

    host, result = seconds(steps)
    host = host / result.njev - gradient
    return (
        f"  {name:13s} beside the gradient, per evaluation: host {1e6 * host:8.1f} us, compiled "
        f"{1e6 * compiled:8.1f} us ({compiled / unit:5.1f} passes), {host / compiled:5.1f} times "
        f"less; with it {(compiled + gradient) / (host + gradient):.2f} of the time; first call "
        f"{first:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1000,10000000")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--methods", default=",".join(name for name, _ in METHODS))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", not given.float32)
    dtype = jnp.float32 if given.float32 else jnp.float64
    for d in map(int, given.sizes.split(",")):
        scales = jnp.linspace(1.0, 10.0, d, dtype=dtype)
        x0 = jnp.linspace(0.5, 2.5, d, dtype=dtype)
        gradient, unit = of_gradient(x0, scales), of_pass(x0)
        print(
            f"{jax.default_backend()}, {dtype.__name__}, d = {d:,}: value and gradient "
            f"{1e6 * gradient:.0f} us, one pass {1e6 * unit:.1f} us"
        )
        for name, parameters in METHODS:
            if name in given.methods.split(","):
                print(row(name, parameters, x0, scales, given.iterations))


if __name__ == "__main__":
    main()
