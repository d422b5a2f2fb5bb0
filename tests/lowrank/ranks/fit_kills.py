"""Kill workers of `momentous fit` at random moments, and look at how the fit ends.

    python tests/lowrank/ranks/fit_kills.py --trials 20
    python tests/lowrank/ranks/fit_kills.py --trials 5 --what job     # resumed on other ranks
    python tests/lowrank/ranks/fit_kills.py --trials 2 --what node    # one of two launchers

torchrun starts the workers again, and the fit goes on from the last model that was saved.  Every
fit must end as one of as many iterations that was never disturbed; with another number of ranks,
as one that begins with that model.  The objective must agree to 1e-10, and the model saved last
must be of the last iteration or the one before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "distributed")]

from launch import environment  # noqa: E402

from momentous.lowrank import Ratings  # noqa: E402
from momentous.lowrank.data.write import write_ratings  # noqa: E402
from momentous.lowrank.model import load_model  # noqa: E402
from momentous.lowrank.tasks import fit_file  # noqa: E402

STEPS, LIMIT = 25, 300.0
OPTIONS = {"rank": 4, "threads": 1, "tol": 0.0, "max_iterations": STEPS, "backend": "numpy"}


def write_parts(folder: Path, ratings: Ratings) -> None:
    """Six files."""
    folder.mkdir()
    part = ratings.rows % 6
    for k in range(6):
        write_ratings(ratings.where(part == k), folder / f"part-{k}.csv")


def start(folder: Path, parts: Path, size: int, node: str = "") -> subprocess.Popen:
    """A job of so many ranks; with ``node``, one of two launchers that meet there."""
    words = [str(Path(sysconfig.get_path("scripts")) / "torchrun"), "--max-restarts", "3"]
    words += ["--nproc-per-node", str(size)]
    if node:
        words += ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", node]
        # A launcher that is gone must be known to be so before the workers of the other have ended.
        words += ["--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=2"]
    words += ["-m", "momentous", "fit", str(parts), "--out", str(folder / "model"), "--resume"]
    for name, value in OPTIONS.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--save-every", "0", "--json"]
    # Otherwise a launcher that stays does not tell a new one where to meet (PyTorch 2.13).
    around = environment() | ({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if node else {})
    with open(folder / "output", "a") as output:
        return subprocess.Popen(
            words, env=around, stdout=output, stderr=output, start_new_session=True
        )


def workers(job: subprocess.Popen) -> list[int]:
    """The processes that a launcher has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == job.pid:
                found.append(int(place.parent.name))
    return found


def kill(processes: list[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    end = time.monotonic() + LIMIT
    while any(Path(f"/proc/{one}/fd/0").exists() for one in processes) and time.monotonic() < end:
        time.sleep(0.005)


def _wait_for_host(node: str) -> None:
    host, _, port = node.partition(":")
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1.0):
            return
        time.sleep(0.05)


def saved_iteration(folder: Path) -> int:
    """That of the model on disk; 0 without one."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(load_model(folder / "model")[1]["n_iter"])
    return 0


def wait_for(moment: float, folder: Path, job: subprocess.Popen) -> int:
    """A moment below 0 is one of the first seconds; the others are iterations."""
    if moment < 0.0:
        time.sleep(-moment)
        return saved_iteration(folder)
    while job.poll() is None:
        at = saved_iteration(folder)
        if at >= moment:
            return at
        time.sleep(0.005)
    raise RuntimeError((folder / "output").read_text()[-4000:])


def trial(folder: Path, parts: Path, what: str, chance: random.Random, size: int = 3) -> dict:
    """Where it was killed, where it went on, and how it ended."""
    folder.mkdir()
    # While launchers look for each other they have time limits of their own, of many minutes.
    early = chance.random() < 0.2 and what != "node"
    moment = -chance.uniform(1.0, 6.0) if early else chance.randrange(1, STEPS - 3)
    node, others = "", []
    if what == "node":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            node = f"127.0.0.1:{free.getsockname()[1]}"
        others = [start(folder, parts, 1, node)]
        size = 2
        _wait_for_host(node)  # the first launcher is where both meet, and stays
    job = start(folder, parts, size, node)
    at = wait_for(moment, folder, job)
    first = workers(job)
    if what == "worker":
        kill([chance.choice(first)] if first else [])
        for one in first:  # torchrun ends the others
            while Path(f"/proc/{one}/fd/0").exists() and job.poll() is None:
                time.sleep(0.005)
    else:
        kill([job.pid, *first])
        job.wait()
    begun = folder / "begun"  # what the fit goes on from
    begun.mkdir()
    for file in folder.glob("model*"):
        shutil.copy(file, begun / file.name)
    if what != "worker":
        size = size if what == "node" else chance.choice([1, 2, 4])
        job = start(folder, parts, size, node)
    codes = [one.wait(timeout=LIMIT) for one in (job, *others)]
    output = (folder / "output").read_text()
    facts = [json.loads(line) for line in output.splitlines() if line.startswith('{"model"')]
    saved = saved_iteration(begun)
    if what == "job":  # with another number of ranks
        expected = fit_file(parts, begun / "model", resume=True, save_every=1e9, **OPTIONS)
    else:
        longer = OPTIONS | {"max_iterations": saved + STEPS}
        expected = fit_file(parts, begun / "undisturbed", save_every=1e9, **longer)
        expected["iterations"] -= saved
    end = facts[-1] if facts else {"objective": float("nan"), "iterations": -1}
    good = not any(codes) and at - saved <= 1 and end["iterations"] == expected["iterations"]
    good = good and abs(end["objective"] / expected["objective"] - 1.0) <= 1e-10
    return {
        "killed at": at, "went on from": saved, "ranks": size, "objective": end["objective"],
        "expected": expected["objective"], "good": good, "output": "" if good else output[-3000:],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--what", choices=["worker", "job", "node"], default="worker")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, bad = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory() as name:
        write_parts(Path(name) / "parts", Ratings.twin("ml-100k"))
        for number in range(given.trials):
            found = trial(Path(name) / str(number), Path(name) / "parts", given.what, chance)
            bad += not found["good"]
            print(number, *(f"{key} {value}," for key, value in found.items()), flush=True)
    print(f"{given.trials - bad} of {given.trials} ended as an undisturbed fit")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
