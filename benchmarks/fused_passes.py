"""What fused passes save: time of an iteration with and without them, for a gradient of 1 ms.

``python benchmarks/fused_passes.py [--dimension 1000000] [--device cuda|cpu]`` prints, for every
array library that is here, microseconds per evaluation, their ratio, and the fused time in units of
the gradient's own.
"""

from __future__ import annotations

import argparse
import importlib
import time
from functools import partial

import numpy as np

import momentous
from momentous.core import passes

METHODS = ("lbfgs", "auto", "ada-ragd", "ada-rhb", "universal-hb", "ragd")


def problems(name: str, dimension: int, device: str):
    """x0, a function that gives value and gradient, and how to wait; ``work`` repeats a part."""
    scales = 10.0 ** np.linspace(-1, 1, dimension)
    start = np.linspace(-1, 1, dimension)
    if name == "torch":
        import torch

        where = torch.device(device)
        s, x0 = (torch.tensor(a, device=where) for a in (scales, start))

        def fun(x, repeats):
            y = s * x
            for _ in range(repeats):
                y = y * 1.0
            return (x * y).sum() / 2 + torch.cos(x).sum(), y - torch.sin(x)

        return x0, fun, torch.cuda.synchronize if device == "cuda" else (lambda: None)
    if name == "cupy":
        cp = importlib.import_module("cupy")
        s, x0 = cp.asarray(scales), cp.asarray(start)

        def fun(x, repeats):
            y = s * x
            for _ in range(repeats):
                y = y * 1.0
            return (x * y).sum() / 2 + cp.cos(x).sum(), y - cp.sin(x)

        return x0, fun, cp.cuda.Device().synchronize
    if name == "jax":
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        s, x0 = jnp.asarray(scales), jnp.asarray(start)

        def fun(x, repeats):
            y = jax.lax.fori_loop(0, repeats, lambda i, y: jnp.sin(y) * 0 + y, s * x)
            return (x * y).sum() / 2 + jnp.cos(x).sum(), y - jnp.sin(x)

        return x0, jax.jit(fun, static_argnames="repeats"), lambda: None
    s, x0 = scales, start

    def fun(x, repeats):
        y = s * x
        for _ in range(repeats):
            y = y * 1.0
        return float(x @ y) / 2 + float(np.cos(x).sum()), y - np.sin(x)

    return x0, fun, lambda: None


def calibrated(fun, x0, wait, seconds: float) -> tuple[int, float]:
    """Repeats for which value and gradient take that long, and how long they take."""
    repeats, taken = 0, 0.0
    while repeats < 4096:
        for _ in range(3):
            value, _ = fun(x0, repeats)
            float(value)
        wait()
        began = time.perf_counter()
        for _ in range(10):
            value, _ = fun(x0, repeats)
            float(value)
        wait()
        taken = (time.perf_counter() - began) / 10
        if taken >= seconds:
            break
        repeats = max(1, 2 * repeats)
    return repeats, taken


def timed(fun, x0, method: str, evaluations: int) -> float:
    options = {"step_size": 0.05, "momentum": 0.9, "radius": 1e9, "epoch_length": 10**6}
    chosen = momentous.RAGD(**options) if method == "ragd" else method
    begun = []

    def counted(x):
        begun.append(time.perf_counter())
        return fun(x)

    momentous.minimize(
        counted, x0, jac=True, method=chosen, tol=0.0, max_evaluations=evaluations, trace=False
    )
    gaps = np.diff(begun[len(begun) // 4 :])
    return float(np.median(gaps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradient", type=float, default=1e-3)
    parser.add_argument("--libraries", default="torch,cupy,jax")
    given = parser.parse_args()
    fused = passes.device_passes
    for name in given.libraries.split(","):
        try:
            x0, fun, wait = problems(name, given.dimension, given.device)
        except ImportError:
            continue
        repeats, gradient = calibrated(fun, x0, wait, given.gradient)
        for method in METHODS:
            row = []
            for which in (fused, lambda like: None, fused, lambda like: None):
                passes.device_passes = which
                row.append(timed(partial(fun, repeats=repeats), x0, method, 120))
            best, plain = min(row[::2]), min(row[1::2])
            print(
                f"{name} {method:14} fused {1e6 * best:8.0f} us, one by one {1e6 * plain:8.0f} us, "
                f"ratio {plain / best:.2f}, {best / gradient:.2f} of a gradient",
                flush=True,
            )


if __name__ == "__main__":
    main()
