"""The fuzz targets: every reader of the library, with good files to damage and crafted ones.

A target reads a file with the public function that a user would call, and then uses what it got as
far as compiled kernels see it.  It may end well, or in the error class that the reader documents.
"""

import dataclasses
import functools
import gzip
import os
import random
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzz_damage import Make, packed, wounded, wounded_member
from fuzz_files import (
    START,
    TOKEN,
    TOLERANCE,
    batch_checkpoint,
    batch_starts,
    begun_config,
    begun_model,
    begun_ratings,
    caches,
    checkpoint,
    comparison,
    crafted_archives,
    crafted_entries,
    crafted_market,
    crafted_models,
    crafted_records,
    crafted_sparse,
    crafted_text,
    crafted_texts_of_json,
    crafted_zips,
    findings,
    gz,
    json_lines,
    market,
    model,
    netflix,
    paper_run,
    rating_tables,
    rosenbrock,
    rosenbrocks,
    run_record,
    sharded_checkpoint,
    sharded_model,
    sparse,
    study,
    text,
)
from fuzz_states import crafted_cases, good_cases, random_case, read_and_judge
from momentous import minimize, minimize_many
from momentous.core.checkpoint import CheckpointError, shard_path
from momentous.io.archive import ArchiveError
from momentous.lab.compare.table import Comparison
from momentous.lab.paper.folder import FINDINGS, INDEX, StudyFolder
from momentous.lab.record import RecordError, RunInfo, RunRecord
from momentous.lowrank import (
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    RatingsFileError,
    read_ratings,
)
from momentous.lowrank.data import read_pairs
from momentous.lowrank.data.vocabulary import ratings_of
from momentous.lowrank.model import LowRankModel, explain, fit_model, load_model, updated
from momentous.lowrank.model.shards import OfRank, WithIds


@dataclass(frozen=True)
class Target:
    """A reader: what its files are called, good ones, how one is read, and how it may refuse."""

    name: str
    group: str  # "readers", "archives" or "states"
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
            return wounded_member(data, rng)
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


class StateTarget(Target):
    """`momentous.torch.Optimizer.load_state_dict`: a case says how a state is to be damaged."""

    def case(self, seed: int, number: int) -> bytes:
        made = super().case(seed, number) if number < len(self.crafted) else None
        return random_case(seed, number - len(self.crafted)) if made is None else made


# --- readers --------------------------------------------------------------------------------------


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


def any_query(path: Path) -> None:
    use(Ratings.query("SELECT * FROM r", {"r": path}, columns=(0, 1, 2)))


def any_pairs(path: Path) -> None:
    assert read_pairs(path).shape[1] == 2


def any_model(path: Path, kind: type) -> None:
    fitted = kind.load(path)
    known = fitted.model_.rows.ids, fitted.model_.cols.ids
    fitted.predict(np.array([[user, item] for user in known[0][:3] for item in known[1][:3]]))
    fitted.recommend(known[0][0], n=3)
    new = np.array(["a", "a"]) if known[0].dtype.kind in "US" else np.array([10**6, 10**6])
    labels = fitted.classes_ if kind is OneBitMatrixCompletion else np.array([1.0, 0.0])
    fitted.fold_in(np.column_stack([new, known[1][[0, -1]]]), labels)


def use_model(model: LowRankModel) -> None:
    """All that is done with a model, by compiled kernels where there are any."""
    users, items = model.rows.ids[:3], model.cols.ids[:3]
    pairs = np.array([[user, item] for user in users for item in items]).reshape(-1, 2)
    assert np.isfinite(model.predict(pairs)).all()
    values = np.ones(len(items))
    new = np.array(["new"] * len(items)) if users.dtype.kind in "US" else [10**6] * len(items)
    grown = model.fold_in(np.column_stack([new, items]), values, backend="numba")
    assert len(grown.rows) == len(model.rows) + 1
    updated(model, ratings_of(np.column_stack([new, items]), values), "numba")
    if users.size:
        model.recommend_all(users, 3, backend="numba")
        explain(model, users[0], items[0])
        model.similar_rows(users[0])
    if model.seen.nnz:
        model.evaluate(ratings_of(pairs, np.ones(len(pairs))))
        model.training_error()
    model.transposed()


def model_with_ids(path: Path) -> None:
    use_model(load_model(path, WithIds(["1", "7", "id 3", "nobody"]))[0])


def model_of_ranks(path: Path) -> None:
    for rank in range(3):
        use_model(load_model(path, OfRank(rank, 3))[0])


def model_by_all_ways(path: Path) -> None:
    use_model(load_model(path)[0])
    model_with_ids(path)
    model_of_ranks(path)


def model_in_shards(path: Path, which: int) -> None:
    """The file is the one that names the shards (0), or the second shard (2)."""
    manifest = path.with_name("sharded")
    places = [manifest, *(shard_path(manifest, TOKEN, k) for k in (0, 1))]
    for place, data in zip(places, sharded_model(), strict=True):
        place.write_bytes(data)
    path.replace(places[which])
    model_by_all_ways(manifest)


def fit_to_go_on(path: Path) -> None:
    start, config = load_model(path)[0], begun_config()
    fit = fit_model(begun_ratings(), dataclasses.replace(config, max_iterations=2), start=start)
    use_model(fit.model)


def any_checkpoint(path: Path) -> None:
    limits = {"max_iterations": 30, "max_evaluations": 200}
    result = minimize(rosenbrock, START, jac=True, resume=path, tol=TOLERANCE, **limits)
    assert not result.success or np.linalg.norm(rosenbrock(result.x)[1]) <= 1.01 * TOLERANCE


def any_batch(path: Path, count: int) -> None:
    X, limits = batch_starts(count), {"max_iterations": 100, "max_evaluations": 200}
    result = minimize_many(rosenbrocks, X, jac=True, resume=path, tol=TOLERANCE, **limits)
    norms = np.linalg.norm(rosenbrocks(result.x)[1], axis=1)
    assert (norms[result.success] <= 1.01 * TOLERANCE).all()


def any_manifest(path: Path) -> None:
    shard_path(path, TOKEN, 0).write_bytes(sharded_checkpoint()[1])
    any_checkpoint(path)


def any_shard(path: Path) -> None:
    manifest = path.with_name("manifest.npz")
    manifest.write_bytes(sharded_checkpoint()[0])
    path.replace(shard_path(manifest, TOKEN, 0))
    any_checkpoint(manifest)


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
    Target("market", "readers", ".mtx", lambda: [market()], any_ratings, FILE, crafted_market),
    Target("jsonl", "readers", ".jsonl", lambda: [json_lines()], any_ratings, FILE, crafted_text),
    Target("parquet", "readers", ".parquet", rating_tables, any_ratings, FILE),
    Target("query", "readers", ".csv",
           lambda: [text(","), text(",", quote='"'), json_lines(), *rating_tables()],
           any_query, FILE, crafted_text),
    Target("gz", "readers", ".csv.gz",
           lambda: [gz(text(",")), gz(text("::", False), 0)],
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
           lambda: [text(","), text("::", False), text("\t", quote='"')],
           any_pairs, FILE, crafted_text),
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
           functools.partial(any_model, kind=MatrixCompletion), (ArchiveError,), crafted_models,
           zipped=True),
    Target("model-one-bit", "archives", ".model", lambda: [model(OneBitMatrixCompletion)],
           functools.partial(any_model, kind=OneBitMatrixCompletion), (ArchiveError,),
           crafted_archives, zipped=True),
    Target("model-with-ids", "archives", ".model",
           lambda: [model(MatrixCompletion), model(MatrixCompletion, "id ")], model_with_ids,
           (ArchiveError,), crafted_models, zipped=True),
    Target("model-of-rank", "archives", ".model",
           lambda: [model(MatrixCompletion), model(MatrixCompletion, "id ")], model_of_ranks,
           (ArchiveError,), crafted_models, zipped=True),
    Target("model-manifest", "archives", ".model", lambda: sharded_model()[:1],
           functools.partial(model_in_shards, which=0), (ArchiveError,), crafted_archives,
           zipped=True),
    Target("model-shard", "archives", ".model", lambda: sharded_model()[2:],
           functools.partial(model_in_shards, which=2), (ArchiveError,), crafted_models,
           zipped=True),
    Target("model-run", "archives", ".model", lambda: [begun_model()], fit_to_go_on,
           (ArchiveError, CheckpointError), crafted_archives, zipped=True),
    Target("checkpoint", "archives", ".npz",
           lambda: [*map(checkpoint, ("auto", "ada-ragd", "cg", "universal-hb"))], any_checkpoint,
           (CheckpointError,), crafted_archives, zipped=True),
    Target("checkpoint-few", "archives", ".npz", lambda: [batch_checkpoint(3)],
           functools.partial(any_batch, count=3), (CheckpointError,), crafted_archives,
           zipped=True),
    Target("checkpoint-lanes", "archives", ".npz", lambda: [batch_checkpoint(20)],
           functools.partial(any_batch, count=20), (CheckpointError,), crafted_archives,
           zipped=True),
    Target("checkpoint-manifest", "archives", ".npz", lambda: [sharded_checkpoint()[0]],
           any_manifest, (CheckpointError,), crafted_archives, zipped=True),
    Target("checkpoint-shard", "archives", ".npz", lambda: [sharded_checkpoint()[1]],
           any_shard, (CheckpointError,), crafted_archives, zipped=True),
    StateTarget("torch-state", "states", ".txt", good_cases, read_and_judge, (CheckpointError,),
                crafted_cases),
]  # fmt: skip


def faulty(path: Path) -> None:
    """A reader that does what the file says, to see whether it is found out."""
    word = path.read_bytes()
    if word == b"crash":
        os.abort()
    if word == b"traceback":
        raise ZeroDivisionError
    if word == b"refused":
        raise RatingsFileError(path, "refused")


SELF_TEST = Target(
    "self-test", "none", ".csv", lambda: [b"accepted"], faulty, FILE,
    lambda good: [b"accepted", b"traceback", b"crash", b"refused", b"accepted"],
)  # fmt: skip

ENTRIES = [
    Target("entries", "none", ".model", lambda: [model(MatrixCompletion)], model_by_all_ways,
           (ArchiveError,), crafted_entries),
    Target("entries-of-shard", "none", ".model", lambda: sharded_model()[2:],
           functools.partial(model_in_shards, which=2), (ArchiveError,), crafted_entries),
]  # fmt: skip
"""Models whose entries would lead a kernel out of its arrays, in one file and in shards."""
