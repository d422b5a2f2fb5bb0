"""From files to files and plain numbers: fit, evaluate, predict, recommend, describe."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.interrupt import InterruptFlag
from momentous.core.status import Status
from momentous.io.archive import ArchiveError
from momentous.lowrank.data import describe, read_pairs
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary, pairs_of
from momentous.lowrank.data.write import write_ratings
from momentous.lowrank.losses import find_loss
from momentous.lowrank.model import Fit, LowRankModel, Unknown, fit_model, load_model, save_model
from momentous.lowrank.model.files import as_plain, from_plain
from momentous.lowrank.solvers.fit import FitConfig, Watcher

Columns = list[str | int] | None
"""Names of columns, or their numbers from 0; None: found by their usual names."""

NEARLY_ALL = 0.9  # of the ids unknown: more likely another column than news


class OptionError(ValueError):
    """Options that do not fit together, or a value that is out of range."""


def fit_file(
    file: str | Path,
    out: Path,
    *,
    resume: bool = False,
    watch: Watcher | None = None,
    columns: Columns = None,
    format: str | None = None,
    skip_bad: bool = False,
    progress: bool | None = None,
    seed: int | None = None,
    method: str | None = None,
    validation: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit a model to the ratings in a file, and write it; returns the facts about it."""
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    start, saved = _model_before(out, resume)
    given = {"solver": method, "validation_share": validation, "rng": seed, **options}
    chosen = {**saved, **{name: value for name, value in given.items() if value is not None}}
    if start is not None and find_loss(chosen.get("loss", start.loss)) != start.loss:
        raise OptionError(f"--resume: the model in {out} was fitted with the {start.loss} loss")
    try:
        config = FitConfig(**chosen)
    except (ValueError, TypeError) as error:
        raise OptionError(str(error)) from None
    ratings = read_file(file, columns, format, skip_bad, progress)
    threshold = ratings.mean if find_loss(config.loss).name == "logistic" else None
    labelled = _labelled(ratings, threshold)
    if start is not None:
        _require_all_ids(start, ratings, file)
    found = fit_model(labelled, config, start=start, watch=watch)
    with (
        InterruptFlag().held_back()
    ):  # a second Ctrl-C must not lose what the first one asked to keep
        _save(found, config, threshold, out)
    result = found.result
    facts = {
        "model": str(out),
        "ratings": ratings.nnz,
        "users": ratings.shape[0],
        "items": ratings.shape[1],
        "iterations": result.nit,
        "restarts": result.restarts,
        "objective": found.objective,
        "training_error": found.model.deviance(),
        "seconds": result.time,
        "ended": result.message,
        "interrupted": result.status is Status.INTERRUPTED,
    }
    if found.held_out:
        facts["held_out_error"] = min(found.held_out)
    return facts


def _model_before(out: Path, resume: bool) -> tuple[LowRankModel | None, dict[str, Any]]:
    """The model to go on from, and how it was fitted; anything else is not overwritten."""
    if not out.exists():
        if resume:
            raise OptionError(f"--resume: there is no model {out} to go on from")
        return None, {}
    try:
        model, extra = load_model(out)
    except ArchiveError as error:
        raise OptionError(f"--out: {error}; it is not overwritten") from None
    if not resume:
        return None, {}
    known = {field.name for field in dataclasses.fields(FitConfig)}
    parameters = extra["parameters"].items()
    saved = {name: from_plain(value) for name, value in parameters if name in known}
    return model, {**saved, "loss": model.loss, "rng": extra["parameters"]["random_state"]}


def _require_all_ids(start: LowRankModel, ratings: Ratings, file: str | Path) -> None:
    """A model knows the users and items of its last file alone."""
    given = (
        Vocabulary(ratings.row_ids, ratings.shape[0]),
        Vocabulary(ratings.col_ids, ratings.shape[1]),
    )
    users, items = (
        int(np.count_nonzero(now.positions(before.ids) == UNKNOWN))
        for now, before in zip(given, (start.rows, start.cols), strict=True)
    )
    if users or items:
        raise OptionError(
            f"--resume: {users} users and {items} items of the model are not in {file} and would "
            "be dropped; fit on both files, or write to another --out"
        )


def _save(found: Fit, config: FitConfig, threshold: float | None, out: Path) -> None:
    names = [field.name for field in dataclasses.fields(config) if field.name != "loss"]
    parameters = {name: as_plain(getattr(config, name)) for name in names}
    parameters["random_state"] = parameters.pop("rng")
    facts: dict[str, Any] = {"n_iter": int(found.result.nit), "objective": found.objective}
    if threshold is not None:
        parameters["threshold"] = "mean"
        facts |= {"threshold": threshold, "classes": [False, True]}
    save_model(found.model, out, {"parameters": parameters, **facts})


def evaluate_file(
    model: Path,
    file: str | Path,
    columns: Columns = None,
    format: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """The error of a model on the ratings in a file."""
    fitted, extra = load_model(model)
    ratings = _labelled(read_file(file, columns, format, skip_bad), extra.get("threshold"))
    rows, cols = pairs_of(ratings)
    unknown = [
        int(np.count_nonzero(names.positions(np.unique(ids)) == UNKNOWN))
        for names, ids in ((fitted.rows, rows), (fitted.cols, cols))
    ]
    facts: dict[str, Any] = {"ratings": ratings.nnz}
    facts |= fitted.evaluate(ratings)
    return facts | {"unknown_users": unknown[0], "unknown_items": unknown[1]}


def predict_file(
    model: Path, pairs: Path, *, unknown: Unknown = "mean", columns: Columns = None
) -> dict[str, Any]:
    """The users, the items and the predictions for a file of pairs, as columns of a table."""
    fitted, _ = load_model(model)
    asked = read_pairs(pairs, columns)
    for what, names, ids in (
        ("user", fitted.rows, asked[:, 0]),
        ("item", fitted.cols, asked[:, 1]),
    ):
        strange = np.flatnonzero(names.positions(ids) == UNKNOWN)
        share = f"{strange.size} of {ids.size} pairs have {what}s that are not in {model}"
        if strange.size and unknown == "error":
            raise ValueError(
                f"{share}, the first is {ids[strange[0]].item()!r}; fit on a file that has it, or "
                "take --unknown mean or nan"
            )
        if strange.size > NEARLY_ALL * ids.size:
            warnings.warn(
                f"{share}, such as {ids[strange[0]].item()!r}; if {what}s are in another column, "
                "name both: --columns USER,ITEM",
                RuntimeWarning,
                stacklevel=2,
            )
    predictions = fitted.predict(asked, unknown)
    return {"user": asked[:, 0], "item": asked[:, 1], "prediction": predictions}


def recommend_items(
    model: Path, users: Iterable[str], count: int = 10, *, exclude_seen: bool = True
) -> dict[str, list[tuple[Any, float]]]:
    """The best items of each user, with their scores."""
    fitted, _ = load_model(model)
    found = {}
    for user in users:
        if fitted.rows.positions([user])[0] == UNKNOWN:
            known = ", ".join(repr(str(one)) for one in fitted.rows.ids[:3].tolist())
            raise ValueError(
                f"there is no user {user!r} in {model}; its {len(fitted.rows):,} users are called "
                f"{known} and so on. Users are known after a fit with ratings of theirs"
            )
        best = fitted.recommend(user, count, exclude_seen)
        found[user] = list(zip(best.items.tolist(), best.scores.tolist(), strict=True))
    return found


def describe_file(
    file: str | Path,
    columns: Columns = None,
    format: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """What a file of ratings looks like."""
    return describe(read_file(file, columns, format, skip_bad))


def write_twin(name: str, out: Path, seed: int = 0) -> Ratings:
    """Make the synthetic twin of a data set, and write it."""
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    ratings = Ratings.twin(name, seed)
    write_ratings(ratings, out)
    return ratings


def read_file(
    file: str | Path,
    columns: Columns = None,
    format: str | None = None,
    skip_bad: bool = False,
    progress: bool | None = None,
) -> Ratings:
    """Ratings from a file."""
    return Ratings.read(file, columns=columns, format=format, skip_bad=skip_bad, progress=progress)


def _labelled(ratings: Ratings, threshold: float | None) -> Ratings:
    """Labels for the logistic loss: +1 above the threshold."""
    if threshold is None:
        return ratings
    one = ratings.dtype.type(1)
    return ratings.with_values(np.where(ratings.values > np.float64(threshold), one, -one))
