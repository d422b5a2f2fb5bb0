"""What an iteration of `minimize` costs beside the gradient, in passes over a vector.

    python benchmarks/traffic.py [--libraries cupy,torch,jax] [--device cuda] [--dtypes float32]

The unit is one pass over a vector of that size: half of a copy, at the bandwidth that a long copy
on the device reaches in the same run.  An iteration's cost is (a long run less a short one) per
iteration, less the time of the gradients in it, as many calls in a row take per call; beside it
stands the traffic that it must have (docs/gpu-minimize.md counts it), and the ratio of the two.
The ratio behind it is that with the time of a gradient alone, until its value is on the host: no
method that looks at values can have less.  ``--host`` adds an iteration with a short vector, which
is the time of the host and of waiting; ``--passes`` the passes one by one: what they take, and what
they read and write.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from momentous import LBFGS, AdaRAGD, AdaRHB, minimize
from momentous.core import passes
from momentous.core.space import Space

BOUND = 1.3
# Vectors that an iteration reads or writes; docs/gpu-minimize.md counts them.
MUST_HAVE = {
    "ada-ragd, given": 5, "ada-rhb, given": 4, "ada-ragd": 8, "ada-rhb": 7, "lbfgs": 46,
}  # fmt: skip
SHORT, LONG, REPEATS = 20, 60, 5


class Library:
    """Arrays of one library on the device or on the host."""

    def __init__(self, name: str, device: str):
        self.name, self.device = name, device
        # One thread on a host that others use: its own time.
        self.clock = perf_counter if device == "cuda" else process_time
        self.compiled: Callable[[Any], Any] = lambda f: f
        if name == "numpy":
            self.array, self.ready = np.asarray, lambda: None
        elif name == "cupy":
            import cupy

            self.array, self.ready = cupy.asarray, cupy.cuda.Device().synchronize
        elif name == "torch":
            import torch

            self.array = lambda a: torch.as_tensor(a, device=device)
            self.ready = torch.cuda.synchronize if device == "cuda" else lambda: None
            self.compiled = torch.compile if device == "cuda" else self.compiled
        else:
            import jax

            place = jax.devices("gpu" if device == "cuda" else "cpu")[0]
            self.array = lambda a: jax.device_put(a, place)
            self.ready = lambda: jax.effects_barrier()
            self.compiled = jax.jit

    def doubles(self, dtype: str) -> contextlib.AbstractContextManager[Any]:
        """Where JAX has double precision, if it is asked for."""
        if self.name != "jax" or dtype != "float64":
            return contextlib.nullcontext()
        import jax

        return jax.enable_x64(True)

    def wait_for(self, answer: Any) -> None:
        if self.name == "jax":
            import jax

            jax.block_until_ready(answer)
        self.ready()

    def timed(self, work: Callable[[], Any], calls: int, repeats: int = REPEATS) -> float:
        """Median time per call, in ms, of several in a row."""
        times = []
        for _ in range(repeats + 1):
            self.wait_for(None)
            began = self.clock()
            for _ in range(calls):
                answer = work()
            self.wait_for(answer)
            times.append(1e3 * (self.clock() - began) / calls)
        return median(times[1:])

    def copy(self, a: Any) -> Any:
        return a.clone() if self.name == "torch" else a.copy()


def unit(library: Library, size: int, dtype: str) -> float:
    """One pass over a vector, in ms: half of a copy, at the bandwidth of a copy of 1 GB."""
    entries = (10**9 if library.device == "cuda" else 10**8) // np.dtype(dtype).itemsize
    long = library.array(np.ones(entries, dtype))
    if library.device == "cpu":  # memory fresh from the system would be timed, too
        source, target = np.ones(entries, dtype), np.ones(entries, dtype)
        return library.timed(lambda: np.copyto(target, source), 5) / 2 * size / entries
    if library.name == "cupy":
        import cupy

        target = cupy.empty_like(long)
        return library.timed(lambda: cupy.copyto(target, long), 5) / 2 * size / entries
    return library.timed(lambda: library.copy(long), 5) / 2 * size / entries


def iterations(
    library: Library, method: Any, both: Any, x0: Any, start: int = SHORT, end: int = LONG
) -> tuple[float, float]:
    """ms and gradients per iteration, from a short and a long run."""

    def run(count: int) -> tuple[float, Any]:
        library.ready()
        began = library.clock()
        result = minimize(both, x0, jac=True, method=method, tol=0.0, max_iterations=count)
        library.ready()
        return 1e3 * (library.clock() - began), result

    run(end)
    took = []
    for _ in range(REPEATS):
        (short, first), (long, last) = run(start), run(end)
        count = last.nit - first.nit or np.nan  # it has ended before
        took.append((long - short) / count)
    return median(took), (last.njev - first.njev) / count


def measure(library: Library, size: int, dtype: str, step: float, with_host: bool) -> None:
    scales = np.geomspace(1.0, 1e4, size).astype(dtype)
    a, x0 = library.array(scales), library.array(np.ones(size, dtype))
    both = library.compiled(lambda x: (0.5 * (a * x * x).sum(), a * x))
    few, x1 = library.array(scales[:1000]), library.array(np.ones(1000, dtype))
    short = library.compiled(lambda x: (0.5 * (few * x * x).sum(), few * x))
    given = {"step_size": 5e-5, "hessian_lipschitz": 1.0, "eps": 1e-6}
    row, alone = (
        library.timed(lambda: both(x0), 50),
        library.timed(lambda: float(both(x0)[0]), 1, 20),
    )
    small = library.timed(lambda: short(x1), 50)
    print(f"\n{library.name} on {library.device}, {dtype}, d = {size:,}: one pass over a vector "
          f"{1e3 * step:.1f} us; value and gradient {1e3 * row:.0f} us in a row of calls, "
          f"{1e3 * alone:.0f} us alone")  # fmt: skip
    methods = AdaRAGD(**given), AdaRHB(**given), AdaRAGD(), AdaRHB(), LBFGS()
    for (name, least), method in zip(MUST_HAVE.items(), methods, strict=True):
        took, gradients = iterations(library, method, both, x0)
        host, calls = iterations(library, method, short, x1) if with_host else (np.nan, 1.0)
        found, other = ((took - gradients * one) / step for one in (row, alone))
        met = "met" if found <= BOUND * least else "NOT MET"
        beside = f"; d = 1,000: {1e3 * (host - calls * small):.0f} us" if with_host else ""
        print(f"  {name:18} {1e3 * took:8.0f} us per iteration, {gradients:.2f} gradients; beside "
              f"them {found:6.1f} passes, must have {least:2}: {found / least:5.2f} times, {met} "
              f"(alone {other / least:5.2f}){beside}", flush=True)  # fmt: skip


def measure_passes(library: Library, size: int, dtype: str, step: float) -> None:
    """Each pass alone."""
    vectors = [library.array(np.full(size, 1.0 + i, dtype)) for i in range(23)]
    space = Space(vectors[0])
    for work, given, numbers in (
        (passes.INNER, 2, 0), (passes.ADD_DIFFERENCE, 3, 1), (passes.STEPPED, 3, 1),
        (passes.GRADIENT_ALONG, 2, 0), (passes.MOMENTUM, 3, 2),
        (passes.FREE_NESTEROV, 4, 3), (passes.FREE_HEAVY_BALL, 4, 3),
        (passes.direction(21), 22, 21), (passes.new_pair(18), 21, 0),
    ):  # fmt: skip
        weights = [0.1] * numbers
        took = library.timed(
            lambda w=work, g=given, n=weights: space.compute(w, vectors[:g], n)[0], 5
        )
        traffic = given + work.made
        print(f"  pass {work.name:20} {1e3 * took:8.0f} us, {took / step:6.1f} passes for "
              f"{traffic:3}: {took / step / traffic:5.2f} times", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", default="cupy,torch,jax")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", type=int, default=10**7)
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--host", action="store_true", help="iterations with short vectors, too")
    parser.add_argument("--passes", action="store_true", help="each pass alone, too")
    chosen = parser.parse_args()
    for name in chosen.libraries.split(","):
        library = Library(name, chosen.device)
        for dtype in chosen.dtypes.split(","):
            with library.doubles(dtype):
                step = unit(library, chosen.size, dtype)
                measure(library, chosen.size, dtype, step, chosen.host)
                if chosen.passes:
                    measure_passes(library, chosen.size, dtype, step)


if __name__ == "__main__":
    main()
