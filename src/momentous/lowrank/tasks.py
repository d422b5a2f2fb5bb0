"""From files to files and plain numbers: fit, evaluate, predict, recommend."""

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.interrupt import InterruptFlag
from momentous.core.status import Status
from momentous.io.archive import ArchiveError
from momentous.io.atomic import require_writable
from momentous.lowrank.data import read_pairs
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary, pairs_of
from momentous.lowrank.data.write import write_ratings
from momentous.lowrank.losses import find_loss
from momentous.lowrank.model import LowRankModel, Unknown, fit_model, load_model, save_model
from momentous.lowrank.model.files import as_plain, from_plain
from momentous.lowrank.model.fitted import names_of
from momentous.lowrank.solvers.fit import FitConfig, FitProgress, Watcher

READING = ("columns", "format", "delimiter", "skip_bad", "progress")
"""The options that say how a file of ratings is read."""

NEARLY_ALL = 0.9  # of the ids unknown: more likely another column than news


class OptionError(ValueError):
    """Options that do not fit together, or a value that is out of range."""


def fit_file(
    file: str | Path,
    out: Path,
    *,
    resume: bool = False,
    save_every: float = 60.0,
    watch: Watcher | None = None,
    seed: int | None = None,
    method: str | None = None,
    validation: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit a model to the ratings in a file, and write it; returns the facts about it.

    It is written every ``save_every`` seconds, too, so that a fit that is killed can be resumed.
    Other options are those of `Ratings.read` (how the file is read) and of `FitConfig`.
    """
    reading = {name: options.pop(name) for name in READING if name in options}
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    require_writable(out)
    start, saved, threshold = _model_before(out, resume)
    given = {"solver": method, "validation_share": validation, "rng": seed, **options}
    chosen = {**saved, **{name: value for name, value in given.items() if value is not None}}
    if start is not None and find_loss(chosen.get("loss", start.loss)) != start.loss:
        raise OptionError(f"--resume: the model in {out} was fitted with the {start.loss} loss")
    try:
        config = FitConfig(**chosen)
    except (ValueError, TypeError) as error:
        raise OptionError(str(error)) from None
    ratings = Ratings.read(file, **reading)
    if threshold is None and config.loss_object.labels:
        threshold = ratings.mean
    if start is not None:
        _require_all_ids(start, ratings, file)

    def save(model: LowRankModel, step: FitProgress) -> None:
        try:
            _save(model, step.nit, step.fun, config, threshold, out)
        except OSError as error:  # the fit is worth more than this copy of it
            warnings.warn(
                f"the model could not be saved meanwhile ({error}); make room in {out.parent}: it "
                "is tried again later and at the end",
                RuntimeWarning,
                stacklevel=2,
            )

    found = fit_model(
        ratings if threshold is None else ratings.signs(threshold),
        config,
        start=start,
        watch=watch,
        save=save,
        save_every=save_every,
    )
    result = found.result
    # A second Ctrl-C must not lose what the first one asked to keep.
    with InterruptFlag().held_back():
        _save(found.model, result.nit, found.objective, config, threshold, out)
    facts = {
        "model": str(out),
        "ratings": ratings.nnz,
        "users": ratings.shape[0],
        "items": ratings.shape[1],
        "iterations": result.nit,
        "restarts": result.restarts,
        "objective": found.objective,
        "training_error": found.model.training_error(),
        "seconds": result.time,
        "ended": found.message,
        "interrupted": result.status is Status.INTERRUPTED,
    }
    if found.held_out:
        facts["held_out_error"] = min(found.held_out)
    return facts


def _model_before(
    out: Path, resume: bool
) -> tuple[LowRankModel | None, dict[str, Any], float | None]:
    """The model to go on from, how it was fitted, and the threshold of its labels.

    What is no model is not overwritten.
    """
    if not out.exists():
        if resume:  # as after a kill before the first save
            warnings.warn(
                f"--resume: there is no model {out} yet; the fit begins at the start",
                RuntimeWarning,
                stacklevel=3,
            )
        return None, {}, None
    try:
        model, extra = load_model(out)
    except ArchiveError as error:
        raise OptionError(f"--out: {error}; it is not overwritten") from None
    if not resume:
        return None, {}, None
    known = {field.name for field in dataclasses.fields(FitConfig)}
    parameters = extra.get("parameters", {})
    saved = {name: from_plain(value) for name, value in parameters.items() if name in known}
    saved |= {"loss": model.loss, "rng": parameters.get("random_state", 0)}
    return model, saved, extra.get("threshold")


def _require_all_ids(start: LowRankModel, ratings: Ratings, file: str | Path) -> None:
    """A model knows the users and items of its last file alone."""
    users = _count_unknown(names_of(ratings, 0), start.rows.ids)
    items = _count_unknown(names_of(ratings, 1), start.cols.ids)
    if users or items:
        raise OptionError(
            f"--resume: {users} users and {items} items of the model are not in {file} and would "
            "be dropped; fit on both files, or write to another --out"
        )


def _save(
    model: LowRankModel,
    nit: int,
    objective: float,
    config: FitConfig,
    threshold: float | None,
    out: Path,
) -> None:
    names = [field.name for field in dataclasses.fields(config) if field.name != "loss"]
    parameters = {name: as_plain(getattr(config, name)) for name in names}
    parameters["random_state"] = parameters.pop("rng")
    facts: dict[str, Any] = {"n_iter": int(nit), "objective": objective}
    if threshold is not None:
        parameters["threshold"] = "mean"
        facts |= {"threshold": threshold, "classes": [False, True]}
    save_model(model, out, {"parameters": parameters, **facts})


def evaluate_file(model: Path, file: str | Path, **reading: Any) -> dict[str, Any]:
    """The error of a model on the ratings in a file, which is read as by `Ratings.read`."""
    fitted, extra = load_model(model)
    ratings, threshold = Ratings.read(file, **reading), extra.get("threshold")
    if threshold is not None:
        ratings = ratings.signs(threshold)
    rows, cols = pairs_of(ratings)
    return {
        "ratings": ratings.nnz,
        **fitted.evaluate(ratings),
        "unknown_users": _count_unknown(fitted.rows, np.unique(rows)),
        "unknown_items": _count_unknown(fitted.cols, np.unique(cols)),
    }


def _count_unknown(names: Vocabulary, ids: np.ndarray) -> int:
    return int(np.count_nonzero(names.positions(ids) == UNKNOWN))


def predict_file(
    model: Path, pairs: Path, *, unknown: Unknown = "mean", columns: list[str | int] | None = None
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


def write_twin(name: str, out: Path, seed: int = 0) -> Ratings:
    """Make the synthetic twin of a data set, and write it."""
    if not out.parent.is_dir():
        raise OptionError(f"--out: the folder {out.parent} does not exist")
    ratings = Ratings.twin(name, seed)
    write_ratings(ratings, out)
    return ratings
