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
    NumberOr,
    as_json,
    complete_methods,
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
@click.option(
    "--rank",
    type=NumberOr(click.IntRange(1), "auto"),
    help="Number of factors; auto finds the best one for the ridge, with a proof.  [default: 10]",
)
@click.option(
    "--loss",
    help="squared; logistic: above the mean or not; implicit: counts, where what was not seen is a "
    "weak 0; or one that your program has registered.  "
    "[default: squared, or that of the model to resume]",
)
@click.option(
    "--method",
    "solver",
    shell_complete=complete_methods,
    help="auto, sweep, or a name that 'momentous methods' lists.  [default: auto]",
)
@click.option(
    "--ridge",
    type=NumberOr(click.FloatRange(0), "path"),
    help="Weight of the squared factors; path, with --rank auto: chosen by entries held out.",
)
@click.option(
    "--gap-tol",
    type=click.FloatRange(0),
    help="With --rank auto: how near to the optimum, relatively.  [default: 1e-4]",
)
@click.option("--biases/--no-biases", default=None, help="Of users and items.")
@click.option(
    "--half-sweeps",
    type=click.Choice(["auto", "exact", "cg"]),
    help="How sweeps solve for a row: exactly, or by two steps of conjugate gradients; auto: "
    "the latter above rank 16.  [default: auto]",
)
@click.option(
    "--start-scale",
    type=click.FloatRange(0, min_open=True),
    help="Size of the random start; a small one with --validation often predicts better.  "
    "[default: 0.1]",
)
@click.option(
    "--validation",
    "validation_share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Hold out this share, and stop when the error on it stops falling.",
)
@click.option("--max-iterations", type=click.IntRange(1), help="Limit on iterations.")
@click.option("--tol", type=click.FloatRange(0), help="When to stop.  [default: 1e-4]")
@reading
@threads
@click.option(
    "--backend", help="What does the arithmetic: auto, numba, numpy or cuda.  [default: auto]"
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    help="cuda: an NVIDIA GPU; auto: that, where there is one and it is worth it.  [default: cpu]",
)
@click.option("--seed", "random_state", type=click.IntRange(0), help="Of the start.  [default: 0]")
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
    from momentous.distributed import RankError, find
    from momentous.lowrank.tasks import OptionError, fit_file

    if out == Path("-"):
        raise click.BadParameter(
            "a model is a file, and is not written to the standard output; name one, such as "
            "--out model.npz",
            param_hint="'--out'",
        )
    source, how = source_of(file, reading)
    try:
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
    except RankError as error:
        raise click.ClickException(str(error)) from None
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
