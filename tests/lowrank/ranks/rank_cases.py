"""Fits of a small matrix that run on any number of ranks, and what came of them."""

from __future__ import annotations

import dataclasses
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import torch.distributed as dist

from momentous.distributed import RankError, Ranks, Torch
from momentous.lowrank import Ratings, Sweep
from momentous.lowrank.data import RatingsFileError
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.model.shards import OfRank, WithIds
from momentous.lowrank.ranks import RankRatings
from momentous.lowrank.ranks.read import read_on_ranks
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.tasks import fit_file

PLAIN = {"biases": False, "weighting": 0.0}
CASES = {
    "squared": FitConfig(validation_share=0.1, patience=2, start_scale=0.1),
    "squared, fixed": FitConfig(ridge="fixed", validation_share=0.1, patience=2, start_scale=0.1),
    "squared, compiled": FitConfig(max_iterations=8, backend="numba"),
    "squared, conjugate": FitConfig(half_sweeps="cg", max_iterations=6),
    "squared, plain sweeps": FitConfig(ridge="fixed", solver="sweep", max_iterations=5),
    "squared, no ridge": FitConfig(ridge=0.0, max_iterations=7, **PLAIN),
    "squared, gradients": FitConfig(solver="lbfgs", max_iterations=7, validation_share=0.1),
    "squared, restarts": FitConfig(solver="ada-ragd", max_iterations=14),
    "squared, balance": FitConfig(solver="lbfgs", ridge=0.0, max_iterations=5, **PLAIN),
    "logistic": FitConfig(loss="logistic", max_iterations=7, validation_share=0.1, start_scale=0.1),
    "logistic, long steps": FitConfig(loss="logistic", ridge=1e-3, max_iterations=5, **PLAIN),
    "logistic, gradients": FitConfig(loss="logistic", solver="lbfgs", max_iterations=5),
    "implicit": FitConfig(loss="implicit", max_iterations=7, validation_share=0.1, start_scale=0.1),
    "implicit, biases": FitConfig(loss="implicit", biases=True, max_iterations=5),
    "implicit, gradients": FitConfig(loss="implicit", solver="lbfgs", max_iterations=5),
}
# On three ranks all, on others these: biases and none, sweeps, gradients from the SVD, restarts.
MAIN = ("squared", "squared, gradients", "squared, restarts", "logistic", "implicit")
ON_GPU = (*MAIN, "squared, no ridge", "implicit, biases")


def cases_on(size: int) -> list[str]:
    return [*(CASES if size == 3 else MAIN)]


def config_of(name: str) -> FitConfig:
    config = dataclasses.replace(CASES[name], rank=3, threads=1)
    return config if config.backend == "numba" else dataclasses.replace(config, backend="numpy")


def whole_ratings(loss: str) -> Ratings:
    """Of 90 users, some with one rating, and 25 items."""
    rng = np.random.default_rng(0)
    m, n = 90, 25
    U, V = rng.standard_normal((m, 3)), rng.standard_normal((n, 3))
    chosen = rng.random((m, n)) < rng.uniform(0.02, 0.9, (m, 1))
    chosen[:, 0] = True
    rows, cols = np.nonzero(chosen)
    values = np.round(3.0 + np.einsum("ij,ij->i", U[rows], V[cols]), 1)
    names = np.array([f"user {k}" for k in range(m)])
    ratings = Ratings(rows, cols, values, (m, n), row_ids=names, col_ids=np.arange(n) * 7)
    if loss == "implicit":
        return ratings.with_values(np.abs(values))
    return ratings.signs() if loss == "logistic" else ratings


def fit(ranks: Ranks | None, name: str, device: str = "cpu") -> dict:
    """What a fit has found, as JSON can hold it; predictions are for this rank's users.

    Without ranks: the fit of one process, which knows nothing of them.
    """
    config = config_of(name)
    if device != "cpu":
        config = dataclasses.replace(config, backend="auto", device=device)
    own = whole_ratings(config.loss_object.name)
    if ranks is not None:
        own = RankRatings.share_of(own, ranks)
    fitted = fit_model(own, config, with_training_error=True)
    users = own.row_ids[:4]
    pairs = np.array([[user, 7 * k] for k, user in enumerate(users)], dtype=object)
    return {
        "objective": fitted.objective,
        "nit": fitted.result.nit,
        "restarts": fitted.result.restarts,
        "held out": fitted.held_out_errors,
        "training": fitted.training_error,
        "users": users.tolist(),
        "predictions": fitted.model.predict(pairs.reshape(-1, 2)).tolist() if len(users) else [],
    }


STEPS = {  # of conjugate gradients
    f"{loss}, {steps} steps{', biases' if biases else ''}": (loss, steps, biases)
    for loss in ("squared", "logistic", "implicit")
    for steps in (1, 2)
    for biases in (False, True)
}


def conjugate(ranks: Ranks | None, name: str) -> list[float]:
    """The objective along some sweeps by conjugate gradients."""
    loss, steps, biases = STEPS[name]
    own = whole_ratings(loss)
    if ranks is not None:
        own = RankRatings.share_of(own, ranks)
    options = {"loss": loss, "ridge": "fixed", "biases": biases, "backend": "numpy"}
    config = FitConfig(rank=3 if biases else 4, **options)
    sweep = Sweep(config.objective(own), steps=steps)
    state, values = sweep.begin(config.start(sweep.objective)), []
    for _ in range(4):
        state, value = sweep(state)
        values.append(value)
    return values


def certified(ranks: Ranks | None, loss: str) -> dict:
    """The fit of the best rank, and its certificate."""
    own = whole_ratings(loss)
    if ranks is not None:
        own = RankRatings.share_of(own, ranks)
    config = FitConfig(loss=loss, rank="auto", gap_tol=1e-7, backend="numpy")
    fit = fit_model(own, config, with_training_error=True)
    again = fit.model.certify(backend="numpy")
    gaps = [fit.certificate.relative_gap, again.relative_gap]
    return {"fit": [fit.objective, fit.training_error], "gaps": gaps, "rank": fit.model.rank}


def traffic(ranks: Ranks) -> dict:
    """Bytes that half sweeps and gradients send."""
    return {name: traffic_of(ranks, name) for name in ("squared, plain sweeps", "logistic")}


def traffic_of(ranks: Ranks, name: str) -> dict:
    config = config_of(name)
    objective = config.objective(
        RankRatings.share_of(whole_ratings(config.loss_object.name), ranks)
    )
    x = objective.random_start(np.random.default_rng(0))
    objective.half_sweep(1, None, objective.split(x)[0])  # makes the weights

    def sent(call) -> int:
        P, Q = objective.split(x)  # fresh views: nothing is gathered yet
        before = ranks.traffic.bytes
        call(P, Q)
        return ranks.traffic.bytes - before

    return {
        "users": sent(lambda P, Q: objective.half_sweep(0, None, Q, with_value=False)),
        "items": sent(lambda P, Q: objective.half_sweep(1, None, P, with_value=False)),
        "gradient": sent(lambda P, Q: objective.value_and_gradient(x)),
    }


def lines_of(ratings: Ratings) -> list[str]:
    return [
        f"{ratings.row_ids[i]},{ratings.col_ids[j]},{x}"
        for i, j, x in zip(ratings.rows, ratings.cols, ratings.values, strict=True)
    ]


def write_sources(folder: Path) -> None:
    """The same ratings in four files, in one text, in one Parquet file and in one with quotes; and
    some of them with a line that is wrong."""
    lines = lines_of(whole_ratings("squared"))
    folder.mkdir()
    (folder / "parts").mkdir()
    (folder / "bad").mkdir()
    head = "user,item,rating"
    for k in range(4):
        for name, more in (("parts", []), ("bad", ["user 3,7"] * (k == 3))):
            text = "\n".join([head, *lines[k::4], *more, ""])
            (folder / name / f"part-{k}.csv").write_text(text)
    (folder / "one.csv").write_text("\n".join([head, *lines, ""]))
    quoted = ['"' + line.replace(",", '",', 1) for line in lines]
    (folder / "quoted.csv").write_text("\n".join([head, *quoted, ""]))
    broken = [*lines[:-40], "user 3,7", *lines[-40:]]
    (folder / "bad.csv").write_text("\n".join([head, *broken, ""]))
    query = f"COPY (FROM read_csv('{folder}/one.csv')) TO '{folder}/one.parquet'"
    import duckdb  # not needed for fits

    duckdb.connect().execute(query)


def reads(ranks: Ranks, folder: Path) -> dict:
    """What this rank gets of each source."""
    found = {}
    for name in ("parts", "one.csv", "one.parquet", "quoted.csv", "bad", "bad.csv"):
        try:
            with ranks.announced():
                got = read_on_ranks(folder / name, ranks)
            found[name] = lines_of(got)
        except (RankError, RatingsFileError) as error:
            found[name] = f"{type(error).__name__}: {error}"
            ranks = Torch(dist.new_group([*range(ranks.size)]))  # the old ones cannot be used
    return found


def full_disk(ranks: Ranks, parts: Path, out: Path) -> dict:
    """From the first iteration on, rank 1 can write no more."""
    options = {"rank": 2, "threads": 1, "backend": "numpy", "max_iterations": 2, "save_every": 0.0}
    before = fit_file(parts, out, **options)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def watch(step) -> None:
        if ranks.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))

    problem = ""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        try:
            fit_file(parts, out, watch=watch, random_state=1, **options)
        except OSError as error:
            problem = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    kept = load_model(out)[1]["objective"] == before["objective"]
    return {"problem": problem, "notes": [str(note.message) for note in notes], "kept": kept}


def hang(ranks: Ranks) -> str:
    """Rank 2 sleeps for longer than the others wait; these ranks are of no use afterwards."""
    own = RankRatings.share_of(whole_ratings("squared"), ranks)

    def watch(step) -> None:
        if ranks.rank == 2:
            time.sleep(4.0)

    try:
        fit_model(own, config_of("squared, plain sweeps"), watch=watch)
    except RankError as error:
        return str(error)
    return "it has ended well"


def files(ranks: Ranks, folder: Path) -> dict:
    """A model in shards, written by these ranks."""
    own = RankRatings.share_of(whole_ratings("squared"), ranks)
    fitted = fit_model(own, config_of("squared"))
    path = folder / f"model-{ranks.size}"
    for _ in range(2):  # the second takes the place of the first
        save_model(fitted.model, path, {"n_iter": 1}, ranks)
    ranks.all_reduce(np.ones(1))
    users = own.row_ids[:3]
    again, _ = load_model(path, WithIds(users))
    elsewhere, _ = load_model(path, OfRank(ranks.rank, 6))
    return {
        "kept": again.rows.ids.tolist(),
        "of": users.tolist(),
        "of six": elsewhere.rows.ids.tolist(),
    }


def going_on(ranks: Ranks, folder: Path) -> dict:
    """A fit in two pieces, with a file in between, and the same fit in one."""
    own, path = RankRatings.share_of(whole_ratings("squared"), ranks), folder / "pieces"
    half, whole = (dataclasses.replace(config_of("squared"), max_iterations=n, tol=0.0)
                   for n in (5, 10))  # fmt: skip
    save_model(fit_model(own, half).model, path, None, ranks)
    ranks.all_reduce(np.ones(1))
    start, _ = load_model(path, OfRank(ranks.rank, ranks.size))
    found, expected = fit_model(own, half, start=start).model, fit_model(own, whole).model
    names = ("row_factors", "col_factors", "row_bias", "col_bias")
    return {name: bool(np.all(getattr(found, name) == getattr(expected, name))) for name in names}
