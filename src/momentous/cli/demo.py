"""``momentous demo``."""

from pathlib import Path

import click

from momentous.cli.options import out_folder
from momentous.cli.study import print_results
from momentous.cli.terminal import printable
from momentous.io.optional import require
from momentous.lab.progress import new_console

OPENING = (
    "The synthetic twin of MovieLens 100K, rank 10, both problems of the paper.  Each of its seven "
    "methods gets the step size that suits it best; then they run, and beside them SciPy's "
    "L-BFGS-B and this library's sweeps."
)


@click.command()
@out_folder("momentous-demo", "Folder for the report.")
@click.option("--iterations", type=click.IntRange(10), default=500, help="Iterations per method.")
def command(out: Path, iterations: int) -> None:
    """Run a small version of the paper's comparison, in about a minute, and write its page."""
    for package in ("matplotlib", "pyarrow"):
        require(package, "app", "momentous demo")
    from momentous.lab.paper.results import tally
    from momentous.lab.studies import run_demo, what_to_look_at

    console = new_console()
    console.print(OPENING)
    folder, study = run_demo(out, iterations)
    print_results(study, verdicts=False)
    console.print(f"What the paper says: {tally(study.claims)}  The page has each with its reason.")
    console.print(f"The report is {printable(str(folder.page))}.  {what_to_look_at(study)}")
