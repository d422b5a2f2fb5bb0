"""The set-up of torch.distributed by a launcher's variables: a wait of seconds that can be ended.

PyTorch itself waits for half an hour, in calls that let no signal through.  Here they run in a
thread, while the main thread looks at the clock, says what it waits for, and hears Ctrl-C.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from momentous.distributed.ranks import RankError
from momentous.io.logs import notify

if TYPE_CHECKING:
    from torch.distributed import Store

T = TypeVar("T")
LOGGER = logging.getLogger("momentous.distributed")
LOOK_SECONDS = 0.1
NOTICE_SECONDS = 3.0  # of waiting, after which a line says what for
# How much longer than ours PyTorch's own timeouts are: ours says what has happened.
GRACE_SECONDS = 60.0

TIMEOUT_VARIABLE = "MOMENTOUS_SETUP_TIMEOUT"
SETUP_TIMEOUT = 60.0
"""Seconds that the set-up waits for the other ranks, by default."""

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def set_up(dist: ModuleType, backend: str, timeout: float, setup_timeout: float | None) -> None:
    """Make the default group of torch.distributed; ``timeout`` is ours for one call in it."""
    rank, size, port = (whole_number(name) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    host = _variable("MASTER_ADDR")
    wait = _Wait(rank, _seconds() if setup_timeout is None else setup_timeout)
    wait.subject = f"rank 0 of {size} at {host}:{port}"
    store = wait.for_call(lambda: _store(dist, host, port, rank, size, wait.seconds))
    _meet(store, rank, size, wait)
    wait.subject = f"a connection to each of the {size} ranks, which have all begun"
    limit = datetime.timedelta(seconds=timeout + GRACE_SECONDS)
    options = {"store": store, "rank": rank, "world_size": size, "timeout": limit}
    wait.for_call(lambda: dist.init_process_group(backend, **options))


def whole_number(name: str, default: str | None = None) -> int:
    """A variable of the environment that holds one."""
    text = _variable(name, default)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"the variable {name} is {text!r}, not a whole number; {_remedy()}")
    return int(text)


def _variable(name: str, default: str | None = None) -> str:
    text = os.environ.get(name, default)
    if not text:
        raise ValueError(f"the variable {name} is not set; {_remedy()}")
    return text


def _remedy() -> str:
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return (
        f"the variables {', '.join(given)} say that a launcher such as torchrun has started this "
        "process as one of several. If they are left over from another program, remove them to run "
        f"alone: unset {' '.join(VARIABLES)}"
    )


def _seconds() -> float:
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        return float(text) if text else SETUP_TIMEOUT
    except ValueError:
        raise ValueError(f"{TIMEOUT_VARIABLE}={text!r} is not a number of seconds") from None


def _store(dist: ModuleType, host: str, port: int, rank: int, size: int, seconds: float) -> Store:
    """The store through which the ranks find each other, as ``env://`` of PyTorch makes it."""
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun has the store
    store = dist.TCPStore(
        host,
        port,
        size,
        is_master=rank == 0 and not has_agent,
        timeout=datetime.timedelta(seconds=seconds + GRACE_SECONDS),
        wait_for_workers=False,
        multi_tenant=True,
        **({"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}),
    )
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts == "0" or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return store
    # After a restart on one machine torchrun keeps the store, with the addresses of the processes
    # before; between machines it makes a new one, and the machines may count differently.
    return dist.PrefixStore(f"momentous/restart-{restarts}", store)


def _meet(store: Store, rank: int, size: int, wait: _Wait) -> None:
    """Wait until all ranks have begun."""
    key = "momentous/begun/{}".format
    try:
        store.set(key(rank), "")
        missing = list(range(size))
        while missing := [one for one in missing if not store.check([key(one)])]:
            shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
            wait.subject = f"{'ranks' if len(missing) > 1 else 'rank'} {shown} of {size} to begin"
            wait.look()
            time.sleep(LOOK_SECONDS)
    except RuntimeError as error:
        if isinstance(error, RankError):
            raise
        raise RankError(f"rank {rank} has lost {wait.subject}: {_line(error)}") from error


class _Wait:
    """A wait for other ranks that says what it is for, ends in time, and lets signals through."""

    def __init__(self, rank: int, seconds: float):
        self.seconds, self.subject = seconds, ""
        self._rank, self._begun, self._is_silent = rank, time.monotonic(), True

    def look(self) -> None:
        """Say what the wait is for, or that it has been too long."""
        passed = time.monotonic() - self._begun
        if passed > self.seconds:
            raise RankError(
                f"rank {self._rank} has waited {self.seconds:.0f} s for {self.subject}; "
                f"{_remedy()}. If the ranks take longer to begin, allow more seconds: "
                f"{TIMEOUT_VARIABLE}=600"
            )
        if passed > NOTICE_SECONDS and self._is_silent:
            self._is_silent = False
            text = f"rank {self._rank} waits up to {self.seconds:.0f} s for {self.subject}"
            notify(LOGGER, f"{text}; Ctrl-C ends this", always=True)

    def for_call(self, call: Callable[[], T]) -> T:
        """What a call of PyTorch's gives that may take long."""
        found: list[T] = []
        failures: list[Exception] = []

        def work() -> None:
            try:
                found.append(call())
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=work, name="momentous-set-up", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            self.look()
        for error in failures:
            raise RankError(
                f"rank {self._rank} cannot reach {self.subject}: {_line(error)}; {_remedy()}"
            ) from error
        return found[0]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
