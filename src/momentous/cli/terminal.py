"""What commands print: lines and facts, and one line where something goes wrong.

Nothing in it can control the terminal.  The exit status is 2 for what was asked for wrongly, 1 for
what could not be done, 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from momentous.cli.process import INTERRUPTED

if TYPE_CHECKING:
    from momentous.io.types import JsonObject

# Errors that people can do something about, with that of ranks; all others are defects of ours.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)


def printable(text: str) -> str:
    """The text with control characters escaped, so that names from files cannot act."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def say(text: str) -> None:
    """A line on the standard output."""
    click.echo(printable(text))


def show_facts(facts: JsonObject, *, as_json: bool) -> None:
    """Names and values, one per line, or all of it as one JSON object."""
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        say(f"{name.replace('_', ' '):>{width}}  {shown}")


def show_lists(
    found: Mapping[str, Sequence[tuple[str | int | float, float]]], *, as_json: bool
) -> None:
    """Ids and their scores, a list for each name, or all of it as one JSON object."""
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, ids in found.items():
        say(f"{name}:")
        for one, score in ids:
            say(f"  {score:9.4f}  {one}")


@contextlib.contextmanager
def report_errors(*, debug: bool = False) -> Iterator[None]:
    """Turn errors and warnings inside into lines; with ``debug`` errors keep their traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("default", RuntimeWarning)
        try:
            yield
        except KeyboardInterrupt:
            end_interrupted("interrupted")
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click reports its own, and ends quietly when the reader of a pipe has left
        except Exception as error:
            if debug:
                raise
            raise click.ClickException(describe(error)) from None


def end_interrupted(message: str) -> NoReturn:
    """End the command as after Ctrl-C, with a line that says what is kept."""
    click.echo(printable(message), err=True)
    sys.exit(INTERRUPTED)


@contextlib.contextmanager
def usage_errors(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Such an error inside says that something was asked for wrongly."""
    try:
        yield
    except kind as error:
        raise click.UsageError(describe(error)) from None


def describe(error: Exception) -> str:
    """The message of an error on a terminal."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        text = f"not enough memory ({text})"
    from momentous.distributed import RankError

    if not isinstance(error, (*EXPECTED, RankError)):
        text = f"{type(error).__name__}: {text} (a defect of momentous; --debug shows where)"
    return printable(as_options(text))


def as_options(text: str) -> str:
    """The text with Python's ``name='value'`` as ``--name value``, where the command has that."""
    context = click.get_current_context(silent=True)
    command = None if context is None else context.command
    if context is not None and isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    if isinstance(command, click.Group):  # of which one was called is not known here
        parameters = [one for each in command.commands.values() for one in each.params]
    else:
        parameters = [] if command is None else command.params
    flags = {
        parameter.name: next((name for name in parameter.opts if name.startswith("--")), None)
        for parameter in parameters
    }

    def translate(found: re.Match[str]) -> str:
        flag, value = flags.get(found[1]), found[2].replace("'", "")
        if flag is None:
            return found[0]
        return flag if value == "True" else f"{flag} {value}"

    return re.sub(r"\b(\w+)=('[^']*'(?:(?:, | or )'[^']*')*|True|[\w.]+)", translate, text)


def _show_warning(message: Warning | str, *details: object, **more: object) -> None:
    click.echo(f"warning: {printable(as_options(str(message)))}", err=True)
