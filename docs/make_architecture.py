"""Write the table of modules in docs/architecture.md from the modules' docstrings.

    python docs/make_architecture.py

Every package and every module has one row: its name and the first line of its docstring.
"""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "architecture.md"
SOURCE = REPOSITORY / "src" / "momentous"
BEGIN, END = "<!-- modules: begin -->", "<!-- modules: end -->"

# Folders from the bottom to the top, as imports go; what is not named follows in the alphabet.
ORDER = (
    "io", "core", "distributed", "methods", "testbed", "certify", "api.py", "torch", "jax",
    "lowrank", "lowrank/data", "lowrank/losses", "lowrank/backends", "lowrank/ranks",
    "lowrank/solvers",
    "lowrank/model", "lowrank/estimators", "lab", "cli",
)  # fmt: skip


def first_line(path: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def modules(source: Path = SOURCE) -> list[str]:
    """The paths of all modules below the source folder, in the order of the table."""
    names = [str(path.relative_to(source).as_posix()) for path in source.rglob("*.py")]
    return sorted(names, key=_key)


def _key(name: str) -> list[tuple[int, str]]:
    """A folder's own row first, then its modules and subfolders by `ORDER` and the alphabet."""
    parts = name.removesuffix("/__init__.py").split("/")
    found = []
    for i, part in enumerate(parts):
        here = "/".join(parts[: i + 1])
        first = -1 if here == "__init__.py" else len(ORDER)
        found.append((ORDER.index(here) if here in ORDER else first, part))
    return found


def table(source: Path = SOURCE) -> str:
    """The table in Markdown."""
    lines = ["| module | what it is |", "| --- | --- |"]
    for name in modules(source):
        folder = name.removesuffix("__init__.py")
        shown = f"**`{folder or 'momentous'}`**" if name != folder else f"`{name}`"
        text = first_line(source / name).replace("``", "`").replace("|", "\\|")
        lines.append(f"| {shown} | {text} |")
    return "\n".join(lines)


def with_table(page: str, source: Path = SOURCE) -> str:
    """The page with the present table between the two marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table(source)}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
