"""A vector spread over MPI ranks: only the inner product knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
from mpi4py import MPI
import momentous

comm, d = MPI.COMM_WORLD, 40
weights, start = np.linspace(0.1, 2, d), np.linspace(-2, 3, d)

def solve(w, x0, total):
    return momentous.minimize(
        lambda x: total(float(np.sum(w * np.log1p(x * x)))),
        x0,
        jac=lambda x: w * 2 * x / (1 + x * x),
        inner=lambda a, b: total(float(np.dot(a, b))),
        method=momentous.METHOD,
        max_iterations=60,
    )

mine = np.array_split(np.arange(d), comm.size)[comm.rank]
shared = solve(weights[mine], start[mine], comm.allreduce)
pieces = comm.gather(shared.x)
if comm.rank == 0:
    alone = solve(weights, start, float)
    assert comm.size == 2
    assert shared.restarts == alone.restarts > 0, (shared.restarts, alone.restarts)
    assert shared.nit == alone.nit
    np.testing.assert_allclose(np.concatenate(pieces), alone.x, rtol=0, atol=1e-12)
    print("the ranks agree")
"""


@pytest.mark.parametrize(
    "method",
    [
        "AdaRAGD(initial_radius=3.0)",
        "RAGD(step_size=0.1, momentum=0.9, radius=0.5, epoch_length=100)",
    ],
)
def test_two_ranks_take_the_same_path_as_one_process(method: str, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=sysconfig.get_path("scripts")) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no mpiexec")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("METHOD", method))
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [mpiexec, "--oversubscribe", "-n", "2", sys.executable, str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert "the ranks agree" in done.stdout, done.stdout + done.stderr
