"""A run on disk: every iteration, every event, and what was run where, in one Parquet file."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from momentous.comparison.history import COLUMNS, History
from momentous.comparison.table import pyarrow_modules

KEY = b"momentous"  # of the description in the file's metadata
PROBLEMS = {"completion": "matrix completion", "one-bit": "one-bit matrix completion"}
"""The paper's two problems, as they are called in files and in words."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, NotImplementedError)
"""What `Recorded.load` raises where there is no file, a damaged one, or another's."""


@dataclass(frozen=True)
class About:
    """What was run, on what, how, where, and how it ended."""

    data: str  # "ml-10m"
    twin: bool  # synthetic, of the same shape and count
    problem: str  # one of PROBLEMS
    method: str  # as the paper calls it
    profile: str  # whose parameters: "paper", "authors-code" or "ours"
    parameters: dict[str, Any]  # of the method
    step_size: float | None  # None where the method finds its own
    step_from: str  # who chose it: "tuned", "given", "the method"
    iterations: int  # asked for
    status: str
    message: str
    shape: tuple[int, int]
    entries: int
    rank: int
    fingerprint: str  # of the data
    threads: int
    setup: str  # versions and machine
    tuning: dict[str, Any] = field(default_factory=dict)  # what the search for the step cost

    @property
    def data_name(self) -> str:
        """The data set, marked where it is a twin."""
        return f"{self.data} twin" if self.twin else self.data

    @property
    def problem_name(self) -> str:
        """The problem in words."""
        return PROBLEMS[self.problem]


@dataclass(frozen=True)
class Recorded:
    """A run: row k of the columns is iteration k (of an outside solver: evaluation k).

    ``history`` has the columns ``nfev njev time fun grad_norm`` and the events as (row, kind,
    number); value and gradient norm belong to the point at which the iteration took its gradient.
    """

    about: About
    history: History
    step_sizes: np.ndarray  # eta in each row, NaN where there is none
    path: Path | None = None  # where it is kept

    @property
    def evaluations(self) -> np.ndarray:
        """Values plus gradients so far: the paper's horizontal axis."""
        total: np.ndarray = self.history.nfev + self.history.njev
        return total

    def with_tuning(self, cost: dict[str, Any]) -> Recorded:
        """The same, with what the search for its step size has cost; its file is written anew."""
        if cost == self.about.tuning or self.path is None:
            return self
        return replace(self, about=replace(self.about, tuning=cost)).save(self.path)

    def save(self, path: str | os.PathLike[str]) -> Recorded:
        """Write the file, all of it or nothing; returns the run with its path."""
        arrow, parquet = pyarrow_modules()
        table = arrow.table(
            {
                **self.history.columns(),
                "step_size": self.step_sizes,
                "event": _told(self.history.events, len(self.history)),
            }
        ).replace_schema_metadata({KEY: json.dumps(asdict(self.about))})
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        parquet.write_table(table, partial, compression="zstd", write_page_checksum=True)
        os.replace(partial, path)
        return replace(self, path=path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recorded:
        """Read what `save` wrote."""
        table = pyarrow_modules()[1].read_table(path, page_checksum_verification=True)
        told = (table.schema.metadata or {}).get(KEY)
        if told is None:
            raise ValueError(f"{path} is a Parquet file, but not a recorded run of momentous")
        about = json.loads(told)
        about["shape"] = tuple(about["shape"])
        columns = {name: table[name].to_numpy() for name in (*COLUMNS, "step_size")}
        history = History.from_columns(columns, _events(table["event"].to_pylist()))
        return cls(About(**about), history, columns["step_size"], Path(path))


def _told(events: list[tuple[int, str, float]], size: int) -> list[str]:
    """The events of each row as ``RESTART=16; RADIUS_REACHED=0.01``."""
    told = [""] * size
    for row, kind, value in events:
        told[row] += f"{'; ' if told[row] else ''}{kind}={value:.9g}"
    return told


def _events(told: list[str]) -> list[tuple[int, str, float]]:
    events = []
    for row, text in enumerate(told):
        for part in text.split("; ") if text else ():
            kind, value = part.split("=")
            events.append((row, kind, float(value)))
    return events
