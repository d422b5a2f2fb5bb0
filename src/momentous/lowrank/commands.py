"""The commands ``fit``, ``evaluate``, ``predict``, ``recommend`` and ``data``."""

from __future__ import annotations

import functools
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from momentous.lowrank import fetch as fetch_data
from momentous.lowrank import work
from momentous.lowrank.data.write import write_table

if TYPE_CHECKING:
    import click

Command = Callable[..., Any]

# What the library calls an option that has another name in commands.
_AS_OPTIONS = {"columns=('user', 'item', 'rating')": "--columns user,item,rating"}


def add_commands(group: click.Group) -> None:
    """Add them to a click group."""
    import click

    existing = click.Path(exists=True, path_type=Path)
    ratings_file = click.Path(path_type=Path)  # or a folder, or a member of an archive
    writable = click.Path(dir_okay=False, path_type=Path)

    def readable(command: Command) -> Command:
        """Errors become one line and an exit status, warnings lines of their own."""

        @functools.wraps(command)
        def careful(*arguments: Any, **options: Any) -> Any:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                warnings.simplefilter("always", RuntimeWarning)
                try:
                    return command(*arguments, **options)
                except work.OptionError as error:
                    raise click.UsageError(str(error)) from None
                except BrokenPipeError:
                    raise  # whoever reads has seen enough, which click knows how to take
                except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
                    raise click.ClickException(_told(error)) from None

        return careful

    def _warn(message: Warning | str, *details: Any, **more: Any) -> None:
        click.echo(f"warning: {message}", err=True)

    def columns_option(names: str) -> Command:
        """--columns with as many names or numbers as there are here."""
        count = names.count(",") + 1

        def checked(context: Any, parameter: Any, given: str | None) -> str | None:
            parts = [part.strip() for part in (given or "").split(",")]
            if given is not None and (len(set(parts)) != count or len(parts) != count):
                raise click.BadParameter(
                    f"{given!r} must be {count} different names or numbers, as in {names.lower()}"
                )
            return given

        return click.option(
            "--columns",
            metavar=names,
            callback=checked,
            help="Which columns, by name or counted from 0.",
        )

    def reading(command: Command) -> Command:
        """The options that say how a file of ratings is read."""
        for option in (
            click.option("--skip-bad", is_flag=True, help="Skip malformed lines."),
            click.option("--format", help="The format, where it is not recognised."),
            columns_option("USER,ITEM,RATING"),
        ):
            command = option(command)
        return command

    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

    def show(facts: dict[str, Any], as_json: bool) -> None:
        if as_json:
            click.echo(json.dumps(facts))
            return
        width = max(len(name) for name in facts)
        for name, value in facts.items():
            shown = f"{value:.6g}" if isinstance(value, float) else value
            click.echo(f"{name.replace('_', ' '):>{width}}  {shown}")

    @group.command()
    @click.argument("file", type=ratings_file)
    @click.option("--rank", type=click.IntRange(1), help="Number of factors.  [default: 10]")
    @click.option(
        "--loss",
        type=click.Choice(["squared", "logistic"]),
        help="Logistic: above the mean or not.  [default: squared]",
    )
    @click.option(
        "--method",
        help="auto, sweep, or a name that 'momentous methods' lists.  [default: auto]",
    )
    @click.option("--ridge", type=click.FloatRange(0), help="Weight of the squared factors.")
    @click.option("--biases/--no-biases", default=None, help="Of users and items.")
    @click.option(
        "--validation",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Hold out this share, and stop when the error on it stops falling.",
    )
    @click.option("--max-iterations", type=click.IntRange(1), help="Limit on iterations.")
    @click.option("--tol", type=click.FloatRange(0), help="When to stop.  [default: 1e-4]")
    @reading
    @click.option("--threads", type=click.IntRange(1), help="By default all.")
    @click.option("--seed", type=click.IntRange(0), help="Of the start.  [default: 0]")
    @click.option(
        "--out", type=writable, required=True, help="The file that the model is written to."
    )
    @click.option("--resume", is_flag=True, help="Go on from the model in --out.")
    @as_json
    @readable
    def fit(file: Path, out: Path, resume: bool, as_json: bool, **options: Any) -> None:
        """Fit a low-rank model to a FILE of ratings."""
        facts = work.fit(file, out, resume, quiet=as_json, **options)
        interrupted = facts.pop("interrupted")
        show(facts, as_json)
        if interrupted:
            click.echo(
                f"interrupted after {facts['iterations']} iterations; the model as it stands is in "
                f"{out}. Go on with: {_going_on(file, out, options)}",
                err=True,
            )
            sys.exit(130)

    @group.command()
    @click.argument("model", type=existing)
    @click.argument("file", type=ratings_file)
    @reading
    @as_json
    @readable
    def evaluate(model: Path, file: Path, as_json: bool, **options: Any) -> None:
        """How well a MODEL predicts the ratings in a FILE."""
        show(work.evaluate(model, file, **options), as_json)

    @group.command()
    @click.argument("model", type=existing)
    @click.argument("pairs", type=click.Path(path_type=Path, allow_dash=True))
    @click.option(
        "--unknown",
        type=click.Choice(["mean", "nan", "error"]),
        default="mean",
        show_default=True,
        help="What to say about ids that the model does not know.",
    )
    @columns_option("USER,ITEM")
    @click.option("--out", type=click.File("w", encoding="utf-8", lazy=True), default="-")
    @readable
    def predict(model: Path, pairs: Path, unknown: Any, columns: str | None, out: Any) -> None:
        """Predict a rating (or the probability of a high one) for each pair of ids in PAIRS."""
        predicted = work.predict(model, pairs, unknown, columns)  # before the old file is emptied
        write_table(out, predicted)
        out.flush()

    @group.command()
    @click.argument("model", type=existing)
    @click.argument("users", metavar="USER...", nargs=-1, required=True)
    @click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True)
    @click.option("--include-seen", is_flag=True, help="Also what the user has rated.")
    @as_json
    @readable
    def recommend(
        model: Path, users: tuple[str, ...], count: int, include_seen: bool, as_json: bool
    ) -> None:
        """The items that suit each USER best."""
        found = work.recommend(model, users, count, not include_seen)
        if as_json:
            click.echo(json.dumps(found))
            return
        for user, items in found.items():
            click.echo(f"{user}:")
            for item, score in items:
                click.echo(f"  {score:9.4f}  {item}")

    @group.group()
    def data() -> None:
        """Files of ratings: what is in them, and where to get some."""

    @data.command()
    @click.argument("file", type=ratings_file)
    @reading
    @as_json
    @readable
    def info(file: Path, as_json: bool, **options: Any) -> None:
        """Describe a FILE of ratings."""
        facts = work.info(file, **options)
        if not as_json:
            facts["histogram"] = ", ".join(f"{v:g}: {count:,}" for v, count in facts["histogram"])
            for side in ("user_activity", "item_activity"):
                facts[side] = ", ".join(f"{name} {value:g}" for name, value in facts[side].items())
        show(facts, as_json)

    @data.command()
    @click.argument("name")
    @click.option(
        "--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to keep it."
    )
    @readable
    def fetch(name: str, folder: Path | None) -> None:
        """Download the MovieLens data set NAME (ml-100k, ml-1m, ml-10m, ...)."""
        click.echo(fetch_data(name, folder))

    @data.command()
    @click.argument("name")
    @click.option("--out", type=writable, required=True, help="csv, tsv, dat, parquet or npz.")
    @click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
    @readable
    def twin(name: str, out: Path, seed: int) -> None:
        """Write ratings like those of the data set NAME, made up."""
        click.echo(f"{work.write_twin(name, out, seed)!r} is in {out}")


def _told(error: Exception) -> str:
    """The message, with options in place of the library's parameters."""
    text = str(error) or type(error).__name__
    for parameter, option in _AS_OPTIONS.items():
        text = text.replace(parameter, option)
    return text


def _going_on(file: Path, out: Path, options: dict[str, Any]) -> str:
    """The command that resumes a fit; how the file is read is not kept in the model."""
    words = ["momentous", "fit", str(file), "--out", str(out), "--resume"]
    for name in ("columns", "format"):
        if options[name] is not None:
            words += [f"--{name}", options[name]]
    return shlex.join([*words, "--skip-bad"] if options["skip_bad"] else words)
