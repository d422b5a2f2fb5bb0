"""``momentous fold-in``."""

from pathlib import Path

import click

from momentous.cli.options import (
    EXISTING,
    NEW_FILE,
    RATINGS,
    FileOptions,
    as_json,
    reading,
    source_of,
)
from momentous.cli.terminal import show_facts, usage_errors


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("file", type=RATINGS)
@click.option("--out", type=NEW_FILE, required=True, help="File for the new model.")
@reading
@as_json
def command(model: Path, file: str, out: Path, as_json: bool, reading: FileOptions) -> None:
    """Add the users in a FILE of ratings to a MODEL without a new fit; the items stay as they are.

    A user who is in the model already is computed again, from these ratings alone.
    """
    from momentous.lowrank.tasks import OptionError, fold_in_file

    source, options = source_of(file, reading)
    with usage_errors(OptionError):
        facts = fold_in_file(model, source, out, **options)
    show_facts(facts, as_json=as_json)
