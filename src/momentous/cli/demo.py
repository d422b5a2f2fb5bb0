"""``momentous demo``."""

from pathlib import Path

import click

from momentous.cli.options import out_folder
from momentous.io.optional import require


@click.command()
@out_folder("momentous-demo", "Folder for the report.")
@click.option("--iterations", type=click.IntRange(10), default=500, help="Per method.")
def command(out: Path, iterations: int) -> None:
    """Run the paper's comparison in small: about a minute, ending in a page to look at."""
    for package in ("matplotlib", "pyarrow"):
        require(package, "app", "momentous demo")
    from momentous.lab.studies import run_demo

    run_demo(out, iterations)
