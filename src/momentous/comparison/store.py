"""Finished runs on disk, one file a problem and method, so that a killed comparison resumes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from momentous.comparison.history import History
from momentous.comparison.table import Row


class Store:
    """A folder of finished runs.

    A file is named after the problem, the method with its parameters, and the settings, so that
    runs with another tolerance, or of another method behind the same name, lie beside it instead
    of being mistaken for it.  (Code is not part of that: after changing it, begin a new folder.)
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, problem: str, method: str, settings: dict[str, Any]) -> Path:
        """Where this run is, or will be."""
        told = json.dumps([problem, method, settings], sort_keys=True)
        digest = hashlib.sha256(told.encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{problem}--{method}")[:120]
        return self.folder / f"{readable}--{digest}.npz"

    def load(self, path: Path) -> tuple[Row, History | None] | None:
        """A finished run; None if there is none, or none that can be read."""
        try:
            with path.open("rb") as file, np.load(file) as content:
                row = Row(**json.loads(str(content["row"])))
                if "nfev" not in content:
                    return row, None
                events = [tuple(event) for event in json.loads(str(content["events"]))]
                return row, History.from_columns(content, events)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            return None  # absent, torn, or of an older version: it is run again

    def save(self, path: Path, row: Row, history: History | None) -> None:
        """All of it or nothing: a file that is there is whole."""
        content: dict[str, Any] = {"row": json.dumps(asdict(row))}
        if history is not None:
            content |= {"events": json.dumps(history.events), **history.columns()}
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **content)
        os.replace(partial, path)
