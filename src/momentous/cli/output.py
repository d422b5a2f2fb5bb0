"""What commands print: lines, facts, JSON; nothing in it can control the terminal."""

import json
from typing import Any

import click


def printable(text: str) -> str:
    """The text with control characters escaped, so that names from files cannot act."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def say(text: str) -> None:
    """A line on the standard output."""
    click.echo(printable(text))


def show_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    """Names and values, one per line, or all of it as one JSON object."""
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        say(f"{name.replace('_', ' '):>{width}}  {shown}")
