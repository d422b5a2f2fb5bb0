"""Many fits, several streams and threads, and Ctrl-C, on a GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from momentous.lowrank import LowRankObjective, Ratings
from momentous.lowrank.backends.device import gpu_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_available(), reason="no GPU that CuPy can use"),
]


def some_ratings(m, n, count):
    rng = np.random.default_rng(0)
    chosen = rng.choice(m * n, count, replace=False)
    return Ratings(chosen // n, chosen % n, rng.integers(1, 6, count).astype(np.float32), (m, n))


MANY_FITS = """
import gc
from pathlib import Path
import cupy
import numpy as np
from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig
rng = np.random.default_rng(0)
chosen = rng.choice(2400, 900, replace=False)
ratings = Ratings(chosen // 40, chosen % 40, rng.integers(1, 6, 900).astype(np.float32), (60, 40))
pool, pinned = cupy.get_default_memory_pool(), cupy.get_default_pinned_memory_pool()
gc.disable()  # by hand, so that as much waits for it at the end as at the beginning
for fit in range(1000):
    fit_model(ratings, FitConfig(rank=3, tol=0.0, max_iterations=2, device="cuda"))
    if fit % 20 == 19:
        gc.collect()
    if fit in (199, 999):
        resident = 4096 * int(Path("/proc/self/statm").read_text().split()[1])
        print(pool.used_bytes(), pool.total_bytes(), pinned.n_free_blocks(), resident)
"""


def test_a_thousand_fits_leave_no_memory_behind():
    """In a process of their own: what other tests leave to the collector is none of theirs."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_FITS], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    early, late = (list(map(int, line.split())) for line in done.stdout.splitlines())
    used, total, pinned_blocks, resident = np.subtract(late, early)
    assert max(used, total) <= 0
    assert pinned_blocks <= 16  # a few more wait at once, now and then; one per fit would be 800
    assert resident < 8 << 20


def test_streams_and_threads_at_once_do_not_disturb_each_other():
    import cupy

    objective = LowRankObjective(some_ratings(4000, 900, 300_000), 10, ridge=1.0, device="cuda")
    starts = [objective.random_start(np.random.default_rng(seed)) for seed in range(6)]

    def work(x):
        value, gradient = objective.value_and_gradient(x)
        rows, least = objective.half_sweep(0, None, objective.split(x)[1])
        return value, least, gradient.get().tobytes(), rows.get().tobytes()

    expected, found = [work(x) for x in starts], {}
    cupy.cuda.Device().synchronize()

    def run(number):
        with cupy.cuda.Stream(non_blocking=True):
            found[number] = [work(starts[number]) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, each in enumerate(expected):
        assert found[number] == [each] * 20


FIT = """
import numpy as np
from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig
ratings = Ratings.twin("ml-100k")
config = FitConfig(rank=5, tol=0.0, max_iterations=10**6, device="cuda")
fit = fit_model(ratings, config, watch=lambda step: print(step.nit, flush=True))
print(fit.result.status.name, fit.model.training_error() < 0.9, fit.message)
"""


def test_ctrl_c_in_a_fit_leaves_a_model():
    with subprocess.Popen(
        [sys.executable, "-c", FIT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for _ in range(30):
            process.stdout.readline()  # the fit is under way
        process.send_signal(signal.SIGINT)
        told, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert told.splitlines()[-1].startswith("INTERRUPTED True interrupted after iteration")
