"""The page of a study: one HTML file with plots to play with, tables, and nothing to fetch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from momentous.reproduce.page_findings import (
    GROWTH_PLOT,
    GROWTH_SECTION,
    claims_section,
    theorems_section,
)
from momentous.lab.report.plots import group_plots, growth_plot
from momentous.lab.report.tables import (
    group_section,
    parameters_section,
    provenance_section,
    tuning_section,
)
from momentous.lab.paper.results import RunSet, Study
from momentous.version import __version__

SCRIPTS = ("scale.js", "marks.js", "plot.js", "gestures.js", "page.js")


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
    sections = _sections(study, groups)
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
        plots=_as_json(_plots(study, groups)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(page.encode())
    os.replace(partial, path)


def _asset(name: str) -> str:
    return (files("momentous.reproduce") / "assets" / name).read_text(encoding="utf-8")


def _sections(study: Study, groups: Sequence[RunSet]) -> list[tuple[str, str]]:
    """What the contents call each section, and its HTML."""
    made = [(group.title, group_section(_plot_key(i), group)) for i, group in enumerate(groups)]
    if study.claims:
        made.append(("What the paper says", claims_section(study.claims)))
    if study.bounds:
        made.append(("Theorems", theorems_section(study.bounds)))
    if study.growths:
        made.append(("Growth with 1/μ", GROWTH_SECTION))
    if groups:
        made.append(("Parameters", parameters_section(groups)))
        made.append(("Cost of tuning", tuning_section(groups)))
        made.append(("Data and machine", provenance_section(groups)))
    return [(name, html) for name, html in made if html]


def _plots(study: Study, groups: Sequence[RunSet]) -> dict[str, Any]:
    """What is drawn into the figures of the sections, by their ids."""
    plots = {_plot_key(i): plot for i, plot in enumerate(group_plots(groups))}
    if study.growths:
        plots[GROWTH_PLOT] = growth_plot(study.growths)
    return plots


def _plot_key(number: int) -> str:
    return f"plot-{number}"


def _as_json(plots: dict[str, Any]) -> str:
    """Without any "<": nothing in a name can end the script element."""
    return json.dumps(plots, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


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
