"""The page about a reproduction: every number and every sentence of it comes from the study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from momentous.comparison.words import counted, listed, ratio, seconds
from momentous.lab.paper.baselines import baseline_notes
from momentous.reproduce.markdown_text import number, prose, table
from momentous.lab.paper.runs import PaperRunInfo, PaperRun
from momentous.lab.paper.results import (
    EARLY,
    FIGURE_NAMES,
    Bound,
    Claim,
    RunSet,
    Growth,
    Study,
    tally,
)

SUBJECTS = {
    "fig1": "matrix completion",
    "fig2": "one-bit matrix completion",
    "fig3": "the adaptive methods in the long run",
}
EXPONENTS = "exponents"  # the picture of how gradients grow


def write_account(
    study: Study, path: Path, *, pictures: dict[str, Path], command: str, opening: str = ""
) -> None:
    """Write the page in Markdown.

    Parameters
    ----------
    study : Study
    path : Path
        The page; links to the pictures are relative to its folder.
    pictures : dict of str to Path
        By figure ("fig1" to "fig3", "demo") or by figure and problem ("demo-one-bit");
        "exponents" stands beside the table of growth.
    command : str
        What made the page.
    opening : str
        Paragraphs to begin with.
    """
    folder = Path(path).parent
    links = {
        figure: Path(os.path.relpath(there, folder)).as_posix()
        for figure, there in pictures.items()
    }
    parts = [
        "# The experiments of the paper, run again",
        *(prose(paragraph) for paragraph in opening.split("\n\n") if paragraph.strip()),
        prose(
            f"`{command}` made this page; every number on it is computed from the recorded runs."
        ),
        *_what_was_run(study.groups),
        *_figures(study.groups, links),
        *_tuning(study.groups),
        *_claims(study.claims),
        *_theorems(study.bounds),
        *_growths(study.growths, links.get(EXPONENTS)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _what_was_run(groups: Sequence[RunSet]) -> Iterator[str]:
    abouts = [run.info for group in groups for run in group.runs]
    if not abouts:
        return
    yield "## What was run, and where"
    threads = sorted({about.threads for about in abouts})
    setups = listed(list(dict.fromkeys(about.setup for about in abouts)))
    yield prose(
        f"{setups}; {listed([counted(n, 'thread') for n in threads])}. The methods start from the "
        "truncated SVD of the observed matrix; a value counts as one evaluation and a gradient as "
        "another, and what only the pictures need is not counted."
    )
    yield prose(max((group.how_timed for group in groups), key=len))
    if any(about.twin for about in abouts):
        names = listed(list(dict.fromkeys(a.data for a in abouts if a.twin)))
        yield prose(
            f"**{names}: synthetic twins.** A twin has the numbers of users, items and ratings of "
            "the data set whose name it bears, and none of its data: where the paper's figures "
            "depend on real viewers, these cannot show it."
        )
    lines = [
        (
            group.figure_name,
            *_data_cells(group.runs[0].info),
            f"{max(run.info.iterations for run in group.runs):,}",
            f"{_shown(group):,}",
            str(len(group.runs)),
        )
        for group in groups
    ]
    yield table(
        ("figure", "data", "problem", "users", "items", "ratings", "rank", "parameters",
         "iterations run", "shown", "methods"), lines
    )  # fmt: skip


def _data_cells(about: PaperRunInfo) -> tuple[str, ...]:
    users, items = about.shape
    return (about.data_name, about.problem_name, f"{users:,}", f"{items:,}", f"{about.entries:,}",
            str(about.rank), about.profile)  # fmt: skip


# --- pictures and tables --------------------------------------------------------------------------


def _figures(groups: Sequence[RunSet], links: dict[str, str]) -> Iterator[str]:
    parts = {f"{group.figure}-{group.runs[0].info.problem}" for group in groups}
    alone = [name for name in links if name not in parts and name != EXPONENTS]
    for figure in dict.fromkeys([*(group.figure for group in groups), *alone]):
        title = FIGURE_NAMES.get(figure, figure)
        if figure in SUBJECTS:
            title += f": {SUBJECTS[figure]}"
        yield f"## {title}"
        yield from _picture(title, links.get(figure))
        for group in (group for group in groups if group.figure == figure):
            lowest, run = group.lowest
            yield f"### {group.title}"
            yield from _picture(group.title, links.get(f"{figure}-{run.info.problem}"))
            yield prose(
                f"f* = {lowest:.9g}, the lowest value in all of these runs ({run.info.method}). "
                f"{group.reference} "
                f"Counts, times and the end are those of the first {_shown(group):,} iterations. "
                f"{baseline_notes(group)}"
            )
            yield table(
                ("method", "step size", "values", "gradients", "time", "restarts",
                 f"f - f* at {EARLY:,} evaluations", "norm there", "f - f* at the end",
                 "norm there", "ended"), (_cells(group, run) for run in group.runs)
            )  # fmt: skip
            early = [f"{run.info.method}: {run.message}" for run in _ended_early(group)]
            if early:
                yield "Those that ended before their time say why:"
                yield "\n".join(prose(message, bullet="- ") for message in early)


def _picture(title: str, link: str | None) -> Iterator[str]:
    if link is not None:
        # A browser shows a PDF behind a link, not within a page.
        yield f"{'' if link.endswith('.pdf') else '!'}[{title}]({link})"


def _shown(group: RunSet) -> int:
    return min(group.plotted, max(len(run) - 1 for run in group.runs))


def _ended_early(group: RunSet) -> list[PaperRun]:
    """Our runs have a row an iteration, and one of the start; sweeps have none of that."""
    short = [run for run in group.runs if len(run) <= run.info.iterations]
    return [run for run in short if run.status != "max iterations"]


def _cells(group: RunSet, run: PaperRun) -> tuple[str, ...]:
    about, history, last = run.info, run.history, group.shown(run).stop - 1
    step = "its own" if about.step_size is None else f"{about.step_size:.4g}"
    if about.step_size is not None and about.step_from != "tuned":
        step += f" ({about.step_from})"
    cells: list[str] = []
    for row in (group.early(run), last):
        if row is None:
            cells += ["-", "-"]
            continue
        error = history.fun[row] - group.lowest[0]
        cells += [f"{error:.2e}" if error else "0", f"{history.grad_norm[row]:.2e}"]
    return (
        about.method,
        step,
        f"{history.nfev[last]:,}",
        f"{history.njev[last]:,}",
        seconds(float(history.time[last])),
        f"{sum(row <= last for row in history.restart_rows()):,}",
        *cells,
        about.status,
    )


def _tuning(groups: Sequence[RunSet]) -> Iterator[str]:
    tuned = [(group, run.info) for group in groups for run in group.runs if run.info.tuning]
    if not tuned:
        return
    keys = list(dict.fromkeys(key for _, about in tuned for key in about.tuning))
    yield "## What the search for the step sizes cost"
    lines = {
        (
            group.title,
            about.method,
            f"{about.step_size:.4g}" if about.step_size is not None else "its own",
            *(number(about.tuning.get(key)) for key in keys),
        ): None
        for group, about in tuned
    }
    yield table(("on", "method", "step size", *keys), lines)


# --- verdicts -------------------------------------------------------------------------------------


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    if not claims:
        return
    yield "## What the paper says, and what these runs show"
    statements: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        statements.setdefault((claim.where, claim.statement), []).append(claim)
    yield prose(tally(claims))
    for (where, statement), found in statements.items():
        yield prose(f"**{statement[0].upper()}{statement[1:]}** ({where}).")
        yield "\n".join(
            prose(f"*{claim.verdict}* on {claim.on}: {claim.numbers}.", bullet="- ")
            for claim in found
        )


def _theorems(bounds: Sequence[Bound]) -> Iterator[str]:
    """Of each bound the function on which it is tightest; the report page has all of them."""
    if not bounds:
        return
    yield "## What the theorems bound"
    held = sum(bound.holds for bound in bounds)
    yield prose(
        f"Bounds that hold: {held} of {len(bounds)}. Of each, the function on which least room is "
        "left; all of them are on the report page."
    )
    alike: dict[tuple[str, str, str], list[Bound]] = {}
    for bound in bounds:
        formula = bound.formula.partition(";")[0]
        alike.setdefault((bound.theorem, bound.quantity, formula), []).append(bound)
    lines = []
    for (theorem, quantity, formula), several in alike.items():
        least = min(several, key=lambda bound: bound.slack)
        failed = sum(not bound.holds for bound in several)
        verdict = f"**{failed} of {len(several)} do not**" if failed else f"all {len(several)}"
        lines.append(
            (theorem, quantity, formula, verdict, least.function, number(least.bound),
             number(least.measured), ratio(least.slack))
        )  # fmt: skip
    yield table(
        ("theorem", "quantity", "bound", "hold", "tightest on", "its value", "measured",
         "bound / measured"),
        lines,
    )  # fmt: skip


def _growths(growths: Sequence[Growth], picture: str | None) -> Iterator[str]:
    if growths:
        yield "## How gradients grow with the accuracy"
        yield from _picture("Gradients against 1/mu", picture)
        yield prose(
            "Gradients to a gradient norm of the order mu on the nested chain, and the exponent of "
            "the power of 1/mu that fits them."
        )
        yield table(
            ("method", "1/mu", "gradients", "exponent"),
            (
                (g.method, ", ".join(map(number, g.inverse_mu)),
                 ", ".join(map(number, g.gradients)), f"{g.exponent:.3f}")
                for g in growths
            ),
        )  # fmt: skip
