"""What the commands do, without the command line: from files to files and plain numbers."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.interrupt import InterruptFlag
from momentous.core.status import Status
from momentous.lowrank.data import describe
from momentous.lowrank.display import shown_fit
from momentous.lowrank.fitting import Fit, Recipe, fit_model
from momentous.lowrank.model import LowRankModel, Unknown
from momentous.lowrank.names import UNKNOWN, Names, pairs_of
from momentous.lowrank.pairs_file import read_pairs
from momentous.lowrank.ratings import Ratings
from momentous.lowrank.saving import (
    ModelFileError,
    as_plain,
    from_plain,
    load_model,
    save_model,
)
from momentous.lowrank.writing import write_ratings

NEARLY_ALL = 0.9  # of the ids unknown: more likely another column than news


class OptionError(ValueError):
    """Options that do not fit together, or a value that is out of range."""


def fit(
    file: Path,
    out: Path,
    resume: bool,
    *,
    quiet: bool = False,
    columns: str | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    seed: int | None = None,
    method: str | None = None,
    validation: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit a model to the ratings in a file, and write it; returns what there is to tell."""
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    start, saved = _before(out, resume)
    given = {"solver": method, "validation_share": validation, "rng": seed, **options}
    chosen = {**saved, **{name: value for name, value in given.items() if value is not None}}
    if start is not None and chosen.get("loss", start.loss) != start.loss:
        raise OptionError(f"--resume: the model in {out} was fitted with the {start.loss} loss")
    try:
        recipe = Recipe(**chosen)
    except (ValueError, TypeError) as error:
        raise OptionError(str(error)) from None
    ratings = read(file, columns, format, skip_bad, quiet)
    threshold = ratings.mean if recipe.loss == "logistic" else None
    labelled = _labelled(ratings, threshold)
    if start is not None:
        _refuse_to_forget(start, ratings, file)
    with shown_fit(quiet) as watch:
        found = fit_model(labelled, recipe, start=start, watch=watch)
    # A second Ctrl-C must not lose what the first one asked to keep.
    with InterruptFlag().held_back():
        _save(found, recipe, threshold, out)
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


def _before(out: Path, resume: bool) -> tuple[LowRankModel | None, dict[str, Any]]:
    """The model to go on from, and how it was fitted; anything else is not overwritten."""
    if not out.exists():
        if resume:
            raise OptionError(f"--resume: there is no model {out} to go on from")
        return None, {}
    try:
        model, extra = load_model(out)
    except ModelFileError as error:
        raise OptionError(f"--out: {error}; it is not overwritten") from None
    if not resume:
        return None, {}
    known = {field.name for field in dataclasses.fields(Recipe)}
    parameters = extra["parameters"].items()
    saved = {name: from_plain(value) for name, value in parameters if name in known}
    return model, {**saved, "loss": model.loss, "rng": extra["parameters"]["random_state"]}


def _refuse_to_forget(start: LowRankModel, ratings: Ratings, file: Path) -> None:
    """A model knows the users and items of its last file alone."""
    given = Names(ratings.row_ids, ratings.shape[0]), Names(ratings.col_ids, ratings.shape[1])
    users, items = (
        int(np.count_nonzero(now.positions(before.ids) == UNKNOWN))
        for now, before in zip(given, (start.rows, start.cols), strict=True)
    )
    if users or items:
        raise OptionError(
            f"--resume: {users} users and {items} items of the model are not in {file} and would "
            "be dropped; fit on both files, or write to another --out"
        )


def _save(found: Fit, recipe: Recipe, threshold: float | None, out: Path) -> None:
    names = [field.name for field in dataclasses.fields(recipe) if field.name != "loss"]
    parameters = {name: as_plain(getattr(recipe, name)) for name in names}
    parameters["random_state"] = parameters.pop("rng")
    facts: dict[str, Any] = {"n_iter": int(found.result.nit), "objective": found.objective}
    if threshold is not None:
        parameters["threshold"] = "mean"
        facts |= {"threshold": threshold, "classes": [False, True]}
    save_model(found.model, out, {"parameters": parameters, **facts})


def evaluate(
    model: Path,
    file: Path,
    columns: str | None = None,
    format: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """The error of a model on the ratings in a file."""
    fitted, extra = load_model(model)
    ratings = _labelled(read(file, columns, format, skip_bad), extra.get("threshold"))
    rows, cols = pairs_of(ratings)
    unknown = [
        int(np.count_nonzero(names.positions(np.unique(ids)) == UNKNOWN))
        for names, ids in ((fitted.rows, rows), (fitted.cols, cols))
    ]
    facts: dict[str, Any] = {"ratings": ratings.nnz}
    if fitted.loss == "squared":
        errors = np.abs(fitted.predict(ratings) - ratings.values)
        facts |= {"rmse": fitted.deviance(ratings), "mae": float(np.mean(errors))}
    else:
        right = (fitted.scores(ratings) > 0) == (ratings.values > 0)
        facts |= {"log_loss": fitted.deviance(ratings), "accuracy": float(np.mean(right))}
    return facts | {"unknown_users": unknown[0], "unknown_items": unknown[1]}


def predict(
    model: Path, pairs: Path, unknown: Unknown = "mean", columns: str | None = None
) -> dict[str, Any]:
    """The users, the items and the predictions for a file of pairs, as columns of a table."""
    fitted, _ = load_model(model)
    asked = read_pairs(pairs, _which(columns))
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


def recommend(
    model: Path, users: Iterable[str], count: int = 10, exclude_seen: bool = True
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


def info(
    file: Path,
    columns: str | None = None,
    format: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """What a file of ratings looks like."""
    return describe(read(file, columns, format, skip_bad))


def write_twin(name: str, out: Path, seed: int = 0) -> Ratings:
    """Make the synthetic twin of a data set, and write it."""
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    ratings = Ratings.twin(name, seed)
    write_ratings(ratings, out)
    return ratings


def read(
    file: Path,
    columns: str | None,
    format: str | None,
    skip_bad: bool,
    quiet: bool = False,
) -> Ratings:
    """Ratings from a file, with options as they come from the command line."""
    return Ratings.read(
        file,
        columns=_which(columns),
        format=format,
        skip_bad=skip_bad,
        progress=False if quiet else None,
    )


def _which(columns: str | None) -> list[str | int] | None:
    """Names and numbers of columns, as they come from the command line."""
    if columns is None:
        return None
    return [int(one) if one.strip().isdigit() else one.strip() for one in columns.split(",")]


def _labelled(ratings: Ratings, threshold: float | None) -> Ratings:
    """Labels for the logistic loss: +1 above the threshold."""
    if threshold is None:
        return ratings
    one = ratings.dtype.type(1)
    return ratings.with_values(np.where(ratings.values > np.float64(threshold), one, -one))
