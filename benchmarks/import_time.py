"""CPU time of importing momentous and of starting its command line, each in fresh processes.

    python benchmarks/import_time.py [--repeats 15]

An empty interpreter is the first row; the others include it.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

CASES = {
    "an empty interpreter": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import momentous": ["-c", "import momentous"],
    "from momentous import minimize": ["-c", "from momentous import minimize"],
    "momentous --help": ["-m", "momentous", "--help"],
    "momentous fit --help": ["-m", "momentous", "fit", "--help"],
}


def cpu_seconds(arguments: list[str]) -> float:
    """User plus system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    for title, arguments in CASES.items():
        cpu_seconds(arguments)  # byte code is compiled once
        times = [cpu_seconds(arguments) for _ in range(repeats)]
        print(f"{title:32s} {1000 * statistics.median(times):6.0f} ms")


if __name__ == "__main__":
    main()
