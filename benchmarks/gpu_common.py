"""What the GPU benchmarks share: a clock that waits for the device, and twins from a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import cupy
import numpy as np

from momentous.lowrank import Ratings
from momentous.lowrank.data.ratings import checked_storage
from momentous.lowrank.data.twins import MODELS


def timed(work: Callable[[], Any], repeats: int = 20, warm: int = 3) -> float:
    """Median time of a call, in ms; the device has finished before the clock is read."""
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        began = perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (perf_counter() - began))
    return median(times)


def report(name: str, found: float, bound: float | None = None, unit: str = "ms") -> None:
    verdict = (
        "" if bound is None else f"   bound {bound:g}: {'met' if found <= bound else 'NOT MET'}"
    )
    print(f"{name:58}{found:10.3f} {unit}{verdict}", flush=True)


def twin(name: str, folder: Path | None) -> Ratings:
    """A twin in float32, from the folder if it is there."""
    if folder is not None and (folder / f"{name}.values.npy").exists():
        parts = [np.load(folder / f"{name}.{part}.npy") for part in ("starts", "others", "values")]
        model = MODELS[name]
        return checked_storage((model.users, model.items), *parts)
    ratings = Ratings.twin(name).astype(np.float32)
    if folder is not None:
        for part in ("starts", "others", "values"):
            np.save(folder / f"{name}.{part}.npy", getattr(ratings.by_row, part))
    return ratings


def bandwidth() -> float:
    """Of a copy on the device, in TB/s, bytes read and written."""
    a, b = cupy.zeros(1 << 28, np.float32), cupy.empty(1 << 28, np.float32)
    return 2 * a.nbytes / (1e-3 * timed(lambda: cupy.copyto(b, a))) / 1e12
