"""A table in HTML: columns of numbers and of words, in a box that scrolls by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

TONES = {"holds": "good", "does not hold": "bad"}  # of cells that say just this
LONG_CELL = 32  # characters beyond which a cell may be broken into lines


def html_table(
    name: str,
    headings: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    text: Sequence[str] = (),
) -> str:
    """The table; all cells are plain text.

    Parameters
    ----------
    name : str
        Of the box, for those who hear the page; no other on the page has the same.
    headings : sequence of str
    lines : iterable of sequences of str
        The first cell names the row.
    text : sequence of str
        Headings of the columns that hold words.
    """
    lines = list(lines)
    columns = zip(*lines, strict=True)
    classes = [
        ("text long" if max(map(len, column)) > LONG_CELL else "text") if heading in text else ""
        for heading, column in zip(headings, columns, strict=True)
    ]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(heading)}</th>'
        for kind, heading in zip(classes, headings, strict=True)
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
        f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
