"""The fuzz targets: every reader of the library, with good files to damage and crafted ones.

A target reads a file with the public function that a user would call, and then uses what it got as
far as compiled kernels see it.  It may end well, or in the error class that the reader documents.
"""

import contextlib
import functools
import gzip
import io
import json
import random
import tempfile
import typing
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fuzz_damage
import numpy as np
import scipy.sparse
from fuzz_damage import Make, crafted_arrays, crafted_header, crafted_json, npz, packed, wounded

from momentous import minimize
from momentous.core.checkpoint import CheckpointError
from momentous.io.archive import ArchiveError
from momentous.io.optional import require
from momentous.lab.compare.table import Comparison, Row
from momentous.lab.paper.folder import FINDINGS, INDEX, INDEX_KIND, StudyFolder
from momentous.lab.paper.problems import PROBLEMS
from momentous.lab.paper.results import Bound, Growth
from momentous.lab.paper.runs import PaperRunInfo
from momentous.lab.record import Outcome, RecordError, RunInfo, RunRecord
from momentous.lowrank import (
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    RatingsFileError,
    read_ratings,
)
from momentous.lowrank.data import read, read_pairs, tables


@dataclass(frozen=True)
class Target:
    """A reader: what its files are called, good ones, how one is read, and how it may refuse."""

    name: str
    group: str  # "readers" or "archives"
    ending: str
    make: Callable[[], list[bytes]]
    read: Callable[[Path], None]
    refusals: tuple[type[Exception], ...]
    craft: Callable[[list[bytes]], Iterable[bytes | Make]] = lambda good: ()
    zipped: bool = False  # members are damaged too

    @functools.cached_property
    def good(self) -> list[bytes]:
        """Files that must be accepted."""
        return self.make()

    @functools.cached_property
    def crafted(self) -> list[bytes | Make]:
        """Files made to do harm, or how to make them."""
        return list(self.craft(self.good))

    def case(self, seed: int, number: int) -> bytes:
        """A file by its number: first the crafted ones, then good ones with random damage."""
        if number < len(self.crafted):
            made = self.crafted[number]
            return made if isinstance(made, bytes) else made()
        rng = random.Random(f"{self.name} {seed} {number - len(self.crafted)}")
        data, other = rng.choice(self.good), rng.choice(self.good)
        if self.zipped and rng.random() < 0.6:
            return fuzz_damage.wounded_member(data, rng)
        if self.ending.endswith(".gz") and rng.random() < 0.6:
            inner = wounded(gzip.decompress(data), gzip.decompress(other), rng)
            return gzip.compress(inner, 1, mtime=0)
        return wounded(data, other, rng)

    def attempt(self, path: Path) -> str:
        """Read a file: "accepted", or "refused" by one of the errors that the reader documents."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                self.read(path)
            except self.refusals:
                return "refused"
        return "accepted"


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


def dense() -> bytes:
    return b"1,2,3,4,5,6,7,8,9\n1,,3,99,5,6,7,8,9\n" + b"1,2,3,4,5,6,7,8,\n" * 5


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


def checkpoint(method: str) -> bytes:
    run = functools.partial(minimize, rosenbrock, START, jac=True, method=method, max_iterations=9)
    return written(lambda path: run(checkpoint=path, tol=TOLERANCE))


def run_record(info_type: type = RunInfo, **more: Any) -> bytes:
    given = {"step_size": 0.5, "pairs": [1, 2]}
    info = info_type(next(iter(PROBLEMS)), "gd", given, "a machine", **more)
    counts = {"nfev": np.arange(5), "njev": np.arange(1, 6)}
    rest = {name: np.linspace(0.0, 1.0, 5) for name in ("time", "fun", "grad_norm", "step_size")}
    events = [(1, "RESTART", 1.0), (3, "ROLLBACK", 2.0)]
    record = RunRecord.from_columns(info, Outcome("converged", "done", 4, 1), counts | rest, events)
    return written(record.save)


def comparison(ending: str) -> bytes:
    hints = typing.get_type_hints(Row)
    kinds = {str: "text", int: 3, float: 1.5, bool: True}
    row = Row(**{name: kinds.get(hint, None) for name, hint in hints.items()})
    return written(Comparison([row, replace(row, method="cg", nit=4)]).save, f"table{ending}")


def findings() -> bytes:
    bound = Bound("Theorem 1", "gradients", "a function", "1/eps", 3.0, 2.0)
    growth = Growth("gd", [1.0, 2.0], [3.0, 4.0], 0.9)
    return written(lambda path: StudyFolder(path).save_findings([bound], [growth]), "", FINDINGS)


def study() -> bytes:
    sets = [{
        "figure": "demo", "data": "small", "twin": False, "problem": "small",
        "profile": "paper", "plotted": 5, "runs": {"gd": "runs/gd.parquet"},
    }]  # fmt: skip
    return json.dumps({"kind": INDEX_KIND, "run_sets": sets}).encode()


# --- crafted files --------------------------------------------------------------------------------


def crafted_text(good: list[bytes]) -> Iterator[bytes]:
    """Lines that took time in the square of their size, or memory without a limit."""
    yield from (b"", b"\n", b"\0", b"\xef\xbb\xbf", b"\xff\xfe1\x00", b"\n" * 300_000, b" " * 300_000)
    yield from (b"[" * 200_000, b"{" * 200_000, b'{"a":' * 50_000, b'"' * 50_001, b"1,2,3" * 99_999)
    yield b",".join([b"1"] * 50_000) + b"\n"
    yield b",".join(b"x%d" % k for k in range(50_000)) + b"\n"
    yield (b'"' + b"a," * 100 + b"\n") * 500
    for data in good:
        first, *rest = data.splitlines(keepends=True)
        after = b"".join(rest)
        for value in (b"1" * 20_000 + b"x", b"nan", b"-inf", b"1e999", b"0x10", b"1_0", b"", b"3 4"):
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
    rows = ("0 1 5", "4 1 5", "1 -1 5", f"{2**63} 1 5", f"{2**64 + 1} 1 5", "1 1 nan", "1 1", "1 1 5 6")
    yield from (market("3 3 2", f"{row}\n2 2 1\n") for row in rows)
    yield from (good[0].replace(b"real", word) for word in (b"pattern", b"complex", b"x" * 5000, b""))
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


# --- readers --------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_database(threads: int | None = None) -> Iterator[tuple[Any, Path]]:
    """DuckDB takes longer to start than to read a small file: one connection for all cases."""
    connection, folder = _database()
    try:
        yield connection, folder
    finally:
        for name, *_ in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            connection.execute(f"DROP TABLE {name}")


@functools.cache
def _database() -> tuple[Any, Path]:
    return _KEPT_OPEN.enter_context(tables.open_database(1))


_KEPT_OPEN = contextlib.ExitStack()


def share_database() -> None:
    """From now on all reading in this process goes through `one_database`."""
    read.open_database = one_database


def use(ratings: Ratings) -> None:
    """Everything in it is in range, and the other side is made by a kernel."""
    rows, cols = ratings.shape
    assert np.isfinite(ratings.values).all()
    assert ratings.rows.size == ratings.cols.size == ratings.values.size == ratings.nnz
    assert 0 <= ratings.rows.min(initial=0) <= ratings.rows.max(initial=0) < max(rows, 1)
    assert 0 <= ratings.cols.min(initial=0) <= ratings.cols.max(initial=0) < max(cols, 1)
    assert ratings.by_col.starts[-1] == ratings.nnz


def any_ratings(path: Path, **options: Any) -> None:
    use(read_ratings(path, cache=False, progress=False, **options))


def pairs(path: Path) -> None:
    assert read_pairs(path).shape[1] == 2


def any_model(path: Path, kind: type) -> None:
    fitted = kind.load(path)
    known = fitted.model_.rows.ids, fitted.model_.cols.ids
    fitted.predict(np.array([[user, item] for user in known[0][:3] for item in known[1][:3]]))
    fitted.recommend(known[0][0], n=3)
    new = np.array(["a", "a"]) if known[0].dtype.kind in "US" else np.array([10**6, 10**6])
    labels = fitted.classes_ if kind is OneBitMatrixCompletion else np.array([1.0, 0.0])
    fitted.fold_in(np.column_stack([new, known[1][[0, -1]]]), labels)


START, TOLERANCE = np.array([-1.2, 1.0, -0.5, 0.8]), 1e-9


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    rest, gradient = x[1:] - x[:-1] ** 2, np.zeros_like(x)
    gradient[:-1] = -400 * x[:-1] * rest - 2 * (1 - x[:-1])
    gradient[1:] += 200 * rest
    return float(100 * rest @ rest + (1 - x[:-1]) @ (1 - x[:-1])), gradient


def any_checkpoint(path: Path) -> None:
    limits = {"max_iterations": 30, "max_evaluations": 200}
    result = minimize(rosenbrock, START, jac=True, resume=path, tol=TOLERANCE, **limits)
    assert not result.success or np.linalg.norm(rosenbrock(result.x)[1]) <= 1.01 * TOLERANCE


def in_study(path: Path, name: str) -> StudyFolder:
    place = path.parent / "study"
    folder = StudyFolder(place)
    path.replace(place / name)
    return folder


def any_findings(path: Path) -> None:
    in_study(path, FINDINGS).load_findings()


def any_study(path: Path) -> None:
    folder = in_study(path, INDEX)
    folder.runs.mkdir(exist_ok=True)
    (folder.runs / "gd.parquet").write_bytes(paper_run())
    folder.run_sets()


@functools.cache
def paper_run() -> bytes:
    return run_record(
        PaperRunInfo, data="small", twin=False, profile="paper", step_size=None, step_from="given",
        iterations=5, shape=(2, 2), entries=3, rank=1, fingerprint="x", threads=1,
    )  # fmt: skip


FILE, RECORD, WRONG = (RatingsFileError,), (RecordError,), (ValueError,)

TARGETS = [
    Target("csv", "readers", ".csv",
           lambda: [text(","), text(",", False), text(";"), text(",", ids="\u00e9{}")],
           any_ratings, FILE, crafted_text),
    Target("csv-skip", "readers", ".csv", lambda: [text(","), text(",", False)],
           functools.partial(any_ratings, skip_bad=True), FILE, crafted_text),
    Target("tsv", "readers", ".tsv", lambda: [text("\t"), text("\t", False)], any_ratings, FILE,
           crafted_text),
    Target("spaces", "readers", ".txt", lambda: [text(" ", False)], any_ratings, FILE),
    Target("colons", "readers", ".dat", lambda: [text("::", False)], any_ratings, FILE,
           crafted_text),
    Target("quotes", "readers", ".csv",
           lambda: [text(",", ids="a, {}", quote='"'), text(",", ids='b "" {}', quote='"')],
           any_ratings, FILE),
    Target("netflix", "readers", ".txt", lambda: [netflix()], any_ratings, FILE),
    Target("dense", "readers", ".csv", lambda: [dense()],
           functools.partial(any_ratings, format="dense"), FILE),
    Target("market", "readers", ".mtx", lambda: [market()], any_ratings, FILE, crafted_market),
    Target("jsonl", "readers", ".jsonl", lambda: [json_lines()], any_ratings, FILE, crafted_text),
    Target("parquet", "readers", ".parquet", rating_tables, any_ratings, FILE),
    Target("gz", "readers", ".csv.gz",
           lambda: [gzip.compress(text(","), mtime=0), gzip.compress(text("::", False), 0, mtime=0)],
           any_ratings, FILE),
    Target("zip", "readers", ".zip",
           lambda: [packed([("ratings.csv", text(","))], zipfile.ZIP_DEFLATED),
                    packed([("u.data", text("\t", False))])],
           any_ratings, FILE, crafted_zips, zipped=True),
    Target("npz", "readers", ".npz", lambda: [*map(sparse, ("csr", "csc", "coo"))], any_ratings,
           FILE, crafted_sparse, zipped=True),
    Target("cache", "readers", ".momentous.npz", caches, any_ratings, FILE, crafted_archives,
           zipped=True),
    Target("pairs", "readers", ".csv",
           lambda: [text(","), text("::", False), text("\t", quote='"')], pairs, FILE, crafted_text),
    Target("record", "readers", ".parquet", lambda: [run_record()],
           lambda path: RunRecord.load(path, RunInfo) and None, RECORD, crafted_records),
    Target("table", "readers", ".parquet", lambda: [comparison(".parquet")],
           lambda path: Comparison.load(path) and None, RECORD),
    Target("table-csv", "readers", ".csv", lambda: [comparison(".csv")],
           lambda path: Comparison.load(path) and None, RECORD, crafted_text),
    Target("findings", "readers", ".json", lambda: [findings()], any_findings, WRONG,
           crafted_texts_of_json),
    Target("study", "readers", ".json", lambda: [study()], any_study, WRONG,
           crafted_texts_of_json),
    Target("model", "archives", ".model",
           lambda: [model(MatrixCompletion), model(MatrixCompletion, "id ")],
           functools.partial(any_model, kind=MatrixCompletion), (ArchiveError,), crafted_archives,
           zipped=True),
    Target("model-one-bit", "archives", ".model", lambda: [model(OneBitMatrixCompletion)],
           functools.partial(any_model, kind=OneBitMatrixCompletion), (ArchiveError,),
           crafted_archives, zipped=True),
    Target("checkpoint", "archives", ".npz",
           lambda: [*map(checkpoint, ("auto", "ada-ragd", "cg", "universal-hb"))], any_checkpoint,
           (CheckpointError,), crafted_archives, zipped=True),
]  # fmt: skip
