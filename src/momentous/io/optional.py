"""Optional packages: imported where they are used, with one message where they are missing."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING


def require(package: str, extra: str, purpose: str) -> ModuleType:
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


class LazyModule(ModuleType):
    """A package that is imported when it is first used; `require` says what is missing."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(package)
        self._wanted = package, extra, purpose

    if not TYPE_CHECKING:  # to checkers it is a module like any other

        def __getattr__(self, name):
            if name.startswith("__"):  # what Python itself asks for, not a use
                raise AttributeError(name)
            found = getattr(require(*self._wanted), name)
            setattr(self, name, found)  # the next time it is found without a call
            return found
