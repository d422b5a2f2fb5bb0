"""What the theorem table and the growth study found, in one JSON file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from momentous.comparison.runner import setup
from momentous.reproduce.study import Bound, Growth
from momentous.version import __version__

KIND = "momentous findings"


def save_findings(
    path: str | os.PathLike[str], bounds: Sequence[Bound], growths: Sequence[Growth]
) -> None:
    """Write the file, all of it or nothing, with the version and the machine that found it."""
    content = {
        "kind": KIND,
        "version": __version__,
        "setup": setup(),
        "bounds": [asdict(bound) for bound in bounds],
        "growths": [asdict(growth) for growth in growths],
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(_plain(content), indent=1, allow_nan=False) + "\n", "utf-8")
    os.replace(partial, path)


def load_findings(path: str | os.PathLike[str]) -> tuple[list[Bound], list[Growth]]:
    """Read what `save_findings` wrote."""
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise ValueError(f"{path} is a JSON file, but not one that save_findings wrote")
    bounds = [
        Bound(**row | {"bound": float(row["bound"]), "measured": float(row["measured"])})
        for row in content["bounds"]
    ]
    growths = [
        Growth(
            row["method"],
            [float(x) for x in row["inverse_mu"]],
            [float(x) for x in row["gradients"]],
            float(row["exponent"]),
        )
        for row in content["growths"]
    ]
    return bounds, growths


def _plain(content: Any) -> Any:
    """JSON has no infinity and no NaN: they become "inf" and "nan", which float() reads."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content
