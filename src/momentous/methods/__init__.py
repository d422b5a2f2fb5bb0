"""The methods, one family per folder, listed in ``__init__.pyi``."""

from importlib import import_module

from momentous.lazy import names
from momentous.methods.registry import register_method

__all__ = list(names(__name__, __spec__))

for _name, _module in names(__name__, __spec__).items():
    globals()[_name] = register_method(getattr(import_module(_module), _name))
