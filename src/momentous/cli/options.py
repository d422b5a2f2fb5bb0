"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from momentous.lowrank.options import ALLOWED, Allowed, ModelOptions

if TYPE_CHECKING:
    from momentous.io.types import AnyFunction
    from momentous.lowrank.data.files.queries import Query
    from momentous.lowrank.data.read import Reading

Command = TypeVar("Command", bound="AnyFunction | click.Command")


class Decorator(Protocol):
    """What adds options to a command."""

    def __call__(self, command: Command, /) -> Command: ...


EXISTING = click.Path(exists=True, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
RATINGS = click.Path(allow_dash=True)  # a file, a folder, a pipe, or a member of an archive
POSITIVE = click.FloatRange(0, min_open=True)


FileOptions = dict[str, Any]  # what `reading` collects
FILE_OPTIONS = ("columns", "format", "delimiter", "decimal", "missing", "skip_bad", "sql")
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


class NumberOr(click.ParamType):  # type: ignore[type-arg]  # only the newest is generic
    """A number, or one of some words."""

    def __init__(
        self, number: click.ParamType[int] | click.ParamType[float], words: tuple[str, ...]
    ):
        self.number, self.words, self.name = number, words, "|".join([number.name, *words])

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float | str:
        """A word as it is, all else as the number."""
        if isinstance(value, str) and value in self.words:
            return value
        return self.number.convert(value, param, ctx)


def complete_methods(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of methods, for the tab key; of a list the last one."""
    from momentous.methods.registry import REGISTRY

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in ("auto", *REGISTRY) if name.startswith(last)]


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
threads = click.option(
    "--threads", type=click.IntRange(1), help="Threads of compiled code; default: all."
)


def device(default: str | None = "cpu") -> Decorator:
    """``--device``; without a default it is that of the model to resume."""
    return click.option(
        "--device",
        type=click.Choice(["cpu", "cuda", "auto"]),
        default=default,
        help="cuda is an NVIDIA GPU; auto takes it where it pays."
        + ("  [default: cpu]" if default is None else ""),
    )


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order in ``--help``."""

    def add(command: Command, /) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def out_folder(default: str, help: str) -> Decorator:
    """``--out FOLDER``."""
    return click.option("--out", type=FOLDER, default=Path(default), help=help)


def names_option(
    name: str, help: str, default: str | None = None, complete: Completion | None = None
) -> Decorator:
    """Names, separated by commas, as a list; None where the option is not given."""

    def split(_: click.Context, __: click.Parameter, given: str | None) -> list[str] | None:
        return [part.strip() for part in given.split(",")] if given else None

    return click.option(name, callback=split, default=default, help=help, shell_complete=complete)


def typed_options(values: Mapping[str, object]) -> list[str]:
    """Options as people type them: None and False are left out, True has no value."""
    words: list[str] = []
    for name, value in values.items():
        if value is not None and value is not False:
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(",".join(map(str, value)) if isinstance(value, list) else str(value))
    return words


# --- fits -----------------------------------------------------------------------------------------


def fit_options(*names: str) -> Decorator:
    """These options of a fit, from the table that the estimators have theirs from.

    Those that are not typed are None: the model to resume may have them.
    """
    options = []
    for name in names:
        allowed, default = ALLOWED[name], getattr(ModelOptions, name)
        flag = (allowed.flag or name).replace("_", "-")
        options.append(
            click.option(
                f"--{flag}/--no-{flag}" if name == "biases" else f"--{flag}",
                name,
                type=_click_type(allowed),
                default=None,
                help=allowed.help + ("" if default is None else f"  [default: {default}]"),
                shell_complete=complete_methods if name == "solver" else None,
            )
        )
    return together(*options)


def _click_type(allowed: Allowed) -> Any:
    """What click checks of an option; None: it is any text."""
    if allowed.choices:
        return click.Choice(allowed.choices)
    if allowed.number is None:
        return None
    is_between = allowed.high < math.inf
    high = allowed.high if is_between else None
    number: Any = click.FloatRange(allowed.low, high, min_open=is_between, max_open=is_between)
    if allowed.number is int:
        number = click.IntRange(int(allowed.low))
    return NumberOr(number, allowed.words) if allowed.words else number


# --- ratings --------------------------------------------------------------------------------------


def columns_option(*choices: str, more: str = "") -> Decorator:
    """``--columns`` with as many names or numbers as there are in one of the choices."""
    counts = [one.count(",") + 1 for one in choices]

    def checked(_: click.Context, __: click.Parameter, given: str | None) -> list[str | int] | None:
        if given is None:
            return None
        parts = [part.strip() for part in given.split(",")]
        if len(set(parts)) != len(parts) or len(parts) not in counts:
            raise click.BadParameter(
                f"{given!r} must be {' or '.join(map(str, counts))} different names or numbers, as "
                f"in {choices[0].lower()}"
            )
        return [int(part) if part.isdigit() else part for part in parts]

    help = "Columns to read, by name or counted from 0." + more
    return click.option("--columns", metavar=choices[0], callback=checked, help=help)


def reading(command: AnyFunction) -> AnyFunction:
    """How a file of ratings is read: the command gets these options as one dict, ``reading``."""

    @functools.wraps(command)
    def collected(**options: object) -> None:
        command(reading={name: options.pop(name) for name in FILE_OPTIONS}, **options)

    return together(
        columns_option(
            "USER,ITEM,RATING", "USER,ITEM", more=" USER,ITEM alone: how often each pair comes."
        ),
        click.option("--format", help="Format, if it is not recognised."),
        click.option("--delimiter", help="Text between two fields, if it is not recognised."),
        click.option(
            "--decimal",
            type=click.Choice([".", ","]),
            help="The decimal point.  [default: .]",
        ),
        click.option(
            "--missing",
            type=click.Choice(["error", "drop"]),
            help="What to do with a row without a rating.  [default: error]",
        ),
        click.option("--skip-bad", is_flag=True, help="Skip malformed lines."),
        click.option(
            "--sql",
            metavar="SELECT",
            help="Query in DuckDB's SQL that makes the ratings. It knows FILE as the table "
            "ratings, and can read nothing else.",
        ),
    )(collected)


def source_of(file: str, reading: FileOptions) -> tuple[str | Query, Reading]:
    """What is read, a file or a query over it, and the options left to read it with."""
    from momentous.lowrank.data.files.queries import Query

    given = {name: value for name, value in reading.items() if value is not None}
    sql, left = given.pop("sql", None), cast("Reading", given)
    if sql is None:
        return file, left
    if "format" in left or "delimiter" in left:
        raise click.UsageError("--format and --delimiter are not for --sql, which reads by itself")
    return Query(sql, {"ratings": file}), left


# --- comparisons ----------------------------------------------------------------------------------

limits = together(
    click.option(
        "--rtol",
        type=POSITIVE,
        default=1e-6,
        help="The goal: this times the gradient norm at the start.",
    ),
    click.option(
        "--budget",
        "max_evaluations",
        type=click.IntRange(1),
        default=20_000,
        help="Values plus gradients that a run may take.",
    ),
    click.option("--max-time", type=POSITIVE, default=60.0, help="Seconds that a run may take."),
    click.option("--cutest/--no-cutest", default=False, help="Run the CUTEst problems, too."),
)
"""Which problems there are, and when a run is over."""
