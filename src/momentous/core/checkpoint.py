"""Checkpoints: a run between two evaluations, on disk, so that it can go on another day.

The file is an archive (`momentous.io.archive`) of kind "checkpoint": a tree of records in its
header, and the arrays that it refers to, each stored once however many fields share it.  The file
before it is kept as ``NAME.previous``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import logging
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import array_api_compat
import numpy as np

from momentous.core.oracle import Oracle, Sample
from momentous.core.record import RECORDS, record
from momentous.core.result import COLUMNS
from momentous.core.space import Array, Space, to_numpy
from momentous.core.status import EventKind, Status
from momentous.core.step import Report, UnderWay
from momentous.core.stopping import Progress, require
from momentous.io.archive import Archive, ArchiveError, is_archive, read_archive, write_archive
from momentous.io.atomic import permissions_of, previous_path, remove_left_over
from momentous.io.types import AnyArray, JsonObject, Unchecked

KIND, VERSION = "checkpoint", 8
SHARD = "checkpoint shard"
SEAL = "checksum"  # files of 0.1.0 have none
LOGGER = logging.getLogger("momentous")
# A file of so many bytes is announced, and saving it takes at most such a share of a run: the
# matrix of a self-scaled method may have gigabytes.
LARGE_BYTES, MOST_SAVING = 10e6, 0.05

# What malformed numbers end in where nothing has looked at them before.
MALFORMED = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError,
)  # fmt: skip

_ENUMS: dict[str, type[enum.Enum]] = {cls.__name__: cls for cls in (Status, EventKind)}


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or belongs to another problem."""


def path_of_file(path: Unchecked, name: str) -> Path:
    """The path that an argument of this name is."""
    if not isinstance(path, str | os.PathLike) or not Path(path).name:
        raise TypeError(f"{name}={path!r} must be the path of a file, such as 'run.npz'")
    return Path(path)


@dataclasses.dataclass
class Checkpoint:
    """The file of a run, and how often it is saved.

    It is also saved when the run ends, when it is interrupted, and before an exception of the
    user's code propagates.

    Parameters
    ----------
    path : str or path
        The file.  A file there that is not a checkpoint is never overwritten.
    every_seconds : float or None
        Save when so many seconds have passed since the last time; a file of more than 10 MB not so
        often that it would take over 5 % of the run.
    every_iterations : int or None
        Save whenever the iteration number is a multiple of this.
    """

    path: str | os.PathLike[str]
    every_seconds: float | None = 30.0
    every_iterations: int | None = None

    is_file: ClassVar[bool] = True
    _cost = 0.0  # of the last save in seconds, if the file is large

    def __post_init__(self) -> None:
        self.path = path_of_file(self.path, "checkpoint")
        if self.every_seconds is not None:
            require("every_seconds", self.every_seconds, 0, "None or a number")
        if self.every_iterations is not None:
            require("every_iterations", self.every_iterations, 1, "None or a number")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"the folder {self.path.parent} for the checkpoint {self.path.name} does not exist"
            )
        if self.path.exists() and not is_archive(self.path, KIND):
            raise CheckpointError(
                f"{self.path} exists and is not a checkpoint; it is not overwritten: remove it or "
                "choose another name"
            )
        self.mark_saved()

    def is_due(self, nit: int) -> bool:
        """Has enough happened since the last save?"""
        if self.every_iterations is not None and nit % self.every_iterations == 0:
            return True
        if self.every_seconds is None:
            return False
        pause = max(self.every_seconds, self._cost * (1 / MOST_SAVING - 1))
        return self._now() - self._saved_at >= pause

    def _now(self) -> float:
        return time.monotonic()

    def mark_saved(self) -> None:
        """Begin to wait for the next save."""
        self._saved_at = self._now()

    def save(self, state: RunState) -> None:
        """Write the file so that it is either the old one or the new one, never a part."""
        began = self._now()
        tree, arrays = pack_state(state)
        size = sum(array.nbytes for array in arrays.values())
        if size >= LARGE_BYTES and not self._cost:
            LOGGER.info("the checkpoint %s takes %.3g MB", self.path, size / 1e6)
        write_archive(self.path, KIND, VERSION, tree, arrays, keep_previous=True)
        remove_old_shards(Path(self.path))
        self._cost = self._now() - began if size >= LARGE_BYTES else 0.0
        self.mark_saved()

    def save_shard(self, state: RunState, token: int, rank: int) -> None:
        """Write the part of the points that this rank has."""
        packer = Packer(tuple(state.best_point.shape))
        packer.pack(state)
        arrays = {f"a{i}": packer.arrays[i].reshape(-1) for i in packer.points}
        path, content = shard_path(self.path, token, rank), {"token": token, "rank": rank}
        mode = permissions_of(self.path)
        write_archive(path, SHARD, VERSION, seal(content, arrays), arrays, permissions=mode)

    def save_manifest(self, state: RunState, token: int, sizes: list[int]) -> None:
        """Write the file that names the shards, with all that is not in them."""
        packer = Packer(tuple(state.best_point.shape))
        tree = packer.pack(state) | {"shards": {"token": token, "sizes": sizes}}
        arrays = {f"a{i}": a for i, a in enumerate(packer.arrays) if i not in packer.points}
        write_archive(self.path, KIND, VERSION, seal(tree, arrays), arrays, keep_previous=True)
        remove_old_shards(Path(self.path))


class InMemory(Checkpoint):
    """A checkpoint that is no file: ``save`` gets the run, where ``is_due`` says so and at the end.

    On ranks every one of them gets its own part.
    """

    is_file = False

    def __init__(self, is_due: Callable[[], bool], save: Callable[[RunState], None]):
        self.path = "in memory"
        self._is_due, self._save = is_due, save

    def is_due(self, nit: int) -> bool:
        return self._is_due()

    def save(self, state: RunState) -> None:
        self._save(state)


class Plain:
    """Wraps a NumPy array that stays one on reading, whatever the library of x."""

    def __init__(self, array: AnyArray):
        self.array = array


@record
class RunState:
    """All of a run between two evaluations."""

    space: JsonObject  # `Space.describe`
    method: JsonObject  # `Method.description`
    tol: float | None
    progress: Progress
    memory: Unchecked
    report: Report
    best_point: Array
    standing: Array | None  # the last point that the method stands by, for criteria with a window
    last: Sample | None  # what the oracle knows
    trace: Plain | None
    events: tuple[tuple[int, str, float], ...]

    def require_same_method(self, described: JsonObject) -> None:
        """Is the method, as `Method.description` describes it, the one of this checkpoint?"""
        if _without_absent(self.method) == _without_absent(described):
            return
        stored, given = self.method["parameters"], described["parameters"]
        names = [name for name in (*given, *stored) if stored.get(name) != given.get(name)]
        then, now = self.method["name"], described["name"]
        if then == now and names:
            then = f"{then} with {names[0]}={stored.get(names[0])!s:.100}"
            now = f"{names[0]}={given.get(names[0])!s:.100}"
        raise CheckpointError(
            f"the checkpoint was written by {then}, not {now}; leave method and parameters out "
            "to go on with those of the checkpoint, and give the bounds= or penalty= of its run"
        )

    def counted_from_here(self) -> RunState:
        """The same run, with counts, time and trace of what is still to come."""
        progress, memory = self.progress, self.memory
        if isinstance(memory, UnderWay):
            nfev, njev = memory.nfev - progress.nfev, memory.njev - progress.njev
            memory = dataclasses.replace(memory, nfev=nfev, njev=njev)
        progress = dataclasses.replace(
            progress, nit=0, nfev=0, njev=0, restarts=0, best_nit=0, time=0.0
        )
        row = [0.0] * (len(COLUMNS) - 3) + [progress.fun, progress.grad_norm, self.report.step_size]
        trace = Plain(np.array(row).reshape(-1, 1))
        return dataclasses.replace(self, progress=progress, memory=memory, trace=trace, events=())

    def require_same_function(self, oracle: Oracle) -> None:
        """Is the function of a run to resume the one of this checkpoint?

        One gradient, and one value where one is known, at the last point decides: neither counted
        nor timed.  They may differ by what another machine's rounding does, not by more.
        """
        space, progress, noun = oracle.space, self.progress, oracle.noun
        known = self.report.sample
        if not known.evaluated and self.last is not None:
            known = self.last
        if not known.evaluated or not known.has_finite_gradient:
            known = Sample(self.best_point, grad_norm=progress.best_grad_norm)
        has_value = math.isfinite(known.value)
        now = oracle.evaluate_anew(known.point, value=has_value)
        if has_value:
            allowed = value_allowance(
                known.value, now.value, progress.start_fun, self.report.noise, space.rounding
            )
            require_same_answer("fun", known.value, now.value, allowed)
        norms = known.grad_norm, now.grad_norm
        allowed = gradient_allowance(*norms, progress.start_norm, space.rounding)
        if known.image is not None:
            allowed += 64 * space.rounding * space.norm(now.image)
        require_same_answer(f"the norm of the {noun}", *norms, allowed)
        if known.evaluated:
            pair = (
                (known.gradient, now.gradient) if known.image is None else (known.image, now.image)
            )
            what = f"the distance to the stored {noun}"
            require_same_answer(what, 0.0, space.distance(*pair), allowed)


def value_allowance(
    stored: float, now: float, at_start: float, noise: float, rounding: float
) -> float:
    """How far the values of one function at one point may be apart on two machines."""
    return math.sqrt(rounding) * max(abs(stored), abs(now), abs(at_start)) + noise


def gradient_allowance(stored: float, now: float, at_start: float, rounding: float) -> float:
    """How far its gradients, with these norms, may be apart."""
    return 1e-3 * max(stored, now) + 1e4 * rounding * at_start


def require_same_answer(what: str, stored: float, now: float, allowed: float) -> None:
    """Raise a `CheckpointError` where a function gives another number than it has given."""
    if not abs(stored - now) <= allowed:
        raise CheckpointError(
            f"the checkpoint belongs to another function: at its last point {what} is {now:.6g}, "
            f"not {stored:.6g}; resume with the function that it was written with, or start again "
            "from its point (a random function must give the same answer at the same x)"
        )


class Packer:
    """Turns a tree of records into JSON, and its arrays into a list in which each stands once."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self.arrays: list[AnyArray] = []
        self.points: set[int] = set()  # which of them have the shape of x
        self._index: dict[int, int] = {}

    def pack(self, item: Unchecked) -> Unchecked:
        if isinstance(item, enum.Enum):
            return {"enum": type(item).__name__, "value": item.value}
        if item is None or type(item) in (bool, int, float, str):
            return item
        if isinstance(item, tuple | list):
            return {"list": [self.pack(part) for part in item], "tuple": isinstance(item, tuple)}
        if isinstance(item, dict):
            return {"dict": {key: self.pack(part) for key, part in item.items()}}
        if isinstance(item, Plain):
            return {"plain": self._add(item.array)}
        if array_api_compat.is_array_api_obj(item) and tuple(item.shape) == self._shape:
            index = self._add(item)
            self.points.add(index)
            return {"array": index}
        if hasattr(item, "packed") and getattr(item, "is_on_host", True):
            return self.pack(item.packed())
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        if name in RECORDS:
            fields = {f.name: self.pack(getattr(item, f.name)) for f in dataclasses.fields(item)}
            return {"record": name, "fields": fields}
        raise TypeError(
            f"a checkpoint cannot hold {item!r} ({name}); memories are made of numbers, text, "
            "arrays of the shape of x, tuples and classes decorated with @record"
        )

    def _add(self, item: Array) -> int:
        if id(item) not in self._index:
            self._index[id(item)] = len(self.arrays)
            self.arrays.append(to_numpy(item))
        return self._index[id(item)]


@dataclasses.dataclass(frozen=True, eq=False)
class PackedRun:
    """A run as a tree that JSON can hold, and the arrays that it names: for `load`, in a space.

    Of a run on ranks it is the part of one rank, and can go on with as many ranks.
    """

    tree: JsonObject
    arrays: dict[str, AnyArray]

    @classmethod
    def of(cls, state: RunState) -> PackedRun:
        """The arrays may share memory with the run's."""
        tree, arrays = pack_state(state)
        if list(state.best_point.shape) != list(state.space["shape"]):
            # A part of a vector that is spread over ranks, as in the shard of a checkpoint.
            shape = tuple(state.best_point.shape)
            arrays = {n: a.reshape(-1) if a.shape == shape else a for n, a in arrays.items()}
            tree = seal(tree | {"shards": "of one rank"}, arrays)
        return cls(tree, arrays)

    @property
    def method(self) -> JsonObject:
        """`Method.description` of its method."""
        described: JsonObject = Unpacker({}, None).unpack(self.tree["fields"]["method"])
        return described

    def with_method(self, described: JsonObject) -> PackedRun:
        """The same run under a method with other parameters, which the caller knows to fit."""
        fields = self.tree["fields"] | {"method": Packer(()).pack(described)}
        tree = self.tree | {"fields": fields}
        # What has changed before must not get a checksum that fits.
        is_whole = has_own_seal(self.tree, self.arrays)
        return PackedRun(seal(tree, self.arrays) if is_whole else tree, self.arrays)


def pack_state(state: RunState) -> tuple[JsonObject, dict[str, AnyArray]]:
    """A run as a tree of plain things, and the arrays that it names; they may share memory with
    the run's."""
    packer = Packer(tuple(state.best_point.shape))
    tree = packer.pack(state)
    arrays = {f"a{i}": array for i, array in enumerate(packer.arrays)}
    return seal(tree, arrays), arrays


def seal(tree: JsonObject, arrays: Mapping[str, AnyArray]) -> JsonObject:
    """The tree with a checksum of it and its arrays: what has not changed since need not be checked
    field by field."""
    body = {name: part for name, part in tree.items() if name != SEAL}
    checksum = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return body | {SEAL: checksum}


def has_own_seal(tree: JsonObject, arrays: Mapping[str, AnyArray]) -> bool:
    """Are tree and arrays as they were written, as far as the file can tell?"""
    return SEAL not in tree or tree == seal(tree, arrays)


def require_own_seal(tree: JsonObject, arrays: Mapping[str, AnyArray]) -> None:
    """Raise a `CheckpointError` where they are not as they were written."""
    _require(has_own_seal(tree, arrays), "it has changed since it was written")


def unpack_state(
    tree: JsonObject,
    arrays: dict[str, AnyArray],
    space: Space | None = None,
    path: Path | None = None,
) -> RunState:
    """The run that `pack_state` made these of; whatever is wrong with it is a `CheckpointError`.

    Of a run in shards ``path`` says beside which file these are.
    """
    if "many" in tree:
        raise CheckpointError("is the checkpoint of a batch: resume it with minimize_many")
    with damage_named(is_old=path is not None and SEAL not in tree):
        require_own_seal(tree, arrays)
        if path is not None and "shards" in tree:
            arrays = arrays | _from_shards(path, tree["shards"], space)
        return Unpacker(arrays, space).state(tree)


@contextlib.contextmanager
def damage_named(is_old: bool = False) -> Iterator[None]:
    """A context in which what malformed contents end in is a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except (*MALFORMED, RuntimeError) as error:  # of PyTorch's tensors, or of a tree too deep
        what = f"({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        if is_old:
            old = "is of momentous 0.1.0, and not readable here: go on with 0.1.0, or begin again"
            raise CheckpointError(f"{old} {what}") from error
        raise CheckpointError(f"is damaged {what}") from error


def read_checkpoint(path: str | os.PathLike[str]) -> Archive:
    """What is in the file."""
    try:
        return read_archive(path, KIND, VERSION)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no checkpoint {path} to resume from") from None
    except ArchiveError as error:
        raise CheckpointError(str(error)) from error


def load(
    path: str | os.PathLike[str] | RunState | PackedRun, space: Space | None = None
) -> RunState:
    """Read a checkpoint of a run in that space; whatever is wrong is a `CheckpointError`.

    Without a space its arrays stay those of NumPy.  A run that is in memory already is taken as it
    is.
    """
    if isinstance(path, RunState):
        return path
    if isinstance(path, PackedRun):
        return unpack_state(path.tree, path.arrays, space)
    path = path_of_file(path, "resume")
    archive = read_checkpoint(path)
    try:
        return unpack_state(archive.content, archive.arrays, space, path)
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None


def shard_path(path: str | os.PathLike[str], token: int, rank: int) -> Path:
    """Where a rank writes its part of a checkpoint."""
    path = Path(path)
    name = path.name.removesuffix(".previous")
    return path.with_name(f"{name}.shard-{token:010x}-{rank}")


def shards_beside(path: Path) -> list[Path]:
    """The shards of any file that was written here, by their whole names.

    What killed processes have left of such shards is removed: nobody writes them again.
    """
    names = re.compile(rf"{re.escape(path.name)}\.shard-[0-9a-f]{{10}}-[0-9]+")
    remove_left_over(path.parent, names.pattern)
    with contextlib.suppress(PermissionError):  # a folder that may be written to, but not listed
        return [one for one in path.parent.iterdir() if names.fullmatch(one.name)]
    return []


def remove_old_shards(path: Path) -> None:
    """Remove the shards that neither a checkpoint nor the one before it names."""
    shards = shards_beside(path)
    if shards:  # otherwise there is nothing to read
        kept = {*_shard_names(path), *_shard_names(previous_path(path))}
        for shard in shards:
            if shard.name not in kept:
                with contextlib.suppress(OSError):
                    shard.unlink()


def _shard_names(path: Path) -> list[str]:
    """The files with the parts of a checkpoint, if it has any."""
    try:
        shards = read_archive(path, KIND, VERSION).content["shards"]
        return [shard_path(path, shards["token"], k).name for k in range(len(shards["sizes"]))]
    except (OSError, ArchiveError, TypeError, LookupError):
        return []


def _from_shards(path: Path, shards: JsonObject, space: Space | None) -> dict[str, AnyArray]:
    """The part of the points that is this rank's (without a space, all of them), flat."""
    sizes, begin = shards["sizes"], 0 if space is None else space.offset
    end, at = sum(sizes) if space is None else begin + space.size, 0
    pieces: dict[str, list[AnyArray]] = {}
    for rank, size in enumerate(sizes):
        first, last = max(begin, at), min(end, at + size)
        if first < last or (rank == 0 and begin == end):
            file = shard_path(path, shards["token"], rank)
            try:
                archive = read_archive(file, SHARD, VERSION)
            except (OSError, ArchiveError) as error:
                raise CheckpointError(f"is damaged: {error}") from error
            own = {"token": shards["token"], "rank": rank}
            is_own = archive.content in (own, seal(own, archive.arrays))
            _require(is_own, f"{file.name} is no shard of this checkpoint and rank, or has changed")
            for name, array in archive.arrays.items():
                _require(array.shape == (size,), f"its shard {file.name} is not as long as it says")
                pieces.setdefault(name, []).append(array[first - at : last - at])
        at += size
    return {name: np.concatenate(parts) for name, parts in pieces.items()}


class Unpacker:
    """The way back."""

    def __init__(self, arrays: dict[str, AnyArray], space: Space | None):
        self._arrays, self._space = arrays, space
        self._made: dict[int, Array] = {}  # fields that shared an array share it again

    def state(self, tree: JsonObject) -> RunState:
        there = self.unpack(tree["fields"]["space"])
        shape, dtype = tuple(there["shape"]), there["dtype"]
        if self._space is not None and there != (here := self._space.describe()):
            # Over ranks x is one flat vector.
            flat = "shards" in tree or self._space.is_part
            same = math.prod(shape) == self._space.dimension and dtype == here["dtype"]
            if not (flat and same):
                raise CheckpointError(
                    f"belongs to another problem: its x has shape {shape} and dtype {dtype}, x0 "
                    f"has {tuple(here['shape'])} and {here['dtype']}"
                )
        state: RunState = self.unpack(tree)
        return state

    def unpack(self, item: Unchecked) -> Unchecked:
        if not isinstance(item, dict):
            return item
        if "enum" in item:
            return _ENUMS[item["enum"]](item["value"])
        if "list" in item:
            parts = [self.unpack(part) for part in item["list"]]
            return tuple(parts) if item["tuple"] else parts
        if "dict" in item:
            return {key: self.unpack(part) for key, part in item["dict"].items()}
        if "plain" in item:
            return Plain(self._arrays[f"a{item['plain']}"])
        if "array" in item:
            return self._array(item["array"])
        cls = RECORDS.get(item["record"])
        if cls is None:
            raise CheckpointError(
                f"holds a {item['record']}, which is not here: another version of momentous has "
                "written it, or it is of a method of your own; then import the module that defines "
                "it, and resume"
            )
        names = getattr(cls, "OLD_NAMES", {})  # of fields, in files of the last minor release
        fields = {names.get(name, name): self.unpack(part) for name, part in item["fields"].items()}
        made = cls(**fields)
        return made.unpacked(self._space) if hasattr(made, "unpacked") else made

    def _array(self, index: int) -> Array:
        """The part of the vector that is in this space."""
        if index not in self._made:
            array, space = self._arrays[f"a{index}"], self._space
            if space is not None:
                if array.size != space.size:
                    array = array.reshape(-1)[space.offset : space.offset + space.size]
                array = space.from_numpy(array.reshape(space.shape))
            self._made[index] = array
        return self._made[index]


def _without_absent(described: JsonObject) -> JsonObject:
    """A description without parameters that are None, which files of older versions do not have."""
    parts = {name: part for name, part in described.items() if part is not None}
    return {n: _without_absent(p) if isinstance(p, dict) else p for n, p in parts.items()}


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CheckpointError(f"is damaged: {' '.join(what.split())}")
