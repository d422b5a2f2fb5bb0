"""The scoreboards, of functions and of descent maps: the runs, their table, and its page."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from momentous.io.atomic import write_text
from momentous.lab.compare.accelerations import ACCELERATIONS
from momentous.lab.compare.page import Board, page
from momentous.lab.compare.problems import AnyEntry
from momentous.lab.compare.profiles import MEASURES, plot_profiles
from momentous.lab.compare.runner import compare
from momentous.lab.compare.solvers import as_solvers
from momentous.lab.compare.table import Comparison, Row, merge_rows
from momentous.lab.compare.verdicts import by_run
from momentous.lab.meter import OUTSIDE_SOLVERS
from momentous.methods.registry import AUTO, REGISTRY

# The second run is for counts, which say little new where evaluations are expensive.
SEPARATE_UP_TO = 10_000  # variables
NOT_SEPARATE = "cutest"


@dataclass(frozen=True, kw_only=True)
class Scoreboard(Board):
    """All solvers on a list of problems, and the page about it."""

    methods: tuple[str, ...]
    measures: tuple[str, ...] = tuple(MEASURES)  # of the panels of the picture

    def run(
        self,
        entries: Sequence[AnyEntry],
        out: str | os.PathLike[str],
        *,
        methods: Sequence[str] | None = None,
        separate: bool = True,
        update: bool = False,
        work: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Comparison:
        """Run the methods, by default all, and write the table, the page and its picture.

        With ``update`` only the rows of these methods on these problems are new: the others stay as
        they are in the table that is there, which must have been made by the same rules.

        With ``separate`` the functions of up to 10,000 variables, without those of CUTEst, are run
        a second time with value and gradient apart, for the counts of values.  ``work`` is the
        folder for finished runs: a scoreboard that was killed goes on from there.  ``options`` are
        `compare`'s.
        """
        names, out = list(methods or self.methods), Path(out)
        self._require_known(names)  # before hours of work
        table = out / f"{self.name}.parquet"
        old = Comparison.load(table).rows if update else []
        common = {"traces": False, "folder": work, **options}
        found = compare(entries, names, repeats=3, **common)
        rows, interrupted = found.rows, found.interrupted
        small = [e for e in entries if _is_run_twice(e)] if separate else []
        if small and not interrupted:
            found = compare(small, names, separate=True, **common)  # only the counts are used
            rows, interrupted = rows + found.rows, found.interrupted
        if old and rows:
            _require_same_rules(old[0], rows[0])
            rows = merge_rows(old, rows)
        comparison = Comparison(rows, interrupted=interrupted)
        if rows and not interrupted:
            out.mkdir(parents=True, exist_ok=True)
            comparison.save(table)
            self.write(table, out)
        return comparison

    def write(self, table: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
        """Make the page and its picture from a table, and from nothing else."""
        rows, out = Comparison.load(table).rows, Path(out)
        fused, apart = by_run(rows)
        plot_profiles(
            fused, out / self.picture, measures=self.measures, ours=self.ours,
            evaluations_from=apart or None,
        )  # fmt: skip
        path = out / f"{self.name}.md"
        write_text(path, page(self, rows))
        return path

    def _require_known(self, names: Iterable[str]) -> None:
        for name in names:
            if (name in ACCELERATIONS) != (self.ours in ACCELERATIONS):
                known = ", ".join(self.methods)
                raise ValueError(f"{name!r} is no solver of the {self.name}; there are: {known}")
        as_solvers(names)


FUNCTIONS = Scoreboard(
    name="scoreboard",
    title="Scoreboard",
    command="momentous scoreboard",
    picture="scoreboard-profiles.png",
    ours="auto",
    baseline="scipy:l-bfgs-b",
    methods=(
        "auto",
        *(name for name, cls in REGISTRY.items() if cls is not AUTO),
        *OUTSIDE_SOLVERS,
    ),
)
MAPS = Scoreboard(
    name="map-scoreboard",
    title="Descent maps: `accelerate` and other accelerations",
    command="momentous scoreboard --maps",
    picture="map-scoreboard.png",
    ours="accelerate",
    baseline="plain",
    noun="descent map",
    cost="maps",
    methods=tuple(ACCELERATIONS),
    measures=("gradients", "evaluations", "time"),
)


def _is_run_twice(entry: AnyEntry) -> bool:
    """Is value and gradient from one call, and then from two?"""
    small = entry.dimension <= SEPARATE_UP_TO and entry.family != NOT_SEPARATE
    return small and entry.maps is None


def _require_same_rules(old: Row, new: Row) -> None:
    for name in ("rtol", "max_evaluations", "max_time"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"the table to update was made with {name}={before!r}, these runs with {now!r}: "
                "give the same limits, or run all of it again"
            )
