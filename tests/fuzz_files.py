"""Files for the fuzz targets: good ones, as the library writes and reads them, and crafted ones."""

import contextlib
import functools
import gzip
import io
import json
import tempfile
import typing
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from fuzz_damage import Make, crafted_arrays, crafted_header, crafted_json, npz, packed
from momentous import Checkpoint, minimize, minimize_many
from momentous.core.checkpoint import RunState, shard_path
from momentous.core.status import EventKind
from momentous.io.optional import require
from momentous.lab.compare.table import Comparison, Row
from momentous.lab.paper.folder import FINDINGS, INDEX_KIND, StudyFolder
from momentous.lab.paper.problems import PROBLEMS
from momentous.lab.paper.results import Bound, Growth
from momentous.lab.paper.runs import PaperRunInfo
from momentous.lab.record import Ended, Outcome, RunInfo, RunRecord
from momentous.lowrank import (
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    read_ratings,
)
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.model.shards import OfRank
from momentous.lowrank.solvers.fit import FitConfig

# --- good files -----------------------------------------------------------------------------------


def triples(count: int = 60) -> list[tuple[int, int, float]]:
    """Users 1 to 25, items 1 to 18, half stars."""
    rng = np.random.default_rng(1)
    cells = rng.permutation(25 * 18)[:count].tolist()
    return [(c // 18 + 1, c % 18 + 1, float(rng.integers(1, 11)) / 2) for c in cells]


def text(between: str, header: bool = True, ids: str = "{}", quote: str = "") -> bytes:
    lines = [between.join(("userId", "movieId", "rating"))] if header else []
    for user, item, value in triples():
        names = [f"{quote}{ids.format(number)}{quote}" for number in (user, item)]
        lines.append(between.join([*names, str(value)]))
    return ("\n".join(lines) + "\n").encode()


def netflix() -> bytes:
    lines = []
    for movie in sorted({item for _, item, _ in triples()}):
        lines.append(f"{movie}:")
        lines += [f"{u},{int(v) + 1},2005-09-06" for u, item, v in triples() if item == movie]
    return ("\n".join(lines) + "\n").encode()


def market(sizes: str = "25 18 60", entries: str | None = None) -> bytes:
    head = f"%%MatrixMarket matrix coordinate real general\n% a comment\n{sizes}\n"
    if entries is None:
        entries = "".join(f"{u} {i} {v}\n" for u, i, v in triples())
    return (head + entries).encode()


def gz(data: bytes, level: int = 9) -> bytes:
    return gzip.compress(data, level, mtime=0)


def json_lines() -> bytes:
    rows = (dict(zip(("user", "item", "rating"), row, strict=True)) for row in triples())
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def sparse(form: str) -> bytes:
    users, items, values = zip(*triples(), strict=True)
    matrix = scipy.sparse.coo_array((values, (np.array(users) - 1, np.array(items) - 1)), (25, 18))
    sink = io.BytesIO()
    scipy.sparse.save_npz(sink, matrix.asformat(form), compressed=False)
    return sink.getvalue()


def parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    table = require("pyarrow", "app", "Parquet").table(columns)
    require("pyarrow.parquet", "app", "Parquet").write_table(table, sink)
    return sink.getvalue()


def rating_tables() -> list[bytes]:
    users, items, values = zip(*triples(), strict=True)
    rest = {"item": items, "rating": values}
    return [parquet({"user": u, **rest}) for u in (users, [f"id {user}" for user in users])]


def written(write: Callable[[Path], Any], name: str = "file", inside: str = "") -> bytes:
    """What a function of the library writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write(path)
        return (path / inside if inside else path).read_bytes()


def caches() -> list[bytes]:
    def make(path: Path, ids: str) -> None:
        source = path.with_name("ratings.csv")
        source.write_bytes(text(",", ids=ids))
        read_ratings(source)
        source.with_name("ratings.csv.momentous.npz").rename(path)

    return [written(functools.partial(make, ids=ids)) for ids in ("{}", "id {}")]


def model(kind: type, ids: str = "") -> bytes:
    rows = triples(300)
    pairs = np.array([[u, i] for u, i, _ in rows])
    if ids:
        pairs = np.char.add(ids, pairs.astype(str))
    values = np.array([value for *_, value in rows])
    given = values > 2.5 if kind is OneBitMatrixCompletion else values
    fitted = kind(rank=3, max_iterations=5, threads=1, random_state=0, validation_share=0.2)
    return written(fitted.fit(pairs, given).save)


@functools.cache
def begun_ratings() -> Ratings:
    users, items, values = (np.array(part) for part in zip(*triples(300), strict=True))
    return Ratings(users - 1, items - 1, values)


def begun_config() -> FitConfig:
    return FitConfig(rank=3, max_iterations=5, threads=1, tol=0.0, validation_share=0.2)


def begun_model() -> bytes:
    """With the run that led to it, so that a fit can go on."""
    fitted = fit_model(begun_ratings(), begun_config()).model
    return written(functools.partial(save_model, fitted))


class InTurn:
    """What saving a model in shards asks of ranks, for ranks that come one after the other."""

    def __init__(self, rank: int, size: int = 2):
        self.rank, self.size = rank, size

    def sum(self, number: int) -> int:
        return TOKEN

    def gather_text(self, text: str) -> list[str]:
        return [text]

    def all_or_none(self, work: Callable[[], None]) -> None:
        work()


@functools.cache
def sharded_model() -> list[bytes]:
    """The file that names the shards, and two shards."""
    plain = model(MatrixCompletion)

    def write(path: Path) -> None:
        whole = path.with_name("whole")
        whole.write_bytes(plain)
        for rank in (1, 0):  # the last one writes the file that names the shards
            part, extra = load_model(whole, OfRank(rank, 2))
            save_model(part, path, extra, InTurn(rank))  # type: ignore[arg-type]
        files.extend(shard_path(path, TOKEN, k).read_bytes() for k in (0, 1))

    files: list[bytes] = []
    return [written(write), *files]


START, TOLERANCE = np.array([-1.2, 1.0, -0.5, 0.8]), 1e-9
TOKEN = 7  # in the names of shards


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    rest, gradient = x[1:] - x[:-1] ** 2, np.zeros_like(x)
    gradient[:-1] = -400 * x[:-1] * rest - 2 * (1 - x[:-1])
    gradient[1:] += 200 * rest
    return float(100 * rest @ rest + (1 - x[:-1]) @ (1 - x[:-1])), gradient


def checkpoint(method: str) -> bytes:
    run = functools.partial(minimize, rosenbrock, START, jac=True, method=method, max_iterations=9)
    return written(lambda path: run(checkpoint=path, tol=TOLERANCE))


def batch_starts(count: int) -> np.ndarray:
    return START * np.linspace(0.2, 1.0, count)[:, None]


def rosenbrocks(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, gradients = zip(*map(rosenbrock, X), strict=True)
    return np.array(values), np.array(gradients)


def batch_checkpoint(count: int) -> bytes:
    """Of so many problems, some of which have ended and some run."""
    left = iter(range(35))

    def until_broken(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if next(left, None) is None:
            raise TimeoutError
        return rosenbrocks(X)

    def write(path: Path) -> None:
        with contextlib.suppress(TimeoutError):
            minimize_many(
                until_broken, batch_starts(count), jac=True, tol=TOLERANCE, checkpoint=path
            )

    return written(write)


class OneShard(Checkpoint):
    """A checkpoint as ranks write it, by one rank."""

    def save(self, state: RunState) -> None:
        self.save_shard(state, TOKEN, 0)
        self.save_manifest(state, TOKEN, [len(START)])


@functools.cache
def sharded_checkpoint() -> tuple[bytes, bytes]:
    """The file that names the shards, and a shard."""
    shards = []

    def write(path: Path) -> None:
        minimize(rosenbrock, START, jac=True, max_iterations=9, tol=TOLERANCE,
                 method="ada-ragd", checkpoint=OneShard(path))  # fmt: skip
        shards.append(shard_path(path, TOKEN, 0).read_bytes())

    return written(write), shards[0]


def run_record(info_type: type = RunInfo, **more: Any) -> bytes:
    given = {"step_size": 0.5, "pairs": [1, 2]}
    info = info_type(next(iter(PROBLEMS)), "gd", given, "a machine", **more)
    counts = {"nfev": np.arange(5), "njev": np.arange(1, 6)}
    rest = {name: np.linspace(0.0, 1.0, 5) for name in ("time", "fun", "grad_norm", "step_size")}
    events = [(1, EventKind.RESTART, 1.0), (3, EventKind.ROLLBACK, 2.0)]
    record = RunRecord.from_columns(
        info, Outcome(Ended.CONVERGED, "done", 4, 1), counts | rest, events
    )
    return written(record.save)


def comparison(ending: str) -> bytes:
    hints = typing.get_type_hints(Row)
    kinds = {str: "text", int: 3, float: 1.5, bool: True, Ended: Ended.CONVERGED}
    row = Row(**{name: kinds.get(hint) for name, hint in hints.items()})
    return written(Comparison([row, replace(row, method="cg", nit=4)]).save, f"table{ending}")


def findings() -> bytes:
    bound = Bound("Theorem 1", "gradients", "a function", "1/eps", 3.0, 2.0)
    growth = Growth("gd", [1.0, 2.0], [3.0, 4.0], 0.9)
    return written(lambda path: StudyFolder(path).save_findings([bound], [growth]), "", FINDINGS)


def study() -> bytes:
    sets = [{
        "figure": "demo", "data": "small", "twin": False, "problem": "small",
        "profile": "paper", "device": "CPU", "plotted": 5, "runs": {"gd": "runs/gd.parquet"},
    }]  # fmt: skip
    return json.dumps({"kind": INDEX_KIND, "run_sets": sets}).encode()


@functools.cache
def paper_run() -> bytes:
    return run_record(
        PaperRunInfo, data="small", twin=False, profile="paper", step_size=None, step_from="given",
        iterations=5, shape=(2, 2), entries=3, rank=1, fingerprint="x", device="CPU",
        threads=1,
    )  # fmt: skip


# --- crafted files --------------------------------------------------------------------------------


def crafted_text(good: list[bytes]) -> Iterator[bytes]:
    """Lines that took time in the square of their size, or memory without a limit."""
    yield from (b"", b"\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe1\x00", b"\n" * 300_000)
    yield b" " * 300_000
    yield from (b"[" * 200_000, b"{" * 200_000, b'{"a":' * 50_000, b'"' * 50_001, b"1,2,3" * 99_999)
    yield b",".join([b"1"] * 50_000) + b"\n"
    yield b",".join(b"x%d" % k for k in range(50_000)) + b"\n"
    yield (b'"' + b"a," * 100 + b"\n") * 500
    for data in good:
        first, *rest = data.splitlines(keepends=True)
        after = b"".join(rest)
        long = b"1" * 20_000 + b"x"
        for value in (long, b"nan", b"-inf", b"1e999", b"0x10", b"1_0", b"", b"3 4"):
            cut = rest[0].rstrip(b"0123456789.\n") + value + b"\n"
            yield first + cut + b"".join(rest[1:])
        yield first + rest[0].rstrip() + b" " * 200_000 + b"\n" + after
        yield b"\n" * 70_000 + data
        yield data.replace(b"\n", b"\r")
        yield data + b"x" * 3_000_000
        yield first * 3 + after
        yield data.replace(rest[1], b"x" * 5000 + rest[1])


def crafted_market(good: list[bytes]) -> Iterator[bytes]:
    sizes = (
        "300000000 3 1", "3 3 5", "3 3 1", "3 3 1000000000000000000", "1000000000000000000 3 1",
        f"{10**30} 3 1", "-3 3 1", "3.0 3.0 1", "0 0 0", "3 3", "", "3 3 2 4", "x y z",
    )  # fmt: skip
    yield from (market(size, "1 1 5\n2 2 1\n") for size in sizes)
    rows = ("0 1 5", "4 1 5", "1 -1 5", f"{2**63} 1 5", f"{2**64 + 1} 1 5", "1 1 nan", "1 1")
    yield from (market("3 3 2", f"{row}\n2 2 1\n") for row in (*rows, "1 1 5 6"))
    words = (b"pattern", b"complex", b"x" * 5000, b"")
    yield from (good[0].replace(b"real", word) for word in words)
    yield from (good[0].replace(b"coordinate", b"array"), good[0].replace(b"general", b"symmetric"))


def crafted_zips(good: list[bytes]) -> Iterator[bytes]:
    plain = text(",")
    bomb = packed([("ratings.csv", b"1,2,3\n" * 3_000_000)], zipfile.ZIP_DEFLATED)
    yield from (bomb, packed([]), packed([("", plain)]), packed([("../ratings.csv", plain)]))
    yield from (packed([("ratings.csv", plain)] * 2), packed([("ratings.csv", good[0])]))
    yield packed([("a/", b""), ("ratings.csv", plain), ("ratings.dat", text("::", False))])
    for method in range(1, 99):  # compression that nobody knows, and flags of encryption
        for flags in (0, 1, 0x41):
            changed = bytearray(good[0])
            for place, start in ((8, b"PK\x03\x04"), (10, b"PK\x01\x02")):
                at = changed.find(start)
                changed[at + place - 2] |= flags
                changed[at + place] = method
            yield bytes(changed)


def crafted_sparse(good: list[bytes]) -> Iterator[bytes | Make]:
    for data in good:
        yield from crafted_arrays(data)
    csr = {
        "format": np.bytes_("csr"), "shape": np.array([3, 4]), "indptr": np.array([0, 2, 3, 5]),
        "indices": np.array([0, 1, 2, 0, 3]), "data": np.arange(1.0, 6.0),
    }  # fmt: skip
    changes = {
        "indptr": ([0, 10**8, 5, 5], [0, 2, 1, 5], [-1, 2, 3, 5], [1, 2, 3, 5], [0, 5], [0, 2**62]),
        "indices": ([0, 1, 4, 0, 3], [0, 1, -7, 0, 3], [0, 1, 2**30, 0, 3], [0, 1, 2]),
        "shape": ([3, 2], [3, -4], [2**62, 2**62], [3, 4, 5], [10**9, 4], [0, 0], []),
    }
    for name, values in changes.items():
        yield from (npz(**{**csr, name: np.array(value)}) for value in values)


def crafted_archives(good: list[bytes]) -> Iterator[Make]:
    for data in good:
        yield from crafted_arrays(data)
        yield from crafted_header(data)


def crafted_entries(good: list[bytes]) -> Iterator[Make]:
    """160 models, or shards, whose entries would lead a kernel out of its arrays."""
    with np.load(io.BytesIO(good[0])) as archive:
        arrays = dict(archive)
    for prefix in ("", "held_out_"):
        starts, others, values = (arrays[prefix + name] for name in ("starts", "others", "values"))
        for changed in wild_starts(starts):
            for parts in wild_entries(others, values):
                names = (f"{prefix}starts", f"{prefix}others", f"{prefix}values")
                entries = dict(zip(names, (changed, *parts), strict=True))
                yield functools.partial(npz, **{**arrays, **entries})


def wild_starts(starts: np.ndarray) -> Iterator[np.ndarray]:
    """16 ways in which starts may be wrong; the counts of some add up to nothing, modulo 2^64."""
    rows, count = starts.size - 1, starts[-1]
    for jumps in ([2**62] * 4, [2**63 - 1, 2**63 - 1, 2], [2**62, -(2**62)], [-1, 1], [-(2**62)]):
        counts = np.zeros(rows, np.int64)
        counts[: len(jumps)] = jumps
        yield np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    for place, number in ((1, 2**62), (1, -1), (0, 5), (-1, 2**62), (-1, count + 1), (-1, -1)):
        changed = starts.copy()
        changed[place] = number
        yield changed
    yield from (starts[::-1].copy(), starts[:-1], starts[:0], np.full_like(starts, 2**62))
    yield starts.astype(np.uint64)


def wild_entries(others: np.ndarray, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As they are, none, one of the two, and columns that are not there."""
    yield from ((others, values), (others[:0], values[:0]), (others, values[:0]))
    yield from ((np.full_like(others, 2**31 - 1), values), (np.full_like(others, -(2**31)), values))


def crafted_models(good: list[bytes]) -> Iterator[Make]:
    yield from crafted_entries(good)
    yield from crafted_archives(good)


def crafted_texts_of_json(good: list[bytes]) -> Iterator[Make]:
    return crafted_json(good[0])


def crafted_records(good: list[bytes]) -> Iterator[Make]:
    """Run records whose metadata or columns say something else; the checksums are right."""
    files = require("pyarrow.parquet", "app", "Parquet")
    table = files.read_table(io.BytesIO(good[0]))

    def packed_table(changed: Any) -> bytes:
        sink = io.BytesIO()
        files.write_table(changed, sink)
        return sink.getvalue()

    def with_metadata(make: Make) -> bytes:
        return packed_table(table.replace_schema_metadata({b"momentous": make()}))

    for make in crafted_json(table.schema.metadata[b"momentous"]):
        yield functools.partial(with_metadata, make)
    for place, name in enumerate(table.column_names):
        for column in (["x"] * 5, [None] * 5, [[1]] * 5, [2**62] * 5, [-1.5] * 5):
            changed = table.set_column(place, name, [column])
            yield functools.partial(packed_table, changed)
