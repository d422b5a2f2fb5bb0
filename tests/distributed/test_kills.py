"""A worker that is killed ends the others, and its run goes on from the last checkpoint.

`kills.py` does this many times, with torchrun that starts workers again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from killed_program import EVERY, METHOD, STEPS
from launch import HERE, LIMIT, environment, torch_environment
from problem import Regression

from momentous import minimize

pytestmark = pytest.mark.slow

KILLED_AT = 12


def test_a_killed_worker_ends_the_others_and_one_process_goes_on(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "killed_program.py"), str(tmp_path), "variables"]
    workers = [
        subprocess.Popen([*command, "0.02"], env=environment() | extra, text=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for extra in torch_environment(2)
    ]  # fmt: skip
    end, at = time.monotonic() + LIMIT, 0
    while at < KILLED_AT and time.monotonic() < end and workers[1].poll() is None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            at = int((tmp_path / "process-1").read_text().split()[1])
        time.sleep(0.01)
    os.kill(workers[1].pid, signal.SIGKILL)
    message = workers[0].communicate(timeout=LIMIT)[1]
    workers[1].communicate()
    assert workers[0].returncode == 1
    assert "a rank has ended or was killed" in message
    subprocess.run([*command, "0"], env=environment(), check=True, timeout=LIMIT)
    begun = [int(line.split()[0]) for line in (tmp_path / "begun").read_text().splitlines()]
    assert begun[0] == 0
    assert begun[1] % EVERY == 0
    assert begun[1] >= at - EVERY
    problem = Regression(300, 150)
    whole = minimize(
        problem.whole, problem.start, jac=True, tol=0.0, max_iterations=STEPS, **METHOD
    )
    fun, nit, restarts, status = json.loads((tmp_path / "result.json").read_text())
    assert fun == pytest.approx(whole.fun, rel=1e-10)
    assert [nit, restarts, status] == [STEPS, whole.restarts, whole.status.name]
