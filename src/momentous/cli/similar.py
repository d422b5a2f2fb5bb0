"""``momentous similar``."""

from pathlib import Path

import click

from momentous.cli.options import EXISTING, as_json
from momentous.cli.terminal import show_lists


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("ids", metavar="ITEM...", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of ids to show.")
@click.option("--users", is_flag=True, help="Take ids of users, and list similar users.")
@as_json
def command(model: Path, ids: tuple[str, ...], count: int, users: bool, as_json: bool) -> None:
    """List the items most similar to each ITEM, by the cosine of their factors."""
    from momentous.lowrank.tasks import similar_ids

    show_lists(similar_ids(model, ids, count, users=users), as_json=as_json)
