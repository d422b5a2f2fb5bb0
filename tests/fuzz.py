"""Fuzz every reader for as long as you like.

    python tests/fuzz.py --target readers --cases 30000 --seed 1 --processes 2

Each target is a reader (`fuzz_targets.py`); its cases are the crafted files first, then good files
with random damage, the same ones for the same seed.  Cases run in child processes, which are
watched: a file is accepted or refused, or it is a finding: a traceback (any error that the reader
does not document, or a result that cannot be), a hang or a crash.  Each finding is written to a
folder; ``--file`` reads one again and shows its error.  The exit status is 1 if there are findings.
The tests run the first cases of every target (`test_fuzz.py`).
"""

import argparse
import contextlib
import multiprocessing
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from fuzz_targets import ENTRIES, SELF_TEST, TARGETS, Target

BATCH = 2000  # cases per child: what leaks, ends with it
MEMORY = 6 << 30  # bytes that a child may ask for beyond what it starts with
FINDINGS = ("traceback", "hang", "crash")
GROUPS = ("readers", "archives", "states", "all")


def child(name: str, seed: int, first: int, last: int, seconds: float, pipe: Connection) -> None:
    """Read the cases of a batch; say before each which one it is, and after it how it ended."""
    target = by_name(name)
    target.crafted  # noqa: B018  made now, not in the time of the first case
    _limit_memory()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in range(first, last):
            pipe.send((number, "", "", 0.0))
            path = Path(folder, f"case{target.ending}")
            path.write_bytes(target.case(seed, number))
            started, told = time.process_time(), ""
            try:
                kind = target.attempt(path)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                kind, told = "traceback", f"{type(error).__name__}: {error} [{place}]"
            spent = time.process_time() - started
            if spent > seconds:
                kind, told = "hang", f"{spent:.1f} s of CPU time"
            pipe.send((number, kind, " ".join(told.split())[:300], spent))


def _limit_memory() -> None:
    """A file that asks for all memory is told from one that does not, where the system can."""
    with contextlib.suppress(ImportError, OSError):
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))


class TargetRun:
    """A target under fuzz: counts, findings, and children that are replaced where they end."""

    def __init__(self, target: Target, seed: int, cases: int, seconds: float, out: Path):
        self.target, self.seed, self.seconds, self.out = target, seed, seconds, out
        self.total = len(target.crafted) + cases
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self.told: Counter[tuple[str, str]] = Counter()

    def finish(self) -> None:
        """Run all cases, in one child after the other."""
        number = 0
        while number < self.total:
            number = self._batch(number, min(self.total, number + BATCH))
            show(f"{self.target.name}: {number} of {self.total}")

    def _batch(self, first: int, last: int) -> int:
        """Run a child; returns the case that comes next."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        given = (self.target.name, self.seed, first, last, self.seconds, there)
        process = context.Process(target=child, args=given, daemon=True)
        process.start()
        there.close()
        number, is_open, wait = first, False, 600.0  # the first wait is for imports
        with contextlib.suppress(EOFError):
            while number < last:
                if not here.poll(wait):
                    process.kill()
                    break
                number, kind, told, spent = here.recv()
                is_open, wait = not kind, 20 * self.seconds  # a busy machine is no hang
                if kind:
                    self._count(kind, told, number)
                    self.slowest = max(self.slowest, spent)
                    number += 1
        process.join()
        if is_open:
            killed = process.exitcode == -signal.SIGKILL
            kind, told = ("hang", "") if killed else ("crash", f"exit status {process.exitcode}")
            self._count(kind, told, number)
            number += 1
        elif number < last:
            raise RuntimeError(f"the child for {self.target.name} ended: {process.exitcode}")
        return number

    def _count(self, kind: str, told: str, number: int) -> None:
        self.counts[kind] += 1
        if kind not in FINDINGS:
            return
        self.told[kind, told[:60]] += 1
        if self.told[kind, told[:60]] <= 3:  # the same error again and again: three files will do
            self.out.mkdir(parents=True, exist_ok=True)
            name = f"{self.target.name}-{self.seed}-{number}{self.target.ending}"
            (self.out / name).write_bytes(self.target.case(self.seed, number))
            show(f"{kind}: {self.out / name}: {told}")

    def __str__(self) -> str:
        kinds = ("accepted", "refused", *FINDINGS)
        counts = "".join(f"{self.counts[kind]:>11}" for kind in kinds)
        return f"{self.target.name:<14}{self.counts.total():>8}{counts}{self.slowest:>11.2f}"


HEADER = f"{'target':<14}{'cases':>8}" + "".join(
    f"{word:>11}"
    for word in ("accepted", "refused", "tracebacks", "hangs", "crashes", "slowest, s")
)
_lock = threading.Lock()


def show(line: str) -> None:
    """Progress, beside the table."""
    with _lock:
        print(line, file=sys.stderr, flush=True)


def by_name(name: str) -> Target:
    return next(target for target in (*TARGETS, *ENTRIES, SELF_TEST) if target.name == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = [target.name for target in (*TARGETS, *ENTRIES, SELF_TEST)]
    told = f"a group ({', '.join(GROUPS)}) or one of {', '.join(names)}"
    parser.add_argument(
        "--target", default="all", choices=[*GROUPS, *names], help=told, metavar="T"
    )
    parser.add_argument("--cases", type=int, default=3000, help="random ones, of all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time: more is a hang")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="for findings")
    parser.add_argument("--file", type=Path, help="read this one file, and show its error")
    given = parser.parse_args()
    chosen = [t for t in TARGETS if given.target in (t.name, t.group, "all")]
    chosen = chosen or [by_name(given.target)]
    if given.file is not None:
        if len(chosen) > 1:
            parser.error("--file needs the --target that it belongs to")
        print(chosen[0].attempt(given.file))
        return
    share = -(-given.cases // len(chosen))
    print(HEADER, flush=True)

    def run(target: Target) -> Counter[str]:
        with _lock:
            one = TargetRun(target, given.seed, share, given.seconds, given.out)
        one.finish()
        print(one, flush=True)
        return one.counts

    with ThreadPoolExecutor(given.processes) as pool:
        total = sum(pool.map(run, chosen), Counter())
    print(f"{total.total()} cases,", ", ".join(f"{total[kind]} {kind}" for kind in FINDINGS))
    sys.exit(any(total[kind] for kind in FINDINGS))


if __name__ == "__main__":
    main()
