"""``momentous scoreboard``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.options import FOLDER, limits, names_option, out_folder
from momentous.cli.terminal import end_interrupted, say, usage_errors
from momentous.io.optional import require


@click.command()
@out_folder("docs", "Folder for the page, its table and its picture.")
@click.option("--maps", is_flag=True, help="Accelerations of descent maps, on a page of its own.")
@click.option("--max-dimension", type=int, help="Leave out problems with more variables.")
@names_option("--methods", "Names, separated by commas; by default all.")
@click.option(
    "--update",
    is_flag=True,
    help="Replace only the runs of --methods in the table in --out.",
)
@limits
@click.option(
    "--fused-only", is_flag=True, help="Skip the second pass, with value and gradient called apart."
)
@click.option(
    "--work",
    type=FOLDER,
    default=Path("momentous-scoreboard"),
    help="Folder of the finished runs: the same command continues from them (take a new folder "
    "after a change of a method's code).",
)
@click.option(
    "--table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run nothing: write the page from this table.",
)
def command(
    out: Path,
    maps: bool,
    max_dimension: int | None,
    methods: list[str] | None,
    update: bool,
    cutest: bool,
    fused_only: bool,
    work: Path,
    table: Path | None,
    **options: Any,
) -> None:
    """Run all methods on the whole list of problems, and write the page.

    With --maps the solvers are accelerations, the problems descent maps; --cutest and --fused-only
    do not apply.
    After a change of one method, --methods NAME --update runs that one only; the page says which
    rows were made with which versions.
    """
    require("matplotlib", "app", "momentous scoreboard")
    from momentous.lab.compare.scoreboard import FUNCTIONS, MAPS

    board = MAPS if maps else FUNCTIONS
    with usage_errors():
        if table is not None:
            board.write(table, out)
        else:
            found = board.run(
                _problems(maps, max_dimension, cutest), out, methods=methods, update=update,
                work=work, separate=not fused_only, **options,
            )  # fmt: skip
            if found.interrupted:
                done = f"interrupted after {len(found.rows)} runs"
                end_interrupted(f"{done}; the same command goes on from {work}")
    say(f"The page is {out / f'{board.name}.md'}.")


def _problems(maps: bool, max_dimension: int | None, cutest: bool) -> Any:
    if maps:
        from momentous.lab.compare.sweeps import compared_maps

        return compared_maps(max_dimension)
    from momentous.testbed.suite import suite

    return suite(max_dimension, cutest=cutest)
