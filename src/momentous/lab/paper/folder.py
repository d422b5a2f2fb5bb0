"""The folder of a study: which file lies where, which runs belong to which figure, the findings.

All JSON of a study is written and read here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from momentous.io.atomic import remove_left_over, write_text
from momentous.lab.paper.problems import PROBLEMS
from momentous.lab.paper.results import FIGURE_NAMES, Bound, Growth, RunSet
from momentous.lab.paper.runs import PaperRun, load_run
from momentous.lab.record import Json, RecordError, from_json, setup
from momentous.version import __version__

INDEX, FINDINGS = "study.json", "theorems.json"
INDEX_KIND, FINDINGS_KIND = "momentous study", "momentous findings"

fcntl: ModuleType | None = None
with contextlib.suppress(ModuleNotFoundError):  # no such locks on this system
    fcntl = import_module("fcntl")


def is_study(path: Path) -> bool:
    """Has anything been run there?"""
    return any((path / name).exists() for name in (INDEX, FINDINGS))


@dataclass(frozen=True)
class IndexEntry:
    """A run set in the index: what it is about, how much of it is shown, and its files."""

    figure: str
    data: str
    twin: bool
    problem: str
    profile: str
    device: str
    plotted: int
    runs: dict[str, str]  # by method

    def __post_init__(self) -> None:
        if self.figure not in FIGURE_NAMES:  # pictures are named by it
            raise ValueError(f"figure is {self.figure!r}")
        if self.plotted <= 0:
            raise ValueError(f"plotted is {self.plotted}")
        if not self.runs:
            raise ValueError("runs is empty")

    @property
    def key(self) -> tuple[str | bool, ...]:
        """What makes two run sets the same one."""
        return self.figure, self.data, self.twin, self.problem, self.profile, self.device


class StudyFolder:
    """``runs/`` and ``tuning/`` with one Parquet file per run, and ``study.json`` that names them.

    All that is shown is made from these files alone.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.runs = self.path / "runs"  # to the end
        self.tuning = self.path / "tuning"  # trials of step sizes
        self.figures = self.path / "figures"  # pictures
        self.page = self.path / "index.html"
        self.findings = self.path / FINDINGS  # the theorem table and the growth study
        self._index = self.path / INDEX

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second writer out, for as long as this process lives."""
        if fcntl is None:
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"another process is at work in {self.path}; wait for it, or take another "
                    "folder"
                ) from None
            for folder in (self.path, self.runs, self.tuning, self.figures):
                remove_left_over(folder)
            yield

    # --- which runs belong together ---

    def add(self, run_set: RunSet) -> None:
        """Remember which runs belong together.

        Runs of other methods that were added for the same set, shown as far, stay in it.
        """
        info = run_set.runs[0].info
        about = (run_set.figure, info.data, info.twin, info.problem, info.profile, info.device)
        paths = {run.info.method: run.path for run in run_set.runs if run.path}
        files = {name: path.relative_to(self.path).as_posix() for name, path in paths.items()}
        entry, kept = IndexEntry(*about, run_set.plotted, files), []
        for each in self._entries():
            if each.key != entry.key:
                kept.append(each)
            elif each.plotted == entry.plotted:
                entry = replace(entry, runs=each.runs | entry.runs)
        kept = sorted([*kept, entry], key=lambda each: each.key)
        _write_json(self._index, {"kind": INDEX_KIND, "run_sets": list(map(asdict, kept))})

    def run_sets(self) -> list[RunSet]:
        """What was added, read from the files."""
        return [
            RunSet(entry.figure, [*map(self._load, entry.runs.values())], entry.plotted)
            for entry in self._entries()
        ]

    def _load(self, name: str) -> PaperRun:
        try:
            run = load_run(self.path / name)
            if run.info.problem not in PROBLEMS:  # pictures are named by it
                raise RecordError(f"its problem is {run.info.problem!r}")
            return run
        except (FileNotFoundError, RecordError) as error:
            raise ValueError(
                f"{self.path / name}, a run that {INDEX} names, cannot be read ({error}); "
                "reproduce its figure again"
            ) from error

    def _entries(self) -> list[IndexEntry]:
        if not self._index.exists():
            return []
        try:
            entries = _read_json(self._index, INDEX_KIND)["run_sets"]
            return [from_json(IndexEntry, entry) for entry in entries]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self._index} is damaged ({error}); remove it and reproduce the figures again: "
                "what has been run is kept"
            ) from error

    # --- what was found about the theorems ---

    def save_findings(self, bounds: Sequence[Bound], growths: Sequence[Growth]) -> None:
        """Write them, with the version and the machine that found them."""
        found = {"bounds": list(map(asdict, bounds)), "growths": list(map(asdict, growths))}
        about = {"kind": FINDINGS_KIND, "version": __version__, "setup": setup()}
        _write_json(self.findings, about | found)

    def load_findings(self) -> tuple[list[Bound], list[Growth]]:
        """What `save_findings` wrote; nothing where nothing was found yet."""
        if not self.findings.exists():
            return [], []
        content = _read_json(self.findings, FINDINGS_KIND)
        try:
            bounds = [from_json(Bound, row) for row in content["bounds"]]
            growths = [from_json(Growth, row) for row in content["growths"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.findings} is damaged ({type(error).__name__}: {error}); remove it and "
                "reproduce the theorems again"
            ) from error
        return bounds, growths


def _write_json(path: Path, content: Json) -> None:
    write_text(path, json.dumps(_plain(content), indent=1, allow_nan=False) + "\n")


def _read_json(path: Path, kind: str) -> Json:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != kind:
        raise ValueError(f"{path} is a JSON file, but not of the kind {kind!r}")
    return content


def _plain(content: object) -> object:
    """JSON has no infinity and no NaN: they become "inf" and "nan", which `from_json` reads."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
