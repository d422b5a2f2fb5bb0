"""Damage for the fuzz targets: random wounds in bytes and in archives, and crafted arrays and JSON.

Random bytes seldom get past a checksum, so archives are also taken apart, damaged and packed again.
"""

import ast
import io
import itertools
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

PIECES = [
    b"\x00", b"\xff", b"\x7f", b"\n", b"\r\n", b"\r", b",", b"::", b'"', b"\t", b" ", b"-",
    b"1e999", b"nan", b"inf", b"9" * 30, b"0" * 200, b"-1", b"\xef\xbb\xbf", b"\xff\xfe", b"%",
    b":", b"{",
    b"}", b"[" * 50, b"PK\x03\x04", b"PAR1", b"\x1f\x8b", b"null", b"e", b".", b"+", b"\xc3\xa9",
    b"\xc3", b"'", b"\\", b"\x1b[31m", b"=1+1", b";", b"|", struct.pack("<q", 2**62),
    struct.pack("<q", -1), struct.pack("<i", 2**31 - 1), struct.pack("<d", float("nan")),
]  # fmt: skip

TYPES = [
    "<i8", "<f8", "<i4", "<u8", "|b1", "|O", "<U4", "<c16", "|V8", "<M8[s]", ">i8", "<f2", "|S3",
    [("a", "<i4"), ("b", "<f4")],
]  # fmt: skip

WRONG: list[Any] = [
    None, -1, 0, 2**70, 1e308, float("nan"), True, "x", "", "../../etc/passwd", [], {}, [[]],
    {"enum": "Status", "value": 99}, {"array": 0}, {"array": 10**6}, {"plain": 0},
    {"record": "os.system", "fields": {}},
]  # fmt: skip
"""What may stand in JSON where something else should."""


Make = Callable[[], bytes]
"""A crafted file, made when its turn comes: there are thousands."""


# --- random ---------------------------------------------------------------------------------------


def wounded(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to four wounds; ``other`` is a second good file, the end of which may be put on."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not made:
            return rng.choice(PIECES)
        at, kind, piece = rng.randrange(len(made)), rng.randrange(9), rng.choice(PIECES)
        if kind == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at] = rng.randrange(256)
        elif kind == 2:
            del made[at:]
        elif kind == 3:
            del made[at : at + rng.choice((1, 2, 4, 16, 64))]
        elif kind == 4:
            made[at:at] = piece
        elif kind == 5:
            made[at : at + len(piece)] = piece
        elif kind == 6:
            begin = rng.randrange(len(made))
            made[at:at] = made[begin : begin + rng.choice((1, 8, 32, 128))]
        elif kind == 7:
            made[at:] = other[rng.randrange(len(other)) :]
        else:
            made[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 3, 9))))
    return bytes(made)


def wounded_member(data: bytes, rng: random.Random) -> bytes:
    """A zip archive with a member damaged, dropped, renamed or doubled, and right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    k, kind = rng.randrange(len(members)), rng.randrange(12)
    name, content = members[k]
    if kind == 0:
        members.pop(k)
    elif kind == 1:
        names = ["x.npy", "../" + name, name + ".npy", "", "header.npy"]
        members[k] = (rng.choice(names), content)
    elif kind == 2:
        members[k] = (name, rng.choice(members)[1])
    elif kind == 3:
        members.append((name, wounded(content, content, rng)))
    elif kind <= 6 and content[:6] == b"\x93NUMPY":
        members[k] = (name, _other_npy_header(content, rng))
    else:
        members[k] = (name, wounded(content, rng.choice(members)[1] or b"x", rng))
    return packed(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def _other_npy_header(content: bytes, rng: random.Random) -> bytes:
    """Another shape, type or order, in a header that can be read."""
    length = struct.unpack("<H", content[8:10])[0]
    about = ast.literal_eval(content[10 : 10 + length].decode("latin1"))
    if rng.random() < 0.7:
        about["descr"] = rng.choice(TYPES)
    shape = list(about["shape"])
    if shape and rng.random() < 0.5:
        near = (0, 1, -1, shape[0] + 1, shape[0] - 1)
        shape[rng.randrange(len(shape))] = rng.choice((*near, 2**31, 2**40, 2**62, 2**63))
    elif rng.random() < 0.3:
        shape = rng.choice(([], [1], [3, 3], [0, 5], [2**32, 2**32], [1] * 33))
    about["shape"] = tuple(shape)
    if rng.random() < 0.2:
        about["fortran_order"] = rng.choice((True, 1, None))
    return content[:8] + _npy_header(about) + content[10 + length :]


def _npy_header(about: dict[str, Any]) -> bytes:
    line = repr(about).encode("latin1")
    line += b" " * (-(len(line) + 11) % 64) + b"\n"
    return struct.pack("<H", len(line)) + line


def packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of these members."""
    sink = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(sink, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of names that come twice
        for name, content in members:
            info = zipfile.ZipInfo(name)  # with a date of its own, always the same
            info.compress_type = method
            archive.writestr(info, content)
    return sink.getvalue()


# --- crafted --------------------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def crafted_arrays(data: bytes) -> Iterator[Make]:
    """A npz file with each of its arrays changed in each way that cannot be right."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    for name, array in arrays.items():
        others = {key: kept for key, kept in arrays.items() if key != name}
        yield partial(npz, **others)
        for changed in _changed(array):
            yield partial(npz, **others, **{name: changed})
        # An array of terabytes in a hundred bytes, and one that is shorter than it says.
        for shape in ((10**12,), (2**62, 8), (array.size + 1,)):
            about = {"descr": "<f8", "fortran_order": False, "shape": shape}
            member = b"\x93NUMPY\x01\x00" + _npy_header(about) + array.tobytes()
            yield partial(_with_member, npz(**others), f"{name}.npy", member)


def _with_member(data: bytes, name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    return packed([*members, (name, content)])


def _changed(a: np.ndarray) -> Iterator[Any]:
    yield from (a[None], np.concatenate([a.ravel(), a.ravel()]), np.zeros(a.shape, "datetime64[s]"))
    yield from (np.array(["x"] * a.size), np.array([{}] * a.size, object), a.astype("V8"))
    if a.dtype.kind in "USf" and a.size:
        yield np.full_like(a, a.ravel()[0])
    if a.ndim and a.size:
        yield from (a[:-1], a[:0], np.concatenate([a, a[-1:]]), a[::-1].copy(), a.ravel()[0])
    if a.ndim == 2:
        yield from (a[:, :-1], a[:, :0], np.column_stack([a, a[:, :1]]), np.ascontiguousarray(a.T))
    if a.dtype.kind == "f" and a.size:
        numbers = (np.nan, np.inf, -np.inf, 1e308)
        yield from (_put(a, -1, number) for number in numbers)
        with np.errstate(all="ignore"):  # of infinite numbers
            casts = [a.astype(kind) for kind in (np.int64, np.complex128, np.float16, ">f8")]
        yield from casts
    if a.dtype.kind in "iu" and a.size:
        wide = a.astype(np.int64)
        places = {0, 1, a.size // 2, a.size - 1}
        yield from (_put(wide, k % a.size, n) for k in places for n in (-1, 2**31, 2**62, -(2**63)))
        yield from (_put(a, k % a.size, np.iinfo(a.dtype).max) for k in places)
        yield from (np.array([0, 2**62]), a.astype(float) + 0.5, _put(wide, -1, -1).view(np.uint64))


def _put(a: np.ndarray, place: int, number: Any) -> np.ndarray:
    changed = a.copy()
    with np.errstate(over="ignore"):
        changed.ravel()[place] = number
    return changed


def crafted_header(data: bytes, name: str = "header") -> Iterator[Make]:
    """An archive with each place of the JSON in its header left out, or changed."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    for make in crafted_json(arrays.pop(name).tobytes()):
        yield partial(_with_header, arrays, name, make)


def _with_header(arrays: dict[str, Any], name: str, make: Make) -> bytes:
    return npz(**{name: np.frombuffer(make(), np.uint8)}, **arrays)


def crafted_json(data: bytes) -> Iterator[Make]:
    """A text of JSON with each place left out, or changed in five of the ways, in turn."""
    tree = json.loads(data)
    wrong = itertools.cycle(WRONG)
    texts = (b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"null", b"1" * 5000)
    yield from (partial(bytes, text) for text in texts)
    for way in _places(tree):
        yield partial(_json, tree, way, None, leave_out=True)
        yield from (partial(_json, tree, way, next(wrong)) for _ in range(5))


def _json(tree: Any, way: tuple[Any, ...], wrong: Any, leave_out: bool = False) -> bytes:
    return json.dumps(_replaced(tree, way, wrong, leave_out)).encode()


def _places(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where everything stands in a tree of JSON."""
    if isinstance(tree, dict | list):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield (*here, key)
            yield from _places(part, (*here, key))


def _replaced(tree: Any, way: tuple[Any, ...], wrong: Any, leave_out: bool = False) -> Any:
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    key, rest = way[0], way[1:]
    if rest:
        copy[key] = _replaced(tree[key], rest, wrong, leave_out)
    elif leave_out:
        del copy[key]
    else:
        copy[key] = wrong
    return copy
