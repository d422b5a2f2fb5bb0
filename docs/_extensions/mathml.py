"""Mathematics as MathML, which browsers show by themselves: no script and nothing to fetch."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number

# Operators around which browsers leave too much room: the bars of a norm, and a slash.
TIGHT = {
    '<mo stretchy="false">&#x0007C;</mo>': '<mo stretchy="false" lspace="0" rspace="0">|</mo>',
    "<mo>&#x0002F;</mo>": '<mo lspace="0" rspace="0">/</mo>',
}


def mathml(formula: str, display: str) -> str:
    """A formula in LaTeX as MathML, `display` being "inline" or "block"."""
    made = convert(formula, display=display)
    for wide, tight in TIGHT.items():
        made = made.replace(wide, tight)
    return made


def inline(visitor: Any, node: nodes.math) -> None:
    """A formula within a line."""
    visitor.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(visitor: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own, with its number if it has a label."""
    visitor.body.append(visitor.starttag(node, "div", CLASS="formula"))
    visitor.body.append(mathml(node.astext(), "block"))
    if node["number"]:
        number = get_node_equation_number(visitor, node)
        visitor.body.append(f'<span class="eqno">({number})</span>')
    visitor.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; it is the only one, so Sphinx takes it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
