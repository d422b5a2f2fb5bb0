"""Our docstrings as reStructuredText: bars are norms, tables of names cite nothing, and members
that come from other packages are left to their own documentation."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils.parsers.rst.states import Inliner
from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary

CITATION = re.compile(r"\s*\[\w+(-\w+)?\]_")


def bar(
    inliner: Inliner, match: re.Match[str], lineno: int
) -> tuple[str, list[Any], str, list[Any]]:
    """|x| is a norm: the bar that docutils takes for the start of a substitution is a letter."""
    end = match.end("start")
    return match.string[:end], [], match.string[end:], []


class Summary(Autosummary):
    """A table of names whose first sentences cite nothing: the references stand elsewhere."""

    def get_items(self, names: list[str]) -> list[tuple[str, str | None, str, str]]:
        return [
            (name, signature, CITATION.sub("", summary), real)
            for name, signature, summary, real in super().get_items(names)
        ]


def from_elsewhere(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Is a member a module, or written in another package, as `set_params` is?  It is skipped."""
    if inspect.ismodule(member):
        return True
    function = getattr(member, "fget", None) or member
    module = getattr(function, "__module__", None) or ""
    ours = module.startswith("momentous") or not (module or inspect.isroutine(function))
    return None if ours else True


def plain_stars(app: Sphinx, context: Any, lines: list[str]) -> None:
    """In the help of commands a star is a star."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Put all of it in place."""
    Inliner.dispatch["|"] = bar
    app.add_directive("autosummary", Summary, override=True)
    app.connect("autodoc-skip-member", from_elsewhere)
    app.connect("sphinx-click-process-description", plain_stars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
