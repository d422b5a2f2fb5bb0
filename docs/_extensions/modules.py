"""The table of modules in the reference: each with the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

from sphinx.application import Sphinx

SOURCE = Path(__file__).parents[2] / "src" / "momentous"

# Folders from the bottom to the top, as imports go; what is not named follows in the alphabet.
ORDER = (
    "io", "core", "distributed", "methods", "lanes", "testbed", "certify", "api.py", "torch", "jax",
    "lowrank", "lowrank/data", "lowrank/losses", "lowrank/backends", "lowrank/ranks",
    "lowrank/solvers", "lowrank/model", "lowrank/estimators", "lab", "cli",
)  # fmt: skip


def position(name: str) -> list[tuple[int, str]]:
    """A folder's own row first, then its modules and subfolders by `ORDER` and the alphabet."""
    parts = name.removesuffix("/__init__.py").split("/")
    found = []
    for i, part in enumerate(parts):
        here = "/".join(parts[: i + 1])
        first = -1 if here == "__init__.py" else len(ORDER)
        found.append((ORDER.index(here) if here in ORDER else first, part))
    return found


def table() -> str:
    """The table in Markdown."""
    lines = ["| module | what it is |", "| --- | --- |"]
    names = [str(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py")]
    for name in sorted(names, key=position):
        folder = name.removesuffix("__init__.py")
        shown = f"**`{folder or 'momentous'}`**" if name != folder else f"`{name}`"
        docstring = ast.get_docstring(ast.parse((SOURCE / name).read_text(encoding="utf-8"))) or ""
        text = docstring.partition("\n")[0].replace("``", "`").replace("|", "\\|")
        lines.append(f"| {shown} | {text} |")
    return "\n".join(lines) + "\n"


def write(app: Sphinx) -> None:
    """Put the table where `reference/modules.md` includes it from."""
    file = Path(app.srcdir, "reference", "generated", "modules-table.md")
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or file.read_text(encoding="utf-8") != table():
        file.write_text(table(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the table before the pages are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
