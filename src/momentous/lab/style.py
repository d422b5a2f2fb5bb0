"""How our pictures look: colours that colour-blind readers tell apart, quiet axes, no screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from momentous.io.atomic import atomic_file
from momentous.io.optional import require
from momentous.io.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = JsonObject
"""Matplotlib's words for a line or a mark."""

# Okabe and Ito's colours, without the yellow that is lost on white.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D"
)  # fmt: skip
Dashes = str | tuple[int, tuple[float, ...]]
LINES: tuple[Dashes, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("s", "^", "D", "v", "X", "P", "*")
GRID, FAINT = "#E5E5E5", "#666666"


def new_figure(width: float, height: float) -> "Figure":
    """A figure that needs no display and leaves pyplot's state alone."""
    figure: Figure = require("matplotlib.figure", "app", "a picture").Figure(
        figsize=(width, height), layout="constrained"
    )
    require("matplotlib.backends.backend_agg", "app", "a picture").FigureCanvasAgg(figure)
    return figure


def quiet(axes: "Axes") -> None:
    """A light grid, and no frame around the data."""
    axes.grid(True, which="major", color=GRID, lw=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def line_styles(names: Sequence[str], heavy: str = "auto") -> dict[str, Look]:
    """Colour and dashes of every line, the same in all pictures of the same methods.

    One of them is black and heavy; outside solvers (``library:solver``) are dotted or dashed.
    """
    plain = [name for name in names if name != heavy]
    thin = [name for name in plain if ":" not in name]
    styles: dict[str, Look] = {heavy: {"color": "black", "ls": "-", "lw": 2.6}}
    for i, name in enumerate(thin):
        styles[name] = {"color": COLOURS[i % len(COLOURS)], "ls": LINES[0], "lw": 1.5}
        if i >= len(COLOURS):  # the colours come round again
            marker = MARKERS[(i - len(COLOURS)) % len(MARKERS)]
            styles[name] |= {"ls": LINES[3], "marker": marker, "ms": 4.5, "markevery": 0.11}
    for i, name in enumerate(name for name in plain if ":" in name):
        colour, dashes = COLOURS[(i + 1) % len(COLOURS)], LINES[1 + i % 2]
        styles[name] = {"color": colour, "ls": dashes, "lw": 2.0}
    return {name: styles[name] for name in names}


def save(figure: "Figure", path: Path) -> None:
    """Write a figure; the ending of the name says in which format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
