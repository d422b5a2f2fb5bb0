"""``momentous evaluate``."""

from pathlib import Path

import click

from momentous.cli.options import EXISTING, RATINGS, FileOptions, as_json, reading, source_of
from momentous.cli.terminal import show_facts


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("file", type=RATINGS)
@reading
@as_json
def command(model: Path, file: str, as_json: bool, reading: FileOptions) -> None:
    """Measure how well a MODEL predicts the ratings in a FILE.

    Under torchrun or mpirun all ranks do it together, each for its own users.
    """
    from momentous.distributed import RankError, find
    from momentous.lowrank.tasks import evaluate_file

    source, options = source_of(file, reading)
    try:
        facts = evaluate_file(model, source, **options)
    except RankError as error:
        raise click.ClickException(str(error)) from None
    if find().rank == 0:
        show_facts(facts, as_json=as_json)
