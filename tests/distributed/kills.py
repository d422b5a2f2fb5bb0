"""Kill a random worker at a random iteration, and look at how the run ends.

    python tests/distributed/kills.py --trials 20 --layout variables
    python tests/distributed/kills.py --trials 5 --layout variables --resize

torchrun starts the workers again, and the run goes on from its last checkpoint.  With --resize the
whole job is killed, and started again on another number of ranks.  Every run must end as the
undisturbed one does: the objective to 1e-10, the same restarts, no more than one interval lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from killed_program import EVERY, STEPS
from launch import HERE, environment

PROGRAM = str(HERE / "killed_program.py")


def start(folder: Path, layout: str, size: int) -> subprocess.Popen:
    torchrun = Path(sysconfig.get_path("scripts")) / "torchrun"
    command = [str(torchrun), "--nproc-per-node", str(size), "--max-restarts", "3",
               PROGRAM, str(folder), layout, "0.01"]  # fmt: skip
    with open(folder / "output", "a") as output:
        return subprocess.Popen(
            command, env=environment(), stdout=output, stderr=output, start_new_session=True
        )


def wait_until(folder: Path, rank: int, iteration: int, job: subprocess.Popen) -> tuple[int, int]:
    """The process of a rank, and the iteration that it has come to, at least as late as asked."""
    while job.poll() is None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            process, at = map(int, (folder / f"process-{rank}").read_text().split())
            if at >= iteration:
                return process, at
        time.sleep(0.01)
    raise RuntimeError((folder / "output").read_text()[-4000:])


def trial(folder: Path, layout: str, resize: bool, chance: random.Random) -> list:
    """Where it was killed, where it went on and on how many ranks, and how it ended."""
    job, rank = start(folder, layout, 3), chance.randrange(3)
    process, at = wait_until(folder, rank, chance.randrange(3, STEPS - 10), job)
    if resize:
        processes = [int(file.read_text().split()[0]) for file in folder.glob("process-*")]
        for each in (job.pid, *processes):  # torchrun first: it would start them again
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        job.wait()
        for file in folder.glob("process-*"):
            file.unlink()
        job = start(folder, layout, chance.choice([1, 2, 4]))
    else:
        os.kill(process, signal.SIGKILL)
    job.wait(timeout=300)
    begun = [list(map(int, line.split())) for line in (folder / "begun").read_text().splitlines()]
    file = folder / "result.json"
    return [at, begun[1:], json.loads(file.read_text()) if file.exists() else None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--layout", choices=["data", "variables"], default="variables")
    parser.add_argument("--resize", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, bad = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory() as name:
        calm = Path(name) / "calm"
        calm.mkdir()
        subprocess.run([sys.executable, PROGRAM, str(calm), given.layout, "0"], check=True,
                       env=environment())  # fmt: skip
        expected = json.loads((calm / "result.json").read_text())
        print("undisturbed:", expected, flush=True)
        for number in range(given.trials):
            folder = Path(name) / str(number)
            folder.mkdir()
            at, begun, end = trial(folder, given.layout, given.resize, chance)
            good = end is not None and end[1:] == expected[1:] and len(begun) == 1
            good = good and abs(end[0] / expected[0] - 1) <= 1e-10
            good = good and at - begun[0][0] <= 2 * EVERY  # others may be a few iterations ahead
            bad += not good
            print(number, f"killed at {at}, went on at {begun}: {end}", "good" if good else "BAD",
                  flush=True)  # fmt: skip
    print(f"{given.trials - bad} of {given.trials} ended as the undisturbed run")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
