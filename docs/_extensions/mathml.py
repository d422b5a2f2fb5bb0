"""Mathematics as MathML, which browsers show by themselves: no script and nothing to fetch."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def inline(visitor: Any, node: nodes.math) -> None:
    """A formula within a line."""
    visitor.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(visitor: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own, with its number if it has a label."""
    visitor.body.append(visitor.starttag(node, "div", CLASS="formula"))
    visitor.body.append(convert(node.astext(), display="block"))
    if node["number"]:
        number = get_node_equation_number(visitor, node)
        visitor.body.append(f'<span class="eqno">({number})</span>')
    visitor.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name that `html_math_renderer` takes."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer_name = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
