"""The command line: ``momentous demo``, ``methods``, ``compare``, ``scoreboard``, ``fit`` and more.

The commands about ratings are those of `momentous.lowrank.commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Command = Callable[..., Any]
INTERRUPTED = 130
"""The exit status of what Ctrl-C has ended, as shells have it."""


def main() -> None:
    """Entry point of the ``momentous`` command."""
    try:
        _need("click", "rich")
        _commands()()
    except KeyboardInterrupt:  # while modules are imported; later the group hears of it
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


def _need(*packages: str) -> None:
    """Import packages of the extra, or end with how to install it."""
    try:
        for package in packages:
            import_module(package)
    except ModuleNotFoundError as error:
        sys.exit(
            f"the command line needs {error.name}, which a library-only installation leaves out; "
            'install it with: pip install "momentous[app]"'
        )


def _commands() -> Callable[[], None]:
    """The commands, made only when click is known to be there."""
    import click

    from momentous import __version__

    def limits(command: Command) -> Command:
        """The options that say which problems there are and when a run is over."""
        for option in (
            click.option("--cutest/--no-cutest", default=False, help="The CUTEst problems too."),
            click.option(
                "--max-time",
                type=click.FloatRange(0, min_open=True),
                default=60.0,
                show_default=True,
                help="Seconds that a run may take.",
            ),
            click.option(
                "--budget",
                type=click.IntRange(1),
                default=20_000,
                show_default=True,
                help="Values plus gradients that a run may take.",
            ),
            click.option(
                "--rtol",
                type=click.FloatRange(0, min_open=True),
                default=1e-6,
                show_default=True,
                help="The goal: this times the gradient norm at the start.",
            ),
        ):
            command = option(command)
        return command

    class Interruptible(click.Group):
        """Ends on Ctrl-C with one word and the usual status, not click's."""

        def invoke(self, context: click.Context) -> Any:
            try:
                return super().invoke(context)
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                sys.exit(INTERRUPTED)

    @click.group(cls=Interruptible, context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name="momentous")
    def momentous() -> None:
        """Smooth nonconvex optimisation by accelerated methods that carry guarantees."""

    @momentous.command()
    @click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("momentous-demo"),
        show_default=True,
        help="Folder for the report.",
    )
    @click.option(
        "--iterations",
        type=click.IntRange(10),
        default=500,
        show_default=True,
        help="Of every method.",
    )
    def demo(out: Path, iterations: int) -> None:
        """Run the paper's comparison in small: about a minute, ending in a page to look at."""
        _need("matplotlib", "pyarrow")
        from momentous.demo import run_demo

        run_demo(out, iterations)

    @momentous.command()
    def methods() -> None:
        """List the methods: what they are, need, guarantee and cost."""
        from rich.console import Console
        from rich.table import Table

        from momentous.methods import AUTO, REGISTRY, requirements

        table = Table(show_lines=True)
        for heading in ("name", "what it is", "needs", "guarantee", "cost per iteration"):
            table.add_column(heading)
        for name, cls in REGISTRY.items():
            shown = f"{name} (= auto)" if cls is AUTO else name
            table.add_row(shown, cls.summary, requirements(cls), cls.guarantee, cls.cost)
        Console().print(table)

    @momentous.command()
    @click.argument("names", metavar="PROBLEM...", nargs=-1)
    @click.option("--list", "listing", is_flag=True, help="Show the names of the problems.")
    @click.option(
        "--methods",
        default="auto,ada-ragd,lbfgs,scipy:l-bfgs-b",
        show_default=True,
        help="Names, separated by commas; scipy:l-bfgs-b, scipy:cg and torch:lbfgs are outside "
        "solvers.",
    )
    @limits
    @click.option(
        "--separate", is_flag=True, help="Give value and gradient apart, not from one call."
    )
    @click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("momentous-compare"),
        show_default=True,
        help="Folder for the tables and the pictures.",
    )
    def compare(
        names: tuple[str, ...],
        listing: bool,
        methods: str,
        out: Path,
        **options: Any,
    ) -> None:
        """Run methods on problems: names, families, or patterns such as 'rosenbrock-*'."""
        from momentous.comparison.report import list_problems, report

        try:
            if listing or not names:
                list_problems(cutest=options["cutest"])
            else:
                _need("matplotlib")
                report(names, methods.split(","), out, **options)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    @momentous.command()
    @click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("docs"),
        show_default=True,
        help="Folder for scoreboard.md, scoreboard.parquet and the pictures.",
    )
    @click.option("--max-dimension", type=int, help="Leave out problems with more variables.")
    @click.option("--methods", help="Names, separated by commas; by default all.")
    @limits
    @click.option("--fused-only", is_flag=True, help="Do not run all again with values apart.")
    @click.option(
        "--work",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("momentous-scoreboard"),
        show_default=True,
        help="Folder for finished runs: started again, the scoreboard goes on from there (begin a "
        "new one after changing the code of a method).",
    )
    @click.option(
        "--table",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Run nothing: write the page from this table.",
    )
    def scoreboard(out: Path, table: Path | None, methods: str | None, **options: Any) -> None:
        """Run all methods on the whole list of problems, and write the page."""
        _need("matplotlib")
        from momentous.comparison.report import make_scoreboard

        try:
            make_scoreboard(out, table, methods.split(",") if methods else None, **options)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    from momentous.lowrank.commands import add_commands as add_rating_commands
    from momentous.reproduce.commands import add_commands as add_reproduction_commands

    add_rating_commands(momentous)
    add_reproduction_commands(momentous)
    return momentous


if __name__ == "__main__":
    main()
