"""``momentous recommend``."""

from pathlib import Path

import click

from momentous.cli.options import EXISTING, as_json, device
from momentous.cli.terminal import show_lists


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("users", metavar="USER...", nargs=-1, required=True)
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of items per user.")
@click.option("--include-seen", is_flag=True, help="Recommend items that the user has rated, too.")
@device()
@as_json
def command(
    model: Path, users: tuple[str, ...], count: int, include_seen: bool, device: str, as_json: bool
) -> None:
    """Recommend the best items to each USER."""
    from momentous.lowrank.tasks import recommend_items

    found = recommend_items(model, users, count, exclude_seen=not include_seen, device=device)
    show_lists(found, as_json=as_json)
