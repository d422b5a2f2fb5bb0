"""From files to files and plain numbers: fit, evaluate, predict, recommend."""

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

import numpy as np

from momentous.core.oracle import InterruptFlag
from momentous.core.status import Status
from momentous.distributed import Ranks, find
from momentous.io.archive import ArchiveError
from momentous.io.atomic import PathLike, require_writable
from momentous.io.types import AnyArray, JsonObject
from momentous.lowrank.backends import find_backend
from momentous.lowrank.data import read_pairs
from momentous.lowrank.data.files.queries import Query
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.data.read import Reading, read_ratings
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary
from momentous.lowrank.data.write import write_ratings
from momentous.lowrank.model import (
    LowRankModel,
    Unknown,
    explain,
    fit_model,
    load_model,
    save_model,
)
from momentous.lowrank.model.files import fit_facts, from_plain
from momentous.lowrank.model.shards import OfRank, WithIds
from momentous.lowrank.ranks.read import read_on_ranks
from momentous.lowrank.solvers.fit import FitConfig, FitProgress, Watcher

NEARLY_ALL = 0.9  # of the ids unknown: more likely another column than news


class OptionError(ValueError):
    """Options that do not fit together, or a value that is out of range."""


def fit_file(
    file: PathLike | Query,
    out: Path,
    *,
    reading: Reading | None = None,
    resume: bool = False,
    save_every: float = 60.0,
    watch: Watcher | None = None,
    **options: object,
) -> JsonObject:
    """Fit a model to the ratings in a file, and write it; returns the facts about it.

    It is written every ``save_every`` seconds, too, so that a fit that is killed can be resumed.
    ``reading`` are options of `Ratings.read`, all others those of `FitConfig`; None stands for that
    of the model to resume, or for the default.
    """
    ranks, how = find(), reading or {}
    with ranks.announced():
        _require_folder(out)
        require_writable(out)
        start, saved, threshold = _model_to_resume(out, resume, ranks)
        chosen: JsonObject = saved | {
            name: value for name, value in options.items() if value is not None
        }
        try:
            config = FitConfig(**chosen)
            if config.backend != "auto" or config.device == "cuda":
                find_backend(config.backend, config.device)
        except (ValueError, TypeError) as error:
            raise OptionError(str(error)) from None
        if start is not None and config.loss_object != start.loss:
            raise OptionError(
                f"the model in {out} was fitted with the {start.loss} loss; resume it without a "
                "loss, or write to another file"
            )
        where = "cuda" if config.device == "cuda" else "cpu"
        ratings = _read(file, ranks, how | {"device": where})
        whole = ratings.whole
        if threshold is None and config.loss_object.labels:
            threshold = whole.mean
        if start is not None:
            _require_all_ids(start, ratings, file)

        def save(model: LowRankModel, step: FitProgress) -> None:
            try:
                _save(model, step.nit, step.fun, config, threshold, out, ranks)
            except OSError as error:  # the fit is worth more than this copy of it
                warnings.warn(
                    f"the model could not be saved meanwhile ({error}); make room in "
                    f"{out.parent}: it is tried again later and at the end",
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
            with_training_error=True,
        )
        result = found.result
        # A second Ctrl-C must not lose what the first one asked to keep.
        with InterruptFlag().held_back():
            _save(found.model, result.nit, found.objective, config, threshold, out, ranks)
        facts = {
            "model": str(out),
            "ratings": whole.nnz,
            "users": whole.shape[0],
            "items": whole.shape[1],
            "iterations": result.nit,
            "restarts": result.restarts,
            "objective": found.objective,
            "training_error": found.training_error,
            "seconds": result.time,
            "ended": found.message,
            "interrupted": result.status is Status.INTERRUPTED and found.error is None,
            "out_of_memory": found.error is not None,
        }
        if found.held_out_errors:
            facts["held_out_error"] = found.held_out_error
        if found.certificate is not None:
            facts["rank"], facts["ridge"] = found.model.rank, found.certificate.ridge
            facts["relative_gap"] = found.certificate.relative_gap
        return facts


def _read(file: PathLike | Query, ranks: Ranks, reading: Reading) -> Ratings:
    """All ratings, or those of this rank's users."""
    if ranks.size > 1:
        return read_on_ranks(file, ranks, **reading)
    return read_ratings(file, **reading)


def _require_folder(out: Path) -> None:
    if not out.parent.is_dir():
        raise OptionError(f"the folder {out.parent} does not exist; make it, or write elsewhere")


def _model_to_resume(
    out: Path, resume: bool, ranks: Ranks
) -> tuple[LowRankModel | None, JsonObject, float | None]:
    """The model to go on from, how it was fitted, and the threshold of its labels.

    What is no model is not overwritten.
    """
    if not out.exists():
        if resume:  # as after a kill before the first save
            message = f"there is no model {out} yet to resume; the fit begins at the start"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return None, {}, None
    try:
        own = None if ranks.size == 1 else OfRank(ranks.rank, ranks.size)
        model, extra = load_model(out, own)
    except ArchiveError as error:
        raise OptionError(f"{error}; it is not overwritten") from None
    if not resume:
        return None, {}, None
    known = {field.name for field in dataclasses.fields(FitConfig)}
    parameters = extra.get("parameters", {})
    saved = {name: from_plain(value) for name, value in parameters.items() if name in known}
    if model.learned is None and saved.get("ridge") is None and model.run is not None:
        saved["ridge"] = "fixed"  # it goes on as it was fitted, by a version without priors
    return model, saved | {"loss": model.loss}, extra.get("threshold")


def _require_all_ids(start: LowRankModel, ratings: Ratings, file: PathLike | Query) -> None:
    """A model knows the users and items of its last file alone."""
    users = ratings.total(_count_unknown(Vocabulary(ratings.ids(0)), start.rows.ids))
    items = _count_unknown(Vocabulary(ratings.ids(1)), start.cols.ids)
    if users or items:
        raise OptionError(
            f"{users} users and {items} items of the model are not in {file} and would be dropped; "
            "fit on both files, or write to another file without resuming"
        )


def _save(
    model: LowRankModel,
    nit: int,
    objective: float,
    config: FitConfig,
    threshold: float | None,
    out: Path,
    ranks: Ranks,
) -> None:
    """Write the file that the estimator of this loss would write."""
    names = [each.name for each in dataclasses.fields(config) if each.name != "loss"]
    parameters = {name: getattr(config, name) for name in names}
    labels: JsonObject = {}
    if threshold is not None:
        parameters["threshold"] = "mean"
        labels = {"threshold": threshold, "classes": [False, True]}
    save_model(model, out, fit_facts(parameters, nit, objective) | labels, ranks)


def evaluate_file(model: Path, file: PathLike | Query, **reading: Unpack[Reading]) -> JsonObject:
    """The error of a model on the ratings in a file, which is read as by `Ratings.read`.

    On ranks each has its own users, and the facts are those of the whole.
    """
    ranks = find()
    with ranks.announced():
        ratings = _read(file, ranks, reading)
        users, items = ratings.ids(0), ratings.ids(1)
        fitted, extra = load_model(model, WithIds(users))
        threshold = extra.get("threshold")
        if threshold is not None:
            ratings = ratings.signs(threshold)
        scores, values = (
            ranks.all_gather(each) for each in (fitted.scores(ratings), ratings.values)
        )
        return {
            "ratings": ratings.whole.nnz,
            **fitted.loss.measures(scores, values, fitted.value_range),
            "unknown_users": ratings.total(_count_unknown(fitted.rows, users)),
            "unknown_items": _count_unknown(fitted.cols, items),
        }


def _count_unknown(vocabulary: Vocabulary, ids: AnyArray) -> int:
    return int(np.count_nonzero(vocabulary.positions(ids) == UNKNOWN))


def predict_file(
    model: Path,
    pairs: Path,
    *,
    unknown: Unknown = "mean",
    columns: list[str | int] | None = None,
    std: bool = False,
) -> JsonObject:
    """The users, the items and the predictions for a file of pairs, as columns of a table; with
    ``std`` their standard deviations, too."""
    asked = read_pairs(pairs, columns)
    # The message of an error names ids that are known.
    fitted, _ = load_model(model, None if unknown == "error" else WithIds(asked[:, 0]))
    predictions = fitted.predict(asked, unknown)
    for what, vocabulary, ids in (
        ("user", fitted.rows, asked[:, 0]),
        ("item", fitted.cols, asked[:, 1]),
    ):
        missing = np.flatnonzero(vocabulary.positions(ids) == UNKNOWN)
        if missing.size > NEARLY_ALL * ids.size:
            warnings.warn(
                f"{missing.size} of {ids.size} pairs have {what}s that are not in {model}, such as "
                f"{ids[missing[0]].item()!r}; if {what}s are in another column, say which columns "
                "are user and item",
                RuntimeWarning,
                stacklevel=2,
            )
    found = {"user": asked[:, 0], "item": asked[:, 1], "prediction": predictions}
    return found | {"std": fitted.deviations(asked, unknown)} if std else found


def recommend_items(
    model: Path,
    users: Iterable[str],
    count: int = 10,
    *,
    exclude_seen: bool = True,
    unknown: Unknown = "mean",
    device: str = "cpu",
) -> dict[str, list[tuple[str | int | float, float]]]:
    """The best items of each user, with their scores, as `MatrixCompletion.recommend` gives them:
    a user who is not known gets what all like, and a warning says who that is, or is an error."""
    asked = list(users)
    # The message of an error names users that are known.
    fitted, _ = load_model(model, None if unknown == "error" else WithIds(asked))
    places = fitted.rows.positions(asked)
    best = fitted.recommend_all(asked, count, exclude_seen, unknown, device=device)
    missing = [user for user, place in zip(asked, places, strict=True) if place == UNKNOWN]
    if missing:
        known = load_model(model)[0].rows
        few = ", ".join(map(repr, known.ids[:3].tolist()))
        warnings.warn(
            f"not in {model}: {', '.join(map(repr, missing))}, for whom these are the items that "
            f"all like; its {len(known):,} users are {few}{' and so on' if len(known) > 3 else ''}",
            RuntimeWarning,
            stacklevel=2,
        )
    return {user: _pairs(*found) for user, found in zip(asked, best, strict=True)}


def similar_ids(
    model: Path, ids: Iterable[str], count: int = 10, *, users: bool = False
) -> dict[str, list[tuple[str | int | float, float]]]:
    """The items (or users) most like each of these, with the cosines of their factors."""
    fitted, _ = load_model(model, None if users else WithIds([]))
    alike = fitted.similar_rows if users else fitted.similar_columns
    return {one: _pairs(*alike(one, count)) for one in ids}


def _pairs(ids: AnyArray, numbers: Floats) -> list[tuple[str | int | float, float]]:
    return list(zip(ids.tolist(), numbers.tolist(), strict=True))


def explain_score(model: Path, user: str, item: str, count: int = 10) -> JsonObject:
    """The score of an item for a user, and what the user's ratings add to it, the most first."""
    fitted, _ = load_model(model, WithIds([user]))
    if not len(fitted.rows):  # the message of the error names users that are known
        fitted, _ = load_model(model)
    found = explain(fitted, user, item, count)
    ratings = _pairs(found.items, found.contributions)
    return {"score": found.score, "rest": found.rest, "ratings": ratings}


def fold_in_file(
    model: Path, file: PathLike | Query, out: Path, **reading: Unpack[Reading]
) -> JsonObject:
    """Write a model that knows the users in a file, too, from their ratings; the items stay."""
    _require_folder(out)
    fitted, extra = load_model(model)
    ratings = Ratings.read(file, **reading)
    if extra.get("threshold") is not None:
        ratings = ratings.signs(extra["threshold"])
    users, items = ratings.ids(0), ratings.ids(1)
    new_users = _count_unknown(fitted.rows, users)
    save_model(fitted.fold_in(ratings), out, extra)
    return {
        "model": str(out),
        "ratings": ratings.nnz,
        "new_users": new_users,
        "users_again": len(users) - new_users,
        "unknown_items": _count_unknown(fitted.cols, items),
    }


def write_twin(name: str, out: Path, seed: int = 0) -> Ratings:
    """Make the synthetic twin of a data set, and write it."""
    _require_folder(out)
    ratings = Ratings.twin(name, seed)
    write_ratings(ratings, out)
    return ratings
