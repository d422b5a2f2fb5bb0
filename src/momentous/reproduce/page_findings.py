"""The sections of the page about what was found: the paper's statements, theorems, growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from momentous.comparison.words import counted
from momentous.reproduce.html_table import html_table
from momentous.lab.report.plots import plot_figure
from momentous.lab.paper.results import Bound, Claim, tally

TONES = {True: "good", False: "bad", None: "unsure"}
GROWTH_PLOT = "growth"  # the id of its figure
GROWTH_SECTION = (
    "<h2>Growth with 1/μ</h2>\n<p>Gradients to a gradient norm of the order μ on the nested chain, "
    "with the exponent of the power of 1/μ fitted to them.</p>\n"
    f"{plot_figure(GROWTH_PLOT)}"
)


def claims_section(claims: Sequence[Claim]) -> str:
    """Every statement with its verdict and the numbers behind it."""
    items = [
        f'<li class="{claim.verdict.replace(" ", "-")}">'
        f'<p><span class="{TONES[claim.seen]}">{claim.verdict}</span>: '
        f"{escape(claim.statement)}</p>"
        f'<p class="note">{escape(claim.where)}; {escape(claim.on)}</p>'
        f"<p>{escape(claim.numbers)}</p></li>"
        for claim in claims
    ]
    return (
        f"<h2>What the paper says</h2>\n<p>{tally(claims)}</p>\n"
        f'<ul class="claims">{"".join(items)}</ul>'
    )


def theorems_section(bounds: Sequence[Bound]) -> str:
    """Every bound beside what was measured."""
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
        for bound in bounds
    ]
    words = ["quantity", "function", "verdict", "formula"]
    table = html_table("bounds of the theorems", headings, lines, text=words)
    holding = sum(bound.holds for bound in bounds)
    return (
        f"<h2>Theorems</h2>\n<p>{holding} of {counted(len(lines), 'bound')} hold; slack: how many "
        f"times the bound is larger than what was measured.</p>\n{table}"
    )


def _measure(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= number < 1e9 else f"{number:.4g}"
