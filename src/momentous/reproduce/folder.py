"""The folder of a study: which file lies where, and which runs belong to which figure."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from momentous.reproduce.recorded import UNREADABLE, Recorded
from momentous.reproduce.study import Group

INDEX, FINDINGS = "study.json", "theorems.json"


def is_study(path: Path) -> bool:
    """Has anything been run there?"""
    return any((path / name).exists() for name in (INDEX, FINDINGS))


fcntl: Any
try:
    fcntl = import_module("fcntl")
except ModuleNotFoundError:  # no such locks on this system
    fcntl = None


class Folder:
    """``runs/`` and ``tuning/`` with one Parquet file a run, and ``study.json`` that names them.

    All that is shown is made from these files alone.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def runs(self) -> Path:
        """Runs to the end."""
        return self.path / "runs"

    @property
    def tuning(self) -> Path:
        """Trials of step sizes."""
        return self.path / "tuning"

    @property
    def figures(self) -> Path:
        """Pictures."""
        return self.path / "figures"

    @property
    def findings(self) -> Path:
        """What was found about the theorems."""
        return self.path / FINDINGS

    @property
    def page(self) -> Path:
        """The report."""
        return self.path / "index.html"

    @property
    def _index(self) -> Path:
        return self.path / INDEX

    def note(self, group: Group) -> None:
        """Remember which runs belong together.

        Runs of other methods that were noted for the same group, shown as far, stay in it.
        """
        about = group.runs[0].about
        entry = {
            "figure": group.figure,
            "data": about.data,
            "twin": about.twin,
            "problem": about.problem,
            "profile": about.profile,
            "plotted": group.plotted,
            "runs": {run.about.method: self._name(run) for run in group.runs if run.path},
        }
        keys = ("figure", "data", "twin", "problem", "profile")
        kept = []
        for each in self._entries():
            if any(each[key] != entry[key] for key in keys):
                kept.append(each)
            elif each["plotted"] == entry["plotted"]:
                entry["runs"] = each["runs"] | entry["runs"]
        kept = sorted([*kept, entry], key=lambda each: [str(each[key]) for key in keys])
        partial = self._index.with_suffix(".partial")
        partial.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        os.replace(partial, self._index)

    def _name(self, run: Recorded) -> str:
        assert run.path is not None
        return str(run.path.relative_to(self.path))

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
                    f"another process is at work in {self.path}; wait for it, or name another "
                    "folder with --out"
                ) from None
            yield

    def groups(self) -> list[Group]:
        """What was noted, read from the files."""
        return [
            Group(
                entry["figure"],
                [self._load(name) for name in entry["runs"].values()],
                entry["plotted"],
            )
            for entry in self._entries()
        ]

    def _load(self, name: str) -> Recorded:
        try:
            return Recorded.load(self.path / name)
        except UNREADABLE as error:
            raise ValueError(
                f"{self.path / name}, a run that {self._index.name} names, cannot be read "
                f"({error}); reproduce its figure again"
            ) from error

    def _entries(self) -> list[dict[str, Any]]:
        if not self._index.exists():
            return []
        try:
            entries: list[dict[str, Any]] = json.loads(self._index.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{self._index} is damaged ({error}); remove it and reproduce the figures again: "
                "what has been run is kept"
            ) from error
        return entries
