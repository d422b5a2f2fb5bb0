"""``momentous scoreboard``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from momentous.cli.errors import usage_errors
from momentous.cli.options import FOLDER, limits, names_option, out_folder
from momentous.cli.output import say
from momentous.cli.process import INTERRUPTED
from momentous.io.optional import require


@click.command()
@out_folder("docs", "Folder for scoreboard.md, scoreboard.parquet and the pictures.")
@click.option("--max-dimension", type=int, help="Leave out problems with more variables.")
@names_option("--methods", "Names, separated by commas; by default all.")
@limits
@click.option("--fused-only", is_flag=True, help="Do not run all again with values apart.")
@click.option(
    "--work",
    type=FOLDER,
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
def command(
    out: Path,
    max_dimension: int | None,
    methods: list[str] | None,
    rtol: float,
    budget: int,
    max_time: float,
    cutest: bool,
    fused_only: bool,
    work: Path,
    table: Path | None,
) -> None:
    """Run all methods on the whole list of problems, and write the page."""
    require("matplotlib", "app", "momentous scoreboard")
    from momentous.lab.compare.scoreboard import run_scoreboard, write_scoreboard
    from momentous.testbed.suite import suite

    with usage_errors():
        if table is not None:
            write_scoreboard(table, out)
        else:
            found = run_scoreboard(
                suite(max_dimension, cutest=cutest),
                out,
                methods=methods,
                rtol=rtol,
                max_evaluations=budget,
                max_time=max_time,
                separate=not fused_only,
                work=work,
            )
            if found.interrupted:
                click.echo(
                    f"interrupted after {len(found.rows)} runs; the same command goes on from "
                    f"{work}",
                    err=True,
                )
                sys.exit(INTERRUPTED)
    say(f"The page is {out / 'scoreboard.md'}.")
