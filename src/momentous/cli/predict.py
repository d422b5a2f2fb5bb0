"""``momentous predict``."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Literal

import click

from momentous.cli.options import EXISTING, columns_option
from momentous.io.atomic import atomic_file


@click.command()
@click.argument("model", type=EXISTING)
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
def command(
    model: Path,
    pairs: Path,
    unknown: Literal["mean", "nan", "error"],
    columns: list[str | int] | None,
    out: Path,
    raw: bool,
) -> None:
    """Predict a rating (or the probability of a high one) for each pair of ids in PAIRS."""
    from momentous.lowrank.data.write import write_table
    from momentous.lowrank.tasks import predict_file

    predicted = predict_file(model, pairs, unknown=unknown, columns=columns)
    terminal = out == Path("-")
    file: AbstractContextManager[IO[str]] = (
        click.open_file("-", "w", encoding="utf-8") if terminal else atomic_file(out, "w")
    )
    with file as stream:
        write_table(stream, predicted, harmless=not raw)
        stream.flush()
