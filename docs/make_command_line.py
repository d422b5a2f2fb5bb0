"""Write the help of all commands and the environment variables into docs/command-line.md.

python docs/make_command_line.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from momentous.cli.app import COMMANDS, momentous
from momentous.cli.environment import VARIABLES

PAGE = Path(__file__).parent / "command-line.md"
WIDTH = 100


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The name and the help of a command, and of those below it."""
    settings = dict(momentous.context_settings, terminal_width=WIDTH, max_content_width=WIDTH)
    context = click.Context(command, info_name=name, **settings)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from helps(found, f"{name} {below}")


def commands() -> str:
    """The help of every command, as the terminal shows it."""
    parts = []
    context = click.Context(momentous, info_name="momentous")
    for name in COMMANDS:
        command = momentous.get_command(context, name)
        assert command is not None
        for title, text in helps(command, f"momentous {name}"):
            parts.append(f"### {title}\n\n```text\n{text}\n```")
    return "\n\n".join(parts)


def variables() -> str:
    """The table of environment variables in Markdown."""
    rows = ["| variable | what it is for |", "|---|---|"]
    for names, text in VARIABLES.items():
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        rows.append(f"| {shown} | {text} |")
    return "\n".join(rows)


def with_parts(page: str) -> str:
    """The page with what the code says now between its marks."""
    for name, text in (("commands", commands()), ("variables", variables())):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, mark, rest = page.partition(begin)
        _, closing, after = rest.partition(end)
        if not (mark and closing):
            raise ValueError(f"the page needs the lines {begin} and {end}")
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
