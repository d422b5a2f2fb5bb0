"""Names that a package imports when they are first used: those in its ``__init__.pyi``.

So one list serves editors, type checkers and the interpreter.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any


def names(package: str, spec: ModuleSpec) -> dict[str, str]:
    """The module of each name in the stub of a package, or of a package below it.

    A line is ``from module import name as name``; ``from package import *`` stands for the names in
    the stub of that package.
    """
    inner = package.removeprefix(spec.name).replace(".", "/")
    folder = (spec.submodule_search_locations or [""])[0]
    stub = spec.loader.get_data(f"{folder}{inner}/__init__.pyi")  # type: ignore[union-attr]
    found: dict[str, str] = {}
    for line in stub.decode().splitlines():
        match line.partition("#")[0].split():
            case ["from", module, "import", "*"]:
                found |= names(module, spec)
            case ["from", module, "import", name, "as", _]:
                found[name] = module
    return found


def importer(
    package: str, module_of: dict[str, str], namespace: dict[str, Any]
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: imports a name when it is first used, and keeps it."""

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module_of[name] == package:
            return import_module(f"{package}.{name}")
        value = namespace[name] = getattr(import_module(module_of[name]), name)
        return value

    return get
