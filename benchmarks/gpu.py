"""The low-rank problems on a GPU: what sweeps, gradients and fits take, against bounds.

    python benchmarks/gpu.py [--only sweeps,gradient,...] [--data FOLDER]

All times are medians of repeated runs after a warm-up, in ms unless said otherwise, with the host's
part: a call ends when its numbers have come back.  The twins of MovieLens 10M and of the Netflix
prize data are made first, which takes a minute or two on the CPU; a folder keeps them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import cupy
import numpy as np

from gpu_common import bandwidth, report, timed, twin
from gpu_file import file
from gpu_scale import scaling
from gpu_variants import determinism, variants
from momentous import Result, accelerate
from momentous.lowrank import LowRankObjective, Penalty, Ratings, Sweep
from momentous.lowrank.backends import RowStep
from momentous.lowrank.model import fit_model, save_model
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.solvers.learned import LearnedSweep

SWEEP_BOUNDS = {10: 3.5, 16: 8.0, 64: 60.0, 128: 250.0}  # ms, Netflix twin
GRADIENT_BOUND, SMALL_SWEEP_BOUND, ACCELERATED_BOUND = 0.3, 0.4, 150.0


def sweeps(folder: Path | None) -> None:
    """Plain sweeps of alternating least squares, and 20 accelerated ones."""
    for name, ranks in (("ml-10m", {10: SMALL_SWEEP_BOUND, 64: None}), ("netflix", SWEEP_BOUNDS)):
        ratings = twin(name, folder)
        print(f"\n{name}: {ratings}")
        for rank, bound in ranks.items():
            rows, columns, both = plain_sweep(ratings, rank)
            report(f"  sweep, rank {rank} (rows {rows:.2f}, columns {columns:.2f})", both, bound)
        accelerated(ratings, ACCELERATED_BOUND if name == "netflix" else None)


def plain_sweep(ratings: Ratings, rank: int) -> tuple[float, float, float]:
    """Half a sweep for the rows, one for the columns, and both in turn."""
    objective = LowRankObjective(ratings, rank, balance=0.0, ridge=5.0, device="cuda")
    U, V = objective.split(objective.random_start(np.random.default_rng(0)))
    sides = objective.side(0), objective.side(1)
    steps = [
        RowStep(objective.weights[which], other, with_value=which == 0)
        for which, other in ((0, V), (1, U))
    ]

    def half(which: int) -> None:
        sides[which].solve_rows(steps[which])

    def both() -> None:
        half(0)
        half(1)

    return timed(lambda: half(0), 10), timed(lambda: half(1), 10), timed(both, 20)


def accelerated(ratings: Ratings, bound: float | None) -> None:
    """20 accelerated sweeps with restarts, biases and rescaling, as in `MatrixCompletion`."""
    mean = ratings.mean
    penalty = Penalty(1.2, 2.0, 0.5, biases=True)
    objective = LowRankObjective(ratings, 10, balance=0.0, ridge=penalty, mean=mean, device="cuda")
    sweep = Sweep(objective)
    start = sweep.begin(objective.random_start(np.random.default_rng(0)))

    def work() -> None:
        accelerate(sweep, start, value=True, max_iterations=20, tol=0.0)

    report("  20 accelerated sweeps, rank 10, biases", timed(work, 3, 1), bound)


def priors(folder: Path | None) -> None:
    """Sweeps with learned priors beside sweeps with the fixed ridge, and a whole fit."""
    ratings = twin("netflix", folder)
    print(f"\nlearned priors, {ratings}")
    for rank, most in ((10, 2.0), (64, 1.5)):
        config = FitConfig(rank=rank, max_iterations=12, tol=0.0, device="cuda")
        objective = config.objective(ratings)
        steps = config.steps(objective)
        plain = Sweep(objective.fixed, steps=steps, rescale=False, state="V")
        x = plain.begin(objective.fixed.random_start(np.random.default_rng(0)))
        before = timed(lambda x=x, sweep=plain: sweep(x), 5, 2)
        x, _ = plain.run(objective.fixed.random_start(np.random.default_rng(0)), max_iterations=5)
        sweep = LearnedSweep(objective, steps)
        x = objective.begin(x)
        took = timed(lambda x=x, sweep=sweep: sweep(x), 5, 2)
        report(f"  rank {rank}: a sweep with the fixed ridge", before)
        report(f"  rank {rank}: a sweep with learned priors", took)
        report(f"  rank {rank}: one over the other", took / before, most, "")
        began = perf_counter()
        fit_model(ratings, config)
        took = perf_counter() - began
        report(f"  rank {rank}: a whole fit, 5 and 12 sweeps", took, None, "s")


def conjugate(folder: Path | None) -> None:
    """Exact half sweeps and those by conjugate gradients: time, and the objective after 20."""
    ratings = twin("netflix", folder)
    print(f"\nexact half sweeps, and 1 to 3 steps of conjugate gradients; {ratings}")
    for rank, bound in ((32, None), (64, 25.0), (128, 60.0)):
        objective = LowRankObjective(ratings, rank, balance=0.0, ridge=5.0, device="cuda")
        U, V = objective.split(objective.random_start(np.random.default_rng(0)))
        for steps in (None, 1, 2, 3):

            def half(
                which: int, o: LowRankObjective = objective, s: int | None = steps,
                P: tuple[Any, Any] = (U, V),
            ) -> None:  # fmt: skip
                o.half_sweep(which, P[which], P[1 - which], with_value=False, steps=s)

            rows, columns = (timed(lambda w=which: half(w), 5, 2) for which in (0, 1))  # type: ignore[misc]
            report(f"  rank {rank}, {steps or 'exact'} (rows {rows:.1f}, columns {columns:.1f})",
                   rows + columns, bound if steps == 2 else None)  # fmt: skip
        for ridge in (1.0, 10.0):
            lowest = -np.inf
            for steps in (None, 2, 3):
                sweep = Sweep(objective.with_ridge(ridge), steps=steps)
                accelerated_to(sweep, lowest, 2)
                found, took = accelerated_to(sweep, lowest, 20 if steps is None else 60)
                lowest = found.fun if steps is None else lowest
                name = f"ridge {ridge:g}, {steps or 'exact'}"
                report(f"    {name}: {found.nit} accelerated sweeps to {found.fun:.6f}", took)


def accelerated_to(sweep: Sweep, lowest: float, limit: int) -> tuple[Result, float]:
    """Accelerated sweeps from a random start until the objective is as low, and their time."""
    start = sweep.begin(sweep.objective.random_start(np.random.default_rng(0)))

    def low_enough(intermediate_result: Any) -> bool:
        return bool(intermediate_result.fun <= lowest)

    cupy.cuda.Device().synchronize()
    began = perf_counter()
    found = accelerate(sweep, start, value=True, max_iterations=limit, tol=0.0, callback=low_enough)
    cupy.cuda.Device().synchronize()
    return found, 1e3 * (perf_counter() - began)


def gradient(folder: Path | None) -> None:
    """Value and gradient at rank 10, against PyTorch's autograd."""
    ratings = twin("ml-10m", folder)
    print(f"\nvalue and gradient, {ratings}")
    found = {}
    for loss in ("squared", "logistic", "implicit"):
        data = ratings.signs() if loss == "logistic" else ratings
        for dtype in (np.float32, np.float64):
            objective = LowRankObjective(data, 10, loss, dtype=dtype, device="cuda")
            x = objective.random_start(np.random.default_rng(0))
            found[loss, dtype] = timed(lambda o=objective, x=x: o.value_and_gradient(x), 50)
            bound = {"squared": GRADIENT_BOUND, "logistic": 1.5 * found["squared", np.float32]}
            single = dtype == np.float32
            report(f"  {loss}, {np.dtype(dtype)}", found[loss, dtype],
                   bound.get(loss) if single else None)  # fmt: skip
            del objective
    import torch

    device = torch.device("cuda")
    rows, cols = (torch.as_tensor(np.array(one), device=device).long()
                  for one in (ratings.rows, ratings.cols))  # fmt: skip
    values = torch.as_tensor(np.array(ratings.values), device=device)
    U, V = (torch.randn(n, 10, device=device, requires_grad=True) for n in ratings.shape)

    def with_torch() -> None:
        z = (U[rows] * V[cols]).sum(1)
        loss = 0.5 * ((z - values) ** 2).mean() + ((U.T @ U - V.T @ V) ** 2).sum()
        torch.autograd.grad(loss, (U, V))

    other = timed(with_torch, 10)
    report("  PyTorch's autograd, squared, float32", other)
    report("  times faster than PyTorch (asked for: 40)", other / found["squared", np.float32],
           unit="")  # fmt: skip


def fit(folder: Path | None) -> None:
    """From ratings in memory to a saved model."""
    ratings = twin("netflix", folder)
    print(f"\nfit and save, {ratings}")
    small = twin("ml-10m", folder)
    config = FitConfig(rank=10, max_iterations=20, tol=0.0, device="cuda")
    fit_model(small, config)  # compiles
    for _ in range(2):
        began = perf_counter()
        found = fit_model(ratings, config)
        report("  whole fit, 20 iterations, s", perf_counter() - began, None, "s")
        report("  of it in the iterations, s", found.result.time, 0.3, "s")
    with tempfile.TemporaryDirectory() as place:
        began = perf_counter()
        save_model(found.model, Path(place) / "model", {})
        report("  save, s", perf_counter() - began, None, "s")


def recommend(folder: Path | None) -> None:
    """The ten best items of every user of the Netflix twin, and the held-out error."""
    ratings = twin("netflix", folder)
    kept, held_out = ratings.split(0.02)
    fitted = fit_model(kept, FitConfig(rank=10, max_iterations=3, tol=0.0, device="cuda"))
    users = fitted.model.rows.ids
    print(f"\nten items for each of {len(users):,} users, of {len(fitted.model.cols):,}")
    fitted.model.recommend_all(users[:100], device="cuda")
    began = perf_counter()
    fitted.model.recommend_all(users, device="cuda")
    whole = perf_counter() - began
    report("  on the GPU", whole, None, "s")
    began = perf_counter()
    fitted.model.recommend_all(users[:5000])
    here = (perf_counter() - began) * len(users) / 5000
    report("  on the CPU (from 5,000 of them)", here, None, "s")
    objective = LowRankObjective(kept, 10, device="cuda")
    x, limits = objective.random_start(np.random.default_rng(0)), kept.value_range
    print(f"held-out error, {held_out}")
    report("  on the GPU", timed(lambda: objective.error(x, held_out, limits), 10))
    there = LowRankObjective(kept, 10)
    y = there.random_start(np.random.default_rng(0))
    report("  on the CPU", timed(lambda: there.error(y, held_out, limits), 1, 0))


def parts(folder: Path | None) -> None:
    """Kernel by kernel, from CuPy's own clock."""
    small = twin("ml-10m", folder)
    objective = LowRankObjective(small, 10, device="cuda")
    x = objective.random_start(np.random.default_rng(0))
    objective.value_and_gradient(x)
    print("\nkernel by kernel: value and gradient, ml-10m; then sweeps, netflix")
    for name, ms in kernel_times(lambda: objective.value_and_gradient(x)).items():
        report(f"  value and gradient: {name}", ms)
    ratings = twin("netflix", folder)
    for data, rank in ((small, 10), *((ratings, rank) for rank in (10, 16, 32, 64, 128))):
        objective = LowRankObjective(data, rank, balance=0.0, ridge=5.0, device="cuda")
        U, V = objective.split(objective.random_start(np.random.default_rng(0)))
        for which, other in ((0, V), (1, U)):
            side = objective.side(which)
            step = RowStep(objective.weights[which], other)
            side.solve_rows(step)
            for name, ms in kernel_times(lambda s=side, t=step: s.solve_rows(t)).items():
                where = "ml-10m, " if data is small else ""
                report(f"  {where}rank {rank}, {('rows', 'columns')[which]}: {name}", ms)


def kernel_times(work: Callable[[], Any]) -> dict[str, float]:
    """Time in each of our kernels: each launch is waited for."""
    from momentous.lowrank.backends.cuda import modules

    times: dict[str, float] = {}
    look_up = modules.Module.get_function

    def watched(module: Any, name: str) -> Any:
        kernel = look_up(module, name)

        def call(*arguments: Any) -> None:
            cupy.cuda.Device().synchronize()
            began = perf_counter()
            kernel(*arguments)
            cupy.cuda.Device().synchronize()
            times[name] = times.get(name, 0.0) + 1e3 * (perf_counter() - began)

        call.num_regs = kernel.num_regs  # type: ignore[attr-defined]
        call.shared_size_bytes = kernel.shared_size_bytes  # type: ignore[attr-defined]
        return call

    modules.Module.get_function = watched  # type: ignore[method-assign]
    try:
        work()
    finally:
        modules.Module.get_function = look_up  # type: ignore[method-assign]
    return times


def cpu(folder: Path | None) -> None:
    """The same sweep on this machine's CPU, by the backend that "auto" takes there."""
    ratings = twin("ml-10m", folder)
    for rank in (10, 32, 64, 128):
        took = []
        for device in ("cuda", "cpu"):
            objective = LowRankObjective(ratings, rank, balance=0.0, ridge=5.0, device=device)
            U, V = objective.split(objective.random_start(np.random.default_rng(0)))

            def sweep(o: LowRankObjective = objective, U: Any = U, V: Any = V) -> None:
                o.half_sweep(0, None, V)
                o.half_sweep(1, None, U)

            took.append(timed(sweep, 5 if device == "cuda" else 2, 1))
        name = f"{objective.backend.name} on {objective.threads} threads"
        report(f"  rank {rank}: GPU {took[0]:.2f} ms, {name}", took[1])
        report("    times faster", took[1] / took[0], unit="")


def vectors(folder: Path | None) -> None:
    """`minimize` at d = 10 million on the device: what an iteration costs beside the gradient.

    The unit is one pass over a vector: half of a copy.
    """
    import jax
    import torch

    from momentous import LBFGS, AdaRAGD, AdaRHB, minimize

    size = 10**7
    scales = np.linspace(1.0, 10.0, size, dtype=np.float32)
    unit = 4.0 * size / (bandwidth() * 1e9)  # ms
    print(f"\nminimize, d = {size:,}, float32; one pass over a vector takes {unit:.4f} ms")
    step = {"step_size": 0.05, "hessian_lipschitz": 1.0, "eps": 1e-6}
    methods = AdaRAGD(**step), AdaRHB(**step), LBFGS()
    libraries = {
        "cupy": (cupy.asarray, lambda f: f),
        "torch": (lambda a: torch.as_tensor(a, device="cuda"), torch.compile),
        "jax": (jax.numpy.asarray, jax.jit),
    }
    for library, (convert, compiled) in libraries.items():
        a, x0 = convert(scales), convert(np.ones(size, np.float32))
        both = compiled(lambda x, a=a: (0.5 * (a * x * x).sum(), a * x))
        ready = torch.cuda.synchronize if library == "torch" else cupy.cuda.Device().synchronize
        for method in methods:

            def run(m: Any = method, f: Any = both, x: Any = x0) -> Any:
                return minimize(f, x, jac=True, method=m, tol=0.0, max_iterations=40)

            run()
            ready()
            began = perf_counter()
            result = run()
            ready()
            took = 1e3 * (perf_counter() - began)
            one = timed(lambda f=both, x=x0: float(f(x)[0]), 10)
            rest = (took - result.njev * one) / max(1, result.nit)
            report(f"  {library}, {method.name}: per iteration, {result.njev} gradients of "
                   f"{one:.3f} in {result.nit}", rest)  # fmt: skip
            report("    in passes over a vector", rest / unit, unit="")


def implicit(folder: Path | None) -> None:
    """The GPU's sweeps of the library `implicit`, or else how many operations both take."""
    ratings = twin("netflix", folder)
    (users, items), entries, steps = ratings.shape, ratings.nnz, 3
    print("\nimplicit's alternating least squares on the GPU, Netflix twin")
    try:
        from implicit.gpu import als

        for rank in (10, 32, 64, 128):
            model = als.AlternatingLeastSquares(rank, iterations=1)
            matrix = ratings.to_sparse()
            model.fit(matrix, show_progress=False)
            took = timed(lambda m=model, x=matrix: m.fit(x, show_progress=False), 2, 1)
            report(f"  rank {rank}, one fit of 1 iteration", took)
    except Exception as error:
        print(f"  it does not run here: {type(error).__name__}: {error}")
    print(
        "  operations per sweep, in units of 10^9: its conjugate gradients (3 steps), ours (exact)"
    )
    for rank in (10, 32, 64, 128):
        # A step and the first residual: a row's factors times a vector, twice; and the Gram matrix.
        theirs = 2 * (steps + 1) * 4 * entries * rank
        theirs += (users + items) * ((steps + 1) * 2 * rank**2 + 2 * rank**2)
        ours = 2 * entries * (rank * (rank + 1) + 2 * rank) + (users + items) * rank**3 // 3
        print(f"    rank {rank:3d}: {theirs / 1e9:8.0f} {ours / 1e9:8.0f}")


SECTIONS = {
    "sweeps": sweeps, "conjugate": conjugate, "gradient": gradient, "determinism": determinism,
    "fit": fit, "cpu": cpu, "priors": priors,
    "recommend": recommend, "file": file, "scaling": scaling, "implicit": implicit,
    "parts": parts, "variants": variants, "vectors": vectors,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="sweeps,gradient,fit,scaling,cpu")
    parser.add_argument("--data", type=Path)
    chosen = parser.parse_args()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}, NumPy {np.__version__}")
    report("copy on the device", bandwidth(), None, "TB/s")
    for name in chosen.only.split(","):
        SECTIONS[name](chosen.data)


if __name__ == "__main__":
    main()
