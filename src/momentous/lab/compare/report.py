"""The files of a comparison: its tables and its pictures."""

from __future__ import annotations

import re
from pathlib import Path

from momentous.lab.compare.profiles import plot_convergence, plot_profiles
from momentous.lab.compare.table import Comparison

MOST_PICTURES = 20  # of single problems


def write_report(found: Comparison, out: Path) -> int:
    """Write tables and pictures into a folder; returns how many problems were not drawn."""
    out.mkdir(parents=True, exist_ok=True)
    for suffix in ("csv", "parquet"):
        found.save(out / f"table.{suffix}")
    found.save_traces(out / "traces.parquet")
    kept = {problem for (problem, _), record in found.records.items() if len(record)}
    drawn = [problem for problem in found.problems if problem in kept]
    for problem in drawn[:MOST_PICTURES]:
        plot_convergence(found, problem, out / f"{re.sub(r'[^A-Za-z0-9.+-]+', '_', problem)}.png")
    if len(found.problems) > 1:
        plot_profiles(found.rows, out / "profiles.png")
    return max(len(drawn) - MOST_PICTURES, 0)
