"""Start a program on several ranks, and read what each of them has written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 400.0  # seconds for a launch: some ten on a machine that has nothing else to do


def environment() -> dict[str, str]:
    """One thread per rank, and the same modules as here."""
    paths = [str(HERE), *(path for path in sys.path if path)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def torch_environment(size: int) -> list[dict[str, str]]:
    """What torchrun would set for each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [address | {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)} for rank in range(size)]


def launched(
    engine: str,
    size: int,
    temporary: pytest.TempPathFactory,
    program: str = "program.py",
    prepare: Callable[[Path], None] = lambda folder: None,
) -> tuple[Path, list[dict]]:
    """A folder, and what a program has written there on so many ranks, ``RANK.json`` each.

    ``prepare`` puts into the folder what the program needs.  Several workers of pytest share a
    launch.
    """
    skip_without(engine)  # before the folder is made: other workers would wait for what it holds
    root = temporary.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder = root / f"{Path(program).stem}-{engine}"
    done = folder.with_name(f"{folder.name}-done")
    try:
        folder.mkdir()
    except FileExistsError:
        end = time.monotonic() + 2 * LIMIT
        while not done.exists() and time.monotonic() < end:
            time.sleep(0.1)
    else:
        prepare(folder)
        done.write_text(launch(engine, size, program, folder))
    files = [folder / f"{rank}.json" for rank in range(size)]
    assert all(file.exists() for file in files), done.read_text()[-4000:]
    return folder, [json.loads(file.read_text()) for file in files]


def skip_without(engine: str) -> None:
    """Skip the test that asks where this engine, or its launcher, is not installed."""
    pytest.importorskip("mpi4py" if engine == "mpi" else engine)
    if engine == "mpi" and mpirun() is None:
        pytest.skip("no mpirun")


def mpirun() -> str | None:
    """The launcher of this environment, or that of the machine."""
    return shutil.which("mpirun", path=sysconfig.get_path("scripts")) or shutil.which("mpirun")


def launch(engine: str, size: int, program: str, folder: Path) -> str:
    """Run a program of this folder on so many ranks, and give what they printed.

    ``engine`` is "torch" (the environment that torchrun sets), "jax" (the same) or "mpi".  A launch
    that is not over in time is ended.
    """
    python = [sys.executable, "-W", "error", "-X", "faulthandler"]
    command = [*python, str(HERE / program), str(folder)]
    skip_without(engine)
    if engine == "mpi":
        commands = [([mpirun(), "--oversubscribe", "-n", str(size), *command], {})]
    else:
        commands = [(command, extra) for extra in torch_environment(size)]
    processes = [
        subprocess.Popen(
            words, env=environment() | extra, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for words, extra in commands
    ]  # fmt: skip
    end, output = time.monotonic() + LIMIT, []
    for process in processes:
        try:
            output.append(process.communicate(timeout=max(0.1, end - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # shows where it stands
            output.append(f"not over after {LIMIT} s\n{process.communicate()[0]}")
    return "\n".join(output)
