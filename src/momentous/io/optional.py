"""Optional packages: imported where they are used, with one message where they are missing."""

from importlib import import_module
from typing import Any


def require(package: str, extra: str, purpose: str) -> Any:
    """The module of that name, or an error that says what needs it and how to install it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or package.split(".")[0] != error.name.split(".")[0]:
            raise  # installed, but something that it needs itself is not
        top = package.split(".")[0]
        raise ModuleNotFoundError(
            f"{purpose} needs {top}, which is not installed; install it with: "
            f'pip install "momentous[{extra}]"',
            name=error.name,
        ) from None


class LazyModule:
    """A package that is imported when it is first used; `require` says what is missing."""

    def __init__(self, package: str, extra: str, purpose: str):
        self._wanted = package, extra, purpose

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself asks for, not a use
            raise AttributeError(name)
        found = getattr(require(*self._wanted), name)
        setattr(self, name, found)  # the next time it is found without a call
        return found
