"""``momentous evaluate``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.options import EXISTING, RATINGS, as_json, reading
from momentous.cli.terminal import show_facts


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("file", type=RATINGS)
@reading
@as_json
def command(model: Path, file: str, as_json: bool, reading: dict[str, Any]) -> None:
    """How well a MODEL predicts the ratings in a FILE."""
    from momentous.lowrank.tasks import evaluate_file

    show_facts(evaluate_file(model, file, **reading), as_json=as_json)
