"""How many vectors a run holds beyond the user's own, at d = 50,000,000 in float32.

The user's own are x0 and what the user's functions allocate (here: one gradient, and a buffer of
64 KiB).  The peak is the process's, as the operating system counts it, so each case runs in a
process of its own.

    python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import subprocess
import sys

CASES = {
    "AdaRAGD, wide radius": "momentous.AdaRAGD(step_size=0.2)",
    "AdaRAGD, at the radius (averaging)": (
        "momentous.AdaRAGD(step_size=0.2, momentum=0.9, radius=1e9, initial_radius=1)"
    ),
    "AdaRHB, wide radius": "momentous.AdaRHB(step_size=0.2)",
    "RAGD (averaging)": (
        "momentous.RAGD(step_size=0.2, momentum=0.9, radius=1e9, epoch_length=1000)"
    ),
}


def measure(method: str, d: int, iterations: int) -> float:
    """Peak of a run, in vectors, beyond x0 and one gradient."""
    import numpy as np

    import momentous

    def fun(x: np.ndarray) -> float:
        blocks = (x[i : i + 8192].astype(np.float64) for i in range(0, x.size, 8192))
        return 0.5 * sum(float(b @ b) for b in blocks)

    def jac(x: np.ndarray) -> np.ndarray:
        return x * np.float32(0.7)

    chosen = eval(method, {"momentous": momentous})
    # A small run first, so that imports and code are in the baseline.
    momentous.minimize(fun, np.ones(10, np.float32), jac=jac, method=chosen, max_iterations=3)
    x0 = np.ones(d, np.float32)
    one_gradient = jac(x0)
    one_gradient += 1
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    del one_gradient
    momentous.minimize(fun, x0, jac=jac, method=chosen, max_iterations=iterations, tol=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (peak - baseline) / x0.nbytes


def main(d: int = 50_000_000, iterations: int = 25) -> None:
    print(f"d = {d:,}, float32: peak beyond x0 and the user's gradient, in vectors")
    for name, method in CASES.items():
        command = [sys.executable, __file__, method, str(d), str(iterations)]
        vectors = float(subprocess.run(command, check=True, capture_output=True).stdout)
        print(f"  {name:36s}{vectors:5.2f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    else:
        main()
