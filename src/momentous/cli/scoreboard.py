"""``momentous scoreboard``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.options import FOLDER, limits, names_option, out_folder
from momentous.cli.terminal import end_interrupted, say, usage_errors
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
    cutest: bool,
    fused_only: bool,
    work: Path,
    table: Path | None,
    **options: Any,
) -> None:
    """Run all methods on the whole list of problems, and write the page."""
    require("matplotlib", "app", "momentous scoreboard")
    from momentous.lab.compare.scoreboard import run_scoreboard, write_scoreboard
    from momentous.testbed.suite import suite

    with usage_errors():
        if table is not None:
            write_scoreboard(table, out)
        else:
            problems = suite(max_dimension, cutest=cutest)
            found = run_scoreboard(problems, out, work=work, separate=not fused_only, **options)
            if found.interrupted:
                done = f"interrupted after {len(found.rows)} runs"
                end_interrupted(f"{done}; the same command goes on from {work}")
    say(f"The page is {out / 'scoreboard.md'}.")
