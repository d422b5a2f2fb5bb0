"""``momentous explain``."""

from pathlib import Path

import click

from momentous.cli.options import EXISTING, as_json
from momentous.cli.terminal import show_facts, show_lists


@click.command()
@click.argument("model", type=EXISTING)
@click.argument("user")
@click.argument("item")
@click.option("-n", "count", type=click.IntRange(1), default=10, help="Number of ratings to show.")
@as_json
def command(model: Path, user: str, item: str, count: int, as_json: bool) -> None:
    """Split the score of an ITEM over the ratings of a USER, the largest parts first.

    All parts and the rest (the mean, the bias of the item) sum up to the score.
    """
    from momentous.lowrank.tasks import explain_score

    facts = explain_score(model, user, item, count)
    if as_json:
        show_facts(facts, as_json=True)
        return
    ratings = facts.pop("ratings")
    show_facts(facts, as_json=False)
    show_lists({f"ratings of {user}": ratings}, as_json=False)
