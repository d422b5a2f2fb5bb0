"""Many problems at once: `minimize_many` beside a loop of SciPy's L-BFGS-B over the same problems.

A sample of the loop is timed in the same process, right before and after the batch, and scaled: the
time of the processor on a CPU, so that other work on the machine does not count.
Tolerances: the Euclidean norm of the gradient here, its largest entry for SciPy, which is the
easier one.  Every success is checked by a gradient that is computed anew.

    python benchmarks/many.py \\
        [--problems rosenbrock,curves,logistic,clusters,acquisition,acquisition-numpy] \\
        [--library numpy|torch|cupy|jax] [--device cpu|cuda] [--scale 1.0] [--sample 100]

``--library jax`` on a GPU is ``jax.vmap(momentous.jax.solve)``: its turns take as long as the
launches of their kernels. (XLA's graphs for loops and branches, CONDITIONAL and WHILE in its flag
``xla_gpu_enable_command_buffer``, take .87 to .99 of the time on an H200 with JAX 0.11.2.)

In NumPy an evaluation of a cluster takes 6.5 us: .6 are the function's, and 3 go into the two
matrices of 39 x 39 numbers that L-BFGS reads and changes. Blocks of them that fit the cache brought
nothing, nor did one product of matrices for both.

"acquisition" is the protocol of Irie, Watanabe and Onishi (arXiv:2511.13625): multi-start
maximisation of the logarithm of the expected improvement of a Gaussian process in the unit box from
10 starts, by SciPy's L-BFGS-B one after the other, by L-BFGS-B on the sum over all starts
(stacked), and as a batch. The function is PyTorch's, with gradients by autograd;
"acquisition-numpy" is one that is written by hand, of which a call costs a tenth.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable
from time import perf_counter, process_time, thread_time
from typing import Any

import array_api_compat
import numpy as np
from scipy import linalg, optimize, special

from momentous import Status, minimize_many

TOLERANCE = 1e-6


def _library(x: Any) -> Any:
    """At once for NumPy: the loop calls it for every point."""
    return np if isinstance(x, np.ndarray) else array_api_compat.array_namespace(x)


def rosenbrock(x: Any) -> tuple[Any, Any]:
    xp = _library(x)
    a, b = x[..., 1:] - x[..., :-1] ** 2, 1 - x[..., :-1]
    none = xp.zeros_like(x[..., :1])
    ahead, back = xp.concat([none, 200 * a], axis=-1), -400 * a * x[..., :-1] - 2 * b
    return xp.sum(100 * a**2 + b**2, axis=-1), ahead + xp.concat([back, none], axis=-1)


def curve(x: Any, y: Any, t: Any) -> tuple[Any, Any]:
    """The least squares of p0 exp(-exp(p1) t) + p2 + p3 t."""
    xp = _library(x)
    p0, p1, p2, p3 = (x[..., i : i + 1] for i in range(4))
    rate = xp.exp(p1)
    decay = xp.exp(-rate * t)
    rest = p0 * decay + p2 + p3 * t - y
    parts = [rest * decay, -rest * p0 * decay * rate * t, rest, rest * t]
    gradient = xp.stack([xp.sum(part, axis=-1) for part in parts], axis=-1)
    return 0.5 * xp.sum(rest**2, axis=-1), gradient


def logistic(x: Any, rows: Any) -> tuple[Any, Any]:
    """With a small ridge; the rows have their labels as signs."""
    xp = _library(x)
    margin = xp.matmul(rows, x[..., None])[..., 0]
    size = xp.abs(margin)
    weight = xp.exp(-size)
    losses = xp.log1p(weight) + 0.5 * (size - margin)
    share = xp.where(margin < 0, xp.ones_like(margin), weight) / (1 + weight)
    count = rows.shape[-2]
    gradient = -xp.matmul(share[..., None, :], rows)[..., 0, :] / count + 1e-2 * x
    return xp.sum(losses, axis=-1) / count + 0.5e-2 * xp.sum(x**2, axis=-1), gradient


# Pairs of atoms: the first less the second.
PAIRS = np.zeros((78, 13))
PAIRS[np.arange(78)[:, None], np.stack(np.triu_indices(13, 1), axis=1)] = [1.0, -1.0]


def cluster(x: Any) -> tuple[Any, Any]:
    """Lennard-Jones, 13 atoms: coordinates first and problems last, so that every operation runs
    along the problems; on the host in pieces that stay in the cache."""
    if isinstance(x, np.ndarray) and x.ndim > 1 and len(x) > 256:
        parts = [cluster(x[i : i + 256]) for i in range(0, len(x), 256)]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]
    xp, pairs = _library(x), _like(PAIRS, x)
    atoms = xp.permute_dims(xp.reshape(x, (-1, 13, 3)), (2, 1, 0))
    apart = xp.matmul(pairs, atoms)
    inverse = 1.0 / xp.sum(apart * apart, axis=0)
    sixth = inverse * inverse * inverse
    force = -24.0 * (2.0 * sixth - 1.0) * sixth * inverse
    gradient = xp.permute_dims(xp.matmul(pairs.T, force * apart), (2, 1, 0))
    value = 4.0 * xp.sum((sixth - 1.0) * sixth, axis=0)
    return xp.reshape(value, x.shape[:-1]), xp.reshape(gradient, x.shape)


def problems(scale: float) -> dict[str, tuple[Callable[..., Any], np.ndarray, tuple[Any, ...]]]:
    """The function, the starts, and the data of each."""
    random = np.random.default_rng(0)
    many, fewer = max(1, round(10_000 * scale)), max(1, round(1_000 * scale))
    t = np.linspace(0.0, 5.0, 50)
    true = random.normal([2.0, 0.0, 1.0, 0.1], 0.3, (many, 4))
    y = true[:, :1] * np.exp(-np.exp(true[:, 1:2]) * t) + true[:, 2:3] + true[:, 3:] * t
    rows = random.standard_normal((fewer, 200, 10))
    signs = np.sign(rows @ random.standard_normal(10) + 2 * random.standard_normal((fewer, 200)))
    grid = np.stack(np.meshgrid(*[np.arange(3.0)] * 3), axis=-1).reshape(-1, 3)
    places = np.stack([1.1 * grid[random.permutation(27)[:13]] for _ in range(many)])
    places += random.uniform(-0.2, 0.2, places.shape)
    return {
        "rosenbrock": (rosenbrock, 1.5 * random.standard_normal((many, 4)), ()),
        "curves": (
            lambda x, y: curve(x, y, _like(t, x)),
            true + 0.5 * random.standard_normal((many, 4)),
            (y + 0.05 * random.standard_normal(y.shape),),
        ),
        "logistic": (logistic, np.zeros((fewer, 10)), (rows * signs[..., None],)),
        "clusters": (cluster, places.reshape(many, 39), ()),
    }


def _like(a: np.ndarray, x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return a
    xp = array_api_compat.array_namespace(x)
    return xp.asarray(a, dtype=x.dtype, device=array_api_compat.device(x))


def loop_seconds(fun: Any, starts: np.ndarray, data: tuple[Any, ...], sample: range) -> Any:
    """Of SciPy's L-BFGS-B for each of the sample, and its calls."""
    began, calls = thread_time(), 0
    options = {"gtol": TOLERANCE, "ftol": 0.0, "maxiter": 100_000, "maxfun": 100_000}
    for i in sample:
        args = tuple(a[i] for a in data)
        found = optimize.minimize(
            fun, starts[i], args, jac=True, method="L-BFGS-B", options=options
        )
        calls += found.nfev
    return (thread_time() - began) / len(sample), calls / len(sample)


def compare(name: str, problem: Any, library: str, device: str, sample: int) -> None:
    fun, starts, data = problem
    few = min(sample, len(starts)) // 2 or 1
    before, calls = loop_seconds(fun, starts, data, range(few))
    solve = on_jax_gpu if library == "jax" and device != "cpu" else in_batch
    result, seconds, again = solve(fun, starts, data, library, device)
    after, _ = loop_seconds(fun, starts, data, range(few, min(2 * few, len(starts))))
    loop = (before + after) / 2 * len(starts)
    statuses = {Status(s).name: c for s, c in Counter(result["status"].tolist()).items()}
    gradients = fun(result["x"], *data)[1]
    wrong = int(
        np.sum(result["success"] & ~(np.linalg.norm(gradients, axis=-1) <= 1.01 * TOLERANCE))
    )
    print(
        f"{name:>11}: {len(starts)} problems, {library} on {device}: {seconds:.2f} s "
        f"(again {again:.2f} s), loop {loop:.1f} s: {loop / seconds:.1f} times "
        f"(again {loop / again:.1f}); evaluations {result['nfev'].mean():.1f} against {calls:.1f}; "
        f"{statuses}; false successes {wrong}",
        flush=True,
    )


def in_batch(fun: Any, starts: np.ndarray, data: Any, library: str, device: str) -> Any:
    import importlib

    xp = np
    place: dict[str, Any] = {}
    if library != "numpy":
        xp = importlib.import_module("jax.numpy" if library == "jax" else library)
        place = {"device": device} if library == "torch" else {}
    if library == "jax":
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    X, given = xp.asarray(starts, **place), tuple(xp.asarray(a, **place) for a in data)
    times = []
    clock = process_time if device == "cpu" else perf_counter
    for _ in range(2):
        began = clock()
        result = minimize_many(fun, X, given, jac=True, tol=TOLERANCE)
        x = result.x
        x = (
            x.cpu().numpy()
            if library == "torch"
            else x.get()
            if library == "cupy"
            else np.asarray(x)
        )
        times.append(clock() - began)
    columns = {name: getattr(result, name) for name in ("status", "success", "nfev")}
    return columns | {"x": x}, *times


def on_jax_gpu(fun: Any, starts: np.ndarray, data: Any, library: str, device: str) -> Any:
    import jax

    jax.config.update("jax_enable_x64", True)
    from momentous.jax import solve

    def value(x: Any, *args: Any) -> Any:
        return fun(x, *args)[0]

    run = jax.jit(jax.vmap(lambda x, *args: solve(value, x, args, method="auto", tol=TOLERANCE)))
    X, given = jax.numpy.asarray(starts), [jax.numpy.asarray(a) for a in data]
    times = []
    for _ in range(2):
        began = perf_counter()
        found = jax.block_until_ready(run(X, *given))
        times.append(perf_counter() - began)
    columns = {"status": found.status, "success": found.success, "nfev": found.nfev}
    return {name: np.asarray(a) for name, a in (columns | {"x": found.x}).items()}, *times


# The protocol of arXiv:2511.13625.


def log_improvement(d: int, points: int = 100, seed: int = 0) -> tuple[Any, Any]:
    """-log EI of a Gaussian process (Matern 5/2) of Rastrigin's function at random points, with its
    gradient: by NumPy, and by PyTorch."""
    random = np.random.default_rng(seed)
    X = random.random((points, d))
    z = 10.24 * X - 5.12
    y = np.sum(z**2 - 10 * np.cos(2 * np.pi * z) + 10, axis=1)
    y, length = (y - y.mean()) / y.std(), 0.5 * math.sqrt(d)

    def matern(r: Any, exp: Any = np.exp) -> tuple[Any, Any]:
        """The kernel, and its derivative by r over r."""
        s = math.sqrt(5) * r / length
        return (1 + s + s * s / 3) * exp(-s), -5 / (3 * length**2) * (1 + s) * exp(-s)

    gram = matern(np.linalg.norm(X[:, None] - X, axis=-1))[0] + 1e-4 * np.eye(points)
    inverse = linalg.inv(gram)
    alpha, best = inverse @ y, y.min()

    def by_numpy(x: np.ndarray) -> tuple[Any, Any]:
        apart = x[..., None, :] - X
        k, dk = matern(np.sqrt(np.sum(apart**2, axis=-1)))
        weights = k @ inverse
        sigma = np.sqrt(np.maximum(1 - np.sum(weights * k, axis=-1), 1e-10))
        u = (best - k @ alpha) / sigma
        tail = special.erfcx(-u / math.sqrt(2)) * math.sqrt(math.pi / 2)
        h = np.maximum(1 + u * tail, 1e-300)
        by_u = tail / h
        value = -np.log(sigma) + u * u / 2 - np.log(h)
        # -d log EI = -(tail/h) du - d log sigma, du = -(d mu + u d sigma)/sigma.
        of_mean = (by_u / sigma)[..., None] * alpha
        of_sigma = ((u * by_u - 1) / sigma / sigma)[..., None] * -weights
        return value, np.sum(((of_mean + of_sigma) * dk)[..., None] * apart, axis=-2)

    def by_torch(x: np.ndarray) -> tuple[Any, Any]:
        import torch

        data = [torch.from_numpy(a) for a in (X, inverse, alpha)]
        leaf = torch.from_numpy(x.copy()).requires_grad_()
        k, _ = matern((leaf[..., None, :] - data[0]).square().sum(-1).sqrt(), torch.exp)
        variance = 1 - (k @ data[1] * k).sum(-1)
        sigma = variance.clamp_min(1e-10).sqrt()
        u = (best - k @ data[2]) / sigma
        tail = torch.special.erfcx(-u / math.sqrt(2)) * math.sqrt(math.pi / 2)
        value = -sigma.log() + u * u / 2 - (1 + u * tail).clamp_min(1e-300).log()
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach().numpy(), gradient.numpy()

    return by_numpy, by_torch


def acquisition(by_torch: bool, repeats: int = 5) -> None:
    options = {"gtol": 1e-4, "ftol": 0.0, "maxiter": 200, "maxcor": 10}
    for d in (5, 10, 20):
        seconds: dict[str, list[float]] = {"one by one": [], "stacked": [], "batch": []}
        lowest: dict[str, list[float]] = {name: [] for name in seconds}
        for seed in range(repeats):
            fun = log_improvement(d, seed=seed)[by_torch]
            starts = np.random.default_rng(seed + 100).random((10, d))

            def stacked(x: np.ndarray, fun: Any = fun, shape: Any = starts.shape) -> Any:
                values, gradients = fun(x.reshape(shape))
                return values.sum(), gradients.ravel()

            def by_scipy(fun: Any, x: np.ndarray) -> Any:
                box = [(0.0, 1.0)] * x.size
                given = {"jac": True, "method": "L-BFGS-B", "options": options, "bounds": box}
                return optimize.minimize(fun, x, **given)

            def one_by_one(fun: Any = fun, starts: Any = starts) -> float:
                return min(float(by_scipy(fun, x).fun) for x in starts)

            def together(fun: Any = fun, starts: Any = starts, stacked: Any = stacked) -> float:
                found = by_scipy(stacked, starts.ravel())
                return float(fun(found.x.reshape(starts.shape))[0].min())

            def batch(fun: Any = fun, starts: Any = starts) -> float:
                result = minimize_many(
                    fun, starts, jac=True, bounds=(0.0, 1.0), tol=1e-4, max_iterations=200
                )
                return float(result.fun.min())

            for name, work in zip(seconds, (one_by_one, together, batch), strict=True):
                work()
                began = process_time()  # on one thread, whoever else computes
                lowest[name].append(work())
                seconds[name].append(process_time() - began)
        first = np.array(seconds["one by one"])
        for name, times in seconds.items():
            ratio = np.exp(np.mean(np.log(first / np.array(times))))
            print(
                f"acquisition, {'PyTorch' if by_torch else 'NumPy'}, d = {d:2}, {name:>10}: "
                f"{np.median(times) * 1e3:7.1f} ms, {ratio:.2f} times one by one; best -log EI "
                f"{np.mean(lowest[name]):.6f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default="rosenbrock,curves,logistic,clusters,acquisition")
    parser.add_argument("--library", default="numpy", choices=["numpy", "torch", "cupy", "jax"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--sample", type=int, default=100)
    given = parser.parse_args()
    known = problems(given.scale)
    for name in given.problems.split(","):
        if name.startswith("acquisition"):
            acquisition(name == "acquisition")
        else:
            compare(name, known[name], given.library, given.device, given.sample)


if __name__ == "__main__":
    main()
