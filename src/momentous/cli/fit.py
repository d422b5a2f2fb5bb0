"""``momentous fit``."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from momentous.cli.options import (
    NEW_FILE,
    RATINGS,
    FileOptions,
    as_json,
    device,
    fit_options,
    reading,
    source_of,
    threads,
    typed_options,
)
from momentous.cli.terminal import end_interrupted, show_facts, usage_errors
from momentous.io.progress import progress_bar

if TYPE_CHECKING:
    from momentous.lowrank.solvers.fit import Watcher


@click.command()
@click.argument("file", type=RATINGS)
@fit_options(
    "rank", "loss", "solver", "ridge", "weighting", "unobserved_weight", "gap_tol", "biases",
    "half_sweeps", "start_scale", "validation_share", "max_iterations", "tol",
)  # fmt: skip
@reading
@threads
@fit_options("backend")
@device(None)
@click.option(
    "--seed", "random_state", type=click.IntRange(0), help="Seed of the random start.  [default: 0]"
)
@click.option("--out", type=NEW_FILE, required=True, help="The file that the model is written to.")
@click.option("--resume", is_flag=True, help="Go on from the model in --out, if there is one.")
@click.option(
    "--save-every",
    type=click.FloatRange(0),
    default=60.0,
    help="Seconds between two saves of the model during the fit.",
)
@as_json
def command(
    file: str,
    out: Path,
    resume: bool,
    as_json: bool,
    reading: FileOptions,
    max_iterations: int | None,
    save_every: float,
    **options: object,
) -> None:
    """Fit a low-rank model to a FILE of ratings; - is the standard input, and pipes will do.

    Under torchrun or mpirun all ranks fit it together: see docs/cluster.md.
    """
    from momentous.distributed import find
    from momentous.lowrank.tasks import OptionError, fit_file

    if out == Path("-"):
        raise click.BadParameter(
            "a model is a file, and is not written to the standard output; name one, such as "
            "--out model.npz",
            param_hint="'--out'",
        )
    source, how = source_of(file, reading)
    quiet = as_json or find().rank > 0
    how["progress"] = False if quiet else None
    with usage_errors(OptionError), show_fit(quiet, max_iterations) as watch:
        facts = fit_file(
            source,
            out,
            reading=how,
            resume=resume,
            watch=watch,
            save_every=save_every,
            max_iterations=max_iterations,
            **options,
        )
    interrupted, out_of_memory = facts.pop("interrupted"), facts.pop("out_of_memory")
    if find().rank > 0:
        return
    show_facts(facts, as_json=as_json)
    if out_of_memory:
        raise click.ClickException(f"{facts['ended']}; the model as it stands is in {out}")
    if interrupted:
        # How the file is read is not kept in the model.
        words = ["momentous", "fit", file, "--out", str(out), "--resume", *typed_options(reading)]
        end_interrupted(
            f"interrupted after {facts['iterations']} iterations; the model as it stands is in "
            f"{out}. Go on with: {shlex.join(words)}"
        )


@contextlib.contextmanager
def show_fit(quiet: bool, limit: int | None = None) -> Iterator[Watcher | None]:
    """A function to watch a fit by: one line that changes on a terminal, else plain lines."""
    if quiet:
        yield None
        return
    with progress_bar() as bar:
        yield lambda step: bar(str(step), None if limit is None else step.nit / limit)
