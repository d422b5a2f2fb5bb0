"""``momentous data info``, ``momentous data fetch`` and ``momentous data twin``."""

from pathlib import Path

import click

from momentous.cli.options import (
    FOLDER,
    NEW_FILE,
    RATINGS,
    FileOptions,
    as_json,
    reading,
    source_of,
)
from momentous.cli.terminal import say, show_facts


@click.group()
def command() -> None:
    """Files of ratings: what is in them, and where to get some."""


@command.command()
@click.argument("file", type=RATINGS)
@reading
@as_json
def info(file: str, as_json: bool, reading: FileOptions) -> None:
    """Describe a FILE of ratings."""
    from momentous.lowrank.data import Ratings, describe

    source, options = source_of(file, reading)
    facts = describe(Ratings.read(source, **options))
    if not as_json:
        facts["histogram"] = ", ".join(f"{v:g}: {count:,}" for v, count in facts["histogram"])
        for side in ("user_activity", "item_activity"):
            facts[side] = ", ".join(f"{name} {value:g}" for name, value in facts[side].items())
    show_facts(facts, as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--folder", type=FOLDER, help="Where to keep it.")
def fetch(name: str, folder: Path | None) -> None:
    """Download the MovieLens data set NAME (ml-100k, ml-1m, ml-10m, ...)."""
    from momentous.lowrank import fetch as fetch_data

    say(str(fetch_data(name, folder)))


@command.command()
@click.argument("name")
@click.option(
    "--out", type=NEW_FILE, required=True, help="File to write: .csv, .tsv, .dat, .parquet or .npz."
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the random ratings.")
def twin(name: str, out: Path, seed: int) -> None:
    """Write synthetic ratings with the size and the habits of the data set NAME."""
    from momentous.lowrank.tasks import write_twin

    say(f"{write_twin(name, out, seed)!r} is in {out}")
