"""Write the table of methods, and the lists of their classes, into the pages of the reference.

    python docs/make_methods.py

They follow from the registry: what stands between two marks is replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

from momentous.methods.registry import REGISTRY, methods_table, rules

REFERENCE = Path(__file__).parent / "reference"
METHODS, MINIMISERS = REFERENCE / "methods.md", REFERENCE / "jax.md"


def summary_of(module: str, names: list[str]) -> str:
    """The list of classes that Sphinx makes pages of."""
    head = ["```{eval-rst}", f".. currentmodule:: {module}", "", ".. autosummary::"]
    return "\n".join([*head, "   :toctree: generated", "", *(f"   {n}" for n in names), "```"])


def between_marks(text: str, name: str, new: str) -> str:
    """The page with new text between its marks of that name."""
    marks = rf"(<!-- {name}: .*? -->\n).*?(\n<!-- end of {name} -->)"
    return re.sub(marks, lambda found: found[1] + new + found[2], text, flags=re.DOTALL)


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    methods = between_marks(METHODS.read_text(), "methods", methods_table())
    classes = summary_of("momentous", [cls.__name__ for cls in REGISTRY.values()])
    compiled = summary_of("momentous.jax", [cls.__name__ for cls in rules().values()])
    return {
        METHODS: between_marks(methods, "classes", classes),
        MINIMISERS: between_marks(MINIMISERS.read_text(), "minimisers", compiled),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
