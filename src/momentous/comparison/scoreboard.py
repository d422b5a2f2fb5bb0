"""The scoreboard: all methods on the suite, its table, its page and its picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from momentous.comparison.contestants import contestants
from momentous.comparison.page import CHAMPION, fused_rows, page
from momentous.comparison.plots import plot_profiles
from momentous.comparison.rivals import RIVALS
from momentous.comparison.runner import compare
from momentous.comparison.table import Comparison, Row
from momentous.methods import REGISTRY, method_class
from momentous.testbed.suite import Entry

# The second run is for counts, which say little new where evaluations are dear.
APART_UP_TO = 10_000
APART_WITHOUT = "cutest"


def scoreboard_methods() -> list[str]:
    """``auto``, every other registered method, and the outside solvers."""
    ours = [name for name, cls in REGISTRY.items() if cls is not method_class(CHAMPION)]
    return [CHAMPION, *ours, *RIVALS]


def run_scoreboard(
    entries: Sequence[Entry],
    out: str | os.PathLike[str],
    *,
    methods: Sequence[str] | None = None,
    rtol: float = 1e-6,
    max_evaluations: int = 20_000,
    max_time: float = 60.0,
    separate: bool = True,
    work: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Run all methods on the problems and write ``scoreboard.parquet``, the page and its pictures.

    Parameters
    ----------
    entries : sequence of Entry
        The problems.
    out : path
        Folder for the files.
    methods : sequence of str, optional
        By default `scoreboard_methods`.
    rtol, max_evaluations, max_time
        As in `compare`.
    separate : bool
        Run the problems with up to 10,000 variables, without those of CUTEst, a second time with
        value and gradient apart, for the counts of values.
    work : path, optional
        Folder for finished runs: a scoreboard that was killed goes on from there.
    progress : bool, optional
        As in `compare`.
    """
    names = list(methods or scoreboard_methods())
    contestants(names)  # a misspelt name is told before hours of work
    rows: list[Row] = []
    interrupted = False
    for apart in (False, True) if separate else (False,):
        found = compare(
            [entry for entry in entries if not apart or _is_run_apart(entry)],
            names,
            rtol=rtol,
            max_evaluations=max_evaluations,
            max_time=max_time,
            separate=apart,
            repeats=1 if apart else 3,  # of the second run only the counts are used
            traces=False,
            folder=work,
            progress=progress,
        )
        rows += found.rows
        interrupted |= found.interrupted
        if interrupted:
            break
    comparison = Comparison(rows, interrupted=interrupted)
    if rows and not interrupted:
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        comparison.save(out / "scoreboard.parquet")
        write_scoreboard(out / "scoreboard.parquet", out)
    return comparison


def _is_run_apart(entry: Entry) -> bool:
    return entry.dimension <= APART_UP_TO and entry.family != APART_WITHOUT


def write_scoreboard(table: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Make ``scoreboard.md`` and its picture from a table, and from nothing else."""
    rows, out = Comparison.load(table).rows, Path(out)
    picture = "scoreboard-profiles.png"
    fused, apart = fused_rows(rows), [row for row in rows if row.separate]
    plot_profiles(fused, out / picture, evaluations_from=apart or None)
    (out / "scoreboard.md").write_text(page(rows, picture), encoding="utf-8")
