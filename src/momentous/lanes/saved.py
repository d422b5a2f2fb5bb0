"""Checkpoints of batches: all lanes between two turns, in the archive of single runs."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np

from momentous.core.checkpoint import (
    KIND,
    SEAL,
    VERSION,
    Checkpoint,
    CheckpointError,
    Packer,
    Unpacker,
    damage_named,
    gradient_allowance,
    path_of_file,
    read_checkpoint,
    require_own_seal,
    require_same_answer,
    seal,
    value_allowance,
)
from momentous.core.record import record
from momentous.core.space import Array, to_numpy
from momentous.core.status import Ending
from momentous.io.archive import write_archive
from momentous.lanes.driver import Batch, Driver
from momentous.lanes.function import BatchFunction
from momentous.lanes.machine import Lanes

PROBED_STARTS = 8  # at which a simple term is told from another one


@record
class EndedRows:
    """The points of runs that have ended together."""

    problems: np.ndarray
    x: Array
    jac: Array
    best_x: Array
    start_value: np.ndarray
    start_norm: np.ndarray


@record
class BatchState:
    """Where a batch stands."""

    batch: Batch | list[Batch | None]  # a list where every problem has a machine of its own
    rows: list[EndedRows]
    numbers: dict[str, np.ndarray]  # of all problems that have ended: columns of the result
    endings: dict[str, Ending]  # but for those that have converged
    problems: np.ndarray  # of the lanes
    running: np.ndarray
    time: float

    def require_same_function(self, function: BatchFunction, driver: Driver) -> None:
        """Is the function of a batch to resume the one of this checkpoint?  As for a single run,
        value and gradient of each problem decide, at one point where they are known."""
        m = driver.m
        known: list[Any] = [None] * function.count
        for each in self.rows:
            values = self.numbers["fun"][each.problems]
            columns = each.x, values, each.jac, each.start_value, each.start_norm
            for problem, *row in zip(each.problems, *map(to_numpy, columns), strict=True):
                known[problem] = *row, 0.0
        for lane in np.flatnonzero(self.running).tolist():
            known[self.problems[lane]] = self._last(lane, driver)
        points = np.stack([point for point, *_ in known])
        points = m.xp.asarray(points, dtype=m.dtype, device=m.device)
        found = zip(*map(to_numpy, (points, *function(points, None))), strict=True)
        for problem, (x, value, gradient) in enumerate(found):
            _, stored, slope, at_start, norm_at_start, noise = known[problem]
            if not (np.isfinite(stored) and np.isfinite(slope).all()):
                continue  # this problem has ended there
            if (penalty := m.space.penalty) is not None:
                value = value + penalty.total(m.space, x)
                gradient = penalty.smooth(m.space, x, gradient)
            allowed = value_allowance(stored, value, at_start, noise, m.rounding)
            require_same_answer(f"fun of problem {problem}", stored, value, allowed)
            size, size_now, apart = map(_norm, (slope, gradient, gradient - slope))
            allowed = gradient_allowance(size, size_now, norm_at_start, m.rounding)
            what = f"the distance to the stored gradient of problem {problem}"
            require_same_answer(what, 0.0, apart, allowed)

    def _last(self, lane: int, driver: Driver) -> tuple[Any, ...]:
        """The last point of a lane that runs, what is known there, and of its start."""
        batch: Any = self.batch[lane] if isinstance(self.batch, list) else self.batch
        own = driver.of(lane) if isinstance(self.batch, list) else driver
        last, noise = batch.last, own.rule.noise(batch.memory)
        known = last.point, last.value, last.gradient, batch.start_value, batch.start_norm, noise
        if isinstance(self.batch, list):
            return known
        return tuple(to_numpy(a)[lane] if getattr(a, "ndim", 0) else a for a in known)


def _norm(a: np.ndarray) -> float:
    return float(np.linalg.norm(a))


class _Packer(Packer):
    """Arrays of any shape, of which some live where the lanes do."""

    def __init__(self, m: Lanes):
        super().__init__(())
        self._m = m

    def pack(self, item: Any) -> Any:
        if isinstance(item, float):
            return float(item)
        if hasattr(item, "shape"):
            of_lanes = not isinstance(item, np.ndarray) or self._m.on_numpy
            return {"array": self._add(item), "lanes": of_lanes}
        return super().pack(item)


class _Unpacker(Unpacker):
    def __init__(self, arrays: dict[str, np.ndarray], m: Lanes):
        super().__init__(arrays, m.space)
        self._m = m

    def unpack(self, item: Any) -> Any:
        if not (isinstance(item, dict) and "array" in item):
            return super().unpack(item)
        number = item["array"]
        if number not in self._made:
            m, array = self._m, self._arrays[f"a{number}"]
            self._made[number] = m.xp.asarray(array, device=m.device) if item["lanes"] else array
        return self._made[number]


def _fingerprint(starts: Array, m: Lanes) -> str:
    """Do two batches begin at the same points, in the same order and precision, and with the same
    bounds or terms?"""
    sides = () if m.bounds is None else (m.bounds.lower, m.bounds.upper)
    rows = [np.ascontiguousarray(to_numpy(a)) for a in (starts, *sides)]
    if (penalty := m.space.penalty) is not None:  # what it makes of some starts, but for rounding
        steps, some = (1.0, 1e-3), rows[0][:PROBED_STARTS]
        made = [penalty.prox(m.space, row, step) for step in steps for row in some]
        made += [np.array([penalty.total(m.space, row) for row in some])]
        rows += [np.round(each, 6) + 0.0 for each in made]
    return f"{rows[0].dtype} {zlib.crc32(b''.join(a.tobytes() for a in rows)):08x}"


def write(checkpoint: Checkpoint, state: BatchState, driver: Driver, starts: Array) -> None:
    """Save a batch in place of the one before."""
    checkpoint.mark_saved()
    packer = _Packer(driver.m)
    content = {
        "state": packer.pack(state), "method": (driver.unbounded or driver).rule.description(),
        "starts": _fingerprint(starts, driver.m), "shape": list(starts.shape),
        "tolerance": driver.tolerance, "exact": isinstance(state.batch, list),
    }  # fmt: skip
    arrays = {f"a{i}": array for i, array in enumerate(packer.arrays)}
    tree = seal({"many": content}, arrays)
    write_archive(checkpoint.path, KIND, VERSION, tree, arrays, keep_previous=True)


def described(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file says of a batch, and its arrays."""
    path = path_of_file(path, "resume")
    archive = read_checkpoint(path)
    tree = archive.content
    try:
        with damage_named():
            require_own_seal(tree, archive.arrays)
            if "many" in tree and SEAL not in tree:
                raise CheckpointError("has no checksum: it is damaged, or of momentous 0.1.0")
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None
    if "many" not in tree:
        raise CheckpointError(f"{path} is the checkpoint of a single run: resume it with minimize")
    content: dict[str, Any] = tree["many"]
    return content, archive.arrays


def read(
    content: dict[str, Any], arrays: dict[str, np.ndarray], driver: Driver, starts: Array,
    exact: bool,
) -> BatchState:  # fmt: skip
    """The batch of these starts that was saved."""
    same = content["starts"] == _fingerprint(starts, driver.m)
    if content["shape"] != list(starts.shape) or not same:
        raise CheckpointError(
            f"the checkpoint belongs to other starts, of shape {tuple(content['shape'])}, or to "
            "other bounds or another penalty: resume it with the X0, bounds and penalty of its run"
        )
    if content["exact"] != exact:
        raise CheckpointError(
            f"the checkpoint was written with exact={content['exact']}: resume it with that"
        )
    state: BatchState = _Unpacker(arrays, driver.m).unpack(content["state"])
    if state.rows and driver.tolerance < content["tolerance"]:
        raise CheckpointError(
            f"the checkpoint was written with tol={content['tolerance']:g}, and problems have "
            f"ended there; resume it with that tol and then start again from its points with "
            f"tol={driver.tolerance:g}"
        )
    return state
