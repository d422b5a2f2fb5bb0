"""Checkpoints of batches: all lanes between two turns, in the archive of single runs."""

from __future__ import annotations

import os
import zlib
from typing import Any, NamedTuple

import numpy as np

from momentous.core.box import Box
from momentous.core.checkpoint import KIND, MALFORMED, VERSION, Checkpoint, CheckpointError
from momentous.core.record import RECORDS
from momentous.core.space import Array, to_numpy
from momentous.core.status import Ending, Status
from momentous.io.archive import ArchiveError, read_archive, write_archive
from momentous.lanes.driver import Driver


class Saved(NamedTuple):
    """Where a batch stands."""

    batch: Any
    pieces: list[Any]  # what has ended
    endings: dict[int, Ending]
    problems: np.ndarray  # of the lanes
    running: np.ndarray
    time: float


def _fingerprint(starts: Array, box: Box | None) -> str:
    """Do two batches begin at the same points, in the same order, precision and bounds?"""
    sides = () if box is None else (box.lower, box.upper)
    rows = [np.ascontiguousarray(to_numpy(a)) for a in (starts, *sides)]
    return f"{rows[0].dtype} {zlib.crc32(b''.join(a.tobytes() for a in rows)):08x}"


def write(checkpoint: Checkpoint, saved: Saved, driver: Driver, starts: Array) -> None:
    """Save a batch in place of the one before."""
    checkpoint.mark_saved()
    arrays: dict[str, np.ndarray] = {}
    index: dict[int, int] = {}

    def pack(item: Any) -> Any:
        if item is None or isinstance(item, bool | int | float | str):
            return item
        if isinstance(item, tuple | list):
            return {"list": [pack(part) for part in item], "tuple": isinstance(item, tuple)}
        if getattr(item, "is_on_host", False):  # the pairs of L-BFGS of a single run
            return {"packed": pack(item.packed())}
        if hasattr(item, "shape"):
            number = index.setdefault(id(item), len(arrays))
            arrays.setdefault(f"a{number}", to_numpy(item))
            return {"array": number, "lanes": not isinstance(item, np.ndarray) or driver.m.on_numpy}
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        names = RECORDS[name].__dataclass_fields__  # type: ignore[attr-defined]
        return {"record": name, "fields": {field: pack(getattr(item, field)) for field in names}}

    endings = {
        str(i): [int(ending.status), ending.message, ending.numbers]
        for i, ending in saved.endings.items()
    }
    content = {
        "batch": pack(saved.batch), "pieces": pack(saved.pieces), "endings": endings,
        "problems": pack(saved.problems), "running": pack(saved.running), "time": saved.time,
        "method": driver.rule.description(), "starts": _fingerprint(starts, driver.m.bounds),
        "shape": list(starts.shape), "tolerance": driver.tolerance,
        "exact": isinstance(saved.batch, list),
    }  # fmt: skip
    write_archive(checkpoint.path, KIND, VERSION, {"many": content}, arrays, keep_previous=True)


def described(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a file says of a batch, and its arrays."""
    try:
        archive = read_archive(path, KIND, VERSION)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no checkpoint {path} to resume from") from None
    except ArchiveError as error:
        raise CheckpointError(str(error)) from error
    if "many" not in archive.content:
        raise CheckpointError(f"{path} is the checkpoint of a single run: resume it with minimize")
    return archive.content["many"], archive.arrays


def read(
    content: dict[str, Any], arrays: dict[str, np.ndarray], driver: Driver, starts: Array,
    exact: bool,
) -> Saved:  # fmt: skip
    """The batch of these starts that was saved."""
    m = driver.m
    if content["shape"] != list(starts.shape) or content["starts"] != _fingerprint(
        starts, m.bounds
    ):
        raise CheckpointError(
            f"the checkpoint belongs to other starts, of shape {tuple(content['shape'])}, or to "
            "other bounds: resume it with the X0 and bounds that it was written with"
        )
    if content["exact"] != exact:
        raise CheckpointError(
            f"the checkpoint was written with exact={content['exact']}: resume it with that"
        )
    if content["pieces"]["list"] and driver.tolerance < content["tolerance"]:
        raise CheckpointError(
            f"the checkpoint was written with tol={content['tolerance']:g}, and problems have "
            f"ended there; resume it with that tol and then start again from its points with "
            f"tol={driver.tolerance:g}"
        )
    made: dict[int, Any] = {}

    def unpack(item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        if "list" in item:
            parts = [unpack(part) for part in item["list"]]
            return tuple(parts) if item["tuple"] else parts
        if "packed" in item:
            return unpack(item["packed"]).unpacked(m.space)
        if "array" in item:
            number = item["array"]
            if number not in made:
                array = arrays[f"a{number}"]
                made[number] = m.xp.asarray(array, device=m.device) if item["lanes"] else array
            return made[number]
        fields = {name: unpack(part) for name, part in item["fields"].items()}
        return RECORDS[item["record"]](**fields)

    try:
        endings = {
            int(i): Ending(Status(status), message, numbers)
            for i, (status, message, numbers) in content["endings"].items()
        }
        return Saved(
            unpack(content["batch"]), unpack(content["pieces"]), endings,
            to_numpy(unpack(content["problems"])), to_numpy(unpack(content["running"])),
            float(content["time"]),
        )  # fmt: skip
    except MALFORMED as error:
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"the checkpoint is damaged ({what})") from error
