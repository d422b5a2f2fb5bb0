"""The commands that ask a model: ``evaluate``, ``predict``, ``recommend``, ``similar``, ..."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Literal

import click

from momentous.cli.options import (
    EXISTING,
    NEW_FILE,
    RATINGS,
    FileOptions,
    as_json,
    columns_option,
    device,
    reading,
    source_of,
)
from momentous.cli.terminal import show_facts, show_lists, usage_errors
from momentous.io.atomic import atomic_file

of_model = click.argument("model", type=EXISTING)


@click.command()
@of_model
@click.argument("file", type=RATINGS)
@reading
@as_json
def evaluate(model: Path, file: str, as_json: bool, reading: FileOptions) -> None:
    """Measure how well a MODEL predicts the ratings in a FILE.

    Under torchrun or mpirun all ranks do it together, each for its own users.
    """
    from momentous.distributed import find
    from momentous.lowrank.tasks import evaluate_file

    source, options = source_of(file, reading)
    facts = evaluate_file(model, source, **options)
    if find().rank == 0:
        show_facts(facts, as_json=as_json)


@click.command()
@of_model
@click.argument("pairs", type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--unknown",
    type=click.Choice(["mean", "nan", "error"]),
    default="mean",
    help="Answer for ids that the model does not know.",
)
@columns_option("USER,ITEM")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=Path("-"),
    help="File for the predictions; - is the standard output.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Write ids unchanged. Without it control characters are escaped, and formulas of a "
    "spreadsheet get an apostrophe.",
)
@click.option(
    "--std",
    is_flag=True,
    help="Add a column with standard deviations of the ratings (of a model with learned priors).",
)
def predict(
    model: Path,
    pairs: Path,
    unknown: Literal["mean", "nan", "error"],
    columns: list[str | int] | None,
    out: Path,
    raw: bool,
    std: bool,
) -> None:
    """Predict a rating (or the probability of a high one) for each pair of ids in PAIRS."""
    from momentous.lowrank.data.write import write_table
    from momentous.lowrank.tasks import predict_file

    predicted = predict_file(model, pairs, unknown=unknown, columns=columns, std=std)
    terminal = out == Path("-")
    file: AbstractContextManager[IO[str]] = (
        click.open_file("-", "w", encoding="utf-8") if terminal else atomic_file(out, "w")
    )
    with file as stream:
        write_table(stream, predicted, harmless=not raw)
        stream.flush()


@click.command()
@of_model
@click.argument("users", metavar="USER...", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of items per user.")
@click.option("--include-seen", is_flag=True, help="Recommend items that the user has rated, too.")
@click.option(
    "--unknown",
    type=click.Choice(["mean", "error"]),
    default="mean",
    help="Answer for users that the model does not know: mean is what all like.",
)
@device()
@as_json
def recommend(
    model: Path,
    users: tuple[str, ...],
    count: int,
    include_seen: bool,
    unknown: Literal["mean", "error"],
    device: str,
    as_json: bool,
) -> None:
    """Recommend the best items to each USER."""
    from momentous.lowrank.tasks import recommend_items

    found = recommend_items(
        model, users, count, exclude_seen=not include_seen, unknown=unknown, device=device
    )
    show_lists(found, as_json=as_json)


@click.command()
@of_model
@click.argument("ids", metavar="ITEM...", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of ids to show.")
@click.option("--users", is_flag=True, help="Take ids of users, and list similar users.")
@as_json
def similar(model: Path, ids: tuple[str, ...], count: int, users: bool, as_json: bool) -> None:
    """List the items most similar to each ITEM, by the cosine of their factors."""
    from momentous.lowrank.tasks import similar_ids

    show_lists(similar_ids(model, ids, count, users=users), as_json=as_json)


@click.command()
@of_model
@click.argument("user")
@click.argument("item")
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of ratings to show.")
@as_json
def explain(model: Path, user: str, item: str, count: int, as_json: bool) -> None:
    """Split the score of an ITEM over the ratings of a USER, the largest parts first.

    All parts and the rest (the mean, the bias of the item) sum up to the score.
    """
    from momentous.lowrank.tasks import explain_score

    facts = explain_score(model, user, item, count)
    ratings = None if as_json else facts.pop("ratings")
    show_facts(facts, as_json=as_json)
    if ratings is not None:
        show_lists({f"ratings of {user}": ratings}, as_json=False)


@click.command()
@of_model
@click.argument("file", type=RATINGS)
@click.option("--out", type=NEW_FILE, required=True, help="File for the new model.")
@reading
@as_json
def fold_in(model: Path, file: str, out: Path, as_json: bool, reading: FileOptions) -> None:
    """Add the users in a FILE of ratings to a MODEL without a new fit; the items stay as they are.

    A user who is in the model already is computed again, from these ratings alone.
    """
    from momentous.lowrank.tasks import OptionError, fold_in_file

    source, options = source_of(file, reading)
    with usage_errors(OptionError):
        facts = fold_in_file(model, source, out, **options)
    show_facts(facts, as_json=as_json)
