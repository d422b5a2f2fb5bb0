"""The page of a study: one HTML file with plots to play with, tables, and nothing to fetch."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np

from momentous.comparison.look import COLOURS, line_styles
from momentous.comparison.words import counted, seconds
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.study import Claim, Group, Growth, Study
from momentous.version import __version__

SCRIPTS = ("scale.js", "marks.js", "plot.js", "gestures.js", "page.js")
MOST_ROWS = 1500  # of a curve, besides those of special events
STRETCHES = 300  # of a curve; four rows are kept of each, so 1200 and as many as 300 restarts
EARLY = 1000  # evaluations at which the table looks, besides the end
LONG = 5000  # iterations from which a curve is first shown against a logarithm
# The colours of `look` are for white paper; these are their likenesses on a dark screen.
ON_DARK = dict(zip((*COLOURS, "black"), (
    "#4A9FE8", "#F5803A", "#1FC496", "#E79CC6", "#F2B632", "#A6DFFF", "#B4B4B4", "#FFFFFF"
), strict=True))  # fmt: skip
SIGNS = {
    "RESTART": "restart",
    "ROLLBACK": "line 11 of Algorithms 2 and 4: rolled back",
    "RADIUS_REACHED": "B₀ ≤ B for the first time",
    "NEGATIVE_CURVATURE": "negative curvature exploited",
    "PERTURBED": "perturbed",
    "TIGHTENED": "ε lowered",
    "NON_FINITE": "not finite: rejected",
}
VERDICTS = {True: ("seen", "good"), False: ("not seen", "bad"), None: ("cannot be told", "unsure")}
TONES = {"holds": "good", "does not hold": "bad"}  # of cells that say just this
LONG_CELL = 32  # characters beyond which a cell may be broken into lines
FIGURES = {"fig1": "Figure 1", "fig2": "Figure 2", "fig3": "Figure 3", "demo": "Demonstration"}


def write_page(
    study: Study,
    path: Path,
    *,
    title: str,
    lead: str,
    pictures: dict[str, Path] | None = None,
) -> None:
    """Write the page of a study: all of it or nothing.

    Parameters
    ----------
    study : Study
        What was run and found; parts of it that are empty are left out of the page.
    path : Path
        The file to write, usually ``index.html``; its folder is made where it is missing.
    title, lead : str
        The heading, and the paragraph below it, as plain text.
    pictures : dict of str to Path, optional
        Files to link to, by what to call them; the links are relative to the page.
    """
    groups = [group for group in study.groups if group.runs]
    styles = line_styles(list(dict.fromkeys(_name(group, run) for group, run in _runs(groups))))
    plots: dict[str, Any] = {}
    sections: list[tuple[str, str]] = []  # what the contents call it, and its HTML
    for i, group in enumerate(groups):
        plots[f"plot-{i}"] = _plot(group, styles)
        sections.append((group.title, _group_section(f"plot-{i}", group)))
    if study.claims:
        sections.append(("What the paper says", _claims(study.claims)))
    if study.bounds:
        sections.append(("Theorems", _theorems(study)))
    if study.growths:
        plots["growth"] = _growth_plot(study.growths)
        sections.append(("Growth with 1/μ", GROWTH_SECTION))
    if groups:
        sections.append(("Parameters", _parameters(groups)))
    if any(run.about.tuning for group in groups for run in group.runs):
        sections.append(("Cost of tuning", _tuning(groups)))
    if groups:
        sections.append(("Data and machine", _provenance(groups)))
    page = Template(_asset("page.html")).substitute(
        title=escape(title),
        lead=escape(lead),
        style=_asset("page.css"),
        script="\n".join(_asset(name) for name in SCRIPTS),
        version=escape(__version__),
        contents=_contents([name for name, _ in sections], pictures or {}, path),
        sections="\n".join(
            f'<section id="part-{i}">\n{html}\n</section>' for i, (_, html) in enumerate(sections)
        ),
        # No "<" in the JSON: nothing in a name can end the script element.
        plots=json.dumps(plots, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(page.encode())
    os.replace(partial, path)


def _asset(name: str) -> str:
    return (files("momentous.reproduce") / "assets" / name).read_text(encoding="utf-8")


def _contents(names: Sequence[str], pictures: Mapping[str, Path], path: Path) -> str:
    parts = [(name, f"#part-{i}") for i, name in enumerate(names)]
    files_beside = []
    for name, picture in pictures.items():
        # "./" keeps a colon in a file name from being read as a protocol.
        relative = Path(os.path.relpath(picture, path.parent)).as_posix()
        files_beside.append((f"{name} ({picture.suffix[1:].upper()})", f"./{quote(relative)}"))
    return "\n".join(
        f'<nav aria-label="{label}"><ul>{_links(links)}</ul></nav>'
        for label, links in (("Contents", parts), ("Pictures", files_beside))
        if links
    )


def _links(links: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<li><a href="{escape(to)}">{escape(name)}</a></li>' for name, to in links)


def _runs(groups: Sequence[Group]) -> list[tuple[Group, Recorded]]:
    return [(group, run) for group in groups for run in group.runs]


def _name(group: Group, run: Recorded) -> str:
    """What to call a run: its method; where that is not enough, whose parameters, and which."""

    def plain(it: Recorded) -> str:
        several = len({other.about.profile for other in group.runs}) > 1
        return f"{it.about.method} ({it.about.profile})" if several else it.about.method

    namesakes = [it for it in group.runs if plain(it) == plain(run)]
    which = next(i for i, it in enumerate(namesakes, start=1) if it is run)
    return plain(run) if which == 1 else f"{plain(run)}, run {which}"


# --- curves ---------------------------------------------------------------------------------------


def stretches(size: int) -> list[tuple[int, int]]:
    """Rows cut into at most `STRETCHES` pieces, fine on a linear and on a logarithmic axis."""
    half = STRETCHES // 2
    even = np.linspace(0, size, half + 1)
    growing = np.geomspace(1, max(size, 1), half)
    edges = np.unique(np.concatenate([even, growing]).astype(int)).tolist()
    return list(pairwise(edges))


def kept_rows(columns: Sequence[np.ndarray], events: Iterable[tuple[int, str]]) -> np.ndarray:
    """The rows that a curve needs to look as it does with all of them, in order.

    Of each stretch the least and the largest of each of the two columns, and the first restart;
    and every row with any other event.  Curves of at most `MOST_ROWS` rows keep them all.
    """
    size = len(columns[0])
    if size <= MOST_ROWS:
        return np.arange(size)
    kept = {0, size - 1}
    restarts = []
    for row, kind in events:
        restarts.append(row) if kind == "RESTART" else kept.add(row)
    restart_rows = np.array(sorted(restarts), dtype=int)
    for start, stop in stretches(size):
        for column in columns:
            piece = column[start:stop]
            known = np.flatnonzero(np.isfinite(piece))
            if known.size:
                found = piece[known]
                kept |= {start + int(known[found.argmin()]), start + int(known[found.argmax()])}
        kept.update(restart_rows[slice(*np.searchsorted(restart_rows, (start, stop)))][:1].tolist())
    return np.array(sorted(kept), dtype=int)


def _plot(group: Group, styles: Mapping[str, dict[str, Any]]) -> Any:
    return {
        "title": f"{group.title} ({_profiles(group)})",
        "x": [
            ["evaluations", "values + gradients", "values + gradients"],
            ["time", "time in seconds", "time"],
            ["iteration", "iterations", "iterations"],
        ],
        "y": [
            ["error", "objective error f - f*", "f - f*"],
            ["gradient", "gradient norm ‖∇f‖", "gradient norm"],
        ],
        "logs": [group.plotted >= LONG, True],
        "facts": [
            ["iteration", "iteration"],
            ["evaluations", "values + gradients"],
            ["time", "seconds"],
            ["error", "f - f*"],
            ["gradient", "gradient norm"],
            ["step", "step size"],
        ],
        "legend": "methods",
        "signs": SIGNS,
        "series": [_curve(group, run, styles) for run in group.runs],
    }


def _curve(group: Group, run: Recorded, styles: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    name, shown = _name(group, run), group.shown(run)
    error, gradient = group.error(run), run.history.grad_norm[shown]
    events = [(at, kind) for at, kind, _ in run.history.events if at < shown.stop and kind in SIGNS]
    kept = kept_rows((error, gradient), events)
    place = {int(row): i for i, row in enumerate(kept)}
    columns = {
        "iteration": np.arange(shown.stop),
        "evaluations": run.evaluations[shown],
        "time": run.history.time[shown],
        "error": error,
        "gradient": gradient,
        "step": run.step_sizes[shown],
    }
    return {
        **_drawn(name, name, styles[name]),
        "columns": {key: _short(column[kept]) for key, column in columns.items()},
        "events": [[place[row], kind] for row, kind in events if row in place],
    }


def _drawn(name: str, label: str, style: Mapping[str, Any]) -> dict[str, Any]:
    dashes = style["ls"]
    return {
        "name": name,
        "label": label,
        "light": style["color"],
        "dark": ON_DARK[style["color"]],
        "dash": [] if dashes == "-" else [2 * length for length in dashes[1]],
        "width": 1.2 * style["lw"],
        "points": False,
    }


def _short(column: np.ndarray) -> list[float | int | None]:
    """Six digits are more than a screen has; what is not finite is not there."""
    rounded = (float(f"{value:.6g}") for value in column.tolist())
    numbers = [number if math.isfinite(number) else None for number in rounded]
    return [int(n) if n is not None and n.is_integer() and abs(n) < 1e15 else n for n in numbers]


def _growth_plot(growths: Sequence[Growth]) -> dict[str, Any]:
    styles = line_styles([growth.method for growth in growths])
    return {
        "title": "Gradients against 1/μ on the nested chain",
        "x": [["inverse", "1/μ", "1/μ"]],
        "y": [["gradients", "gradients", "gradients"]],
        "logs": [True, True],
        "facts": [["inverse", "1/μ"], ["gradients", "gradients"]],
        "legend": "methods",
        "signs": {},
        "series": [
            {
                **_drawn(it.method, f"{it.method}: exponent {it.exponent:.2f}", styles[it.method]),
                "points": True,
                "columns": {
                    "inverse": _short(np.asarray(it.inverse_mu)),
                    "gradients": _short(np.asarray(it.gradients)),
                },
                "events": [],
            }
            for it in growths
        ],
    }


# --- sections -------------------------------------------------------------------------------------

HINT = (
    "Drag a rectangle, turn the wheel or pinch to zoom; shift-drag or move two fingers to pan. "
    "Click a method to hide it, double-click to see it alone. Of many restarts only as many are "
    "marked as can be told apart."
)
GROWTH_SECTION = (
    "<h2>Growth with 1/μ</h2>\n<p>Gradients to a gradient norm of the order μ on the nested chain, "
    "with the exponent of the power of 1/μ fitted to them.</p>\n"
    '<figure class="plot" id="growth"></figure>'
)


def _table(
    headings: Sequence[str], lines: Iterable[Sequence[str]], *, text: Sequence[str] = ()
) -> str:
    """A table; columns whose heading is in ``text`` hold words, the first one names the row."""
    lines = list(lines)
    columns = zip(*lines, strict=True)
    classes = [
        ("text long" if max(map(len, column)) > LONG_CELL else "text") if heading in text else ""
        for heading, column in zip(headings, columns, strict=True)
    ]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>'
        for kind, name in zip(classes, headings, strict=True)
    )
    rows = []
    for first, *cells in lines:
        told = "".join(
            f'<td class="{kind} {TONES.get(cell, "")}">{escape(cell)}</td>'
            for kind, cell in zip(classes[1:], cells, strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{told}</tr>')
    body = "\n".join(rows)
    return (
        '<div class="scroll" role="region" aria-label="table" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _profiles(group: Group) -> str:
    return "parameters: " + ", ".join(dict.fromkeys(run.about.profile for run in group.runs))


def _group_section(key: str, group: Group) -> str:
    about = group.runs[0].about
    badge = ' <span class="badge">synthetic twin</span>' if about.twin else ""
    figure = escape(FIGURES.get(group.figure, group.figure))
    rows, columns = about.shape
    twin = (
        ", synthetic, of the same shape and count as the data it stands for" if about.twin else ""
    )
    lowest, whose = group.lowest
    attained = int(np.nanargmin(whose.history.fun)) if math.isfinite(lowest) else None
    star = (
        "No run has a finite objective value."
        if attained is None
        else f"f* = {lowest:.10g}, the least value in all of these runs: {_name(group, whose)} "
        f"attained it in iteration {attained:,}."
    )
    longest = max(len(run.history) for run in group.runs) - 1
    cut = f" Runs are up to {longest:,} iterations long; the first {group.plotted:,} are shown."
    return f"""<h2><span class="figure-name">{figure}:</span> {escape(group.title)}{badge}</h2>
<p class="note">{rows:,} by {columns:,} matrix with {about.entries:,} entries{twin}; rank
{about.rank}; {escape(_profiles(group))}.</p>
<figure class="plot" id="{key}"></figure>
<p class="hint">{HINT}</p>
<p>{escape(star)}{cut if longest > group.plotted else ""}</p>
<h3>Results</h3>
<p class="note">In the iterations shown. Restarts include those by line 11; "at {EARLY:,}" is after
as many values + gradients.</p>
{_results(group)}"""


def _results(group: Group) -> str:
    headings = ["method", "step size", "iterations", "values", "gradients", "time", "restarts",
                "line 11", "f - f* at the end", "‖∇f‖ at the end", f"f - f* at {EARLY:,}",
                f"‖∇f‖ at {EARLY:,}", "status"]  # fmt: skip
    lines = [_result_cells(group, run) for run in group.runs]
    # Columns that would hold nothing but dashes say nothing.
    told = [i for i in range(len(headings)) if any(line[i] != "-" for line in lines)]
    return _table(
        [headings[i] for i in told], [[line[i] for i in told] for line in lines], text=["status"]
    )


def _result_cells(group: Group, run: Recorded) -> list[str]:
    about, history = run.about, run.history
    name = _name(group, run)
    status = about.status.replace("_", " ").lower()
    step = (
        about.step_from if about.step_size is None else f"{about.step_size:.4g} ({about.step_from})"
    )
    size = group.shown(run).stop
    if not size:
        return [name, step, *["-"] * 10, status]
    restarts = sum(row < size for row in history.restart_rows())
    rollbacks = sum(row < size and kind == "ROLLBACK" for row, kind, _ in history.events)
    early = int(np.searchsorted(run.evaluations, EARLY, side="right")) - 1
    at_early = early if early >= 0 and run.evaluations[-1] >= EARLY else None
    return [
        name,
        step,
        f"{size - 1:,}",
        f"{int(history.nfev[size - 1]):,}",
        f"{int(history.njev[size - 1]):,}",
        _duration(float(history.time[size - 1])),
        f"{restarts:,}" if restarts else "-",
        f"{rollbacks:,}" if rollbacks else "-",
        *_error_and_gradient(group, run, size - 1),
        *(("-", "-") if at_early is None else _error_and_gradient(group, run, at_early)),
        status,
    ]


def _duration(time: float) -> str:
    return seconds(time) if time < 1000 else f"{time:,.0f} s"


def _error_and_gradient(group: Group, run: Recorded, row: int) -> tuple[str, str]:
    error = float(run.history.fun[row]) - group.lowest[0]
    norm = float(run.history.grad_norm[row])
    return (
        "0" if error == 0 else f"{error:.2e}" if math.isfinite(error) else "-",
        f"{norm:.2e}" if math.isfinite(norm) else "-",
    )


def _claims(claims: Sequence[Claim]) -> str:
    found = Counter(VERDICTS[claim.seen][0] for claim in claims)
    tally = ", ".join(f"{number} {verdict}" for verdict, number in found.items())
    items = []
    for claim in claims:
        verdict, kind = VERDICTS[claim.seen]
        items.append(
            f'<li class="{verdict.replace(" ", "-")}"><p><span class="{kind}">{verdict}</span>: '
            f"{escape(claim.statement)}</p>"
            f'<p class="note">{escape(claim.where)}; {escape(claim.on)}</p>'
            f"<p>{escape(claim.numbers)}</p></li>"
        )
    return (
        f"<h2>What the paper says</h2>\n<p>{counted(len(claims), 'statement')}: {tally}.</p>\n"
        f'<ul class="claims">{"".join(items)}</ul>'
    )


def _measure(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= number < 1e9 else f"{number:.4g}"


def _theorems(study: Study) -> str:
    headings = ["theorem", "quantity", "function", "bound", "measured", "slack", "verdict",
                "formula"]  # fmt: skip
    lines = [
        (
            bound.theorem,
            bound.quantity,
            bound.function,
            _measure(bound.bound),
            _measure(bound.measured),
            f"{bound.slack:.3g} times" if math.isfinite(bound.slack) else "∞",
            "holds" if bound.holds else "does not hold",
            bound.formula,
        )
        for bound in study.bounds
    ]
    table = _table(headings, lines, text=["quantity", "function", "verdict", "formula"])
    holding = sum(bound.holds for bound in study.bounds)
    return (
        f"<h2>Theorems</h2>\n<p>{holding} of {counted(len(lines), 'bound')} hold; slack: how many "
        f"times the bound is larger than what was measured.</p>\n{table}"
    )


def _value(value: Any) -> str:
    """A parameter in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_value(inner) for inner in value) + ")"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _parameters(groups: Sequence[Group]) -> str:
    """Runs that differ in their step size and data alone share a line."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for group, run in _runs(groups):
        given = {
            name: value
            for name, value in run.about.parameters.items()
            if value is not None and name != "step_size"
        }
        line = (_name(group, run), run.about.profile, _value(given) or "none")
        where.setdefault(line, []).append(group.title)
    headings = ["method", "whose", "parameters", "on"]
    lines = [
        (*line, "all" if len(set(on)) == len(groups) > 1 else "; ".join(dict.fromkeys(on)))
        for line, on in where.items()
    ]
    return (
        "<h2>Parameters</h2>\n<p>Step sizes are in the tables of results; what is not listed was "
        f"left to the method.</p>\n{_table(headings, lines, text=headings[1:])}"
    )


def _tuning(groups: Sequence[Group]) -> str:
    tuned = [(group, run) for group, run in _runs(groups) if run.about.tuning]
    keys = list(dict.fromkeys(key for _, run in tuned for key in run.about.tuning))
    lines = [
        (
            _name(group, run),
            group.title,
            *(_value(run.about.tuning[key]) if key in run.about.tuning else "-" for key in keys),
        )
        for group, run in tuned
    ]
    return (
        "<h2>Cost of tuning</h2>\n<p>What the search for the step size took, besides the runs "
        f"above.</p>\n{_table(['method', 'on', *keys], lines, text=['on'])}"
    )


def _provenance(groups: Sequence[Group]) -> str:
    abouts = [run.about for _, run in _runs(groups)]
    data = dict.fromkeys(
        (
            about.data_name,
            about.problem_name,
            f"{about.shape[0]:,} by {about.shape[1]:,}",
            f"{about.entries:,}",
            str(about.rank),
            about.fingerprint,
        )
        for about in abouts
    )
    headings = ["data", "problem", "shape", "entries", "rank", "fingerprint"]
    machines = dict.fromkeys(
        f"{about.setup}; {counted(about.threads, 'thread')}" for about in abouts
    )
    told = "".join(f"<p>{escape(machine)}</p>" for machine in machines)
    table = _table(headings, data, text=["problem", "fingerprint"])
    return f"<h2>Data and machine</h2>\n{table}\n{told}"
